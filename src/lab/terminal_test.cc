#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

#include "lab/example_results.h"
#include "print/text.h"

namespace hierlock::lab {
namespace {

Result five_sessions() {
  Result r;
  r.scenario = "a chain of five";
  r.engine = "memory";
  r.verdict = Result::Verdict::passed;
  r.sessions = {"T1", "T2", "T3", "T4", "T5"};
  for (std::size_t i = 0; i < 5; ++i) {
    Event event = example::step(i + 1, r.sessions[i], std::string(1, static_cast<char>('a' + i)), "acquire u1/a1/r1",
                                i == 0 ? "ok" : "blocked by T" + std::to_string(i));
    for (std::size_t j = 1; j <= i; ++j) event.waits.push_back({r.sessions[j], {r.sessions[j - 1]}, "u1/a1/r1"});
    r.events.push_back(event);
  }
  Event release = example::step(6, "T1", "f", "release", "ok");
  release.freed = {{1, "ok"}};
  for (std::size_t j = 2; j <= 4; ++j) release.waits.push_back({r.sessions[j], {r.sessions[j - 1]}, "u1/a1/r1"});
  r.events.push_back(release);
  return r;
}

TEST(LabTerminal, a_session_that_waits_has_a_bar_until_it_is_freed) {
  EXPECT_EQ(example::deadlock().str(), R"(two rows in opposite orders
mysql 9.7.0: passed in 31ms; proves X8

       T1                                   T2
setup  create table t (id int primary key, v int)
setup  insert into t values (1, 10), (2, 20)
a      begin
       → ok
b                                           begin
                                            → ok
c      update t set v = v - 1 where id = 1
       → ok
d                                           update t set v = v - 1 where id = 2
                                            → ok
e      update t set v = v + 1 where id = 2
       ┃ waits for T2: t(2)
f      ┃                                    update t set v = v + 1 where id = 1
       ┃                                    ⟳ T2 → T1 → T2
       ┃                                    → deadlock, T2
       ┗ ok
g      commit
       → ok
check  select v from t order by id
       → rows 9; 21

c: T1 holds t(1); nobody was in its way.
d: T2 holds t(2); nobody was in its way.
e: T1 waits for t(2), which T2 holds since d.
f: T2 asked for t(1), which T1 holds, while T1 waits for T2: nobody in the
   circle could go on, and the engine rolled T2 back.
g: T1 keeps both changes.
check: T1's transfer, and nothing of T2's.
)");
}

TEST(LabTerminal, a_queue_shows_whom_each_waits_for) {
  EXPECT_EQ(example::queue().str(), R"(three writers of one row
mysql 9.7.0: passed in 42ms; proves X7, H13

       T1                       T2                       T3
setup  create table t (id int primary key, v int)
setup  insert into t values (1, 10)
a      begin
       → ok
b      select v from t where
         id = 1 for update
       → rows 10
c                               update t set v = 11
                                  where id = 1
                                ┃ waits for T1: t(1)
d                               ┃                        update t set v = 12
                                ┃                          where id = 1
                                ┃                        ┃ waits for T1, T2:
                                ┃                        ┃ t(1)
e      commit                   ┃                        ┃
       → ok                     ┃                        ┃
                                ┗ affected 1             ┗ affected 1
check  select v from t
       → rows 12

b: T1 holds t(1).
c: T2 waits for t(1), which T1 holds.
d: T3 waits for t(1) behind T2.
e: T1 let go of t(1): T2 was first in the queue, and T3 after it.
)");
}

TEST(LabTerminal, what_is_not_as_expected_is_told_beside_what_was_expected) {
  EXPECT_EQ(example::gap("postgres", "15.13", false).str(), R"(a row that does not exist, locked by two
postgres 15.13: failed in 18ms; proves N5

       T1                                   T2
setup  create table t (id int primary key, v int)
a      begin
       → ok
b                                           begin
                                            → ok
c      select * from t where id = 7 for
         update
       → rows
d                                           select * from t where id = 7 for
                                              update
                                            → rows
e      insert into t values (7, 1)
       ✗ got affected 1
         expected blocked by T2

c: There is no such row.
d: There is no such row.
e: The insert went through at once: a row that does not exist is not locked
   here.

line 9: e of T1 was expected to be blocked by T2, and was: affected 1
)");
}

TEST(LabTerminal, five_sessions_fit_eighty_columns) {
  EXPECT_EQ(five_sessions().str(), R"(a chain of five
memory: passed

       T1             T2             T3             T4             T5
a      acquire
         u1/a1/r1
       → ok
b                     acquire
                        u1/a1/r1
                      ┃ waits for
                      ┃ T1:
                      ┃ u1/a1/r1
c                     ┃              acquire
                      ┃                u1/a1/r1
                      ┃              ┃ waits for
                      ┃              ┃ T2:
                      ┃              ┃ u1/a1/r1
d                     ┃              ┃              acquire
                      ┃              ┃                u1/a1/r1
                      ┃              ┃              ┃ waits for
                      ┃              ┃              ┃ T3:
                      ┃              ┃              ┃ u1/a1/r1
e                     ┃              ┃              ┃              acquire
                      ┃              ┃              ┃                u1/a1/r1
                      ┃              ┃              ┃              ┃ waits for
                      ┃              ┃              ┃              ┃ T4:
                      ┃              ┃              ┃              ┃ u1/a1/r1
f      release        ┃              ┃              ┃              ┃
       → ok           ┃              ┃              ┃              ┃
                      ┗ ok           ┃              ┃              ┃
)");
}

TEST(LabTerminal, sessions_that_do_not_fit_side_by_side_stand_below_each_other) {
  EXPECT_EQ(five_sessions().str({.width = 40}), R"(a chain of five
memory: passed

a      T1 acquire u1/a1/r1
       → ok
b      T2 acquire u1/a1/r1
       ┃ T2 waits for T1: u1/a1/r1
c      T3 acquire u1/a1/r1
       ┃ T3 waits for T2: u1/a1/r1
d      T4 acquire u1/a1/r1
       ┃ T4 waits for T3: u1/a1/r1
e      T5 acquire u1/a1/r1
       ┃ T5 waits for T4: u1/a1/r1
f      T1 release
       → ok
       ┗ T2 ok
)");
}

TEST(LabTerminal, what_was_not_played_has_its_message) {
  EXPECT_EQ(example::not_played(example::queue(), Result::Verdict::error, "no connection: refused").str(),
            R"(three writers of one row
mysql 9.7.0: error; proves X7, H13

no connection: refused
)");
}

Permuted permuted() {
  Permuted p;
  p.scenario = "two rows in opposite orders";
  p.engine = "mysql";
  p.schedules = 1'234;
  p.complete = true;
  p.classes = {{"all ok; check rows 9; 21", 1'000, {"a", "b", "c", "d", "e", "f"}, false},
               {"deadlock, T2 rolled back; check rows 9; 21 and nothing of what the other transfer has written",
                234,
                {"a", "c", "b", "d", "e", "f"},
                true}};
  return p;
}

TEST(LabTerminal, schedules_are_told_by_their_outcomes) {
  EXPECT_EQ(permuted().str(), R"(two rows in opposite orders
mysql: 1,234 schedules, all that can happen; some deadlock

schedules  share  outcome
    1,000  81.0%  all ok; check rows 9; 21
                  as in: a b c d e f
      234  19.0%  deadlock, T2 rolled back; check rows 9; 21 and nothing of what
                  the other transfer has written
                  as in: a c b d e f
)");
  EXPECT_TRUE(permuted().deadlocks());
}

TEST(LabTerminal, is_in_colour_only_if_asked_and_then_says_the_same) {
  for (const Result& result : {example::deadlock(), example::gap("postgres", "15.13", false), five_sessions()}) {
    const std::string plain = result.str();
    EXPECT_EQ(plain.find('\x1B'), plain.npos);
    std::string coloured = result.str({.colour = true});
    EXPECT_NE(coloured.find("\x1B["), coloured.npos);
    for (std::size_t at; (at = coloured.find('\x1B')) != coloured.npos;) {
      coloured.erase(at, coloured.find('m', at) - at + 1);
    }
    EXPECT_EQ(coloured, plain);
  }
}

TEST(LabTerminal, a_pipe_has_eighty_columns_and_no_colour) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(style_of(ends[1]).width, 80u);
  EXPECT_FALSE(style_of(ends[1]).colour);
  close(ends[0]);
  close(ends[1]);
}

TEST(LabTerminal, fits_any_width_and_shows_no_byte_that_a_terminal_would_obey) {
  Permuted classes = permuted();
  for (auto& each : classes.classes) each.outcome = example::hostile;
  std::vector<Result> results = example::all();
  results.push_back(example::hostility());
  results.push_back(five_sessions());
  for (const std::size_t width : {20u, 40u, 80u, 200u}) {
    std::string text = classes.str({.width = width});
    for (const Result& result : results) text += result.str({.width = width});
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(print::columns(line), width) << line;
      EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
      for (const char c : line) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != '\xFF') << line;
      EXPECT_EQ(line.find("\xE2\x80\xAE"), line.npos) << "turns the direction of writing";
    }
  }
}

}  // namespace
}  // namespace hierlock::lab
