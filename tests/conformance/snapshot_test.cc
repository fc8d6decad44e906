// Snapshot: who holds what, who waits for whom (B7).
#include <unistd.h>

#include <algorithm>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Snapshots : public Conformance {};

TEST_P(Snapshots, an_unused_store_is_empty) {
  ASSERT_TRUE(nothing_left()) << "processes of other tests may be about to end\n" << state();
  const Snapshot now = locker().snapshot();
  EXPECT_TRUE(now.holders.empty());
  EXPECT_TRUE(now.waiters.empty());
  EXPECT_FALSE(now.anybody_waits());
  EXPECT_FALSE(now.store.empty());
}

TEST_P(Snapshots, a_holder_is_shown_with_all_it_holds) {
  Party& alice = thread("alice");
  const Outcome lock = granted(alice.acquire_all({"u1/a1", apart("n")}));
  const std::vector<Snapshot::Holder> held = held_by(alice);
  ASSERT_EQ(held.size(), 3u) << state();
  for (const Snapshot::Holder& h : held) {
    EXPECT_EQ(h.fence, lock.fence);
    EXPECT_EQ(h.who.owner, held[0].who.owner);
    EXPECT_NE(h.who.owner, 0u);
    EXPECT_FALSE(h.who.owner_name.empty());
    EXPECT_EQ(h.who.process, ::getpid());
    EXPECT_EQ(h.who.note, "alice");
    EXPECT_EQ(h.asked, h.target != "u1");
    EXPECT_GE(h.age, 0ns);
    EXPECT_LT(h.age, patience);
  }
}

TEST_P(Snapshots, holders_are_sorted_by_target_and_owner) {
  for (const char* name : {"c", "a", "b"}) {
    granted(party(name).acquire(std::string("u1/") + name));
    granted(party(name).acquire(apart(name)));
  }
  const std::vector<Snapshot::Holder> held = locker().snapshot().holders;
  ASSERT_EQ(held.size(), 9u) << state();
  EXPECT_TRUE(std::is_sorted(held.begin(), held.end(), [](const Snapshot::Holder& a, const Snapshot::Holder& b) {
    return std::tie(a.target, a.who.owner) < std::tie(b.target, b.who.owner);
  })) << state();
}

TEST_P(Snapshots, a_waiter_is_shown_with_whom_it_waits_for) {
  Party &alice = party("alice"), &bob = party("bob"), &carol = party("carol");
  granted(alice.acquire(shared("u1/a1/r1")));
  granted(bob.acquire(shared("u1/a1/r1")));
  Pending asked = carol.acquire_all({"u1/a1/r1", "u2"});
  Snapshot::Waiter waiter = blocked(asked, "u1/a1/r1");
  EXPECT_EQ(waiter.mode, Mode::X);
  EXPECT_GE(waiter.age, 0ns);
  EXPECT_LT(waiter.age, patience);
  EXPECT_NE(waiter.wanted.find("u1/a1/r1"), std::string::npos) << waiter.wanted;
  EXPECT_NE(waiter.wanted.find("u2"), std::string::npos) << "the whole request: " << waiter.wanted;
  std::vector<std::uint64_t> expected = {owner_number(alice), owner_number(bob)};
  std::sort(expected.begin(), expected.end());
  std::sort(waiter.blocked_by.begin(), waiter.blocked_by.end());
  EXPECT_EQ(waiter.blocked_by, expected) << state();
  const Snapshot now = locker().snapshot();
  EXPECT_TRUE(now.anybody_waits());
  EXPECT_TRUE(now.anybody_waits("u1/a1/r1"));
  EXPECT_FALSE(now.anybody_waits("u1/a1/r2"));
}

TEST_P(Snapshots, waiters_are_listed_in_the_order_of_their_queue) {
  HIERLOCK_NEEDS(fifo);
  granted(party("holder").acquire("u1"));
  std::vector<Pending> queue;
  for (const char* name : {"third", "first", "second"}) {
    queue.push_back(party(name).acquire("u1"));
    blocked(queue.back(), "u1");
  }
  const std::vector<Snapshot::Waiter> waiting = locker().snapshot().waiters;
  ASSERT_EQ(waiting.size(), 3u) << state();
  EXPECT_EQ(waiting[0].who.note, "third");
  EXPECT_EQ(waiting[1].who.note, "first");
  EXPECT_EQ(waiting[2].who.note, "second");
}

