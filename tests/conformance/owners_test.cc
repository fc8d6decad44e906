// Owners: who holds and waits. By default a thread; an Owner that is passed in; every handle for itself.
#include <algorithm>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Owners : public Conformance {
 protected:
  bool holds(const Snapshot& snapshot, std::string_view owner_name, std::string_view target) {
    return std::any_of(snapshot.holders.begin(), snapshot.holders.end(),
                       [&](const Snapshot::Holder& h) { return h.who.owner_name == owner_name && h.target == target; });
  }
};

TEST_P(Owners, a_thread_is_one_owner_over_all_its_handles) {
  Party& alice = party("alice");
  granted(alice.acquire("u1"));
  granted(alice.acquire("u2"));
  const std::vector<Snapshot::Holder> held = held_by(alice);
  ASSERT_EQ(held.size(), 2u) << state();
  EXPECT_EQ(held[0].who.owner, held[1].who.owner);
  granted(party("bob").acquire("u3"));
  EXPECT_NE(owner_number(party("alice")), owner_number(party("bob")));
}

TEST_P(Owners, two_handles_of_one_owner_are_released_one_by_one) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome first = granted(alice.acquire("u1/a1/r1"));
  const Outcome second = granted(alice.acquire("u1/a1/r2"));
  alice.release(first);
  EXPECT_TRUE(alice.holds(second));
  refused(bob.try_acquire("u1/a1"), ErrorKind::busy);
  refused(bob.try_acquire("u1"), ErrorKind::busy);
  granted(bob.try_acquire("u1/a1/r1"));
  alice.release(second);
  granted(bob.try_acquire("u1/a1/r2"));
}

TEST_P(Owners, an_explicit_owner_is_one_party_on_several_threads) {
  Party &one = thread("one"), &two = thread("two");
  const Owner task = locker().owner("task 17");
  granted(one.acquire("u1", {.owner = &task}));
  const Outcome outcome = refused(two.acquire("u1", {.owner = &task}), ErrorKind::deadlock);
  EXPECT_NE(outcome.message.find("task 17"), std::string::npos) << outcome.message;
  refused(two.try_acquire("u1", 0ns, {.owner = &task}), ErrorKind::deadlock);
  EXPECT_TRUE(holds(locker().snapshot(), "task 17", "u1")) << state();
}

TEST_P(Owners, two_owners_on_one_thread_are_two_parties) {
  const Owner first = locker().owner("first"), second = locker().owner("second");
  const Lock lock = locker().acquire("u1", {.owner = &first});
  EXPECT_EQ(kind_thrown_by([&] { return locker().acquire("u1", {.timeout = 2ms, .owner = &second}); }),
            ErrorKind::timeout);
}

TEST_P(Owners, owners_of_the_same_name_are_different_parties) {
  const Owner first = locker().owner("twin"), second = locker().owner("twin");
  const Lock lock = locker().acquire("u1", {.owner = &first});
  EXPECT_EQ(kind_thrown_by([&] { return locker().acquire("u1", {.timeout = 2ms, .owner = &second}); }),
            ErrorKind::timeout);
}

