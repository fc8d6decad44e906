// Capacity is what is held now: a table in which nobody holds anything is never full, whoever held however much before.
#include <gtest/gtest.h>

#include <time.h>
#include <unistd.h>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <hierlock/error.h>

#include "engine/engine.h"

namespace hierlock::engine {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int locks = 2'000;
#else
constexpr int locks = 20'000;
#endif
constexpr int bursts = 20;

// As Locker does: at once if possible.
spi::Grant take(Engine& engine, const Target& target, spi::OwnerId owner = {}) {
  if (owner.value == 0) {
    if (const spi::Grant grant = engine.at_once(spi::Chain::of(target)); grant.id != 0) return grant;
  }
  const spi::Plan plan(target);
  return engine.acquire({.plan = plan, .no_wait = true, .owner = owner}).value();
}

Target resource(int number) { return "u/a" + std::to_string(number % 100) + "/r" + std::to_string(number); }

std::vector<spi::Grant> take_many(Engine& engine, int first, int count, spi::OwnerId owner = {}) {
  std::vector<spi::Grant> held;
  held.reserve(static_cast<std::size_t>(count));
  for (int i = first; i < first + count; ++i) held.push_back(take(engine, resource(i), owner));
  return held;
}

void release(Engine& engine, const std::vector<spi::Grant>& held) {
  for (const spi::Grant& grant : held) engine.release(grant);
}

// A thread that stays until the end, and does what it is told.
class Worker {
 public:
  void run(std::function<void()> task) {
    task_ = std::move(task);
    start_.store(true);
    start_.notify_one();
    start_.wait(true);
  }
  ~Worker() { run(nullptr); }

 private:
  void work() {
    for (bool more = true; more;) {
      start_.wait(false);
      more = task_ != nullptr;
      try {
        if (more) task_();
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
      start_.store(false);
      start_.notify_one();
    }
  }
  std::function<void()> task_;
  std::atomic<bool> start_{false};
  std::jthread thread_{[this] { work(); }};
};

// A table that several Engines share, each as if it were a process of its own.
class SharedTable {
 public:
  explicit SharedTable(std::uint64_t max_locks) {
    static int number = 0;
    options_.path = "/dev/shm/hierlock-capacity." + std::to_string(getpid()) + "." + std::to_string(++number);
    options_.capacity = Capacity::for_locks(max_locks, 256);
    unlink(options_.path.c_str());
  }
  ~SharedTable() { unlink(options_.path.c_str()); }
  SharedTable(const SharedTable&) = delete;
  SharedTable& operator=(const SharedTable&) = delete;
  std::unique_ptr<Engine> open(Owners owners = Owners::per_thread) const {
    return std::make_unique<Engine>(options_, owners);
  }

 private:
  FileOptions options_;
};

// A newcomer gets a lock, and then as many as are promised.
void expect_room(Engine& engine) {
  std::thread([&] {
    EXPECT_NO_THROW(engine.release(take(engine, "new/a/r")));
    EXPECT_NO_THROW(release(engine, take_many(engine, 0, locks)));
  }).join();
  EXPECT_EQ(engine.table().look().check(), "");
  EXPECT_TRUE(engine.table().look().nothing_held());
}

TEST(Capacity, bursts_of_many_threads_leave_the_table_empty) {  // B12
  Engine engine(Capacity::for_locks(locks), Owners::per_thread);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < bursts; ++i) {
    workers.push_back(std::make_unique<Worker>());
    workers.back()->run([&] { release(engine, take_many(engine, 0, locks)); });
    ASSERT_FALSE(testing::Test::HasFailure()) << "burst " << i;
  }
  expect_room(engine);
}

TEST(Capacity, bursts_of_many_processes_leave_the_table_empty) {  // B12
  const SharedTable table(locks);
  std::vector<std::unique_ptr<Engine>> processes;
  for (int i = 0; i < bursts; ++i) {
    processes.push_back(table.open());
    ASSERT_NO_THROW(release(*processes.back(), take_many(*processes.back(), 0, locks))) << "burst " << i;
  }
  expect_room(*table.open());
}

TEST(Capacity, bursts_of_many_owners_leave_the_table_empty) {  // B12
  const SharedTable table(locks);
  const auto first = table.open();
  const auto second = table.open();
  std::vector<spi::OwnerId> owners;
  for (int i = 0; i < bursts; ++i) {
    Engine& engine = i % 2 == 0 ? *first : *second;
    owners.push_back(engine.make_owner("owner " + std::to_string(i)));
    ASSERT_NO_THROW(release(engine, take_many(engine, 0, locks, owners.back()))) << "burst " << i;
  }
  expect_room(*table.open());
  for (int i = 0; i < bursts; ++i) (i % 2 == 0 ? *first : *second).drop_owner(owners[static_cast<std::size_t>(i)]);
  EXPECT_EQ(first->table().look().check(), "");
}

TEST(Capacity, bursts_with_an_owner_per_handle_leave_the_table_empty) {  // B12
  const SharedTable table(locks);
  std::vector<std::unique_ptr<Engine>> processes;
  for (int i = 0; i < bursts; ++i) {
    processes.push_back(table.open(Owners::per_handle));
    ASSERT_NO_THROW(release(*processes.back(), take_many(*processes.back(), 0, locks))) << "burst " << i;
  }
  expect_room(*table.open(Owners::per_handle));
}

TEST(Capacity, bursts_released_by_other_threads_leave_it_empty) {  // B12
  Engine engine(Capacity::for_locks(locks), Owners::per_thread);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < bursts; ++i) {
    workers.push_back(std::make_unique<Worker>());
    std::vector<spi::Grant> held;
    workers.back()->run([&] { held = take_many(engine, 0, locks); });
    ASSERT_FALSE(testing::Test::HasFailure()) << "burst " << i;
    release(engine, held);
  }
  expect_room(engine);
}

