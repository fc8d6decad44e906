// What a lock between threads of Linux is made of, and nothing else. Nothing that puts its waiters to sleep does less.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace bench {

// A bare futex ping-pong: one word says whose turn it is; who gives it away writes the word and wakes the other, who
// sleeps on it. Nothing that hands anything from one sleeping thread to another on Linux does less. Between processes
// the word lies in memory that they share, and the kernel is told so.
class FutexTurns {
 public:
  enum class Between { threads, processes };

  explicit FutexTurns(Between between = Between::threads)
      : flags_(between == Between::threads ? FUTEX_PRIVATE_FLAG : 0) {}

  // Waits for the turn of `self` (0 or 1). It is 0's turn first.
  void acquire(std::size_t self) {
    for (;;) {
      const std::uint32_t seen = turn_.load(std::memory_order_acquire);
      if (seen == self) return;
      call(FUTEX_WAIT, seen);
    }
  }
  // Gives the turn to the other.
  void release(std::size_t self) {
    turn_.store(static_cast<std::uint32_t>(1 - self), std::memory_order_release);
    call(FUTEX_WAKE, 1);
  }
  bool is_turn_of(std::size_t self) const { return turn_.load(std::memory_order_acquire) == self; }

 private:
  void call(int operation, std::uint32_t value) {
    static_assert(sizeof(turn_) == sizeof(std::uint32_t));
    syscall(SYS_futex, &turn_, operation | flags_, value, nullptr, nullptr, 0);
  }

  std::atomic<std::uint32_t> turn_{0};
  int flags_;
};

// Sleeps while the word has this value, for at most so long.
inline void futex_sleep(std::atomic<std::uint32_t>& word, std::uint32_t value, std::chrono::nanoseconds longest,
                        FutexTurns::Between between) {
  const timespec time{longest.count() / 1'000'000'000, longest.count() % 1'000'000'000};
  const int flags = between == FutexTurns::Between::threads ? FUTEX_PRIVATE_FLAG : 0;
  syscall(SYS_futex, &word, FUTEX_WAIT | flags, value, &time, nullptr, 0);
}

// A bare futex queue of threads, first come, first served: a number of units under a mutex, and a list of waiters that
// sleep on a word each. A release hands units to those at the head. With one unit it is a mutex, with three it counts
// to three, and a writer among readers takes all units at once.
class FutexQueue {
 public:
  explicit FutexQueue(std::size_t units) : free_(units) {}

  // False if it did not get them in time; no time limit if `longest` is zero.
  bool acquire(std::size_t units, std::chrono::nanoseconds longest = {}) {
    Waiter self{.units = units};
    {
      const std::lock_guard guard(mutex_);
      if (first_ == nullptr && free_ >= units) {
        free_ -= units;
        return true;
      }
      self.before = last_;
      (last_ == nullptr ? first_ : last_->after) = &self;
      last_ = &self;
    }
    const auto until = std::chrono::steady_clock::now() + longest;
    while (self.granted.load(std::memory_order_acquire) == 0) {
      const auto left = until - std::chrono::steady_clock::now();
      if (longest.count() != 0 && left.count() <= 0) break;
      futex_sleep(self.granted, 0, longest.count() != 0 ? left : std::chrono::hours(1), FutexTurns::Between::threads);
    }
    const std::lock_guard guard(mutex_);  // also: whoever granted it is done with `self`
    if (self.granted.load(std::memory_order_relaxed) != 0) return true;
    unlink(self);
    return false;
  }

  void release(std::size_t units) {
    const std::lock_guard guard(mutex_);
    free_ += units;
    while (first_ != nullptr && first_->units <= free_) {
      Waiter& next = *first_;
      free_ -= next.units;
      unlink(next);
      next.granted.store(1, std::memory_order_release);
      syscall(SYS_futex, &next.granted, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, nullptr, 0);
    }
  }

 private:
  struct Waiter {
    std::size_t units;
    Waiter* before = nullptr;
    Waiter* after = nullptr;
    std::atomic<std::uint32_t> granted{0};
  };
  void unlink(Waiter& waiter) {
    (waiter.before == nullptr ? first_ : waiter.before->after) = waiter.after;
    (waiter.after == nullptr ? last_ : waiter.after->before) = waiter.before;
  }

  std::mutex mutex_;  // guards what follows
  std::size_t free_;
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
};

}  // namespace bench
