// Fences: higher than that of every earlier lock in conflict (B3).
#include <algorithm>
#include <map>
#include <mutex>
#include <random>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Fences : public Conformance {};

TEST_P(Fences, a_fence_is_positive) {
  const Lock lock = locker().acquire("u1");
  EXPECT_GT(lock.fence(), 0);
}

TEST_P(Fences, rise_on_the_same_target_its_ancestors_and_its_descendants) {
  std::int64_t last = 0;
  for (const char* target : {"u1/a1/r1", "u1/a1/r1", "u1/a1", "u1/a1/r2", "u1", "u1/a2/r1", "u1", "u1/a1/r1"}) {
    // By hand-overs between owners, too: each on a thread of its own.
    const std::int64_t fence = elsewhere([&] { return locker().acquire(target).fence(); });
    EXPECT_GT(fence, last) << target;
    last = fence;
  }
}

TEST_P(Fences, rise_by_hand_over_to_a_waiter) {
  Party* holder = &party("p0");
  Outcome held = granted(holder->acquire("u1"));
  for (int i = 1; i < 50; ++i) {
    Party& next = party("p" + std::to_string(i % 2));
    Pending asked = next.acquire("u1");
    blocked(asked, "u1");
    holder->release(held);
    const Outcome got = granted(asked);
    EXPECT_GT(got.fence, held.fence);
    holder = &next;
    held = got;
  }
}

TEST_P(Fences, a_writer_is_higher_than_the_readers_before_it_and_lower_than_those_after_it) {
  Party &r1 = party("r1"), &r2 = party("r2"), &writer = party("writer");
  const Outcome first = granted(r1.acquire(shared("u1/a1/r1")));
  const Outcome second = granted(r2.acquire(shared("u1/a1/r1")));
  r1.release(first);
  r2.release(second);
  const Outcome written = granted(writer.acquire("u1/a1/r1"));
  EXPECT_GT(written.fence, std::max(first.fence, second.fence));
  writer.release(written);
  EXPECT_GT(granted(r1.acquire(shared("u1/a1/r1"))).fence, written.fence);
}

