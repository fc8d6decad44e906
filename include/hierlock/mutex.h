// Mutex: a target in the shape of the standard's mutexes (B9).
//
//     hierlock::Mutex mutex(locker, "u1/a1");
//     std::unique_lock guard(mutex);                // or std::shared_lock, std::scoped_lock(m1, m2, m3)
//
// Meets Lockable, TimedLockable, and SharedTimedLockable. Where the store cannot hold this target shared, the
// constructor says so if `Sharing::required` is asked for, and lock_shared() throws Error(unsupported) otherwise.
//
// As with std::shared_mutex, the thread that locks is the thread that unlocks, and a thread that waits for its own lock
// would hang: here it is a thrown Error(deadlock), from try_lock() as well, so that std::scoped_lock on two mutexes of
// which one is the other's target or ancestor ends too. (With Owners::per_handle that is so for one Mutex object only:
// two of them are strangers to each other.) A thread may lock shared several times. lock() may throw any Error;
// unlock() never throws, and unlocking what this thread has not locked does nothing.
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

  // The Locker must outlive the Mutex. The target must be exclusive and not slots: otherwise invalid_argument. With
  // Sharing::required, `unsupported` if the store cannot hold it shared; where only the store can tell, it is asked.
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

  // The fence of the exclusive lock this thread holds. Throws Error(lost) if it holds none.
  std::int64_t fence() const;

 private:
  // Standard durations may be hours::max(): anything over a century is a century. Not a number is no wait.
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
  // Throws Error(deadlock) if this thread would wait for itself.
  void refuse_self_wait(const Target& wanted) const;
  void keep(std::vector<Held>& held, Lock lock);
  void drop(std::vector<Held>& held) noexcept;

  Locker& locker_;
  const Target exclusive_;
  const Target shared_;

  mutable std::mutex mutex_;  // guards what follows; never held while waiting for a lock or releasing one
  std::vector<Held> held_;    // more than one only if the store took the earlier ones away
  std::vector<Held> held_shared_;
};

}  // namespace hierlock
