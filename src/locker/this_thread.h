// This thread's number: unlike std::thread::id it is never given to another thread, so that a lock left behind by a
// thread that ended is not taken for the lock of its successor.
#pragma once

#include <atomic>
#include <cstdint>

namespace hierlock::locker {

inline std::uint64_t this_thread_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  thread_local const std::uint64_t number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

}  // namespace hierlock::locker
