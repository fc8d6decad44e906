// LockWait: what a request does while the server makes it wait: keeps its deadline, notices its cancellation, tells.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>

#include <hierlock/spi/backend.h>

#include "mysql/pool.h"
#include "mysql/sessions.h"
#include "mysql_client/connection.h"

namespace hierlock::mysql {

// Passes on, and remembers when to tell next: the same request waits in the local queue first and at the server then.
class Teller final : public spi::WaitObserver {
 public:
  explicit Teller(spi::WaitObserver* to) : to_(to) {}
  std::chrono::nanoseconds waits(const spi::Waiting& waiting) noexcept override {
    if (to_ == nullptr) return std::chrono::hours(24);
    const Clock::time_point now = Clock::now();
    if (due_ && now < *due_) return *due_ - now;
    const std::chrono::nanoseconds pause = to_->waits(waiting);
    due_ = Clock::now() + pause;
    return pause;
  }
  bool anybody() const noexcept { return to_ != nullptr; }
  std::optional<Clock::time_point> due() const noexcept { return due_; }

 private:
  spi::WaitObserver* const to_;
  std::optional<Clock::time_point> due_;
};

class LockWait final : public WaitLimit {
 public:
  // `long_silence` is called once, when the answer takes longer than usual; from then on `pending`, if it returns one,
  // may be chosen as the victim of a deadlock. A request that is not to wait waits for the server's answer for
  // `longest_try`: what it asked for is not only a row, which the server would refuse at once.
  LockWait(Pool& pool, const Connection& connection, const spi::Request& request, Teller& teller,
           const spi::Waiting& waiting, Clock::duration longest_try, std::function<Pending*()> long_silence);
  ~LockWait() override;
  LockWait(const LockWait&) = delete;
  LockWait& operator=(const LockWait&) = delete;

  std::optional<Clock::duration> next() override;
  int wake() const override { return ended() ? -1 : wake_; }

  // The deadline has passed, or the request was cancelled: whatever the server still answers is too late. Its KILL was
  // answered by then, so that it cannot hit a later statement.
  bool ended() const noexcept { return end_by_.has_value(); }
  bool victim() const noexcept { return pending_ != nullptr && pending_->victim.load(); }
  int wake_descriptor() const noexcept { return wake_; }
  bool cancelled() const noexcept { return request_.cancel != nullptr && request_.cancel->stop_requested(); }

 private:
  struct Wake {
    int descriptor;
    void operator()() const noexcept;
  };
  bool interrupt();
  void open_wake();

  Pool& pool_;
  const Connection& connection_;
  const spi::Request& request_;
  Teller& teller_;
  const spi::Waiting& waiting_;
  const std::optional<Clock::time_point> deadline_;
  const std::function<Pending*()> long_silence_;
  Pending* pending_ = nullptr;
  Clock::time_point silence_, tell_at_;
  bool silent_;
  std::optional<Clock::time_point> end_by_;
  Clock::time_point kill_at_;
  int wake_ = -1;
  std::optional<std::stop_callback<Wake>> on_cancel_;
};

}  // namespace hierlock::mysql
