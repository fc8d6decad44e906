// Collecting: what the dead leave is cleared away in small steps, and a stopped process keeps nobody from it.
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "asking.h"
#include "hook.h"
#include "stage.h"

namespace hierlock::stores {
namespace {

using engine::Capacity;
using engine::Engine;

// Many processes of the table die at once: they are engines of one process, each with locks of its own.
void let_many_die(Stage& stage, int processes, int locks) {
  Victim many(
      stage,
      [=](Stage& s, const Cue& cue) {
        for (int p = 0; p < processes; ++p) {
          Engine* const engine = s.open_for_good();
          for (int i = 0; i < locks; ++i) {
            const std::string name = std::to_string(p) + "/" + std::to_string(i);
            static_cast<void>(ask(*engine, {i % 20 != 1 ? Target("d/" + name) : hierlock::shared("d/" + name)}, 5s));
          }
        }
        cue.ready();
        ::kill(getpid(), SIGKILL);
      },
      0, SIGKILL);
  many.wait_until_ready();
  many.go();
  EXPECT_EQ(many.wait(), Victim::State::killed);
}

// A process that is stopped with the latch of the stripe of node u1, and with no other.
class OneStripe {
 public:
  explicit OneStripe(Stage& stage) {
    for (long n = 1; n < 100; ++n) {
      // S is open at u1, so an intention to write goes through the latch.
      if (const auto lock = ask(stage.engine(), {hierlock::shared("u1")}, 0s)) stage.engine().release(*lock);
      holder_ = std::make_unique<Victim>(
          stage,
          [](Stage& s, const Cue& cue) {
            Engine* const engine = s.open_for_good();
            // What a first lock needs of the table, it has: so it takes no other latch before, and the same steps
            // always.
            if (const auto lock = ask(*engine, {hierlock::shared("u1")}, 0s)) engine->release(*lock);
            cue.arm();
            static_cast<void>(ask(*engine, {Target("u1/a")}, 0s));
            disarm();
            ::kill(getpid(), SIGKILL);
          },
          n, SIGSTOP);
      if (holder_->wait() != Victim::State::stopped) break;
      if (latch_is_taken(stage)) return;
    }
    throw std::runtime_error("it never stops with the latch");
  }
  void let_go() {
    holder_->resume();
    EXPECT_EQ(holder_->wait(), Victim::State::killed);
  }

 private:
  // Somebody who will not wait is answered at once, but for a latch that cannot be had.
  static bool latch_is_taken(Stage& stage) {
    const Clock::time_point begin = Clock::now();
    const auto lock = ask(stage.engine(), {Target("u1/b")}, 0s);
    const bool late = Clock::now() - begin > 500ms;
    if (lock) stage.engine().release(*lock);
    return late;
  }

