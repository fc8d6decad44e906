// Session: one connection to a store that locks by session. When the session ends, its locks end.
//
// One thread at a time uses a session. If a call gives up on an answer, the session is broken: it can only be closed.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "remote/cell.h"
#include "timed/wait_limit.h"

namespace hierlock::remote {

// The answer to a request for cells.
struct LockReply {
  enum class Kind : std::uint8_t {
    granted,       // all cells are locked
    missing,       // a cell is not there: find_missing() tells which. Others may be locked, earlier and later ones
    busy,          // no_wait was asked for, and a cell is taken. Earlier cells may be locked
    wait_is_long,  // the store ended this wait to look after itself; earlier cells may be locked. Ask again
    deadlock,      // the store chose it as a victim: nothing is locked, also nothing from before
    failed,        // `code` and `message` say why
  };
  Kind kind = Kind::failed;
  std::int64_t code = 0;
  std::string message;
  std::vector<bool> there;    // find_missing(): by cell, whether it is there
  std::uint64_t minted = 0;   // granted: the number that becomes the fence
  std::uint64_t session = 0;  // granted: our session's number at the store. If it is not id(), a proxy mixes sessions
};

class Session {
 public:
  virtual ~Session() = default;  // closes; does not wait for the store

  // If an answer takes longer than this, the request probably waits for a taken cell. At first it is half of the time
  // that connecting took, which is a few round trips. Later it is at most three times the quickest answer.
  timed::Clock::duration usual_answer{};

  virtual std::uint64_t id() const noexcept = 0;           // the store's number for it
  virtual const std::string& server() const noexcept = 0;  // which server it is on, for comparing
  virtual int socket() const noexcept = 0;
  virtual bool broken() const noexcept = 0;
  virtual void give_up() noexcept = 0;
  // The store has closed its end, or says something that nobody asked for. No I/O that waits.
  virtual bool hung_up() const noexcept = 0;

  // Locks the cells in this order, in one round trip where that is possible.
  virtual LockReply lock(std::span<const Cell> cells, bool no_wait, timed::WaitLimit& limit) = 0;
  // Which cells are there; locks nothing, and waits for no lock. Sets LockReply::there, and its kind to `missing`,
  // `granted` if all are there, or `failed`.
  virtual void find_missing(std::span<const Cell> cells, LockReply& reply, timed::WaitLimit&) {
    reply.there.assign(cells.size(), true);
    reply.kind = LockReply::Kind::granted;
  }
  // Gives back all locks, and waits for the answer. If that fails the session is broken. The answer to a question that
  // is under way is read first.
  virtual void unlock_all(timed::WaitLimit& limit) noexcept = 0;

  // Questions that are sent now and whose answer is read later. At most one is under way. Nothing else but
  // unlock_all() may be called before its answer is read.
  virtual void begin_unlock_all() noexcept = 0;
  virtual void begin_heartbeat() = 0;  // asks for a sign of life
  // `bad`: the session is broken. If nothing is under way: `good`.
  enum class Answer : std::uint8_t { none_yet, good, bad };
  virtual Answer answer() = 0;  // does not wait. Call it when the socket is readable
  virtual Answer wait_for_answer(timed::WaitLimit& limit) = 0;
};

// The open sessions of this process. A thread that reads the store's view uses it to tell which sessions are its own.
class OpenSessions {
 public:
  void enter(std::uint64_t session) {
    const std::lock_guard guard(mutex_);
    sessions_[session].reset();
  }
  // The store may show it a little longer.
  void leave(std::uint64_t session) noexcept {
    const std::lock_guard guard(mutex_);
    const timed::Clock::time_point now = timed::Clock::now();
    if (const auto found = sessions_.find(session); found != sessions_.end()) found->second = now;
    std::erase_if(sessions_, [&](const auto& one) { return one.second && now - *one.second > shown_for; });
  }
  bool has(std::uint64_t session) const {
    const std::lock_guard guard(mutex_);
    return sessions_.contains(session);
  }

 private:
  static constexpr std::chrono::seconds shown_for{2};
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::optional<timed::Clock::time_point>> sessions_;  // when it left, if it has
};

}  // namespace hierlock::remote
