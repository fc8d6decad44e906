// Handles: what a Lock promises however it is treated (B6).
#include <string>
#include <thread>
#include <type_traits>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Handles : public Conformance {};

static_assert(std::is_nothrow_move_constructible_v<Lock> && std::is_nothrow_move_assignable_v<Lock>);
static_assert(std::is_nothrow_destructible_v<Lock> && std::is_nothrow_destructible_v<Locker>);
static_assert(std::is_nothrow_default_constructible_v<Lock>);
static_assert(noexcept(std::declval<Lock&>().release()));
static_assert(!std::is_copy_constructible_v<Lock> && !std::is_copy_constructible_v<Locker>);
static_assert(!std::is_copy_constructible_v<Owner> && std::is_nothrow_move_constructible_v<Owner>);

void expect_nothing_in(Lock& lock) {
  EXPECT_FALSE(lock.held());
  EXPECT_FALSE(static_cast<bool>(lock));
  EXPECT_EQ(kind_thrown_by([&] { return lock.fence(); }), ErrorKind::lost);
  lock.release();
  EXPECT_FALSE(lock.held());
}

TEST_P(Handles, a_lock_is_held_until_it_goes_out_of_scope) {
  Party& bob = party("bob");
  {
    const Lock lock = locker().acquire("u1");
    EXPECT_TRUE(lock.held());
    EXPECT_TRUE(static_cast<bool>(lock));
    refused(bob.try_acquire("u1"), ErrorKind::busy);
  }
  granted(bob.try_acquire("u1"));
}

