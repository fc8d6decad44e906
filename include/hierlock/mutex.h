// Mutex: a target in the shape of the standard's mutexes (B9).
//
//     hierlock::Mutex mutex(locker, "u1/a1");
//     std::unique_lock guard(mutex);                // or std::shared_lock, std::scoped_lock(m1, m2, m3)
//
// Meets Lockable, TimedLockable, and SharedTimedLockable. Where the store cannot hold this target shared, the
// constructor says so if `Sharing::required` is asked for, and lock_shared() throws Error(unsupported) otherwise.
//
// As with std::mutex, the thread that locks is the thread that unlocks, and locking twice is an error: here a
// thrown Error(deadlock), not a hang. lock() may throw any Error; unlock() never throws, and unlocking what this
// thread has not locked does nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <hierlock/locker.h>

namespace hierlock {

class Mutex {
 public:
  enum class Sharing : std::uint8_t { if_possible, required };

  // The Locker must outlive the Mutex. The target must be exclusive and not slots: otherwise invalid_argument.
  Mutex(Locker& locker, Target target, Sharing sharing = Sharing::if_possible);
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  // Releases whatever is still locked through it.
  ~Mutex() = default;

  void lock();
  bool try_lock();
  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& wait) {
    return try_exclusive(clamp(wait));
  }
  template <class Clock, class Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    return try_lock_for(deadline - Clock::now());
  }
  void unlock() noexcept;

  void lock_shared();
  bool try_lock_shared();
  template <class Rep, class Period>
  bool try_lock_shared_for(const std::chrono::duration<Rep, Period>& wait) {
    return try_shared(clamp(wait));
  }
  template <class Clock, class Duration>
  bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    return try_lock_shared_for(deadline - Clock::now());
  }
  void unlock_shared() noexcept;

  // The fence of the exclusive lock this thread holds. Throws Error(lost) if it holds none.
  std::int64_t fence() const;

 private:
  // Standard durations may be hours::max(): anything over a century is a century.
  template <class Rep, class Period>
  static std::chrono::nanoseconds clamp(const std::chrono::duration<Rep, Period>& wait) {
    using Century = std::chrono::duration<double, std::ratio<3'155'760'000>>;
    if (std::chrono::duration_cast<Century>(wait) >= Century(1)) return std::chrono::hours(876'600);
    if (wait <= wait.zero()) return std::chrono::nanoseconds::zero();
    return std::chrono::ceil<std::chrono::nanoseconds>(wait);
  }
  bool try_exclusive(std::chrono::nanoseconds wait);
  bool try_shared(std::chrono::nanoseconds wait);

  Locker& locker_;
  const Target exclusive_;
  std::optional<Target> shared_;  // none: cannot be held shared here

  struct Held {
    std::thread::id by;
    Lock lock;
  };
  mutable std::mutex mutex_;  // guards what follows; never held while waiting for a lock
  std::vector<Held> held_;
  std::vector<Held> held_shared_;
};

}  // namespace hierlock
