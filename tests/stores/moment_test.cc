// Moments: what others do while a process is stopped at a certain store, or is killed there, and goes on later.
#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <future>
#include <thread>

#include <hierlock/error.h>

#include "hook.h"
#include "stage.h"

namespace hierlock::stores {
namespace {

using engine::Capacity;
using engine::Engine;

void wait_for_waiters(Engine& engine, std::size_t count) {
  const Clock::time_point deadline = Clock::now() + patience;
  while (engine.table().look().copy().waiters.size() < count) {
    if (Clock::now() > deadline) throw std::runtime_error("they do not wait");
    std::this_thread::yield();
  }
}

// Somebody has the latches of all stripes, as one who hands a lock over does, and stops in the middle of it.
void hold_all_stripes(Stage& stage, const Cue& cue) {
  Engine* const engine = stage.open_for_good();
  const spi::OwnerId here = engine->make_owner("here");
  const spi::OwnerId there = engine->make_owner("there");
  auto lock = *ask(*engine, {Target("stripes")}, 1s, here);
  long stores = 0;
  for (const spi::OwnerId to : {there, here, there, here}) {
    arm(1'000'000, SIGSTOP);
    lock = engine->give(lock, to);
    stores = disarm();
  }
  cue.ready();
  arm(stores / 2, SIGSTOP);
  lock = engine->give(lock, there);
  disarm();
  engine->release(lock);
}

// --- numbers of tallies ------------------------------------------------------------------------------------

// Stopped when it has found its nodes, or has counted itself at some of them: by the time it goes on, the numbers under
// which it counts are those of other nodes.
TEST(Moment, a_late_sharer_counts_under_a_number_of_another_node) {  // B1, B5
  Capacity capacity = Capacity::for_locks(5000, 16);
  capacity.idle_pages = 0;
  for (const bool exclusive : {true, false}) {
    const Target target = exclusive ? Target("u1/a1/r1") : hierlock::shared("u1/a1");
    const Target beside = exclusive ? Target("u1/a1/r2") : hierlock::shared("u1/a1");
    for (long n = 1;; ++n) {
      SCOPED_TRACE("at store " + std::to_string(n));
      Stage stage(capacity);
      Victim victim(
          stage,
          [&](Stage& s, const Cue& cue) {
            Engine* const engine = s.open_for_good();
            for (int i = 0; i < 2; ++i) engine->release(*ask(*engine, {target}, 1s));
            cue.ready();
            cue.arm();
            spi::Grant grant = engine->at_once(spi::Chain::of(target));
            disarm();
            if (grant.id == 0) grant = *ask(*engine, {target}, patience);
            cue.ready();
            engine->release(grant);
          },
          n, SIGSTOP);
      victim.wait_until_ready();
      victim.go();
      const bool stopped = victim.rests_before_ready();
      std::vector<spi::Grant> held;
      // More than there are numbers in an arena, so that each number is given once more.
      for (int i = 0; i < 300; ++i) {
        const std::string name = "other " + std::to_string(i);
        held.push_back(*ask(stage.engine(), {hierlock::shared(name)}, 1s));
        if (i % 2 == 0) continue;
        stage.engine().release(held.back());
        held.back() = *ask(stage.engine(), {Target(name)}, 1s);
      }
      // The nodes it found are open as they were, under other numbers.
      const spi::Grant again = *ask(stage.engine(), {beside}, 1s);
      if (stopped) {
        victim.resume();
        victim.wait_until_ready();
      }
      EXPECT_EQ(stage.engine().table().look().check(), "");
      stage.engine().release(again);
      EXPECT_FALSE(ask(stage.engine(), {Target("u1")}, 0s)) << "what the late one holds is not held";
      for (int i = 0; i < 300; i += 7) {
        const spi::OwnerId somebody = stage.engine().make_owner("somebody");
        EXPECT_FALSE(ask(stage.engine(), {Target("other " + std::to_string(i))}, 0s, somebody)) << i;
        stage.engine().drop_owner(somebody);
      }
      victim.go();
      ASSERT_EQ(victim.wait(), Victim::State::finished);
      for (const spi::Grant& grant : held) stage.engine().release(grant);
      for (int i = 0; i < 300; ++i) {
        const auto free = ask(stage.engine(), {Target("other " + std::to_string(i))}, 0s);
        ASSERT_TRUE(free) << i << ": something is still counted";
        stage.engine().release(*free);
      }
      EXPECT_EQ(stage.verify(), "");
      if (HasFailure() || !stopped) break;
      ASSERT_LT(n, 1000);
    }
  }
}

// Shares "w" while it holds something else, so that its lane has a page in the first arena.
void share_w(Stage& stage, const Cue& cue) {
  Engine* const engine = stage.open_for_good();
  const auto other = ask(*engine, {hierlock::shared("other")}, 1s);
  cue.ready();
  cue.arm();
  auto grant = ask(*engine, {hierlock::shared("w")}, 20ms);
  disarm();
  cue.ready();
  if (!grant) grant = ask(*engine, {hierlock::shared("w")}, patience);
  cue.ready();
  engine->release(*grant);
  engine->release(*other);
}

// Somebody is stopped while it takes a node's number back. Another finds the node in the middle of that, is stopped
// before it decides, and goes on when the number is gone.
TEST(Moment, a_node_that_just_loses_its_number_can_be_shared) {  // B1
  Capacity capacity = Capacity::for_locks(5000, 16);
  capacity.idle_pages = 0;
  const Target target = hierlock::shared("w");
  bool gone = false;  // the number, when the taker was stopped
  for (long n = 1; !gone; ++n) {
    for (long k = 6; k <= 16; ++k) {  // the stores of the asker around its decision
      SCOPED_TRACE("at stores " + std::to_string(n) + " and " + std::to_string(k));
      Stage stage(capacity);
      stage.engine().release(*ask(stage.engine(), {target}, 1s));
      Victim asker(stage, share_w, k, SIGSTOP);
      asker.wait_until_ready();
      Victim taker(
          stage,
          [](Stage& s, const Cue& cue) {
            Engine* const engine = s.open_for_good();
            std::vector<spi::Grant> held;
            for (engine::Index i = 3; i < engine::arena_size; ++i)
              held.push_back(*ask(*engine, {hierlock::shared("f" + std::to_string(i))}, 1s));
            cue.ready();
            cue.arm();
            held.push_back(*ask(*engine, {hierlock::shared("x")}, patience));
            disarm();
            cue.ready();
            for (const spi::Grant& grant : held) engine->release(grant);
          },
          n, SIGSTOP);
      taker.wait_until_ready();
      EXPECT_EQ(stage.engine().table().look().use().numbers, engine::arena_size - 1);
      taker.go();
      ASSERT_TRUE(taker.rests_before_ready());
      gone = stage.engine().table().look().use().numbers < engine::arena_size - 1;
      asker.go();
      const bool asker_stopped = asker.rests_before_ready();
      taker.resume();
      taker.wait_until_ready();
      if (asker_stopped) {
        asker.resume();
        asker.wait_until_ready();
      }
      asker.go();
      asker.wait_until_ready();
      EXPECT_FALSE(ask(stage.engine(), {Target("w")}, 0s)) << "two hold it";
      asker.go();
      ASSERT_EQ(asker.wait(), Victim::State::finished);
      taker.go();
      ASSERT_EQ(taker.wait(), Victim::State::finished);
      EXPECT_EQ(stage.verify(), "");
      if (HasFailure()) return;
    }
    ASSERT_LT(n, 1000);
  }
}

// Somebody is stopped while it moves an idle node to another number, in an arena in which only its process has pages.
// Another finds the node in the middle of that, is stopped before it decides, and goes on when the node has the new
// number.
TEST(Moment, a_node_that_just_gets_another_number_can_be_shared) {  // B1
  Capacity capacity = Capacity::for_locks(5000, 16);
  capacity.idle_pages = 0;
  const Target target = hierlock::shared("w");
  bool through = false;                            // the taker was not stopped any more
  for (long n = 10; !through; ++n) {               // those before have nothing to do with numbers
    for (long k = 11; k <= 12 && !through; ++k) {  // the stores of the asker around its decision
      SCOPED_TRACE("at stores " + std::to_string(n) + " and " + std::to_string(k));
      Stage stage(capacity);
      stage.engine().release(*ask(stage.engine(), {target}, 1s));
      Victim asker(stage, share_w, k, SIGSTOP);
      asker.wait_until_ready();
      std::vector<spi::Grant> held;  // all other numbers of the first arena
      for (engine::Index i = 3; i < engine::arena_size; ++i)
        held.push_back(*ask(stage.engine(), {hierlock::shared("f" + std::to_string(i))}, 1s));
      Victim taker(
          stage,
          [&](Stage& s, const Cue& cue) {
            Engine* const engine = s.open_for_good();
            const auto own = ask(*engine, {hierlock::shared("t")}, 1s);  // in an arena of its own
            cue.ready();
            cue.arm();
            const auto grant = ask(*engine, {target}, 300ms);  // in vain, if the asker is stopped with the latch
            disarm();
            if (grant) engine->release(*grant);
            cue.ready();
            engine->release(*own);
          },
          n, SIGSTOP);
      taker.wait_until_ready();
      taker.go();
      const bool stopped = taker.rests_before_ready();
      through = !stopped;
      asker.go();
      const bool asker_stopped = asker.rests_before_ready();
      if (stopped) {
        taker.resume();
        taker.wait_until_ready();
      }
      if (asker_stopped) {
        asker.resume();
        asker.wait_until_ready();
      }
      asker.go();
      asker.wait_until_ready();
      EXPECT_FALSE(ask(stage.engine(), {Target("w")}, 0s)) << "two hold it";
      asker.go();
      ASSERT_EQ(asker.wait(), Victim::State::finished);
      taker.go();
      ASSERT_EQ(taker.wait(), Victim::State::finished);
      for (const spi::Grant& grant : held) stage.engine().release(grant);
      EXPECT_EQ(stage.verify(), "");
      if (HasFailure()) return;
    }
    ASSERT_LT(n, 1000);
  }
}

// --- breaking ----------------------------------------------------------------------------------------------

// Handing over is taken back when it would close a cycle: the lock is then as good as before.
void hand_over_into_a_cycle(Stage& stage, const Cue& cue) {
  Engine* const engine = stage.open_for_good();
  const spi::OwnerId first = engine->make_owner("first");
  const spi::OwnerId second = engine->make_owner("second");
  const spi::OwnerId third = engine->make_owner("third");
  const auto lock = ask(*engine, {hierlock::shared("u1")}, 1s, first);
  static_cast<void>(ask(*engine, {Target("u2")}, 1s, third));
  new std::thread([=] { static_cast<void>(ask(*engine, {Target("u1")}, patience, third)); });
  new std::thread([=] { static_cast<void>(ask(*engine, {Target("u2")}, patience, second)); });
  wait_for_waiters(*engine, 2);
  cue.arm();
  try {
    static_cast<void>(engine->give(*lock, second));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::deadlock && error.kind() != ErrorKind::lost) throw;
  }
  disarm();
  const bool held = engine->held(*lock);
  cue.ready();
  _exit(held ? 0 : 1);
}

TEST(Moment, a_lock_broken_while_it_is_handed_over_is_broken_or_held_but_not_both) {  // B2, B4
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr long stride = 7;  // as in every_store_test.cc
#else
  constexpr long stride = 1;
#endif
  int in_the_middle = 0;
  for (long n = 1;; n += stride) {
    SCOPED_TRACE("at store " + std::to_string(n));
    Stage stage;
    Victim giver(stage, hand_over_into_a_cycle, n, SIGSTOP);
    const bool stopped = giver.rests_before_ready();
    const auto break_it = [&] { return stage.engine().break_locks(spi::Plan(hierlock::shared("u1")), "a test"); };
    std::size_t broken = 0;
    if (stopped) {
      try {
        broken = break_it();
        EXPECT_EQ(broken, 1u) << "nobody holds it, says the breaker";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::unavailable) << error.what();
        ++in_the_middle;
      }
      giver.resume();
      giver.wait_until_ready();
      if (broken == 0) {
        EXPECT_EQ(break_it(), 1u) << "its giver goes on, and it cannot be broken";
      }
    }
    giver.go();
    EXPECT_EQ(giver.wait() == Victim::State::finished, broken == 0) << "whether it was held";
    if (!stopped || HasFailure()) break;
  }
  EXPECT_GT(in_the_middle, 0) << "never in the middle of a hand-over: the test is void";
}

