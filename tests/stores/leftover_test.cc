// Leftovers: what must not stay behind, in places where nobody meets it by chance.
#include <gtest/gtest.h>

#include <unistd.h>
#include <csignal>
#include <memory>
#include <thread>
#include <vector>

#include "asking.h"
#include "hook.h"
#include "stage.h"

namespace hierlock::stores {
namespace {

using engine::Capacity;
using engine::Engine;
using engine::Progress;
using engine::Table;

template <class F>
testing::AssertionResult happens(F fact) {
  const Clock::time_point deadline = Clock::now() + patience / 4;
  while (!fact()) {
    if (Clock::now() > deadline) return testing::AssertionFailure() << "not within " << patience / 4 / 1s << " s";
    std::this_thread::yield();
  }
  return testing::AssertionSuccess();
}

// Waits in its own process for what another holds, and is killed when told to go.
void wait_and_die(Stage& stage, const Cue& cue) {
  Engine* const engine = stage.open_for_good();
  const std::size_t before = engine->table().look().copy().waiters.size();
  new std::thread([engine] { static_cast<void>(ask(*engine, {named("waited for")}, patience)); });
  const Clock::time_point deadline = Clock::now() + patience;
  while (engine->table().look().copy().waiters.size() == before && Clock::now() < deadline) std::this_thread::yield();
  cue.ready();
  ::kill(getpid(), SIGKILL);
}

// Whoever looks at the front of a queue unlinks the dead there. Behind a waiter that lives only a collector does.
TEST(Leftover, a_dead_waiter_behind_a_living_one_is_removed) {  // B5
  Stage stage;
  const auto held = ask(stage.engine(), {named("waited for")}, 1s);
  Asking living(stage.engine().table(), named("waited for"));
  ASSERT_FALSE(living.granted());
  Victim dead(stage, wait_and_die, 0, SIGKILL);
  dead.wait_until_ready();
  dead.go();
  ASSERT_EQ(dead.wait(), Victim::State::killed);
  ASSERT_TRUE(happens([&] {
    stage.engine().table().recovery().recover();
    return stage.engine().table().mapping().processes() == 1;
  }));
  EXPECT_EQ(stage.engine().table().look().check(), "");
  stage.engine().release(*held);
  EXPECT_TRUE(living.granted());
}

// Looks for the dead once, when it is told to.
void collect_once(Stage& stage, const Cue& cue) {
  Engine* const engine = stage.open_for_good();
  cue.ready();
  cue.arm();
  engine->table().recovery().recover_now(true);
  disarm();
}

// If all places are taken, a newcomer takes that of a dead process, whose collector is stopped. The newcomer leaves,
// and the collector is killed. What the first of the place left is collected with what the newcomer left.
TEST(Leftover, of_an_earlier_process_of_the_place_is_collected_with_the_next) {  // B5
  constexpr long stride = 13;
  Stage stage(Capacity::for_locks(2000, 2048));
  Table& table = stage.engine().table();
  std::vector<std::unique_ptr<Engine>> all;
  while (table.mapping().processes() < engine::process_count - 3) all.push_back(stage.open());
  const std::uint32_t others = table.mapping().processes();
  bool stopped = true;
  for (long n = 1; stopped && !HasFailure(); n += stride) {
    SCOPED_TRACE("at store " + std::to_string(n));
    Victim collector(stage, collect_once, n, SIGSTOP);
    collector.wait_until_ready();
    Victim dead(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const engine = s.open_for_good();
          static_cast<void>(ask(*engine, {Target("p/a"), hierlock::shared("p/b")}, 1s));
          cue.ready();
          ::kill(getpid(), SIGKILL);
        },
        0, SIGKILL);
    dead.wait_until_ready();
    dead.go();
    ASSERT_EQ(dead.wait(), Victim::State::killed);
    collector.go();
    stopped = collector.wait() == Victim::State::stopped;
    { const auto next = stage.open(); }
    collector.kill();
    collector.resume();
    collector.wait();
    ASSERT_TRUE(happens([&] {
      table.recovery().recover_now(true);
      return table.mapping().processes() == others;
    }));
    ASSERT_EQ(table.look().check(), "");
  }
}

// Whoever looked at a lock before an extend began, and again after it failed, must see that something happened between:
// what it read meanwhile may be what the extend took and gave back.
TEST(Leftover, a_failed_extend_leaves_a_trace_in_the_word_of_the_lock) {  // B13
  Table table(Capacity::for_locks(100));
  Asking in_the_way(table, named("b"));
  ASSERT_TRUE(in_the_way.granted());
  const engine::Index owner = table.records().make_owner("somebody", engine::OwnerKind::thread);
  const engine::Index record = table.records().take_record(owner);
  const Target one = named("a");
  const Target two = named("b");
  const spi::Plan first(one);
  const spi::Plan more(two);
  engine::Attempt taking;
  taking.steps = first.steps();
  taking.owner = owner;
  taking.record = record;
  taking.lane = table.common_lane();
  ASSERT_TRUE(table.begin(taking));
  ASSERT_EQ(table.advance(taking, false), Progress::granted);
  table.finish(taking);
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t before = table.record_state_word(record);
    ASSERT_EQ(engine::record_state(before), engine::RecordState::held);
    engine::Attempt extending;
    extending.steps = more.steps();
    extending.owner = owner;
    extending.record = record;
    extending.lane = table.common_lane();
    extending.extending = true;
    ASSERT_TRUE(table.begin(extending));
    ASSERT_EQ(table.advance(extending, false), Progress::blocked);
    table.abandon(extending);
    const std::uint64_t after = table.record_state_word(record);
    EXPECT_EQ(engine::record_state(after), engine::RecordState::held);
    EXPECT_TRUE(engine::same_lock(before, after)) << "its handle must stay good";
    EXPECT_NE(before, after);
  }
  table.release(record, table.common_lane());
  table.records().return_record(record);
  table.records().retire_owner(owner);
}

