// Snapshot, Stats, Capabilities: what a Locker tells about its store. Plain values.
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

// Who holds what, who waits, and for whom (B7). Taken without stopping anybody: each entry was true at some moment
// while the snapshot was taken; when nobody moves, all of it is true at once.
struct Snapshot {
  // What a process is doing, as far as the store can know: of one in another pid namespace it says `runs`.
  enum class Doing : std::uint8_t {
    runs,
    stopped,  // SIGSTOP, Ctrl-Z, a debugger: it keeps what it holds, and its place in queues
    gone,     // it ended, and whoever inherited its lifeline (Locker::lifeline) keeps what it held
  };
  struct Party {
    std::uint64_t owner = 0;   // the same number for everything one owner holds and waits for
    std::string owner_name;    // `thread 4711`, or what Locker::owner() was given
    std::int64_t process = 0;  // process id, in the process's own namespace
    std::string program;       // what that process runs, by its name without arguments; empty where not known
    std::string note;          // AcquireOptions::note
    Doing doing = Doing::runs;
    std::string host{};         // the machine it runs on, or that it came from; empty where all are of this one
    std::uint64_t session = 0;  // on a server: the number that it has there (CONNECTION_ID()); otherwise 0
  };
  // Where a store locks rows of a fixed table and targets share them (mysql:): which row. Empty with other stores, and
  // where the server does not tell.
  struct Row {
    unsigned level = 0;
    std::uint32_t bucket = 0;
    friend auto operator<=>(const Row&, const Row&) = default;
  };
  // Why somebody waits (H15).
  enum class Contention : std::uint8_t {
    own_target,     // somebody has what it is stuck at, or stands before it there
    shared_bucket,  // false contention: nobody has that, only other targets whose ids fall into the same row
    unknown,        // it is stuck at a row of which somebody's target is not known
  };
  struct Holder {
    Party who;
    std::string target;              // as text: `u1/a1`, `named "x"`. Empty where only its row is known: a session that
                                     // no process has told about, or somebody else's on the same table
    Mode mode = Mode::X;             // of a slots name: X, for one of its slots
    bool asked = false;              // a target of its own, not an ancestor held by intention
    std::uint64_t lock = 0;          // the same number for everything that one Lock holds
    std::int64_t fence = 0;          // 0 while the acquire that holds this waits for the rest, or not known
    std::chrono::nanoseconds age{};  // how long it has been held; of a part of an acquire that waits: at least; where
                                     // the target is not known: since the session was last heard of
    std::optional<Row> row{};
  };
  struct Waiter {
    Party who;
    std::string target;  // the node it is stuck at; empty where only the row is known
    std::string wanted;  // the whole request, as text; empty as well
    Mode mode = Mode::X;
    std::chrono::nanoseconds age{};           // how long it has waited
    std::vector<std::uint64_t> blocked_by{};  // owners it waits for: holders and earlier waiters in conflict. Empty for
                                              // a moment when it is free to go and has not run yet
    std::optional<Row> row{};                 // that it is stuck at
    Contention contention = Contention::own_target;
  };
  // A row that somebody waits for.
  struct Bucket {
    Row row;
    std::size_t holders = 0, waiters = 0;
    std::size_t falsely = 0, unknown = 0;  // of the waiters: Contention::shared_bucket, Contention::unknown
    std::vector<std::string> targets{};    // that are known to meet there, sorted
  };
  // What happened, the last few dozen: a process that died, a lock that was broken, a deadlock. `shm:` tells what
  // happened to all of its processes, every other store what happened to this Locker.
  struct Entry {
    std::chrono::system_clock::time_point when{};
    std::string text;
    std::vector<std::string> targets{};  // that were held and are free now; of a deadlock: that its members wait for
    std::vector<Error::Wait> cycle{};    // of a deadlock, as Error::cycle(); of a long one only its first members
  };
  std::string store;               // which store, without any password
  std::string table;               // where exactly: for shm: the file
  std::vector<Entry> log;          // oldest first
  std::vector<Holder> holders;     // sorted by target, then owner
  std::vector<Waiter> waiters;     // in the order of their queues
  std::vector<Bucket> buckets;     // the most waited for first; only where targets share rows
  std::vector<std::string> notes;  // what could not be seen, and what to do about it: a sentence each

  // True when somebody is stuck at the node `target`, or waits for exactly that target, or for anything, if empty.
  bool anybody_waits(std::string_view target = {}) const;
};

// Counted since the Locker was opened, by this Locker in this process. Monotonic.
struct Stats {
  struct Kind {
    std::uint64_t grants = 0;           // acquires and extends that succeeded
    std::uint64_t waits = 0;            // of all acquires, those that had to wait
    std::chrono::nanoseconds waited{};  // time spent in those waits, however they ended
    std::uint64_t deadlocks = 0;
  };
  std::array<Kind, 3> by_space{};                          // index: Space. Of an acquire of many: the first target's
  std::array<std::uint64_t, error_kind_count> failures{};  // index: ErrorKind. `try_` forms count here too

  const Kind& of(Space space) const { return by_space[static_cast<std::size_t>(space)]; }
  std::uint64_t failed(ErrorKind kind) const { return failures[static_cast<std::size_t>(kind)]; }
  Kind total() const;
};

// What a store can do (B2). Asking for what it cannot do is Error(unsupported), never a weaker lock.
struct Capabilities {
  bool names = false;         // named(…)
  bool shared_inner = false;  // shared on any node of a path; otherwise at the deepest level only
  bool shared_names = false;  // shared(named(…))
  bool slots = false;
  bool sliced_names = false;      // a Locker waits in line for a few different names at once. For more it asks now and
                                  // then: a release is noticed later, and there is no order
  bool fifo = false;              // first come, first served
  bool passes_own_queue = false;  // an owner's further lock does not queue for a node that it holds already; otherwise
                                  // it may stand behind somebody who waits for it: a deadlock, and told as one
  bool wakes_waiters = false;     // the store wakes a waiter; otherwise the library polls
  bool frees_at_once = false;     // when release() returns, all Lockers find the lock free; otherwise a moment later
  bool extends = false;           // Lock::extend
  bool deadlock_at_once = false;  // found when the cycle closes; otherwise a little later
  bool exact_keys = false;        // no false contention between different targets
  bool across_processes = false;  // excludes other processes of this machine
  bool across_machines = false;
  bool leases = false;  // a lock ends by itself unless it is renewed in time
};

}  // namespace hierlock
