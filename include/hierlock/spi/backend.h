// Backend: what a store implements. It does one thing: grant a whole plan or nothing.
//
// Everything else (targets, plans, handles, events, counting, fork) is written once above it. Implementations are
// thread-safe; exceptions are hierlock::Error.
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

class Core;  // a Backend and what every Locker has around it; private to the library

// A backend's own number for an owner; 0 means "the default one": the calling thread, or the handle
// (OpenOptions::owners).
struct OwnerId {
  std::uint64_t value = 0;
  friend bool operator==(OwnerId, OwnerId) = default;
};

// A granted plan. The backend's own; the rest of the library only carries it, and reads the fence.
struct Grant {
  std::uint64_t id = 0;
  std::int64_t fence = 0;
};

// A request that waits, as its backend sees it. Asking costs something; nobody has to.
class Waiting {
 public:
  virtual ~Waiting() = default;
  virtual std::string owner() const = 0;       // who waits
  virtual std::string blocked_by() const = 0;  // who stands in the way, in words
  // Who waits, as Snapshot::Party::owner has it; 0: not known.
  virtual std::uint64_t owner_number() const { return 0; }
};

// Told by a backend, on the waiting thread, when a request starts to wait.
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;
  // Returns how long to wait before calling again.
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

// What a store says that cannot take a lock away from its holder.
inline constexpr const char* cannot_break =
    "this store cannot break locks: only shm:, valkey: and redis: can; end the process that holds it, or at a database "
    "the session that status names, with KILL";

class Backend {
 public:
  virtual ~Backend() = default;

  virtual Capabilities capabilities() const = 0;

  // Grants the plan. No value when the deadline passed or, with no_wait, when somebody is in the way (or, where there
  // is more to say, Error(timeout) and Error(busy)); every other failure throws. Unless granted, nothing is left
  // behind.
  virtual std::optional<Grant> acquire(const Request& request) = 0;

  // Optional: grants one path or name to the default owner if nothing at all is in the way, without I/O. A grant whose
  // id is 0 means "ask acquire()". Never throws.
  virtual Grant at_once(const Chain&) noexcept { return {}; }
  // Optional: the same for the text of a path that at_once() has granted before. The text is not checked: if it is not
  // certainly such a one, the answer is "ask at_once()".
  virtual Grant at_once_again(std::string_view) noexcept { return {}; }

  // As Lock::extend says; the grant as it is afterwards. No value as for acquire: the old grant is as it was. On
  // `deadlock` the old grant is gone. On any other error, `lost` among them, it is still to be released.
  virtual std::optional<Grant> extend(const Grant& grant, const Request& request) = 0;

  // Never throws, never blocks for more than 1 s. A grant is released at most once.
  virtual void release(const Grant& grant) noexcept = 0;

  // As Lock::give_to says. Returns the grant as it is afterwards.
  virtual Grant give(const Grant& grant, OwnerId to) = 0;

  // True while the grant is certainly held. No I/O.
  virtual bool held(const Grant& grant) const noexcept = 0;
  // Triggered when it is lost. May allocate.
  virtual std::stop_token lost(const Grant& grant) = 0;

  virtual OwnerId make_owner(std::string_view name) = 0;
  virtual void drop_owner(OwnerId owner) noexcept = 0;
  // For people; of the default owner too.
  virtual std::string owner_name(OwnerId owner) = 0;

  virtual Snapshot snapshot() const = 0;
  // An acquire or extend has failed with this Error(deadlock): an entry for the log of snapshot().
  virtual void log_deadlock(const Error&) noexcept {}

  // As Locker::break_locks and Locker::lifeline say.
  virtual std::size_t break_locks(const Plan&, std::string_view) { throw Error(ErrorKind::unsupported, cannot_break); }
  virtual int lifeline() { return -1; }

  // How many acquires and extends were granted, by Space of the first step.
  virtual std::array<std::uint64_t, 3> grants() const = 0;

  // True when no grant is outstanding: the backend of a destroyed Locker is kept until then.
  virtual bool idle() const noexcept = 0;

  // The Locker is gone: nothing is acquired any more, what is held may still be extended, given and released. The
  // backend itself may stay for as long as any thread lives that used it; so whatever it has besides memory (threads,
  // connections) it ends now or, if something is held, in the release of the last grant. Takes no longer than a
  // release. Called once, and never in a forked child.
  virtual void close() noexcept {}
};

}  // namespace hierlock::spi
