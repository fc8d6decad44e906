// Locker: a store, opened.
//
//     auto locker = hierlock::open("memory:");
//     auto lock = locker.acquire("u1/a1/r1");       waits for ever, or throws hierlock::Error
//
// Locking a path holds its target exclusively (or shared) and every ancestor by intention, so that a lock on an account
// excludes locks on its resources and the other way round, while two resources of one account do not meet (H1).
//
// A Locker may be used by any number of threads at once. Destroying it while locks are held is allowed: they stay held
// until they are released, and then its connections are closed and its thread ends, on stores that have such. The
// memory of a Locker that is gone is given back when no lock of it is held and every thread that used it has ended, or
// has opened, closed or come to use another. After fork() a Locker of the parent is of no use in the child: acquiring
// throws Error(lost), handles are inert, and nothing of the parent's is touched; open a new one (B6).
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

  // Acquires the target, or throws. First come, first served where capabilities().fifo.
  //   timeout, busy, deadlock, cancelled, exhausted, unsupported, incompatible, …: see error.h; nothing is held
  // An owner that asks for what it already holds in a conflicting mode gets `deadlock` at once, with any timeout, also
  // from the try_ forms: trying again could never succeed.
  [[nodiscard]] Lock acquire(const Target& target, const AcquireOptions& options = {});
  template <PathLike P>
  [[nodiscard]] Lock acquire(const P& path, const AcquireOptions& options = {}) {
    return acquire_path(std::string_view(path), options);
  }
  // All of them or nothing, in one canonical order, with one fence; the order they are given in does not matter (H5).
  // The same target twice counts once, slots too.
  [[nodiscard]] Lock acquire(std::span<const Target> targets, const AcquireOptions& options = {});
  [[nodiscard]] Lock acquire(std::initializer_list<Target> targets, const AcquireOptions& options = {}) {
    return acquire(std::span<const Target>(targets.begin(), targets.size()), options);
  }

  // Like acquire, but no value for `timeout` and `busy`; everything else is thrown, `deadlock` too. Waits for
  // `timeout`, whatever options.timeout says; without one, not at all.
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

  // A party of its own, for AcquireOptions::owner. The name is for people; at most 255 bytes are kept.
  Owner owner(std::string_view name);

  Capabilities capabilities() const;
  Snapshot snapshot() const;
  Stats stats() const;
  // The URL without its password.
  std::string url() const;

  // An operator's forced release: takes away, from whoever has it and without asking, every lock that was asked for
  // with exactly this target. Their holders find them `lost`; the table's log says who did it and why. Returns how
  // many. Throws unsupported where the store cannot do it, unavailable if a holder was stopped in the middle of an
  // extend or a hand-over: its lock is free when it goes on, or not broken yet; the message tells.
  std::size_t break_locks(const Target& target, std::string_view reason);

  // For a parent that holds locks on behalf of a child: a file descriptor that keeps the locks of this Locker held as
  // long as any process has it open, even if this one is killed. It is close-on-exec, and closed in a child made by
  // fork(): dup() it before. -1 where the store has no such thing.
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
//   shm:NAME                another table of theirs: /dev/shm/hierlock-UID.NAME
//   shm:///folder/file      a file of one's choice, on a local filesystem
//       ?mode=0660          who may use it: 0600 (the default), 0660, 0666
//       ?max_locks=N        room for about N locks at once (default 1,000,000); the one who creates the table decides
//   memory:                 inside this process; each open() is a lock table of its own
//       ?max_locks=N        (default 16,000,000)
//   mysql://USER@HOST/DB    between machines, on MySQL and MariaDB: link hierlock::mysql and see mysql.h
// max_locks counts locks on paths of three levels; deeper paths and ids of more than 70 bytes take more of it. Nodes
// that are shared (users and accounts above a lock, and what is locked with shared()) are counted apart: twice
// max_locks, and at most 8,388,607 at once. When there is no more room: `exhausted`, which says what to do. docs/shm.md
// says who shares a table and what can go wrong. Throws invalid_argument for a malformed URL or an unknown option,
// unsupported for a store that is not there, incompatible, denied, unavailable, exhausted or unsafe_topology for a file
// that cannot be used.
Locker open(std::string_view url, OpenOptions options = {});

}  // namespace hierlock
