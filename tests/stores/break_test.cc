// Breaking: an operator takes a lock away while its holder, or anybody else, is in the middle of something (B13).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <future>
#include <ostream>
#include <random>
#include <thread>

#include <hierlock/error.h>

#include "hook.h"
#include "stage.h"

namespace hierlock::stores {
namespace {

using engine::Capacity;
using engine::Engine;

// Nodes are reused at every opportunity.
Capacity reusing() {
  Capacity capacity = Capacity::for_locks(2000, 16);
  capacity.idle_nodes = 0;
  return capacity;
}

std::size_t break_lock(Engine& engine, const Target& target) { return engine.break_locks(spi::Plan(target), "a test"); }

// Two names, in the order in which one plan takes them.
std::pair<std::string, std::string> in_order(const std::string& a, const std::string& b) {
  const std::vector<Target> both{Target(a), Target(b)};
  const spi::Plan plan{std::span<const Target>(both)};
  return {std::string(plan.steps().front().segment), std::string(plan.steps().back().segment)};
}

std::optional<spi::Grant> extend_now(Engine& engine, const spi::Grant& lock, const std::vector<Target>& targets) {
  const spi::Plan plan{std::span<const Target>(targets)};
  return engine.extend(lock, {.plan = plan, .no_wait = true});
}

engine::Index node_of(Engine& engine, const Target& target) {
  const auto copy = engine.table().look().copy();
  for (const auto& holder : copy.holders) {
    if (holder.asked && holder.target == target.str()) return holder.node;
  }
  return engine::none;
}

// --- what an extend took and undid ---------------------------------------------------------------------------

TEST(Breaking, gives_back_nothing_that_a_failed_extend_undid) {  // B13
  Engine engine(Capacity::for_locks(1000), Owners::per_handle);
  const auto [first, second] = in_order("a", "b");
  const auto reader = ask(engine, {hierlock::shared(first)}, 1s);
  const auto in_the_way = ask(engine, {Target(second)}, 1s);
  std::atomic<bool> done{false};
  std::atomic<int> broken{0};
  std::thread owner([&] {
    while (!done) {
      const auto lock = ask(engine, {Target("t")}, 1s);
      try {
        for (int i = 0; i < 20; ++i) {
          EXPECT_FALSE(extend_now(engine, *lock, {hierlock::shared(first), hierlock::shared(second)}));
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::lost);
      }
      engine.release(*lock);
    }
  });
  std::thread breaker([&] {
    while (!done) broken += static_cast<int>(break_lock(engine, Target("t")));
  });
  const Clock::time_point begin = Clock::now();
  bool two_hold_it = false;
  while (broken < 20'000 && !two_hold_it && (Clock::now() < begin + 3s || broken == 0) &&
         Clock::now() < begin + patience) {
    two_hold_it = ask(engine, {Target(first)}, 0s).has_value();
  }
  done = true;
  owner.join();
  breaker.join();
  EXPECT_GT(broken, 0) << "never broken: the test is void";
  EXPECT_FALSE(two_hold_it) << "after " << broken << " breaks";
  EXPECT_TRUE(engine.held(*reader) && engine.held(*in_the_way));
  EXPECT_EQ(engine.table().look().check(), "");
}

// --- a node that is reused while a broken lock still names it ---------------------------------------------------

TEST(Breaking, leaves_intentions_that_only_its_own_path_gives_back) {  // B13
  Stage stage(reusing());
  Engine& engine = stage.engine();
  const auto other = stage.open();
  const auto kept = ask(engine, {Target("z/q")}, 1s);
  const auto broken = ask(engine, {Target("a/b")}, 1s);
  ASSERT_TRUE(broken);
  const engine::Index node = node_of(engine, Target("a/b"));
  ASSERT_EQ(break_lock(engine, Target("a/b")), 1u);
  engine.release(*ask(engine, {Target("a/b")}, 1s));
  std::vector<spi::Grant> others;
  for (int i = 0; i < 200; ++i) others.push_back(*ask(engine, {Target("z/" + std::to_string(i))}, 1s));
  const auto copy = engine.table().look().copy();
  ASSERT_TRUE(std::any_of(copy.holders.begin(), copy.holders.end(), [&](const auto& h) { return h.node == node; }))
      << "the node was not reused: the test is void";
  engine.release(*broken);
  EXPECT_EQ(engine.table().look().check(), "");
  for (const auto& lock : others) engine.release(lock);
  EXPECT_FALSE(ask(*other, {Target("z")}, 0s)) << "two hold it";
  EXPECT_TRUE(engine.held(*kept));
  EXPECT_TRUE(ask(*other, {Target("a")}, 0s)) << "its own intention is gone";
}

TEST(Breaking, leaves_a_node_alone_that_has_become_a_slots_name) {  // B13
  for (const bool many : {false, true}) {
    Stage stage(reusing());
    Engine& engine = stage.engine();
    const auto other = stage.open();
    std::vector<Target> targets{Target("a/b")};
    if (many) targets.push_back(Target("a/c"));
    const auto broken = ask(engine, targets, 1s);
    const engine::Index node = node_of(engine, Target("a/b"));
    ASSERT_EQ(break_lock(engine, Target("a/b")), 1u);
    engine.release(*ask(engine, {Target("a/b")}, 1s));
    std::vector<spi::Grant> others;
    for (int i = 0; i < 200; ++i) others.push_back(*ask(engine, {hierlock::slots(std::to_string(i), 1)}, 1s));
    const auto copy = engine.table().look().copy();
    ASSERT_TRUE(std::any_of(copy.holders.begin(), copy.holders.end(), [&](const auto& h) { return h.node == node; }))
        << "the node was not reused: the test is void";
    engine.release(*broken);
    EXPECT_EQ(engine.table().look().check(), "");
    for (int i = 0; i < 200; ++i) EXPECT_FALSE(ask(*other, {hierlock::slots(std::to_string(i), 1)}, 0s)) << i;
    EXPECT_TRUE(ask(*other, {Target("a")}, 0s)) << "its own intention is gone";
  }
}

// --- the wrong lock ---------------------------------------------------------------------------------------------

// A breaker stops after it has looked the target up. Meanwhile its node comes to mean something else.
TEST(Breaking, breaks_no_lock_on_a_later_key_of_the_node) {  // B13
  bool reused = false;
  for (long n = 1;; ++n) {
    SCOPED_TRACE("at store " + std::to_string(n));
    Stage stage(reusing());
    Engine& engine = stage.engine();
    std::vector<spi::Grant> held;
    for (int i = 0; i < 3; ++i) held.push_back(*ask(engine, {hierlock::shared("t")}, 1s));
    const engine::Index node = node_of(engine, Target("t"));
    Victim breaker(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const own = s.open_for_good();
          cue.arm();
          static_cast<void>(break_lock(*own, Target("t")));
        },
        n, SIGSTOP);
    const bool stopped = breaker.wait() == Victim::State::stopped;
    for (const auto& lock : held) engine.release(lock);
    std::vector<spi::Grant> others;
    for (int i = 0; i < 200; ++i) others.push_back(*ask(engine, {hierlock::shared(std::to_string(i))}, 1s));
    const auto copy = engine.table().look().copy();
    reused =
        reused || std::any_of(copy.holders.begin(), copy.holders.end(), [&](const auto& h) { return h.node == node; });
    breaker.resume();
    EXPECT_EQ(breaker.wait(), Victim::State::finished);
    for (const auto& other : others) EXPECT_TRUE(engine.held(other));
    EXPECT_EQ(engine.table().look().check(), "");
    if (!stopped || HasFailure()) break;
  }
  EXPECT_TRUE(reused) << "the node was not reused: the test is void";
}

// A breaker lists the lock before it breaks it. In between, the lock still holds.
TEST(Breaking, leaves_a_lock_whole_wherever_its_breaker_stops) {  // B13
  bool held_once_stopped = false;
  for (long n = 1;; ++n) {
    SCOPED_TRACE("at store " + std::to_string(n));
    Stage stage;
    Engine& engine = stage.engine();
    const auto rival = stage.open();
    const auto lock = ask(engine, {hierlock::shared("s"), Target("t")}, 1s);
    Victim breaker(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const own = s.open_for_good();
          cue.arm();
          static_cast<void>(break_lock(*own, Target("t")));
        },
        n, SIGSTOP);
    const bool stopped = breaker.wait() == Victim::State::stopped;
    const bool held = engine.held(*lock);
    held_once_stopped = held_once_stopped || (stopped && held);
    for (const char* const part : {"s", "t"}) {
      const auto other = ask(*rival, {Target(part)}, 0s);
      EXPECT_FALSE(held && other) << "two hold " << part;
      if (other) rival->release(*other);
    }
    breaker.resume();
    EXPECT_EQ(breaker.wait(), Victim::State::finished);
    EXPECT_FALSE(engine.held(*lock));
    engine.release(*lock);
    EXPECT_EQ(engine.table().look().check(), "");
    if (!stopped || HasFailure()) break;
  }
  EXPECT_TRUE(held_once_stopped) << "never stopped before the break: the test is void";
}

