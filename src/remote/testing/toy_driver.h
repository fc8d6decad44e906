// ToyDriver: the smallest complete driver, for docs/remote.md and the conformance suite. Its server is a map in this
// process, and each Locker has its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "remote/driver.h"
#include "remote/gate.h"

namespace hierlock::remote::testing {

class ToyHold final : public Hold {
 public:
  explicit ToyHold(std::uint64_t session) : session_(session) {}
  std::uint64_t session() const noexcept override { return session_; }
  bool surely() const noexcept override { return !gone(); }

 private:
  const std::uint64_t session_;
};

class ToyDriver final : public Driver, private NoticeStore, private Interrupter {
 public:
  Capabilities capabilities() const override {
    return {.names = true,
            .shared_inner = true,
            .shared_names = true,
            .wakes_waiters = true,
            .frees_at_once = true,
            .extends = true,
            .exact_keys = true};
  }
  void check(const spi::Plan& plan) const override {
    for (const spi::Step& step : plan.steps()) {
      if (step.space == Space::slots) throw Error(ErrorKind::unsupported, "toy: has no slots");
    }
  }
  Cell cell_of(Space space, std::uint8_t level, std::string_view key, Mode mode) const override {
    const std::size_t hash = std::hash<std::string_view>()(key);
    return {level, space == Space::name ? ~hash : hash, mode};
  }

  // --- locking -------------------------------------------------------------------------------------------

  Granted grant(const Ask& ask) override {
    const std::uint64_t session = ++last_session_;
    if (const Answer answer = take(session, ask); answer != Answer::granted) return {.answer = answer};
    return {Answer::granted, std::make_shared<ToyHold>(session), mint()};
  }
  void extend(Hold& hold, const Ask& ask, Extended& result) override {
    result.granted = take(hold.session(), ask) == Answer::granted;
    if (result.granted) result.fence = mint();
  }
  bool give_back(std::shared_ptr<Hold> hold, Clock::time_point) noexcept override {
    const std::lock_guard guard(mutex_);
    std::erase_if(locked_, [&](const Entry& entry) { return entry.session == hold->session(); });
    changed_.notify_all();
    return true;
  }
  void give(Hold&, std::uint64_t) override {}

  // --- looking: nobody else uses this store ----------------------------------------------------------------

  NoticeStore& notices() override { return *this; }
  std::optional<View> waits(Deadline&) override { return std::optional<View>(std::in_place); }
  Look look(Clock::time_point) override { return {}; }
  bool is_own(std::uint64_t) const override { return true; }
  void describe(Snapshot& snapshot) const override { snapshot.store = "toy:"; }

  void start() override {}
  void end(Clock::time_point) noexcept override {}

 private:
  struct Entry {
    std::uint64_t session;
    Cell cell;
  };

  // All cells or none, for a session that may have others.
  Answer take(std::uint64_t session, const Ask& ask) {
    std::vector<Cell> wanted;
    for (const spi::Step& step : ask.plan.steps()) {
      wanted.push_back(cell_of(step.space, step.level, step.key, step.mode));
    }
    const auto free = [&] {
      return std::none_of(locked_.begin(), locked_.end(), [&](const Entry& entry) {
        return entry.session != session &&
               std::any_of(wanted.begin(), wanted.end(), [&](const Cell& cell) { return conflict(cell, entry.cell); });
      });
    };
    LockWait wait(ask, session, *this, std::chrono::seconds(1), LockWait::Victim::may_be);
    std::unique_lock guard(mutex_);
    while (!free()) {
      if (ask.request.no_wait) return Answer::not_in_time;
      guard.unlock();
      const std::optional<Clock::duration> time = wait.next();
      guard.lock();
      if (wait.victim()) wait.throw_deadlock();
      if (wait.ended() && wait.cancelled()) throw cancelled_error("waiting for", ask.plan);
      if (wait.ended() && wait.lets_pass()) return Answer::full;
      if (wait.ended() || !time) return Answer::not_in_time;
      changed_.wait_for(guard, std::min<Clock::duration>(*time, std::chrono::milliseconds(5)));
    }
    for (const Cell& cell : wanted) locked_.push_back({session, cell});
    return Answer::granted;
  }
  std::int64_t mint() { return ++last_number_ * 128; }

  // Nothing has to be interrupted: take() looks at its LockWait every 5 ms.
  bool interrupt(Deadline&) override { return true; }

  Published publish(std::span<const Notice> notices, Deadline&) override {
    return {.written = std::vector<bool>(notices.size(), true)};
  }
  bool remove(std::span<const std::uint64_t>, Deadline&) override { return true; }
  std::optional<std::size_t> keep_alive(std::span<const std::uint64_t> ids, Deadline&) override { return ids.size(); }
  std::optional<std::vector<Notice>> read(Deadline&) override { return std::vector<Notice>(); }
  void remove_old(Deadline&) override {}

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::list<Entry> locked_;
  std::atomic<std::uint64_t> last_session_{0};
  static inline std::atomic<std::int64_t> last_number_{0};  // fences rise from one Locker to the next
};

}  // namespace hierlock::remote::testing
