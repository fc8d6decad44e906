// Lock: a held lock. It is released when it goes out of scope.
//
//     state     reason                                             held()  fence()      release()
//     empty     default-constructed, or moved from                 false   throws lost  does nothing
//     held      acquire, try_acquire                               true    the fence    -> released
//     released  release(), or extend() failed with `deadlock`      false   throws lost  does nothing
//     lost      the store took it away; or in a forked child       false   throws lost  -> released
//
// A released or lost Lock never becomes held again. You may move a Lock between threads, and release it on any of them.
// Two threads must not use one Lock at the same time. A Lock may outlive its Locker.
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

// Owner: the party that holds locks and waits for them, for example a request, a task or a coroutine. Locker::owner()
// makes it; AcquireOptions::owner and Lock::give_to use it. An Owner must outlive the calls that it is passed to. It
// need not outlive its locks.
//
// Several threads may use one Owner. They count as one party and do not exclude each other. If only another thread of
// the same Owner could end a wait, the wait counts as endless, and fails with `deadlock`.
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

  // The fencing token. It is higher than the fence of every earlier lock in conflict with this one (B3). Such a lock is
  // on the same target, an ancestor or a descendant, and may have had any owner. Store it with each write, and refuse a
  // write with a lower fence. Throws Error(lost) unless held().
  std::int64_t fence() const;

  // True while the lock is certainly held. No I/O (B4). On shm: it asks the kernel at most four times a second whether
  // the table's file still exists.
  bool held() const noexcept;
  explicit operator bool() const noexcept { return held(); }

  // The token is triggered when the store takes the lock away. It is advisory: call held() before you write. The token
  // does not give the reason. On shm: snapshot().log may have the reason, on a database the server's log.
  //
  // Callbacks run on a thread of the library, and may release the lock. On mysql: and valkey: each loss has its own
  // thread, so a slow callback delays no other. On shm: a slow callback delays the callbacks of this Locker's other
  // losses.
  std::stop_token lost() const;

  // Releases the lock. Never throws, and never blocks for more than 1 s. A second release is harmless (B6).
  void release() noexcept;

  // Adds a target to this lock, or upgrades a shared target to exclusive. One release ends all of it. Afterwards
  // fence() is a new, higher number. The request acts for the lock's owner; options.owner is ignored. On failure:
  //   any error except the next two, such as timeout or unavailable: the lock keeps its targets. (On mysql: some
  //   new rows may stay locked at the server until the release, so others may wait for them unnecessarily.)
  //   deadlock: the whole lock is released, held() is false
  //   lost: the store has taken the lock away, and held() is false. Release it as usual. (On mysql: this also happens
  //   if hierlock must close the session, because it cannot end the wait in another way.)
  void extend(const Target& target, const AcquireOptions& options = {});

  // Hands the lock to another owner of the same Locker, for the next thread or task. If that owner waits and the
  // hand-over would close a cycle, give_to throws Error(deadlock), and the lock stays with its present owner.
  void give_to(const Owner& owner);
  // Hands the lock to the calling thread (with Owners::per_handle: to a new owner).
  void give_to_this_thread();

 private:
  friend class Locker;
  Lock(spi::Core* core, const spi::Grant& grant) noexcept : core_(core), grant_(grant) {}

  spi::Core* core_ = nullptr;
  spi::Grant grant_{};
};

}  // namespace hierlock
