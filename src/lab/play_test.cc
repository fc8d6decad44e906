// Scenarios that are played on memory:, where everything is known at once.
#include <gtest/gtest.h>

#include <hierlock/lab.h>

namespace hierlock::lab {
namespace {

Result play(const std::string& steps, const RunOptions& options = {}) {
  return run(parse("scenario  test\n" + steps), "memory:", options);
}

TEST(Play, account_waits_for_its_resource_and_goes_on_when_it_is_released) {  // H13
  const Result result = play(R"(
T1 a:  acquire u1/a1/r1   => ok
T2 b:  acquire u1/a1      => blocked by T1
T1 c:  release            => ok, unblocks T2
T2 d:  release
)");
  EXPECT_TRUE(result.passed()) << result.str();
  EXPECT_EQ(result.events[1].actual, "blocked by T1");
  EXPECT_EQ(result.events[1].why, "T2 waits for T1, which holds u1/a1 (IX).");
  ASSERT_EQ(result.events[2].freed.size(), 1u);
  EXPECT_EQ(result.events[2].freed[0].event, 1u);
}

TEST(Play, whoever_perhaps_goes_on_may_go_on_before_or_later) {
  for (const std::string expected : {"ok, unblocks perhaps T2", "ok, unblocks perhaps T2 (ok)"}) {
    const std::string steps = "T1 a: acquire u1\nT2 b: acquire u1 => blocked by T1\nT1 c: acquire u2 => " + expected +
                              "\nT1 d: release u1 => " + expected + "\nT1 e: acquire u3 => " + expected;
    const Result result = play(steps);
    EXPECT_TRUE(result.passed()) << result.str();
  }
}

// Each of these is wrong about what happens, and must be found to be.
TEST(Play, every_wrong_expectation_fails) {
  for (const std::string steps : {
           "T1 a: acquire u1 => ok\nT2 b: acquire u1 => ok",
           "T1 a: acquire u1 => ok\nT2 b: acquire u2 => blocked by T1",
           "T1 a: acquire u1\nT2 b: acquire u1 => blocked by T2",
           "T1 a: acquire u1\nT2 b: acquire u1 => blocked by T1\nT1 c: release => ok",
           "T1 a: acquire u1\nT2 b: acquire u1 => blocked by T1\nT1 c: acquire u2 => ok, unblocks T2\nT1 d: release",
           "T1 a: acquire u1\nT2 b: acquire u1 => blocked by T1\nT1 c: release => ok, unblocks T2 (timeout)",
           "T1 a: acquire u1\nT2 b: acquire u1 => blocked by T1\nT1 c: release => ok, unblocks perhaps T2 (timeout)",
           "T1 a: acquire u1\nT2 b: acquire u1 nowait => timeout",
           "T1 a: acquire u1\nT2 b: acquire u1 timeout 5ms => busy",
           "T1 a: acquire u1\nT2 b: acquire u1 timeout 5ms => ok",
           "T1 a: acquire u1 => deadlock, T1",
           "T1 a: acquire u1\nT2 b: acquire u2\nT1 c: extend u2 => blocked by T2\nT2 d: extend u1 => deadlock, T1",
           "T1 a: acquire u1\nT2 b: acquire u2\nT1 c: extend u2 => blocked by T2\nT2 d: extend u1 => blocked by T1",
           "T1 a: acquire u1 => error busy",
           "T1 a: acquire u1 => serialization",
           "T1 a: acquire u1\nT2 b: acquire u1 => blocked by T1\nT2 c: release",
       }) {
    const Result result = play(steps, {.patience = std::chrono::milliseconds(300)});
    EXPECT_EQ(result.verdict, Result::Verdict::failed) << steps << "\n" << result.str();
  }
}

TEST(Play, right_expectations_pass) {
  for (const std::string steps : {
           "T1 a: acquire u1\nT2 b: acquire u1 nowait => busy",
           "T1 a: acquire u1\nT2 b: acquire u1 timeout 5ms => timeout",
           "T1 a: acquire u1\nT2 b: acquire u1 timeout 10s => blocked by T1\nT1 c: release => ok, unblocks T2",
           "T1 a: acquire u1\nT2 b: acquire u1 timeout 50ms => blocked by T1\nT3 c: acquire u3 => ok, unblocks T2 "
           "(timeout)",
           "T1 a: acquire u1\nT2 b: acquire u2\nT1 c: extend u2 => blocked by T2\nT2 d: extend u1 => deadlock, T1 or "
           "T2",
           "T1 a: acquire shared u1\nT2 b: acquire shared u1\nT3 c: acquire u1/a1 => blocked by T1, T2",
           "T1 a: named \"x\"\nT2 b: named x timeout 10ms => timeout\nT1 c: named \"X\" => ok",
           "T1 a: slots \"import\" 2\nT2 b: slots \"import\" 2\nT3 c: slots \"import\" 2 => blocked by T1, T2",
           "T1 a: acquire u1\nT1 b: acquire u2\nT1 c: release u1\nT2 d: acquire u1\nT2 e: acquire u2 => blocked by T1",
           "T1 a: acquire u1\nT1 b: acquire u1 => deadlock",
           "T1 a: release u9 => error invalid_argument",
           "T1 a: acquire u1\nT2 b: acquire u1 => blocked by T1\nT1 c: release",
       }) {
    const Result result = play(steps);
    EXPECT_TRUE(result.passed()) << steps << "\n" << result.str();
  }
}

TEST(Play, the_circle_of_a_deadlock_is_told_where_it_was_broken_at_once) {
  const Result result = play(
      "T1 a: acquire u1\nT2 b: acquire u2\nT1 c: extend u2 => blocked by T2\n"
      "T2 d: extend u1 => deadlock, T2");
  ASSERT_TRUE(result.passed()) << result.str();
  EXPECT_EQ(result.events.back().cycle, (std::vector<std::string>{"T2", "T1"})) << result.str();
  EXPECT_EQ(result.events.back().why, "memory chose T2 as the victim: they waited in a circle, T2 → T1 → T2.");
}

TEST(Play, a_scenario_that_names_no_engines_is_for_those_that_have_what_it_needs) {
  const Result result = play("T1 a: acquire u1\nT1 b: aquire u1");
  EXPECT_EQ(result.verdict, Result::Verdict::skipped);
  EXPECT_EQ(result.message, "scenario:3: `aquire u1` is SQL, and memory knows none");
}

TEST(Play, what_the_store_has_not_is_an_error_before_anything_is_played) {
  const Result result = play("engines memory\nT1 a: acquire u1\nT1 b: select 1");
  EXPECT_EQ(result.verdict, Result::Verdict::error);
  EXPECT_TRUE(result.events.empty());
  EXPECT_NE(result.message.find("memory knows none"), std::string::npos) << result.message;
}

TEST(Play, lines_for_other_engines_are_not_there) {
  const Result result =
      play("setup mysql: create table t(id int)\nT1 a: acquire u1\nT1 b: mysql: select 1\ncheck sqlite: x");
  EXPECT_TRUE(result.passed()) << result.str();
  EXPECT_EQ(result.events.size(), 1u);
}

TEST(Permute, finds_the_deadlock_of_opposite_orders_without_being_told_one) {  // H13
  const Scenario scenario = parse(R"(
scenario two resources in opposite orders
T1 a: acquire u1/a1/r1
T1 b: extend u1/a1/r2
T1 c: release
T2 d: acquire u1/a1/r2
T2 e: extend u1/a1/r1
T2 f: release
)");
  const Permuted all = permute(scenario, "memory:");
  EXPECT_TRUE(all.deadlocks()) << all.str();
  EXPECT_TRUE(all.complete);
  for (const Permuted::Class& one : all.classes) {  // each is what it says when it is played again
    const Result again = run(scenario, "memory:", {.schedule = one.schedule});
    EXPECT_TRUE(again.passed()) << again.str();
    EXPECT_EQ(again.schedule, one.schedule);
    const bool deadlock = std::any_of(again.events.begin(), again.events.end(),
                                      [](const Event& event) { return event.actual.starts_with("deadlock"); });
    EXPECT_EQ(deadlock, one.deadlock) << again.str();
  }
}

TEST(Permute, shows_that_one_ordered_call_never_deadlocks) {  // H13
  const Permuted all = permute(parse(R"(
scenario ordered
T1 a: acquire u1/a1/r1 u1/a1/r2
T1 b: release
T2 c: acquire u1/a1/r2 u1/a1/r1
T2 d: release
)"),
                               "memory:");
  EXPECT_FALSE(all.deadlocks()) << all.str();
  EXPECT_TRUE(all.complete);
  // a b c d, a c b d, c d a b, c a d b: after `a c` only T1 can go on.
  EXPECT_EQ(all.schedules, 4u) << all.str();
}

TEST(Permute, counts_every_interleaving_once) {
  const Permuted all = permute(parse("scenario free\nT1 a: acquire u1\nT1 b: release\nT1 c: acquire u1\n"
                                     "T2 d: acquire u2\nT2 e: release\nT2 f: acquire u2\n"),
                               "memory:");
  EXPECT_EQ(all.schedules, 20u);  // 6 over 3
  ASSERT_EQ(all.classes.size(), 1u);
  EXPECT_EQ(all.classes[0].outcome, "all ok");
}

TEST(Permute, a_bound_on_preemptions_and_random_schedules_play_fewer) {
  const Scenario scenario = parse(
      "scenario free\nT1 a: acquire u1\nT1 b: release\nT1 c: acquire u1\n"
      "T2 d: acquire u2\nT2 e: release\nT2 f: acquire u2\n");
  PermuteOptions bounded;
  bounded.preemptions = 0;
  EXPECT_EQ(permute(scenario, "memory:", bounded).schedules, 2u);
  bounded.preemptions = 1;
  EXPECT_EQ(permute(scenario, "memory:", bounded).schedules, 6u);
  PermuteOptions random;
  random.random = 7;
  const Permuted some = permute(scenario, "memory:", random);
  EXPECT_EQ(some.schedules, 7u);
  EXPECT_FALSE(some.complete);
}

}  // namespace
}  // namespace hierlock::lab
