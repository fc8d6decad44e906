// memory:NAME: one table for all Lockers of the process that open the name. Lockers, threads and processes come and go.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <hierlock/hierlock.h>

namespace hierlock {
namespace {

using namespace std::chrono_literals;

template <class Work>
auto elsewhere(Work work) {
  return std::async(std::launch::async, std::move(work)).get();
}

bool free_for_others(Locker& locker, const std::string& path) {
  return elsewhere([&] { return locker.try_acquire(path).has_value(); });
}

// Of the exit code of a child that does `work`; what hangs is killed after a minute.
template <class Work>
bool well_in_a_child(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(work() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(NamedMemory, lockers_of_one_name_exclude_each_other) {  // B1
  Locker one = open("memory:shop"), two = open("memory:shop"), other = open("memory:Shop"), alone = open("memory:");
  const Lock lock = one.acquire("u1/a1");
  EXPECT_FALSE(free_for_others(two, "u1/a1/r1"));
  EXPECT_TRUE(free_for_others(two, "u1/a2"));
  EXPECT_TRUE(free_for_others(other, "u1/a1")) << "another name";
  EXPECT_TRUE(free_for_others(alone, "u1/a1")) << "without a name, a table is its Locker's own";
  ASSERT_FALSE(two.snapshot().holders.empty());
  EXPECT_EQ(two.snapshot().holders.back().target, "u1/a1");
  EXPECT_FALSE(two.capabilities().across_processes);
}

TEST(NamedMemory, a_wait_ends_when_another_locker_releases) {
  Locker one = open("memory:shop"), two = open("memory:shop");
  Lock lock = one.acquire("u1");
  auto waits = std::async(std::launch::async, [&] { return two.acquire("u1", {.timeout = 60s}).held(); });
  while (one.snapshot().waiters.empty()) std::this_thread::yield();
  lock.release();
  EXPECT_TRUE(waits.get());
}

TEST(NamedMemory, a_thread_is_one_owner_in_all_lockers_of_a_name) {  // B11
  Locker one = open("memory:shop"), two = open("memory:shop");
  const Lock lock = one.acquire("u1");
  const auto asked_again = [&] {
    try {
      (void)two.acquire("u1");
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::conflict;
  };
  EXPECT_EQ(asked_again(), ErrorKind::deadlock) << "it would wait for itself";
}

TEST(NamedMemory, a_cycle_through_two_lockers_is_found) {  // B11
  Locker one = open("memory:shop"), two = open("memory:shop");
  std::barrier both_hold(2);
  std::atomic<int> deadlocks{0};
  const auto work = [&](const char* first, const char* second) {
    const Lock held = one.acquire(first);
    both_hold.arrive_and_wait();
    try {
      EXPECT_TRUE(two.acquire(second, {.timeout = 60s}).held());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::deadlock);
      ++deadlocks;
    }
  };
  std::thread other([&] { work("u2", "u1"); });
  work("u1", "u2");
  other.join();
  EXPECT_EQ(deadlocks, 1);
}

TEST(NamedMemory, each_locker_has_its_own_kind_of_owners_and_statistics) {
  Locker threads = open("memory:shop");
  Locker handles = open("memory:shop", {.owners = Owners::per_handle});
  const Lock one = threads.acquire("u1");
  EXPECT_FALSE(handles.try_acquire("u1").has_value()) << "a handle is another owner: busy, and no deadlock";
  const Lock two = handles.acquire("u2");
  const Lock three = handles.acquire("u3");
  EXPECT_FALSE(threads.try_acquire("u2").has_value());
  EXPECT_EQ(threads.stats().by_space[0].grants, 1u);
  EXPECT_EQ(handles.stats().by_space[0].grants, 2u);
}

TEST(NamedMemory, a_lock_keeps_its_table_when_all_lockers_are_closed) {
  auto locker = std::make_unique<Locker>(open("memory:brief"));
  Lock lock = locker->acquire("u1");
  const std::int64_t fence = lock.fence();
  locker.reset();
  Locker again = open("memory:brief");
  EXPECT_TRUE(lock.held());
  EXPECT_FALSE(free_for_others(again, "u1"));
  lock.release();
  EXPECT_GT(again.acquire("u1").fence(), fence);
}

TEST(NamedMemory, the_last_close_frees_the_table) {
  const auto locks_in = [](Locker& locker) {
    std::vector<Lock> held;
    try {
      while (held.size() < 2000) held.push_back(locker.acquire("u/" + std::to_string(held.size())));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::exhausted);
    }
    return held.size();
  };
  std::int64_t fence = 0;
  {
    Locker small = open("memory:room?max_locks=100");
    Locker same = open("memory:room?max_locks=5000");
    EXPECT_LT(locks_in(same), 2000u) << "who makes the table decides how large it is";
    fence = small.acquire("u1").fence();
  }
  Locker large = open("memory:room?max_locks=5000");
  EXPECT_EQ(locks_in(large), 2000u) << "a new table";
  EXPECT_GT(large.acquire("u1").fence(), fence);  // B3
}

TEST(NamedMemory, lockers_that_come_and_go_leave_nothing_in_the_table) {  // B12
  Locker stays = open("memory:busy?max_locks=100");
  const Lock held = stays.acquire("u1");
  for (int i = 0; i < 1000; ++i) {
    Locker locker = open("memory:busy", {.owners = i % 2 == 0 ? Owners::per_thread : Owners::per_handle});
    ASSERT_TRUE(locker.acquire("u2/a1/r1").held()) << i;
    ASSERT_TRUE(i % 100 != 0 || !free_for_others(locker, "u1"));
  }
  std::vector<Lock> many;
  for (int i = 0; i < 90; ++i) many.push_back(stays.acquire("u3/a1/r" + std::to_string(i)));
  EXPECT_TRUE(held.held());
}

TEST(NamedMemory, threads_that_open_it_at_once_have_the_same_table) {
  constexpr int threads = 8;
  for (int round = 0; round < 50; ++round) {
    std::barrier together(threads);
    std::atomic<int> got_it{0};
    const auto work = [&] {
      together.arrive_and_wait();
      Locker locker = open("memory:race");
      together.arrive_and_wait();
      const std::optional<Lock> lock = locker.try_acquire("u1");
      if (lock) ++got_it;
      together.arrive_and_wait();
    };
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i) all.emplace_back(work);
    for (std::thread& thread : all) thread.join();
    ASSERT_EQ(got_it, 1) << "round " << round;
  }
}

// The threads share nothing but the name: each opens it for every lock.
TEST(NamedMemory, tables_end_and_begin_while_threads_open_and_close) {
  int count = 0;  // guarded by the lock
  constexpr int threads = 4, times = 250;
  const auto work = [&] {
    for (int i = 0; i < times; ++i) {
      Locker locker = open("memory:restless?max_locks=100");
      const Lock lock = locker.acquire("u1/a1");
      ++count;
    }
  };
  {
    const Locker stays = open("memory:restless?max_locks=100");
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i) all.emplace_back(work);
    for (std::thread& thread : all) thread.join();
  }
  EXPECT_EQ(count, threads * times);
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([] {
      for (int j = 0; j < times; ++j) EXPECT_TRUE(open("memory:restless?max_locks=100").acquire("u2").held());
    });
  }
  for (std::thread& thread : all) thread.join();
}

