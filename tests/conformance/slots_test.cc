// Slots: at most N holders of a name at once (M1, M7).
#include <algorithm>
#include <atomic>
#include <ctime>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Slots : public ConformanceWith<&Capabilities::slots> {};

TEST_P(Slots, as_many_as_there_are_and_no_more) {  // M1
  std::vector<Outcome> held;
  for (int i = 0; i < 3; ++i) held.push_back(granted(party("p" + std::to_string(i)).acquire(slots("s", 3))));
  Pending fourth = party("p3").acquire(slots("s", 3));
  blocked(fourth);
  refused(party("p4").try_acquire(slots("s", 3)), ErrorKind::busy);
  refused(party("p4").acquire(slots("s", 3), {.timeout = 1ms}), ErrorKind::timeout);
  party("p1").release(held[1]);
  granted(fourth);
  refused(party("p4").try_acquire(slots("s", 3)), ErrorKind::busy);
}

TEST_P(Slots, at_most_n_at_once_under_many_threads) {  // M1
  constexpr int threads = 8, rounds = 400;
  for (const std::uint32_t count : {1u, 3u}) {
    const Target target = slots("s" + std::to_string(count), count);
    std::atomic<std::uint32_t> inside = 0, too_many = 0;
    std::vector<std::future<void>> workers;
    Locker& all = locker();
    for (int worker = 0; worker < threads; ++worker) {
      workers.push_back(std::async(std::launch::async, [&] {
        for (int round = 0; round < rounds; ++round) {
          const Lock lock = all.acquire(target);
          if (++inside > count) ++too_many;
          std::this_thread::yield();
          --inside;
        }
      }));
    }
    for (std::future<void>& worker : workers) worker.get();
    EXPECT_EQ(too_many, 0u);
  }
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Slots, several_that_come_free_at_once_are_taken_without_a_crush) {
  // Of several waiters that are woken together, the first to run is often not the first in the queue. It must not keep
  // the processor busy until the others have run: that is slower by a factor of hundreds, and the bounds are far from
  // both. A server takes time of its own, and a busy machine makes it longer; so there the processor time counts.
  constexpr int threads = 12, rounds = 150;
  const Target target = slots("s", 4);
  Locker& all = locker();
  const auto all_have_their_turns = [&] {
    std::vector<std::future<void>> workers;
    for (int worker = 0; worker < threads; ++worker) {
      workers.push_back(std::async(std::launch::async, [&] {
        for (int round = 0; round < rounds; ++round) {
          const Lock lock = all.acquire(target);
          std::this_thread::yield();
        }
      }));
    }
    for (std::future<void>& worker : workers) worker.get();
  };
  if (!can().across_machines && can().wakes_waiters) {
    EXPECT_TRUE(tests::once_within(1s * slowness, [&] { return tests::time_of(all_have_their_turns); }))
        << threads * rounds << " grants";
    return;
  }
  const std::clock_t start_of_work = std::clock();
  all_have_their_turns();
  const double worked = static_cast<double>(std::clock() - start_of_work) / CLOCKS_PER_SEC;
  if (can().across_machines) {
    EXPECT_LT(worked, 3.0 * slowness) << threads * rounds << " grants, seconds of this process";
  }
}

TEST_P(Slots, one_owner_may_hold_several) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome first = granted(alice.acquire(slots("s", 3)));
  granted(alice.acquire(slots("s", 3)));
  granted(bob.acquire(slots("s", 3)));
  refused(bob.try_acquire(slots("s", 3)), ErrorKind::busy);
  alice.release(first);
  granted(bob.try_acquire(slots("s", 3)));
}

TEST_P(Slots, waiters_are_served_in_the_order_they_came) {
  HIERLOCK_NEEDS(fifo);
  Party &first = party("first"), &second = party("second");
  const Outcome one = granted(first.acquire(slots("s", 2)));
  const Outcome two = granted(second.acquire(slots("s", 2)));
  std::vector<Pending> queue;
  for (int i = 0; i < 4; ++i) {
    queue.push_back(party("w" + std::to_string(i)).acquire(slots("s", 2)));
    blocked(queue.back());
  }
  first.release(one);
  const Outcome got_first = granted(queue[0]);
  for (std::size_t i = 1; i < queue.size(); ++i) blocked(queue[i]);
  second.release(two);
  const Outcome got_second = granted(queue[1]);
  for (std::size_t i = 2; i < queue.size(); ++i) blocked(queue[i]);
  queue[1].by->release(got_second);
  granted(queue[2]);
  blocked(queue[3]);
  queue[0].by->release(got_first);
  granted(queue[3]);
}

