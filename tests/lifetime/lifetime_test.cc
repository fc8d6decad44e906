// What outlives what: Lockers, Locks, threads, processes; and looking at locks while they go.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <hierlock/hierlock.h>

namespace hierlock {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int scale = 1;
#else
constexpr int scale = 10;
#endif

// --- the end of the process ------------------------------------------------------------------------------

struct App {
  Locker locker = open("memory:");
  Lock lock;
};

App& app() {
  static App app;
  return app;
}

// The main thread's own variables, the library's among them, are gone before statics are destroyed.
TEST(Lifetime, a_static_locker_and_its_lock_end_with_the_process) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        app().lock = app().locker.acquire("u1/a1");
        std::exit(app().lock.held() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// --- handles -----------------------------------------------------------------------------------------------

TEST(Lifetime, a_handle_that_a_deadlock_released_outlives_its_locker) {
  Lock lock;
  {
    Locker locker = open("memory:");
    lock = locker.acquire("a");
    const Lock other = locker.acquire("b");
    EXPECT_THROW(lock.extend("b"), Error);
  }
  EXPECT_FALSE(lock.held());
  lock.release();
}

TEST(Lifetime, an_owner_outlives_its_locker) {
  auto locker = std::make_unique<Locker>(open("memory:"));
  Owner owner = locker->owner("late");
  Lock lock = locker->acquire("a", {.owner = &owner});
  locker.reset();
  EXPECT_TRUE(lock.held());
  lock.release();
}

TEST(Lifetime, lockers_come_and_go_by_the_thousand) {
  const Locker stays = open("memory:");
  for (int i = 0; i < 300 * scale; ++i) {
    Locker locker = open("memory:?max_locks=10");
    EXPECT_TRUE(locker.acquire("u1/a1/r1").held());
  }
}

TEST(Lifetime, a_thread_that_held_many_locks_leaves_room_for_others) {
  Locker locker = open("memory:?max_locks=1000");
  std::atomic<bool> stop{false};
  std::atomic<bool> done{false};
  std::thread hoarder([&] {
    std::vector<Lock> held;
    for (int i = 0; i < 1000; ++i) held.push_back(locker.acquire("u/" + std::to_string(i)));
    held.clear();
    done = true;
    while (!stop) std::this_thread::yield();  // it lives on
  });
  while (!done) std::this_thread::yield();
  std::vector<Lock> held;
  for (int i = 0; i < 1000; ++i) held.push_back(locker.acquire("u/" + std::to_string(i)));
  EXPECT_TRUE(held.back().held());
  stop = true;
  hoarder.join();
}

// --- looking -------------------------------------------------------------------------------------------------

// The list of a lock on many targets becomes somebody's note while it is being read.
TEST(Lifetime, locks_on_many_targets_can_be_looked_at_while_they_go) {
  Locker locker = open("memory:");
  std::vector<Target> many;
  for (int i = 0; i < 40; ++i) many.emplace_back("m" + std::to_string(i));
  const std::string note(200, 'a');
  std::atomic<bool> stop{false};
  std::thread one([&] {
    while (!stop) (void)locker.acquire(many);
  });
  std::thread two([&] {
    while (!stop) (void)locker.acquire("x", {.note = note});
  });
  int wrong = 0;
  for (int seen = 0; seen < 2'000 * scale;) {
    const Snapshot snapshot = locker.snapshot();
    for (const Snapshot::Holder& holder : snapshot.holders) {
      const bool many_or_x = holder.target == "x" || (holder.target.starts_with("m") && holder.who.note.empty());
      if (!many_or_x) ++wrong;
    }
    if (!snapshot.holders.empty()) ++seen;
  }
  EXPECT_EQ(wrong, 0) << "holds that nobody had";
  stop = true;
  one.join();
  two.join();
}

TEST(Lifetime, notes_are_cut_between_characters) {
  Locker locker = open("memory:");
  const Lock lock = locker.acquire("a", {.note = std::string(254, 'n') + "€"});
  EXPECT_EQ(locker.snapshot().holders.at(0).who.note, std::string(254, 'n'));
}

TEST(Lifetime, extending_by_slots_that_disagree_is_refused) {  // M7
  Locker locker = open("memory:");
  Lock lock = locker.acquire(slots("s", 3));
  try {
    lock.extend(slots("s", 5));
    ADD_FAILURE() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::incompatible);
    EXPECT_NE(std::string(error.what()).find('3'), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find('5'), std::string::npos) << error.what();
  }
  EXPECT_TRUE(lock.held());
}

// --- fork ------------------------------------------------------------------------------------------------------

bool ends_well(pid_t child) {
  const Clock::time_point deadline = Clock::now() + 20s;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return false;
    }
    std::this_thread::yield();
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// At exit LeakSanitizer takes what the parent's other threads had on their stacks for leaks of the child.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool looks_for_leaks = true;
#else
constexpr bool looks_for_leaks = false;
#endif

// B6: whatever other threads of the parent were in the middle of.
TEST(Lifetime, a_child_forked_amid_other_threads_can_lock_and_end) {
  Locker locker = open("memory:");
  (void)locker.acquire("u/0");
  std::atomic<bool> stop{false};
  std::vector<std::thread> crew;
  for (int t = 0; t < 2; ++t) {
    crew.emplace_back([&, t] {
      const std::string note(100, 'n');
      while (!stop) {
        std::thread([&] { (void)locker.acquire("u/1", {.note = note}); }).join();
        (void)locker.acquire("u/" + std::to_string(t), {.note = note});
      }
    });
  }
  int hung = 0;
  for (int i = 0; i < 20 * scale; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      Locker mine = open("memory:");
      const bool held = mine.acquire("u/1").held();
      if (i % 2 == 0 || looks_for_leaks) _exit(held ? 0 : 1);
      std::exit(held ? 0 : 1);  // with all that runs at exit
    }
    if (!ends_well(child)) ++hung;
  }
  EXPECT_EQ(hung, 0);
  stop = true;
  for (auto& thread : crew) thread.join();
}

// --- many who wait -------------------------------------------------------------------------------------------

// Not timed: with work that grows as the cube of the waiters this takes minutes, and the suite's limit ends it.
TEST(Lifetime, a_thousand_readers_wait_and_go) {
  Locker locker = open("memory:");
  Lock writer = locker.acquire("u1");
  std::vector<std::thread> readers;
  std::atomic<int> granted{0};
  for (int i = 0; i < 100 * scale; ++i) {
    readers.emplace_back([&] {
      const Lock lock = locker.acquire(shared("u1"));
      ++granted;
    });
  }
  while (locker.snapshot().waiters.size() < readers.size()) std::this_thread::yield();
  EXPECT_EQ(granted.load(), 0);
  writer.release();
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(granted.load(), static_cast<int>(readers.size()));
}

}  // namespace
}  // namespace hierlock