// An upgrade that failed is taken back, but not if a stopped process is in the way: then the lock stays stronger than
// it was. Whoever is about to break it must not go by what it was.
TEST(Moment, a_lock_that_stays_stronger_is_not_broken_as_what_it_was) {  // B2
  Stage stage;
  Engine& engine = stage.engine();
  const std::vector<Target> both{Target("u1"), Target("u2")};
  const spi::Plan plan{std::span<const Target>(both)};
  const std::string first(plan.steps().front().segment);
  const std::string second(plan.steps().back().segment);
  const auto other = stage.open();
  static_cast<void>(ask(*other, {Target(second)}, 1s));
  const auto lock = ask(engine, {hierlock::shared(first)}, 1s);
  Victim holder(stage, hold_all_stripes, 0, SIGSTOP);
  holder.wait_until_ready();
  Victim breaker(
      stage,
      [&](Stage& s, const Cue& cue) {
        Engine* const own = s.open_for_good();
        cue.arm();
        static_cast<void>(own->break_locks(spi::Plan(hierlock::shared(first)), "a test"));
      },
      2, SIGSTOP);  // it has looked at the lock, and is about to change its word
  ASSERT_EQ(breaker.wait(), Victim::State::stopped);
  auto extending = std::async(std::launch::async,
                              [&] { return engine.extend(*lock, {.plan = plan, .deadline = Clock::now() + 200ms}); });
  wait_for_waiters(*other, 1);
  holder.go();
  ASSERT_EQ(holder.wait(), Victim::State::stopped);
  EXPECT_FALSE(extending.get());
  holder.resume();
  ASSERT_EQ(holder.wait(), Victim::State::finished);
  breaker.resume();
  ASSERT_EQ(breaker.wait(), Victim::State::finished);
  EXPECT_FALSE(engine.held(*lock)) << "it was broken";
  engine.release(*lock);
  const auto reads = ask(*other, {hierlock::shared(first)}, patience);
  ASSERT_TRUE(reads);
  EXPECT_FALSE(ask(engine, {Target(first)}, 0s)) << "two hold it";
}

