#include "remote/components.h"

#include <algorithm>
#include <utility>

namespace hierlock::remote {

// Tarjan, "Depth-first search and linear graph algorithms", 1972; without recursion.
std::vector<Vertex> components(const std::vector<std::vector<Vertex>>& edges) {
  constexpr Vertex none = static_cast<Vertex>(-1);
  const auto count = static_cast<Vertex>(edges.size());
  std::vector<Vertex> component(count, none), order(count, none), low(count, 0), stack;
  std::vector<std::pair<Vertex, std::size_t>> calls;  // a vertex, and its next edge
  Vertex last_order = 0, last_component = 0;
  for (Vertex root = 0; root < count; ++root) {
    if (order[root] != none) continue;
    calls.emplace_back(root, 0);
    while (!calls.empty()) {
      const Vertex v = calls.back().first;
      if (calls.back().second == 0 && order[v] == none) {
        order[v] = low[v] = last_order++;
        stack.push_back(v);
      }
      if (calls.back().second < edges[v].size()) {
        const Vertex next = edges[v][calls.back().second++];
        if (order[next] == none) {
          calls.emplace_back(next, 0);
        } else if (component[next] == none) {
          low[v] = std::min(low[v], order[next]);
        }
        continue;
      }
      calls.pop_back();
      if (!calls.empty()) low[calls.back().first] = std::min(low[calls.back().first], low[v]);
      if (low[v] != order[v]) continue;
      for (Vertex member = none; member != v;) {
        member = stack.back();
        stack.pop_back();
        component[member] = last_component;
      }
      ++last_component;
    }
  }
  return component;
}

}  // namespace hierlock::remote
