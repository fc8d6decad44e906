// No expectation of a shipped scenario is idle: whichever is turned into another one, the run fails, at that line.
//
// What a line expects of several engines in the same words is one expectation, and is turned on the first of engines()
// that lists it. On memory: each is turned in two ways, on SQLite in one. On servers a sample is turned: HIERLOCK_SEED
// chooses it, and each run has another. With HIERLOCK_FLIPS=all (./test all) every expectation is turned on every
// engine that lists it, in every way.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>
#include <tuple>

#include "packs.h"
#include "support/needs_server.h"

namespace hierlock::lab_tests {
namespace {

using lab::Event;
using lab::Result;

// These do what memory: does.
std::vector<std::string> turned_on() {
  std::vector<std::string> names = engines();
  for (const char* const other : {"shm", "valkey", "redis"}) std::erase(names, other);
  return names;
}

std::uint64_t seed() {
  static const std::uint64_t chosen = [] {
    const char* const given = std::getenv("HIERLOCK_SEED");
    const std::uint64_t number = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::cout << "HIERLOCK_SEED=" << number << std::endl;
    return number;
  }();
  return chosen;
}
bool all_flips() {
  const char* const given = std::getenv("HIERLOCK_FLIPS");
  return given != nullptr && std::string(given) == "all";
}
// One of how many expectations is turned.
unsigned one_of(const std::string& engine) {
  if (all_flips()) return 1;
  if (sanitized) return 7;             // sanitizers look at the lab, not at the scenarios
  if (engine == "mariadb") return 75;  // each look takes 150 ms there, and no other engine shares the work
  return engine == "memory" || engine == "sqlite" ? 1 : 3;
}

// --- turning an expectation ---------------------------------------------------------------------------------------

std::vector<std::string> words(const std::string& text, const std::string& between) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(between, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + between.size();
  }
  return parts;
}

// Other expectations that must not hold where this event was as expected.
std::vector<std::string> flips(const Event& event, const std::vector<std::string>& sessions,
                               const std::string& engine) {
  std::string other = "nobody";
  for (const std::string& session : sessions) {
    if (session != event.session) other = session;
  }
  if (event.expected.empty()) return {"deadlock", "busy"};

  const std::size_t comma = event.expected.find(", unblocks ");
  const std::string head = event.expected.substr(0, comma);
  const std::string tail = comma == std::string::npos ? "" : event.expected.substr(comma);
  const std::string kind = head.substr(0, head.find_first_of(" ,"));
  std::vector<std::string> heads;
  if (kind == "ok") {
    heads = {"busy", "deadlock", "rows flipped"};
    if (sessions.size() > 1) heads.push_back("blocked by " + other);
  } else if (kind == "rows") {
    heads = {"rows flipped", "affected 99", "timeout"};
    if (head != "rows none") heads.insert(heads.end(), {"rows none", head + "; flipped"});
  } else if (kind == "affected") {
    heads = {"affected " + std::to_string(std::stoull(head.substr(kind.size())) + 1), "rows none", "serialization"};
  } else if (kind == "conflict") {
    heads = {"affected 1", "deadlock"};
  } else if (kind == "blocked") {
    std::vector<std::string> by = words(head.substr(std::string("blocked by ").size()), ", ");
    heads = {"ok", "deadlock", "blocked by " + event.session};
    if (by.size() > 1) heads.push_back("blocked by " + by.front());
    for (const std::string& session : sessions) {
      if (session == event.session || std::find(by.begin(), by.end(), session) != by.end()) continue;
      heads.insert(heads.end(), {head + ", " + session, "blocked by " + session});
      break;
    }
  } else if (kind == "deadlock") {
    heads = {"ok", "busy", "blocked by " + other};
    if (engine == "memory") heads.push_back("deadlock, " + other);  // there the victim is who closes the circle
  } else if (kind == "timeout") {
    heads = {"busy", "ok", "deadlock"};
  } else if (kind == "busy") {
    heads = {"timeout", "ok", "deadlock"};
  } else {  // serialization, error
    heads = {"ok", "error flipped", "busy"};
  }
  std::vector<std::string> result;
  for (const std::string& one : heads) result.push_back(one + (one.starts_with("blocked") ? "" : tail));
  if (!tail.empty()) {
    result.push_back(head);                        // nobody
    for (const std::string& session : sessions) {  // one more
      if (session == event.session || tail.find(session) != std::string::npos) continue;
      result.push_back(event.expected + ", " + session);
      break;
    }
    const std::string freed = tail.substr(0, tail.find_first_of(" ,(", std::string(", unblocks ").size()));
    result.push_back(head + freed + " (error flipped)");  // with another end
  } else if (sessions.size() > 1 && (kind == "ok" || kind == "rows" || kind == "affected")) {
    result.push_back(head + ", unblocks " + other);
  }
  return result;
}

std::string with_expectation(const std::string& text, std::size_t number, const std::string& expectation) {
  std::vector<std::string> lines = words(text, "\n");
  std::string& line = lines.at(number - 1);
  line = line.substr(0, line.find("=>")) + " => " + expectation;
  std::string result;
  for (const std::string& one : lines) result += one + "\n";
  return result;
}

// --- the expectations of all scenarios ----------------------------------------------------------------------------

struct Expectation {
  std::string file;
  Event event;
  std::vector<std::string> sessions;
};

// Those that are `engine`'s to be turned on. What the others before it expect in the same words is theirs.
std::vector<Expectation> expectations_of(const std::string& engine) {
  std::vector<Expectation> found;
  std::set<std::tuple<std::string, std::size_t, std::string>> taken;
  for (const std::string& other : turned_on()) {
    if (!url_of(other) || ((engine == "mariadb" || all_flips()) && other != engine)) continue;
    for (const Result& result : results_of(other)) {
      for (const Event& event : result.events) {
        if (event.kind == Event::Kind::setup) continue;
        const bool is_new = taken.emplace(result.file, event.line, event.expected).second;
        if (other == engine && is_new) found.push_back({result.file, event, result.sessions});
      }
    }
    if (other == engine) break;
  }
  return found;
}

// An expectation, turned.
struct Turned {
  Expectation one;
  std::string into;