// --- a holder in the middle of something ---------------------------------------------------------------------------

struct Holding {
  std::string name;
  std::vector<Target> targets;
  bool extends = false;  // in vain
};
void PrintTo(const Holding& holding, std::ostream* out) { *out << holding.name; }

class BreakingHolder : public testing::TestWithParam<Holding> {};

// The holder stops at each of its stores, from its acquire to its release. Meanwhile its lock is broken, others take
// the target and let go of it, and its node comes to stand for another key. If the holder has stopped in the middle of
// an extend, the breaker says that the lock is not free yet; it is when the holder has gone on.
TEST_P(BreakingHolder, harms_nobody_wherever_the_holder_stops) {  // B13
  const Holding& holding = GetParam();
  const Target& target = holding.targets.front();
  const auto [first, second] = in_order("a", "b");
  std::size_t broken = 0;
  std::size_t doomed = 0;
  for (long n = 1;; ++n) {
    SCOPED_TRACE("at store " + std::to_string(n));
    Stage stage(reusing());
    Engine& engine = stage.engine();
    const auto other = stage.open();
    const auto reader = ask(engine, {hierlock::shared(first)}, 1s);
    const auto in_the_way = ask(engine, {Target(second)}, 1s);
    const auto below = ask(engine, {Target("z/q")}, 1s);
    engine.release(*ask(engine, holding.targets, 1s));  // then the holder makes no node, and never stops in that
    Victim holder(
        stage,
        [&](Stage& s, const Cue& cue) {
          Engine* const own = s.open_for_good();
          cue.arm();
          const auto lock = ask(*own, holding.targets, 1s);
          try {
            if (holding.extends) extend_now(*own, *lock, {hierlock::shared(first), hierlock::shared(second)});
          } catch (const Error& error) {
            if (error.kind() != ErrorKind::lost) throw;
          }
          own->release(*lock);
          disarm();
          cue.ready();
        },
        n, SIGSTOP);
    const bool stopped = holder.rests_before_ready();
    std::vector<spi::Grant> others;
    bool at_once = false;
    try {
      at_once = stopped && break_lock(engine, target) == 1;
    } catch (const Error& error) {
      ASSERT_TRUE(holding.extends && error.kind() == ErrorKind::unavailable) << error.what();
      EXPECT_FALSE(ask(*other, {target}, 0s)) << "its holder may still change it";
      if (++doomed == 1) {
        EXPECT_THROW(break_lock(*other, target), Error) << "nobody holds it, says the second";
      }
    }
    if (at_once) {
      ++broken;
      const auto taken = ask(*other, {target}, 0s);
      ASSERT_TRUE(taken) << "it is not free";
      other->release(*taken);
      for (int i = 0; i < 50; ++i) {
        others.push_back(*ask(*other, {Target("z/" + std::to_string(i))}, 1s));
        others.push_back(*ask(*other, {hierlock::slots(std::to_string(i), 1)}, 1s));
      }
      EXPECT_EQ(break_lock(engine, target), 0u) << "broken twice";
    }
    if (stopped) {
      holder.resume();
      holder.wait_until_ready();
    }
    EXPECT_FALSE(ask(*other, {Target(first)}, 0s)) << "two hold it";
    for (int i = 0; i < 50 && !others.empty(); ++i)
      EXPECT_FALSE(ask(engine, {hierlock::slots(std::to_string(i), 1)}, 0s));
    EXPECT_EQ(engine.table().look().check(), "");
    for (const auto& lock : others) other->release(lock);
    EXPECT_FALSE(ask(*other, {Target("z")}, 0s)) << "two hold it";
    EXPECT_TRUE(ask(*other, {Target("t")}, 0s)) << "something is left of it";
    EXPECT_TRUE(engine.held(*reader) && engine.held(*in_the_way) && engine.held(*below));
    holder.go();
    EXPECT_EQ(holder.wait(), Victim::State::finished);
    if (!stopped || HasFailure()) break;
  }
  EXPECT_GT(broken, 0u) << "never broken: the test is void";
  EXPECT_EQ(doomed > 0, holding.extends) << "in the middle of an extend";
}

