// Waiting: for ever, for a while, not at all, until told to stop (H2).
#include <algorithm>
#include <thread>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Waiting : public Conformance {};

TEST_P(Waiting, a_conflict_waits_by_default_until_the_lock_is_free) {  // H2
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome held = granted(alice.acquire("u1/a1/r1"));
  Pending asked = bob.acquire("u1/a1/r1");
  blocked(asked, "u1/a1/r1");
  alice.release(held);
  EXPECT_GT(granted(asked).fence, held.fence);
}

TEST_P(Waiting, a_timeout_is_neither_early_nor_late) {  // H2
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire("u1/a1/r1"));
  std::vector<std::chrono::nanoseconds> times = {1ms, 25ms, 1us};
  if (can().across_machines) times.push_back(150ms);  // others: in the next case, many times
  for (const std::chrono::nanoseconds wanted : times) {
    const Outcome outcome = refused(bob.acquire("u1/a1/r1", {.timeout = wanted}), ErrorKind::timeout);
    EXPECT_GE(outcome.took, wanted);
    EXPECT_LT(outcome.took, wanted + late_bound);
    EXPECT_TRUE(outcome.retryable);
    EXPECT_NE(outcome.message.find("u1/a1/r1"), std::string::npos) << outcome.message;
    EXPECT_TRUE(nothing_left(bob)) << state();
  }
}

// Users get the median, and few waits may be much worse. A loaded machine makes all sleeps late, so a bare sleep is
// measured beside the waits. A machine that stalls makes all waits of a round late. A wait that misses its own wake-up,
// or counts in coarser steps, is late in each round.
TEST_P(Waiting, each_kind_of_wait_on_one_machine_ends_to_the_ms) {  // H2
  if (can().across_machines) HIERLOCK_NOT_APPLICABLE() << GetParam() << " asks a server, which has tests of its own";
  using std::chrono::nanoseconds;
  constexpr nanoseconds usual = 5ms * slowness, rare = 250ms * slowness;
  const std::vector<std::pair<nanoseconds, int>> waits = {{1ms, 17}, {5ms, 12}, {25ms, 7}, {150ms, 4}};
  constexpr int most_rare = (17 + 12 + 7 + 4) / 20;

  // Each waits for the given time, on a target of its own, and returns how late the wait ended.
  std::map<std::string, std::function<nanoseconds(nanoseconds)>> kinds;
  Party& holder = party("holder");
  const auto late = [&](Pending asked, nanoseconds wanted) {
    (void)asked.result.wait_for(patience);
    const nanoseconds took = refused(asked, ErrorKind::timeout).took;
    EXPECT_GE(took, wanted);
    return took - wanted;
  };
  const auto add = [&](const std::string& kind, const Target& target) {
    granted(holder.acquire(target));
    kinds[kind] = [&, &waiter = party(kind), target](nanoseconds wanted) {
      return late(waiter.acquire(target, {.timeout = wanted}), wanted);
    };
  };
  add("path", "u1/a1/r1");
  if (can().names) add("name", named("n"));
  if (can().slots) add("slot", slots("s", 1));
  if (can().extends) {
    granted(holder.acquire("u2/a1"));
    kinds["extend"] = [&, &waiter = party("extend"),
                       lock = granted(party("extend").acquire("u3"))](nanoseconds wanted) {
      return late(waiter.extend(lock, "u2/a1", {.timeout = wanted}), wanted);
    };
  }
  granted(holder.acquire("u4"));
  kinds["Mutex"] = [&](nanoseconds wanted) {
    Mutex mutex(locker(), "u4");
    const nanoseconds took = tests::time_of([&] { EXPECT_FALSE(mutex.try_lock_for(wanted)); });
    EXPECT_GE(took, wanted);
    return took - wanted;
  };
  if (can().slots) {
    kinds["LockManager"] = [&](nanoseconds wanted) {
      LockManager manager(locker(), "s", 1);
      const std::chrono::duration<double> timeout = wanted;
      const nanoseconds took = tests::time_of(
          [&] { EXPECT_EQ(kind_thrown_by([&] { manager.await_lock({.timeout = timeout}); }), ErrorKind::timeout); });
      EXPECT_GE(took, wanted);
      return took - wanted;
    };
  }
  kinds["cancel"] = [&](nanoseconds wanted) {
    std::stop_source stop;
    Clock::time_point stopped;
    std::thread canceller([&] {
      std::this_thread::sleep_for(wanted);
      stopped = Clock::now();
      stop.request_stop();
    });
    EXPECT_EQ(kind_thrown_by([&] { return locker().acquire("u4", {.cancel = stop.get_token()}); }),
              ErrorKind::cancelled);
    const Clock::time_point ended = Clock::now();
    canceller.join();
    return ended - stopped;
  };

  struct Round {
    std::vector<nanoseconds> medians{};  // of each of `waits`
    int rarely = 0;
  };
  const auto play = [&](const std::function<nanoseconds(nanoseconds)>& wait) {
    Round round;
    for (const auto& [wanted, count] : waits) {
      std::vector<nanoseconds> times;
      for (int i = 0; i < count; ++i) {
        times.push_back(wait(wanted));
        if (times.back() > rare && ++round.rarely > most_rare) return round;  // the rest would take long
      }
      std::nth_element(times.begin(), times.begin() + count / 2, times.end());
      round.medians.push_back(times[static_cast<std::size_t>(count / 2)]);
    }
    return round;
  };
  const auto bare_sleep = [](nanoseconds wanted) {
    return tests::time_of([&] { std::this_thread::sleep_for(wanted); }) - wanted;
  };
  const auto ms = [](nanoseconds time) {
    return std::to_string(std::chrono::ceil<std::chrono::milliseconds>(time).count()) + " ms";
  };
  std::string seen;
  for (int i = 0; i < 3 && !kinds.empty(); ++i) {
    std::map<std::string, std::future<Round>> rounds;
    for (const auto& [kind, wait] : kinds) rounds[kind] = std::async(std::launch::async, play, wait);
    const Round bare = play(bare_sleep);
    for (auto& [kind, end] : rounds) {
      const Round round = end.get();
      std::string wrong;
      if (round.rarely > most_rare) wrong += " " + std::to_string(round.rarely) + " were later than " + ms(rare);
      for (std::size_t k = 0; k < std::min(round.medians.size(), bare.medians.size()); ++k) {
        if (round.medians[k] < usual + 2 * bare.medians[k]) continue;
        wrong += " waits of " + ms(waits[k].first) + " end " + ms(round.medians[k]) + " late, a sleep " +
                 ms(bare.medians[k]) + ";";
      }
      if (wrong.empty() && bare.rarely <= most_rare) kinds.erase(kind);
      seen += "\n" + kind + ":" + wrong;
    }
  }
  EXPECT_TRUE(kinds.empty()) << "in 3 rounds:" << seen;
}

