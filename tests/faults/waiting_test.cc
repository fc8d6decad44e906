// Waiting: hundreds of processes that wait for one name cost next to nothing, keep their deadlines, and still find out
// when whoever holds it dies (B5, B12).
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>

#include "faults.h"

namespace hierlock::conformance {
namespace {

class Waiting : public Faults {
 protected:
  enum class Waits { for_lock, asleep };

  // What a waiting process tells when it is done.
  struct Told {
    pid_t pid;
    bool granted;
    Clock::time_point began, deadline, ended;
  };

  void SetUp() override {
    Faults::SetUp();
    ASSERT_EQ(::pipe(pipe_), 0);
  }
  void TearDown() override {
    stop();
    ::close(pipe_[0]);
    ::close(pipe_[1]);
    Faults::TearDown();
  }

  void stop() {
    for (const pid_t child : children_) ::kill(child, SIGKILL);
    for (const pid_t child : children_) reap(child);
    children_.clear();
    held_.reset();
  }

  // Starts processes that ask for the name all at once, when each of them has opened the table. Forked before this
  // process has a Locker.
  void start(int count, std::chrono::nanoseconds timeout = 100s, Waits waits = Waits::for_lock) {
    int go[2], ready[2];
    ASSERT_EQ(::pipe(go), 0);
    ASSERT_EQ(::pipe(ready), 0);
    const std::string url = table().url();
    for (int i = 0; i < count; ++i) {
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        ::close(go[1]);
        ::close(ready[0]);
        wait_in_child(url, go[0], ready[1], timeout, waits);
      }
      children_.push_back(child);
    }
    ::close(go[0]);
    ::close(ready[1]);
    held_.emplace(locker().acquire(named("n")));
    char byte = 0;
    for (int i = 0; i < count; ++i) ASSERT_EQ(::read(ready[0], &byte, 1), 1) << "a process did not come to ask";
    ::close(ready[0]);
    ::close(go[1]);  // all go
  }

  void all_wait() {
    EXPECT_TRUE(eventually([&] { return locker().snapshot().waiters.size() == children_.size(); }))
        << locker().snapshot().waiters.size() << " wait";
  }

  [[noreturn]] void wait_in_child(const std::string& url, int go, int ready, std::chrono::nanoseconds timeout,
                                  Waits waits) {
    ::alarm(120);
    Told told{::getpid(), false, {}, {}, {}};
    try {
      std::optional<Locker> mine;
      if (waits == Waits::for_lock) mine = hierlock::open(url);
      char byte = 0;
      if (::write(ready, &byte, 1) != 1) ::_exit(1);
      ::close(ready);
      while (::read(go, &byte, 1) > 0) {
      }
      told.began = Clock::now();
      told.deadline = told.began + timeout;
      std::optional<Lock> lock;
      if (waits == Waits::for_lock) lock = mine->try_acquire(named("n"), timeout);
      if (waits == Waits::asleep) std::this_thread::sleep_until(told.deadline);
      told.granted = lock.has_value();
      told.ended = Clock::now();
      if (::write(pipe_[1], &told, sizeof told) != sizeof told) ::_exit(1);
      if (told.granted) ::pause();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(2);
    }
    ::_exit(0);
  }

  Told next() {
    Told told{};
    EXPECT_EQ(::read(pipe_[0], &told, sizeof told), static_cast<ssize_t>(sizeof told));
    return told;
  }