TEST(NamedMemory, a_forked_child_has_a_table_of_its_own) {  // B6
  Locker locker = open("memory:shop");
  Lock lock = locker.acquire("u1");
  EXPECT_TRUE(well_in_a_child([&] {
    if (lock.held()) return false;
    Locker own = open("memory:shop");
    Lock in_child = own.acquire("u1", {.timeout = 10s});
    Locker second = open("memory:shop");
    return in_child.held() && !free_for_others(second, "u1");
  }));
  EXPECT_TRUE(lock.held());
  Locker second = open("memory:shop");
  EXPECT_FALSE(free_for_others(second, "u1")) << "what the child did changed nothing here";
  lock.release();
  EXPECT_TRUE(free_for_others(second, "u1"));
}

#if !defined(__SANITIZE_THREAD__)  // gcc 12's hangs in children of a process with threads
TEST(NamedMemory, a_fork_while_threads_open_and_close_leaves_a_child_that_works) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> all;
  for (int i = 0; i < 3; ++i) {
    all.emplace_back([&] {
      while (!stop) EXPECT_TRUE(open("memory:restless?max_locks=100").acquire("u1/a1").held());
    });
  }
  int well = 0;
  for (int i = 0; i < 20; ++i) {
    well += well_in_a_child([] { return open("memory:restless?max_locks=100").acquire("u1").held(); }) ? 1 : 0;
  }
  stop = true;
  for (std::thread& thread : all) thread.join();
  EXPECT_EQ(well, 20);
}
#endif

TEST(NamedMemory, a_bad_name_is_refused_in_words) {
  for (const char* url : {"memory:a/b", "memory:a b", "memory://shop", "memory:.", "memory:\xC3\xA9"}) {
    try {
      (void)open(url);
      ADD_FAILURE() << url;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << url;
      EXPECT_NE(std::string(error.what()).find("letters, digits"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW((void)open("memory:" + std::string(65, 'a')), Error);
  EXPECT_EQ(open("memory:" + std::string(64, 'a')).url(), "memory:" + std::string(64, 'a'));
}

}  // namespace
}  // namespace hierlock
