// LockManager: a name with a number of slots, and the exact sequence of its polling (M1 to M4, M7).
#include <cmath>
#include <limits>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

using Seconds = std::chrono::duration<double>;

// A clock that only moves when somebody sleeps, and randomness that is read from a list.
struct Fake {
  double now = 1000.0;
  std::vector<double> sleeps{};
  std::vector<double> jitter{};  // the last one is used from then on; none: 1
  std::vector<std::pair<double, double>> drawn{};
  std::function<void(std::size_t)> on_sleep{};  // with the number of sleeps so far

  PollingEnvironment environment(Polling polling = Polling::always) {
    return {.now = [this] { return Seconds(now); },
            .sleep =
                [this](Seconds pause) {
                  sleeps.push_back(pause.count());
                  now += pause.count();
                  if (on_sleep) on_sleep(sleeps.size());
                },
            .uniform =
                [this](double low, double high) {
                  drawn.emplace_back(low, high);
                  if (jitter.empty()) return 1.0;
                  return jitter[std::min(drawn.size(), jitter.size()) - 1];
                },
            .polling = polling};
  }
};

class LockManagers : public ConformanceWith<&Capabilities::slots> {
 protected:
  template <class Work>
  static std::optional<ErrorKind> thrown(Work work) {
    return kind_thrown_by([&] {
      work();
      return 0;
    });
  }

  // Somebody else's slot.
  Outcome occupy(const std::string& name, std::uint32_t count, const std::string& who = "holder") {
    return granted(thread(who).acquire(slots(name, count)));
  }
};

TEST_P(LockManagers, at_most_so_many_hold_at_once) {  // M1
  LockManager manager(locker(), "import", 2);
  const Lock first = manager.lock({.timeout = Seconds(0)});
  const Lock second = elsewhere([&] { return manager.lock({.timeout = Seconds(0)}); });
  EXPECT_EQ(elsewhere([&] { return thrown([&] { manager.await_lock({.timeout = Seconds(0)}); }); }),
            ErrorKind::timeout);
}

TEST_P(LockManagers, one_is_a_mutex) {  // M1
  LockManager manager(locker(), "token-refresh", 1);
  constexpr int threads = 6, rounds = 200;
  int counter = 0;  // guarded by the lock
  std::vector<std::future<void>> workers;
  for (int worker = 0; worker < threads; ++worker) {
    workers.push_back(std::async(std::launch::async, [&] {
      for (int round = 0; round < rounds; ++round) {
        const Lock guard = manager.lock();
        ++counter;
      }
    }));
  }
  for (std::future<void>& worker : workers) worker.get();
  EXPECT_EQ(counter, threads * rounds);
}

TEST_P(LockManagers, the_defaults_are_those_of_the_seed) {  // M2
  const AwaitOptions defaults;
  EXPECT_EQ(defaults.timeout, Seconds(600));
  EXPECT_EQ(defaults.initial_delay, Seconds(1));
  EXPECT_EQ(defaults.max_delay, Seconds(30));
}

TEST_P(LockManagers, a_free_slot_is_taken_without_a_look_at_the_backoff) {  // M2
  Fake fake;
  LockManager manager(locker(), "s", 1, fake.environment());
  manager.await_lock();
  EXPECT_TRUE(fake.sleeps.empty());
  EXPECT_TRUE(fake.drawn.empty());
  EXPECT_TRUE(manager.release_lock());
}

TEST_P(LockManagers, the_pauses_grow_by_half_up_to_the_longest) {  // M4
  occupy("s", 1);
  Fake fake;
  LockManager manager(locker(), "s", 1, fake.environment());
  EXPECT_EQ(thrown([&] { manager.await_lock(); }), ErrorKind::timeout);
  const std::vector<double> first = {1.0, 1.5, 2.25, 3.375, 5.0625, 7.59375, 11.390625, 17.0859375, 25.62890625, 30.0};
  ASSERT_GE(fake.sleeps.size(), first.size());
  for (std::size_t i = 0; i < fake.sleeps.size(); ++i) {
    EXPECT_DOUBLE_EQ(fake.sleeps[i], i < first.size() ? first[i] : 30.0) << i;
  }
  // The first nine pauses are 74.88671875 s; then 30 s each until 600 s have passed.
  EXPECT_EQ(fake.sleeps.size(), 9u + 18u);
  EXPECT_DOUBLE_EQ(fake.now, 1000.0 + 74.88671875 + 18 * 30.0);
}

TEST_P(LockManagers, the_jitter_is_drawn_for_each_pause_and_cut_at_the_longest) {  // M4
  occupy("s", 1);
  Fake fake;
  fake.jitter = {0.5, 1.5, 0.75, 1.25, 1.5};
  LockManager manager(locker(), "s", 1, fake.environment());
  EXPECT_EQ(thrown([&] {
              manager.await_lock({.timeout = Seconds(17), .initial_delay = Seconds(2), .max_delay = Seconds(5)});
            }),
            ErrorKind::timeout);
  // Delays 2, 3, 4.5, 5, 5; each times its jitter, at most 5.
  const std::vector<double> expected = {1.0, 4.5, 3.375, 5.0, 5.0};
  EXPECT_EQ(fake.sleeps, expected);
  ASSERT_EQ(fake.drawn.size(), expected.size());
  for (const auto& [low, high] : fake.drawn) {
    EXPECT_EQ(low, 0.5);
    EXPECT_EQ(high, 1.5);
  }
}

