// LockManager: a name with at most `parallelism` holders at once. A parallelism of 1 is a mutex (M1).
//
//     hierlock::LockManager refresh(locker, "token-refresh", 1);
//     {
//       auto guard = refresh.lock({.timeout = 30s});
//       …                                             // read the token, refresh it, store it
//     }                                               // released, also after an exception (M3)
//
// Waiting (M2, M4): if the store wakes its waiters (capabilities().wakes_waiters), the manager queues there, first
// come, first served. Otherwise, or with Polling::always, it polls. After a failed try it sleeps for min(delay *
// uniform(0.5, 1.5), max_delay), then sets delay = min(delay * 1.5, max_delay), until the timeout.
//
// Only the owner of a slot releases it: a failed wait releases nothing, and a second release does nothing (M7).
//
// All managers of a name must have the same parallelism. While a name is held or waited for, a manager with another
// parallelism gets Error(incompatible), which names both numbers. If a thread holds all slots of a name and asks for
// one more, it gets Error(deadlock).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <hierlock/locker.h>

namespace hierlock {

// How long LockManager waits, and how it polls if it must (M2).
struct AwaitOptions {
  // Infinity: no limit. NaN and negative values are invalid_argument, for the delays too.
  std::chrono::duration<double> timeout{600.0};
  std::chrono::duration<double> initial_delay{1.0};
  std::chrono::duration<double> max_delay{30.0};
};

enum class Polling : std::uint8_t { where_needed, always };

// The clock, sleep and random numbers of polling. Tests replace them, so that no test sleeps. An empty member means the
// real one.
struct PollingEnvironment {
  std::function<std::chrono::duration<double>()> now{};  // monotonic
  std::function<void(std::chrono::duration<double>)> sleep{};
  std::function<double(double low, double high)> uniform{};
  Polling polling = Polling::where_needed;
};

// Several threads may use a LockManager at once.
class LockManager {
 public:
  // The Locker must outlive the manager. Throws invalid_argument for an empty name or a parallelism of 0.
  LockManager(Locker& locker, std::string name, std::uint32_t parallelism, PollingEnvironment environment = {});

  // Takes a slot, or throws Error(timeout), which names the lock and the time waited. It tries at least once, whatever
  // the timeout. Polling does not shorten the last pause, so the call may end one pause later than the timeout (M2).
  // The slot belongs to the calling thread until release_lock(). A thread may take several slots.
  void await_lock(const AwaitOptions& options = {});

  // Releases the slot that this thread took last with await_lock(). If the thread has none, or the store has taken the
  // slot away, release_lock() returns false. With `raise_exception` it throws Error(lost) instead. Slots from lock()
  // have their own handle.
  bool release_lock(bool raise_exception = false);

  // Takes a slot as a Lock, which is released at the end of its scope.
  [[nodiscard]] Lock lock(const AwaitOptions& options = {});

 private:
  struct Held {
    std::uint64_t by;  // the thread's number
    Lock lock;
  };

  Lock queue(std::chrono::duration<double> timeout);
  Lock poll(const AwaitOptions& options);

  Locker& locker_;
  const Target target_;
  const PollingEnvironment environment_;

  std::mutex mutex_;        // guards held_; never held while waiting for a slot or giving one back
  std::vector<Held> held_;  // in the order they were taken
};

}  // namespace hierlock