TEST_P(Waiting, a_timed_out_wait_leaves_nothing_behind) {
  Party &alice = party("alice"), &bob = party("bob"), &carol = party("carol");
  const Outcome held = granted(alice.acquire("u1/a1/r1"));
  refused(bob.acquire("u1/a1/r1", {.timeout = 1ms}), ErrorKind::timeout);
  refused(bob.acquire("u1", {.timeout = 1ms}), ErrorKind::timeout);
  EXPECT_TRUE(nothing_left(bob)) << state();
  granted(carol.try_acquire("u1/a1/r2"));
  alice.release(held);
  granted(carol.try_acquire("u1/a1/r1"));
}

TEST_P(Waiting, try_forms_return_no_value_for_busy_and_timeout) {  // H2
  Party& alice = party("alice");
  const Outcome held = granted(alice.acquire("u1/a1"));
  EXPECT_FALSE(locker().try_acquire("u1/a1").has_value());
  EXPECT_FALSE(locker().try_acquire(Target("u1/a1/r1")).has_value());
  EXPECT_FALSE(locker().try_acquire("u1", 2ms).has_value());
  EXPECT_FALSE(locker().try_acquire({"u0", "u1"}).has_value());
  alice.release(held);
  std::optional<Lock> lock = locker().try_acquire("u1/a1");
  if (!can().frees_at_once) eventually([&] { return lock || (lock = locker().try_acquire("u1/a1")); });
  ASSERT_TRUE(lock.has_value());
  EXPECT_TRUE(lock->held());
}

TEST_P(Waiting, a_try_without_a_timeout_does_not_wait) {
  Party &alice = party("alice"), &bob = thread("bob");
  granted(alice.acquire("u1"));
  const Outcome outcome = refused(bob.try_acquire("u1"), ErrorKind::busy);
  EXPECT_LT(outcome.took, late_bound);
  EXPECT_EQ(locker().stats().total().waits, 0u);
}

TEST_P(Waiting, an_acquire_with_zero_timeout_says_busy) {
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire("u1"));
  for (const std::chrono::nanoseconds none : {0ns, -1ns, std::chrono::nanoseconds(-1h)}) {
    const Outcome outcome = refused(bob.acquire("u1", {.timeout = none}), ErrorKind::busy);
    EXPECT_TRUE(outcome.retryable);
    EXPECT_NE(outcome.message.find("u1"), std::string::npos) << outcome.message;
  }
}