INSTANTIATE_TEST_SUITE_P(
    , BreakingHolder,
    testing::Values(Holding{"of_a_path", {Target("t/u")}}, Holding{"of_a_shared_path", {hierlock::shared("t/u")}},
                    Holding{"of_a_slot", {hierlock::slots("t", 1)}},
                    Holding{"of_many", {Target("t/u"), hierlock::shared("t/v"), hierlock::slots("w", 1)}},
                    Holding{"that_extends", {Target("t/u")}, true}),
    [](const testing::TestParamInfo<Holding>& holding) { return holding.param.name; });

// The holder stops at each store of an extend that nothing keeps from ending well. If its lock is broken meanwhile, the
// extend fails, and what it has added counts for nobody, although the holder has not released it.
TEST(Breaking, in_the_middle_of_an_extend_takes_what_it_adds) {  // B13
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr long stride = 7;  // as in every_store_test.cc
#else
  constexpr long stride = 1;
#endif
  std::size_t doomed = 0;
  for (long n = 1;; n += stride) {
    SCOPED_TRACE("at store " + std::to_string(n));
    Stage stage;
    Engine& engine = stage.engine();
    const std::vector<Target> more{hierlock::shared("v/w"), hierlock::slots("s", 1), Target("x")};
    engine.release(*ask(engine, more, 1s));  // then the holder makes no node
    Victim holder(
        stage,
        [&](Stage& s, const Cue& cue) {
          Engine* const own = s.open_for_good();
          auto lock = ask(*own, {Target("t/u")}, 1s);
          cue.arm();
          bool lost = false;
          try {
            lock = extend_now(*own, *lock, more);
          } catch (const Error& error) {
            if (error.kind() != ErrorKind::lost) throw;
            lost = true;
          }
          disarm();
          if (lost == own->held(*lock)) throw std::logic_error("lost and held");
          cue.ready();
          own->release(*lock);
          _exit(lost ? 0 : 1);
        },
        n, SIGSTOP);
    const bool stopped = holder.rests_before_ready();
    bool broken = false;
    if (stopped) {
      try {
        broken = break_lock(engine, Target("t/u")) == 1;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::unavailable) << error.what();
        broken = true;
        ++doomed;
      }
      holder.resume();
      holder.wait_until_ready();
    }
    if (broken) {
      EXPECT_EQ(engine.table().look().check(), "");
      for (const Target& target : {Target("t/u"), Target("v/w"), hierlock::slots("s", 1), Target("x")}) {
        const auto lock = ask(engine, {target}, 0s);
        ASSERT_TRUE(lock) << target.str() << " is not free";
        engine.release(*lock);
      }
    }
    holder.go();
    EXPECT_EQ(holder.wait() == Victim::State::finished, broken) << "whether it was lost";
    if (broken) {
      EXPECT_EQ(stage.verify(), "");
      for (const char* root : {"t", "v", "x"}) EXPECT_TRUE(ask(engine, {Target(root)}, 0s)) << root;
    }
    if (!stopped || HasFailure()) break;
  }
  EXPECT_GT(doomed, 0u) << "never in the middle of an extend: the test is void";
}

