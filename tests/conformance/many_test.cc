// Many targets in one acquire: all or nothing, in one order, with one fence.
#include <algorithm>
#include <array>
#include <thread>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Many : public Conformance {};

TEST_P(Many, targets_under_different_users_are_held_together) {  // H5
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome held = granted(alice.acquire_all({"u2/a9/r1", "u1/a1/r1", "u1/a2", apart("n")}));
  for (const Target& part : std::vector<Target>{"u2/a9/r1", "u1/a1/r1", "u1/a2/r7", apart("n"), "u1", "u2"}) {
    refused(bob.try_acquire(part), ErrorKind::busy);
  }
  alice.release(held);
  for (const Target& part : std::vector<Target>{"u1", "u2", apart("n")}) granted(bob.try_acquire(part));
}

TEST_P(Many, the_order_they_are_given_in_does_not_matter) {  // H5: no order of the input deadlocks
  std::array<Target, 4> targets = {"u1/a1/r1", "u1/a2", "u2/a1/r1", apart("n")};
  std::array<int, 4> order = {0, 1, 2, 3};
  constexpr std::size_t crowd = 4;
  do {
    std::vector<Pending> all;
    for (std::size_t turn = 0; turn < crowd; ++turn) {
      std::vector<Target> list;
      for (std::size_t i = 0; i < order.size(); ++i) {
        list.push_back(targets[static_cast<std::size_t>(order[(i + turn) % order.size()])]);
      }
      all.push_back(party("p" + std::to_string(turn)).acquire_all(list, {.then_release = true}));
    }
    for (Pending& pending : all) granted(pending);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(locker().stats().total().deadlocks, 0u);
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Many, duplicates_collapse_to_the_strongest_mode) {  // H5
  Party& alice = party("alice");
  const std::string path = table().levels() > 2 ? "u1/a1/r1" : "u1";
  granted(alice.acquire_all({path, shared(path), path}));
  std::vector<Snapshot::Holder> held = held_by(alice);
  std::erase_if(held, [&](const Snapshot::Holder& h) { return h.target != path; });
  ASSERT_EQ(held.size(), 1u) << state();
  EXPECT_EQ(held[0].mode, Mode::X);
  EXPECT_TRUE(held[0].asked);
}

TEST_P(Many, a_target_and_its_ancestor_in_one_call_are_the_ancestor) {  // H5
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome held = granted(alice.acquire_all({"u1/a1/r1", "u1"}));
  refused(bob.try_acquire("u1/a2/r2"), ErrorKind::busy);
  alice.release(held);
  granted(bob.try_acquire("u1"));
}

TEST_P(Many, one_blocked_target_means_that_none_is_held) {  // H8
  Party &alice = party("alice"), &bob = party("bob"), &carol = party("carol");
  granted(alice.acquire("u1/a1/r2"));
  const Outcome refusal =
      refused(bob.acquire_all({"u1/a1/r1", "u1/a1/r2", "u1/a1/r3"}, {.timeout = 5ms}), ErrorKind::timeout);
  EXPECT_TRUE(refusal.retryable);
  EXPECT_TRUE(nothing_left(bob)) << state();
  granted(carol.try_acquire("u1/a1/r1"));
  granted(carol.try_acquire("u1/a1/r3"));
}

TEST_P(Many, without_waiting_it_is_all_or_nothing_too) {  // H8
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire("u2"));
  refused(bob.acquire_all({"u1", "u2", "u3"}, {.timeout = 0ns}), ErrorKind::busy);
  EXPECT_TRUE(nothing_left(bob)) << state();
}

TEST_P(Many, a_cancelled_wait_for_many_leaves_nothing) {  // H8
  Party &alice = party("alice"), &bob = thread("bob");
  granted(alice.acquire("u2"));
  std::stop_source stop;
  Pending asked = bob.acquire_all({"u1", "u2", "u3"}, {.cancel = stop.get_token()});
  blocked(asked, "u2");
  stop.request_stop();
  refused(asked, ErrorKind::cancelled);
  EXPECT_TRUE(nothing_left(bob)) << state();
}

TEST_P(Many, a_deadlock_over_many_leaves_nothing_of_the_failed_request) {  // H8
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome of_alice = granted(alice.acquire("u1"));
  const Outcome of_bob = granted(bob.acquire("u3"));
  Pending alice_asks = alice.acquire_all({"u2", "u3"});
  blocked(alice_asks, "u3");
  Pending bob_asks = bob.acquire_all({"u0", "u1"});
  eventually([&] { return alice_asks.ready() || bob_asks.ready(); });
  const bool bob_lost = bob_asks.ready();
  Party& victim = bob_lost ? bob : alice;
  refused(bob_lost ? bob_asks : alice_asks, ErrorKind::deadlock);
  std::vector<Snapshot::Holder> left = held_by(victim);
  ASSERT_EQ(left.size(), 1u) << state();
  EXPECT_EQ(left[0].target, bob_lost ? "u3" : "u1") << "the lock it held before is untouched";
  victim.release(bob_lost ? of_bob : of_alice);
  granted(bob_lost ? alice_asks : bob_asks);
}

TEST_P(Many, no_targets_at_all_are_refused) {  // H7
  const std::vector<Target> none;
  EXPECT_EQ(kind_thrown_by([&] { return locker().acquire(none); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown_by([&] { return locker().try_acquire(none); }), ErrorKind::invalid_argument);
}

TEST_P(Many, a_hundred_targets_are_one_lock_with_one_fence) {  // B3
  Party& alice = party("alice");
  std::vector<Target> targets;
  for (int i = 99; i >= 0; --i) {
    targets.emplace_back("u" + std::to_string(i % 7) + "/a" + std::to_string(i % 13) + "/r" + std::to_string(i));
  }
  const Outcome held = granted(alice.acquire_all(targets));
  std::size_t asked = 0;
  for (const Snapshot::Holder& h : held_by(alice)) {
    EXPECT_EQ(h.fence, held.fence) << h.target;
    asked += h.asked ? 1 : 0;
  }
  EXPECT_EQ(asked, targets.size());
  alice.release(held);
  EXPECT_TRUE(nothing_left()) << state();
}

HIERLOCK_ON_EVERY_BACKEND(Many);

}  // namespace
}  // namespace hierlock::conformance
