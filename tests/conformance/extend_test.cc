// Extending: adding to a lock that is held, and turning shared into exclusive.
#include <algorithm>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Extend : public ConformanceWith<&Capabilities::extends> {
 protected:
  bool shows(const Party& party, std::string_view target, Mode mode) {
    const std::vector<Snapshot::Holder> held = held_by(party);
    return std::any_of(held.begin(), held.end(),
                       [&](const Snapshot::Holder& h) { return h.target == target && h.mode == mode; });
  }
};

TEST_P(Extend, what_is_added_is_held_until_the_one_release) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome lock = granted(alice.acquire("u1/a1/r1"));
  granted(alice.extend(lock, "u2/a1"));
  granted(alice.extend(lock, apart("n")));
  for (const Target& target : std::vector<Target>{"u1/a1/r1", "u1/a1", "u2/a1/r9", "u2", apart("n")}) {
    refused(bob.try_acquire(target), ErrorKind::busy);
  }
  alice.release(lock);
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Extend, the_fence_rises) {  // B3
  Party& alice = party("alice");
  const Outcome lock = granted(alice.acquire("u1"));
  const Outcome more = granted(alice.extend(lock, "u2"));
  EXPECT_GT(more.fence, lock.fence);
  EXPECT_EQ(alice.fence(lock), more.fence);
}

TEST_P(Extend, the_fence_is_higher_than_that_of_those_who_held_the_addition_meanwhile) {  // B3
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome lock = granted(alice.acquire("u1"));
  const Outcome between = granted(bob.acquire("u2"));
  bob.release(between);
  EXPECT_GT(granted(alice.extend(lock, "u2")).fence, between.fence);
}

TEST_P(Extend, shared_becomes_exclusive) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome lock = granted(alice.acquire(shared("u1/a1/r1")));
  const Outcome reader = granted(bob.acquire(shared("u1/a1/r1")));
  Pending upgrade = alice.extend(lock, "u1/a1/r1");
  blocked(upgrade, "u1/a1/r1");
  bob.release(reader);
  granted(upgrade);
  EXPECT_TRUE(shows(alice, "u1/a1/r1", Mode::X)) << state();
  refused(bob.try_acquire(shared("u1/a1/r1")), ErrorKind::busy);
}

TEST_P(Extend, an_upgrade_of_the_only_reader_passes_waiting_writers) {
  Party &alice = party("alice"), &writer = party("writer");
  const Outcome lock = granted(alice.acquire(shared("u1/a1/r1")));
  Pending write = writer.acquire("u1/a1/r1");
  blocked(write, "u1/a1/r1");
  if (!can().passes_own_queue) return granted_or_deadlock(alice.extend(lock, "u1/a1/r1"));
  const Outcome upgraded = granted(alice.extend(lock, "u1/a1/r1"));
  alice.release(lock);
  EXPECT_GT(granted(write).fence, upgraded.fence);
}

TEST_P(Extend, from_a_resource_to_its_account) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome lock = granted(alice.acquire("u1/a1/r1"));
  const Outcome neighbour = granted(bob.acquire("u1/a1/r2"));
  Pending account = alice.extend(lock, "u1/a1");
  blocked(account, "u1/a1");
  bob.release(neighbour);
  granted(account);
  refused(bob.try_acquire("u1/a1/r2"), ErrorKind::busy);
}

TEST_P(Extend, what_is_held_already_is_granted_at_once) {
  Party& alice = party("alice");
  const Outcome lock = granted(alice.acquire("u1/a1"));
  granted(alice.extend(lock, "u1/a1"));
  granted(alice.extend(lock, "u1/a1/r1"));
  granted(alice.extend(lock, shared("u1/a1/r1")));
  EXPECT_TRUE(alice.holds(lock));
  alice.release(lock);
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Extend, a_timeout_keeps_what_was_held) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome lock = granted(alice.acquire("u1/a1/r1"));
  granted(bob.acquire("u2/a1/r1"));
  const Outcome outcome = refused(alice.extend(lock, "u2/a1/r1", {.timeout = 5ms}), ErrorKind::timeout);
  EXPECT_GE(outcome.took, 5ms);
  EXPECT_TRUE(alice.holds(lock));
  EXPECT_EQ(alice.fence(lock), lock.fence);
  refused(bob.try_acquire("u1/a1/r1"), ErrorKind::busy);
  for (const Snapshot::Holder& h : held_by(alice)) EXPECT_FALSE(h.target.starts_with("u2")) << state();
  EXPECT_TRUE(waits_of(alice).empty()) << state();
}

TEST_P(Extend, a_timed_out_upgrade_keeps_the_shared_lock) {
  Party &alice = party("alice"), &bob = party("bob"), &carol = party("carol");
  const Outcome lock = granted(alice.acquire(shared("u1/a1/r1")));
  granted(bob.acquire(shared("u1/a1/r1")));
  refused(alice.extend(lock, "u1/a1/r1", {.timeout = 2ms}), ErrorKind::timeout);
  EXPECT_TRUE(alice.holds(lock));
  EXPECT_TRUE(shows(alice, "u1/a1/r1", Mode::S)) << state();
  // Its ancestors are back at what a reader holds, too.
  if (can().shared_inner) carol.release(granted(carol.try_acquire(shared("u1/a1"))));
  refused(carol.try_acquire("u1/a1/r1"), ErrorKind::busy);
  granted(carol.try_acquire(shared("u1/a1/r1")));
}