TEST_P(Fences, rise_over_every_pair_in_conflict_even_if_the_first_brought_a_high_one_from_elsewhere) {
  // The first lock gets its fence together with a busy target that has nothing to do with the second lock.
  const auto busy = [&] {
    std::int64_t fence = 0;
    for (int i = 0; i < 100; ++i) fence = locker().acquire("busy").fence();
    return fence;
  };
  Party &alice = party("alice"), &bob = party("bob");
  std::string wrong;
  int pair = 0;
  for (const bool by_extend : {false, true}) {
    for (const bool waiting : {false, true}) {
      for (const char* first_path : {"u", "u/a", "u/a/r"}) {
        for (const char* second_path : {"u", "u/a", "u/a/r"}) {
          for (const bool first_shared : {false, true}) {
            for (const bool second_shared : {false, true}) {
              if (first_shared && second_shared) continue;
              if ((first_shared || second_shared) && !can().shared_inner) continue;
              if (by_extend && !can().extends) continue;
              const std::string root = "p" + std::to_string(++pair);
              const Target first = first_shared ? shared(root + first_path) : Target(root + first_path);
              const Target second = second_shared ? shared(root + second_path) : Target(root + second_path);
              const std::int64_t high = busy();
              Outcome one = granted(by_extend ? alice.acquire(first) : alice.acquire_all({first, "busy"}));
              if (by_extend) one.fence = granted(alice.extend(one, "busy")).fence;
              EXPECT_GT(one.fence, high);
              if (!waiting) alice.release(one);
              Pending asked = bob.acquire(second);
              if (waiting) {
                blocked(asked);
                alice.release(one);
              }
              const Outcome two = granted(asked);
              bob.release(two);
              if (two.fence <= one.fence) {
                wrong += "  " + first.str() + (by_extend ? " extended" : " together") + " with busy, then " +
                         second.str() + (waiting ? " waiting\n" : "\n");
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(wrong, "") << "these did not rise";
}

TEST_P(Fences, one_acquire_of_many_has_one_fence_above_all_earlier_ones) {
  Party& alice = party("alice");
  std::int64_t highest = 0;
  for (const char* target : {"u1/a1", "u2/a2/r2", "u3"}) {
    const Outcome one = granted(alice.acquire(target));
    highest = std::max(highest, one.fence);
    alice.release(one);
  }
  const Outcome all = granted(alice.acquire_all({"u3/a1", "u2", "u1/a1/r1"}));
  EXPECT_GT(all.fence, highest);
  for (const Snapshot::Holder& h : held_by(alice)) EXPECT_EQ(h.fence, all.fence) << state();
}

TEST_P(Fences, names_have_them_too) {
  HIERLOCK_NEEDS(names);
  std::int64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    const Lock lock = locker().acquire(named("n"));
    EXPECT_GT(lock.fence(), last);
    last = lock.fence();
  }
}

TEST_P(Fences, slots_have_them_too) {
  HIERLOCK_NEEDS(slots);
  std::int64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    const Lock lock = locker().acquire(slots("s", 1));
    EXPECT_GT(lock.fence(), last);
    last = lock.fence();
  }
}

TEST_P(Fences, rise_over_the_end_of_a_locker) {  // restarts
  std::int64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    Locker fresh = table().open();
    const Lock lock = fresh.acquire("u1");
    EXPECT_GT(lock.fence(), last);
    last = lock.fence();
  }
}

TEST_P(Fences, rise_over_the_removal_of_idle_state) {
  const std::int64_t before = locker().acquire("u1/a1/r1").fence();
  for (int i = 0; i < 5000; ++i) (void)locker().acquire("u" + std::to_string(i) + "/a/r");
  EXPECT_GT(locker().acquire("u1/a1/r1").fence(), before);
}

TEST_P(Fences, rise_across_any_two_conflicting_grants_of_many_threads) {
  struct Grant {
    std::uint64_t turn;  // taken under the lock: in conflict, the lower turn came first
    std::int64_t fence;
    std::string target;
  };
  constexpr int threads = 6, rounds = 2000 / slowness;
  const std::vector<std::string> targets = {"u1",       "u2",       "u1/a1",    "u1/a2",   "u2/a1",
                                            "u1/a1/r1", "u1/a1/r2", "u1/a2/r1", "u2/a1/r1"};
  Locker& all = locker();
  std::atomic<std::uint64_t> turns = 0;
  std::vector<std::future<std::vector<Grant>>> workers;
  for (int worker = 0; worker < threads; ++worker) {
    workers.push_back(std::async(std::launch::async, [&, worker] {
      std::mt19937 random(static_cast<unsigned>(worker));
      std::vector<Grant> log;
      for (int round = 0; round < rounds; ++round) {
        const std::string& target = targets[random() % targets.size()];
        const Lock lock = all.acquire(target);
        log.push_back({turns++, lock.fence(), target});
      }
      return log;
    }));
  }
  std::vector<Grant> log;
  for (auto& worker : workers) {
    for (Grant& grant : worker.get()) log.push_back(std::move(grant));
  }
  ASSERT_EQ(log.size(), static_cast<std::size_t>(threads * rounds));
  std::sort(log.begin(), log.end(), [](const Grant& a, const Grant& b) { return a.turn < b.turn; });

  // The highest fence so far that was granted at a node, and at or below it.
  std::map<std::string, std::int64_t> at, within;
  int wrong = 0;
  for (const Grant& grant : log) {
    std::int64_t highest = within[grant.target];
    for (std::size_t slash = 0; (slash = grant.target.find('/', slash)) != std::string::npos; ++slash) {
      const std::string ancestor = grant.target.substr(0, slash);
      highest = std::max(highest, at[ancestor]);
      within[ancestor] = std::max(within[ancestor], grant.fence);
    }
    if (grant.fence <= highest && ++wrong <= 10) {
      ADD_FAILURE() << grant.target << " got " << grant.fence << " after " << highest << " in conflict with it";
    }
    at[grant.target] = std::max(at[grant.target], grant.fence);
    within[grant.target] = std::max(within[grant.target], grant.fence);
  }
  EXPECT_EQ(wrong, 0);
}

HIERLOCK_ON_EVERY_BACKEND(Fences);

}  // namespace
}  // namespace hierlock::conformance
