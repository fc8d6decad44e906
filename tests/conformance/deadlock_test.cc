// Deadlock: found wherever it can arise, told in words, at the cost of one request (B11).
#include <unistd.h>

#include <map>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Deadlock : public Conformance {
 protected:
  struct Member {
    Party* party;
    Outcome holds;
    Pending asks;
  };

  // The members wait for each other in a ring. Returns the index of the one that lost, after everybody else was seen to
  // get what they asked for. Where the store finds cycles at once, it must be the last one, which closed the ring.
  std::size_t victim(std::vector<Member>& ring, Outcome& refusal) {
    const auto anybody = [&]() -> std::optional<std::size_t> {
      for (std::size_t i = 0; i < ring.size(); ++i) {
        if (ring[i].asks.ready()) return i;
      }
      return std::nullopt;
    };
    const auto start = Clock::now();
    EXPECT_TRUE(eventually([&] { return anybody().has_value(); })) << "nobody found the deadlock\n" << state();
    EXPECT_LT(Clock::now() - start, late_bound + 2s) << "B11: at once, or within 2 s";
    const std::size_t lost = anybody().value_or(ring.size() - 1);
    if (can().deadlock_at_once) {
      EXPECT_EQ(lost, ring.size() - 1) << "the closing request fails, nobody else";
    }
    refusal = refused(ring[lost].asks, ErrorKind::deadlock);
    EXPECT_TRUE(refusal.retryable);
    for (const Member& member : ring) {
      EXPECT_FALSE(held_by(*member.party).empty()) << member.party->name() << " lost what it held\n" << state();
    }
    // Unwinds from the victim: its lock goes to the one who waits for it, and so on around the ring.
    std::size_t next = lost;
    ring[next].party->release(ring[next].holds);
    for (std::size_t steps = 1; steps < ring.size(); ++steps) {
      next = (next + ring.size() - 1) % ring.size();
      const Outcome got = granted(ring[next].asks);
      ring[next].party->release(got);
      ring[next].party->release(ring[next].holds);
    }
    EXPECT_TRUE(nothing_left()) << state();
    return lost;
  }

  static bool says(const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; }
};

TEST_P(Deadlock, between_two_handles_each) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome of_alice = granted(alice.acquire("u1"));
  const Outcome of_bob = granted(bob.acquire("u2"));
  const std::string alice_name = owner_name(alice), bob_name = owner_name(bob);
  std::vector<Member> ring;
  ring.push_back({&alice, of_alice, alice.acquire("u2")});
  blocked(ring[0].asks, "u2");
  ring.push_back({&bob, of_bob, bob.acquire("u1")});
  Outcome refusal;
  victim(ring, refusal);
  for (const std::string& word : {alice_name, bob_name, std::string("u1"), std::string("u2")}) {
    EXPECT_TRUE(says(refusal.message, word)) << word << " is missing in: " << refusal.message;
  }
}

TEST_P(Deadlock, the_message_tells_the_cycle_in_words) {
  Party &one = thread("one"), &two = thread("two"), &three = thread("three");
  const Owner alice = locker().owner("alice"), bob = locker().owner("bob"), carol = locker().owner("carol");
  std::vector<Member> ring;
  const Outcome a = granted(one.acquire("apples", {.owner = &alice}));
  const Outcome b = granted(two.acquire("bananas", {.owner = &bob}));
  const Outcome c = granted(three.acquire("cherries", {.owner = &carol}));
  ring.push_back({&one, a, one.acquire("bananas", {.owner = &alice})});
  blocked(ring[0].asks, "bananas");
  ring.push_back({&two, b, two.acquire("cherries", {.owner = &bob})});
  blocked(ring[1].asks, "cherries");
  ring.push_back({&three, c, three.acquire("apples", {.owner = &carol})});
  Outcome refusal;
  victim(ring, refusal);
  for (const char* word : {"alice", "bob", "carol", "apples", "bananas", "cherries"}) {
    EXPECT_TRUE(says(refusal.message, word)) << word << " is missing in: " << refusal.message;
  }
  EXPECT_FALSE(says(refusal.message, "\n")) << "one line for a person";
}