TEST_P(Waiting, the_longest_timeout_there_is_waits_for_ever) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome held = granted(alice.acquire("u1"));
  Pending asked = bob.acquire("u1", {.timeout = std::chrono::nanoseconds::max()});
  blocked(asked, "u1");
  alice.release(held);
  granted(asked);
}

TEST_P(Waiting, a_grant_within_the_timeout_is_a_grant) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome held = granted(alice.acquire("u1"));
  Pending asked = bob.try_acquire("u1", patience);
  blocked(asked, "u1");
  alice.release(held);
  EXPECT_GT(granted(asked).fence, held.fence);
}

TEST_P(Waiting, cancelling_ends_the_wait) {
  Party &alice = party("alice"), &bob = thread("bob");
  granted(alice.acquire("u1"));
  std::stop_source stop;
  Pending asked = bob.acquire("u1", {.cancel = stop.get_token()});
  blocked(asked, "u1");
  const auto start = Clock::now();
  stop.request_stop();
  const Outcome outcome = refused(asked, ErrorKind::cancelled);
  EXPECT_LT(Clock::now() - start, late_bound);
  EXPECT_FALSE(outcome.retryable);
  EXPECT_TRUE(nothing_left(bob)) << state();
}

TEST_P(Waiting, cancelling_a_timed_wait_is_cancelled_not_timeout) {
  Party &alice = party("alice"), &bob = thread("bob");
  granted(alice.acquire("u1"));
  std::stop_source stop;
  Pending asked = bob.try_acquire("u1", 1h, {.cancel = stop.get_token()});
  blocked(asked, "u1");
  stop.request_stop();
  refused(asked, ErrorKind::cancelled);
}

TEST_P(Waiting, a_token_cancelled_before_means_no_wait) {
  Party &alice = party("alice"), &bob = thread("bob");
  granted(alice.acquire("u1"));
  std::stop_source stop;
  stop.request_stop();
  const Outcome outcome = refused(bob.acquire("u1", {.cancel = stop.get_token()}), ErrorKind::cancelled);
  EXPECT_LT(outcome.took, late_bound);
  EXPECT_TRUE(nothing_left(bob)) << state();
}

TEST_P(Waiting, a_token_cancelled_later_does_not_touch_a_lock_that_was_granted) {
  Party& alice = thread("alice");
  std::stop_source stop;
  const Outcome held = granted(alice.acquire("u1", {.cancel = stop.get_token()}));
  stop.request_stop();
  EXPECT_TRUE(alice.holds(held));
}

TEST_P(Waiting, one_token_cancels_many_waits) {
  Party& alice = party("alice");
  granted(alice.acquire("u1"));
  std::stop_source stop;
  std::vector<Pending> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back(thread("w" + std::to_string(i)).acquire("u1", {.cancel = stop.get_token()}));
    blocked(all.back(), "u1");
  }
  stop.request_stop();
  for (Pending& pending : all) refused(pending, ErrorKind::cancelled);
  EXPECT_TRUE(eventually([&] { return locker().snapshot().waiters.empty(); })) << state();
}

TEST_P(Waiting, a_grant_that_races_with_its_timeout_is_never_lost) {
  // Whatever the outcome of each round, the next one must be able to take the lock.
  Party &alice = party("alice"), &bob = party("bob");
  for (int round = 0; round < 300; ++round) {
    const Outcome held = granted(alice.acquire("u1"));
    Pending asked = bob.try_acquire("u1", std::chrono::microseconds(round % 60 * 5));
    alice.release(held);
    const Outcome outcome = result(asked);
    if (outcome.granted()) {
      bob.release(outcome);
    } else {
      ASSERT_TRUE(outcome.error == ErrorKind::timeout || outcome.error == ErrorKind::busy) << outcome;
    }
    ASSERT_TRUE(nothing_left()) << state();
  }
}

TEST_P(Waiting, a_grant_that_races_with_its_cancellation_is_never_lost) {
  Party &alice = party("alice"), &bob = thread("bob");
  for (int round = 0; round < 300; ++round) {
    const Outcome held = granted(alice.acquire("u1"));
    std::stop_source stop;
    Pending asked = bob.acquire("u1", {.cancel = stop.get_token()});
    if (round % 2 == 0) blocked(asked, "u1");
    std::thread canceller([&] { stop.request_stop(); });
    alice.release(held);
    canceller.join();
    const Outcome outcome = result(asked);
    if (outcome.granted()) {
      bob.release(outcome);
    } else {
      ASSERT_EQ(outcome.error, ErrorKind::cancelled) << outcome;
    }
    ASSERT_TRUE(nothing_left()) << state();
  }
}

HIERLOCK_ON_EVERY_BACKEND(Waiting);

}  // namespace
}  // namespace hierlock::conformance
