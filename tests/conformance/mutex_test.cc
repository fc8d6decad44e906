// Mutex: a target in the shape of the standard's mutexes (B9).
#include <concepts>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <shared_mutex>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

// The named requirements of the standard, as far as a compiler can see them.
template <class M>
concept BasicLockable = requires(M m) {
  m.lock();
  m.unlock();
};
template <class M>
concept Lockable = BasicLockable<M> && requires(M m) {
  { m.try_lock() } -> std::same_as<bool>;
};
template <class M>
concept TimedLockable = Lockable<M> && requires(M m) {
  { m.try_lock_for(std::chrono::milliseconds(1)) } -> std::same_as<bool>;
  { m.try_lock_for(std::chrono::duration<float>(1)) } -> std::same_as<bool>;
  { m.try_lock_until(std::chrono::steady_clock::now()) } -> std::same_as<bool>;
  { m.try_lock_until(std::chrono::system_clock::now()) } -> std::same_as<bool>;
};
template <class M>
concept SharedLockable = requires(M m) {
  m.lock_shared();
  m.unlock_shared();
  { m.try_lock_shared() } -> std::same_as<bool>;
};
template <class M>
concept SharedTimedLockable = SharedLockable<M> && requires(M m) {
  { m.try_lock_shared_for(std::chrono::milliseconds(1)) } -> std::same_as<bool>;
  { m.try_lock_shared_until(std::chrono::steady_clock::now()) } -> std::same_as<bool>;
};
static_assert(TimedLockable<Mutex> && SharedTimedLockable<Mutex>);
static_assert(TimedLockable<std::shared_timed_mutex> && SharedTimedLockable<std::shared_timed_mutex>,
              "the concepts ask for no more than the standard");
static_assert(noexcept(std::declval<Mutex&>().unlock()) && noexcept(std::declval<Mutex&>().unlock_shared()));
static_assert(!std::copy_constructible<Mutex> && !std::move_constructible<Mutex>);

class Mutexes : public Conformance {
 protected:
  // The deepest of three levels: shared there on every store.
  const Target target_ = "u1/a1/r1";
};

TEST_P(Mutexes, unique_lock_excludes) {
  Mutex mutex(locker(), target_);
  {
    const std::unique_lock guard(mutex);
    EXPECT_FALSE(elsewhere([&] { return mutex.try_lock(); }));
    EXPECT_FALSE(elsewhere([&] { return locker().try_acquire("u1/a1").has_value(); }));
  }
  const auto is_free = [&] {
    return elsewhere([&] {
      const std::unique_lock guard(mutex, std::try_to_lock);
      return guard.owns_lock();
    });
  };
  EXPECT_TRUE(can().frees_at_once ? is_free() : eventually(is_free)) << state();
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Mutexes, two_mutexes_of_one_target_exclude_each_other) {
  Mutex one(locker(), target_), other(locker(), target_);
  const std::unique_lock guard(one);
  EXPECT_FALSE(elsewhere([&] { return other.try_lock(); }));
}

TEST_P(Mutexes, shared_locks_share_and_exclude_writers) {
  Mutex mutex(locker(), target_, Mutex::Sharing::required);
  std::shared_lock first(mutex);
  EXPECT_TRUE(elsewhere([&] {
    const std::shared_lock second(mutex, std::try_to_lock);
    return second.owns_lock();
  }));
  EXPECT_FALSE(elsewhere([&] { return mutex.try_lock(); }));
  first.unlock();
  const std::unique_lock writer(mutex);
  EXPECT_FALSE(elsewhere([&] { return mutex.try_lock_shared(); }));
}

TEST_P(Mutexes, sharing_is_refused_where_the_store_cannot) {
  for (const Target& target : std::vector<Target>{"u1", apart("n")}) {
    const bool possible = target.space() == Space::name ? can().shared_names : can().shared_inner;
    const std::optional<ErrorKind> thrown =
        kind_thrown_by([&] { return Mutex(locker(), target, Mutex::Sharing::required).try_lock(); });
    EXPECT_EQ(thrown, possible ? std::nullopt : std::optional(ErrorKind::unsupported)) << target.str();
    Mutex mutex(locker(), target);
    const std::optional<ErrorKind> later = kind_thrown_by([&] { return mutex.try_lock_shared(); });
    EXPECT_EQ(later, possible ? std::nullopt : std::optional(ErrorKind::unsupported)) << target.str();
    mutex.unlock_shared();
  }
}

