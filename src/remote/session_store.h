// SessionStore: the interface of a store in which each lock is a session. SessionDriver makes a Driver of it.
//
// Any thread may make any call, several at a time. Exceptions are hierlock::Error.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remote/driver.h"
#include "remote/session.h"
#include "remote/session_pool.h"

namespace hierlock::remote {

// What the store gets from the driver, for as long as it lives.
class SessionServices {
 public:
  virtual ~SessionServices() = default;
  virtual SessionPool& pool() noexcept = 0;
  virtual const std::shared_ptr<OpenSessions>& open_sessions() const noexcept = 0;
  // Declares every lock lost that is on this server.
  virtual void lose_all_on(const std::string& server) = 0;
};

class SessionStore {
 public:
  virtual ~SessionStore() = default;
  // Called once, before anything else.
  virtual void attach(SessionServices& services) = 0;

  // As Driver has them.
  virtual Capabilities capabilities() const = 0;
  virtual void check(const spi::Plan& plan) const = 0;
  virtual Cell cell_of(Space space, std::uint8_t level, std::string_view key, Mode mode) const = 0;
  virtual NoticeStore& notices() = 0;
  virtual std::optional<View> waits(Deadline& limit) = 0;
  virtual Look look(Clock::time_point by) = 0;
  virtual RowNames row_names() const { return {}; }
  virtual void describe(Snapshot& snapshot) const = 0;
  virtual void housekeep(Deadline&) {}
  virtual void end(Clock::time_point) noexcept {}  // closes the sessions that look() uses

  // A session that is ready to lock. It is among open_sessions() until it is closed.
  virtual std::unique_ptr<Session> connect(WaitLimit& limit) = 0;
  // Ends the statement of `waiting` from another session on the same server. False: it is not certain that it has
  // ended.
  virtual bool interrupt(Session& side, const Session& waiting, Deadline& limit) = 0;
  // The cells to lock, in the one order. Throws invalid_argument if there are too many for a statement.
  virtual std::vector<Cell> cells(const spi::Plan& plan) const = 0;
  // The fence of a granted request. Throws if it must not be given out; the lock is given back then.
  virtual std::int64_t fence_of(const LockReply& reply, const Session& session) = 0;
  // The Error for LockReply::failed and LockReply::deadlock.
  virtual Error failure(const LockReply& reply, const std::string& doing) const = 0;
  // The store refused an extend, or ended its wait (LockReply::busy, wait_is_long). Throws lost unless the rest of the
  // lock is still held.
  virtual void confirm_kept(Session& session, const LockReply& reply, WaitLimit& limit) = 0;

  // Whether a cell may be missing, that is, whether lock() may pass it and lock later ones.
  virtual bool cells_may_be_missing() const { return false; }
  // For LockReply::missing. makes_missing(): whether the store makes missing cells. missing(): the error if it does
  // not. make_missing(): makes them, on a session that holds nothing. False: it was not in time.
  virtual bool makes_missing() const { return false; }
  virtual Error missing(std::span<const Cell> cells, const LockReply& reply) const = 0;
  virtual bool make_missing(Session&, std::span<const Cell>, const LockReply&, const Ask&, Interrupter&) {
    return false;
  }
};

}  // namespace hierlock::remote
