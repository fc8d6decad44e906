// The reduction against one so naive that one can see it is right, on many random wait graphs.
#include "engine/reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace hierlock::engine {
namespace {

using Wait = Reduction::Wait;
using Hold = Reduction::Hold;

struct OwnedHold {
  Index owner;
  Hold hold;
};

// Who waits for what, and who holds what, in plain lists.
struct Scene {
  std::vector<Wait> waits;
  std::vector<OwnedHold> holds;
  std::map<Index, std::uint64_t> slots;  // by node; others have modes

  std::uint64_t slots_of(Index node) const {
    const auto at = slots.find(node);
    return at == slots.end() ? 0 : at->second;
  }
};

// The sentences at the top of reduction.cc, read aloud until nothing changes. Every edge is looked at every time.
std::set<Index> naive_stuck(const Scene& scene) {
  std::set<Index> stuck;
  for (const Wait& wait : scene.waits) stuck.insert(wait.waiter);
  const auto owner_stuck = [&](Index owner) {
    return std::any_of(scene.waits.begin(), scene.waits.end(),
                       [&](const Wait& w) { return w.owner == owner && stuck.contains(w.waiter); });
  };
  const auto can_end = [&](const Wait& wait) {
    const std::uint64_t slots = scene.slots_of(wait.node);
    std::uint64_t in_the_way = 0;
    for (const auto& [owner, hold] : scene.holds) {
      if (hold.node != wait.node || !owner_stuck(owner)) continue;
      if (slots != 0 || (hold.record != wait.record && !compatible(hold.mode, wait.mode))) ++in_the_way;
    }
    for (const Wait& other : scene.waits) {
      if (other.node != wait.node || other.key >= wait.key || !owner_stuck(other.owner)) continue;
      if (slots != 0 || !compatible(other.mode, wait.mode)) ++in_the_way;
    }
    return slots != 0 ? in_the_way < slots : in_the_way == 0;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const Wait& wait : scene.waits) {
      if (!stuck.contains(wait.waiter) || !can_end(wait)) continue;
      stuck.erase(wait.waiter);
      changed = true;
    }
  }
  return stuck;
}

// Reaches the owners given, or all if there are none.
Reduction reduced(const Scene& scene, const std::vector<Index>& owners = {}) {
  Reduction reduction;
  for (const Wait& wait : scene.waits) reduction.add(wait, scene.slots_of(wait.node));
  reduction.arrange();
  const auto holds_of = [&](Index owner, const auto& f) {
    for (const OwnedHold& held : scene.holds) {
      if (held.owner == owner) f(held.hold);
    }
  };
  for (const Index owner : owners) reduction.reach(owner, holds_of);
  if (owners.empty()) {
    for (const Wait& wait : scene.waits) reduction.reach(wait.owner, holds_of);
  }
  reduction.reduce();
  return reduction;
}

std::set<Index> stuck(const Reduction& reduction) {
  const std::vector<Index> waiters = reduction.stuck();
  return {waiters.begin(), waiters.end()};
}

// A walk from each stuck wait leads from one stuck wait to another, each time for a reason that the scene knows.
void expect_reasons(const Scene& scene, Reduction& reduction, const std::set<Index>& stuck_waits) {
  for (const Wait& wait : scene.waits) {
    if (!stuck_waits.contains(wait.waiter)) continue;
    const auto self = reduction.stuck_of(wait.owner, wait.waiter);
    ASSERT_TRUE(self.has_value());
    ASSERT_EQ(self->wait->waiter, wait.waiter);
    const auto next = reduction.next_of(*self->wait);
    ASSERT_TRUE(next.has_value());
    ASSERT_TRUE(stuck_waits.contains(next->wait->waiter));
    const bool slots = scene.slots_of(wait.node) != 0;
    const bool holds = std::any_of(scene.holds.begin(), scene.holds.end(), [&](const OwnedHold& held) {
      return held.owner == next->wait->owner && held.hold.node == wait.node &&
             (slots || (held.hold.record != wait.record && !compatible(held.hold.mode, wait.mode)));
    });
    const bool before = std::any_of(scene.waits.begin(), scene.waits.end(), [&](const Wait& other) {
      return other.owner == next->wait->owner && other.node == wait.node && other.key < wait.key &&
             (slots || !compatible(other.mode, wait.mode));
    });
    ASSERT_TRUE(next->by_hold ? holds : before);
  }
}

std::uint64_t seed() {
  const char* const text = std::getenv("HIERLOCK_SEED");
  const std::uint64_t value = text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
  std::printf("HIERLOCK_SEED=%llu\n", static_cast<unsigned long long>(value));
  return value;
}

