// Measure: running the loops and reading the clock.
//
// Not Google Benchmark: it runs one benchmark to its end before it starts the next, and on a shared machine what
// happens between the two decides the ratio. Here all contenders of a case take turns in short rounds, and a ratio is
// taken within a round. What is left to write is a loop and a clock.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "keys.h"

namespace bench {

using Clock = std::chrono::steady_clock;

inline double nanoseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::nano>(duration).count();
}

// Processor time the calling thread has used.
double thread_nanoseconds();
// Processor time that a process has used. Throws if it has ended.
double process_nanoseconds(pid_t process);

// Bytes of this process that are in memory now, free heap given back first so that it cannot hide growth.
std::size_t resident_bytes();

// Ends the process: other threads may be waiting for one that failed.
[[noreturn]] void fail(const char* what) noexcept;

// Binds the calling thread to a core: two workers that share one, as the scheduler has them do for a while when others
// are busy, do not meet, and would be measured as one. `worker` counts from 0.
void keep_to_own_core(std::size_t worker);

// Runs body(0) ... body(threads - 1), each on a new thread, and on a core of its own if there are several.
template <class Body>
void on_threads(std::size_t threads, const Body& body) {
  std::vector<std::thread> running;
  for (std::size_t t = 0; t < threads; ++t) {
    running.emplace_back([&body, t, threads] {
      try {
        if (threads > 1) keep_to_own_core(t);
        body(t);
      } catch (const std::exception& e) {
        fail(e.what());
      }
    });
  }
  for (std::thread& thread : running) thread.join();
}

// Everybody waits here until all have come, and gets the time at which the last one did: a thread that is late on a
// busy machine is late within the window, instead of having one to itself. It spins: a sleeping thread would start
// later still.
class StartLine {
 public:
  explicit StartLine(std::size_t threads) : missing_(threads) {}
  Clock::time_point wait() {
    if (missing_.fetch_sub(1) == 1) {
      begin_ = Clock::now();
      open_.store(true, std::memory_order_release);
    }
    while (!open_.load(std::memory_order_acquire)) std::this_thread::yield();
    return begin_;
  }

 private:
  std::atomic<std::size_t> missing_;
  std::atomic<bool> open_{false};
  Clock::time_point begin_{};
};

// The workers of a contender, one a thread, kept from round to round.
template <class Worker>
using Crew = std::vector<std::unique_ptr<Worker>>;

// What one round of pairs needs to know. `batch` is the number of pairs between two looks at the clock.
struct Window {
  Clock::duration length{};
  std::size_t batch = 64;
  bool always_wall_clock = false;  // for one worker that is compared with several
};

// One worker's part of a round, in pairs a second: a warm-up of each key once, and pairs from the start line until the
// window ends.
//
// One worker alone never sleeps and waits for nobody: it is timed by the processor time it used, so that being
// preempted by somebody else's work does not count. Several are timed by the wall clock, because how they get in each
// other's way is what is measured.
template <class Worker, class Pair>
double timed_pairs(Worker& worker, const Window& window, StartLine& start, bool alone, const Pair& pair) {
  const std::size_t size = worker.size();
  for (std::size_t i = 0; i < size; ++i) pair(worker, i);
  const bool by_processor_time = alone && !window.always_wall_clock;
  std::size_t pairs = 0, i = 0;
  const Clock::time_point begin = start.wait();
  const double processor_begin = thread_nanoseconds();
  const auto processor_time = [&] {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(thread_nanoseconds() - processor_begin));
  };
  Clock::time_point now = begin, until = begin + window.length;
  do {
    for (std::size_t n = 0; n < window.batch; ++n) {
      pair(worker, i);
      if (++i == size) i = 0;
    }
    pairs += window.batch;
    now = Clock::now();
    // On a busy machine most of the window may have been somebody else's: it goes on, up to ten times as long.
    if (by_processor_time && now >= until && now - begin < 10 * window.length) {
      const auto had = processor_time();
      if (had < window.length * 9 / 10) until = now + (window.length - had);
    }
  } while (now < until);
  const double used = by_processor_time ? nanoseconds(processor_time()) : nanoseconds(now - begin);
  return static_cast<double>(pairs) / (used / 1e9);
}

