// Signal: one thread sleeps until another sets it.
//
// To set it and to wake the thread are two steps. So whoever sets it may hold a mutex, and wake after it has unlocked
// that. Otherwise the thread would wake up only to wait for the mutex.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>

#include "timed/brief_mutex.h"
#include "timed/wait_limit.h"

namespace hierlock::timed {

class Signal {
 public:
  void set() noexcept { set_.store(1, std::memory_order_release); }
  // After set(). The Signal may be gone by then: nothing there is read or written.
  static void wake(const Signal* signal) noexcept {
    syscall(SYS_futex, signal, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  // True: it was set, and is not any more. False: it was not set by then.
  bool wait_until(Clock::time_point end) noexcept {
    using std::chrono::duration_cast, std::chrono::nanoseconds, std::chrono::seconds;
    const auto since_boot = std::max(end.time_since_epoch(), Clock::duration::zero());  // a futex refuses less
    const auto whole = duration_cast<seconds>(since_boot);
    const timespec at{whole.count(), static_cast<long>(duration_cast<nanoseconds>(since_boot - whole).count())};
    const timespec* const until = end == Clock::time_point::max() ? nullptr : &at;
    for (;;) {
      if (set_.exchange(0, std::memory_order_acquire) != 0) return true;
      const long result =
          syscall(SYS_futex, &set_, FUTEX_WAIT_BITSET_PRIVATE, 0, until, nullptr, FUTEX_BITSET_MATCH_ANY);
      if (result != 0 && errno == ETIMEDOUT) return set_.exchange(0, std::memory_order_acquire) != 0;
    }
  }

 private:
  std::atomic<std::uint32_t> set_{0};
};
static_assert(sizeof(Signal) == sizeof(std::uint32_t));  // a futex

// Locks a BriefMutex, and wakes threads after it has unlocked it.
class WakingGuard {
 public:
  explicit WakingGuard(BriefMutex& mutex) : mutex_(mutex) { lock(); }
  ~WakingGuard() {
    if (locked_) unlock();
  }
  WakingGuard(const WakingGuard&) = delete;
  WakingGuard& operator=(const WakingGuard&) = delete;

  void lock() {
    mutex_.lock();
    locked_ = true;
  }
  void unlock() {
    locked_ = false;
    mutex_.unlock();
    while (count_ > 0) Signal::wake(to_wake_[--count_]);
  }
  // Sets it now.
  void wake(Signal& signal) noexcept {
    signal.set();
    if (count_ == to_wake_.size()) return Signal::wake(&signal);
    to_wake_[count_++] = &signal;
  }

 private:
  BriefMutex& mutex_;
  bool locked_ = false;
  std::array<const Signal*, 4> to_wake_{};
  std::size_t count_ = 0;
};

}  // namespace hierlock::timed