TEST_P(Handles, an_exception_releases) {
  try {
    const Lock lock = locker().acquire("u1");
    throw std::runtime_error("in the critical section");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Handles, a_second_release_is_harmless) {  // B6
  Party& bob = party("bob");
  Lock lock = locker().acquire("u1");
  lock.release();
  expect_nothing_in(lock);
  const Outcome other = granted(bob.acquire("u1"));
  lock.release();
  lock.release();
  EXPECT_TRUE(bob.holds(other)) << "it must not release what somebody else holds by now";
  EXPECT_EQ(held_by(bob).size(), 1u) << state();
}

TEST_P(Handles, a_release_does_not_wait_for_those_who_wait) {  // B6
  std::vector<Target> targets;
  for (int i = 0; i < 100; ++i) targets.emplace_back("u" + std::to_string(i) + "/a/r");
  Lock lock = locker().acquire(targets);
  std::vector<Pending> waiting;
  for (int i = 0; i < 20; ++i) {
    waiting.push_back(party("w" + std::to_string(i)).acquire("u" + std::to_string(i)));
    blocked(waiting.back());
  }
  const auto start = Clock::now();
  lock.release();
  EXPECT_LT(Clock::now() - start, 1s * slowness + late_bound);
  for (Pending& one : waiting) granted(one);
}

TEST_P(Handles, an_empty_lock_holds_nothing) {
  Lock empty;
  expect_nothing_in(empty);
}

TEST_P(Handles, a_moved_from_lock_holds_nothing) {
  Lock first = locker().acquire("u1");
  const std::int64_t fence = first.fence();
  Lock second = std::move(first);
  expect_nothing_in(first);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(second.held());
  EXPECT_EQ(second.fence(), fence);
  Lock third;
  third = std::move(second);
  expect_nothing_in(second);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(third.fence(), fence);
}

TEST_P(Handles, assigning_over_a_lock_releases_it) {
  Party& bob = party("bob");
  Lock lock = locker().acquire("u1");
  lock = locker().acquire("u2");
  granted(bob.try_acquire("u1"));
  refused(bob.try_acquire("u2"), ErrorKind::busy);
  lock = Lock();
  granted(bob.try_acquire("u2"));
}

TEST_P(Handles, moving_a_lock_onto_itself_changes_nothing) {
  Lock lock = locker().acquire("u1");
  Lock& same = lock;
  lock = std::move(same);
  EXPECT_TRUE(lock.held());
  EXPECT_GT(lock.fence(), 0);
}

TEST_P(Handles, any_thread_may_release) {
  Party& bob = party("bob");
  Lock lock = locker().acquire("u1");
  elsewhere([&] { lock.release(); });
  EXPECT_FALSE(lock.held());
  granted(bob.try_acquire("u1"));
  // And for the thread that took it, it is gone too: it may take it again.
  Lock other = locker().acquire("u2");
  elsewhere([moved = std::move(other)]() mutable { moved.release(); });
  EXPECT_TRUE(locker().acquire("u2").held());
}

TEST_P(Handles, a_lock_outlives_its_locker) {  // B6
  std::optional<Locker> brief = table().open();
  Lock lock = brief->acquire("u1/a1/r1");
  const std::int64_t fence = lock.fence();
  brief.reset();
  EXPECT_TRUE(lock.held());
  EXPECT_EQ(lock.fence(), fence);
  EXPECT_FALSE(lock.lost().stop_requested());
  if (table().one_for_all_lockers()) {
    EXPECT_FALSE(elsewhere([&] { return locker().try_acquire("u1").has_value(); })) << "it stays held until released";
  }
  lock.release();
  EXPECT_FALSE(lock.held());
  if (table().one_for_all_lockers()) {
    // Where a release does not wait for the server, the lock is free a moment later.
    const auto is_free = [&] { return locker().try_acquire("u1").has_value(); };
    EXPECT_TRUE(can().frees_at_once ? is_free() : eventually(is_free)) << state();
  }
}

TEST_P(Handles, locks_that_outlive_their_locker_may_go_in_any_order_on_any_thread) {
  std::optional<Locker> brief = table().open();
  std::optional<Owner> owner = brief->owner("task");
  std::vector<Lock> locks;
  for (int i = 0; i < 20; ++i) {
    locks.push_back(brief->acquire("u1/a" + std::to_string(i), {.owner = i % 2 == 0 ? &*owner : nullptr}));
  }
  brief.reset();
  elsewhere([&] { locks.erase(locks.begin() + 3, locks.begin() + 12); });
  for (const Lock& lock : locks) EXPECT_TRUE(lock.held());
  owner.reset();
  locks.clear();
}

TEST_P(Handles, a_moved_locker_goes_on) {
  Locker first = table().open();
  const Lock lock = first.acquire("u1");
  Locker second = std::move(first);
  EXPECT_TRUE(lock.held());
  EXPECT_EQ(second.snapshot().holders.size(), 1u);
  EXPECT_FALSE(elsewhere([&] { return second.try_acquire("u1").has_value(); }));
  Locker third = table().open();
  third = std::move(second);
  EXPECT_TRUE(lock.held());
  EXPECT_TRUE(third.acquire("u2").held());
}

TEST_P(Handles, a_lock_that_nobody_takes_away_is_not_lost) {  // B4
  Lock lock = locker().acquire("u1");
  const std::stop_token lost = lock.lost();
  EXPECT_FALSE(lost.stop_requested());
  lock.release();
  EXPECT_FALSE(lost.stop_requested()) << "given back is not lost";
}

TEST_P(Handles, malformed_targets_are_refused_before_anything_is_sent) {  // H7
  const std::string too_long(max_segment_bytes + 1, 'x');
  std::vector<std::string> hostile = {"",
                                      "/",
                                      "//",
                                      "/u1",
                                      "u1/",
                                      "u1//r1",
                                      "%",
                                      "u1/%2",
                                      "u1/%zz",
                                      "u1/%00",
                                      std::string("u1/\0", 4),
                                      std::string("\0", 1),
                                      "u1/\xFF",
                                      "u1/\xC0\xAF",          // an overlong slash
                                      "u1/\xED\xA0\x80",      // a surrogate
                                      "u1/\xF4\x90\x80\x80",  // beyond the last code point
                                      "u1/\xE2\x82",          // cut short
                                      "u1/%FF",
                                      too_long,
                                      "u1/" + too_long,
                                      "1/2/3/4/5/6/7/8/9"};
  for (const std::string& text : hostile) {
    SCOPED_TRACE(testing::PrintToString(text));
    const std::string_view view = text;
    EXPECT_EQ(kind_thrown_by([&] { return locker().acquire(view); }), ErrorKind::invalid_argument);
    EXPECT_EQ(kind_thrown_by([&] { return locker().try_acquire(view); }), ErrorKind::invalid_argument);
    EXPECT_EQ(kind_thrown_by([&] { return Target(view); }), ErrorKind::invalid_argument);
    EXPECT_FALSE(message_of([&] { return Target(view); }).empty());
    if (can().extends) {
      Lock lock = locker().acquire("innocent");
      EXPECT_EQ(kind_thrown_by([&] {
                  lock.extend(view);
                  return 0;
                }),
                ErrorKind::invalid_argument);
      EXPECT_TRUE(lock.held());
    }
  }
  EXPECT_EQ(locker().stats().total().waits, 0u);
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Handles, the_largest_targets_that_are_allowed_work) {
  std::string path;
  for (std::size_t level = 0; level < table().levels(); ++level) {
    path += (level == 0 ? "" : "/") + std::string(max_segment_bytes, static_cast<char>('a' + level));
  }
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire(path));
  refused(bob.try_acquire(path), ErrorKind::busy);
  granted(bob.try_acquire(path.substr(0, path.size() - 1)));
  EXPECT_EQ(held_by(alice).size(), table().levels()) << state();
}

