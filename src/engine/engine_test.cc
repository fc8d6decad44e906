// The engine with real threads: exclusion under a witness while nodes are reused, and the bounds of the table.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <hierlock/error.h>

namespace hierlock::engine {
namespace {

Capacity small_table(std::uint64_t locks, std::uint32_t idle_nodes) {
  Capacity capacity = Capacity::for_locks(locks);
  capacity.idle_nodes = idle_nodes;
  return capacity;
}

std::optional<spi::Grant> ask(Engine& engine, const Target& target, bool wait = true) {
  const spi::Plan plan(target);
  return engine.acquire({.plan = plan, .no_wait = !wait});
}

// As Locker does: at once if possible.
spi::Grant take(Engine& engine, const Target& target) {
  if (target.space() != Space::slots) {
    if (const spi::Grant grant = engine.at_once(spi::Chain::of(target)); grant.id != 0) return grant;
  }
  return *ask(engine, target);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int rounds = 20'000;
#else
constexpr int rounds = 200'000;
#endif

std::uint64_t seed() {
  const char* const text = std::getenv("HIERLOCK_SEED");
  const std::uint64_t value = text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
  std::printf("HIERLOCK_SEED=%llu\n", static_cast<unsigned long long>(value));
  return value;
}

// Eight leaves under two accounts under one user. Each lock covers some of the leaves; the witness has a plain counter
// per leaf, written by whoever covers it exclusively and read by whoever covers it shared: a second one inside is a
// lost update here, and a data race under ThreadSanitizer.
TEST(Exclusion, holds_while_nodes_are_reused_all_the_time) {  // H1, B10
  constexpr int threads = 6;
  constexpr int leaves = 8;
  for (const std::uint32_t idle_nodes : {0u, 1000u}) {
    const std::uint64_t start = seed();
    Engine engine(small_table(1000, idle_nodes), Owners::per_thread);
    struct alignas(64) Leaf {
      std::int64_t counter = 0;
      std::int64_t last_fence = 0;
    };
    std::vector<Leaf> witness(leaves);
    std::atomic<std::int64_t> expected[leaves] = {};
    std::atomic<int> violations{0};
    std::vector<std::thread> crew;
    for (int t = 0; t < threads; ++t) {
      crew.emplace_back([&, t] {
        std::mt19937_64 random(start + static_cast<unsigned>(t));
        for (int i = 0; i < rounds / threads; ++i) {
          const auto r = random();
          const int leaf = static_cast<int>(r % leaves);
          const int level = static_cast<int>(r >> 8 & 7);  // 0: user, 1: account, others: leaf
          const bool share = (r >> 16 & 3) == 0;
          std::string path = "u";
          int first = 0, last = leaves;
          if (level >= 1) {
            path += leaf < 4 ? "/a" : "/b";
            first = leaf < 4 ? 0 : 4;
            last = first + 4;
          }
          if (level >= 2) {
            path += "/a leaf with a name of more than sixteen bytes " + std::to_string(leaf);
            first = leaf;
            last = leaf + 1;
          }
          const Target target = share ? shared(path) : Target(path);
          const spi::Grant grant = take(engine, target);
          for (int l = first; l < last; ++l) {
            Leaf& mine = witness[static_cast<std::size_t>(l)];
            if (grant.fence <= mine.last_fence) ++violations;  // B3
            if (share) continue;
            mine.last_fence = grant.fence;
            ++mine.counter;
            expected[l].fetch_add(1, std::memory_order_relaxed);
          }
          engine.release(grant);
        }
      });
    }
    for (auto& thread : crew) thread.join();
    for (int l = 0; l < leaves; ++l)
      EXPECT_EQ(witness[static_cast<std::size_t>(l)].counter, expected[l].load()) << "leaf " << l;
    EXPECT_EQ(violations.load(), 0) << "fences that did not rise";
    EXPECT_EQ(engine.table().check(), "");
    EXPECT_TRUE(engine.table().nothing_held());
  }
}

TEST(Exclusion, holds_for_slots) {  // M1
  constexpr int threads = 6;
  Engine engine(small_table(1000, 1000), Owners::per_thread);
  const Target target = slots("import", 3);
  std::atomic<int> inside{0}, most{0};
  std::vector<std::thread> crew;
  for (int t = 0; t < threads; ++t) {
    crew.emplace_back([&] {
      for (int i = 0; i < rounds / 20; ++i) {
        const spi::Grant grant = take(engine, target);
        const int now = ++inside;
        for (int seen = most.load(); now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        --inside;
        engine.release(grant);
      }
    });
  }
  for (auto& thread : crew) thread.join();
  EXPECT_LE(most.load(), 3);
  EXPECT_EQ(engine.table().check(), "");
}

// More threads than lanes: the late ones count in the common lane.
TEST(Lanes, threads_without_a_lane_of_their_own_exclude_too) {
  constexpr int threads = 128 + 20;
  Engine engine(small_table(1000, 1000), Owners::per_thread);
  std::int64_t counter = 0;
  std::barrier all(threads);
  std::vector<std::thread> crew;
  for (int t = 0; t < threads; ++t) {
    crew.emplace_back([&, t] {
      engine.release(take(engine, "u/a/" + std::to_string(t)));
      all.arrive_and_wait();  // everybody has a lane, or none was left
      for (int i = 0; i < 50; ++i) {
        engine.release(take(engine, "u/a/" + std::to_string(t)));
        const spi::Grant grant = take(engine, "u");
        ++counter;
        engine.release(grant);
      }
    });
  }
  for (auto& thread : crew) thread.join();
  EXPECT_EQ(counter, threads * 50);
  EXPECT_EQ(engine.table().check(), "");
}

TEST(Lanes, what_one_thread_took_another_gives_back) {
  Engine engine(small_table(1000, 1000), Owners::per_thread);
  for (int i = 0; i < 1000; ++i) {
    const spi::Grant grant = take(engine, "u/a/r");
    std::thread([&] { engine.release(grant); }).join();
    ASSERT_TRUE(ask(engine, "u", false).has_value() || ::testing::Test::HasFailure())
        << "round " << i << ": the user is not free";
    // The probe above is still held by this thread: give it back by its record.
    const auto copy = engine.table().copy();
    ASSERT_EQ(copy.holders.size(), 1u);
    engine.release({std::uint64_t{record_generation(engine.table().record_state_word(copy.holders[0].record))} << 32 |
                        copy.holders[0].record,
                    0});
  }
  EXPECT_EQ(engine.table().check(), "");
}

TEST(Owners, slots_of_threads_that_ended_are_used_again) {
  Engine engine(small_table(1000, 1000), Owners::per_thread);
  for (int i = 0; i < 200; ++i) std::thread([&] { engine.release(take(engine, "u/a/r")); }).join();
  EXPECT_LE(engine.table().use().owners, 2u);
  EXPECT_LE(engine.table().use().records, 2u);
}

TEST(Owners, a_lock_outlives_the_thread_that_took_it) {
  Engine engine(small_table(1000, 1000), Owners::per_thread);
  spi::Grant grant;
  std::thread([&] { grant = take(engine, "u/a/r"); }).join();
  std::thread([&] { EXPECT_FALSE(ask(engine, "u", false).has_value()); }).join();
  engine.release(grant);
  std::thread([&] {
    const auto free = ask(engine, "u", false);
    ASSERT_TRUE(free.has_value());
    engine.release(*free);
  }).join();
  EXPECT_LE(engine.table().use().owners, 2u) << "the ended thread's slot was not given back";
}

// --- bounds ----------------------------------------------------------------------------------------------

TEST(Bounds, idle_nodes_are_reused_so_that_a_stream_of_new_names_stays_bounded) {
  Engine engine(small_table(100'000, 1000), Owners::per_thread);
  for (int i = 0; i < 100'000; ++i) {
    engine.release(
        take(engine, "user " + std::to_string(i / 10) + "/a/a resource with a rather long name " + std::to_string(i)));
  }
  EXPECT_LE(engine.table().use().nodes, 1'100u);
  EXPECT_LE(engine.table().use().blocks, 2'500u) << "the text of reused nodes was not given back";
  EXPECT_EQ(engine.table().check(), "");
}

TEST(Bounds, fences_rise_although_the_node_was_forgotten_in_between) {  // B3: removal of idle state
  Engine engine(small_table(100'000, 0), Owners::per_thread);
  std::int64_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    const spi::Grant below = take(engine, "u/a/r");
    EXPECT_GT(below.fence, last);
    last = below.fence;
    engine.release(below);
    for (int other = 0; other < 5; ++other) engine.release(take(engine, "other " + std::to_string(i * 5 + other)));
    const spi::Grant above = take(engine, "u");
    EXPECT_GT(above.fence, last);
    last = above.fence;
    engine.release(above);
    for (int other = 0; other < 5; ++other) engine.release(take(engine, "another " + std::to_string(i * 5 + other)));
  }
}

TEST(Bounds, the_index_grows_and_finds_everything) {
  constexpr int locks = 50'000;
  Engine engine(Capacity::for_locks(1'000'000), Owners::per_thread);
  std::vector<spi::Grant> held;
  for (int i = 0; i < locks; ++i)
    held.push_back(take(engine, "u/" + std::to_string(i % 100) + "/" + std::to_string(i)));
  std::thread([&] {
    for (int i = 0; i < locks; i += 7) {
      EXPECT_FALSE(ask(engine, "u/" + std::to_string(i % 100) + "/" + std::to_string(i), false).has_value()) << i;
    }
  }).join();
  EXPECT_EQ(engine.table().check(), "");
  for (const auto& grant : held) engine.release(grant);
  EXPECT_EQ(engine.table().check(), "");
}

TEST(Bounds, a_full_table_refuses_and_works_again_when_there_is_room) {
  Engine engine(small_table(50, 0), Owners::per_thread);
  std::vector<spi::Grant> held;
  bool full = false;
  for (int i = 0; i < 1000 && !full; ++i) {
    try {
      held.push_back(take(engine, "u" + std::to_string(i) + "/a/r"));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::exhausted);
      EXPECT_NE(std::string(error.what()).find("max_locks"), std::string::npos);
      full = true;
    }
  }
  EXPECT_TRUE(full);
  EXPECT_GE(held.size(), 50u);
  EXPECT_EQ(engine.table().check(), "") << "the refused lock left something behind";
  engine.release(held.back());
  held.pop_back();
  held.push_back(take(engine, "fresh/a/r"));
  for (const auto& grant : held) engine.release(grant);
  EXPECT_TRUE(engine.table().nothing_held());
}

TEST(Bounds, failed_extends_leave_nothing_behind) {
  Engine engine(small_table(1000, 1000), Owners::per_thread);
  spi::Grant other;
  std::thread([&] { other = take(engine, "u/a/blocked"); }).join();
  const spi::Grant mine = take(engine, "u/b/r");
  const Target more[] = {"u/a/free", "u/a/blocked", "u/c/free"};
  const spi::Plan plan{std::span<const Target>(more)};
  const auto used = [&] { return engine.table().use().blocks; };
  EXPECT_FALSE(engine.extend(mine, {.plan = plan, .no_wait = true}).has_value());
  const std::uint32_t blocks = used();
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(engine.extend(mine, {.plan = plan, .no_wait = true}).has_value());
  EXPECT_EQ(used(), blocks);
  EXPECT_EQ(engine.table().check(), "");
  engine.release(mine);
  engine.release(other);
  EXPECT_TRUE(engine.table().nothing_held());
}

TEST(Bounds, names_that_begin_alike_are_different_locks) {  // N4
  Engine engine(small_table(100'000, 1000), Owners::per_thread);
  std::vector<spi::Grant> held;
  for (std::size_t length = 1; length <= 255; ++length) held.push_back(take(engine, std::string(length, 'x')));
  for (std::size_t length = 1; length <= max_name_bytes; length += 13)
    held.push_back(take(engine, named(std::string(length, 'x'))));
  const std::string common(200, 'y');
  for (const char* tail : {"a", "b", "ab", "ba"}) held.push_back(take(engine, "u/" + common + tail));
  EXPECT_EQ(engine.table().check(), "");
  for (const auto& grant : held) engine.release(grant);
}

}  // namespace
}  // namespace hierlock::engine
