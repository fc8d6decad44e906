// Many threads, random requests, and a witness outside the store that knows who may be inside with whom.
//
// The witness is written in plain, unguarded variables on purpose: the locks are all that protects them. A lock that
// excludes too little shows as a wrong value here, or as a data race under ThreadSanitizer.
//
// HIERLOCK_SEED repeats a run (as far as threads allow), HIERLOCK_STEPS sets the steps of each thread.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

constexpr std::uint32_t slot_count = 2;

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10) : otherwise;
}

// The smallest things that can be locked: 8 resources and 2 names. A lock on a path is a lock on all leaves below it.
constexpr std::size_t resources = 8, names = 2, leaf_count = resources + names;

struct Leaf {
  // Written by the exclusive holder, read by whoever is inside.
  std::uint64_t value = 0;
  std::int64_t writer_fence = 0;
  int writer = 0;  // who is inside exclusively; 0: nobody
  // Written by readers as well.
  std::atomic<int> readers = 0;
  std::atomic<std::int64_t> reader_fence = 0;
};

class Witness {
 public:
  std::array<Leaf, leaf_count> leaves;
  std::atomic<std::uint32_t> slots_taken = 0;
  std::atomic<bool> failed = false;

  void complain(const std::string& what) {
    const std::scoped_lock guard(mutex_);
    failed = true;
    if (++complaints_ <= 10) text_ += what + "\n";
  }
  std::string text() {
    const std::scoped_lock guard(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  int complaints_ = 0;
  std::string text_;
};

// What a request covers.
struct Cover {
  std::map<std::size_t, bool> leaves{};  // leaf, and whether exclusively
  std::uint32_t slots = 0;

  void add(const Cover& more) {
    for (const auto& [leaf, exclusive] : more.leaves) leaves[leaf] = leaves[leaf] || exclusive;
    slots = std::max(slots, more.slots);  // one lock holds at most one slot of a name
  }
};

struct Wish {
  std::vector<Target> targets;
  Cover cover;
};

class Actor {
 public:
  Actor(Locker& locker, const Capabilities& can, Witness& witness, int number, std::uint64_t seed)
      : locker_(locker), can_(can), witness_(witness), number_(number), random_(seed) {
    if (number % 2 == 0) owner_.emplace(locker.owner("actor " + std::to_string(number)));
  }

  std::array<std::uint64_t, leaf_count> written{};
  std::uint64_t grants = 0;
  std::array<std::uint64_t, error_kind_count> failures{};

  void run(std::uint64_t steps) {
    for (std::uint64_t step = 0; step < steps && !witness_.failed; ++step) {
      const std::uint64_t choice = below(10);
      if (held_.empty() || (choice < 4 && held_.size() < 3)) {
        acquire();
      } else if (choice < 6 && can_.extends) {
        extend(below(held_.size()));
      } else if (choice < 7) {
        linger(held_[below(held_.size())]);
      } else {
        release(below(held_.size()));
      }
    }
    while (!held_.empty()) release(held_.size() - 1);
  }

 private:
  struct Held {
    Lock lock;
    Cover cover;
    std::map<std::size_t, std::uint64_t> seen{};  // the value of each leaf, as it was left or found
  };

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  // Of the kinds and in the modes that the store has.
  Target one(Cover& cover) {
    const bool exclusive = below(3) != 0;
    const std::uint64_t kind = below(20);
    if (kind == 0 && can_.slots) {
      cover.slots = 1;
      return slots("s", slot_count);
    }
    if (kind < 3 && can_.names && (exclusive || can_.shared_names)) {
      const std::size_t name = below(names);
      const Target target = named("n" + std::to_string(name));
      cover.add({{{resources + name, exclusive}}});
      return exclusive ? target : shared(target);
    }
    const std::uint64_t user = below(2), account = below(2), resource = below(2);
    std::string path = "u" + std::to_string(user);
    std::size_t first = user * 4, count = 4;
    // Mostly resources, sometimes an account or a user. A store that shares only at the deepest level has three.
    const std::uint64_t depth = exclusive || can_.shared_inner ? below(8) : 3;
    if (depth > 0) {
      path += "/a" + std::to_string(account);
      first += account * 2;
      count = 2;
    }
    if (depth > 2) {
      path += "/r" + std::to_string(resource);
      first += resource;
      count = 1;
    }
    for (std::size_t leaf = first; leaf < first + count; ++leaf) cover.add({{{leaf, exclusive}}});
    return exclusive ? Target(path) : shared(path);
  }

  AcquireOptions options() {
    AcquireOptions result;
    const std::uint64_t choice = below(10);
    if (choice < 3) result.timeout = std::chrono::nanoseconds(0);
    if (choice >= 3 && choice < 6) result.timeout = std::chrono::microseconds(below(800));
    if (owner_) result.owner = &*owner_;
    return result;
  }

  void acquire() {
    Wish wish;
    const std::uint64_t many = below(4) == 0 ? 1 + below(4) : 1;
    for (std::uint64_t i = 0; i < many; ++i) wish.targets.push_back(one(wish.cover));
    try {
      Lock lock = wish.targets.size() == 1 ? locker_.acquire(wish.targets[0], options())
                                           : locker_.acquire(wish.targets, options());
      ++grants;
      held_.push_back({std::move(lock), wish.cover});
      enter(held_.back(), true);
    } catch (const Error& error) {
      failed(error);
    }
  }

  void extend(std::size_t index) {
    Held& held = held_[index];
    Cover more;
    const Target target = one(more);
    // A deadlock releases the whole lock, so the witness must be told first. What was held exclusively must look the
    // same afterwards, however long the wait was.
    leave(held);
    const std::int64_t before = held.lock.fence();
    try {
      held.lock.extend(target, options());
      ++grants;
      if (held.lock.fence() <= before) complain("extend did not raise the fence");
      unchanged(held);
      held.cover.add(more);
      enter(held, true);
    } catch (const Error& error) {
      failed(error);
      if (error.kind() == ErrorKind::deadlock) {
        if (held.lock.held()) complain("a deadlock in extend kept the lock");
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(index));
        return;
      }
      if (!held.lock.held() || held.lock.fence() != before) complain("a failed extend changed the lock");
      unchanged(held);
      enter(held, false);
    }
  }

  void release(std::size_t index) {
    leave(held_[index]);
    held_[index].lock.release();
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void linger(Held& held) {
    for (const auto& [leaf, exclusive] : held.cover.leaves) {
      if (exclusive) held.seen[leaf] = ++witness_.leaves[leaf].value, ++written[leaf];
    }
    std::this_thread::yield();
    unchanged(held);
  }

  void enter(Held& held, bool fresh) {
    const std::int64_t fence = held.lock.fence();
    for (const auto& [index, exclusive] : held.cover.leaves) {
      Leaf& leaf = witness_.leaves[index];
      if (leaf.writer != 0) complain("entered leaf " + std::to_string(index) + " beside writer", leaf.writer);
      if (fresh && fence <= leaf.writer_fence) complain("fence not above the last writer's");
      if (exclusive) {
        if (leaf.readers != 0) complain("a writer entered leaf " + std::to_string(index) + " beside a reader");
        if (fresh && fence <= leaf.reader_fence) complain("fence not above the last reader's");
        leaf.writer = number_ + 1;
        leaf.writer_fence = fence;
        ++leaf.value;
        ++written[index];
      } else {
        ++leaf.readers;
        for (std::int64_t seen = leaf.reader_fence;
             seen < fence && !leaf.reader_fence.compare_exchange_weak(seen, fence);) {
        }
      }
      held.seen[index] = leaf.value;
    }
    if (held.cover.slots != 0 && ++witness_.slots_taken > slot_count) complain("more slots taken than there are");
  }

  void leave(Held& held) {
    unchanged(held);
    for (const auto& [index, exclusive] : held.cover.leaves) {
      Leaf& leaf = witness_.leaves[index];
      if (exclusive) {
        if (leaf.writer != number_ + 1) complain("somebody took leaf " + std::to_string(index), leaf.writer);
        leaf.writer = 0;
      } else {
        --leaf.readers;
      }
    }
    if (held.cover.slots != 0) --witness_.slots_taken;
  }

  void unchanged(const Held& held) {
    for (const auto& [index, value] : held.seen) {
      if (witness_.leaves[index].value != value) complain("leaf " + std::to_string(index) + " was written meanwhile");
    }
  }

  void failed(const Error& error) {
    ++failures[static_cast<std::size_t>(error.kind())];
    const bool expected =
        error.kind() == ErrorKind::timeout || error.kind() == ErrorKind::busy || error.kind() == ErrorKind::deadlock;
    if (!expected) complain(std::string("unexpected ") + error.what());
  }

  void complain(const std::string& what, int about = 0) {
    witness_.complain("actor " + std::to_string(number_) + ": " + what +
                      (about == 0 ? "" : " (actor " + std::to_string(about - 1) + ")"));
  }

  Locker& locker_;
  const Capabilities& can_;
  Witness& witness_;
  const int number_;
  std::mt19937_64 random_;
  std::optional<Owner> owner_;
  std::vector<Held> held_;
};

class Random : public Conformance {};

TEST_P(Random, nobody_is_ever_inside_with_somebody_it_excludes) {
  constexpr int actor_count = 8;
  const std::uint64_t seed = number_from_environment("HIERLOCK_SEED", std::random_device{}());
  const std::uint64_t steps =
      number_from_environment("HIERLOCK_STEPS", (can().across_machines ? 2'000 : 10'000) / slowness);
  std::cout << "HIERLOCK_SEED=" << seed << " HIERLOCK_STEPS=" << steps << std::endl;
  RecordProperty("seed", std::to_string(seed));

  Witness witness;
  Locker& all = locker();
  std::vector<std::unique_ptr<Actor>> actors;
  for (int number = 0; number < actor_count; ++number) {
    actors.push_back(std::make_unique<Actor>(all, can(), witness, number, seed + static_cast<std::uint64_t>(number)));
  }
  std::vector<std::thread> threads;
  for (const auto& actor : actors) threads.emplace_back([&] { actor->run(steps); });
  for (std::thread& thread : threads) thread.join();

  ASSERT_EQ(witness.text(), "") << "with HIERLOCK_SEED=" << seed;
  std::uint64_t grants = 0;
  std::array<std::uint64_t, error_kind_count> failures{};
  std::array<std::uint64_t, leaf_count> written{};
  for (const auto& actor : actors) {
    grants += actor->grants;
    for (std::size_t kind = 0; kind < failures.size(); ++kind) failures[kind] += actor->failures[kind];
    for (std::size_t leaf = 0; leaf < leaf_count; ++leaf) written[leaf] += actor->written[leaf];
  }
  for (std::size_t leaf = 0; leaf < leaf_count; ++leaf) {
    EXPECT_EQ(witness.leaves[leaf].value, written[leaf]) << "lost writes at leaf " << leaf;
    EXPECT_EQ(witness.leaves[leaf].readers, 0);
  }
  const Stats stats = all.stats();
  EXPECT_EQ(stats.total().grants, grants);
  EXPECT_EQ(stats.failures, failures);
  EXPECT_EQ(stats.total().deadlocks, failures[static_cast<std::size_t>(ErrorKind::deadlock)]);
  EXPECT_GT(grants, 0u);
  EXPECT_TRUE(nothing_left()) << state();
}

HIERLOCK_ON_EVERY_BACKEND(Random);

}  // namespace
}  // namespace hierlock::conformance
