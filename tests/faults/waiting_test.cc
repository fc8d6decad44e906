// Waiting: hundreds of processes that wait for one name cost next to nothing, keep their deadlines, and still find out
// when whoever holds it dies (B5, B12).
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "faults.h"

namespace hierlock::conformance {
namespace {

// A sanitizer only looks on at a smaller crowd. Forking a test that it has filled with hundreds of megabytes takes tens
// of milliseconds, and how late a crowd is there says nothing of what users get.
constexpr int crowd(int count) { return slowness == 1 ? count : std::min(count, 100); }

// What each process does when it is told to go. The next turn is for those who were not granted the lock.
struct Turn {
  enum class Waits { for_lock, asleep } waits = Waits::for_lock;
  std::chrono::nanoseconds timeout = 100s;
};

// What a waiting process tells when it is done.
struct Told {
  pid_t pid;
  bool granted;
  Clock::time_point began, deadline, ended;
};

struct Pipe {
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(std::string("pipe2: ") + std::strerror(errno));
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(int end) {
    if (ends[end] >= 0) ::close(std::exchange(ends[end], -1));
  }
  int ends[2] = {-1, -1};
};

class Waiting : public Faults {
 protected:
  void TearDown() override {
    stop();
    Faults::TearDown();
  }

  void stop() {
    for (const pid_t child : children_) ::kill(child, SIGKILL);
    for (const pid_t child : children_) reap(child);
    children_.clear();
    go_.clear();
    told_.reset();
    held_.reset();
  }

  // Starts processes, and returns when each of them has opened the table. go() lets all of them begin their next turn
  // at once. Forked before this process has a Locker.
  void start(int count, std::vector<Turn> turns = {Turn{}}) {
    Pipe ready;
    told_.emplace();
    for (std::size_t i = 0; i < turns.size(); ++i) go_.emplace_back();
    const std::string url = table().url();
    const pid_t test = ::getpid();
    for (int i = 0; i < count; ++i) {
      const pid_t child = ::fork();
      if (child < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
      if (child == 0) {
        // Whatever becomes of the test, nobody stays behind.
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != test) ::_exit(1);
        take_turns(url, ready, turns);
      }
      children_.push_back(child);
    }
    ready.close_end(1);
    held_.emplace(locker().acquire(named("n")));
    for (int i = 0; i < count; ++i) {
      char byte = 0;
      read_from(ready, &byte, sizeof byte, "that has opened the table");
    }
  }

  void go() {
    if (go_.empty()) throw std::logic_error("there is no next turn");
    go_.pop_front();
  }

  void all_wait() {
    EXPECT_TRUE(eventually([&] { return locker().snapshot().waiters.size() == children_.size(); }))
        << locker().snapshot().waiters.size() << " wait";
  }