TEST(Capacity, bursts_of_notes_and_lists_leave_the_table_empty) {  // B12
  const SharedTable table(locks);
  std::vector<std::unique_ptr<Engine>> processes;
  const std::string note(200, 'n');
  for (int i = 0; i < bursts; ++i) {
    processes.push_back(table.open());
    Engine& engine = *processes.back();
    std::vector<spi::Grant> held;
    for (int l = 0; l < locks / 2; ++l) {
      const Target two[] = {resource(l), named("n" + std::to_string(l))};
      const spi::Plan plan{std::span<const Target>(two)};
      ASSERT_NO_THROW(held.push_back(engine.acquire({.plan = plan, .no_wait = true, .note = note}).value()))
          << "burst " << i;
    }
    release(engine, held);
  }
  expect_room(*table.open());
}

TEST(Capacity, a_few_locks_left_of_each_burst_cost_as_many_places) {  // B12
  const SharedTable table(locks);
  std::vector<std::unique_ptr<Engine>> processes;
  std::vector<std::pair<Engine*, spi::Grant>> kept;
  constexpr int share = bursts * 2;  // of each burst one in so many stays held: half of what there is, in the end
  for (int i = 0; i < bursts; ++i) {
    processes.push_back(table.open());
    Engine& engine = *processes.back();
    const int room = locks - static_cast<int>(kept.size());
    const std::vector<spi::Grant> held = take_many(engine, i * locks, room);
    for (std::size_t l = 0; l < held.size(); ++l) {
      if (l % share == 0) {
        kept.emplace_back(&engine, held[l]);
      } else {
        engine.release(held[l]);
      }
    }
  }
  const auto newcomer = table.open();
  const int room = locks - static_cast<int>(kept.size());
  EXPECT_NO_THROW(release(*newcomer, take_many(*newcomer, bursts * locks, room)));
  for (const auto& [engine, grant] : kept) engine->release(grant);
  EXPECT_EQ(newcomer->table().look().check(), "");
  expect_room(*newcomer);
}