TEST_P(Slots, nobody_overtakes_a_waiter) {
  HIERLOCK_NEEDS(fifo);
  Party &holder = party("holder"), &waiter = party("waiter"), &late = party("late");
  const Outcome held = granted(holder.acquire(slots("s", 1)));
  Pending asked = waiter.acquire(slots("s", 1));
  blocked(asked);
  refused(late.try_acquire(slots("s", 1)), ErrorKind::busy);
  holder.release(held);
  granted(asked);
}

TEST_P(Slots, a_waiter_that_gives_up_costs_no_slot) {  // M7
  Party &holder = party("holder"), &quitter = party("quitter"), &next = party("next");
  const Outcome held = granted(holder.acquire(slots("s", 1)));
  refused(quitter.acquire(slots("s", 1), {.timeout = 1ms}), ErrorKind::timeout);
  EXPECT_TRUE(holder.holds(held)) << "a failed wait releases nobody's slot";
  refused(next.try_acquire(slots("s", 1)), ErrorKind::busy);
  holder.release(held);
  granted(next.try_acquire(slots("s", 1)));
}

TEST_P(Slots, releasing_twice_gives_back_one_slot) {  // M7
  Party &bob = party("bob"), &carol = party("carol");
  Lock mine = locker().acquire(slots("s", 2));
  granted(bob.acquire(slots("s", 2)));
  mine.release();
  mine.release();
  granted(carol.try_acquire(slots("s", 2)));
  refused(carol.try_acquire(slots("s", 2)), ErrorKind::busy);
}

TEST_P(Slots, two_who_disagree_on_the_number_are_told_both) {  // M7
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome held = granted(alice.acquire(slots("s", 4)));
  const Outcome refusal = refused(bob.acquire(slots("s", 17)), ErrorKind::incompatible);
  EXPECT_NE(refusal.message.find("4"), std::string::npos) << refusal.message;
  EXPECT_NE(refusal.message.find("17"), std::string::npos) << refusal.message;
  EXPECT_FALSE(refusal.retryable);
  refused(bob.try_acquire(slots("s", 17)), ErrorKind::incompatible);
  EXPECT_TRUE(nothing_left(bob)) << state();
  granted(bob.acquire(slots("s", 4)));
  granted(bob.acquire(slots("t", 17)));
  EXPECT_TRUE(alice.holds(held));
}

TEST_P(Slots, one_call_that_disagrees_with_itself_is_refused) {  // M7
  const std::string message = message_of([&] { return locker().acquire({slots("s", 2), slots("s", 3)}); });
  EXPECT_EQ(kind_thrown_by([&] { return locker().acquire({slots("s", 2), slots("s", 3)}); }), ErrorKind::incompatible);
  EXPECT_NE(message.find("2"), std::string::npos) << message;
  EXPECT_NE(message.find("3"), std::string::npos) << message;
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Slots, a_disagreement_ends_with_the_last_holder) {
  (void)locker().acquire(slots("s", 2));
  const Lock lock = locker().acquire(slots("s", 3));
  EXPECT_TRUE(lock.held());
}

TEST_P(Slots, a_slot_and_paths_are_taken_together) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome held = granted(alice.acquire_all({slots("s", 1), "u1/a1", named("n")}));
  refused(bob.try_acquire(slots("s", 1)), ErrorKind::busy);
  refused(bob.try_acquire("u1"), ErrorKind::busy);
  alice.release(held);
  granted(bob.try_acquire(slots("s", 1)));
}

TEST_P(Slots, an_owner_that_holds_them_all_and_asks_again_is_a_deadlock) {  // B11
  Party& alice = party("alice");
  const Outcome first = granted(alice.acquire(slots("s", 2)));
  granted(alice.acquire(slots("s", 2)));
  const Outcome refusal = refused(alice.acquire(slots("s", 2)), ErrorKind::deadlock);
  EXPECT_NE(refusal.message.find("s"), std::string::npos);
  refused(alice.acquire(slots("s", 2), {.timeout = 0ns}), ErrorKind::busy);
  EXPECT_TRUE(alice.holds(first));
}