// The holder of a broken lock stops at each store of its release. Whoever shares the target with it is still alone with
// its own share.
TEST(Breaking, is_released_without_harm_wherever_its_holder_stops) {  // B13
  for (const auto& [target, rival] : {std::pair{hierlock::shared("t/u"), Target("t/u")},
                                      std::pair{hierlock::slots("t", 2), hierlock::slots("t", 2)}}) {
    for (long n = 1;; ++n) {
      SCOPED_TRACE(target.str() + " at store " + std::to_string(n));
      Stage stage;
      Engine& engine = stage.engine();
      const auto other = stage.open();
      Victim holder(
          stage,
          [&](Stage& s, const Cue& cue) {
            Engine* const own = s.open_for_good();
            const auto lock = ask(*own, {target}, 1s);
            cue.ready();
            cue.arm();
            own->release(*lock);
            disarm();
          },
          n, SIGSTOP);
      holder.wait_until_ready();
      ASSERT_EQ(break_lock(engine, target), 1u);
      const auto shares = ask(engine, {target}, 1s);
      ASSERT_TRUE(shares);
      holder.go();
      const bool stopped = holder.wait() == Victim::State::stopped;
      std::vector<spi::Grant> others;
      while (const auto lock = ask(*other, {rival}, 0s)) others.push_back(*lock);
      EXPECT_LE(others.size(), target.is_shared() ? 0u : 1u) << "too many hold it";
      if (stopped) holder.resume();
      EXPECT_EQ(holder.wait(), Victim::State::finished);
      while (const auto lock = ask(*other, {rival}, 0s)) others.push_back(*lock);
      EXPECT_EQ(others.size(), target.is_shared() ? 0u : 1u) << "after the release";
      for (const auto& lock : others) other->release(lock);
      EXPECT_TRUE(engine.held(*shares));
      engine.release(*shares);
      EXPECT_EQ(engine.table().look().check(), "");
      if (!stopped || HasFailure()) break;
    }
  }
}