// --- orphans -----------------------------------------------------------------------------------------------

// A process that gave its lifeline away and ended. `cue.ready()` is its child's, which keeps the locks until it goes.
void leave_an_orphan(Stage& stage, const Cue& cue) {
  Engine* const engine = stage.open_for_good();
  static_cast<void>(ask(*engine, {Target("orphaned")}, 1s));
  const int lifeline = dup(engine->lifeline());
  if (lifeline < 0) throw std::runtime_error("no lifeline");
  const pid_t parent = getpid();
  if (fork() != 0) ::kill(getpid(), SIGKILL);
  while (getppid() == parent) std::this_thread::yield();
  cue.ready();
  _exit(0);
}

TEST(Moment, who_finds_an_orphan_late_does_not_take_the_next_process_of_its_place_for_one) {  // B1, B5
  for (long n = 1;; ++n) {
    SCOPED_TRACE("at store " + std::to_string(n));
    Stage stage;
    // So that u1 can only be had under its latch.
    stage.engine().release(*ask(stage.engine(), {hierlock::shared("u1")}, 1s));
    Victim finder(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const engine = s.open_for_good();
          cue.ready();
          cue.arm();
          engine->table().recovery().recover_now(true);
        },
        1, SIGSTOP);
    finder.wait_until_ready();
    auto orphan = std::make_unique<Victim>(stage, leave_an_orphan, 0, SIGKILL);
    orphan->wait_until_ready();
    ASSERT_EQ(orphan->wait(), Victim::State::killed);
    finder.go();
    ASSERT_EQ(finder.wait(), Victim::State::stopped) << "it found no orphan";
    ASSERT_FALSE(ask(stage.engine(), {Target("orphaned")}, 0s)) << "the orphan keeps its lock";
    orphan->go();
    ASSERT_TRUE(ask(stage.engine(), {Target("orphaned")}, patience)) << "until it ends";
    const Clock::time_point deadline = Clock::now() + patience;
    while (stage.engine().table().mapping().processes() > 2) {
      ASSERT_LT(Clock::now(), deadline);
      stage.engine().table().recovery().recover_now(true);
    }
    Victim next(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const engine = s.open_for_good();
          cue.ready();
          cue.arm();
          const auto lock = ask(*engine, {Target("u1")}, patience);
          disarm();
          cue.ready();
          engine->release(*lock);
        },
        n, SIGSTOP);
    next.wait_until_ready();
    finder.resume();
    ASSERT_EQ(finder.wait(), Victim::State::finished);
    next.go();
    const bool stopped = next.rests_before_ready();
    // Whatever it was doing: who shares u1 now keeps it out, or is kept out.
    const auto mine = ask(stage.engine(), {hierlock::shared("u1")}, 30ms);
    if (stopped) {
      next.resume();
      if (mine) {
        const Clock::time_point by_now = Clock::now() + patience;
        while (stage.engine().table().look().copy().waiters.empty() && !next.says_ready() && Clock::now() < by_now) {
        }
        EXPECT_FALSE(next.says_ready()) << "two hold it";
        EXPECT_LT(Clock::now(), by_now) << "it waits, and is not in the queue";
        stage.engine().release(*mine);
      }
      next.wait_until_ready();
    }
    next.go();
    EXPECT_EQ(next.wait(), Victim::State::finished);
    if (!stopped || HasFailure()) break;
  }
}