TEST(Capacity, a_full_table_has_what_was_promised_and_says_so) {  // B12
  const SharedTable table(locks);
  const auto first = table.open();
  const auto second = table.open();
  std::vector<spi::Grant> held;
  const auto fill = [&] {
    try {
      for (int i = static_cast<int>(held.size()); i < 10 * locks; ++i) held.push_back(take(*first, resource(i)));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::exhausted);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(fill().find("max_locks"), std::string::npos);
  EXPECT_GE(held.size(), std::size_t{locks});
  EXPECT_THROW(take(*second, "another/a/r"), Error);
  for (int i = 0; i < 100; ++i) {
    first->release(held.back());
    held.pop_back();
    held.push_back(take(*second, resource(20 * locks + i)));
    second->release(held.back());
    held.pop_back();
    held.push_back(take(*first, resource(30 * locks + i)));
  }
  EXPECT_EQ(first->table().look().check(), "");
  release(*first, held);
  EXPECT_TRUE(first->table().look().nothing_held());
  expect_room(*second);
}

// What an idle node has beside itself is wanted back, too.
TEST(Capacity, long_names_that_nobody_holds_leave_the_table_empty) {  // B12
  Engine engine(Capacity::for_locks(100), Owners::per_thread);
  const std::string name(250, 'x');
  for (int i = 0; i < 10'000; ++i)
    ASSERT_NO_THROW(engine.release(take(engine, name + std::to_string(i)))) << "name " << i;
  EXPECT_EQ(engine.table().look().check(), "");
}

// Looking for idle nodes is done once for all who fail, until somebody releases something.
TEST(Capacity, a_full_table_fails_fast_and_finds_room_at_once) {  // B12
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr std::uint32_t nodes = 50'048;
#else
  constexpr std::uint32_t nodes = 1'000'000;
#endif
  Capacity capacity = Capacity::for_locks(nodes);
  capacity.nodes = nodes;
  Engine engine(capacity, Owners::per_thread);
  std::vector<spi::Grant> held;
  held.reserve(nodes);
  for (std::uint32_t i = 2; i < nodes; ++i) held.push_back(take(engine, named(std::to_string(i))));
  const auto fails = [&] {
    try {
      held.push_back(take(engine, named("one more")));
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  held.push_back(take(engine, named("the last one")));
  const std::string text = fails();
  EXPECT_NE(text.find("all " + std::to_string(nodes) + " nodes are in use"), std::string::npos) << text;
  EXPECT_NE(text.find("max_locks"), std::string::npos) << text;
  // To look at a million nodes takes milliseconds. Time of the processor: the machine has others to run.
  constexpr int failures = 1000;
  const auto nanoseconds = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  const std::int64_t begin = nanoseconds();
  for (int i = 0; i < failures; ++i) EXPECT_NE(fails(), "");
  EXPECT_LT((nanoseconds() - begin) / failures, 500'000);
  // Room that comes is found at once, however full the table was a moment ago.
  for (int i = 0; i < 10; ++i) {
    engine.release(held[held.size() / 2]);
    held[held.size() / 2] = take(engine, named("again " + std::to_string(i)));
    EXPECT_NE(fails(), "");
  }
  release(engine, held);
  EXPECT_NO_THROW(engine.release(take(engine, "new/a/r")));
}

// Records leave an owner's list and come into others' all the time; what stays in the list is found by every walk.
TEST(Capacity, locks_are_found_while_free_records_leave_the_list) {  // B7, B11
  const SharedTable table(locks);
  const auto engine = table.open();
  const auto other = table.open();
  const spi::OwnerId owner = engine->make_owner("the owner");
  const auto waits_for_itself = [&](const Target& target) {
    try {
      const spi::Plan plan(target);
      return !engine->acquire({.plan = plan, .no_wait = true, .owner = owner}).has_value();
    } catch (const Error& error) {
      return error.kind() == ErrorKind::deadlock;
    }
  };
  // Between others that go: it stands in the middle of the list.
  const std::vector<spi::Grant> before = take_many(*engine, 0, 50, owner);
  const spi::Grant stays = take(*engine, "stays/a/r", owner);
  const std::vector<spi::Grant> after = take_many(*engine, 50, 50, owner);
  release(*engine, before);
  release(*engine, after);
  std::atomic<bool> end{false};
  std::vector<std::thread> crew;
  for (int t = 0; t < 3; ++t) {
    crew.emplace_back([&, t] {
      // The owner's records become this thread's and go back, so that a walk that strays finds something.
      for (int i = 0; !end.load(); ++i) {
        release(*engine, take_many(*engine, 1000 * (t + 1), 20 + i % 10, owner));
        release(*engine, take_many(*engine, 1000 * (t + 1), 100));
        release(*other, take_many(*other, 10000 * (t + 1), 100));
      }
    });
  }
  constexpr int rounds = locks / 20;
  for (int i = 0; i < rounds && !testing::Test::HasFailure(); ++i) {
    EXPECT_TRUE(waits_for_itself("stays/a/r")) << "round " << i << ": the owner does not know what it holds";
    const Look::Copy copy = (i % 2 == 0 ? *engine : *other).table().look().copy();
    int found = 0;
    for (const Look::HolderCopy& holder : copy.holders) {
      if (!holder.asked || holder.fence == 0) continue;
      if (holder.target == "stays/a/r") {
        ++found;
        EXPECT_EQ(copy.parties[holder.party].name, "the owner");
      }
    }
    EXPECT_EQ(found, 1) << "round " << i;
  }
  end.store(true);
  for (auto& thread : crew) thread.join();
  engine->release(stays);
  engine->drop_owner(owner);
  EXPECT_EQ(engine->table().look().check(), "");
  EXPECT_EQ(other->table().look().check(), "");
  EXPECT_LE(engine->table().look().use().records, 65u) << "of this thread";
}

}  // namespace
}  // namespace hierlock::engine
