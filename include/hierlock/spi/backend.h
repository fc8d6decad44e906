// Backend: the interface that a store implements. A store does one thing: it grants a whole plan or nothing.
//
// The library implements everything else once for all stores: targets, plans, handles, events, counters, fork. A
// Backend is thread-safe, and throws only hierlock::Error.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include <hierlock/error.h>
#include <hierlock/options.h>
#include <hierlock/snapshot.h>
#include <hierlock/spi/plan.h>

namespace hierlock::spi {

class Core;  // a Backend with the common parts of every Locker; private to the library

// A backend's own number for an owner. 0 is the default owner: the calling thread, or the handle (OpenOptions::owners).
struct OwnerId {
  std::uint64_t value = 0;
  friend bool operator==(OwnerId, OwnerId) = default;
};

// A granted plan. Only the backend interprets `id`. The rest of the library reads only the fence.
struct Grant {
  std::uint64_t id = 0;
  std::int64_t fence = 0;
};

// A waiting request, as its backend sees it. These calls may be expensive. The observer need not make them.
class Waiting {
 public:
  virtual ~Waiting() = default;
  virtual std::string owner() const = 0;       // the owner that waits
  virtual std::string blocked_by() const = 0;  // the owner in the way, in words
  // The number of the owner that waits, as in Snapshot::Party::owner; 0: not known.
  virtual std::uint64_t owner_number() const { return 0; }
};

// The backend calls it on the waiting thread when a request starts to wait, and again after each time that waits()
// returns.
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;
  // Returns the time until the next call.
  virtual std::chrono::nanoseconds waits(const Waiting& waiting) noexcept = 0;
};

struct Request {
  const Plan& plan;
  bool no_wait = false;
  std::optional<std::chrono::steady_clock::time_point> deadline{};  // none: for ever
  const std::stop_token* cancel = nullptr;
  OwnerId owner{};
  std::string_view note{};
  WaitObserver* observer = nullptr;
};

// The error message of a store that cannot break locks.
inline constexpr const char* cannot_break =
    "this store cannot break locks: only shm:, valkey: and redis: can; end the process that holds it, or at a database "
    "the session that status names, with KILL";

class Backend {
 public:
  virtual ~Backend() = default;

  virtual Capabilities capabilities() const = 0;

  // Grants the plan. Returns no value if the deadline has passed or, with no_wait, if another owner is in the way. It
  // may throw Error(timeout) or Error(busy) instead, to give a better message. Every other failure throws. If the plan
  // is not granted, the request leaves nothing locked.
  virtual std::optional<Grant> acquire(const Request& request) = 0;

  // Optional: grants one path or name to the default owner without I/O, if nothing is in the way. A grant with id 0
  // means that the caller must use acquire(). Never throws.
  virtual Grant at_once(const Chain&) noexcept { return {}; }
  // Optional: the same for the text of a path that at_once() has granted before. The text has not been checked. Unless
  // the backend surely knows the text, it returns id 0, and the caller must use at_once().
  virtual Grant at_once_again(std::string_view) noexcept { return {}; }

  // Implements Lock::extend. Returns the new grant. Returns no value in the same cases as acquire(); the old grant does
  // not change then. On `deadlock` the old grant is gone. On any other error, also `lost`, the caller must still
  // release the old grant.
  virtual std::optional<Grant> extend(const Grant& grant, const Request& request) = 0;

  // Never throws, and never blocks for more than 1 s. The library releases each grant at most once.
  virtual void release(const Grant& grant) noexcept = 0;

  // Implements Lock::give_to. Returns the new grant.
  virtual Grant give(const Grant& grant, OwnerId to) = 0;

  // True while the grant is certainly held. No I/O.
  virtual bool held(const Grant& grant) const noexcept = 0;
  // Triggered when the grant is lost. May allocate.
  virtual std::stop_token lost(const Grant& grant) = 0;

  virtual OwnerId make_owner(std::string_view name) = 0;
  virtual void drop_owner(OwnerId owner) noexcept = 0;
  // The owner's name for people; also for the default owner.
  virtual std::string owner_name(OwnerId owner) = 0;

  virtual Snapshot snapshot() const = 0;
  // Called after an acquire or extend failed with this Error(deadlock), to add it to the log of snapshot().
  virtual void log_deadlock(const Error&) noexcept {}

  // Implement Locker::break_locks and Locker::lifeline.
  virtual std::size_t break_locks(const Plan&, std::string_view) { throw Error(ErrorKind::unsupported, cannot_break); }
  virtual int lifeline() { return -1; }

  // Numbers of granted acquires and extends, by the Space of the first step.
  virtual std::array<std::uint64_t, 3> grants() const = 0;

  // True if there is no unreleased grant. The library keeps the backend of a destroyed Locker until then.
  virtual bool idle() const noexcept = 0;

  // The Locker was destroyed. From now on there is no acquire, but grants may still be extended, given and released.
  // The library may keep the backend's memory as long as any thread that used it lives. So the backend must end its
  // threads and connections now or, if there are grants, in the release of the last one. close() takes no longer than a
  // release. The library calls it once, and never in a forked child.
  virtual void close() noexcept {}
};

}  // namespace hierlock::spi