  [[noreturn]] void take_turns(const std::string& url, Pipe& ready, const std::vector<Turn>& turns) {
    try {
      for (Pipe& go : go_) go.close_end(1);
      Locker mine = hierlock::open(url);
      char byte = 0;
      if (::write(ready.ends[1], &byte, 1) != 1) ::_exit(1);
      ready.close_end(1);
      for (const Turn& turn : turns) {
        while (::read(go_.front().ends[0], &byte, 1) > 0) {
        }
        go_.pop_front();
        Told told{::getpid(), false, Clock::now(), {}, {}};
        told.deadline = told.began + turn.timeout;
        std::optional<Lock> lock;
        if (turn.waits == Turn::Waits::for_lock) lock = mine.try_acquire(named("n"), turn.timeout);
        if (turn.waits == Turn::Waits::asleep) std::this_thread::sleep_until(told.deadline);
        told.granted = lock.has_value();
        told.ended = Clock::now();
        if (::write(told_->ends[1], &told, sizeof told) != sizeof told) ::_exit(1);
        while (told.granted) ::pause();
      }
      for (;;) ::pause();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(2);
  }

  // Of a thousand processes each next one may keep us waiting, but none for long.
  void read_from(const Pipe& pipe, void* to, std::size_t size, const std::string& who) {
    pollfd ready{pipe.ends[0], POLLIN, 0};
    const auto deadline = Clock::now() + patience;
    for (std::chrono::nanoseconds left = patience; left > 0ns; left = deadline - Clock::now()) {
      if (::poll(&ready, 1, static_cast<int>(left / 1ms) + 1) <= 0) continue;
      if (::read(pipe.ends[0], to, size) == static_cast<ssize_t>(size)) return;
      break;
    }
    throw std::runtime_error("there is no next process " + who + "\n" + state());
  }

  Told next() {
    Told told{};
    read_from(*told_, &told, sizeof told, "that is done");
    return told;
  }

  // How late processes are that all wait until their deadlines: 99 of 100 of them, and the last.
  struct Lateness {
    std::chrono::nanoseconds usual, worst;
    bool together;  // all of them waited at once; a machine that stalls may not get so far
  };
  Lateness lateness(const char* what) {
    go();
    Clock::time_point last_began{}, first_ended = Clock::time_point::max();
    std::vector<std::chrono::nanoseconds> late;
    while (late.size() < children_.size()) {
      const Told told = next();
      EXPECT_FALSE(told.granted);
      EXPECT_GE(told.ended, told.deadline);
      late.push_back(told.ended - told.deadline);
      last_began = std::max(last_began, told.began);
      first_ended = std::min(first_ended, told.ended);
    }
    std::sort(late.begin(), late.end());
    const Lateness found{late[late.size() * 99 / 100], late.back(), last_began < first_ended};
    const auto ms = [](auto time) { return std::chrono::duration<double, std::milli>(time).count(); };
    std::printf("%zu processes that %s: 99 of 100 are at most %.1f ms late, the last %.1f ms\n", late.size(), what,
                ms(found.usual), ms(found.worst));
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
  std::deque<Pipe> go_;  // one a turn: closing it is the word
  std::optional<Pipe> told_;
};

TEST_P(Waiting, of_400_processes_takes_less_than_a_fifth_of_a_core) {  // B12
  start(crowd(400));
  go();
  all_wait();
  const auto begin = Clock::now();
  const double before = used();
  std::this_thread::sleep_for(3s);  // measures, and waits for nothing
  const double cores = (used() - before) / std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("%zu processes wait with %.3f cores\n", children_.size(), cores);
  RecordProperty("millicores", static_cast<int>(cores * 1000));
  EXPECT_LT(cores, 0.2 * slowness);
}

// A thousand processes that wake up at once keep two processors busy whatever they waited for, so they only sleep
// first, and are compared with themselves. A machine that stands still makes everybody late, so one round of three is
// enough: waiting that is late by itself is late in each. Each round has processes that never locked anything before.
TEST_P(Waiting, of_a_thousand_processes_keeps_its_deadlines) {  // B12
  bool in_time = false;
  for (int round = 0; round < 3 && !in_time && !HasFailure(); ++round) {
    start(crowd(1000), {{Turn::Waits::asleep, 3s}, {Turn::Waits::for_lock, 3s}});
    const Lateness sleeping = lateness("only sleep");
    const Lateness waiting = lateness("wait");
    in_time = waiting.together && waiting.usual < 100ms * slowness + sleeping.usual &&
              waiting.worst < 1s * slowness + sleeping.worst;
    stop();
    start_again();
  }
  EXPECT_TRUE(in_time);
}

TEST_P(Waiting, finds_a_dead_holder_though_the_watchman_dies_too) {  // B5
  // All but one of those who wait die together with the one who holds: whoever was on duty is most likely among them.
  constexpr int count = 12, rounds = 5;
  int late = 0;
  for (int round = 0; round < rounds; ++round) {
    start(count);
    go();
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
    EXPECT_LT(took, death_bound + late_bound);
    late += took < death_bound + unrest.worst() ? 0 : 1;
    stop();
    start_again();
  }
  EXPECT_LE(late, rounds / 2);
}

HIERLOCK_ON_SHM(Waiting);

}  // namespace
}  // namespace hierlock::conformance