TEST(Breaking, tells_who_waits_when_the_extend_has_ended) {  // I5: it would look by itself after a second
  Engine engine(Capacity::for_locks(100), Owners::per_handle);
  const auto in_the_way = ask(engine, {Target("v")}, 1s);
  for (const Target& target : {Target("t"), hierlock::shared("t")}) {
    const auto lock = ask(engine, {target}, 1s);
    const Target other("v");
    const spi::Plan more(other);
    auto extending = std::async(std::launch::async, [&] { return engine.extend(*lock, {.plan = more}); });
    auto waiter = std::async(std::launch::async, [&] { return ask(engine, {Target("t")}, patience); });
    const Clock::time_point deadline = Clock::now() + patience;
    while (engine.table().look().copy().waiters.size() < 2) ASSERT_LT(Clock::now(), deadline);
    const Clock::time_point begin = Clock::now();
    EXPECT_EQ(break_lock(engine, target), 1u);
    const auto grant = waiter.get();
    EXPECT_LT(Clock::now() - begin, 600ms) << "it was not woken";
    EXPECT_THROW(extending.get(), Error);
    engine.release(*lock);
    engine.release(*grant);
  }
  engine.release(*in_the_way);
  EXPECT_EQ(engine.table().look().check(), "");
}

// --- what it finds --------------------------------------------------------------------------------------------------