TEST_P(Owners, a_lock_outlives_its_owner_object) {
  Lock lock;
  {
    const Owner brief = locker().owner("brief");
    lock = locker().acquire("u1", {.owner = &brief});
  }
  EXPECT_TRUE(lock.held());
  EXPECT_GT(lock.fence(), 0);
  EXPECT_TRUE(holds(locker().snapshot(), "brief", "u1")) << state();
  // A new owner must not be taken for the old one, which still holds.
  const Owner next = locker().owner("next");
  EXPECT_EQ(kind_thrown_by([&] { return locker().acquire("u1", {.timeout = 2ms, .owner = &next}); }),
            ErrorKind::timeout);
  lock.release();
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Owners, a_lock_outlives_its_thread) {
  Lock lock = elsewhere([&] { return locker().acquire("u1"); });
  EXPECT_TRUE(lock.held());
  // No thread that comes later is taken for the one that is gone.
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(elsewhere([&] { return kind_thrown_by([&] { return locker().acquire("u1", {.timeout = 1ms}); }); }),
              ErrorKind::timeout);
  }
  lock.release();
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Owners, thousands_of_threads_that_come_and_go_leave_nothing) {
  for (int i = 0; i < 2000 / slowness; ++i) {
    elsewhere([&] { return locker().acquire("u1/a1/r1").fence(); });
  }
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Owners, thousands_of_owners_that_come_and_go_leave_nothing) {
  // At a server each takes round trips; what they left there would pile up all the same.
  const int owners = (can().across_machines ? 2000 : 20000) / slowness;
  for (int i = 0; i < owners; ++i) {
    const Owner owner = locker().owner("owner " + std::to_string(i));
    const Lock lock = locker().acquire("u1", {.owner = &owner});
    ASSERT_TRUE(lock.held());
  }
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Owners, an_owner_passes_the_queue_of_a_node_it_already_holds) {
  Party &alice = party("alice"), &writer = party("writer"), &late = party("late");
  const Outcome first = granted(alice.acquire("u1/a1/r1"));
  Pending user = writer.acquire("u1");
  blocked(user, "u1");
  if (!can().passes_own_queue) return granted_or_deadlock(alice.acquire("u1/a1/r2"));
  const Outcome second = granted(alice.acquire("u1/a1/r2"));
  const Outcome third = granted(alice.acquire("u1/a2"));
  if (can().fifo) refused(late.try_acquire("u1/a3"), ErrorKind::busy);
  alice.release(first);
  alice.release(second);
  EXPECT_FALSE(user.ready());
  blocked(user, "u1");
  alice.release(third);
  granted(user);
}

TEST_P(Owners, an_owner_passes_a_waiter_that_waits_for_it_with_a_stronger_intention) {
  Party &alice = party("alice"), &writer = party("writer");
  const Outcome reading = granted(alice.acquire(shared("u1/a1/r1")));
  Pending user = writer.acquire("u1");
  blocked(user, "u1");
  if (!can().passes_own_queue) return granted_or_deadlock(alice.acquire("u1/a2/r1"));
  const Outcome writing = granted(alice.acquire("u1/a2/r1"));
  alice.release(reading);
  alice.release(writing);
  granted(user);
}

TEST_P(Owners, the_second_handle_of_a_reader_passes_a_waiting_writer) {
  Party &alice = party("alice"), &writer = party("writer"), &late = party("late");
  const Outcome first = granted(alice.acquire(shared("u1/a1/r1")));
  Pending write = writer.acquire("u1/a1/r1");
  blocked(write, "u1/a1/r1");
  if (!can().passes_own_queue) return granted_or_deadlock(alice.acquire(shared("u1/a1/r1")));
  const Outcome second = granted(alice.acquire(shared("u1/a1/r1")));
  if (can().fifo) refused(late.try_acquire(shared("u1/a1/r1")), ErrorKind::busy);
  alice.release(first);
  blocked(write, "u1/a1/r1");
  alice.release(second);
  granted(write);
}

TEST_P(Owners, a_lock_given_away_belongs_to_the_new_owner) {
  Party &alice = thread("alice"), &bob = thread("bob");
  const Owner heir = locker().owner("heir");
  const Outcome lock = granted(alice.acquire("u1/a1"));
  granted(alice.give_to(lock, heir));
  EXPECT_TRUE(holds(locker().snapshot(), "heir", "u1/a1")) << state();
  EXPECT_TRUE(holds(locker().snapshot(), "heir", "u1")) << state();
  EXPECT_TRUE(alice.holds(lock));
  EXPECT_GE(alice.fence(lock), lock.fence);
  // For the heir it is its own now, for the giver somebody else's.
  refused(bob.acquire("u1/a1", {.owner = &heir}), ErrorKind::deadlock);
  refused(alice.acquire("u1/a1", {.timeout = 2ms}), ErrorKind::timeout);
}

TEST_P(Owners, a_lock_given_to_this_thread_is_its_own) {
  Lock lock = elsewhere([&] { return locker().acquire("u1"); });
  EXPECT_EQ(kind_thrown_by([&] { return locker().acquire("u1", {.timeout = 1ms}); }), ErrorKind::timeout);
  lock.give_to_this_thread();
  EXPECT_EQ(kind_thrown_by([&] { return locker().acquire("u1", {.timeout = 1ms}); }), ErrorKind::deadlock);
}

