// The engine with real threads: exclusion under a witness while nodes are reused, and the bounds of the table.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
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

// Nodes lose their numbers of tallies as soon as they are not shared.
Capacity without_idle_numbers(Capacity capacity) {
  capacity.idle_pages = 0;
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
  static constexpr spi::Grant no_more{};
  constexpr int threads = 6;
  constexpr int leaves = 8;
  for (const Capacity& capacity : {small_table(1000, 0), without_idle_numbers(small_table(1000, 0)),
                                   small_table(1000, 1000), without_idle_numbers(small_table(1000, 1000))}) {
    const std::uint64_t start = seed();
    Engine engine(capacity, Owners::per_thread);
    struct alignas(64) Leaf {
      std::int64_t counter = 0;
      std::int64_t last_fence = 0;
    };
    std::vector<Leaf> witness(leaves);
    std::atomic<std::int64_t> expected[leaves] = {};
    std::atomic<int> violations{0};
    // All threads use the same Targets, which remember their nodes; or new ones, which do not.
    std::array<std::array<std::vector<Target>, 3>, 2> kept;  // by share and level
    const auto path_of = [](int level, int leaf) {
      std::string path = "u";
      if (level >= 1) path += leaf < 4 ? "/a" : "/b";
      if (level >= 2) path += "/a leaf with a name of more than sixteen bytes " + std::to_string(leaf);
      return path;
    };
    for (int level = 0; level < 3; ++level) {
      for (int leaf = 0; leaf < leaves; ++leaf) {
        kept[0][static_cast<std::size_t>(level)].emplace_back(path_of(level, leaf));
        kept[1][static_cast<std::size_t>(level)].push_back(shared(path_of(level, leaf)));
      }
    }
    // Somebody shares other names all the time, so that nodes lose their numbers, and releases some of the locks.
    std::atomic<const spi::Grant*> to_release{nullptr};
    std::thread other([&] {
      int next = 0;
      for (;;) {
        const spi::Grant* const grant = to_release.load();
        if (grant == &no_more) return;
        if (grant != nullptr) {
          engine.release(*grant);
          to_release = nullptr;
        }
        if (capacity.idle_pages != 0) {
          std::this_thread::yield();
        } else {
          engine.release(take(engine, shared("other " + std::to_string(next++ % 500))));
        }
      }
    });
    std::vector<std::thread> crew;
    for (int t = 0; t < threads; ++t) {
      crew.emplace_back([&, t] {
        std::mt19937_64 random(start + static_cast<unsigned>(t));
        for (int i = 0; i < rounds / threads; ++i) {
          const auto r = random();
          const int leaf = static_cast<int>(r % leaves);
          const int level = std::min(static_cast<int>(r >> 8 & 7), 2);  // 0: user, 1: account, 2: leaf
          const bool share = (r >> 16 & 3) == 0;
          int first = 0, last = leaves;
          if (level >= 1) {
            first = leaf < 4 ? 0 : 4;
            last = first + 4;
          }
          if (level >= 2) {
            first = leaf;
            last = leaf + 1;
          }
          const Target& remembers =
              kept[share ? 1 : 0][static_cast<std::size_t>(level)][static_cast<std::size_t>(leaf)];
          const bool fresh = (r >> 24 & 1) == 0;
          const spi::Grant grant = fresh ? take(engine, Target(remembers)) : take(engine, remembers);
          for (int l = first; l < last; ++l) {
            Leaf& mine = witness[static_cast<std::size_t>(l)];
            if (grant.fence <= mine.last_fence) ++violations;  // B3
            if (share) continue;
            mine.last_fence = grant.fence;
            ++mine.counter;
            expected[l].fetch_add(1, std::memory_order_relaxed);
          }
          const spi::Grant* nobodys = nullptr;
          if ((r >> 32) % 64 == 0 && to_release.compare_exchange_strong(nobodys, &grant)) {
            while (to_release.load() == &grant) std::this_thread::yield();
          } else {
            engine.release(grant);
          }
        }
      });
    }
    for (auto& thread : crew) thread.join();
    to_release = &no_more;
    other.join();
    if (capacity.idle_pages == 0) {
      EXPECT_LE(engine.table().look().use().numbers, 2 * arena_size);
    }
    for (int l = 0; l < leaves; ++l)
      EXPECT_EQ(witness[static_cast<std::size_t>(l)].counter, expected[l].load()) << "leaf " << l;
    EXPECT_EQ(violations.load(), 0) << "fences that did not rise";
    EXPECT_EQ(engine.table().look().check(), "");
    EXPECT_TRUE(engine.table().look().nothing_held());
  }
}

