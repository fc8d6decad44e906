// SessionDriver: the driver of every store in which each lock is a session. It takes sessions from a pool, sends
// heartbeats while they hold locks, interrupts waits, and extends a lock on its session.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>

#include "remote/driver.h"
#include "remote/heartbeat_thread.h"
#include "remote/session_pool.h"
#include "remote/session_store.h"

namespace hierlock::remote {

class SessionDriver final : public Driver, private SessionServices {
 public:
  struct Timing {
    std::chrono::nanoseconds lease;  // the store surely keeps a lock for so long after an answered question was sent
    std::chrono::nanoseconds ask_after = std::chrono::seconds(3);  // heartbeats
  };
  SessionDriver(std::unique_ptr<SessionStore> store, std::size_t most_sessions, const Timing& timing);

  Capabilities capabilities() const override { return store_->capabilities(); }
  void check(const spi::Plan& plan) const override { store_->check(plan); }
  Cell cell_of(Space space, std::uint8_t level, std::string_view key, Mode mode) const override {
    return store_->cell_of(space, level, key, mode);
  }
  Granted grant(const Ask& ask) override;
  std::vector<InLine> in_line() const override;
  void let_pass(const std::unordered_set<std::uint64_t>& places) override { pool_.let_pass(places); }
  void extend(Hold& hold, const Ask& ask, Extended& result) override;
  bool give_back(std::shared_ptr<Hold> hold, Clock::time_point by) noexcept override;
  bool park(Hold& hold) noexcept override;
  std::shared_ptr<Hold> resume(Hold& hold, std::uint64_t owner) override;
  void lose(Hold& hold) override { heartbeats_.lose(static_cast<SessionHold&>(hold)); }
  void give(Hold& hold, std::uint64_t to) override;
  NoticeStore& notices() override { return store_->notices(); }
  std::optional<View> waits(Deadline& limit) override { return store_->waits(limit); }
  Look look(Clock::time_point by) override { return store_->look(by); }
  bool is_own(std::uint64_t session) const override { return sessions_->has(session); }
  RowNames row_names() const override { return store_->row_names(); }
  void describe(Snapshot& snapshot) const override { store_->describe(snapshot); }
  void attach(std::function<bool(std::uint64_t)> stands) override { pool_.set_stands(std::move(stands)); }
  void notices_changed() noexcept override { pool_.let_in(); }
  void start() override { heartbeats_.start(); }
  void housekeep(Deadline& limit) override { store_->housekeep(limit); }
  void end(Clock::time_point by) noexcept override;

  SessionPool& pool() noexcept override { return pool_; }

 private:
  class PoolInterrupter;
  struct Asking;
  enum class Outcome : std::uint8_t { granted, missing, not_in_time, again, full };
  SessionPool::Taken take(const SessionPool::Asking& asking, SessionPool::Place place);
  Outcome ask(const Asking& asking, LockReply& reply, std::int64_t& sent);
  bool wait_to_talk(SessionHold& hold, const Ask& ask, std::unique_lock<TimedMutex>& talking);
  bool confirm_late_grant(Session& session, std::int64_t& sent);
  void lose_if_unfit(SessionHold& hold);
  bool extend_on(SessionHold& hold, const Ask& ask, Extended& result);
  bool make_before_extend(SessionHold& hold, const Ask& ask, std::span<const Cell> wanted);

  const std::shared_ptr<OpenSessions>& open_sessions() const noexcept override { return sessions_; }
  void lose_all_on(const std::string& server) override { heartbeats_.lose_all_on(server); }

  // Cells that were found at the store. Cells are never removed, so nobody need ask for them again.
  class KnownCells {
   public:
    bool all(std::span<const Cell> cells) const {
      const std::lock_guard guard(mutex_);
      return std::all_of(cells.begin(), cells.end(), [this](const Cell& cell) { return known_.contains(place(cell)); });
    }
    void add(std::span<const Cell> cells) {
      const std::lock_guard guard(mutex_);
      if (known_.size() >= most) known_.clear();
      for (const Cell& cell : cells) known_.insert(place(cell));
    }

    void forget(std::span<const Cell> cells) {
      const std::lock_guard guard(mutex_);
      for (const Cell& cell : cells) known_.erase(place(cell));
    }

   private:
    static constexpr std::size_t most = 10'000;
    mutable std::mutex mutex_;
    std::set<Place> known_;
  } known_;

  const std::chrono::nanoseconds lease_;
  const std::shared_ptr<OpenSessions> sessions_ = std::make_shared<OpenSessions>();
  const std::unique_ptr<SessionStore> store_;
  SessionPool pool_;            // connects by the store
  HeartbeatThread heartbeats_;  // its thread uses the pool
};

}  // namespace hierlock::remote