  std::unique_ptr<Victim> holder_;
};

void collect_until(Engine& engine, std::uint32_t processes) {
  const Clock::time_point deadline = Clock::now() + patience;
  while (engine.table().mapping().processes() > processes) {
    ASSERT_LT(Clock::now(), deadline) << engine.table().mapping().processes() << " processes are left";
    engine.table().recovery().recover();
    std::this_thread::yield();
  }
}

// --- deadlines ---------------------------------------------------------------------------------------------

// The best of three: other programs run, too.
template <class F>
Clock::duration best_of_three(F f) {
  Clock::duration best = Clock::duration::max();
  for (int i = 0; i < 3; ++i) best = std::min<Clock::duration>(best, f());
  return best;
}

Clock::duration time_after_200_deaths(std::chrono::nanoseconds timeout) {
  Stage stage(Capacity::for_locks(100'000, 2048));
  const auto other = stage.open();
  const auto held = ask(*other, {Target("busy")}, 1s);
  static_cast<void>(ask(stage.engine(), {Target("own")}, 1s));
  let_many_die(stage, 200, 500);
  const Clock::time_point begin = Clock::now();
  EXPECT_FALSE(ask(stage.engine(), {Target("busy")}, timeout));
  const Clock::duration taken = Clock::now() - begin;
  // What was left is collected by those who look later, in pieces.
  const Clock::time_point deadline = Clock::now() + patience;
  while (stage.engine().table().mapping().processes() > 2) {
    EXPECT_FALSE(ask(stage.engine(), {Target("busy")}, 0s));
    if (Clock::now() > deadline) {
      ADD_FAILURE() << "never collected";
      break;
    }
  }
  EXPECT_EQ(stage.engine().table().look().check(), "");
  other->release(*held);
  return taken;
}

TEST(Collecting, keeps_a_deadline_of_20_ms_after_200_deaths) {  // B5
  EXPECT_LT(best_of_three([] { return time_after_200_deaths(20ms); }), 60ms);
}

TEST(Collecting, does_not_keep_who_will_not_wait_after_200_deaths) {  // B5
  EXPECT_LT(best_of_three([] { return time_after_200_deaths(0s); }), 60ms);
}

// --- stopped processes -------------------------------------------------------------------------------------

TEST(Collecting, goes_on_while_a_process_is_stopped_with_a_latch) {  // B5
  Stage stage(Capacity::for_locks(2000, 2048));
  OneStripe stopped(stage);
  let_many_die(stage, 3, 200);
  collect_until(stage.engine(), 2);
  for (int i = 0; i < 200; ++i) {
    const auto lock = ask(stage.engine(), {Target("d/1/" + std::to_string(i))}, patience);
    ASSERT_TRUE(lock);
    stage.engine().release(*lock);
  }
  stopped.let_go();
  EXPECT_EQ(stage.verify(), "");
}

TEST(Collecting, lets_processes_come_and_go_past_a_stopped_one) {  // B5
  Stage stage(Capacity::for_locks(2000, 2048));
  OneStripe stopped(stage);
  for (std::uint32_t i = 0; i < 2 * engine::process_count; ++i) {
    const auto guest = stage.open();
    const auto lock = ask(*guest, {Target("guest")}, 5s);
    ASSERT_TRUE(lock) << "of guest " << i;
  }
  stopped.let_go();
  EXPECT_EQ(stage.verify(), "");
}

TEST(Collecting, removes_a_dead_waiter_once_its_stripe_is_free) {  // B5
  Stage stage;
  const auto other = stage.open();
  const auto held = ask(*other, {hierlock::shared("u1")}, 1s);
  Victim waiting(
      stage,
      [](Stage& s, const Cue& cue) {
        Engine* const engine = s.open_for_good();
        new std::thread([engine] { static_cast<void>(ask(*engine, {Target("u1")}, patience)); });
        while (engine->table().look().copy().waiters.empty()) std::this_thread::yield();
        cue.ready();
        ::kill(getpid(), SIGKILL);
      },
      0, SIGKILL);
  waiting.wait_until_ready();
  OneStripe stopped(stage);
  waiting.go();
  ASSERT_EQ(waiting.wait(), Victim::State::killed);
  let_many_die(stage, 3, 10);
  collect_until(stage.engine(), 4);  // with the waiter that nobody can remove now
  stopped.let_go();
  collect_until(stage.engine(), 2);
  EXPECT_EQ(stage.engine().table().look().check(), "");
  EXPECT_TRUE(ask(stage.engine(), {hierlock::shared("u1")}, 0s)) << "the dead keeps its place in the queue";
  other->release(*held);
}

// A process that collects is stopped at its first store, its second, …: meanwhile another dies.
TEST(Collecting, goes_on_while_a_process_is_stopped_collecting) {  // B5
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr long stride = 17;
#else
  constexpr long stride = 3;
#endif
  for (long n = 1;; n += stride) {
    SCOPED_TRACE("at store " + std::to_string(n));
    Stage stage;
    Victim collector(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const engine = s.open_for_good();
          cue.ready();
          cue.arm();
          while (engine->table().mapping().processes() > 2) engine->table().recovery().recover();
          disarm();
          cue.ready();
        },
        n, SIGSTOP);
    collector.wait_until_ready();
    let_many_die(stage, 1, 3);
    collector.go();
    const bool stopped = collector.rests_before_ready();
    let_many_die(stage, 2, 5);
    if (stopped) {
      collect_until(stage.engine(), 3);  // with the collector and the first of the dead
      for (int i = 0; i < 5; ++i) {
        const auto lock = ask(stage.engine(), {Target("d/1/" + std::to_string(i))}, patience);
        ASSERT_TRUE(lock);
        stage.engine().release(*lock);
      }
      collector.resume();
      collector.wait_until_ready();
    }
    collector.go();
    ASSERT_EQ(collector.wait(), Victim::State::finished);
    EXPECT_EQ(stage.verify(), "");
    if (!stopped || HasFailure()) break;
  }
}

// With every place taken but that of the dead, a newcomer takes it while the collector of the dead is stopped.
TEST(Collecting, that_goes_on_late_leaves_the_next_of_the_place_alone) {  // B1, B5
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr long stride = 11;
#else
  constexpr long stride = 3;
#endif
  Stage stage(Capacity::for_locks(2000, 2048));
  std::vector<std::unique_ptr<Engine>> all;
  while (stage.engine().table().mapping().processes() < engine::process_count - 3) all.push_back(stage.open());
  bool stopped = true;
  for (long n = 1; stopped && !HasFailure(); n += stride) {
    SCOPED_TRACE("at store " + std::to_string(n));
    Victim collector(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const engine = s.open_for_good();
          cue.ready();
          cue.arm();
          engine->table().recovery().recover_now(true);
          disarm();
          cue.ready();
        },
        n, SIGSTOP);
    collector.wait_until_ready();
    Victim dead(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const engine = s.open_for_good();
          static_cast<void>(ask(*engine, {Target("p/a"), hierlock::shared("p/b"), Target("p/c")}, 1s));
          static_cast<void>(ask(*engine, {Target("q/a")}, 1s));
          cue.ready();
          ::kill(getpid(), SIGKILL);
        },
        0, SIGKILL);
    dead.wait_until_ready();
    dead.go();
    ASSERT_EQ(dead.wait(), Victim::State::killed);
    collector.go();
    stopped = collector.rests_before_ready();
    const auto next = stage.open();
    const auto first = ask(*next, {Target("p/a"), hierlock::shared("p/b"), Target("q/a")}, 5s);
    ASSERT_TRUE(first) << "the dead keeps its locks";
    if (stopped) {
      collector.resume();
      collector.wait_until_ready();
    }
    EXPECT_FALSE(ask(stage.engine(), {Target("p/a")}, 0s)) << "two hold it";
    EXPECT_FALSE(ask(stage.engine(), {Target("p/b")}, 0s)) << "two hold it";
    EXPECT_FALSE(ask(stage.engine(), {Target("q/a")}, 0s)) << "two hold it";
    const auto second = ask(*next, {Target("p/c")}, 5s);
    ASSERT_TRUE(second);
    EXPECT_TRUE(next->held(*first));
    next->release(*first);
    next->release(*second);
    collector.go();
    ASSERT_EQ(collector.wait(), Victim::State::finished);
  }
  all.clear();
  EXPECT_EQ(stage.verify(), "");
}

// --- memory ------------------------------------------------------------------------------------------------

// Reading a page of the file that was never written gives it memory. On a full filesystem that is SIGBUS.
TEST(Collecting, touches_no_tally_that_was_not_given) {  // B5, B12
  Stage stage(Capacity::for_locks(100'000, 16));
  const auto blocks = [&] {
    struct stat status {};
    EXPECT_EQ(stat(stage.options().path.c_str(), &status), 0);
    return status.st_blocks;
  };
  // Number 0 is nobody's, so these are all numbers of the first arena.
  for (std::size_t i = 1; i < engine::arena_size; ++i)
    stage.engine().release(*ask(stage.engine(), {hierlock::shared("s" + std::to_string(i))}, 1s));
  let_many_die(stage, 1, 0);
  const auto before = blocks();
  collect_until(stage.engine(), 1);
  EXPECT_EQ(blocks(), before) << "memory was touched that nobody uses";
  EXPECT_EQ(stage.engine().table().look().check(), "");
}

// A process is stopped while it gives a node its tally. Another counts in it already, dies and is collected.
TEST(Collecting, wipes_a_tally_that_is_just_being_given) {  // B5
  for (long n = 1;; ++n) {
    SCOPED_TRACE("at store " + std::to_string(n));
    Stage stage;
    // The nodes are there, and have no tallies.
    stage.engine().release(*ask(stage.engine(), {Target("u1")}, 1s));
    const auto reads_u1 = [](Stage& s, const Cue& cue) {
      Engine* const engine = s.open_for_good();
      cue.ready();
      cue.arm();
      static_cast<void>(ask(*engine, {hierlock::shared("u1")}, 5ms));
      disarm();
      ::kill(getpid(), SIGKILL);
    };
    Victim giver(stage, reads_u1, n, SIGSTOP);
    Victim dead(stage, reads_u1, 0, SIGKILL);
    giver.wait_until_ready();
    dead.wait_until_ready();
    giver.go();
    const bool stopped = giver.wait() == Victim::State::stopped;
    dead.go();
    ASSERT_EQ(dead.wait(), Victim::State::killed);
    collect_until(stage.engine(), stopped ? 2 : 1);
    giver.resume();
    ASSERT_EQ(giver.wait(), Victim::State::killed);
    EXPECT_EQ(stage.verify(), "");
    if (!stopped || HasFailure()) break;
  }
}

// A lane keeps its pages when its process dies. Its next user may be a process whose common lane has none there.
TEST(Collecting, a_lane_of_a_dead_process_counts_for_its_next_user) {  // B1, B5
  Stage stage;
  // Lanes are given from the lowest on: here to the process, to a thread that shares nothing, and to one that does.
  auto first = std::make_unique<Engine>(stage.options(), hierlock::Owners::per_thread);
  std::barrier both(2);
  std::thread plain([&] {
    first->release(*ask(*first, {Target("plain")}, 1s));
    both.arrive_and_wait();
    both.arrive_and_wait();
  });
  both.arrive_and_wait();
  std::thread([&] { first->release(*ask(*first, {hierlock::shared("u1")}, 1s)); }).join();
  both.arrive_and_wait();
  plain.join();
  first.reset();
  collect_until(stage.engine(), 1);
  // The first of these has the lane of the dead process, the second that of its first thread.
  Engine second(stage.options(), hierlock::Owners::per_thread);
  Engine third(stage.options(), hierlock::Owners::per_thread);
  std::optional<spi::Grant> held;
  std::thread taker([&] {
    held = ask(third, {hierlock::shared("u1")}, 1s);
    both.arrive_and_wait();
    both.arrive_and_wait();  // it keeps its lane until the other has one
  });
  both.arrive_and_wait();
  ASSERT_TRUE(held);
  std::thread([&] { third.release(*held); }).join();
  both.arrive_and_wait();
  taker.join();
  const auto free = ask(stage.engine(), {Target("u1")}, 0s);
  ASSERT_TRUE(free) << "something is still counted";
  stage.engine().release(*free);
  EXPECT_EQ(stage.engine().table().look().check(), "");
}

// --- the fast path -----------------------------------------------------------------------------------------

// The dead one waited alone. A collector that removes it and is killed must not leave the node's fast path shut. More
// have waited before, and their places go with the last waiter: then no place names the node any more.
TEST(Collecting, opens_the_fast_path_after_a_killed_collector) {  // B5, B12
  for (long n = 1;; ++n) {
    SCOPED_TRACE("at store " + std::to_string(n));
    Stage stage;
    // More nodes than stripes, so that the node is not the first of its stripe.
    for (unsigned i = 0; i < 2 * engine::stripe_count; ++i)
      stage.engine().release(*ask(stage.engine(), {named(std::to_string(i))}, 1s));
    ASSERT_TRUE(ask(stage.engine(), {named("waited for")}, 1s));  // and kept
    Victim collector(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const engine = s.open_for_good();
          cue.ready();
          cue.arm();
          engine->table().recovery().recover_now(true);
          disarm();
        },
        n, SIGKILL);
    collector.wait_until_ready();
    constexpr std::size_t more_than_are_kept = 65;
    std::vector<std::unique_ptr<Asking>> before;
    for (std::size_t i = 0; i < more_than_are_kept; ++i) {
      before.push_back(std::make_unique<Asking>(stage.engine().table(), named("waited for")));
      ASSERT_FALSE(before.back()->granted());
    }
    Victim waiting(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const engine = s.open_for_good();
          new std::thread([engine] { static_cast<void>(ask(*engine, {named("waited for")}, patience)); });
          const Clock::time_point deadline = Clock::now() + patience;
          while (engine->table().look().copy().waiters.size() == more_than_are_kept && Clock::now() < deadline)
            std::this_thread::yield();
          cue.ready();
          ::kill(getpid(), SIGKILL);
        },
        0, SIGKILL);
    waiting.wait_until_ready();
    before.clear();
    waiting.go();
    ASSERT_EQ(waiting.wait(), Victim::State::killed);
    collector.go();
    const Victim::State end = collector.wait();
    EXPECT_EQ(stage.verify(), "");
    if (end == Victim::State::finished || HasFailure()) break;
  }
}

// A decision shuts the fast path of a node. Whoever dies in the middle must not leave it shut: the node and its
// ancestors would never be reused.
TEST(Collecting, opens_the_fast_path_that_the_dead_had_shut) {  // B5, B12
  Capacity capacity = Capacity::for_locks(2000, 16);
  capacity.idle_nodes = 4;
  for (long n = 1;; ++n) {
    SCOPED_TRACE("at store " + std::to_string(n));
    Stage stage(capacity);
    Victim victim(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const engine = s.open_for_good();
          engine->release(*ask(*engine, {hierlock::shared("u1/a1")}, 1s));
          cue.arm();
          static_cast<void>(ask(*engine, {Target("u1/a1/r1")}, 1s));
          disarm();
        },
        n, SIGKILL);
    const Victim::State end = victim.wait();
    ASSERT_EQ(stage.verify(), "");
    // Idle nodes are reused in turn; the others must not add up.
    for (int i = 0; i < 100; ++i) stage.engine().release(*ask(stage.engine(), {named(std::to_string(i))}, 1s));
    EXPECT_LE(stage.engine().table().look().use().nodes, 12u) << "nodes that nobody uses are not reused";
    if (end == Victim::State::finished || HasFailure()) break;
  }
}

}  // namespace
}  // namespace hierlock::stores