// Waiters that close a cycle at the same moment, each under the latch of its own stripe: one of them must see it. A
// missed cycle is a wait that ends by its deadline.
TEST(Deadlock, is_found_when_all_begin_to_wait_at_once) {  // B11
  constexpr auto missed = std::chrono::seconds(30);
  const auto ask_both = [missed](Engine& engine, const std::vector<Target>& targets) -> std::optional<spi::Grant> {
    const spi::Plan plan(targets);
    return engine.acquire({.plan = plan, .deadline = std::chrono::steady_clock::now() + missed});
  };
  for (const std::size_t members : {2u, 3u}) {
    for (const bool one_asks_for_all : {false, true}) {  // then that one holds nothing outside its plan
      Engine engine(small_table(1000, 1000), Owners::per_thread);
      std::barrier together(static_cast<std::ptrdiff_t>(members));
      std::atomic<int> deadlocks{0}, timeouts{0};
      std::vector<std::thread> crew;
      for (std::size_t t = 0; t < members; ++t) {
        crew.emplace_back([&, t] {
          const Target mine = named("name " + std::to_string(t));
          const Target next = named("name " + std::to_string((t + 1) % members));
          const bool all = one_asks_for_all && t == 0;
          for (int i = 0; i < rounds / 50; ++i) {
            std::optional<spi::Grant> first;
            if (!all) first = ask(engine, mine);
            together.arrive_and_wait();
            try {
              const auto second = ask_both(engine, all ? std::vector{mine, next} : std::vector{next});
              if (!second) ++timeouts;
              if (second) engine.release(*second);
            } catch (const Error& error) {
              EXPECT_EQ(error.kind(), ErrorKind::deadlock);
              ++deadlocks;
            }
            if (first) engine.release(*first);
            together.arrive_and_wait();
            if (timeouts != 0) break;
          }
        });
      }
      for (auto& thread : crew) thread.join();
      EXPECT_EQ(timeouts, 0) << members << " members";
      if (!one_asks_for_all) {
        EXPECT_GE(deadlocks, rounds / 50);
      }
      EXPECT_EQ(engine.table().look().check(), "");
    }
  }
}

// A Target remembers where its node was. Once that node is used for another key, the Target must find its own again.
TEST(Exclusion, holds_for_targets_whose_node_was_reused) {  // H1, H3
  Engine engine(small_table(1000, 0), Owners::per_thread);
  const Target first = "u/a/r";
  const Target second = "v/b/s";
  for (int i = 0; i < 1000; ++i) {
    engine.release(take(engine, first));
    for (int other = 0; other < 5; ++other) engine.release(take(engine, "other " + std::to_string(i * 5 + other)));
    engine.release(take(engine, second));
    for (int other = 0; other < 5; ++other) engine.release(take(engine, "another " + std::to_string(i * 5 + other)));
    const spi::Grant held = take(engine, i % 2 == 0 ? first : second);
    std::thread([&] {
      EXPECT_FALSE(ask(engine, Target(i % 2 == 0 ? "u/a/r" : "v/b/s"), false)) << "two hold it";
      EXPECT_FALSE(ask(engine, Target(i % 2 == 0 ? "u" : "v"), false)) << "its ancestor is not held";
      const std::optional<spi::Grant> free = ask(engine, Target(i % 2 == 0 ? "v/b/s" : "u/a/r"), false);
      ASSERT_TRUE(free) << "another key is held instead";
      engine.release(*free);
    }).join();
    engine.release(held);
  }
  EXPECT_EQ(engine.table().look().check(), "");
}

TEST(Exclusion, holds_for_a_target_used_on_several_tables) {  // H1, H3
  const Target target = "u/a/r";
  std::vector<std::unique_ptr<Engine>> engines;
  for (int i = 0; i < 4; ++i) {
    engines.push_back(std::make_unique<Engine>(small_table(1000, 1000), Owners::per_thread));
    // The same key is another node in each.
    for (int other = 0; other < i; ++other) engines.back()->release(take(*engines.back(), "o" + std::to_string(other)));
  }
  std::vector<std::thread> crew;
  std::vector<std::int64_t> inside(engines.size());
  std::atomic<std::int64_t> sum{0};
  for (int t = 0; t < 4; ++t) {
    crew.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<unsigned>(t));
      for (int i = 0; i < rounds / 20; ++i) {
        const std::size_t at = random() % engines.size();
        const spi::Grant grant = take(*engines[at], target);
        ++inside[at];
        ++sum;
        engines[at]->release(grant);
      }
    });
  }
  for (auto& thread : crew) thread.join();
  std::int64_t all = 0;
  for (const std::int64_t count : inside) all += count;
  EXPECT_EQ(all, sum.load());
  for (const auto& engine : engines) EXPECT_EQ(engine->table().look().check(), "");
}

