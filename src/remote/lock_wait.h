// LockWait: accompanies a request that waits at the store. It keeps the deadline, notices a cancellation, reports the
// wait to the user, and ends the wait if the request becomes a deadlock victim.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <hierlock/spi/backend.h>

#include "remote/notice.h"
#include "timed/wait_limit.h"

namespace hierlock::remote {

using timed::Clock;
using timed::Deadline;
using timed::SharedDeadline;
using timed::WaitLimit;

// Passes calls on to the caller's observer, and remembers when the next call is due. One request waits first in the
// local queue and then at the store, and both waits use this Teller.
class Teller final : public spi::WaitObserver {
 public:
  explicit Teller(spi::WaitObserver* to) : to_(to) {}
  std::chrono::nanoseconds waits(const spi::Waiting& waiting) noexcept override {
    if (to_ == nullptr) return std::chrono::hours(24);
    const Clock::time_point now = Clock::now();
    if (due_ && now < *due_) return *due_ - now;
    // The user chooses this pause. It may be so long that adding it to the time overflows.
    const auto pause = std::clamp<std::chrono::nanoseconds>(to_->waits(waiting), std::chrono::milliseconds(1),
                                                            std::chrono::hours(24 * 365));
    due_ = Clock::now() + pause;
    return pause;
  }
  bool anybody() const noexcept { return to_ != nullptr; }
  std::optional<Clock::time_point> due() const noexcept { return due_; }

 private:
  spi::WaitObserver* const to_;
  std::optional<Clock::time_point> due_;
};

// How often a request has let others pass: by the id and the owner of the notice of each. Only the caller of the
// DeadlockFinder uses it. It outlives the waits of the request.
using Passes = std::map<std::pair<std::uint64_t, std::string>, int>;

// A request that the store has not answered for a while, or that waits in the local queue. A wait in the local queue
// has a Pending if its owner holds a lock, or if it is so long that `status` shows it.
struct Pending {
  spi::Grant local;                      // in the local queue; none while it waits there
  std::uint64_t owner = 0, session = 0;  // the latter as notice.h says
  std::string owner_name, note;
  std::uint64_t queue_owner = 0;  // while it waits in the local queue: its owner's number there
  std::vector<Node> nodes;
  // The wait can be part of a deadlock. Its owner held a lock when it began, or the request asks for several targets
  // and may have some.
  bool may_block = false;
  Clock::time_point since = Clock::now();  // not changed once others know of it

  // A request at the store is woken by a descriptor, one in the local queue by a stop. The descriptor is a copy: the
  // thread that chooses a victim may be late, and the number of a closed descriptor soon names another file.
  explicit Pending(int wake);
  explicit Pending(std::stop_source stop) : stop_(std::move(stop)) {}
  ~Pending();
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  void choose_as_victim(std::string cycle, std::vector<Error::Wait> waits);
  bool victim() const noexcept { return victim_.load(); }
  // For a request at the store: the request gives its place in the local queue to the requests behind it. Then the Gate
  // starts the request again. An extend cannot do that: then `passes` is null.
  std::shared_ptr<Passes> passes;
  void let_pass() noexcept;
  bool lets_pass() const noexcept { return lets_pass_.load(); }
  // Of a victim: the cycle in words, and as Error::cycle() has it.
  const std::string& cycle() const noexcept { return cycle_; }
  const std::vector<Error::Wait>& waits() const noexcept { return waits_; }

  // Only the caller of the DeadlockFinder uses this. It has the number of looks in a row in which this wait was in a
  // cycle, and the time to read the store's view next.
  struct Suspicion {
    int looks = 0;
    Clock::time_point ask_at{};
    std::chrono::milliseconds pause{};  // until it is asked for once more
  } suspicion;