TEST_P(LockManagers, it_tries_again_after_each_pause) {  // M2
  const Outcome held = occupy("s", 1);
  Fake fake;
  fake.on_sleep = [&](std::size_t sleeps) {
    if (sleeps == 3) thread("holder").release(held);
  };
  LockManager manager(locker(), "s", 1, fake.environment());
  manager.await_lock();
  EXPECT_EQ(fake.sleeps, (std::vector<double>{1.0, 1.5, 2.25}));
  EXPECT_FALSE(elsewhere([&] { return locker().try_acquire(slots("s", 1)).has_value(); }));
  EXPECT_TRUE(manager.release_lock());
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(LockManagers, a_slot_that_comes_free_in_the_last_pause_is_taken_though_the_timeout_has_passed) {  // M2
  const Outcome held = occupy("s", 1);
  Fake fake;
  fake.on_sleep = [&](std::size_t sleeps) {
    if (sleeps == 2) thread("holder").release(held);
  };
  LockManager manager(locker(), "s", 1, fake.environment());
  manager.await_lock({.timeout = Seconds(2)});  // passed after 1 + 1.5 s; but first it tries
  EXPECT_EQ(fake.sleeps, (std::vector<double>{1.0, 1.5}));
  EXPECT_TRUE(manager.release_lock());
}

TEST_P(LockManagers, it_tries_at_least_once_whatever_the_timeout) {  // M2
  for (const Polling polling : {Polling::always, Polling::where_needed}) {
    Fake fake;
    LockManager manager(locker(), "s", 1, fake.environment(polling));
    manager.await_lock({.timeout = Seconds(0)});
    EXPECT_TRUE(manager.release_lock());
    const Outcome held = occupy("s", 1);
    EXPECT_EQ(thrown([&] { manager.await_lock({.timeout = Seconds(0)}); }), ErrorKind::timeout);
    EXPECT_TRUE(fake.sleeps.empty());
    thread("holder").release(held);
  }
}

TEST_P(LockManagers, the_timeout_names_the_lock_and_how_long_it_waited) {  // M2
  occupy("import", 1);
  Fake fake;
  LockManager manager(locker(), "import", 1, fake.environment());
  const std::string message = message_of([&] {
    manager.await_lock({.timeout = Seconds(3)});
    return 0;
  });
  EXPECT_NE(message.find("import"), std::string::npos) << message;
  EXPECT_NE(message.find("4.75 s"), std::string::npos) << "1 + 1.5 + 2.25: " << message;
  LockManager queued(locker(), "import", 1);
  const std::string other = message_of([&] {
    queued.await_lock({.timeout = Seconds(0.005)});
    return 0;
  });
  EXPECT_NE(other.find("import"), std::string::npos) << other;
  EXPECT_NE(other.find(" s"), std::string::npos) << other;
}

TEST_P(LockManagers, a_store_that_wakes_its_waiters_is_not_polled) {  // M7
  HIERLOCK_NEEDS(wakes_waiters);
  const Outcome held = occupy("s", 1);
  Fake fake;
  LockManager manager(locker(), "s", 1, fake.environment(Polling::where_needed));
  std::future<void> waiter = std::async(std::launch::async, [&] {
    manager.await_lock();
    EXPECT_TRUE(manager.release_lock());
  });
  EXPECT_TRUE(eventually([&] { return locker().snapshot().anybody_waits(); })) << "it stands in the store's queue";
  thread("holder").release(held);
  waiter.get();
  EXPECT_TRUE(fake.sleeps.empty());
}

TEST_P(LockManagers, a_queued_wait_is_neither_early_nor_late) {  // M2
  occupy("s", 1);
  LockManager manager(locker(), "s", 1);
  const auto start = Clock::now();
  EXPECT_EQ(thrown([&] { manager.await_lock({.timeout = Seconds(0.02)}); }), ErrorKind::timeout);
  EXPECT_GE(Clock::now() - start, 20ms);
  EXPECT_LT(Clock::now() - start, 20ms + late_bound + (can().wakes_waiters ? 0s : 2s));
}

TEST_P(LockManagers, release_gives_back_what_this_thread_took_last) {  // M3
  LockManager manager(locker(), "s", 3);
  manager.await_lock();
  manager.await_lock();
  EXPECT_TRUE(manager.release_lock());
  EXPECT_TRUE(manager.release_lock(true));
  EXPECT_FALSE(manager.release_lock());
  EXPECT_EQ(thrown([&] { manager.release_lock(true); }), ErrorKind::lost);
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(LockManagers, only_the_thread_that_took_a_slot_gives_it_back) {  // M7
  LockManager manager(locker(), "s", 1);
  manager.await_lock();
  elsewhere([&] {
    EXPECT_FALSE(manager.release_lock());
    EXPECT_EQ(thrown([&] { manager.release_lock(true); }), ErrorKind::lost);
  });
  EXPECT_FALSE(elsewhere([&] { return locker().try_acquire(slots("s", 1)).has_value(); }));
  EXPECT_TRUE(manager.release_lock());
}

TEST_P(LockManagers, a_failed_wait_releases_nobodys_slot) {  // M7
  for (const Polling polling : {Polling::always, Polling::where_needed}) {
    Fake fake;
    LockManager manager(locker(), "s", 1, fake.environment(polling));
    manager.await_lock();
    elsewhere([&] {
      EXPECT_EQ(thrown([&] { manager.await_lock({.timeout = Seconds(0.001)}); }), ErrorKind::timeout);
      EXPECT_FALSE(manager.release_lock());
      EXPECT_EQ(thrown([&] { (void)manager.lock({.timeout = Seconds(0.001)}); }), ErrorKind::timeout);
    });
    EXPECT_FALSE(elsewhere([&] { return locker().try_acquire(slots("s", 1)).has_value(); }));
    EXPECT_TRUE(manager.release_lock());
    EXPECT_TRUE(nothing_left()) << state();
  }
}

TEST_P(LockManagers, the_scoped_lock_releases_on_every_way_out) {  // M3
  LockManager manager(locker(), "s", 1);
  try {
    const Lock guard = manager.lock();
    EXPECT_GT(guard.fence(), 0);
    throw std::runtime_error("in the critical section");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(nothing_left()) << state();
  EXPECT_FALSE(manager.release_lock()) << "a scoped slot is not among those of await_lock";
}

TEST_P(LockManagers, destroying_it_gives_back_its_slots) {
  {
    LockManager manager(locker(), "s", 2);
    manager.await_lock();
    elsewhere([&] { manager.await_lock(); });
  }
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(LockManagers, two_that_disagree_are_told_both_numbers) {  // M7
  for (const Polling polling : {Polling::always, Polling::where_needed}) {
    Fake fake;
    LockManager four(locker(), "s", 4), seventeen(locker(), "s", 17, fake.environment(polling));
    four.await_lock();
    EXPECT_EQ(thrown([&] { seventeen.await_lock(); }), ErrorKind::incompatible);
    const std::string message = message_of([&] { return seventeen.lock(); });
    EXPECT_NE(message.find("4"), std::string::npos) << message;
    EXPECT_NE(message.find("17"), std::string::npos) << message;
    EXPECT_TRUE(fake.sleeps.empty());
    EXPECT_TRUE(four.release_lock());
  }
}

TEST_P(LockManagers, extreme_times_are_fine_and_nonsense_is_refused) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nonsense = std::numeric_limits<double>::quiet_NaN();
  for (const Polling polling : {Polling::always, Polling::where_needed}) {
    Fake fake;
    LockManager manager(locker(), "s", 1, fake.environment(polling));
    for (const double timeout : {infinity, 1e300, 1e18, 1e-300, 0.0, std::numeric_limits<double>::max()}) {
      manager.await_lock({.timeout = Seconds(timeout)});
      EXPECT_TRUE(manager.release_lock());
    }
    for (const double bad : {nonsense, -1.0, -infinity, -1e-300}) {
      EXPECT_EQ(thrown([&] { manager.await_lock({.timeout = Seconds(bad)}); }), ErrorKind::invalid_argument) << bad;
      EXPECT_EQ(thrown([&] { manager.await_lock({.initial_delay = Seconds(bad)}); }), ErrorKind::invalid_argument);
      EXPECT_EQ(thrown([&] { manager.await_lock({.max_delay = Seconds(bad)}); }), ErrorKind::invalid_argument);
    }
    EXPECT_FALSE(manager.release_lock());
  }
}

TEST_P(LockManagers, an_endless_timeout_ends_with_the_grant) {
  const Outcome held = occupy("s", 1);
  LockManager manager(locker(), "s", 1);
  std::future<void> waiter = std::async(
      std::launch::async, [&] { manager.await_lock({.timeout = Seconds(std::numeric_limits<double>::infinity())}); });
  if (can().wakes_waiters) {
    EXPECT_TRUE(eventually([&] { return locker().snapshot().anybody_waits(); }));
  }
  thread("holder").release(held);
  waiter.get();
}

TEST_P(LockManagers, a_name_must_not_be_empty_and_the_number_not_zero) {
  EXPECT_EQ(thrown([&] { LockManager(locker(), "", 1); }), ErrorKind::invalid_argument);
  EXPECT_EQ(thrown([&] { LockManager(locker(), "s", 0); }), ErrorKind::invalid_argument);
}

HIERLOCK_ON_EVERY_BACKEND(LockManagers);

}  // namespace
}  // namespace hierlock::conformance
