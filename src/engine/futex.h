// Futex: sleeping on a word of the table, and waking those who do.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <ctime>

#include "engine/cell.h"

namespace hierlock::engine {

// Sleeps while `cell` is `expected`, for at most `nanoseconds`. Returns for any reason at all: look again.
inline void futex_wait(const Cell<std::uint32_t>& cell, std::uint32_t expected, std::int64_t nanoseconds) noexcept {
  if (nanoseconds <= 0) return;
  const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  syscall(SYS_futex, cell.address(), FUTEX_WAIT_PRIVATE, expected, &limit, nullptr, 0);
}

inline void futex_wake(const Cell<std::uint32_t>& cell, int sleepers) noexcept {
  syscall(SYS_futex, cell.address(), FUTEX_WAKE_PRIVATE, sleepers, nullptr, nullptr, 0);
}

inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace hierlock::engine