TEST(Breaking, finds_nothing_by_what_a_failing_extend_asks_for) {  // B13
  Engine engine(Capacity::for_locks(1000), Owners::per_handle);
  const auto [first, second] = in_order("a", "b");
  const auto in_the_way = ask(engine, {Target(second)}, 1s);
  const auto lock = ask(engine, {Target("t")}, 1s);
  std::atomic<bool> done{false};
  std::atomic<std::size_t> broken{0};
  std::atomic<int> looks{0};
  std::thread breaker([&] {
    for (; !done; ++looks) broken += break_lock(engine, Target(first));
  });
  const Clock::time_point begin = Clock::now();
  try {
    while (Clock::now() < begin + 500ms || looks < 1000) {
      ASSERT_LT(Clock::now(), begin + patience);
      for (int i = 0; i < 100; ++i) EXPECT_FALSE(extend_now(engine, *lock, {Target(first), Target(second)}));
    }
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  done = true;
  breaker.join();
  EXPECT_EQ(broken, 0u) << "the extend failed: the lock was never on " << first;
  EXPECT_TRUE(engine.held(*lock));
  engine.release(*lock);
  engine.release(*in_the_way);
  EXPECT_EQ(engine.table().look().check(), "");
}

TEST(Breaking, finds_a_lock_that_goes_from_hand_to_hand) {  // B13
  Engine engine(Capacity::for_locks(1000), Owners::per_thread);
  const std::array<spi::OwnerId, 2> owners{engine.make_owner("one"), engine.make_owner("two")};
  std::atomic<int> round{0};
  constexpr int rounds = 300;
  std::thread giver([&] {
    for (int i = 1; i <= rounds; ++i) {
      auto lock = ask(engine, {Target("t/u")}, 1s, owners[0]);
      round = i;
      try {
        for (int to = 1;; to ^= 1) lock = engine.give(*lock, owners[static_cast<std::size_t>(to)]);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::lost);
      }
      engine.release(*lock);
    }
  });
  std::size_t missed = 0;
  for (int i = 1; i <= rounds; ++i) {
    while (round < i) std::this_thread::yield();
    while (break_lock(engine, Target("t/u")) == 0) ++missed;
  }
  giver.join();
  EXPECT_EQ(missed, 0u) << "nobody holds it, says the breaker";
  for (const spi::OwnerId owner : owners) engine.drop_owner(owner);
  EXPECT_EQ(engine.table().look().check(), "");
}

// Somebody was killed in the middle of a hand-over, so that every breaker looks twice. Somebody else is stopped in a
// stripe, so that the breaker waits for the latches, and the next holder gets the lock meanwhile.
TEST(Breaking, leaves_the_lock_to_the_next_holder) {  // B13
  for (long n = 20; n <= 30; n += 2) {
    SCOPED_TRACE("stopped at store " + std::to_string(n));
    Stage stage;
    Victim dies(
        stage,
        [](Stage& s, const Cue&) {
          Engine* const engine = s.open_for_good();
          const spi::OwnerId here = engine->make_owner("here");
          const spi::OwnerId there = engine->make_owner("there");
          auto lock = *ask(*engine, {Target("stripes")}, 1s, here);
          arm(1'000'000, SIGKILL);
          lock = engine->give(lock, there);
          const long stores = disarm();
          arm(stores / 2, SIGKILL);
          lock = engine->give(lock, here);
        },
        1, SIGKILL);
    ASSERT_EQ(dies.wait(), Victim::State::killed);
    ASSERT_EQ(stage.verify(), "");
    Victim stops(
        stage,
        [](Stage& s, const Cue& cue) {
          Engine* const engine = s.open_for_good();
          engine->release(*ask(*engine, {Target("zz")}, 1s));
          cue.ready();
          cue.arm();
          const auto grant = ask(*engine, {hierlock::shared("zz")}, patience);
          disarm();
          cue.ready();
          engine->release(*grant);
        },
        n, SIGSTOP);
    stops.wait_until_ready();
    const spi::OwnerId holder = stage.engine().make_owner("holder");
    const spi::Grant first = *ask(stage.engine(), {Target("t")}, 1s, holder);
    std::promise<std::optional<spi::Grant>> granted;
    std::promise<void> end;
    std::thread waiter([&] {
      const auto second = ask(stage.engine(), {Target("t")}, patience);
      granted.set_value(second);
      end.get_future().wait();
      if (second) stage.engine().release(*second);
    });
    const Clock::time_point deadline = Clock::now() + patience;
    while (stage.engine().table().look().copy().waiters.empty() && Clock::now() < deadline) std::this_thread::yield();
    stops.go();
    const bool stopped = stops.rests_before_ready();
    EXPECT_EQ(stage.engine().break_locks(spi::Plan(Target("t")), "a test"), 1u);
    const std::optional<spi::Grant> second = granted.get_future().get();
    ASSERT_TRUE(second);
    EXPECT_TRUE(stage.engine().held(*second)) << "the break took the lock from the next holder";
    if (stopped) {
      stops.resume();
      stops.wait_until_ready();
    }
    stops.go();
    ASSERT_EQ(stops.wait(), Victim::State::finished);
    end.set_value();
    waiter.join();
    stage.engine().release(first);
    stage.engine().drop_owner(holder);
    if (HasFailure()) return;
  }
}