 private:
  const int wake_ = -1;
  std::stop_source stop_{std::nostopstate};
  std::string cycle_;  // set before victim_, as is the next
  std::vector<Error::Wait> waits_;
  std::atomic<bool> victim_{false}, lets_pass_{false};
};

// How a driver ends the statement that waits.
class Interrupter {
 public:
  virtual ~Interrupter() = default;
  // False: it is not certain that the statement has ended. Then the session must be closed.
  virtual bool interrupt(Deadline& limit) = 0;
};

// What the Gate does for a request that waits at the store, or for a session.
class WaitHost {
 public:
  virtual ~WaitHost() = default;
  // The answer takes longer than usual: from now on the request may be chosen as a victim. `wake` becomes readable
  // then.
  virtual Pending* begins_to_wait(std::uint64_t session, int wake) = 0;
  virtual void wait_is_over(Pending* pending) noexcept = 0;
  // Texts for people: the owner, and what is in its way. blocked_by() may ask the store.
  virtual std::string owner_name() const = 0;
  virtual std::string blocked_by(std::uint64_t session) const = 0;
  // The request stands in line for a session. Tells the user if that is due. Returns when to call it again.
  virtual Clock::time_point waits_for_session() = 0;
};

// What a driver is asked for: these cells, for this owner, in this time.
struct Ask {
  const spi::Plan& plan;
  const spi::Request& request;  // deadline, cancel, no_wait
  std::uint64_t owner = 0;      // one number for each owner of this Locker
  Teller& teller;
  WaitHost& host;
  std::uint64_t place = 0;          // its place in the local queue
  std::uint64_t* ticket = nullptr;  // its number in a line of the driver; it keeps it when it asks again
};

class LockWait final : public WaitLimit {
 public:
  enum class Victim : std::uint8_t {
    never,
    may_be,
    surely_waits,  // the store has said that the request waits: that is not guessed from its silence
  };
  // A request with no_wait waits at most `longest_try` for the store's answer. The store refuses a taken cell at once,
  // but something other than a cell may block the request. `usual_answer`: the store may need this long for an answer
  // even if nothing is in the way.
  LockWait(const Ask& ask, std::uint64_t session, Interrupter& interrupter, Clock::duration longest_try, Victim victim,
           Clock::duration usual_answer = {});
  ~LockWait() override;
  LockWait(const LockWait&) = delete;
  LockWait& operator=(const LockWait&) = delete;

  std::optional<Clock::duration> next() override;
  int wake() const override { return ended() ? -1 : wake_; }

  // The deadline has passed, the request was cancelled, it is a victim, or it lets others pass. From then on, an answer
  // of the store comes too late. The statement has been interrupted by then, so the interruption cannot hit a later
  // statement.
  bool ended() const noexcept { return end_by_.has_value(); }
  bool victim() const noexcept { return pending_ != nullptr && pending_->victim(); }
  // The driver answers `full`.
  bool lets_pass() const noexcept { return pending_ != nullptr && pending_->lets_pass(); }
  bool cancelled() const noexcept { return ask_.request.cancel != nullptr && ask_.request.cancel->stop_requested(); }
  // Throws what a victim gets.
  [[noreturn]] void throw_deadlock() const;

 private:
  struct Wake {
    int descriptor;
    void operator()() const noexcept;
  };
  class Waiting;
  void open_wake();
  void tell(Clock::time_point now);

  const Ask& ask_;
  const std::uint64_t session_;
  Interrupter& interrupter_;
  const std::optional<Clock::time_point> deadline_;
  Pending* pending_ = nullptr;
  Clock::time_point silence_, tell_at_;
  bool silent_;
  int told_ = 0;
  std::optional<Clock::time_point> end_by_;
  Clock::time_point interrupt_at_;
  int wake_ = -1;
  std::optional<std::stop_callback<Wake>> on_cancel_;
};

// The errors of a request whose LockWait has ended, for every driver in the same words.
Error deadlock_error(const Pending& victim, bool whole_lock_released);
Error cancelled_error(const std::string& doing, const spi::Plan& plan);

}  // namespace hierlock::remote