TEST_P(Owners, giving_a_lock_to_the_owner_it_has_changes_nothing) {
  const Owner task = locker().owner("task");
  Lock lock = locker().acquire("u1", {.owner = &task});
  lock.give_to(task);
  EXPECT_TRUE(lock.held());
  EXPECT_TRUE(holds(locker().snapshot(), "task", "u1")) << state();
}

TEST_P(Owners, a_waiter_goes_on_waiting_when_its_lock_is_given_away) {
  Party &alice = thread("alice"), &bob = thread("bob");
  const Owner heir = locker().owner("heir");
  const Outcome lock = granted(alice.acquire("u1"));
  Pending asked = bob.acquire("u1");
  blocked(asked, "u1");
  granted(alice.give_to(lock, heir));
  EXPECT_TRUE(eventually([&] {
    const std::vector<Snapshot::Waiter> waiting = waits_of(bob);
    return waiting.size() == 1 && waiting[0].blocked_by == std::vector<std::uint64_t>{owner_number(alice)};
  })) << state();
  alice.release(lock);
  granted(asked);
}

TEST_P(Owners, giving_a_lock_to_one_who_waits_for_it_is_a_deadlock) {
  Party &alice = thread("alice"), &bob = thread("bob");
  const Owner heir = locker().owner("heir");
  const Outcome lock = granted(alice.acquire("u1"));
  Pending asked = bob.acquire("u1", {.owner = &heir});
  blocked(asked, "u1");
  const Outcome outcome = refused(alice.give_to(lock, heir), ErrorKind::deadlock);
  EXPECT_NE(outcome.message.find("heir"), std::string::npos) << outcome.message;
  EXPECT_TRUE(alice.holds(lock)) << "it stays with the owner it has";
  EXPECT_FALSE(holds(locker().snapshot(), "heir", "u1")) << state();
  blocked(asked, "u1");
  alice.release(lock);
  granted(asked);
}

TEST_P(Owners, giving_a_lock_away_that_would_close_a_longer_cycle_is_a_deadlock) {
  Party &alice = thread("alice"), &bob = thread("bob"), &carol = thread("carol");
  const Owner heir = locker().owner("heir");
  const Outcome wanted = granted(alice.acquire("wanted"));
  const Outcome other = granted(carol.acquire("other"));
  Pending carol_asks = carol.acquire("wanted");
  blocked(carol_asks, "wanted");
  Pending heir_asks = bob.acquire("other", {.owner = &heir});
  blocked(heir_asks, "other");
  // The heir waits for carol, who waits for what the heir would be given.
  refused(alice.give_to(wanted, heir), ErrorKind::deadlock);
  EXPECT_TRUE(alice.holds(wanted));
  EXPECT_FALSE(carol_asks.ready());
  EXPECT_FALSE(heir_asks.ready());
  alice.release(wanted);
  granted(carol_asks);
  carol.release(other);
  granted(heir_asks);
}

TEST_P(Owners, giving_a_lock_away_minds_every_wait_of_the_heir) {
  Party &alice = thread("alice"), &carol = thread("carol"), &dave = thread("dave");
  Party &one = thread("one"), &two = thread("two"), &three = thread("three");
  const Owner heir = locker().owner("heir");
  const Outcome wanted = granted(alice.acquire("wanted"));
  const Outcome of_carol = granted(carol.acquire("of carol"));
  granted(dave.acquire_all({"first of dave", "second of dave"}));
  // Of the three waits of the heir, the second leads back to what it would be given.
  Pending first = one.acquire("first of dave", {.timeout = patience, .owner = &heir});
  blocked(first);
  Pending carol_asks = carol.acquire("wanted");
  blocked(carol_asks);
  Pending second = two.acquire("of carol", {.owner = &heir});
  blocked(second);
  Pending third = three.acquire("second of dave", {.timeout = patience, .owner = &heir});
  blocked(third);
  refused(alice.give_to(wanted, heir), ErrorKind::deadlock);
  EXPECT_TRUE(alice.holds(wanted));
  alice.release(wanted);
  granted(carol_asks);
  carol.release(of_carol);
  granted(second);
}

