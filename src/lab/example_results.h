// Results made by hand, for the tests of what people see: a deadlock, a queue, a failure, an error, a skipped engine,
// the cells of X2, and a scenario that would like to be more than text.
#pragma once

#include <hierlock/lab.h>

#include <string>
#include <utility>
#include <vector>

namespace hierlock::lab::example {

using namespace std::chrono_literals;

inline Event setup(std::size_t line, std::string text) {
  Event event;
  event.kind = Event::Kind::setup;
  event.line = line;
  event.sent = text;
  event.text = std::move(text);
  event.actual = "ok";
  event.passed = true;
  event.took = 900us;
  return event;
}

inline Event step(std::size_t line, std::string session, std::string name, std::string text, std::string actual,
                  std::string why = {}) {
  Event event = setup(line, std::move(text));
  event.kind = Event::Kind::step;
  event.session = std::move(session);
  event.name = std::move(name);
  event.expected = actual == "ok" ? "" : actual;
  event.actual = std::move(actual);
  event.why = std::move(why);
  event.blocked = event.actual.starts_with("blocked");
  event.began = std::chrono::milliseconds(2 * line);
  return event;
}

inline Event check(std::size_t line, std::string text, std::string actual, std::string why = {}) {
  Event event = step(line, "", "", std::move(text), std::move(actual), std::move(why));
  event.kind = Event::Kind::check;
  return event;
}

// T1 and T2 write two rows, each in its own order.
inline Result deadlock(std::string engine = "mysql", std::string version = "9.7.0") {
  Result r;
  r.scenario = "two rows in opposite orders";
  r.file = "scenarios/rows/opposite_orders.scenario";
  r.proves = {"X8"};
  r.about = {"Each of two transfers locks the row that it takes from, then the row that it gives to.",
             "Whoever asks last closes the circle."};
  r.url = engine + "://lab@127.0.0.1/test";
  r.verdict = Result::Verdict::passed;
  r.sessions = {"T1", "T2"};
  r.schedule = {"a", "b", "c", "d", "e", "f", "g"};
  r.took = 31ms;
  const std::string x = engine == "postgres" ? "ExclusiveLock" : "X";
  const LockSeen t1_1{"T1", "t(1)", x, true}, t2_2{"T2", "t(2)", x, true};
  r.events = {
      setup(4, "create table t (id int primary key, v int)"),
      setup(5, "insert into t values (1, 10), (2, 20)"),
      step(7, "T1", "a", "begin", "ok"),
      step(8, "T2", "b", "begin", "ok"),
      step(9, "T1", "c", "update t set v = v - 1 where id = 1", "ok", "T1 holds t(1); nobody was in its way."),
      step(10, "T2", "d", "update t set v = v - 1 where id = 2", "ok", "T2 holds t(2); nobody was in its way."),
      step(11, "T1", "e", "update t set v = v + 1 where id = 2", "blocked by T2",
           "T1 waits for t(2), which T2 holds since d."),
      step(12, "T2", "f", "update t set v = v + 1 where id = 1", "deadlock, T2",
           "T2 asked for t(1), which T1 holds, while T1 waits for T2: nobody in the circle could go on, and the "
           "engine rolled T2 back."),
      step(13, "T1", "g", "commit", "ok", "T1 keeps both changes."),
      check(15, "select v from t order by id", "rows 9; 21", "T1's transfer, and nothing of T2's.")};
  for (const std::size_t i : {4u, 5u, 6u}) r.events[i].locks = {t1_1};
  for (const std::size_t i : {5u, 6u}) r.events[i].locks.push_back(t2_2);
  r.events[6].locks.push_back({"T1", "t(2)", x, false});
  r.events[6].waits = {{"T1", {"T2"}, "t(2)"}};
  r.events[7].cycle = {"T2", "T1"};
  r.events[7].freed = {{6, "ok"}};
  r.events[7].locks = {t1_1, {"T1", "t(2)", x, true}};
  r.engine = std::move(engine);
  r.version = std::move(version);
  return r;
}

// T2 and T3 queue for a row; each is freed by the one before it.
inline Result queue(std::string engine = "mysql", std::string version = "9.7.0") {
  Result r;
  r.scenario = "three writers of one row";
  r.file = "scenarios/rows/three_writers.scenario";
  r.proves = {"X7", "H13"};
  r.url = engine + "://lab@127.0.0.1/test";
  r.verdict = Result::Verdict::passed;
  r.sessions = {"T1", "T2", "T3"};
  r.took = 42ms;
  r.events = {
      setup(3, "create table t (id int primary key, v int)"),
      setup(4, "insert into t values (1, 10)"),
      step(6, "T1", "a", "begin", "ok"),
      step(7, "T1", "b", "select v from t where id = 1 for update", "rows 10", "T1 holds t(1)."),
      step(8, "T2", "c", "update t set v = 11 where id = 1", "blocked by T1", "T2 waits for t(1), which T1 holds."),
      step(9, "T3", "d", "update t set v = 12 where id = 1", "blocked by T1, T2", "T3 waits for t(1) behind T2."),
      step(10, "T1", "e", "commit", "ok", "T1 let go of t(1): T2 was first in the queue, and T3 after it."),
      check(12, "select v from t", "rows 12")};
  r.events[3].locks = {{"T1", "t(1)", "X", true}};
  r.events[4].locks = {{"T1", "t(1)", "X", true}, {"T2", "t(1)", "X", false}};
  r.events[5].locks = {{"T1", "t(1)", "X", true}, {"T2", "t(1)", "X", false}, {"T3", "t(1)", "X", false}};
  r.events[4].waits = {{"T2", {"T1"}, "t(1)"}};
  r.events[5].waits = {{"T2", {"T1"}, "t(1)"}, {"T3", {"T1", "T2"}, "t(1)"}};
  r.events[6].freed = {{4, "affected 1"}, {5, "affected 1"}};
  for (const Event& event : r.events) {
    if (event.kind == Event::Kind::step) r.schedule.push_back(event.name);
  }
  r.engine = std::move(engine);
  r.version = std::move(version);
  return r;
}

// The gap that MySQL locks and PostgreSQL has not.
inline Result gap(std::string engine, std::string version, bool as_expected) {
  Result r;
  r.scenario = "a row that does not exist, locked by two";
  r.file = "scenarios/named/missing_row.scenario";
  r.proves = {"N5"};
  r.url = engine + "://lab@127.0.0.1/test";
  r.sessions = {"T1", "T2"};
  r.took = 18ms;
  r.events = {setup(3, "create table t (id int primary key, v int)"),
              step(5, "T1", "a", "begin", "ok"),
              step(6, "T2", "b", "begin", "ok"),
              step(7, "T1", "c", "select * from t where id = 7 for update", "rows", "There is no such row."),
              step(8, "T2", "d", "select * from t where id = 7 for update", "rows", "There is no such row."),
              step(9, "T1", "e", "insert into t values (7, 1)", "blocked by T2",
                   "T1's insert waits for the gap before the end of t, which T2 holds.")};
  if (engine == "mysql" || engine == "mariadb") {
    for (const std::size_t i : {4u, 5u}) {
      r.events[i].locks = {{"T1", "t(supremum)", "X,GAP", true}, {"T2", "t(supremum)", "X,GAP", true}};
    }
    r.events[5].locks.push_back({"T1", "t(supremum)", "X,INSERT_INTENTION", false});
  }
  r.events[5].waits = {{"T1", {"T2"}, "t(supremum)"}};
  if (as_expected) {
    r.verdict = Result::Verdict::passed;
    r.events.push_back(step(10, "T2", "f", "insert into t values (7, 2)", "deadlock, T2",
                            "Each insert waits for the gap that the other holds; the engine rolled T2 back."));
    r.events[6].cycle = {"T2", "T1"};
    r.events[6].freed = {{5, "affected 1"}};
  } else {
    r.verdict = Result::Verdict::failed;
    Event& last = r.events[5];
    last.actual = "affected 1";
    last.blocked = false;
    last.passed = false;
    last.waits.clear();
    last.locks.clear();
    last.why = "The insert went through at once: a row that does not exist is not locked here.";
    r.message = "line 9: e of T1 was expected to be blocked by T2, and was: affected 1";
  }
  for (const Event& event : r.events) {
    if (event.kind == Event::Kind::step) r.schedule.push_back(event.name);
  }
  r.engine = std::move(engine);
  r.version = std::move(version);
  return r;
}

inline Result not_played(Result r, Result::Verdict verdict, std::string message) {
  r.verdict = verdict;
  r.message = std::move(message);
  r.events.clear();
  r.schedule.clear();
  r.took = {};
  return r;
}

// One cell of X2.
inline Result cell(std::string engine, std::string version, const std::string& level, const std::string& anomaly,
                   const std::string& shows) {
  Result r;
  r.scenario = level + ": " + anomaly;
  r.file = "scenarios/anomalies/cells.scenario";
  r.proves = {"X2"};
  r.facts = {{"level", level}, {"anomaly", anomaly}, {"shows", shows}};
  r.url = engine + "://lab@127.0.0.1/test";
  r.verdict = shows == "not supported" ? Result::Verdict::skipped : Result::Verdict::passed;
  r.message = shows == "not supported" ? engine + " has no level " + level : "";
  r.sessions = {"T1", "T2"};
  r.took = 9ms;
  if (r.verdict == Result::Verdict::passed) {
    r.events = {setup(6, "create table t (id int primary key, v int)"),
                setup(7, "insert into t values (1, 10)"),
                step(9, "T1", "a", "begin " + level, "ok"),
                step(10, "T1", "b", "select v from t", "rows 10"),
                step(11, "T2", "c", "insert into t values (2, 20)", "affected 1"),
                step(12, "T1", "d", "select v from t", shows == "happens" ? "rows 10; 20" : "rows 10",
                     shows == "happens" ? "T1 sees what T2 has inserted since b." : "T1 sees what it saw at b."),
                step(13, "T1", "e", "commit", "ok")};
    r.schedule = {"a", "b", "c", "d", "e"};
  }
  r.engine = std::move(engine);
  r.version = std::move(version);
  return r;
}

// Text that would like to be more than text.
inline const std::string hostile =
    "</script><script>window.hurt = 1</script><b onclick='hurt()'>\"&amp;\\ \x1B[31m\x01 ]]> <!-- \xFF 資源 "
    "\xE2\x80\xAE";

inline Result hostility() {
  Result r = deadlock("mysql", hostile);
  r.scenario = r.file = r.url = r.message = hostile;
  r.proves = r.about = {hostile};
  r.facts = {{"level", hostile}, {"anomaly", hostile}, {"shows", hostile}};
  r.verdict = Result::Verdict::failed;
  for (Event& event : r.events) {
    event.text = event.sent = event.expected = event.actual = event.why = hostile;
    for (LockSeen& lock : event.locks) lock.object = lock.mode = hostile;
    for (WaitSeen& wait : event.waits) wait.object = hostile;
  }
  for (Event& event : r.events) {
    if (event.kind == Event::Kind::step) event.name += hostile;
  }
  return r;
}

// A report as a team would have it.
inline std::vector<Result> all() {
  using Verdict = Result::Verdict;
  const std::vector<std::pair<std::string, std::string>> engines{
      {"mysql", "9.7.0"}, {"mariadb", "10.11.11"}, {"postgres", "15.13"}, {"sqlite", "3.40.1"}};
  std::vector<Result> out;
  for (const auto& [engine, version] : engines) {
    if (engine == "sqlite") {
      out.push_back(not_played(deadlock(engine, version), Verdict::skipped, "it is for mysql, mariadb and postgres"));
    } else {
      out.push_back(deadlock(engine, version));
    }
  }
  for (const auto& [engine, version] : engines) {
    if (engine == "sqlite") {
      out.push_back(not_played(queue(engine, version), Verdict::skipped, "it is for mysql, mariadb and postgres"));
    } else if (engine == "mariadb") {
      out.push_back(not_played(queue(engine, version), Verdict::error,
                               "the account may not see who waits: GRANT PROCESS ON *.* TO 'lab'@'127.0.0.1'"));
    } else {
      out.push_back(queue(engine, version));
    }
  }
  for (const auto& [engine, version] : engines) {
    if (engine != "sqlite") out.push_back(gap(engine, version, engine != "postgres"));
  }
  const std::vector<std::string> anomalies{"dirty read", "non-repeatable read", "phantom"};
  const std::vector<std::string> levels{"read uncommitted", "read committed", "repeatable read", "serializable"};
  for (std::size_t level = 0; level < levels.size(); ++level) {
    for (std::size_t anomaly = 0; anomaly < anomalies.size(); ++anomaly) {
      for (const auto& [engine, version] : engines) {
        const bool least = engine == "postgres" ? level <= 1 && anomaly >= 1 : level < 3 && anomaly >= level;
        const bool has = engine != "sqlite" || level == 3;
        out.push_back(cell(engine, version, levels[level], anomalies[anomaly],
                           !has    ? "not supported"
                           : least ? level == 2 && engine != "sqlite" ? "prevented" : "happens"
                                   : "prevented"));
      }
    }
  }
  return out;
}

}  // namespace hierlock::lab::example