  lab::Scenario scenario() const {
    return lab::parse(with_expectation(text_of(one.file), one.event.line, into), one.file);
  }
};

void expect_failure(const Turned& turned, const Result& result, const std::string& engine) {
  const std::string where = turned.one.file + ":" + std::to_string(turned.one.event.line) + ": ";
  EXPECT_TRUE(result.verdict == Result::Verdict::failed && result.message.starts_with(where))
      << where << "`" << turned.one.event.expected << "` turned into `" << turned.into
      << "` was not found to be wrong on " << engine << "\n"
      << result.str();
}

class Flip : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!url_of(GetParam())) HIERLOCK_NEEDS_SERVER(variable_of(GetParam()));
  }
};

TEST_P(Flip, no_expectation_can_be_turned_into_another_one) {
  const std::string engine = GetParam();
  std::mt19937_64 random(seed());
  std::vector<Expectation> all = expectations_of(engine);
  std::vector<Turned> turned;
  timed("turning expectations on " + engine, [&] {
    std::shuffle(all.begin(), all.end(), random);
    all.resize((all.size() + one_of(engine) - 1) / one_of(engine));
    for (const Expectation& one : all) {
      std::vector<std::string> ways = flips(one.event, one.sessions, engine);
      std::shuffle(ways.begin(), ways.end(), random);
      if (!all_flips()) ways.resize(std::min<std::size_t>(ways.size(), engine == "memory" ? 2 : 1));
      for (const std::string& way : ways) turned.push_back({one, way});
    }
    // In parts, so that not all results are kept.
    constexpr std::size_t at_once = 200;
    lab::Runner runner(*url_of(engine));
    for (std::size_t begin = 0; begin < turned.size(); begin += at_once) {
      const std::size_t end = std::min(turned.size(), begin + at_once);
      std::vector<lab::Scenario> scenarios;
      for (std::size_t i = begin; i < end; ++i) scenarios.push_back(turned[i].scenario());
      const std::vector<Result> results = runner.run_all(scenarios);
      for (std::size_t i = begin; i < end; ++i) expect_failure(turned[i], results[i - begin], engine);
    }
  });
  std::cout << all.size() << " expectations, " << turned.size() << " runs" << std::endl;
}

INSTANTIATE_TEST_SUITE_P(, Flip, testing::ValuesIn(turned_on()), [](const auto& engine) { return engine.param; });

}  // namespace
}  // namespace hierlock::lab_tests