TEST(Breaking, of_a_lock_that_changed_very_often_leaves_its_generation) {
  constexpr std::uint64_t last = engine::record_word(7, engine::RecordState::held) | 0xFFFFFFF0;
  constexpr std::uint64_t next = engine::with_change(last, engine::RecordState::changing);
  EXPECT_EQ(next, engine::record_word(7, engine::RecordState::changing));
}

// --- owners that never let go ---------------------------------------------------------------------------------------

TEST(Breaking, frees_what_its_owner_never_releases) {  // B13
  Stage stage(reusing());
  Engine& holder = stage.engine();
  const auto other = stage.open();
  const std::vector<Target> kinds{Target("t"), hierlock::shared("t"), Target("t/u"), hierlock::shared("t/u"),
                                  hierlock::slots("t", 1)};
  std::vector<spi::Grant> locks;
  for (const Target& kind : kinds) {
    for (int i = 0; i < 3; ++i) {
      locks.push_back(*ask(holder, {kind}, 1s));
      ASSERT_EQ(break_lock(*other, kind), 1u);
      EXPECT_EQ(holder.table().look().check(), "");
      const auto lock = ask(*other, {kind}, 0s);
      ASSERT_TRUE(lock) << kind.str();
      EXPECT_EQ(holder.table().look().check(), "");
      other->release(*lock);
    }
    for (const auto& lock : locks) holder.release(lock);
    locks.clear();
    EXPECT_EQ(holder.table().look().check(), "");
  }
}

TEST(Breaking, says_so_when_too_many_are_broken_and_not_released) {  // B13
  Capacity capacity = Capacity::for_locks(4000, 16);
  Engine engine(capacity, Owners::per_handle);
  std::vector<spi::Grant> locks;
  for (std::uint32_t i = 0; i <= engine::most_broken; ++i) locks.push_back(*ask(engine, {hierlock::shared("t")}, 1s));
  try {
    break_lock(engine, Target("t"));
    ADD_FAILURE() << "more were broken than can be";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::exhausted);
  }
  EXPECT_FALSE(ask(engine, {Target("t")}, 0s)) << "one was not broken";
  EXPECT_EQ(std::count_if(locks.begin(), locks.end(), [&](const auto& lock) { return engine.held(lock); }), 1);
  engine.release(locks.front());
  EXPECT_EQ(break_lock(engine, Target("t")), 1u) << "there is room again";
  EXPECT_TRUE(ask(engine, {Target("t")}, 0s));
  for (const auto& lock : locks) engine.release(lock);
  EXPECT_EQ(engine.table().look().check(), "");
}

// --- everything at once -----------------------------------------------------------------------------------------