  // How late processes are that wait for 3 s, all of them at once: 99 of 100 of them, and the last.
  struct Lateness {
    std::chrono::nanoseconds usual, worst;
  };
  Lateness lateness(int count, Waits waits) {
    start(count, 3s, waits);
    Clock::time_point last_began{}, first_ended = Clock::time_point::max();
    std::vector<std::chrono::nanoseconds> late;
    for (int i = 0; i < count; ++i) {
      const Told told = next();
      EXPECT_FALSE(told.granted);
      EXPECT_GE(told.ended, told.deadline);
      late.push_back(told.ended - told.deadline);
      last_began = std::max(last_began, told.began);
      first_ended = std::min(first_ended, told.ended);
    }
    stop();
    start_again();
    EXPECT_LT(last_began, first_ended) << "they did not all wait at once";
    std::sort(late.begin(), late.end());
    const Lateness found{late[late.size() * 99 / 100], late.back()};
    const auto ms = [](auto time) { return std::chrono::duration<double, std::milli>(time).count(); };
    std::printf("%d processes %s: 99 of 100 are at most %.1f ms late, the last %.1f ms\n", count,
                waits == Waits::asleep ? "that only sleep" : "that wait", ms(found.usual), ms(found.worst));
    return found;
  }

  // What all of them have used of the processors so far, in seconds.
  double used() const {
    double ticks = 0;
    for (const pid_t child : children_) {
      std::ifstream file("/proc/" + std::to_string(child) + "/stat");
      std::string text;
      std::getline(file, text);
      std::istringstream fields(text.substr(text.rfind(')') + 2));
      std::string skipped;
      for (int i = 0; i < 11; ++i) fields >> skipped;
      double user = 0, system = 0;
      fields >> user >> system;
      ticks += user + system;
    }
    return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

  std::vector<pid_t> children_;
  std::optional<Lock> held_;
  int pipe_[2] = {-1, -1};
};

TEST_P(Waiting, of_400_processes_takes_less_than_a_fifth_of_a_core) {  // B12
  start(400);
  all_wait();
  const auto begin = Clock::now();
  const double before = used();
  std::this_thread::sleep_for(3s);  // measures, and waits for nothing
  const double cores = (used() - before) / std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("%zu processes wait with %.3f cores\n", children_.size(), cores);
  RecordProperty("millicores", static_cast<int>(cores * 1000));
  EXPECT_LT(cores, 0.2 * slowness);
}

// A thousand processes that wake up at once keep two processors busy whatever they waited for, so they are compared
// with a thousand that only sleep. A machine that stands still makes everybody late, so one round of three is enough:
// waiting that is late by itself is late in each.
TEST_P(Waiting, of_a_thousand_processes_keeps_its_deadlines) {  // B12
  bool in_time = false;
  for (int round = 0; round < 3 && !in_time && !HasFailure(); ++round) {
    const Lateness sleeping = lateness(1000, Waits::asleep);
    const Lateness waiting = lateness(1000, Waits::for_lock);
    in_time = waiting.usual < 100ms * slowness + sleeping.usual && waiting.worst < 1s * slowness + sleeping.worst;
  }
  EXPECT_TRUE(in_time);
}

TEST_P(Waiting, finds_a_dead_holder_though_the_watchman_dies_too) {  // B5
  // All but one of those who wait die together with the one who holds: whoever was on duty is most likely among them.
  constexpr int count = 12;
  for (int round = 0; round < 5; ++round) {
    start(count);
    all_wait();
    held_->release();  // the first of them has it now
    const Told first = next();
    ASSERT_TRUE(first.granted);
    const auto last = std::find_if(children_.rbegin(), children_.rend(), [&](pid_t c) { return c != first.pid; });
    const Unrest unrest;
    const auto begin = Clock::now();
    for (const pid_t child : children_) {
      if (child != *last && child != first.pid) ::kill(child, SIGKILL);
    }
    ::kill(first.pid, SIGKILL);  // last: or one of the others may get the lock before its own end
    const Told second = next();
    EXPECT_TRUE(second.granted);
    EXPECT_EQ(second.pid, *last);
    const auto took = second.ended - begin;
    std::printf("found after %.1f ms\n", std::chrono::duration<double, std::milli>(took).count());
    EXPECT_LT(took, death_bound + unrest.worst());
    stop();
    start_again();
  }
}

HIERLOCK_ON_SHM(Waiting);

}  // namespace
}  // namespace hierlock::conformance