// Pairs a second of all workers together, each on a thread of its own.
template <class Worker, class Pair>
double pairs_per_second(Crew<Worker>& crew, const Window& window, const Pair& pair) {
  std::vector<double> rates(crew.size());
  StartLine start(crew.size());
  on_threads(crew.size(),
             [&](std::size_t t) { rates[t] = timed_pairs(*crew[t], window, start, crew.size() == 1, pair); });
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

template <class Worker>
double pairs_per_second(Crew<Worker>& crew, const Window& window) {
  return pairs_per_second(crew, window, [](Worker& worker, std::size_t i) { worker.pair(i); });
}

// What two sides that hand something to each other tell each other besides. It may lie in memory that processes share.
struct HandOver {
  std::atomic<std::size_t> asked{0};  // the latest turn that was asked for
  std::atomic<std::size_t> taken{0};  // how many turns were had
  Clock::time_point released{};       // passed on by the lock itself
};

// One side of a hand-over (0 or 1): times from the other's release to the return of its own acquire, in nanoseconds.
// The two alternate, `hops` turns each. The holder keeps its turn until the other has said that it asks, and 50 us
// longer: by then the other sleeps, unless the machine is busy. It does not ask again before the other has its turn, so
// a lock need not be fair.
template <class Turns>
std::vector<double> hand_over_side(Turns& turns, std::size_t self, std::size_t hops, HandOver& both) {
  constexpr auto dwell = std::chrono::microseconds(50);
  const std::size_t total = 2 * hops;
  std::vector<double> samples;
  samples.reserve(hops);
  const auto wait_until = [](const std::atomic<std::size_t>& counter, std::size_t at_least) {
    while (counter.load(std::memory_order_acquire) < at_least) std::this_thread::yield();
  };
  for (std::size_t turn = self; turn < total; turn += 2) {
    wait_until(both.taken, turn);
    both.asked.store(turn, std::memory_order_release);
    turns.acquire(self);
    const Clock::time_point acquired = Clock::now();
    if (turn != 0) samples.push_back(nanoseconds(acquired - both.released));
    if (both.taken.fetch_add(1) != turn) throw std::runtime_error("hand-over: two hold the same lock");
    if (turn + 1 < total) {
      wait_until(both.asked, turn + 1);
      const Clock::time_point until = Clock::now() + dwell;
      while (Clock::now() < until) {
      }
    }
    both.released = Clock::now();
    turns.release(self);
  }
  return samples;
}

// The same with both sides as threads, all samples together.
template <class Turns>
std::vector<double> hand_overs(Turns& turns, std::size_t hops) {
  HandOver both;
  std::vector<double> samples[2];
  on_threads(2, [&](std::size_t self) { samples[self] = hand_over_side(turns, self, hops, both); });
  samples[0].insert(samples[0].end(), samples[1].begin(), samples[1].end());
  return std::move(samples[0]);
}

// Throws unless two workers of one contender exclude each other where they must, and only there.
template <class First, class Second>
void check_exclusion(std::string_view name, First& a, Second& b) {
  const Path held(1, 2, 3), sibling(1, 2, 4);
  const auto expect = [&](bool as_expected, const char* what) {
    if (!as_expected) throw std::runtime_error(std::string(name) + ": self-check: " + what);
  };
  expect(a.try_hold(held, 3), "a free resource was refused");
  expect(!b.try_hold(held, 3), "a resource was given to two");
  expect(!b.try_hold(held, 2), "an account was given away although its resource is held");
  expect(!b.try_hold(held, 1), "a user was given away although its resource is held");
  expect(b.try_hold(sibling, 3), "a resource was refused because its sibling is held");
  b.drop();
  a.drop();
  expect(b.try_hold(held, 2), "an account was refused although its resource was released");
  expect(!a.try_hold(held, 3), "a resource was given away although its account is held");
  b.drop();
  expect(a.try_hold(held, 3), "a resource was refused although its account was released");
  a.drop();
}

}  // namespace bench
