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
  const bool anywhere = script.engines.empty() && line.only.empty();
  if (groups.size() == 1 && (!anywhere || line.by_engine.empty())) return groups.front().first;
  std::string text;
  for (const auto& [what, engines] : groups) {
    text += text.empty() ? "" : "; ";
    for (const std::string& engine : engines) text += (text.empty() || text.back() == ' ' ? "" : " ") + engine;
    text += ": " + what;
  }
  // Without `engines` it may be run anywhere; of the others nobody knows more than before.
  if (anywhere) text += "; else: " + (line.everywhere ? line.everywhere->str() : "ok");
  return text;
}

}  // namespace

std::string rewritten(const Scenario& scenario, std::span<const Result> results) {
  const Script& script = scenario.script();
  std::map<std::size_t, std::string> changed;
  for (const Line& line : script.lines) {
    if (line.kind == Event::Kind::setup) continue;
    std::map<std::string, std::string> by_engine;
    for (const std::string& engine : script.engines) {
      if (line.is_for(engine)) by_engine[engine] = line.expected_of(engine).str();
    }
    for (const auto& [engine, expectation] : line.by_engine) by_engine[engine] = expectation.str();
    bool any = false;
    for (const Result& result : results) {
      const auto event = std::find_if(result.events.begin(), result.events.end(),
                                      [&](const Event& e) { return e.line == line.number; });
      if (event == result.events.end()) continue;
      by_engine[result.engine] = line.expected_of(result.engine).str();
      // Who is none of the scenario's cannot be expected.
      if (event->passed || event->actual == "unknown" || event->actual == "still blocked" ||
          event->actual.find("outsider") != std::string::npos) {
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
