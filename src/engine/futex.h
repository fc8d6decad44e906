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

// Whose threads sleep on the words of a table. The kernel finds the sleepers of one process faster.
enum class Reach : std::uint8_t { this_process, all_processes };

// Sleeps while `cell` is `expected`, for at most `nanoseconds`. Returns for any reason at all: look again.
inline void futex_wait(const Cell<std::uint32_t>& cell, std::uint32_t expected, std::int64_t nanoseconds,
                       Reach reach) noexcept {
  if (nanoseconds <= 0) return;
  const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  const int how = reach == Reach::this_process ? FUTEX_WAIT_PRIVATE : FUTEX_WAIT;
  syscall(SYS_futex, cell.address(), how, expected, &limit, nullptr, 0);
}

inline void futex_wake(const Cell<std::uint32_t>& cell, int sleepers, Reach reach) noexcept {
  const int how = reach == Reach::this_process ? FUTEX_WAKE_PRIVATE : FUTEX_WAKE;
  syscall(SYS_futex, cell.address(), how, sleepers, nullptr, nullptr, 0);
}

inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace hierlock::engine
