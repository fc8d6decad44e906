#include "cli/status.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "cli/output.h"

namespace hierlock::cli {
namespace {

using namespace std::chrono_literals;

Snapshot example() {
  const Snapshot::Party backup{7, "backup.sh", 4711, "hierlock", "nightly"};
  const Snapshot::Party report{9, "report.sh", 4720, "hierlock", ""};
  const Snapshot::Party third{11, "third.sh", 4731, "", ""};
  Snapshot snapshot;
  snapshot.store = "shm:";
  snapshot.table = "/dev/shm/hierlock-1000";
  snapshot.holders = {{backup, "u1", Mode::IX, false, 1, 1794784444996501134, 123s},
                      {backup, "u1/a1", Mode::IX, false, 1, 1794784444996501134, 123s},
                      {backup, "u1/a1/r1", Mode::X, true, 1, 1794784444996501134, 123s},
                      {third, "slots \"import\"", Mode::X, true, 2, 1794784444996501200, 250ms}};
  snapshot.waiters = {{report, "u1", "u1, u7", Mode::X, 12s, {7}}, {third, "u1", "u1", Mode::X, 2s, {7, 9}}};
  return snapshot;
}

TEST(StatusText, tells_who_holds_and_who_waits_for_whom) {
  EXPECT_EQ(status_of(example(), {}, 80),
            R"(shm:  /dev/shm/hierlock-1000

2 held

target          mode   pid    age                fence
u1/a1/r1        X     4711  2m03s  1794784444996501134
    program  hierlock
    owner    backup.sh
    note     nightly
slots "import"  X     4731  250ms  1794784444996501200
    owner    third.sh

2 waiting, in the order of their queues

target  mode   pid  age  waits for
u1      X     4720  12s  pid 4711
    wants    u1, u7
    program  hierlock
    owner    report.sh
u1      X     4731   2s  pid 4711, pid 4720
    owner    third.sh
)");
}

TEST(StatusText, of_a_target_is_what_could_meet_it) {
  const auto held = [](const char* target, bool all = false) {
    std::istringstream text(status_of(example(), {.target = Target::parse(target), .all = all}, 80));
    std::string line;
    for (int i = 0; i < 3; ++i) std::getline(text, line);
    return line;
  };
  EXPECT_EQ(held("u1"), "1 held");
  EXPECT_EQ(held("u1", true), "3 held");
  EXPECT_EQ(held("shared u1/a1/r1/x"), "1 held");
  EXPECT_EQ(held("u1/a1/r"), "Nothing is held at u1/a1/r, above it or below it.");
  EXPECT_EQ(held("slots \"import\" 3"), "1 held");
  EXPECT_EQ(held("named \"import\""), "Nothing is held at named \"import\", above it or below it.");
}

TEST(StatusText, marks_who_is_stopped_and_who_is_gone) {
  Snapshot snapshot = example();
  for (auto& holder : snapshot.holders) {
    if (holder.who.process == 4711) holder.who.doing = Snapshot::Doing::gone;
  }
  snapshot.waiters[0].who.doing = Snapshot::Doing::stopped;
  const std::string text = status_of(snapshot, {}, 80);
  for (const char* part : {"    state    gone; the command it ran keeps the lock\n",
                           "    state    stopped, and keeps this; kill -CONT 4720 wakes it\n",
                           "2s  pid 4711 (gone), pid 4720 (stopped)\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  }
  const std::string json = status_of(snapshot, {.form = StatusCommand::Form::json}, 80);
  EXPECT_NE(json.find("\"state\": \"gone\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"state\": \"stopped\""), std::string::npos) << json;
}

TEST(StatusText, does_not_say_that_nothing_is_held_beside_somebody_who_waits_for_a_holder) {
  Snapshot snapshot = example();
  snapshot.holders.resize(1);  // u1 alone, by intention, as after a break
  const std::string in_use = status_of(snapshot, {}, 80);
  EXPECT_NE(in_use.find("Nothing is held, but nodes are in use because of something below them; --all\nshows them.\n"),
            std::string::npos)
      << in_use;
  snapshot.holders.clear();
  snapshot.waiters.resize(1);
  snapshot.waiters[0].blocked_by.clear();
  EXPECT_NE(status_of(snapshot, {}, 80).find("12s  nobody: it is free to go\n"), std::string::npos);
  snapshot.waiters[0].who.doing = Snapshot::Doing::stopped;
  EXPECT_NE(status_of(snapshot, {}, 80).find("12s  nobody, but it is stopped\n"), std::string::npos);
}

TEST(StatusText, shows_the_end_of_the_log_and_of_a_target_what_is_about_it) {
  Snapshot snapshot = example();
  const auto lines = [&](const StatusCommand& command) {
    const std::string text = status_of(snapshot, command, 60);
    const std::size_t log = text.find("Log of the table");
    return log == text.npos ? std::string() : text.substr(log);
  };
  EXPECT_EQ(lines({}), "");
  for (int i = 1; i <= 7; ++i) {
    const std::string target = "u" + std::to_string(i) + "/a1";
    snapshot.log.push_back({{}, "1 lock on shared " + target + " broken by process 12: it hung (root)", {target}});
  }
  snapshot.log.push_back(
      {{}, "process 7 died, releasing u8/a1, u9: hierlock exec u8/a1 u9 u1/a1 -- backup.sh --all", {"u8/a1", "u9"}});
  snapshot.log.push_back(
      {{}, "2 locks on slots \"import\" 3 broken by process 12: it hung (root)", {"slots \"import\""}});
  EXPECT_EQ(lines({}).find("u4/a1"), std::string::npos) << lines({});
  EXPECT_NE(lines({}).find("u5/a1"), std::string::npos) << lines({});
  EXPECT_NE(lines({}).find("(5 of 9; --all shows all)\n"), std::string::npos) << lines({});
  EXPECT_NE(lines({}).find("\n                     hierlock exec u8/a1 u9 u1/a1 --\n"), std::string::npos) << lines({});
  EXPECT_NE(lines({.all = true}).find("u1/a1 broken"), std::string::npos) << lines({.all = true});
  const auto entries = [&](const char* target) {
    const std::string text = lines({.target = Target::parse(target)});
    std::size_t sum = 0;
    for (std::size_t at = 0; (at = text.find("\n19", at)) != text.npos; ++at) ++sum;  // they are of 1970, or 1969
    return sum;
  };
  EXPECT_EQ(entries("u1"), 1u);
  EXPECT_EQ(entries("u1/a1/r1"), 1u);
  EXPECT_EQ(entries("u9/a1"), 1u);
  EXPECT_EQ(entries("slots \"import\" 3"), 1u);
  EXPECT_EQ(entries("u1/a2"), 0u);
  EXPECT_EQ(entries("1"), 0u);
}

TEST(StatusText, fits_any_width_and_shows_no_byte_that_a_terminal_would_obey) {
  const std::string evil = "\x1B[2J\n\r\xFF\xE2\x80\xAE" + std::string(300, 'x') + "資源";
  Snapshot snapshot = example();
  for (auto& holder : snapshot.holders) {
    holder.who = {holder.who.owner, evil, 4'000'000, evil, evil, Snapshot::Doing::runs, evil, ~std::uint64_t{0}};
    holder.row = Snapshot::Row{4'000'000'000, 4'000'000'000};
    holder.target = "u1/" + std::string(250, 'y');
  }
  for (auto& waiter : snapshot.waiters) {
    waiter.who = {waiter.who.owner, evil, 4'000'000, evil, evil};
    waiter.target = waiter.wanted = "u1/" + std::string(250, 'y');
    for (std::uint64_t i = 0; i < 50; ++i) waiter.blocked_by.push_back(i);
    waiter.row = snapshot.holders[0].row;
    waiter.contention = Snapshot::Contention::shared_bucket;
  }
  snapshot.waiters[1].target = snapshot.waiters[1].wanted = "";
  snapshot.buckets = {{*snapshot.holders[0].row, 1'000'000, 1'000'000, 1'000'000, 1'000'000, {evil, evil}}};
  snapshot.notes = {evil};
  snapshot.store = snapshot.table = evil;
  snapshot.log = {{std::chrono::system_clock::time_point{}, evil, {evil}, {{evil, 1, evil, evil, evil}}}};
  for (const std::size_t width : {20u, 40u, 80u, 200u}) {
    for (const bool watch : {true, false}) {
      std::istringstream lines(status_of(snapshot, {.all = true, .watch = watch}, width));
      std::string line;
      if (!watch) std::getline(lines, line);  // the whole URL: nobody can use one that is cut
      for (; std::getline(lines, line);) EXPECT_LE(columns(line), width) << line;
    }
    std::istringstream lines(status_of(snapshot, {.all = true}, width));
    for (std::string line; std::getline(lines, line);) {
      for (const char c : line) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != '\xFF') << line;
      EXPECT_EQ(line.find("\xE2\x80\xAE"), std::string::npos) << "turns the direction of writing";
    }
  }
  for (const StatusCommand::Form form : {StatusCommand::Form::json, StatusCommand::Form::dot}) {
    for (const char c : status_of(snapshot, {.form = form}, 80)) {
      EXPECT_TRUE(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != '\xFF'));
    }
  }
}

// On a database, where ids share rows: two wait for one row, one of them for another target, and somebody whom nobody
// knows holds it, too.
Snapshot of_a_database() {
  const Snapshot::Party known{7, "backup", 4711, "", "nightly", Snapshot::Doing::runs, "web3", 31};
  const Snapshot::Party falsely{9, "report", 4711, "", "", Snapshot::Doing::runs, "web4", 32};
  const Snapshot::Party stranger{
      11, "session 33 of root@10.0.0.7, program mysql", 0, "", "", Snapshot::Doing::runs, "10.0.0.7", 33};
  const Snapshot::Row row{0, 6'624'909};
  Snapshot snapshot;
  snapshot.store = "mysql://app@db/shop";
  snapshot.table = "hier_lock_buckets";
  snapshot.holders = {{stranger, "", Mode::S, true, 33, 0, 2s, row}, {known, "u1", Mode::S, true, 31, 128, 3s, row}};
  snapshot.waiters = {{falsely, "u2", "u2/a1", Mode::X, 2s, {7}, row, Snapshot::Contention::shared_bucket},
                      {stranger, "", "", Mode::X, 1s, {7, 9}, row, Snapshot::Contention::unknown}};
  snapshot.buckets = {{row, 2, 2, 1, 1, {"u1", "u2"}}, {{1, 5}, 1, 1, 0, 0, {}}};
  snapshot.notes = {"GRANT PROCESS ON *.* TO app"};
  return snapshot;
}

TEST(StatusText, names_false_contention_the_hot_buckets_and_what_could_not_be_seen) {  // H15, B7
  Snapshot snapshot = of_a_database();
  snapshot.waiters.push_back({snapshot.holders[1].who, "u3/a1", "u3/a1", Mode::X, 1s, {}, Snapshot::Row{1, 5}});
  EXPECT_EQ(status_of(snapshot, {}, 80),
            R"(mysql://app@db/shop  hier_lock_buckets

2 held

target                   mode   pid  age  fence
level 0, bucket 6624909  S        -   2s      -
    host     10.0.0.7
    owner    session 33 of root@10.0.0.7, program mysql
u1                       S     4711   3s    128
    host     web3
    owner    backup
    session  31
    note     nightly

3 waiting, in the order of their queues

target                   mode   pid  age  waits for
u2                       X     4711   2s  pid 4711 on web3
    false    only another id of its row is held: level 0, bucket 6624909
    wants    u2/a1
    host     web4
    owner    report
    session  32
level 0, bucket 6624909  X        -   1s  pid 4711 on web3, pid 4711 on web4
    false?   others may only share its row: level 0, bucket 6624909
    host     10.0.0.7
    owner    session 33 of root@10.0.0.7, program mysql
u3/a1                    X     4711   1s  nobody: it is free to go
    host     web3
    owner    backup
    session  31
    note     nightly

Hot buckets, the most waited for first; falsely: only because ids share it

level     bucket  hold  wait  falsely        targets
    0  6,624,909     2     2  1 (1 unknown)  u1, u2
    1          5     1     1  0

Note: GRANT PROCESS ON *.* TO app
)");
}

TEST(StatusText, of_a_target_has_those_in_its_way_of_whom_only_the_row_is_known) {  // B7
  Snapshot snapshot = of_a_database();
  snapshot.waiters[0].blocked_by = {7, 11};
  const std::string text = status_of(snapshot, {.target = Target::parse("u2")}, 80);
  EXPECT_NE(text.find("1 held\n"), std::string::npos) << text;
  EXPECT_NE(text.find("level 0, bucket 6624909  S"), std::string::npos) << text;
  EXPECT_NE(text.find("1 waiting"), std::string::npos) << text;
  EXPECT_NE(text.find("6,624,909"), std::string::npos) << text;
  const std::string other = status_of(snapshot, {.target = Target::parse("u5")}, 80);
  EXPECT_EQ(other.find("bucket"), other.find("hier_lock_buckets") + 10) << other;
}

TEST(StatusText, marks_what_a_failed_extend_has_left_locked) {  // H15
  Snapshot snapshot = example();
  snapshot.holders = {snapshot.holders.back()};
  snapshot.holders[0].target = "u2/a1";
  snapshot.holders[0].asked = false;
  EXPECT_EQ(status_of(snapshot, {.target = "u2"}, 80).find("u2/a1"), std::string::npos);
  snapshot.holders[0].leftover = true;
  EXPECT_NE(status_of(snapshot, {.target = "u2"}, 80).find("left of an extend: u2/a1"), std::string::npos);
  EXPECT_NE(status_of(snapshot, {.form = StatusCommand::Form::json}, 80).find(R"("left_of_an_extend": true)"),
            std::string::npos);
}

TEST(StatusText, shows_ten_hot_buckets_unless_asked_for_all) {
  Snapshot snapshot = of_a_database();
  for (std::uint32_t i = 0; i < 20; ++i) {
    const Snapshot::Row row{2, i};
    snapshot.waiters.push_back({{}, "u/a/r", "u/a/r", Mode::X, 1s, {}, row});
    snapshot.buckets.push_back({row, 0, 1, 0, 0, {}});
  }
  EXPECT_NE(status_of(snapshot, {}, 200).find("(10 of 21; --all shows all)"), std::string::npos);
  EXPECT_EQ(status_of(snapshot, {.all = true}, 200).find("--all shows"), std::string::npos);
}

TEST(StatusDot, draws_false_contention_dashed_and_what_is_not_known_dotted) {  // H15
  EXPECT_EQ(status_of(of_a_database(), {.form = StatusCommand::Form::dot}, 80),
            R"(digraph waits {
  rankdir=LR;
  node [shape=box];
  "9" [label="report\npid 4711\non web4"];
  "7" [label="backup\npid 4711\non web3"];
  "11" [label="session 33 of root@10.0.0.7, program mysql\non 10.0.0.7"];
  "9" -> "7" [label="u2\nfalse contention", style=dashed];
  "11" -> "7" [label="level 0, bucket 6624909", style=dotted];
  "11" -> "9" [label="level 0, bucket 6624909", style=dotted];
}
)");
}

TEST(StatusJson, has_the_rows_of_a_database_and_whether_contention_is_false) {  // H15, B7
  const std::string json = status_of(of_a_database(), {.form = StatusCommand::Form::json}, 80);
  for (const char* part : {R"("target": "",)", R"("row": {
        "level": 0,
        "bucket": 6624909
      },
      "false_contention": true,)",
                           R"("false_contention": null,)", R"("host": "web3",
      "session": "31",)",
                           R"(  "buckets": [
    {
      "level": 0,
      "bucket": 6624909,
      "holders": 2,
      "waiters": 2,
      "falsely": 1,
      "unknown": 1,
      "targets": [
        "u1",
        "u2"
      ]
    })",
                           R"(  "notes": [
    "GRANT PROCESS ON *.* TO app"
  ],)"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << "\nin " << json;
  }
}