TEST_P(Extend, busy_and_cancelled_keep_what_was_held) {
  Party &alice = thread("alice"), &bob = party("bob");
  const Outcome lock = granted(alice.acquire("u1"));
  granted(bob.acquire("u2"));
  refused(alice.extend(lock, "u2", {.timeout = 0ns}), ErrorKind::busy);
  EXPECT_TRUE(alice.holds(lock));
  std::stop_source stop;
  Pending asked = alice.extend(lock, "u2", {.cancel = stop.get_token()});
  blocked(asked, "u2");
  stop.request_stop();
  refused(asked, ErrorKind::cancelled);
  EXPECT_TRUE(alice.holds(lock));
  EXPECT_EQ(alice.fence(lock), lock.fence);
  refused(bob.try_acquire("u1"), ErrorKind::busy);
}

TEST_P(Extend, a_deadlock_releases_the_whole_lock) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome of_alice = granted(alice.acquire("u1/a1/r1"));
  const Outcome of_bob = granted(bob.acquire("u1/a1/r2"));
  Pending alice_asks = alice.extend(of_alice, "u1/a1/r2");
  blocked(alice_asks, "u1/a1/r2");
  Pending bob_asks = bob.extend(of_bob, "u1/a1/r1");
  // One is granted, without anybody having released anything.
  const Outcome alices = result(alice_asks), bobs = result(bob_asks);
  const bool bob_lost = alices.granted();
  const Outcome& outcome = bob_lost ? bobs : alices;
  Party& victim = bob_lost ? bob : alice;
  EXPECT_TRUE((bob_lost ? alices : bobs).granted()) << alices << ", " << bobs;
  EXPECT_EQ(outcome.error, ErrorKind::deadlock) << outcome;
  if (can().deadlock_at_once) {
    EXPECT_TRUE(bob_lost) << "the request that closes the cycle fails, nobody else\n" << state();
  }
  EXPECT_NE(outcome.message.find("released"), std::string::npos) << "the error says so: " << outcome.message;
  EXPECT_FALSE(victim.holds(bob_lost ? of_bob : of_alice));
  EXPECT_TRUE(nothing_left(victim)) << state();
}

TEST_P(Extend, two_upgrades_of_one_target_are_a_deadlock) {  // B11
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome of_alice = granted(alice.acquire(shared("u1/a1/r1")));
  const Outcome of_bob = granted(bob.acquire(shared("u1/a1/r1")));
  Pending alice_asks = alice.extend(of_alice, "u1/a1/r1");
  blocked(alice_asks, "u1/a1/r1");
  Pending bob_asks = bob.extend(of_bob, "u1/a1/r1");
  const Outcome alices = result(alice_asks), bobs = result(bob_asks);
  const bool bob_lost = alices.granted();
  EXPECT_EQ((bob_lost ? bobs : alices).error, ErrorKind::deadlock) << alices << ", " << bobs;
  EXPECT_TRUE((bob_lost ? alices : bobs).granted()) << alices << ", " << bobs;
  EXPECT_TRUE(shows(bob_lost ? alice : bob, "u1/a1/r1", Mode::X)) << state();
}

TEST_P(Extend, a_malformed_or_empty_handle_extends_nothing) {
  Lock released = locker().acquire("u1");
  released.release();
  EXPECT_EQ(kind_thrown_by([&] {
              released.extend("u2");
              return 0;
            }),
            ErrorKind::lost);
  Lock empty;
  EXPECT_EQ(kind_thrown_by([&] {
              empty.extend("u2");
              return 0;
            }),
            ErrorKind::lost);
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Extend, another_handle_of_the_same_owner_in_the_way_is_a_deadlock) {  // B11
  Party& alice = party("alice");
  const Outcome first = granted(alice.acquire("u1"));
  const Outcome second = granted(alice.acquire("u2"));
  refused(alice.extend(first, "u2"), ErrorKind::deadlock);
  EXPECT_FALSE(alice.holds(first)) << "a deadlock in an extend releases the lock";
  EXPECT_TRUE(alice.holds(second));
  const Outcome third = granted(alice.acquire("u3"));
  refused(alice.extend(third, "u2", {.timeout = 0ns}), ErrorKind::deadlock);
  EXPECT_FALSE(alice.holds(third)) << "without waiting it is one, too";
}

TEST_P(Extend, a_long_chain_of_extends_is_one_lock) {
  Party& alice = party("alice");
  const Outcome lock = granted(alice.acquire("u0"));
  std::int64_t last = lock.fence;
  for (int i = 1; i <= 50; ++i) {
    const std::int64_t fence = granted(alice.extend(lock, "u" + std::to_string(i) + "/a/r")).fence;
    EXPECT_GT(fence, last);
    last = fence;
  }
  EXPECT_EQ(held_by(alice).size(), 1u + 50u * 3u) << state();
  alice.release(lock);
  EXPECT_TRUE(nothing_left()) << state();
}

HIERLOCK_ON_EVERY_BACKEND(Extend);

}  // namespace
}  // namespace hierlock::conformance