TEST_P(Mutexes, scoped_lock_takes_three_in_any_order_without_deadlock) {
  Mutex m1(locker(), "u1"), m2(locker(), "u2"), m3(locker(), apart("n"));
  constexpr int rounds = 300;
  int counter = 0;  // guarded by all three
  const auto work = [&](Mutex& a, Mutex& b, Mutex& c) {
    for (int round = 0; round < rounds; ++round) {
      const std::scoped_lock guard(a, b, c);
      ++counter;
    }
  };
  std::future<void> one = std::async(std::launch::async, [&] { work(m1, m2, m3); });
  std::future<void> two = std::async(std::launch::async, [&] { work(m3, m2, m1); });
  one.get();
  two.get();
  EXPECT_EQ(counter, 2 * rounds);
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Mutexes, a_counter_under_one_mutex_loses_nothing) {
  Mutex mutex(locker(), target_);
  constexpr int threads = 6, rounds = 400;
  int counter = 0;  // guarded by mutex
  std::vector<std::future<void>> workers;
  for (int worker = 0; worker < threads; ++worker) {
    workers.push_back(std::async(std::launch::async, [&] {
      for (int round = 0; round < rounds; ++round) {
        const std::scoped_lock guard(mutex);
        ++counter;
      }
    }));
  }
  for (std::future<void>& worker : workers) worker.get();
  EXPECT_EQ(counter, threads * rounds);
}

TEST_P(Mutexes, a_condition_variable_waits_with_it) {
  Mutex mutex(locker(), target_);
  std::condition_variable_any changed;
  bool ready = false;  // guarded by mutex
  std::future<bool> waiter = std::async(std::launch::async, [&] {
    std::unique_lock guard(mutex);
    return changed.wait_for(guard, patience, [&] { return ready; });
  });
  {
    const std::scoped_lock guard(mutex);
    ready = true;
  }
  changed.notify_all();
  EXPECT_TRUE(waiter.get());
}

TEST_P(Mutexes, timed_tries_end_in_time) {
  Mutex mutex(locker(), target_);
  const std::unique_lock guard(mutex);
  elsewhere([&] {
    const auto start = Clock::now();
    EXPECT_FALSE(mutex.try_lock_for(3ms));
    EXPECT_GE(Clock::now() - start, 3ms);
    EXPECT_LT(Clock::now() - start, 3ms + late_bound);
    const auto deadline = Clock::now() + 3ms;
    EXPECT_FALSE(mutex.try_lock_until(deadline));
    EXPECT_GE(Clock::now(), deadline);
    EXPECT_FALSE(mutex.try_lock_shared_for(1ms));
    EXPECT_FALSE(mutex.try_lock_shared_until(Clock::now() + 1ms));
    EXPECT_FALSE(mutex.try_lock_until(std::chrono::system_clock::now() + 1ms));
  });
}

TEST_P(Mutexes, extreme_durations_are_fine) {
  Mutex mutex(locker(), target_);
  const auto both_ways = [&](auto take) {
    ASSERT_TRUE(take());
    mutex.unlock();
  };
  both_ways([&] { return mutex.try_lock_for(std::chrono::hours::max()); });
  both_ways([&] { return mutex.try_lock_for(std::chrono::nanoseconds::max()); });
  both_ways([&] { return mutex.try_lock_for(std::chrono::duration<double>::max()); });
  both_ways([&] { return mutex.try_lock_for(std::chrono::hours::min()); });
  both_ways(
      [&] { return mutex.try_lock_for(std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN())); });
  both_ways([&] { return mutex.try_lock_until(Clock::time_point::max()); });
  both_ways([&] { return mutex.try_lock_until(Clock::time_point::min()); });
  both_ways([&] { return mutex.try_lock_until(std::chrono::system_clock::time_point::max()); });
  const std::unique_lock guard(mutex);
  EXPECT_FALSE(elsewhere([&] { return mutex.try_lock_for(std::chrono::hours::min()); }));
  EXPECT_FALSE(elsewhere([&] { return mutex.try_lock_until(Clock::time_point::min()); }));
}

