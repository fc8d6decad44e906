// What death means, one fact at a time, without waiting for anybody's clock.
#include <gtest/gtest.h>

#include <unistd.h>
#include <csignal>
#include <future>
#include <thread>

#include "asking.h"
#include "hook.h"
#include "stage.h"

namespace hierlock::stores {
namespace {

using engine::Attempt;
using engine::Engine;
using engine::Progress;
using engine::Table;

struct Case {
  const char* name;
  std::vector<Target> holds;  // the victim
  std::vector<Target> waits;  // the victim: for what this process holds
  Target wanted;              // this process
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class Death : public testing::TestWithParam<Case> {
 protected:
  // A process that holds and waits, and is killed.
  void let_one_die(Stage& stage) {
    const Case& c = GetParam();
    Victim victim(
        stage,
        [&c](Stage& s, const Cue& cue) {
          Engine* const engine = s.open_for_good();
          for (const Target& target : c.holds) static_cast<void>(ask(*engine, {target}, 1s));
          for (const Target& target : c.waits) {
            new std::thread([engine, target] { static_cast<void>(ask(*engine, {target}, patience)); });
          }
          const Clock::time_point deadline = Clock::now() + patience;
          while (engine->table().look().copy().waiters.size() < c.waits.size() && Clock::now() < deadline) {
          }
          cue.ready();
          ::kill(getpid(), SIGKILL);
        },
        0, SIGKILL);
    victim.wait_until_ready();
    wanted_ = std::make_unique<Asking>(stage.engine().table(), c.wanted);
    EXPECT_FALSE(wanted_->granted());
    EXPECT_FALSE(wanted_->told());
    victim.go();
    EXPECT_EQ(victim.wait(), Victim::State::killed);
    EXPECT_FALSE(wanted_->granted()) << "nobody knows yet";
  }

  std::vector<spi::Grant> hold(Stage& stage) {
    std::vector<spi::Grant> held;
    if (!GetParam().waits.empty()) held.push_back(*ask(stage.engine(), {hierlock::shared("u1/a1")}, 1s));
    return held;
  }

  std::unique_ptr<Asking> wanted_;
};

TEST_P(Death, is_told_to_those_who_waited_when_it_is_found) {  // B5
  Stage stage;
  const auto held = hold(stage);
  let_one_die(stage);
  const Clock::time_point deadline = Clock::now() + patience;
  while (!stage.engine().table().recovery().recover()) ASSERT_LT(Clock::now(), deadline);
  EXPECT_TRUE(wanted_->told()) << "it may go, and was not told";
  EXPECT_TRUE(wanted_->granted());
  wanted_.reset();
  for (const auto& grant : held) stage.engine().release(grant);
  EXPECT_EQ(stage.verify(), "");
}

TEST_P(Death, counts_from_the_moment_it_is_marked_whoever_collects) {  // B5
  Stage stage;
  const auto held = hold(stage);
  // Another process finds the death, marks it, and is stopped before it has told anybody or collected anything: at its
  // third store, after the time of the look and the mark.
  Victim collector(
      stage,
      [](Stage& s, const Cue& cue) {
        Engine* const engine = s.open_for_good();
        cue.ready();
        const Clock::time_point deadline = Clock::now() + patience;
        while (engine->table().mapping().processes() > 2 && Clock::now() < deadline) {
          cue.arm();
          engine->table().recovery().recover();
          disarm();
        }
      },
      3, SIGSTOP);
  collector.wait_until_ready();
  let_one_die(stage);
  collector.go();
  ASSERT_EQ(collector.wait(), Victim::State::stopped);
  ASSERT_EQ(stage.engine().table().mapping().processes(), 3u) << "it was collected already: the test is void";
  EXPECT_TRUE(wanted_->granted()) << "what the dead held or waited for still counts";
  collector.resume();
  collector.wait();
  wanted_.reset();
  for (const auto& grant : held) stage.engine().release(grant);
  EXPECT_EQ(stage.verify(), "");
}

INSTANTIATE_TEST_SUITE_P(
    , Death,
    testing::Values(Case{"of_a_holder_of_X", {Target("u1/a1/r1")}, {}, Target("u1/a1/r1")},
                    Case{"of_a_holder_below", {Target("u1/a1/r1")}, {}, Target("u1")},
                    Case{"of_a_holder_above", {Target("u1")}, {}, Target("u1/a1/r1")},
                    Case{"of_a_holder_of_S", {hierlock::shared("u1/a1")}, {}, Target("u1/a1/r1")},
                    Case{"of_a_holder_of_a_slot", {hierlock::slots("s", 1)}, {}, hierlock::slots("s", 1)},
                    Case{"of_a_waiter_ahead", {}, {Target("u1/a1")}, hierlock::shared("u1/a1")}),
    [](const testing::TestParamInfo<Case>& c) { return c.param.name; });

TEST(Breaking, frees_the_target_at_once_and_is_loss_to_the_holder) {
  Stage stage;
  Engine& holder = stage.engine();
  const auto operators = stage.open();
  for (const std::vector<Target>& targets :
       {std::vector<Target>{Target("u1/a1/r1")}, std::vector<Target>{hierlock::shared("u1/a1/r1")},
        std::vector<Target>{hierlock::slots("s", 1)}, std::vector<Target>{Target("u1/a1/r1"), named("n")}}) {
    const auto lock = ask(holder, targets, 1s);
    ASSERT_TRUE(lock);
    EXPECT_EQ(operators->break_locks(spi::Plan(targets.front()), "a test"), 1u);
    EXPECT_FALSE(holder.held(*lock));
    const Target again = targets.front().space() == Space::slots ? targets.front() : Target("u1/a1/r1");
    const auto next = ask(*operators, {again}, 1s);
    ASSERT_TRUE(next) << "it is not free";
    holder.release(*lock);
    EXPECT_TRUE(operators->held(*next)) << "the old holder gave back what is not its own";
    EXPECT_FALSE(ask(holder, {again}, 0s)) << "two hold it";
    operators->release(*next);
    EXPECT_EQ(holder.table().look().check(), "");
  }
}

TEST(Breaking, ends_an_extend_that_waits_and_takes_the_whole_lock) {  // B13
  Stage stage;
  Engine& holder = stage.engine();
  const auto other = stage.open();
  const auto in_the_way = ask(*other, {Target("u2")}, 1s);
  const auto lock = ask(holder, {Target("u1")}, 1s);
  auto extending = std::async(std::launch::async, [&] {
    const Target more("u2");
    const spi::Plan plan(more);
    return holder.extend(*lock, {.plan = plan});
  });
  const Clock::time_point deadline = Clock::now() + patience;
  while (other->table().look().copy().waiters.empty()) ASSERT_LT(Clock::now(), deadline);
  EXPECT_EQ(other->break_locks(spi::Plan(Target("u1")), "a test"), 1u);
  EXPECT_FALSE(holder.held(*lock));
  try {
    extending.get();
    ADD_FAILURE() << "it was extended";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::lost);
  }
  EXPECT_TRUE(ask(*other, {Target("u1")}, 1s));
  holder.release(*lock);
  other->release(*in_the_way);
  EXPECT_EQ(holder.table().look().check(), "");
}

TEST(Breaking, finds_what_an_extend_added_only_when_it_has_ended) {  // B13
  Stage stage;
  Engine& holder = stage.engine();
  const auto other = stage.open();
  const std::vector<Target> both{Target("u2"), Target("u3")};
  const spi::Plan plan{std::span<const Target>(both)};
  const std::string first(plan.steps().front().segment);
  const std::string second(plan.steps().back().segment);
  const auto in_the_way = ask(*other, {Target(second)}, 1s);
  const auto lock = ask(holder, {Target("u1")}, 1s);
  auto extending = std::async(std::launch::async, [&] { return holder.extend(*lock, {.plan = plan}); });
  const Clock::time_point deadline = Clock::now() + patience;
  while (other->table().look().copy().waiters.empty()) ASSERT_LT(Clock::now(), deadline);
  EXPECT_EQ(other->break_locks(spi::Plan(Target(first)), "a test"), 0u) << "the extend may still fail";
  other->release(*in_the_way);
  const auto extended = extending.get();
  ASSERT_TRUE(extended);
  EXPECT_EQ(other->break_locks(spi::Plan(Target(first)), "a test"), 1u);
  EXPECT_TRUE(ask(*other, {Target("u1")}, 1s)) << "broken as a whole";
  holder.release(*extended);
  EXPECT_EQ(holder.table().look().check(), "");
}

TEST(Waking, does_not_wait_for_the_sleeper_to_look_by_itself) {  // I5: it would, after a second
  Engine engine(engine::Capacity::for_locks(100), Owners::per_handle);
  for (const auto& [has, wants] :
       {std::pair{Target("u1/a1"), Target("u1/a1")}, std::pair{Target("u1/a1"), Target("u1")},
        std::pair{hierlock::shared("u1"), Target("u1")}}) {
    bool woken = false;
    for (int attempt = 0; attempt < 5 && !woken; ++attempt) {  // a machine that stalls makes one of them late
      const auto held = ask(engine, {has}, 1s);
      auto waiter = std::async(std::launch::async, [&, target = wants] { return ask(engine, {target}, patience); });
      while (engine.table().look().copy().waiters.empty()) std::this_thread::yield();
      const Clock::time_point begin = Clock::now();
      engine.release(*held);
      const auto grant = waiter.get();
      woken = Clock::now() - begin < 600ms;
      engine.release(*grant);
    }
    EXPECT_TRUE(woken) << has.str() << " to " << wants.str();
  }
}

}  // namespace
}  // namespace hierlock::stores