TEST_P(Deadlock, the_error_carries_the_cycle_as_data) {
  Party &one = thread("one"), &two = thread("two"), &three = thread("three");
  const Owner alice = locker().owner("alice"), bob = locker().owner("bob"), carol = locker().owner("carol");
  std::vector<Member> ring;
  const Outcome a = granted(one.acquire("apples", {.owner = &alice}));
  const Outcome b = granted(two.acquire("bananas", {.owner = &bob}));
  const Outcome c = granted(three.acquire("cherries", {.owner = &carol}));
  ring.push_back({&one, a, one.acquire("bananas", {.owner = &alice})});
  blocked(ring[0].asks, "bananas");
  ring.push_back({&two, b, two.acquire("cherries", {.owner = &bob})});
  blocked(ring[1].asks, "cherries");
  ring.push_back({&three, c, three.acquire("apples", {.owner = &carol})});
  Outcome refusal;
  victim(ring, refusal);
  ASSERT_EQ(refusal.cycle.size(), 3u) << refusal.message;
  std::map<std::string, std::string> waits_for, holds;
  for (const Error::Wait& wait : refusal.cycle) {
    waits_for[wait.owner] = wait.waits_for;
    holds[wait.owner] = wait.holds;
    EXPECT_EQ(wait.process, getpid());
  }
  using Told = std::map<std::string, std::string>;
  EXPECT_EQ(waits_for, (Told{{"alice", "bananas"}, {"bob", "cherries"}, {"carol", "apples"}}));
  EXPECT_EQ(holds, (Told{{"alice", "apples"}, {"bob", "bananas"}, {"carol", "cherries"}}));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(refusal.cycle[i].waits_for, refusal.cycle[(i + 1) % 3].holds) << "each waits for the next";
  }

  const Snapshot snapshot = locker().snapshot();
  ASSERT_FALSE(snapshot.log.empty());
  const Snapshot::Entry& entry = snapshot.log.back();
  EXPECT_EQ(entry.text, refusal.message.substr(0, entry.text.size()));
  ASSERT_EQ(entry.cycle.size(), 3u) << entry.text;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(entry.cycle[i].owner, refusal.cycle[i].owner);
    EXPECT_EQ(entry.cycle[i].process, getpid());
    EXPECT_EQ(entry.cycle[i].waits_for, refusal.cycle[i].waits_for);
    EXPECT_EQ(entry.cycle[i].holds, refusal.cycle[i].holds);
    EXPECT_EQ(entry.targets[i], refusal.cycle[i].waits_for);
  }
}

TEST_P(Deadlock, with_oneself_has_one_member_in_its_cycle) {
  Party& alice = thread("alice");
  granted(alice.acquire("u1"));
  const Outcome refusal = refused(alice.acquire("u1"), ErrorKind::deadlock);
  ASSERT_EQ(refusal.cycle.size(), 1u) << refusal.message;
  EXPECT_EQ(refusal.cycle[0].waits_for, "u1");
  EXPECT_EQ(refusal.cycle[0].holds, "u1");
}

TEST_P(Deadlock, between_eight_parties) {
  constexpr std::size_t crowd = 8;
  std::vector<Outcome> held;
  for (std::size_t i = 0; i < crowd; ++i) {
    held.push_back(granted(party("p" + std::to_string(i)).acquire("u" + std::to_string(i))));
  }
  std::vector<Member> ring;
  for (std::size_t i = 0; i < crowd; ++i) {
    Party& who = party("p" + std::to_string(i));
    ring.push_back({&who, held[i], who.acquire("u" + std::to_string((i + 1) % crowd))});
    if (i + 1 < crowd) blocked(ring.back().asks);
  }
  Outcome refusal;
  victim(ring, refusal);
}

TEST_P(Deadlock, through_ancestors_and_descendants) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome of_alice = granted(alice.acquire("u1/a1/r1"));
  const Outcome of_bob = granted(bob.acquire("u2"));
  std::vector<Member> ring;
  ring.push_back({&alice, of_alice, alice.acquire("u2/a1/r1")});
  blocked(ring[0].asks, "u2");
  ring.push_back({&bob, of_bob, bob.acquire("u1")});
  Outcome refusal;
  victim(ring, refusal);
}

TEST_P(Deadlock, through_two_readers_of_one_target) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome of_alice = granted(alice.acquire(shared("u1/a1/r1")));
  const Outcome of_bob = granted(bob.acquire(shared("u1/a1/r2")));
  std::vector<Member> ring;
  ring.push_back({&alice, of_alice, alice.acquire("u1/a1/r2")});
  blocked(ring[0].asks, "u1/a1/r2");
  ring.push_back({&bob, of_bob, bob.acquire("u1/a1/r1")});
  Outcome refusal;
  victim(ring, refusal);
}