TEST(Moment, an_orphan_that_was_killed_at_any_store_keeps_no_latch) {  // B5
  for (long n = 1;; ++n) {
    SCOPED_TRACE("at store " + std::to_string(n));
    Stage stage;
    Victim orphan(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const engine = s.open_for_good();
          if (dup(engine->lifeline()) < 0) throw std::runtime_error("no lifeline");
          if (fork() == 0) {
            cue.ready();
            _exit(0);
          }
          cue.arm();
          static_cast<void>(ask(*engine, {hierlock::shared("u1/a1")}, 1s));
          disarm();
          ::kill(getpid(), SIGTERM);
        },
        n, SIGKILL);
    orphan.wait_until_ready();
    const Victim::State end = orphan.wait();
    // The same ancestor, under the same latch; and a node that is new.
    for (const Target& target : {hierlock::shared("u1/a2"), named("new")}) {
      const auto lock = ask(stage.engine(), {target}, patience / 4);
      ASSERT_TRUE(lock) << target.str();
      stage.engine().release(*lock);
    }
    EXPECT_EQ(stage.engine().table().mapping().processes(), 2u) << "it keeps what it has";
    orphan.go();
    EXPECT_TRUE(ask(stage.engine(), {Target("u1")}, patience));
    EXPECT_EQ(stage.verify(), "");
    if (end != Victim::State::killed || HasFailure()) break;
  }
}