// Two whose locks are broken take, extend, fail, hand over and release; two whose locks are not share the same nodes
// with them. The witness is a plain counter a node, written by the latter alone: it loses an update if a broken lock
// ever takes somebody else's hold with it. At the end everything is free: nothing is counted for ever.
TEST(Breaking, changes_nobody_elses_lock_whatever_its_holder_does) {  // B13
  constexpr int nodes = 3;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int enough = 300;
#else
  constexpr int enough = 4000;
#endif
  Engine engine(reusing(), Owners::per_thread);
  const auto name = [](std::uint64_t i) { return "p" + std::to_string(i % 2) + "/n" + std::to_string(i % nodes); };
  std::atomic<bool> done{false};
  std::atomic<int> broken{0};
  struct alignas(64) Leaf {
    std::int64_t counter = 0;
    std::atomic<std::int64_t> expected{0};
  };
  std::array<std::array<Leaf, nodes>, 2> witness;
  std::vector<std::thread> crew;
  const auto targets = [&](std::uint64_t r) {
    std::vector<Target> some{r % 4 == 0 ? hierlock::shared("t") : r % 4 == 1 ? hierlock::slots("t", 2) : Target("t/u")};
    if ((r >> 8) % 2 == 0) some.push_back(hierlock::shared(name(r >> 12)));
    return some;
  };
  for (int t = 0; t < 2; ++t) {
    crew.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<unsigned>(t));
      const spi::OwnerId here = engine.make_owner("here" + std::to_string(t));
      const spi::OwnerId there = engine.make_owner("there" + std::to_string(t));
      while (!done) {
        const std::uint64_t r = random();
        auto lock = ask(engine, targets(r), 2ms, here);
        if (!lock) continue;
        try {
          for (int i = 0; i < 3; ++i) {
            const std::uint64_t q = random();
            const Target more = (q >> 8) % 2 == 0 ? Target(name(q >> 16)) : hierlock::shared(name(q >> 16));
            if (q % 3 == 0) {
              lock = engine.give(*lock, i % 2 == 0 ? there : here);
            } else if (const auto extended = extend_now(engine, *lock, {more, hierlock::shared(name(q >> 24))})) {
              lock = extended;
            }
          }
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::lost) << error.what();
        }
        engine.release(*lock);
      }
      engine.drop_owner(here);
      engine.drop_owner(there);
    });
  }
  for (int t = 0; t < 2; ++t) {
    crew.emplace_back([&, t] {
      std::mt19937_64 random(100u + static_cast<unsigned>(t));
      while (!done) {
        const std::uint64_t r = random();
        const auto lock = ask(engine, {Target(name(r))}, 100ms);
        if (!lock) continue;
        Leaf& leaf = witness[r % 2][r % nodes];
        ++leaf.counter;
        leaf.expected.fetch_add(1, std::memory_order_relaxed);
        EXPECT_TRUE(engine.held(*lock));
        engine.release(*lock);
      }
    });
  }
  crew.emplace_back([&] {
    while (!done) {
      for (const Target& target : {Target("t"), Target("t/u"), hierlock::slots("t", 2)}) {
        broken += static_cast<int>(break_lock(engine, target));
      }
    }
  });
  const Clock::time_point begin = Clock::now();
  while (broken < enough && (Clock::now() < begin + 3s || broken == 0) && Clock::now() < begin + patience &&
         !testing::Test::HasFailure()) {
    std::this_thread::sleep_for(1ms);
  }
  done = true;
  for (auto& thread : crew) thread.join();
  EXPECT_GT(broken, 0);
  for (const auto& under : witness) {
    for (const Leaf& leaf : under) EXPECT_EQ(leaf.counter, leaf.expected.load());
  }
  EXPECT_TRUE(engine.table().look().nothing_held());
  EXPECT_EQ(engine.table().look().check(), "");
  for (const char* const all : {"p0", "p1", "t"}) EXPECT_TRUE(ask(engine, {Target(all)}, 0s)) << all;
}

}  // namespace
}  // namespace hierlock::stores