TEST_P(Deadlock, through_one_of_several_readers) {
  Party &alice = party("alice"), &bob = party("bob"), &reader = party("reader");
  granted(reader.acquire(shared("u1/a1/r1")));
  granted(alice.acquire(shared("u1/a1/r1")));
  const Outcome of_bob = granted(bob.acquire("u2"));
  Pending alice_asks = alice.acquire("u2");
  blocked(alice_asks, "u2");
  // Bob waits for both readers; that one of them could go on does not help, the other never will.
  Pending bob_asks = bob.acquire("u1/a1/r1");
  eventually([&] { return alice_asks.ready() || bob_asks.ready(); });
  if (can().deadlock_at_once || bob_asks.ready()) {
    refused(bob_asks, ErrorKind::deadlock);
    bob.release(of_bob);
    granted(alice_asks);
  } else {
    refused(alice_asks, ErrorKind::deadlock);
  }
}

TEST_P(Deadlock, through_the_queue) {
  HIERLOCK_NEEDS(fifo);
  if (table().holders_first())
    HIERLOCK_NOT_APPLICABLE() << "carol holds a lock, so she does not stand behind the writer";
  // Carol could share with the reader, but stands behind the writer, who waits for the reader, who waits for carol.
  Party &reader = party("reader"), &writer = party("writer"), &carol = party("carol");
  const Outcome reading = granted(reader.acquire(shared("u1/a1/r1")));
  const Outcome of_carol = granted(carol.acquire("u2"));
  Pending write = writer.acquire("u1/a1/r1");
  blocked(write, "u1/a1/r1");
  Pending carol_asks = carol.acquire(shared("u1/a1/r1"));
  blocked(carol_asks, "u1/a1/r1");
  Pending reader_asks = reader.acquire("u2");
  eventually([&] { return reader_asks.ready() || carol_asks.ready() || write.ready(); });
  if (can().deadlock_at_once) {
    const Outcome refusal = refused(reader_asks, ErrorKind::deadlock);
    EXPECT_FALSE(carol_asks.ready());
    EXPECT_FALSE(write.ready());
    reader.release(reading);
    const Outcome written = granted(write);
    writer.release(written);
    granted(carol_asks);
  } else {
    const int victims = (reader_asks.ready() ? 1 : 0) + (carol_asks.ready() ? 1 : 0) + (write.ready() ? 1 : 0);
    EXPECT_EQ(victims, 1);
  }
}

TEST_P(Deadlock, asking_for_what_this_owner_already_holds) {
  Party& alice = party("alice");
  const Outcome first = granted(alice.acquire("u1/a1"));
  const std::string name = owner_name(alice);
  for (const char* target : {"u1/a1", "u1", "u1/a1/r1"}) {
    const Outcome refusal = refused(alice.acquire(target), ErrorKind::deadlock);
    EXPECT_TRUE(says(refusal.message, name)) << refusal.message;
    EXPECT_TRUE(says(refusal.message, target)) << "what is asked for: " << refusal.message;
    EXPECT_TRUE(says(refusal.message, "u1/a1")) << "what is held: " << refusal.message;
    // Without waiting, too: trying again could never succeed.
    refused(alice.acquire(target, {.timeout = 0ns}), ErrorKind::deadlock);
    refused(alice.try_acquire(target), ErrorKind::deadlock);
  }
  EXPECT_TRUE(alice.holds(first));
  EXPECT_TRUE(waits_of(alice).empty()) << state();
}

TEST_P(Deadlock, asking_exclusively_for_what_this_owner_holds_shared) {
  Party& alice = party("alice");
  const Outcome first = granted(alice.acquire(shared("u1/a1/r1")));
  refused(alice.acquire("u1/a1/r1"), ErrorKind::deadlock);
  refused(alice.acquire("u1/a1"), ErrorKind::deadlock);
  granted(alice.acquire(shared("u1/a1/r1")));
  EXPECT_TRUE(alice.holds(first));
}

TEST_P(Deadlock, asking_for_what_this_owner_holds_while_others_hold_it_too) {
  Party &alice = party("alice"), &bob = party("bob");
  granted(bob.acquire(shared("u1/a1/r1")));
  granted(alice.acquire(shared("u1/a1/r1")));
  refused(alice.acquire("u1/a1/r1"), ErrorKind::deadlock);
}

TEST_P(Deadlock, two_waits_of_one_owner_are_waits_of_one) {
  // Task 1 waits for u2 on one thread; asking on another thread for what a waiter behind it holds closes the cycle.
  Party &one = thread("one"), &two = thread("two"), &bob = thread("bob");
  const Owner task = locker().owner("task");
  const Outcome of_task = granted(one.acquire("u1", {.owner = &task}));
  const Outcome of_bob = granted(bob.acquire("u2"));
  Pending first_wait = one.acquire("u2", {.owner = &task});
  blocked(first_wait, "u2");
  Pending bob_asks = bob.acquire("u1");
  refused(bob_asks, ErrorKind::deadlock);
  // The other thread of the task is not stuck yet, and may release.
  two.release(granted(two.acquire("u3", {.owner = &task})));
  bob.release(of_bob);
  granted(first_wait);
  one.release(of_task);
}

