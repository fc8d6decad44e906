// Locker: an open store.
//
//     auto locker = hierlock::open("memory:");
//     auto lock = locker.acquire("u1/a1/r1");       waits for ever, or throws hierlock::Error
//
// A lock on a path holds the target itself (exclusive or shared), and holds every ancestor in an intention mode. So a
// lock on an account excludes locks on its resources, and the reverse. Two resources of one account do not conflict
// (H1).
//
// Threads: any number of threads may use a Locker at once.
//
// Lifetime: a Locker may be destroyed while locks are held. The locks stay held until they are released. Then the
// Locker's connections are closed and its threads end, on stores that have them. The memory is freed when no lock is
// held and each thread that used the Locker has ended or moved on. A thread moves on when it opens, closes or uses
// another Locker.
//
// fork(): the child cannot use a Locker of its parent. Acquiring throws Error(lost), handles do nothing, and the
// parent's locks are not affected. Open a new Locker in the child (B6).
#pragma once

#include <chrono>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <hierlock/lock.h>
#include <hierlock/options.h>
#include <hierlock/snapshot.h>
#include <hierlock/target.h>

namespace hierlock {

template <class T>
concept PathLike = std::convertible_to<const T&, std::string_view>;

class Locker {
 public:
  Locker(Locker&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
  Locker& operator=(Locker&& other) noexcept;
  ~Locker();

  // Acquires the target, or throws. If capabilities().fifo is true, requests are granted first come, first served.
  // On any Error (timeout, busy, deadlock, cancelled, exhausted, unsupported, incompatible, …: see error.h) nothing is
  // held.
  // If the owner already holds the target in a conflicting mode, it gets `deadlock` at once, whatever the timeout. The
  // try_ forms throw it too, because another try could never succeed.
  [[nodiscard]] Lock acquire(const Target& target, const AcquireOptions& options = {});
  template <PathLike P>
  [[nodiscard]] Lock acquire(const P& path, const AcquireOptions& options = {}) {
    return acquire_path(std::string_view(path), options);
  }
  // Acquires all targets or none, in one canonical order and with one fence. The order of the arguments does not matter
  // (H5). A target that is listed twice counts once. This is also true for slots.
  [[nodiscard]] Lock acquire(std::span<const Target> targets, const AcquireOptions& options = {});
  [[nodiscard]] Lock acquire(std::initializer_list<Target> targets, const AcquireOptions& options = {}) {
    return acquire(std::span<const Target>(targets.begin(), targets.size()), options);
  }

  // Like acquire, but `timeout` and `busy` return no value. All other errors are thrown, `deadlock` too. The wait lasts
  // at most `timeout`; options.timeout is ignored. By default there is no wait.
  [[nodiscard]] std::optional<Lock> try_acquire(const Target& target, std::chrono::nanoseconds timeout = {},
                                                AcquireOptions options = {});
  template <PathLike P>
  [[nodiscard]] std::optional<Lock> try_acquire(const P& path, std::chrono::nanoseconds timeout = {},
                                                AcquireOptions options = {}) {
    return try_acquire_path(std::string_view(path), timeout, options);
  }
  [[nodiscard]] std::optional<Lock> try_acquire(std::span<const Target> targets, std::chrono::nanoseconds timeout = {},
                                                AcquireOptions options = {});
  [[nodiscard]] std::optional<Lock> try_acquire(std::initializer_list<Target> targets,
                                                std::chrono::nanoseconds timeout = {}, AcquireOptions options = {}) {
    return try_acquire(std::span<const Target>(targets.begin(), targets.size()), timeout, options);
  }

  // Makes an owner for AcquireOptions::owner. People see the name in snapshot(); at most 255 bytes of it are kept.
  Owner owner(std::string_view name);

  Capabilities capabilities() const;
  Snapshot snapshot() const;
  Stats stats() const;
  // The URL without its password.
  std::string url() const;

  // Forced release, for operators: takes away every lock that was acquired with exactly this target, without asking its
  // holder. The holders find their locks `lost`. Returns how many locks were broken. On shm: the log in snapshot()
  // records the process that broke the lock, and the reason. Other stores do not keep the reason.
  // Throws `unsupported` if the store cannot break locks (memory:, mysql:).
  // Throws `unavailable` if a holder was stopped in the middle of an extend or a hand-over. Its lock is then either not
  // broken, or becomes free when the holder continues; the message says which.
  // Throws `exhausted` on shm: if there are too many broken locks that their holders have not released yet.
  std::size_t break_locks(const Target& target, std::string_view reason);

  // For a parent that holds locks on behalf of a child. Returns a file descriptor. The locks of this Locker stay held
  // while any process has this descriptor open, even if this process is killed. The descriptor is close-on-exec. The
  // library also closes it in a child made by fork(): to keep it there, dup() it before fork(). Returns -1 if the store
  // has no lifeline (only shm: has one).
  int lifeline();

 private:
  friend Locker open(std::string_view url, OpenOptions options);
  explicit Locker(spi::Core* core) noexcept : core_(core) {}
  spi::Core& core() const;
  spi::OwnerId owner_of(const AcquireOptions& options) const;
  Lock acquire_unusual(const Target& target, const AcquireOptions& options);
  Lock acquire_path_unusual(std::string_view path, const AcquireOptions& options);
  Lock acquire_path(std::string_view path, const AcquireOptions& options);
  std::optional<Lock> try_acquire_path(std::string_view path, std::chrono::nanoseconds timeout,
                                       AcquireOptions& options);

  spi::Core* core_;
};

// Opens a store by its URL.
//   shm:                    the processes of this user on this machine: /dev/shm/hierlock-UID
//   shm:NAME                another table of this user: /dev/shm/hierlock-UID.NAME
//   shm:///folder/file      any file on a local filesystem
//       ?mode=0660          file permissions: 0600 (the default), 0660 or 0666
//       ?max_locks=N        room for about N locks at once (default 1,000,000); the creator of the table decides
//   memory:                 a private lock table in this process: each open() makes a new one. Two Lockers that were
//                           opened with memory: do not exclude each other
//   memory:NAME             one table for all Lockers in this process that open NAME. NAME has 1 to 64 letters, digits,
//                           '-', '_' or '.'. The table lives until its last Locker is closed and its last lock is
//                           released. A thread is one owner in the table, whichever Locker it uses. A forked child has
//                           a new table
//       ?max_locks=N        default 16,000,000; for memory:NAME, the creator of the table decides
//   mysql://USER@HOST/DB    between machines, on MySQL and MariaDB: link hierlock::mysql and see mysql.h
//   valkey://HOST           between machines, on Valkey and Redis: link hierlock::valkey and see valkey.h
//
// max_locks counts locks on paths of three levels. Deeper paths, and ids of more than 70 bytes, need more room. Shared
// nodes have a limit of their own: twice max_locks, and at most 8,388,607 at once. Shared nodes are the ancestors of
// held paths and all nodes that are locked with shared(). If there is no room left, acquire throws `exhausted`, and the
// message says what to do. docs/shm.md describes which processes share a table, and what can go wrong.
//
// open() throws:
//   invalid_argument        for a malformed URL or an unknown option
//   unsupported             for a store that this program does not have
//   incompatible, denied, unavailable, exhausted, unsafe_topology
//                           for a file that cannot be used
//   not_provisioned         if OpenOptions::create is false and there is no table
// Stores on a server may throw more: see docs/mysql.md and docs/valkey.md.
Locker open(std::string_view url, OpenOptions options = {});

}  // namespace hierlock