TEST_P(Snapshots, notes_and_names_are_cut_at_255_bytes) {
  const std::string long_text(1000, 'n');
  const Owner owner = locker().owner(long_text);
  const Lock lock = locker().acquire("u1", {.owner = &owner, .note = long_text});
  const std::vector<Snapshot::Holder> held = locker().snapshot().holders;
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].who.owner_name, std::string(255, 'n'));
  EXPECT_EQ(held[0].who.note, std::string(255, 'n'));
}

TEST_P(Snapshots, hostile_text_in_notes_and_names_is_carried_as_it_is) {
  const std::string hostile = "a\nb\t\"'\\%s%n;--";
  const Owner owner = locker().owner(hostile);
  const Lock lock = locker().acquire("u1", {.owner = &owner, .note = hostile});
  const std::vector<Snapshot::Holder> held = locker().snapshot().holders;
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].who.owner_name, hostile);
  EXPECT_EQ(held[0].who.note, hostile);
}

TEST_P(Snapshots, targets_are_shown_as_their_text) {
  Party& alice = party("alice");
  granted(alice.acquire(Target::path({"u/1", "50%"})));
  const Target other = apart("a \"quoted\" name");
  granted(alice.acquire(other));
  for (const Snapshot::Holder& h : held_by(alice)) {
    if (!h.asked) continue;
    const Target again = Target::parse(h.target);
    EXPECT_TRUE(again == Target::path({"u/1", "50%"}) || again == other) << h.target;
  }
}

TEST_P(Snapshots, every_entry_was_true_at_some_moment_while_everybody_moves) {
  // Each worker signs with its number, and under u1 takes only what bears that number; so every entry can be checked.
  ASSERT_TRUE(nothing_left()) << "processes of other tests may be about to end\n" << state();
  Locker& all = locker();
  std::atomic<bool> over = false;
  std::vector<std::future<void>> workers;
  for (int worker = 0; worker < 4; ++worker) {
    workers.push_back(std::async(std::launch::async, [&all, &over, worker] {
      const std::string sign = "w" + std::to_string(worker);
      for (int round = 0; !over; ++round) {
        const std::string target = round % 8 == 0 ? "u1" : "u1/" + sign + "/r" + std::to_string(round % 5);
        const Owner owner = all.owner(sign);
        const std::optional<Lock> lock = all.try_acquire(target, 1ms, {.owner = &owner, .note = sign});
      }
    }));
  }
  // A server's views are slower than a table in memory.
  const std::size_t enough = (all.capabilities().across_machines ? 1'000 : 10'000) / slowness;
  std::size_t seen = 0;
  const auto deadline = Clock::now() + patience;
  while (seen < enough && Clock::now() < deadline && !testing::Test::HasFailure()) {
    const Snapshot now = all.snapshot();
    const auto check = [&](const Snapshot::Party& who, const std::string& target) {
      ++seen;
      EXPECT_TRUE(target == "u1" || target.starts_with("u1/w")) << target;
      EXPECT_EQ(who.note, who.owner_name) << "at " << target << "\n" << describe(now);
      if (target.starts_with("u1/")) {
        EXPECT_EQ(target.substr(3, 2), who.owner_name) << "at " << target << "\n" << describe(now);
      }
    };
    for (const Snapshot::Holder& h : now.holders) check(h.who, h.target);
    for (const Snapshot::Waiter& w : now.waiters) check(w.who, w.target);
  }
  over = true;
  for (std::future<void>& worker : workers) worker.get();
  EXPECT_GE(seen, enough);
  EXPECT_TRUE(nothing_left()) << state();
}

HIERLOCK_ON_EVERY_BACKEND(Snapshots);

}  // namespace
}  // namespace hierlock::conformance