TEST_P(Handles, a_full_store_says_so_and_recovers) {
  std::optional<Locker> small = table().open_small(64);
  if (!small) HIERLOCK_NOT_APPLICABLE() << GetParam() << " has no bound of its own";
  std::vector<Lock> held;
  std::optional<ErrorKind> end;
  for (int i = 0; i < 1'000'000 && !end; ++i) {
    end = kind_thrown_by([&] {
      held.push_back(small->acquire("u" + std::to_string(i) + "/a/r"));
      return 0;
    });
  }
  ASSERT_EQ(end, ErrorKind::exhausted);
  ASSERT_GE(held.size(), 8u) << "room for about 64 locks";
  for (const Lock& lock : held) EXPECT_TRUE(lock.held());
  const std::size_t holders = small->snapshot().holders.size();
  EXPECT_EQ(holders, held.size() * 3) << "the failed acquire left nothing behind\n" << describe(small->snapshot());
  EXPECT_EQ(kind_thrown_by([&] { return small->try_acquire({"x/a/r", "y/a/r"}); }), ErrorKind::exhausted);
  EXPECT_GE(small->stats().failed(ErrorKind::exhausted), 2u);

  const std::size_t room = held.size();
  for (int round = 0; round < 20; ++round) {
    held.clear();
    EXPECT_TRUE(small->snapshot().holders.empty());
    for (std::size_t i = 0; i < room; ++i) {
      held.push_back(small->acquire("v" + std::to_string(round) + "x" + std::to_string(i) + "/a/r"));
    }
  }
}

TEST_P(Handles, an_extend_that_does_not_fit_keeps_what_was_held) {
  std::optional<Locker> small = table().open_small(64);
  if (!small) HIERLOCK_NOT_APPLICABLE() << GetParam() << " has no bound of its own";
  HIERLOCK_NEEDS(extends);
  Lock lock = small->acquire("u");
  std::optional<ErrorKind> end;
  std::size_t extended = 0;
  for (; extended < 1'000'000 && !end; ++extended) {
    end = kind_thrown_by([&] {
      lock.extend("u" + std::to_string(extended));
      return 0;
    });
  }
  ASSERT_EQ(end, ErrorKind::exhausted);
  EXPECT_TRUE(lock.held());
  EXPECT_EQ(small->snapshot().holders.size(), extended) << describe(small->snapshot());
  lock.release();
  EXPECT_TRUE(small->snapshot().holders.empty());
}

TEST_P(Handles, as_many_locks_at_once_as_the_store_has_room_for) {
  const std::size_t count = std::min<std::size_t>(30'000, table().locks_at_once());
  std::vector<Lock> held;
  const auto path = [](std::size_t i) {
    return "u" + std::to_string(i % 10) + "/a" + std::to_string(i % 100) + "/r" + std::to_string(i);
  };
  for (std::size_t i = 0; i < count; ++i) held.push_back(locker().acquire(path(i)));
  EXPECT_FALSE(elsewhere([&] { return locker().try_acquire(path(count / 2)).has_value(); }));
  EXPECT_FALSE(elsewhere([&] { return locker().try_acquire("u7").has_value(); }));
  held.clear();
  EXPECT_TRUE(nothing_left()) << state();
}

// A thread's own variables are destroyed in the reverse order of their first use: one of these before what the library
// keeps for the thread, the other after it.
Lock& first_used() {
  thread_local Lock lock;
  return lock;
}
Lock& last_used() {
  thread_local Lock lock;
  return lock;
}

TEST_P(Handles, locks_among_a_threads_own_variables_are_released_when_it_ends) {
  std::thread([&] {
    first_used().release();
    first_used() = locker().acquire("u1");
    last_used() = locker().acquire("u2");
  }).join();
  EXPECT_TRUE(nothing_left()) << state();
}

HIERLOCK_ON_EVERY_BACKEND(Handles);

}  // namespace
}  // namespace hierlock::conformance