TEST_P(Deadlock, a_timed_wait_that_would_never_end_fails_at_once_too) {
  HIERLOCK_NEEDS(deadlock_at_once);
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire("u1"));
  const Outcome of_bob = granted(bob.acquire("u2"));
  Pending alice_asks = alice.acquire("u2", {.timeout = 1h});
  blocked(alice_asks, "u2");
  const Outcome refusal = refused(bob.try_acquire("u1", 1h), ErrorKind::deadlock);
  EXPECT_LT(refusal.took, late_bound);
  bob.release(of_bob);
  granted(alice_asks);
}

TEST_P(Deadlock, zero_wait_is_busy_and_closes_no_cycle) {
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire("u1"));
  const Outcome of_bob = granted(bob.acquire("u2"));
  Pending alice_asks = alice.acquire("u2");
  blocked(alice_asks, "u2");
  refused(bob.try_acquire("u1"), ErrorKind::busy);
  refused(bob.acquire("u1", {.timeout = 0ns}), ErrorKind::busy);
  bob.release(of_bob);
  granted(alice_asks);
}

TEST_P(Deadlock, a_chain_without_a_cycle_is_none) {
  Party& first = party("p0");
  const Outcome head = granted(first.acquire("u0"));
  std::vector<Outcome> held;
  std::vector<Pending> chain;
  for (int i = 1; i < 8; ++i) {
    Party& who = party("p" + std::to_string(i));
    held.push_back(granted(who.acquire("u" + std::to_string(i))));
    chain.push_back(who.acquire("u" + std::to_string(i - 1)));
    blocked(chain.back());
  }
  first.release(head);
  for (std::size_t i = 0; i < chain.size(); ++i) {
    chain[i].by->release(granted(chain[i]));
    chain[i].by->release(held[i]);
  }
  EXPECT_EQ(locker().stats().total().deadlocks, 0u);
}

TEST_P(Deadlock, the_victim_may_try_again_and_succeed) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome of_alice = granted(alice.acquire("u1"));
  const Outcome of_bob = granted(bob.acquire("u2"));
  Pending alice_asks = alice.acquire("u2");
  blocked(alice_asks, "u2");
  Pending bob_asks = bob.acquire("u1");
  eventually([&] { return alice_asks.ready() || bob_asks.ready(); });
  const bool bob_fails = bob_asks.ready();  // a store may choose either
  Party &victim = bob_fails ? bob : alice, &other = bob_fails ? alice : bob;
  refused(bob_fails ? bob_asks : alice_asks, ErrorKind::deadlock);
  victim.release(bob_fails ? of_bob : of_alice);
  const Outcome second = granted(bob_fails ? alice_asks : bob_asks);
  Pending again = victim.acquire_all({"u1", "u2"});
  blocked(again);
  other.release(bob_fails ? of_alice : of_bob);
  other.release(second);
  granted(again);
}

TEST_P(Deadlock, between_many_threads_that_lock_in_random_order_somebody_always_gets_on) {
  // Four owners take two of three locks, one by one, in rotating orders: cycles all the time, and never a stand-still.
  constexpr int rounds = 100;
  std::atomic<int> done = 0;
  std::vector<std::future<int>> workers;
  Locker& all = locker();
  for (int worker = 0; worker < 4; ++worker) {
    workers.push_back(std::async(std::launch::async, [&all, &done, worker] {
      int deadlocks = 0;
      for (int round = 0; round < rounds; ++round) {
        const std::string first = "u" + std::to_string((worker + round) % 3);
        const std::string second = "u" + std::to_string((worker * 2 + round + 1 + round % 2) % 3);
        if (first == second) continue;
        for (bool through = false; !through;) {
          try {
            const Lock one = all.acquire(first);
            const Lock two = all.acquire(second);
            through = true;
          } catch (const Error& error) {
            if (error.kind() != ErrorKind::deadlock) throw;
            ++deadlocks;
          }
        }
        ++done;
      }
      return deadlocks;
    }));
  }
  std::uint64_t deadlocks = 0;
  for (std::future<int>& worker : workers) deadlocks += static_cast<std::uint64_t>(worker.get());
  EXPECT_GT(done.load(), 0);
  EXPECT_EQ(all.stats().total().deadlocks, deadlocks);
  EXPECT_TRUE(nothing_left()) << state();
}

HIERLOCK_ON_EVERY_BACKEND(Deadlock);

}  // namespace
}  // namespace hierlock::conformance
