// Leases: a lock ends by itself if its holder is not heard of, and its holder knows (B4, B5).
#include <csignal>

#include "on_valkey.h"
#include "support/process_party.h"

namespace hierlock::valkey_tests {
namespace {

using conformance::Outcome;
using conformance::Pending;
using conformance::ProcessParty;

class Leases : public OnValkey {};

TEST_P(Leases, a_stopped_holder_loses_its_lock_and_knows_it_at_once) {
  ProcessParty holder("holder", url("lease=1000"));
  const Outcome held = holder.acquire("u1/a1").result.get();
  ASSERT_TRUE(held.granted()) << held;
  holder.stop();
  Locker locker = hierlock::open(url());
  const auto begin = Clock::now();
  const Lock next = locker.acquire("u1/a1", {.timeout = 20s});
  EXPECT_LT(Clock::now() - begin, 4s + stall);
  EXPECT_GT(next.fence(), held.fence);
  holder.go_on();
  EXPECT_FALSE(holder.holds(held)) << "its lease has ended: held() is false without any question";
  EXPECT_TRUE(eventually([&] { return holder.lost(held); }));
  holder.release(held);
  EXPECT_TRUE(next.held()) << "only the owner releases";
  EXPECT_FALSE(hierlock::open(url()).try_acquire("u1").has_value());
}

TEST_P(Leases, a_live_holder_keeps_its_lock_for_longer_than_its_lease) {
  Locker holder = hierlock::open(url("lease=1000")), other = hierlock::open(url("lease=1000"));
  // A machine that stalls for as long as a lease lasts may lose one. That shows nothing, and is tried again.
  const auto kept = [&](Clock::duration& longest_pause) {
    const Lock lock = holder.acquire("u1", {.timeout = 20s});
    Clock::time_point last = Clock::now();
    for (const auto end = last + 3s; last < end;) {
      const bool lost = !lock.held() || other.try_acquire("u1", 20ms).has_value();
      const auto now = Clock::now();
      longest_pause = std::max(longest_pause, now - std::exchange(last, now));
      if (lost) return false;
    }
    return true;
  };
  for (Clock::duration pause{}; !kept(pause); pause = {}) ASSERT_GT(pause, 200ms) << "it was lost without a reason";
}

TEST_P(Leases, a_killed_waiter_is_not_waited_for_longer_than_its_lease) {
  Locker locker = hierlock::open(url("lease=1000"));
  std::optional<Lock> lock = locker.acquire("u1");
  ProcessParty waiter("waiter", url("lease=1000&publish_after=0"));
  Pending waits = waiter.acquire("u1");
  ASSERT_TRUE(eventually([&] { return locker.snapshot().anybody_waits("u1"); }));
  waiter.kill();
  lock.reset();
  const auto begin = Clock::now();
  EXPECT_TRUE(locker.try_acquire("u1", 20s).has_value());
  EXPECT_LT(Clock::now() - begin, 4s + stall);
}

// What a crash between two roots leaves ends with the lease.
TEST_P(Leases, all_roots_of_a_killed_holder_are_free_after_its_lease) {
  ProcessParty holder("holder", url("lease=1000"));
  ASSERT_TRUE(holder.acquire_all({"u1/a1", "u2/a2", named("n"), slots("s", 1)}).result.get().granted());
  holder.kill();
  Locker locker = hierlock::open(url("lease=1000"));
  const auto begin = Clock::now();
  const std::vector<Target> all{"u1", "u2", named("n"), slots("s", 1)};
  EXPECT_TRUE(locker.try_acquire(all, 20s).has_value());
  EXPECT_LT(Clock::now() - begin, 8s + stall);
}

HIERLOCK_ON_VALKEY_AND_REDIS(Leases);

}  // namespace
}  // namespace hierlock::valkey_tests
