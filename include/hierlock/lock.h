// Lock: a lock that is held; released when it goes out of scope.
//
//     state     how it got there                                   held()  fence()     release()
//     empty     default-constructed, or moved from                 false   throws lost  nothing happens
//     held      acquire, try_acquire                               true    the fence    -> released
//     released  release(), or extend() failed with `deadlock`      false   throws lost  nothing happens
//     lost      the store took it away; this is a forked child     false   throws lost  -> released
//
// There is no way back from released or lost to held. A Lock may be moved between threads and released by any of them,
// but one Lock must not be used by two threads at the same moment. A Lock may outlive its Locker.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <utility>

#include <hierlock/options.h>
#include <hierlock/spi/backend.h>
#include <hierlock/target.h>

namespace hierlock {

class Locker;

// Who holds and waits: a request, a task, a coroutine. Made by Locker::owner(), used through AcquireOptions::owner and
// Lock::give_to. An Owner may be used by several threads; it counts as one party: it cannot exclude itself, and two of
// its waits are waits of one. So a wait that only another thread of the same Owner could end counts as one that never
// ends, and is `deadlock`. It must outlive the calls it is passed to, not the locks it holds.
class Owner {
 public:
  Owner(Owner&& other) noexcept;
  Owner& operator=(Owner&& other) noexcept;
  ~Owner();

 private:
  friend class Locker;
  friend class Lock;
  Owner(std::shared_ptr<spi::Core> core, spi::OwnerId id) : core_(std::move(core)), id_(id) {}
  void drop() noexcept;

  std::shared_ptr<spi::Core> core_;
  spi::OwnerId id_{};
};

class Lock {
 public:
  Lock() = default;
  Lock(Lock&& other) noexcept : core_(std::exchange(other.core_, nullptr)), grant_(other.grant_) {}
  Lock& operator=(Lock&& other) noexcept {
    if (this != &other) {
      release();
      core_ = std::exchange(other.core_, nullptr);
      grant_ = other.grant_;
    }
    return *this;
  }
  ~Lock() { release(); }

  // A number that is higher than that of every earlier lock in conflict with this one (B3): the same target, an
  // ancestor or a descendant, whoever held it. Pass it along with what you write, and refuse what comes with a lower
  // one. Throws Error(lost) unless held().
  std::int64_t fence() const;

  // True while the lock is certainly held; without I/O (B4). On shm: it asks the kernel, at most four times a second,
  // whether the table's file is still there.
  bool held() const noexcept;
  explicit operator bool() const noexcept { return held(); }

  // Triggered when the store takes the lock away. Advisory: ask held() before you write. Made on first use. Nothing
  // here tells why; on shm: snapshot().log may, on a database its own log. Callbacks run on a thread of the library,
  // and may release the lock. On mysql: that is a thread for each loss, so that one that takes long delays nobody; on
  // shm: other losses of the Locker are told when it returns.
  std::stop_token lost() const;

  // Gives the lock back. Never throws, never blocks for more than 1 s; a second release is harmless (B6).
  void release() noexcept;

  // Adds a target to this lock, or turns what it holds shared into exclusive; one release ends all. Afterwards fence()
  // is a new, higher number. The lock's owner asks, whatever options.owner says. On failure:
  //   timeout, busy, cancelled, exhausted, invalid_argument: the lock holds what it held before. (On mysql: rows that
  //   were reached stay locked at the server until the release: others may wait for them without need.)
  //   deadlock: the whole lock is released, held() is false
  //   lost: the store has taken it away, held() is false, and it is still to be released. (On mysql also when a wait
  //   could not be ended otherwise.)
  void extend(const Target& target, const AcquireOptions& options = {});

  // Hands the lock to another owner (of the same Locker), for the next thread or task. If that owner is waiting and the
  // hand-over would close a cycle: Error(deadlock), and the lock stays with the owner it has.
  void give_to(const Owner& owner);
  // To the calling thread (or, with Owners::per_handle, to an owner of its own).
  void give_to_this_thread();

 private:
  friend class Locker;
  Lock(spi::Core* core, const spi::Grant& grant) noexcept : core_(core), grant_(grant) {}

  spi::Core* core_ = nullptr;
  spi::Grant grant_{};
};

}  // namespace hierlock