TEST_P(Slots, an_owner_that_holds_one_of_several_waits_for_the_others) {
  // Any slot will do: as long as somebody else may give one back, asking again is no deadlock.
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire(slots("s", 2)));
  const Outcome of_bob = granted(bob.acquire(slots("s", 2)));
  Pending asked = alice.acquire(slots("s", 2));
  blocked(asked);
  bob.release(of_bob);
  granted(asked);
}

TEST_P(Slots, a_cycle_through_the_only_slot_is_a_deadlock) {  // B11
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire(slots("s", 1)));
  const Outcome of_bob = granted(bob.acquire("u1"));
  Pending alice_asks = alice.acquire("u1");
  blocked(alice_asks, "u1");
  Pending bob_asks = bob.acquire(slots("s", 1));
  eventually([&] { return alice_asks.ready() || bob_asks.ready(); });
  if (!can().deadlock_at_once && alice_asks.ready()) {
    refused(alice_asks, ErrorKind::deadlock);
    return;
  }
  refused(bob_asks, ErrorKind::deadlock);
  bob.release(of_bob);
  granted(alice_asks);
}

TEST_P(Slots, a_cycle_through_one_of_two_slots_is_no_deadlock_while_the_other_may_come_back) {  // B11
  Party &alice = party("alice"), &bob = party("bob"), &carol = party("carol");
  granted(alice.acquire(slots("s", 2)));
  const Outcome of_carol = granted(carol.acquire(slots("s", 2)));
  const Outcome of_bob = granted(bob.acquire("u1"));
  Pending alice_asks = alice.acquire("u1");
  blocked(alice_asks, "u1");
  Pending bob_asks = bob.acquire(slots("s", 2));
  blocked(bob_asks);
  carol.release(of_carol);
  const Outcome slot = granted(bob_asks);
  bob.release(of_bob);
  granted(alice_asks);
  bob.release(slot);
}

TEST_P(Slots, when_the_holder_of_the_last_way_out_waits_as_well_it_is_a_deadlock) {  // B11
  struct Member {
    Party* party;
    Outcome holds;
    Pending asks{};
  };
  std::vector<Member> members;
  for (const char* const name : {"alice", "bob", "carol"}) {
    const Target has = members.size() == 1 ? Target("u1") : slots("s", 2);
    members.push_back({&party(name), granted(party(name).acquire(has))});
  }
  const auto asks = [&](std::size_t i) { members[i].asks = members[i].party->acquire(i == 1 ? slots("s", 2) : "u1"); };
  asks(0);
  blocked(members[0].asks, "u1");
  asks(1);
  blocked(members[1].asks);
  const auto start = Clock::now();
  asks(2);
  const auto done = [](const Member& member) { return member.asks.ready(); };
  EXPECT_TRUE(eventually([&] { return std::any_of(members.begin(), members.end(), done); })) << state();
  EXPECT_LT(Clock::now() - start, late_bound + 2s) << "B11: at once, or within 2 s";
  if (can().deadlock_at_once) {
    EXPECT_TRUE(members.back().asks.ready()) << "the closing request fails, nobody else";
  }
  int victims = 0;
  while (!members.empty()) {
    ASSERT_TRUE(eventually([&] { return std::any_of(members.begin(), members.end(), done); })) << state();
    const auto next = std::find_if(members.begin(), members.end(), done);
    const Outcome outcome = next->asks.result.get();
    if (outcome.granted()) {
      next->party->release(outcome);
    } else {
      EXPECT_EQ(*outcome.error, ErrorKind::deadlock) << outcome;
      ++victims;
    }
    next->party->release(next->holds);
    members.erase(next);
  }
  EXPECT_EQ(victims, 1) << "one is enough";
}

TEST_P(Slots, the_number_is_part_of_what_a_target_is_and_must_be_sensible) {  // H7
  EXPECT_EQ(kind_thrown_by([] { return slots("s", 0); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown_by([] { return slots("s", max_slots + 1); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown_by([] { return slots("", 1); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown_by([] { return shared(slots("s", 1)); }), ErrorKind::invalid_argument);
  EXPECT_TRUE(locker().acquire(slots("s", max_slots)).held());
}

HIERLOCK_ON_EVERY_BACKEND(Slots);

}  // namespace
}  // namespace hierlock::conformance