// Makes scenes: a few owners, some with several waits, a few nodes, some of them slots. A record belongs to one owner,
// holds a node at most once and waits at most once; if it waits for a node that it holds, it wants X, as tables do.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) { renew(); }

  void renew() {
    owners_ = 2 + below(7);
    nodes_ = 1 + below(6);
    next_ = 1;
    scene = {};
    for (Index node = 1; node <= nodes_; ++node) {
      if (below(4) == 0) scene.slots[node] = 1 + below(3);
    }
  }
  Index owner() { return 1 + below(owners_); }
  std::uint32_t below(std::uint32_t end) { return std::uniform_int_distribution<std::uint32_t>(0, end - 1)(random_); }

  // A hold of a new record, or of one that the owner has.
  void hold(Index owner) {
    const Index node = 1 + below(nodes_);
    const Index record = some_record(owner);
    for (const OwnedHold& held : scene.holds) {
      if (held.hold.record == record && held.hold.node == node) return;
    }
    if (waits_at(record, node)) return;
    scene.holds.push_back({owner, {record, node, scene.slots_of(node) != 0 ? Mode::X : mode()}});
  }
  void wait(Index owner) {
    const Index node = 1 + below(nodes_);
    const Index record = below(3) == 0 ? some_record(owner) : ++next_;
    for (const Wait& wait : scene.waits) {
      if (wait.record == record) return;
    }
    Mode wanted = scene.slots_of(node) != 0 ? Mode::X : mode();
    bool here = false;
    for (const auto& [other, held] : scene.holds) {
      if (held.node != node || other != owner) continue;
      here = true;
      if (held.record != record) continue;
      if (scene.slots_of(node) != 0 || covers(held.mode, wanted)) return;
      wanted = strongest(held.mode, wanted);
    }
    const QueueKey ticket = ++next_;
    const bool first = here && scene.slots_of(node) == 0;
    scene.waits.push_back({++next_, owner, node, record, wanted, first ? ticket : newcomer | ticket});
  }

  Scene scene;

 private:
  Mode mode() { return all_modes[below(4)]; }
  bool waits_at(Index record, Index node) const {
    return std::any_of(scene.waits.begin(), scene.waits.end(),
                       [&](const Wait& w) { return w.record == record && w.node == node; });
  }
  Index some_record(Index owner) {
    std::vector<Index> records{++next_};
    for (const OwnedHold& held : scene.holds) {
      if (held.owner == owner) records.push_back(held.hold.record);
    }
    return records[below(static_cast<std::uint32_t>(records.size()))];
  }

  std::mt19937_64 random_;
  std::uint32_t owners_ = 0, nodes_ = 0;
  Index next_ = 1;
};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int scenes = 2'000;
#else
constexpr int scenes = 20'000;
#endif

TEST(Reduction, finds_the_waits_that_a_naive_one_finds) {  // B11
  Dice dice(seed());
  std::size_t with_deadlock = 0;
  for (int n = 0; n < scenes; ++n) {
    dice.renew();
    for (std::uint32_t steps = dice.below(24); steps > 0; --steps) {
      dice.below(2) == 0 ? dice.hold(dice.owner()) : dice.wait(dice.owner());
    }
    std::shuffle(dice.scene.waits.begin(), dice.scene.waits.end(), std::mt19937_64(dice.below(1'000'000)));
    const std::set<Index> expected = naive_stuck(dice.scene);
    Reduction reduction = reduced(dice.scene);
    ASSERT_EQ(stuck(reduction), expected) << "scene " << n;
    expect_reasons(dice.scene, reduction, expected);
    ASSERT_FALSE(HasFatalFailure()) << "scene " << n;
    if (!expected.empty()) ++with_deadlock;
  }
  EXPECT_GT(with_deadlock, static_cast<std::size_t>(scenes / 10));
  EXPECT_LT(with_deadlock, static_cast<std::size_t>(scenes * 9 / 10));
}

// As the table does it: one change at a time, taken back if it closes a cycle. Whoever makes the change is reached, and
// that must be enough.
TEST(Reduction, needs_to_reach_only_the_owner_that_changed) {  // B11
  Dice dice(seed());
  std::size_t closed = 0, changes = 0;
  for (int n = 0; n < scenes / 10; ++n) {
    dice.renew();
    for (int steps = 0; steps < 40; ++steps) {
      const Scene before = dice.scene;
      const Index owner = dice.owner();
      dice.below(2) == 0 ? dice.hold(owner) : dice.wait(owner);
      const std::set<Index> expected = naive_stuck(dice.scene);
      Reduction reduction = reduced(dice.scene, {owner});
      ASSERT_EQ(stuck(reduction), expected) << "scene " << n << ", step " << steps;
      // Whoever is stuck waits for the one that changed something, and that one is stuck as well.
      ASSERT_EQ(reduction.stuck_of(owner, none).has_value(), !expected.empty());
      expect_reasons(dice.scene, reduction, expected);
      ASSERT_FALSE(HasFatalFailure()) << "scene " << n << ", step " << steps;
      ++changes;
      if (expected.empty()) continue;
      ++closed;
      dice.scene = before;
    }
  }
  EXPECT_GT(closed, changes / 20);
}

// With a list of edges each of these would take minutes and gigabytes.
TEST(Reduction, of_many_waits_takes_linear_time) {  // B12
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr Index many = 20'000;  // each step takes up to fifty times as long
#else
  constexpr Index many = 200'000;
#endif
  Scene queue;  // one queue; the holder waits for nobody
  for (Index i = 1; i <= many; ++i) queue.waits.push_back({i, i, 1, i, i % 3 == 0 ? Mode::X : Mode::S, newcomer | i});
  Scene slots = queue;
  slots.slots[1] = 3;
  Scene ring;  // each holds what the one before it wants
  std::map<Index, Hold> held;
  for (Index i = 1; i <= many; ++i) {
    ring.waits.push_back({i, i, i % many + 1, i, Mode::X, newcomer | i});
    held[i] = {many + i, i, Mode::X};
  }
  const std::clock_t begin = std::clock();  // processor time: the machine may be busy
  EXPECT_TRUE(reduced(queue).stuck().empty());
  EXPECT_TRUE(reduced(slots).stuck().empty());
  Reduction reduction;
  for (const Wait& wait : ring.waits) reduction.add(wait, 0);
  reduction.arrange();
  reduction.reach(1, [&](Index owner, const auto& f) { f(held.at(owner)); });
  reduction.reduce();
  EXPECT_EQ(reduction.stuck().size(), many);
  auto at = reduction.stuck_of(1, 1);
  for (Index i = 1; i <= many && at; ++i) at = reduction.next_of(*at->wait);
  ASSERT_TRUE(at.has_value());
  EXPECT_EQ(at->wait->owner, 1u);
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 20);
}

}  // namespace
}  // namespace hierlock::engine