// Somebody died while it changed the index, and whoever made the index again was killed as well: then the index misses
// nodes that are there. A breaker must not believe it.
TEST(Leftover, a_half_made_index_hides_no_lock_from_a_breaker) {  // B5, B13
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr long stride = 7;  // as in every_store_test.cc
#else
  constexpr long stride = 1;
#endif
  for (const long first : {14L, 18L, 22L}) {
    for (long n = 1;; n += stride) {
      SCOPED_TRACE("at store " + std::to_string(n) + " after one at " + std::to_string(first));
      Stage stage;
      const auto lock = ask(stage.engine(), {named("t")}, 1s);
      Victim collector(stage, collect_once, n, SIGKILL);
      collector.wait_until_ready();
      Victim maker(
          stage,
          [](Stage& s, const Cue& cue) {
            Engine* const engine = s.open_for_good();
            static_cast<void>(ask(*engine, {named("t")}, 0s));  // it is held: this only makes the thread known
            cue.arm();
            static_cast<void>(ask(*engine, {named("new")}, patience));
          },
          first, SIGKILL);
      ASSERT_EQ(maker.wait(), Victim::State::killed);
      collector.go();
      const Victim::State end = collector.wait();
      const Target target = named("t");
      ASSERT_EQ(stage.engine().break_locks(spi::Plan(target), "a test"), 1u);
      ASSERT_FALSE(stage.engine().held(*lock));
      if (end == Victim::State::finished) break;
    }
  }
}

// A process keeps a few unused chunks, however often it takes and gives back.
TEST(Leftover, chunks_that_are_not_used_go_back_to_the_table) {  // B12
  constexpr int locks = 1000;
  Stage stage(Capacity::for_locks(locks, 16));
  const std::uint32_t rounds = 2 * stage.options().capacity.records / locks;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    std::vector<spi::Grant> held;
    for (int i = 0; i < locks; ++i)
      ASSERT_NO_THROW(held.push_back(*ask(stage.engine(), {named(std::to_string(i))}, 0s))) << "in round " << round;
    for (const spi::Grant& lock : held) stage.engine().release(lock);
  }
  EXPECT_EQ(stage.engine().table().look().check(), "");
}

// --- the walk that checks the table --------------------------------------------------------------------------------

// Somebody is stopped in the middle of a decision: then the fast path is shut and nobody waits.
TEST(Check, says_that_a_fast_path_is_shut_for_nobody) {  // B5
  bool said = false;
  for (long n = 1; !said; ++n) {
    Stage stage;
    stage.engine().release(*ask(stage.engine(), {hierlock::shared(named("u1"))}, 1s));
    Victim deciding(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const engine = s.open_for_good();
          cue.arm();
          static_cast<void>(ask(*engine, {named("u1")}, 0s));
          disarm();
        },
        n, SIGSTOP);
    ASSERT_EQ(deciding.wait(), Victim::State::stopped) << "it is never said";
    said = stage.engine().table().look().check().find("nobody waits, the fast path is shut") != std::string::npos;
  }
}

}  // namespace
}  // namespace hierlock::stores
