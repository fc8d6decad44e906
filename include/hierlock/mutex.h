// Mutex: a target with the interface of a standard mutex (B9).
//
//     hierlock::Mutex mutex(locker, "u1/a1");
//     std::unique_lock guard(mutex);                // or std::shared_lock, std::scoped_lock(m1, m2, m3)
//
// Mutex meets Lockable, TimedLockable and SharedTimedLockable. If the store cannot hold this target shared,
// lock_shared() throws Error(unsupported). With `Sharing::required` the constructor already throws this error.
//
// As with std::shared_mutex, the thread that locks must unlock. A thread that waits for its own lock gets
// Error(deadlock) instead of a hang. try_lock() throws it too. Otherwise std::scoped_lock on a mutex and a mutex of its
// ancestor would try the two in turn for ever. (With Owners::per_handle, two Mutex objects have different owners. Then
// a thread gets this error only if it waits for a lock of the same Mutex object.)
//
// A thread may lock shared several times. lock() may throw any Error. unlock() never throws. If this thread has not
// locked the mutex, unlock() does nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include <hierlock/locker.h>

namespace hierlock {

class Mutex {
 public:
  enum class Sharing : std::uint8_t { if_possible, required };

  // The Locker must outlive the Mutex. Throws invalid_argument if the target is shared or slots. With Sharing::required
  // it throws `unsupported` if the store cannot hold the target shared. If capabilities() alone does not tell, the
  // constructor tries a shared lock at the store.
  Mutex(Locker& locker, Target target, Sharing sharing = Sharing::if_possible);
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  // Releases all locks that were taken through this Mutex.
  ~Mutex() = default;

  void lock();
  bool try_lock();
  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& wait) {
    return try_exclusive(clamp(wait));
  }
  template <class Clock, class Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    const auto now = Clock::now();
    return deadline <= now ? try_lock() : try_lock_for(deadline - now);
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
    const auto now = Clock::now();
    return deadline <= now ? try_lock_shared() : try_lock_shared_for(deadline - now);
  }
  void unlock_shared() noexcept;

  // The fence of this thread's exclusive lock. Throws Error(lost) if it holds none.
  std::int64_t fence() const;

 private:
  // Standard durations may be hours::max(): a wait of more than a century becomes a century. NaN becomes no wait.
  template <class Rep, class Period>
  static std::chrono::nanoseconds clamp(const std::chrono::duration<Rep, Period>& wait) {
    using Century = std::chrono::duration<double, std::ratio<3'155'760'000>>;
    if (std::chrono::duration_cast<Century>(wait) >= Century(1)) return std::chrono::hours(876'600);
    if (!(wait > wait.zero())) return std::chrono::nanoseconds::zero();
    return std::chrono::ceil<std::chrono::nanoseconds>(wait);
  }

  struct Held {
    std::uint64_t by;  // the thread's number
    Lock lock;
  };

  bool try_exclusive(std::chrono::nanoseconds wait);
  bool try_shared(std::chrono::nanoseconds wait);
  // Throws Error(deadlock) if this thread would wait for its own lock.
  void refuse_self_wait(const Target& wanted) const;
  void keep(std::vector<Held>& held, Lock lock);
  void drop(std::vector<Held>& held) noexcept;

  Locker& locker_;
  const Target exclusive_;
  const Target shared_;

  mutable std::mutex mutex_;  // guards what follows; never held while waiting for a lock or releasing one
  std::vector<Held> held_;    // has more than one only if the store took the earlier ones away
  std::vector<Held> held_shared_;
};

}  // namespace hierlock