// As Locker does with a plain string.
spi::Grant take_text(Engine& engine, const std::string& text) {
  if (const spi::Grant grant = engine.at_once_again(text); grant.id != 0) return grant;
  const spi::PathText path(text);
  if (const spi::Grant grant = engine.at_once(path.chain()); grant.id != 0) return grant;
  const spi::Plan plan(path);
  return *engine.acquire({.plan = plan});
}

std::vector<std::string> odd_texts() {
  const std::vector<std::string> segments = {"a",
                                             "b",
                                             "ab",
                                             "A",
                                             "%41",
                                             "a%2Fb",
                                             "%2F",
                                             "%25",
                                             "%2541",
                                             "a%2Fb%2Fa",
                                             "-'",
                                             "12345678",
                                             "123456789",
                                             "1234567890123456",
                                             "12345678901234567",
                                             "1234567%2F",
                                             "\xC3\xA9",
                                             "12345678901234567%2Fa"};
  std::vector<std::string> texts = segments;
  for (const std::string& first : segments) {
    for (const std::string& second : segments) texts.push_back(first + "/" + second);
  }
  for (const std::string& last : segments) texts.push_back("a/b/" + last), texts.push_back(last + "/a/b");
  return texts;
}

TEST(Text, finds_the_node_that_its_target_has) {  // H3
  for (const std::uint32_t idle_nodes : {0u, 1000u}) {
    Engine engine(small_table(1000, idle_nodes), Owners::per_thread);
    for (int round = 0; round < 3; ++round) {
      for (const std::string& text : odd_texts()) {
        const spi::Grant grant = take_text(engine, text);
        const Look::Copy copy = engine.table().look().copy();
        const auto asked =
            std::find_if(copy.holders.begin(), copy.holders.end(), [](const auto& h) { return h.asked; });
        ASSERT_NE(asked, copy.holders.end()) << text;
        EXPECT_EQ(asked->target, Target(text).str()) << text;
        engine.release(grant);
      }
    }
    EXPECT_EQ(engine.table().look().check(), "");
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
  EXPECT_EQ(engine.table().look().check(), "");
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
  EXPECT_EQ(engine.table().look().check(), "");
}

TEST(Lanes, what_one_thread_took_another_gives_back) {
  Engine engine(small_table(1000, 1000), Owners::per_thread);
  for (int i = 0; i < 1000; ++i) {
    const spi::Grant grant = take(engine, "u/a/r");
    std::thread([&] { engine.release(grant); }).join();
    ASSERT_TRUE(ask(engine, "u", false).has_value() || ::testing::Test::HasFailure())
        << "round " << i << ": the user is not free";
    // The probe above is still held by this thread: give it back by its record.
    const auto copy = engine.table().look().copy();
    ASSERT_EQ(copy.holders.size(), 1u);
    engine.release({std::uint64_t{record_generation(engine.table().record_state_word(copy.holders[0].record))} << 32 |
                        copy.holders[0].record,
                    0});
  }
  EXPECT_EQ(engine.table().look().check(), "");
}

TEST(Owners, slots_of_threads_that_ended_are_used_again) {
  Engine engine(small_table(1000, 1000), Owners::per_thread);
  for (int i = 0; i < 200; ++i) std::thread([&] { engine.release(take(engine, "u/a/r")); }).join();
  EXPECT_LE(engine.table().look().use().owners, 2u);
  EXPECT_LE(engine.table().look().use().records, 2u);
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
  EXPECT_LE(engine.table().look().use().owners, 2u) << "the ended thread's slot was not given back";
}

// --- bounds ----------------------------------------------------------------------------------------------

TEST(Bounds, idle_nodes_are_reused_so_that_a_stream_of_new_names_stays_bounded) {
  Engine engine(small_table(100'000, 1000), Owners::per_thread);
  for (int i = 0; i < 100'000; ++i) {
    engine.release(
        take(engine, "user " + std::to_string(i / 10) + "/a/a resource with a rather long name " + std::to_string(i)));
  }
  EXPECT_LE(engine.table().look().use().nodes, 1'100u);
  EXPECT_LE(engine.table().look().use().blocks, 2'500u) << "the text of reused nodes was not given back";
  EXPECT_EQ(engine.table().look().check(), "");
}

TEST(Memory, of_what_was_held_at_once_is_given_back) {  // B12
  constexpr int names = 50'000;
  Capacity capacity = Capacity::for_locks(200'000);
  capacity.idle_pages = 16;
  Engine engine(capacity, Owners::per_thread);
  std::vector<spi::Grant> held;
  for (int i = 0; i < names; ++i) held.push_back(take(engine, shared("name " + std::to_string(i))));
  EXPECT_GE(engine.table().look().use().pages, names / arena_size);
  for (const auto& grant : held) engine.release(grant);
  // The thread goes on, and looks at its pages in passing.
  for (int i = 0; i < 1000; ++i) engine.release(take(engine, shared("another " + std::to_string(i))));
  EXPECT_LE(engine.table().look().use().pages, 2 * capacity.idle_pages);
  EXPECT_EQ(engine.table().look().check(), "");
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
  EXPECT_EQ(engine.table().look().check(), "");
  for (const auto& grant : held) engine.release(grant);
  EXPECT_EQ(engine.table().look().check(), "");
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
  EXPECT_EQ(engine.table().look().check(), "") << "the refused lock left something behind";
  engine.release(held.back());
  held.pop_back();
  held.push_back(take(engine, "fresh/a/r"));
  for (const auto& grant : held) engine.release(grant);
  EXPECT_TRUE(engine.table().look().nothing_held());
}

TEST(Bounds, all_nodes_of_a_small_table_can_be_shared) {  // B12
  for (const std::uint64_t locks : {1u, 50u, 20'000u, 80'000u}) {
    for (const Capacity& capacity : {Capacity::for_locks(locks), Capacity::for_locks(locks, 64)}) {
      EXPECT_GE(capacity.nodes, 3 * locks);
      EXPECT_GT(capacity.tallies, capacity.nodes) << locks;  // number 0 is nobody's
    }
  }
  EXPECT_GT(Capacity::for_locks(1'000'000, 2048).tallies, 2'000'000u);
  EXPECT_EQ(Capacity::for_locks(16'000'000).tallies, 8'388'608u) << "README.md and locker.h say so";
}

TEST(Bounds, a_table_shares_as_many_nodes_as_it_promises_locks) {  // B12
  constexpr int locks = 5000;
  Engine engine(Capacity::for_locks(locks), Owners::per_thread);
  std::vector<spi::Grant> held;
  for (int i = 0; i < locks; ++i) held.push_back(take(engine, shared("u" + std::to_string(i) + "/a/r")));
  EXPECT_EQ(engine.table().look().use().numbers, 3u * locks);
  EXPECT_EQ(engine.table().look().check(), "");
  for (const auto& grant : held) engine.release(grant);
  EXPECT_EQ(engine.table().look().check(), "");
}

// --- memory ----------------------------------------------------------------------------------------------

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they have memory of their own

std::size_t resident_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

std::vector<std::unique_ptr<Engine>> private_tables(int count) {
  std::vector<std::unique_ptr<Engine>> engines;
  for (int i = 0; i < count; ++i) {
    engines.push_back(std::make_unique<Engine>(Capacity::for_locks(16'000'000), Owners::per_thread));
  }
  return engines;
}

// One thread shares all names, one after the other, in each of the tables. The others share some names in each 4 KiB of
// tallies. Calls `meanwhile` before they end.
void share_one_by_one(std::vector<std::unique_ptr<Engine>>& engines, int threads, int names, const auto& meanwhile) {
  constexpr int some = 100;
  std::barrier all(threads);
  std::vector<std::thread> crew;
  for (int t = 0; t < threads; ++t) {
    crew.emplace_back([&, t] {
      const auto share = [&](int step) {
        for (auto& engine : engines) {
          for (int i = 0; i < names; i += step) engine->release(take(*engine, shared("name " + std::to_string(i))));
        }
      };
      if (t == 0) share(1);
      all.arrive_and_wait();
      if (t != 0) share(some);
      all.arrive_and_wait();
      if (t == 0) meanwhile();
      all.arrive_and_wait();
    });
  }
  for (auto& thread : crew) thread.join();
}

TEST(Memory, of_tallies_follows_what_is_shared_at_a_time) {  // B12
  auto engines = private_tables(1);
  const std::size_t before = resident_kilobytes();
  std::size_t during = 0;
  share_one_by_one(engines, 40, 262'144, [&] { during = resident_kilobytes() - before; });
  const std::size_t after = resident_kilobytes() - before;
  std::printf("262,144 names, 40 threads: %zu KiB, and %zu KiB when they have ended\n", during, after);
  EXPECT_LT(during, 48u << 10) << "nodes and index are 25 MiB; a tally per thread and name would be 160 MiB";
  EXPECT_LT(after, 36u << 10) << "the threads that ended still have memory";
  EXPECT_EQ(engines.front()->table().look().check(), "");
}

TEST(Memory, of_500_tables_is_not_500_times_that_of_one) {  // B12
  auto engines = private_tables(500);
  const std::size_t before = resident_kilobytes();
  std::size_t during = 0;
  share_one_by_one(engines, 16, 2000, [&] { during = resident_kilobytes() - before; });
  const std::size_t after = resident_kilobytes() - before;
  std::printf("500 tables, 16 threads: %zu KiB, and %zu KiB when they have ended\n", during, after);
  // Without tallies a table in use takes some 210 KiB: its header, its nodes and its index.
  EXPECT_LT(during, 180u << 10) << "8 pages a thread and table would be another 256 MiB";
  EXPECT_LT(after, 120u << 10);
  std::uint32_t pages = 0;
  for (const auto& engine : engines) pages += engine->table().look().use().pages;
  EXPECT_EQ(pages, 0u);
}

#endif

TEST(Bounds, fences_rise_although_the_number_was_taken_back) {  // B3
  Engine engine(without_idle_numbers(small_table(100'000, 100'000)), Owners::per_thread);
  for (int i = 0; i < 50; ++i) {
    const std::string user = "u" + std::to_string(i);
    const spi::Grant below = take(engine, user + "/r");
    engine.release(below);
    // More than an arena has numbers, so that the user's is taken back.
    for (Index other = 0; other < arena_size + 44; ++other) {
      engine.release(take(engine, "v" + std::to_string(i * 300 + static_cast<int>(other)) + "/r"));
    }
    const spi::Grant above = take(engine, user);
    EXPECT_GT(above.fence, below.fence);
    engine.release(above);
  }
  EXPECT_LT(engine.table().look().use().numbers, arena_size);
  EXPECT_EQ(engine.table().look().check(), "");
}

TEST(Bounds, failed_extends_leave_nothing_behind) {
  Engine engine(small_table(1000, 1000), Owners::per_thread);
  spi::Grant other;
  std::thread([&] { other = take(engine, "u/a/blocked"); }).join();
  const spi::Grant mine = take(engine, "u/b/r");
  const Target more[] = {"u/a/free", "u/a/blocked", "u/c/free"};
  const spi::Plan plan{std::span<const Target>(more)};
  const auto used = [&] { return engine.table().look().use().blocks; };
  EXPECT_FALSE(engine.extend(mine, {.plan = plan, .no_wait = true}).has_value());
  const std::uint32_t blocks = used();
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(engine.extend(mine, {.plan = plan, .no_wait = true}).has_value());
  EXPECT_EQ(used(), blocks);
  EXPECT_EQ(engine.table().look().check(), "");
  engine.release(mine);
  engine.release(other);
  EXPECT_TRUE(engine.table().look().nothing_held());
}

TEST(Bounds, names_that_begin_alike_are_different_locks) {  // N4
  Engine engine(small_table(100'000, 1000), Owners::per_thread);
  std::vector<spi::Grant> held;
  for (std::size_t length = 1; length <= 255; ++length) held.push_back(take(engine, std::string(length, 'x')));
  for (std::size_t length = 1; length <= max_name_bytes; length += 13)
    held.push_back(take(engine, named(std::string(length, 'x'))));
  const std::string common(200, 'y');
  for (const char* tail : {"a", "b", "ab", "ba"}) held.push_back(take(engine, "u/" + common + tail));
  EXPECT_EQ(engine.table().look().check(), "");
  for (const auto& grant : held) engine.release(grant);
}

}  // namespace
}  // namespace hierlock::engine
