#include <algorithm>

#include "lab/scenario.h"

namespace hierlock::lab {

namespace {

// What is expected of a line at each engine, in words; equal ones told together.
std::string told(const Script& script, const Line& line, const std::map<std::string, std::string>& by_engine) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;  // what, and of which engines
  const std::vector<std::string>& order = !line.only.empty()        ? line.only
                                          : !script.engines.empty() ? script.engines
                                                                    : known_engines();
  for (const std::string& engine : order) {
    const auto found = by_engine.find(engine);
    if (found == by_engine.end()) continue;
    const auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == found->second; });
    if (group == groups.end()) {
      groups.push_back({found->second, {engine}});
    } else {
      group->second.push_back(engine);
    }
  }
  if (groups.size() == 1) return groups.front().first;
  std::string text;
  for (const auto& [what, engines] : groups) {
    text += text.empty() ? "" : "; ";
    for (const std::string& engine : engines) text += (text.empty() || text.back() == ' ' ? "" : " ") + engine;
    text += ": " + what;
  }
  // Without `engines` it may be run anywhere: what most do is the best guess for the others.
  if (script.engines.empty() && line.only.empty()) text += "; else: " + groups.front().first;
  return text;
}

}  // namespace

std::string rewritten(const Scenario& scenario, std::span<const Result> results) {
  const Script& script = scenario.script();
  std::map<std::size_t, std::string> changed;
  for (const Line& line : script.lines) {
    if (line.kind == Event::Kind::setup) continue;
    std::map<std::string, std::string> by_engine;
    for (const std::string& engine : script.engines.empty() ? std::vector<std::string>{} : script.engines) {
      if (line.is_for(engine)) by_engine[engine] = line.expected_of(engine).str();
    }
    bool any = false;
    for (const Result& result : results) {
      const auto event = std::find_if(result.events.begin(), result.events.end(),
                                      [&](const Event& e) { return e.line == line.number; });
      if (event == result.events.end() || event->passed || event->actual == "unknown" ||
          event->actual == "still blocked") {
        continue;
      }
      by_engine[result.engine] = event->actual;
      any = true;
    }
    if (any) changed[line.number] = told(script, line, by_engine);
  }
  return rewritten(script, changed);
}

}  // namespace hierlock::lab
