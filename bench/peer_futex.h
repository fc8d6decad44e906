// A bare futex ping-pong: one word says whose turn it is; who gives it away writes the word and wakes the other, who
// sleeps on it. Nothing that hands anything from one sleeping thread to another on Linux does less. Between processes
// the word lies in memory that they share, and the kernel is told so.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bench {

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

}  // namespace bench
