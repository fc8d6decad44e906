// No expectation of a shipped scenario is idle: whichever is turned into another one, the run fails, at that line. Of a
// file with several orders, so are those of each order.
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
std::vector<std::string> turned_on() {
  std::vector<std::string> names = engines();
  if (all_flips()) return names;
  for (const char* const other : {"shm", "valkey", "redis"}) std::erase(names, other);  // these do what memory: does
  return names;
}
// One of how many expectations is turned.
unsigned one_of(const std::string& engine) {
  if (all_flips()) return 1;
  if (sanitized) return 7;              // sanitizers look at the lab, not at the scenarios
  if (engine == "mariadb") return 100;  // each look takes 150 ms there, and no other engine shares the work
  if (engine == "postgres") return 8;   // nearly all of hermitage's are its
  if (engine == "mysql") return 4;
  return 1;
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

// `ok or rows 1 or rows 2` are three, `blocked by T1 or T2` is one.
std::vector<std::string> alternatives_of(const std::string& expectation) {
  static const std::set<std::string> outcomes{"ok",   "rows",     "affected",      "blocked",   "deadlock", "timeout",
                                              "busy", "conflict", "serialization", "cancelled", "error"};
  const std::string between = " or ";
  std::vector<std::string> all;
  for (const std::string& part : words(expectation, between)) {
    if (all.empty() || outcomes.contains(part.substr(0, part.find_first_of(" ,")))) {
      all.push_back(part);
    } else {
      all.back() += between + part;
    }
  }
  return all;
}

// Outcomes that are none of these.
std::vector<std::string> other_than(const std::vector<std::string>& alternatives) {
  std::vector<std::string> others{"rows flipped"};
  const auto has = [&](const std::string& kind) {
    return std::any_of(alternatives.begin(), alternatives.end(),
                       [&](const std::string& one) { return one.starts_with(kind); });
  };
  for (const char* const kind : {"busy", "deadlock", "serialization", "timeout"}) {
    if (!has(kind) && !has("error")) others.emplace_back(kind);  // `error` is any of them
  }
  std::string flipped;
  for (const std::string& one : alternatives) flipped += (flipped.empty() ? "" : " or ") + one + "; flipped";
  if (std::all_of(alternatives.begin(), alternatives.end(),
                  [](const std::string& one) { return one.starts_with("rows ") && one != "rows none"; })) {
    others.push_back(flipped);
  }
  return others;
}

// `blocked`, `blocked by T1`, `blocked by T1, T2` or `blocked by T1 or T2`, of `session`, as others.
std::vector<std::string> other_blockers(const std::string& blocked, const std::string& session,
                                        const std::vector<std::string>& sessions) {
  const std::string by = "blocked by ";
  std::vector<std::string> others = {"ok", "deadlock", by + session};
  if (!blocked.starts_with(by)) return others;  // by anybody
  const std::string names = blocked.substr(by.size(), blocked.find(", then ") - by.size());
  const bool one_of = names.find(" or ") != std::string::npos;
  const std::vector<std::string> blockers = words(names, one_of ? " or " : ", ");
  if (blockers.size() > 1 && !one_of) others.push_back(by + blockers.front());
  for (const std::string& other : sessions) {
    if (other == session || std::find(blockers.begin(), blockers.end(), other) != blockers.end()) continue;
    others.push_back(by + other);
    if (!one_of) others.push_back(by + names + ", " + other);
    break;
  }
  return others;
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
  const std::vector<std::string> alternatives = alternatives_of(head);
  std::vector<std::string> heads;
  if (alternatives.size() > 1) {
    heads = other_than(alternatives);
  } else if (kind == "ok") {
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
    heads = other_blockers(head, event.session, sessions);
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
  } else if (alternatives.size() == 1 && sessions.size() > 1 &&
             (kind == "ok" || kind == "rows" || kind == "affected")) {
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
  std::string file, scenario;
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
        if (other == engine && is_new) found.push_back({result.file, result.scenario, event, result.sessions});
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
    const std::string text = with_expectation(text_of(one.file), one.event.line, into);
    const std::vector<lab::Scenario> orders = lab::parse(text, one.file).orders();
    return *std::find_if(orders.begin(), orders.end(),
                         [&](const lab::Scenario& order) { return order.name() == one.scenario; });
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
  const std::size_t count = all.size();
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
  std::cout << all.size() << " of " << count << " expectations, " << turned.size() << " runs" << std::endl;
}

// --- what expectations are turned into ----------------------------------------------------------------------------

TEST(Flips, leave_out_what_the_expectation_allows) {
  const auto of = [](const std::string& expected) {
    Event event;
    event.session = "T1";
    event.expected = expected;
    std::set<std::string> all;
    for (const std::string& one : flips(event, {"T1", "T2", "T3"}, "mysql")) all.insert(one);
    return all;
  };
  using Set = std::set<std::string>;
  EXPECT_EQ(of("blocked"), (Set{"ok", "deadlock", "blocked by T1"}));
  EXPECT_EQ(of("blocked by T2"), (Set{"ok", "deadlock", "blocked by T1", "blocked by T3", "blocked by T2, T3"}));
  EXPECT_EQ(of("blocked by T2, T3"), (Set{"ok", "deadlock", "blocked by T1", "blocked by T2"}));
  EXPECT_EQ(of("blocked by T2 or T3"), (Set{"ok", "deadlock", "blocked by T1"}));
  EXPECT_EQ(of("blocked by T2, then timeout"),
            (Set{"ok", "deadlock", "blocked by T1", "blocked by T3", "blocked by T2, T3"}));
  EXPECT_EQ(of("rows 3,30 or rows 4,42"), (Set{"rows flipped", "busy", "deadlock", "serialization", "timeout",
                                               "rows 3,30; flipped or rows 4,42; flipped"}));
  EXPECT_EQ(of("ok or blocked by T2 or T3"), (Set{"rows flipped", "busy", "deadlock", "serialization", "timeout"}));
  EXPECT_EQ(of("error or ok, unblocks T2"),
            (Set{"rows flipped, unblocks T2", "error or ok", "error or ok, unblocks T2, T3",
                 "error or ok, unblocks T2 (error flipped)"}));
  EXPECT_EQ(of("deadlock, T1 or T2"), (Set{"ok", "busy", "blocked by T3"}));
}

INSTANTIATE_TEST_SUITE_P(, Flip, testing::ValuesIn(turned_on()), [](const auto& engine) { return engine.param; });

}  // namespace
}  // namespace hierlock::lab_tests