// Two of which one excludes the other: std::lock tries them in turns, and must not do so for ever.
TEST_P(Mutexes, a_scoped_lock_on_an_account_and_its_user_is_an_error_and_not_a_hang) {
  Mutex user(locker(), "u1"), account(locker(), "u1/a1"), again(locker(), "u1");
  EXPECT_EQ(kind_thrown_by([&] {
              std::scoped_lock both(user, account);
              return 0;
            }),
            ErrorKind::deadlock);
  EXPECT_EQ(kind_thrown_by([&] {
              std::scoped_lock both(user, again);
              return 0;
            }),
            ErrorKind::deadlock);
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Mutexes, locking_twice_is_an_error_and_not_a_hang) {
  for (const auto owners : {hierlock::Owners::per_thread, hierlock::Owners::per_handle}) {
    Locker own = table().open({.owners = owners});
    Mutex mutex(own, target_);
    mutex.lock();
    const auto again = [](auto work) {
      return kind_thrown_by([&] {
        work();
        return 0;
      });
    };
    EXPECT_EQ(again([&] { mutex.lock(); }), ErrorKind::deadlock);
    EXPECT_EQ(again([&] { mutex.lock_shared(); }), ErrorKind::deadlock);
    EXPECT_EQ(again([&] { (void)mutex.try_lock_for(1h); }), ErrorKind::deadlock);
    EXPECT_EQ(again([&] { (void)mutex.try_lock(); }), ErrorKind::deadlock);
    EXPECT_EQ(again([&] { (void)mutex.try_lock_shared(); }), ErrorKind::deadlock);
    mutex.unlock();
    mutex.lock_shared();
    mutex.lock_shared();
    EXPECT_EQ(again([&] { mutex.lock(); }), ErrorKind::deadlock);
    EXPECT_EQ(again([&] { (void)mutex.try_lock(); }), ErrorKind::deadlock);
    mutex.unlock_shared();
    EXPECT_FALSE(elsewhere([&] { return mutex.try_lock(); })) << "shared twice, unlocked once";
    mutex.unlock_shared();
    const auto locks_again = [&] { return mutex.try_lock(); };
    EXPECT_TRUE(can().frees_at_once ? locks_again() : eventually(locks_again)) << state();
    mutex.unlock();
    const auto nobody_holds = [&] { return own.snapshot().holders.empty(); };
    EXPECT_TRUE(table().forgets_at_once() ? nobody_holds() : eventually(nobody_holds)) << state();
  }
}

TEST_P(Mutexes, only_the_thread_that_locked_unlocks) {
  Mutex mutex(locker(), target_);
  mutex.unlock();
  mutex.unlock_shared();
  mutex.lock();
  elsewhere([&] {
    mutex.unlock();
    mutex.unlock_shared();
  });
  EXPECT_FALSE(elsewhere([&] { return mutex.try_lock(); }));
  EXPECT_GT(mutex.fence(), 0);
  mutex.unlock();
  mutex.unlock();
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Mutexes, the_fence_is_that_of_the_exclusive_lock_and_rises) {
  Mutex mutex(locker(), target_);
  EXPECT_EQ(kind_thrown_by([&] { return mutex.fence(); }), ErrorKind::lost);
  std::int64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    const std::scoped_lock guard(mutex);
    EXPECT_GT(mutex.fence(), last);
    last = mutex.fence();
    EXPECT_EQ(elsewhere([&] { return kind_thrown_by([&] { return mutex.fence(); }); }), ErrorKind::lost);
  }
  const std::shared_lock guard(mutex);
  EXPECT_EQ(kind_thrown_by([&] { return mutex.fence(); }), ErrorKind::lost);
}

TEST_P(Mutexes, destroying_it_releases_what_is_still_locked) {
  {
    Mutex mutex(locker(), target_);
    mutex.lock();
  }
  {
    Mutex mutex(locker(), target_);
    mutex.lock_shared();
    elsewhere([&] { mutex.lock_shared(); });
  }
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Mutexes, slots_and_shared_targets_make_no_mutex) {
  EXPECT_EQ(kind_thrown_by([&] { return Mutex(locker(), slots("s", 1)).try_lock(); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown_by([&] { return Mutex(locker(), shared("u1")).try_lock(); }), ErrorKind::invalid_argument);
}

HIERLOCK_ON_EVERY_BACKEND(Mutexes);

}  // namespace
}  // namespace hierlock::conformance
