// LockManager: at most `parallelism` holders of a name at once; 1 is a mutex (M1).
//
//     hierlock::LockManager refresh(locker, "token-refresh", 1);
//     {
//       auto guard = refresh.lock({.timeout = 30s});
//       …                                             // read the token, refresh it, store it
//     }                                               // released, whatever happened (M3)
//
// Waiting (M2, M4): where the store wakes its waiters (capabilities().wakes_waiters) the manager queues there, first
// come first served. Otherwise, or with Polling::always, it tries, and on failure sleeps for
// min(delay * uniform(0.5, 1.5), max_delay), then delay = min(delay * 1.5, max_delay), until the timeout has passed.
//
// Only the owner releases: a wait that failed releases nothing, a second release does nothing (M7). Two managers that
// disagree on the parallelism of one name, while somebody holds or awaits it: Error(incompatible) that names both
// numbers. A thread that holds all slots of a name and asks for one more gets Error(deadlock).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <hierlock/locker.h>

namespace hierlock {

// How long LockManager waits, and how it polls where it has to (M2).
struct AwaitOptions {
  // Infinity waits for ever. Not a number and less than zero are invalid_argument, for the delays too.
  std::chrono::duration<double> timeout{600.0};
  std::chrono::duration<double> initial_delay{1.0};
  std::chrono::duration<double> max_delay{30.0};
};

enum class Polling : std::uint8_t { where_needed, always };

// What polling is made of; replaced in tests so that nothing sleeps. Empty members mean the real thing.
struct PollingEnvironment {
  std::function<std::chrono::duration<double>()> now{};  // monotonic
  std::function<void(std::chrono::duration<double>)> sleep{};
  std::function<double(double low, double high)> uniform{};
  Polling polling = Polling::where_needed;
};

// May be used by several threads at once.
class LockManager {
 public:
  // The Locker must outlive the manager. Throws invalid_argument for an empty name or a parallelism of 0.
  LockManager(Locker& locker, std::string name, std::uint32_t parallelism, PollingEnvironment environment = {});

  // Takes a slot, or throws Error(timeout) that names the lock and how long it waited. Tries at least once, whatever
  // the timeout. While polling, the last pause is not cut short: it may end later than the timeout by one pause (M2).
  // The slot belongs to the calling thread until release_lock(); a thread may take several.
  void await_lock(const AwaitOptions& options = {});

  // Gives back the slot that this thread took last. If it has none, or the store took it away meanwhile: false, or with
  // `raise_exception` Error(lost). Slots of lock() are not among them: they have their own handle.
  bool release_lock(bool raise_exception = false);

  // A slot as a scoped Lock, released on every way out.
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
