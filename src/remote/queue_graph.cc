#include "remote/queue_graph.h"

#include <algorithm>
#include <array>

namespace hierlock::remote {

Vertex QueueGraph::new_vertex() {
  edges_.emplace_back();
  return static_cast<Vertex>(edges_.size() - 1);
}

Vertex QueueGraph::vertex_of(std::uint64_t owner) {
  const auto [found, is_new] = vertices_.try_emplace(owner);
  if (is_new) found->second = new_vertex();
  return found->second;
}

QueueGraph::QueueGraph(const embedded::Queue::Waits& queue) {
  std::unordered_map<std::uint32_t, std::vector<const embedded::Queue::Waits::Hold*>> holders;  // by node
  for (const auto& hold : queue.holds) holders[hold.node].push_back(&hold);
  for (std::size_t i = 0; i < queue.waits.size();) {
    const std::uint32_t node = queue.waits[i].node;
    std::array<Vertex, all_modes.size()> chain{};  // by mode: what a waiter in it stands behind
    for (const Mode mode : all_modes) {
      const Vertex first = new_vertex();
      chain[static_cast<std::size_t>(mode)] = first;
      for (const auto* hold : holders[node]) {
        if (compatible(hold->mode, mode)) continue;
        const Vertex holder = vertex_of(hold->owner);  // may move the edges
        edges_[first].push_back(holder);
      }
    }
    for (; i < queue.waits.size() && queue.waits[i].node == node; ++i) {
      const auto& wait = queue.waits[i];
      const Vertex waiter = vertex_of(wait.owner);
      edges_[waiter].push_back(chain[static_cast<std::size_t>(wait.mode)]);
      for (const Mode mode : all_modes) {
        if (compatible(wait.mode, mode)) continue;
        Vertex& before = chain[static_cast<std::size_t>(mode)];
        const Vertex next = new_vertex();
        edges_[next] = {before, waiter};
        before = next;
      }
    }
  }
}

std::vector<std::vector<std::size_t>> QueueGraph::reached(std::span<const std::uint64_t> from,
                                                          std::span<const std::uint64_t> to) const {
  const std::vector<Vertex> component = components(edges_);
  const std::size_t words = to.size() / 64 + 1;
  const Vertex count = component.empty() ? 0 : *std::max_element(component.begin(), component.end()) + 1;
  std::vector<std::uint64_t> bits(words * count);  // by component: what it reaches
  std::vector<std::vector<Vertex>> members(count);
  for (Vertex v = 0; v < component.size(); ++v) members[component[v]].push_back(v);
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto found = vertices_.find(to[i]);
    if (found != vertices_.end()) bits[component[found->second] * words + i / 64] |= std::uint64_t{1} << i % 64;
  }
  for (Vertex c = 0; c < count; ++c) {  // a component leads to those with lower numbers only
    for (const Vertex v : members[c]) {
      for (const Vertex next : edges_[v]) {
        for (std::size_t w = 0; w < words && component[next] != c; ++w) {
          bits[c * words + w] |= bits[component[next] * words + w];
        }
      }
    }
  }
  std::vector<std::vector<std::size_t>> result(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto found = vertices_.find(from[i]);
    if (found == vertices_.end()) continue;
    for (std::size_t k = 0; k < to.size(); ++k) {
      const bool reaches = (bits[component[found->second] * words + k / 64] >> k % 64 & 1) != 0;
      if (reaches && to[k] != from[i]) result[i].push_back(k);
    }
  }
  return result;
}

std::vector<bool> QueueGraph::waited_for(std::span<const std::uint64_t> from, std::span<const std::uint64_t> to) const {
  std::vector<bool> seen(edges_.size());
  std::vector<Vertex> open;
  const auto visit = [&](Vertex vertex) {
    if (seen[vertex]) return;
    seen[vertex] = true;
    open.push_back(vertex);
  };
  for (const std::uint64_t owner : from) {
    const auto found = vertices_.find(owner);
    if (found == vertices_.end()) continue;
    for (const Vertex next : edges_[found->second]) visit(next);
  }
  while (!open.empty()) {
    const Vertex vertex = open.back();
    open.pop_back();
    for (const Vertex next : edges_[vertex]) visit(next);
  }
  std::vector<bool> result(to.size());
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto found = vertices_.find(to[i]);
    result[i] = found != vertices_.end() && seen[found->second];
  }
  return result;
}

}  // namespace hierlock::remote