TEST(StatusDot, draws_an_edge_from_each_waiter_to_whom_it_waits_for) {
  Snapshot snapshot = example();
  snapshot.waiters[0].who.owner_name = "say \"hi\\n\"";
  EXPECT_EQ(status_of(snapshot, {.form = StatusCommand::Form::dot}, 80),
            R"(digraph waits {
  rankdir=LR;
  node [shape=box];
  "9" [label="say \"hi\\n\"\npid 4720"];
  "7" [label="backup.sh\npid 4711"];
  "11" [label="third.sh\npid 4731"];
  "9" -> "7" [label="u1"];
  "11" -> "7" [label="u1"];
  "11" -> "9" [label="u1"];
}
)");
}

TEST(StatusJson, has_everything_with_numbers_too_big_for_a_double_as_strings) {
  Snapshot snapshot = example();
  snapshot.holders.erase(snapshot.holders.begin(), snapshot.holders.begin() + 2);
  snapshot.holders.pop_back();
  snapshot.waiters.pop_back();
  snapshot.log = {{std::chrono::system_clock::from_time_t(1'794'782'844), "process 4700 died", {"u1/a1"}},
                  {std::chrono::system_clock::from_time_t(1'794'782'845),
                   "deadlock: …",
                   {"u2"},
                   {{.owner = "thread 7", .process = 4711, .host = "", .waits_for = "u2", .holds = "u1"}}}};
  EXPECT_EQ(status_of(snapshot, {.form = StatusCommand::Form::json}, 80),
            R"({
  "version": 1,
  "store": "shm:",
  "table": "/dev/shm/hierlock-1000",
  "holders": [
    {
      "target": "u1/a1/r1",
      "mode": "X",
      "asked": true,
      "left_of_an_extend": false,
      "fence": "1794784444996501134",
      "age_ms": 123000,
      "row": null,
      "owner": "7",
      "owner_name": "backup.sh",
      "pid": 4711,
      "state": "runs",
      "host": "",
      "session": "0",
      "program": "hierlock",
      "note": "nightly"
    }
  ],
  "waiters": [
    {
      "target": "u1",
      "wanted": "u1, u7",
      "mode": "X",
      "age_ms": 12000,
      "row": null,
      "false_contention": false,
      "owner": "9",
      "owner_name": "report.sh",
      "pid": 4720,
      "state": "runs",
      "host": "",
      "session": "0",
      "program": "hierlock",
      "note": "",
      "blocked_by": [
        "7"
      ]
    }
  ],
  "buckets": [],
  "notes": [],
  "log": [
    {
      "when": "2026-11-15T22:47:24Z",
      "text": "process 4700 died",
      "targets": [
        "u1/a1"
      ],
      "cycle": []
    },
    {
      "when": "2026-11-15T22:47:25Z",
      "text": "deadlock: …",
      "targets": [
        "u2"
      ],
      "cycle": [
        {
          "owner": "thread 7",
          "pid": 4711,
          "host": "",
          "waits_for": "u2",
          "holds": "u1"
        }
      ]
    }
  ]
}
)");
}

}  // namespace
}  // namespace hierlock::cli