TEST_P(Owners, giving_to_one_who_waits_for_something_else_is_fine) {
  Party &alice = thread("alice"), &bob = thread("bob"), &carol = thread("carol");
  const Owner heir = locker().owner("heir");
  const Outcome gift = granted(alice.acquire("gift"));
  const Outcome other = granted(carol.acquire("other"));
  Pending heir_asks = bob.acquire("other", {.owner = &heir});
  blocked(heir_asks, "other");
  granted(alice.give_to(gift, heir));
  // And from then on it counts: carol asking for the gift closes the cycle.
  refused(carol.acquire("gift"), ErrorKind::deadlock);
  carol.release(other);
  granted(heir_asks);
}

TEST_P(Owners, an_empty_handle_cannot_be_given_away) {
  const Owner heir = locker().owner("heir");
  Lock lock = locker().acquire("u1");
  lock.release();
  EXPECT_EQ(kind_thrown_by([&] {
              lock.give_to(heir);
              return 0;
            }),
            ErrorKind::lost);
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Owners, an_owner_of_another_locker_is_refused) {
  Locker other = table().open();
  const Owner stranger = other.owner("stranger");
  EXPECT_EQ(kind_thrown_by([&] { return locker().acquire("u1", {.timeout = 0ns, .owner = &stranger}); }),
            ErrorKind::invalid_argument);
  Lock lock = locker().acquire("u1");
  EXPECT_EQ(kind_thrown_by([&] {
              lock.give_to(stranger);
              return 0;
            }),
            ErrorKind::invalid_argument);
  EXPECT_TRUE(lock.held());
}

TEST_P(Owners, per_handle_a_thread_that_waits_for_itself_times_out) {
  open_with({.owners = hierlock::Owners::per_handle});
  Party& alice = thread("alice");
  const Outcome first = granted(alice.acquire("u1"));
  refused(alice.acquire("u1", {.timeout = 5ms}), ErrorKind::timeout);
  EXPECT_TRUE(alice.holds(first));
}

TEST_P(Owners, per_handle_every_handle_has_its_own_owner) {
  open_with({.owners = hierlock::Owners::per_handle});
  Party& alice = thread("alice");
  granted(alice.acquire("u1"));
  granted(alice.acquire("u2"));
  const std::vector<Snapshot::Holder> held = held_by(alice);
  ASSERT_EQ(held.size(), 2u) << state();
  EXPECT_NE(held[0].who.owner, held[1].who.owner);
}

TEST_P(Owners, per_handle_a_pool_of_threads_gets_no_false_deadlock) {
  open_with({.owners = hierlock::Owners::per_handle});
  // Two tasks that happen to run on the same two threads, in opposite order: as threads they would form a cycle.
  Party &one = thread("one"), &two = thread("two");
  const Outcome first_task = granted(one.acquire("u1"));
  const Outcome second_task = granted(two.acquire("u2"));
  Pending third_task = one.acquire("u2");
  blocked(third_task, "u2");
  Pending fourth_task = two.acquire("u1", {.timeout = 5ms});
  refused(fourth_task, ErrorKind::timeout);
  two.release(second_task);
  granted(third_task);
  one.release(first_task);
}

TEST_P(Owners, per_handle_an_explicit_owner_still_counts_as_one) {
  open_with({.owners = hierlock::Owners::per_handle});
  Party& alice = thread("alice");
  const Owner task = locker().owner("task");
  granted(alice.acquire("u1", {.owner = &task}));
  refused(alice.acquire("u1", {.owner = &task}), ErrorKind::deadlock);
}

TEST_P(Owners, per_handle_an_extend_against_itself_is_still_no_wait_for_another) {
  HIERLOCK_NEEDS(extends);
  Locker handles = table().open({.owners = hierlock::Owners::per_handle});
  Lock lock = handles.acquire("u1/a1/r1");
  lock.extend("u1/a1/r2");
  lock.extend("u1/a1");  // from IX to X on its own node
  EXPECT_TRUE(lock.held());
}

HIERLOCK_ON_EVERY_BACKEND(Owners);

}  // namespace
}  // namespace hierlock::conformance
