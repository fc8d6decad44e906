// Snapshot, Stats, Capabilities: what a Locker knows about its store. Plain values.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <hierlock/error.h>
#include <hierlock/mode.h>
#include <hierlock/target.h>

namespace hierlock {

// Snapshot: all holders and waiters, and which waiter waits for which owner (B7). Taking a snapshot stops no thread or
// process. Each entry was true at some moment while the snapshot was taken. If nothing changes meanwhile, all entries
// are true at once.
struct Snapshot {
  // State of a process, as far as the store can know. A process in another pid namespace is always `runs`.
  enum class Doing : std::uint8_t {
    runs,
    stopped,  // SIGSTOP, Ctrl-Z, a debugger: the process keeps its locks and its places in queues
    gone,     // the process ended, but another process has its lifeline (Locker::lifeline) and keeps its locks
  };
  struct Party {
    std::uint64_t owner = 0;   // the owner's number: the same in all its locks and waits
    std::string owner_name;    // `thread 4711`, or the name that was given to Locker::owner()
    std::int64_t process = 0;  // process id, in the process's own namespace
    std::string program;       // name of the process's program, without arguments; empty if not known
    std::string note;          // AcquireOptions::note
    Doing doing = Doing::runs;
    std::string host{};         // its machine, or the machine it connected from; empty if all are on this machine
    std::uint64_t session = 0;  // on a server: its session's number there (CONNECTION_ID()); otherwise 0
  };
  // On mysql: targets share the rows of a fixed table. A Row names one of these rows. Entries have no Row on other
  // stores, or if the server does not show the row.
  struct Row {
    unsigned level = 0;
    std::uint32_t bucket = 0;
    friend auto operator<=>(const Row&, const Row&) = default;
  };
  // Why a request waits (H15).
  enum class Contention : std::uint8_t {
    own_target,     // another owner holds the node that it waits for, or is before it in the queue there
    shared_bucket,  // false contention: no owner has that node; only other targets with the same row are in the way
    unknown,        // the target of some owner at that row is not known
  };
  struct Holder {
    Party who;
    std::string target;              // as text: `u1/a1`, `named "x"`. Empty if only the row is known: no process has
                                     // published this session, or it is not a session of hierlock
    Mode mode = Mode::X;             // X for one slot of a slots name
    bool asked = false;              // true: a target of the request; false: an ancestor in an intention mode
    std::uint64_t lock = 0;          // the lock's number: the same for all nodes of one Lock
    std::int64_t fence = 0;          // 0 while the acquire still waits for other nodes, or if not known
    std::chrono::nanoseconds age{};  // how long it has been held; at least this long while the acquire still waits for
                                     // other nodes. If the target is not known: how long the session has been busy
                                     // with its present statement, or idle
    std::optional<Row> row{};
    bool leftover = false;  // on mysql: an extend failed after it may have locked this; locked until the lock ends
  };
  struct Waiter {
    Party who;
    std::string target;  // the node that it waits for; empty if only the row is known
    std::string wanted;  // the whole request, as text; empty if only the row is known
    Mode mode = Mode::X;
    std::chrono::nanoseconds age{};           // how long it has waited
    std::vector<std::uint64_t> blocked_by{};  // the owners that it waits for: holders and earlier waiters in conflict.
                                              // Empty for a moment when its turn has come, until its thread runs
    std::optional<Row> row{};                 // the row that it waits for
    Contention contention = Contention::own_target;
  };
  // A row that a request waits for.
  struct Bucket {
    Row row;
    std::size_t holders = 0, waiters = 0;
    std::size_t falsely = 0, unknown = 0;  // of the waiters: Contention::shared_bucket, Contention::unknown
    std::vector<std::string> targets{};    // known targets of this row, sorted
  };
  // An entry of the log, which keeps the last few dozen events: a dead process, a broken lock, a deadlock. `shm:` logs
  // events of all its processes, memory:NAME events of all Lockers of that name. Every other store logs events of this
  // Locker only.
  struct Entry {
    std::chrono::system_clock::time_point when{};
    std::string text;
    std::vector<std::string> targets{};  // targets that became free; for a deadlock: targets that its members wait for
    std::vector<Error::Wait> cycle{};    // for a deadlock: as Error::cycle(); only the first members of a long cycle
  };
  std::string store;               // the store's URL without its password
  std::string table;               // the table: for shm: the file
  std::vector<Entry> log;          // oldest first
  std::vector<Holder> holders;     // sorted by target, then owner
  std::vector<Waiter> waiters;     // in the order of their queues
  std::vector<Bucket> buckets;     // rows with the most waiters first; only if targets share rows
  std::vector<std::string> notes;  // what the snapshot could not see, and what to do about it: a sentence each

  // True if a request waits for the node `target`, or asked for exactly that target. With an empty `target`: true if
  // any request waits.
  bool anybody_waits(std::string_view target = {}) const;
};

// Counters of this Locker in this process, since it was opened. They never fall.
struct Stats {
  struct Kind {
    std::uint64_t grants = 0;           // acquires and extends that succeeded
    std::uint64_t waits = 0;            // acquires and extends that had to wait
    std::chrono::nanoseconds waited{};  // time of these waits, whether they succeeded or not
    std::uint64_t deadlocks = 0;
  };
  std::array<Kind, 3> by_space{};                          // index: Space, of the first target of a request
  std::array<std::uint64_t, error_kind_count> failures{};  // index: ErrorKind. The `try_` forms count, too

  const Kind& of(Space space) const { return by_space[static_cast<std::size_t>(space)]; }
  std::uint64_t failed(ErrorKind kind) const { return failures[static_cast<std::size_t>(kind)]; }
  Kind total() const;
};

// The capabilities of a store (B2). If you ask for more, you get Error(unsupported), never a weaker lock.
struct Capabilities {
  bool names = false;         // named(…)
  bool shared_inner = false;  // shared locks on any node of a path; otherwise only at the deepest level
  bool shared_names = false;  // shared(named(…))
  bool slots = false;
  bool sliced_names = false;      // a Locker queues for only a few different names at once. For further names it polls:
                                  // it notices a release later, and there is no order
  bool fifo = false;              // first come, first served
  bool passes_own_queue = false;  // if an owner asks again for a node that it holds, it goes before other waiters.
                                  // Otherwise it may queue behind a request that waits for it, and gets `deadlock`
  bool wakes_waiters = false;     // the store wakes a waiter; otherwise the library polls
  bool frees_at_once = false;     // when release() returns, the lock is free for all Lockers; otherwise a moment later
  bool extends = false;           // Lock::extend
  bool deadlock_at_once = false;  // deadlocks are found when the cycle closes; otherwise a little later
  bool exact_keys = false;        // no false contention between different targets
  bool across_processes = false;  // excludes other processes of this machine
  bool across_machines = false;
  bool leases = false;  // a lock ends by itself unless it is renewed in time
};

}  // namespace hierlock