// --- no place left -----------------------------------------------------------------------------------------

TEST(Moment, places_taken_over_while_nobody_can_collect_leave_nothing_behind) {  // B5
  Stage stage(Capacity::for_locks(2000, 2048));
  Victim holder(stage, hold_all_stripes, 0, SIGSTOP);
  holder.wait_until_ready();
  holder.go();
  ASSERT_EQ(holder.wait(), Victim::State::stopped);
  constexpr std::uint32_t more_than_there_are = engine::process_count + 40;
  for (std::uint32_t i = 0; i < more_than_there_are; ++i) ASSERT_NO_THROW(stage.open());
  holder.resume();
  ASSERT_EQ(holder.wait(), Victim::State::finished);
  EXPECT_EQ(stage.verify(), "");
}

TEST(Moment, who_is_killed_on_its_way_into_a_dead_ones_place_leaves_nothing_behind) {  // B5
  Stage stage(Capacity::for_locks(2000, 2048));
  {
    std::vector<std::unique_ptr<Engine>> all;
    for (std::uint32_t i = 2; i < engine::process_count; ++i) all.push_back(stage.open());
  }
  const auto places = stage.engine().table().mapping().processes();
  ASSERT_EQ(places, engine::process_count - 1) << "somebody was collected: the test is void";
  for (long n = 1;; ++n) {
    Victim victim(
        stage,
        [](Stage& s, const Cue& cue) {
          cue.arm();
          static_cast<void>(s.open_for_good());
        },
        n, SIGKILL);
    // The first that comes far enough to collect others ends it: then there are free places.
    if (victim.wait() == Victim::State::finished || stage.engine().table().mapping().processes() != places) break;
    ASSERT_LT(n, 100'000);
  }
  EXPECT_EQ(stage.verify(), "");
}

// --- deadlines ---------------------------------------------------------------------------------------------

// How much later than asked may be: the machine has others to run, and may stall.
constexpr auto tolerance = 5s;

TEST(Moment, deadlines_are_kept_though_somebody_has_stopped_with_all_stripes_and_many_are_dead) {  // B5
  constexpr int many = 800;
  Stage stage(Capacity::for_locks(2000, 2048));
  Victim holder(stage, hold_all_stripes, 0, SIGSTOP);
  holder.wait_until_ready();
  Victim dead(
      stage,
      [](Stage& s, const Cue& cue) {
        for (int i = 0; i < many; ++i) static_cast<void>(ask(*s.open_for_good(), {hierlock::shared("u1")}, 1s));
        cue.ready();
        ::kill(getpid(), SIGKILL);
      },
      0, SIGKILL);
  dead.wait_until_ready();
  holder.go();
  ASSERT_EQ(holder.wait(), Victim::State::stopped);
  dead.go();
  ASSERT_EQ(dead.wait(), Victim::State::killed);
  for (const auto timeout : {1ms, 40ms, 300ms}) {
    const Clock::time_point begin = Clock::now();
    EXPECT_FALSE(ask(stage.engine(), {Target("u1")}, timeout)) << "nobody can decide";
    EXPECT_LT(Clock::now() - begin, timeout + tolerance);
  }
  holder.resume();
  ASSERT_EQ(holder.wait(), Victim::State::finished);
  EXPECT_TRUE(ask(stage.engine(), {Target("u1")}, patience));
}

// How late an extend is that has to take back many upgrades while a process has stopped.
Clock::duration lateness_of_many_upgrades() {
  constexpr int many = 200;
  Stage stage;
  Engine& engine = stage.engine();
  std::vector<Target> shared_ones;
  std::vector<Target> wanted;
  for (int i = 0; i < many; ++i) {
    shared_ones.push_back(hierlock::shared("u" + std::to_string(i)));
    wanted.push_back(Target("u" + std::to_string(i)));
  }
  const auto lock = ask(engine, shared_ones, 1s);
  const spi::Plan plan{std::span<const Target>(wanted)};
  const auto other = stage.open();
  static_cast<void>(ask(*other, {hierlock::shared(std::string(plan.steps().back().segment))}, 1s));
  Victim holder(stage, hold_all_stripes, 0, SIGSTOP);
  holder.wait_until_ready();
  const Clock::time_point deadline = Clock::now() + 300ms;
  auto extending =
      std::async(std::launch::async, [&] { return engine.extend(*lock, {.plan = plan, .deadline = deadline}); });
  wait_for_waiters(*other, 1);
  holder.go();
  EXPECT_EQ(holder.wait(), Victim::State::stopped);
  EXPECT_FALSE(extending.get());
  const Clock::duration late = Clock::now() - deadline;
  holder.resume();
  EXPECT_EQ(holder.wait(), Victim::State::finished);
  EXPECT_TRUE(engine.held(*lock));
  engine.release(*lock);
  EXPECT_EQ(engine.table().look().check(), "");
  return late;
}

TEST(Moment, taking_back_many_upgrades_does_not_wait_for_a_stopped_process_again_and_again) {  // B5
  Clock::duration least = Clock::duration::max();
  for (int attempt = 0; attempt < 5 && least >= 500ms; ++attempt) {  // a machine that stalls makes one of them late
    least = std::min(least, lateness_of_many_upgrades());
  }
  EXPECT_LT(least, 500ms);
}

TEST(Moment, a_full_table_meets_a_stopped_process_once_a_stripe_and_not_at_every_node) {  // B5
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr std::uint32_t nodes = 20'032;
#else
  constexpr std::uint32_t nodes = 1'000'000;
#endif
  Capacity capacity = Capacity::for_locks(2000, 16);
  capacity.nodes = capacity.idle_nodes = nodes;
  Stage stage(capacity);
  Engine& engine = stage.engine();
  Victim holder(stage, hold_all_stripes, 0, SIGSTOP);
  holder.wait_until_ready();
  // One is nobody, one the other's.
  for (std::uint32_t i = 2; i < nodes; ++i) engine.release(*ask(engine, {named(std::to_string(i))}, 1s));
  holder.go();
  ASSERT_EQ(holder.wait(), Victim::State::stopped);
  constexpr auto timeout = 50ms;
  const Clock::time_point begin = Clock::now();
  EXPECT_FALSE(ask(engine, {named("one more")}, timeout)) << "there was a node left: the test is void";
  EXPECT_LT(Clock::now() - begin, timeout + tolerance);
  holder.resume();
  ASSERT_EQ(holder.wait(), Victim::State::finished);
  EXPECT_TRUE(ask(engine, {named("one more")}, patience));
}

// A waiter that gives up while its stripe is stopped leaves the fast path shut. That must not keep the node for ever.
TEST(Moment, a_node_is_reused_though_who_waited_gave_up_unseen) {  // B12
  constexpr std::size_t many = 60;
  Capacity capacity = Capacity::for_locks(2000, 64);
  capacity.nodes = capacity.idle_nodes = many + 4;
  Stage stage(capacity);
  Engine& engine = stage.engine();
  const auto other = stage.open();
  std::vector<spi::Grant> held;
  for (std::size_t i = 0; i < many; ++i) held.push_back(*ask(*other, {named("held " + std::to_string(i))}, 1s));
  Victim holder(stage, hold_all_stripes, 0, SIGSTOP);
  holder.wait_until_ready();
  std::vector<std::future<std::optional<spi::Grant>>> waiting;
  for (std::size_t i = 0; i < many; ++i) {
    waiting.push_back(
        std::async(std::launch::async, [&, i] { return ask(engine, {named("held " + std::to_string(i))}, 500ms); }));
  }
  wait_for_waiters(*other, many);
  holder.go();
  ASSERT_EQ(holder.wait(), Victim::State::stopped);
  for (auto& wait : waiting) EXPECT_FALSE(wait.get());
  for (const auto& grant : held) other->release(grant);
  holder.resume();
  ASSERT_EQ(holder.wait(), Victim::State::finished);
  for (std::size_t i = 0; i < many / 2; ++i) {
    EXPECT_TRUE(ask(engine, {named("new " + std::to_string(i))}, 0s)) << "a node that nobody uses is kept";
  }
}

}  // namespace
}  // namespace hierlock::stores
