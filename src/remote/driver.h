// Driver: the interface that a remote store implements. The Gate does the rest.
//
// A driver knows how its store locks. It does not know the local queue, other requests of this process, or how
// deadlocks are found. docs/remote.md explains every call and has a complete example.
//
// Any thread may make any call, several at a time. Exceptions are hierlock::Error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <hierlock/spi/backend.h>

#include "remote/cell.h"
#include "remote/hold.h"
#include "remote/lock_wait.h"
#include "remote/notice.h"
#include "remote/status_builder.h"
#include "remote/view.h"

namespace hierlock::remote {

// Where the processes that use one store keep their notices. Locks do not depend on notices. Each call may fail, and
// its result says so.
class NoticeStore {
 public:
  virtual ~NoticeStore() = default;
  // Writes many notices at a time. Each replaces the notice with the same id(). If the store refuses one, the others
  // are still written. After a failure, the notices that were written before it stay.
  struct Published {
    std::vector<bool> written;  // by notice
    bool failed = false;        // the store could not be used, or the time was too short
  };
  virtual Published publish(std::span<const Notice> notices, Deadline& limit) = 0;
  virtual bool remove(std::span<const std::uint64_t> ids, Deadline& limit) = 0;
  // Tells the store that the process of these notices still lives. Returns how many of them are still there; no value:
  // it failed.
  virtual std::optional<std::size_t> keep_alive(std::span<const std::uint64_t> ids, Deadline& limit) = 0;
  // All notices whose process was alive in the last seconds, with their ages now. It reads only what has changed since
  // the last call.
  virtual std::optional<std::vector<Notice>> read(Deadline& limit) = 0;
  // Removes the notices of processes that have been silent for long.
  virtual void remove_old(Deadline& limit) = 0;
};

// What a look at the store shows, for a snapshot.
struct Look {
  std::vector<Notice> notices;  // of all processes, this one included
  View view;
  std::vector<std::string> notes;  // what could not be seen, a sentence each
};

class Driver {
 public:
  virtual ~Driver() = default;

  virtual Capabilities capabilities() const = 0;
  // Throws unsupported or invalid_argument for a plan that the store cannot express. Nothing is sent.
  virtual void check(const spi::Plan& plan) const = 0;
  // Which cell a node becomes. Two nodes may become one cell; then they exclude each other without need.
  virtual Cell cell_of(Space space, std::uint8_t level, std::string_view key, Mode mode) const = 0;

  // --- locking -------------------------------------------------------------------------------------------

  enum class Answer : std::uint8_t {
    granted,
    not_in_time,  // the deadline has passed; with no_wait: a cell is taken. Nothing is locked
    full,         // let_pass() named this request: it must give its place in the local queue back, and ask again
  };
  struct Granted {
    Answer answer = Answer::not_in_time;
    std::shared_ptr<Hold> hold;
    std::int64_t fence = 0;
    std::vector<Cell> cells{};  // that the store has locked; of a driver that can park() the lock
  };
  // Grants all of the plan or nothing.
  virtual Granted grant(const Ask& ask) = 0;

  // A request may stand in line for a session before the store is asked. Owners that hold sessions may wait for it in
  // the local queue meanwhile. The Gate finds these requests, and names them by their place in the local queue.
  struct InLine {
    std::uint64_t place;  // Ask::place
    Clock::time_point since;
  };
  virtual std::vector<InLine> in_line() const { return {}; }
  virtual void let_pass(const std::unordered_set<std::uint64_t>&) {}

  struct Extended {
    bool granted = false;
    std::int64_t fence = 0;
    // If not granted: the cells of the plan that the store may have locked nevertheless. They stay locked until the
    // whole lock is given back.
    enum class Leftover : std::uint8_t { none, all_but_the_last, all } leftover = Leftover::none;
    bool lost = false;  // the store has taken the whole lock away
  };
  // Adds the plan to a lock. `result` is valid also when it throws. `deadlock` means that the whole lock is gone.
  virtual void extend(Hold& hold, const Ask& ask, Extended& result) = 0;

  // Gives everything back. It need not wait for the store's answer: it is enough that the store was told. A background
  // thread does whatever is not done by then. Returns whether the store was told.
  virtual bool give_back(std::shared_ptr<Hold> hold, Clock::time_point by) noexcept = 0;
  // Hand-over inside the process: a parked lock has no owner, so the driver reports its loss to nobody. The Gate
  // resumes it for another owner, as a new Hold, or gives it back. park() returns false if the driver cannot park, or
  // if the lock is lost. If the lock is lost, resume() returns null, and the caller gives the parked Hold back.
  virtual bool park(Hold&) noexcept { return false; }
  virtual std::shared_ptr<Hold> resume(Hold&, std::uint64_t) { return nullptr; }
  // The store has taken the lock away. Tells its holder.
  virtual void lose(Hold& hold) { hold.declare_lost(); }
  // As Locker::break_locks says.
  virtual std::size_t break_locks(const spi::Plan&) { throw Error(ErrorKind::unsupported, spi::cannot_break); }
  // Another owner of this Locker has the lock now.
  virtual void give(Hold& hold, std::uint64_t to) = 0;

  // --- looking -------------------------------------------------------------------------------------------

  virtual NoticeStore& notices() = 0;
  // The waits at the store. No value: the store could not be asked now. A view with `seen` false: the store
  // shows it to nobody.
  virtual std::optional<View> waits(Deadline& limit) = 0;
  // For a snapshot, on a session of its own. The notes of the result report errors.
  virtual Look look(Clock::time_point by) = 0;
  virtual bool is_own(std::uint64_t session) const = 0;
  virtual RowNames row_names() const { return {}; }
  // Fills in `store`, `table` and the like.
  virtual void describe(Snapshot& snapshot) const = 0;

  // --- life ----------------------------------------------------------------------------------------------

  // Called once, before anything else. `stands` tells whether a session has a notice. While it has one, the driver must
  // not use the session for another lock. The Gate calls notices_changed() when some notices are gone.
  virtual void attach(std::function<bool(std::uint64_t session)>) {}
  virtual void notices_changed() noexcept {}
  // Called before the first lock. A second call does nothing. Throws Error.
  virtual void start() = 0;
  // Called now and then by a thread that may take its time.
  virtual void housekeep(Deadline&) {}
  // No lock is held and no call is running. Ends threads and sessions by this time, or soon after.
  virtual void end(Clock::time_point by) noexcept = 0;
};

}  // namespace hierlock::remote
