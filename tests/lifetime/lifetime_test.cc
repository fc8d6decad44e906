// What outlives what: Lockers, Locks, threads, processes; and looking at locks while they go.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
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

// --- a closed table in a file --------------------------------------------------------------------------------

// A file of its own for one test, in memory where that is possible.
class TableFile {
 public:
  TableFile() {
    if (mkdtemp(folder_) == nullptr) throw std::runtime_error("mkdtemp failed");
  }
  ~TableFile() { std::filesystem::remove_all(folder_); }
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;
  std::string path() const { return std::string(folder_) + "/table"; }
  std::string url() const { return "shm://" + path() + "?max_locks=1000"; }

  // How many descriptors of this process lead to it. By its inode: of a file that was made without a name, the
  // descriptor does not know the name.
  int descriptors() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::equivalent(entry.path(), path(), gone)) ++count;
    }
    return count;
  }
  // And how many mappings.
  int mappings() const {
    struct stat table {};
    if (stat(path().c_str(), &table) != 0) return 0;
    const std::string inode = " " + std::to_string(table.st_ino) + " ";
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);) {
      if (line.find(inode) != std::string::npos) ++count;
    }
    return count;
  }

 private:
  char folder_[64] = "/dev/shm/hierlock-lifetime.XXXXXX";
};

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// Runs what it is given, one after the other, and lives on in between.
class LongLivedThread {
 public:
  template <class F>
  void run(F f) {
    std::packaged_task<void()> task(std::move(f));
    auto done = task.get_future();
    {
      const std::lock_guard guard(mutex_);
      tasks_.push_back(std::move(task));
    }
    more_.notify_one();
    done.get();
  }

 private:
  void loop(const std::stop_token& end) {
    std::unique_lock guard(mutex_);
    while (more_.wait(guard, end, [&] { return !tasks_.empty(); })) {
      std::packaged_task<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      guard.unlock();
      task();
      guard.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable_any more_;
  std::deque<std::packaged_task<void()>> tasks_;
  std::jthread thread_{[this](const std::stop_token& end) { loop(end); }};
};

TEST(Lifetime, a_closed_table_is_left_while_its_threads_live_on) {  // B6
  const TableFile file;
  LongLivedThread worker;
  const std::ptrdiff_t threads_before = threads_of_this_process();
  {
    Locker locker = open(file.url());
    worker.run([&] {
      Lock lock = locker.acquire("u1/a1");
      EXPECT_FALSE(lock.lost().stop_requested());  // starts the thread that watches for losses
    });
    EXPECT_EQ(file.descriptors(), 1);
  }
  EXPECT_EQ(file.descriptors(), 0);
  EXPECT_EQ(file.mappings(), 0);
  EXPECT_EQ(threads_of_this_process(), threads_before);
}

TEST(Lifetime, the_last_release_leaves_a_closed_table) {  // B6
  const TableFile file;
  LongLivedThread worker;
  std::optional<Locker> locker = open(file.url());
  std::optional<Owner> owner = locker->owner("late");
  Lock mine = locker->acquire("u1/a1");
  Lock theirs;
  worker.run([&] { theirs = locker->acquire("u1/a2", {.owner = &*owner}); });
  locker.reset();
  EXPECT_TRUE(theirs.held());
  mine.release();
  EXPECT_TRUE(theirs.held());
  EXPECT_EQ(file.descriptors(), 1);
  worker.run([&] { theirs.release(); });
  EXPECT_EQ(file.descriptors(), 0);
  EXPECT_EQ(file.mappings(), 0);
  owner.reset();  // harmless
  Locker again = open(file.url());
  EXPECT_TRUE(again.acquire("u1").held());
}

TEST(Lifetime, lockers_that_are_closed_keep_no_place_in_a_table) {  // B12: more than the 1,023 that fit at once
  const TableFile file;
  LongLivedThread worker;
  for (int i = 0; i < 1'100; ++i) {
    Locker locker = open(file.url());
    worker.run([&] { EXPECT_TRUE(locker.acquire("u1/a1").held()); });
  }
  EXPECT_EQ(file.descriptors(), 0);
}

TEST(Lifetime, closing_and_the_last_release_do_not_miss_each_other) {
  const TableFile file;
  LongLivedThread worker;
  for (int i = 0; i < 30 * scale; ++i) {
    std::optional<Locker> locker = open(file.url());
    Lock lock = locker->acquire("u1/a1");
    std::atomic<bool> go{false};
    std::thread closes([&] {
      while (!go) std::this_thread::yield();
      locker.reset();
    });
    worker.run([&] {
      go = true;
      lock.release();
    });
    closes.join();
    ASSERT_EQ(file.descriptors(), 0) << "round " << i;
  }
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

TEST(Lifetime, a_child_forked_after_a_table_was_left_lives) {  // B6
  const TableFile file;
  LongLivedThread worker;  // it used the table, so something of the Locker is still there
  {
    Locker locker = open(file.url());
    worker.run([&] { (void)locker.acquire("u1/a1"); });
  }
  const pid_t child = fork();
  if (child == 0) _exit(0);
  EXPECT_TRUE(ends_well(child));
}

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
// --- a closed Locker and its last lock -------------------------------------------------------------------

std::string table_of_its_own(const char* name) {
  return "shm:///dev/shm/hierlock-lifetime." + std::to_string(getpid()) + "." + name;
}
struct Removed {
  const std::string url;
  ~Removed() { std::filesystem::remove(url.substr(6)); }
};

// Nobody else keeps the store: so the thread that calls the callback ends it.
TEST(Lifetime, a_lost_callback_may_release_the_last_lock_of_a_locker_that_is_gone) {  // B6
  const Removed table{table_of_its_own("lost")};
  for (const bool opens : {false, true}) {
    auto locker = std::make_unique<Locker>(open(table.url));
    Locker other = open(table.url);
    Lock lock;
    std::stop_token lost;
    std::thread([&] {
      lock = locker->acquire("a/b");
      lost = lock.lost();
    }).join();
    std::promise<void> released;
    const std::stop_callback told(lost, [&] {
      lock.release();
      if (opens) const Locker another = open("memory:");
      released.set_value();
    });
    locker.reset();
    EXPECT_EQ(other.break_locks("a/b", "a test"), 1u);
    ASSERT_EQ(released.get_future().wait_for(10s), std::future_status::ready);
    EXPECT_FALSE(lock.held());
    EXPECT_TRUE(other.try_acquire("a/b", 1s));
  }
}

// One thread releases the last lock, which takes the table away. Another looks meanwhile whether it may forget it.
TEST(Lifetime, the_last_lock_of_a_locker_that_is_gone_is_released_while_others_tidy_up) {  // B6
  const Removed table{table_of_its_own("tidy")};
  Locker busy = open(table.url);
  std::vector<Lock> many;  // so that looking takes a while
  for (int i = 0; i < 10'000 * scale; ++i) many.push_back(busy.acquire("n" + std::to_string(i)));
  for (int round = 0; round < 10; ++round) {
    auto locker = std::make_unique<Locker>(open(table.url));
    std::promise<void> used, closed;
    std::atomic<bool> end{false};
    std::thread tidies([&] {
      { const Lock lock = locker->acquire("first"); }
      used.set_value();
      closed.get_future().wait();
      while (!end) const Locker other = open("memory:");
    });
    std::thread releases([&] {
      Lock lock = locker->acquire("second");
      used.get_future().wait();
      locker.reset();
      closed.set_value();
      for (int i = 0; i < 3; ++i) const Locker other = open("memory:");
      lock.release();
      end = true;
    });
    tidies.join();
    releases.join();
  }
}

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
