// LockVigil: what a request does while the server makes it wait: keeps its deadline, notices its cancellation, tells.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>

#include <hierlock/spi/backend.h>

#include "mysql/connection.h"
#include "mysql/pool.h"

namespace hierlock::mysql {

// Passes on, and remembers when to tell next: the same request waits in the local queue first and at the server then.
class Teller final : public spi::WaitObserver {
 public:
  explicit Teller(spi::WaitObserver* to) : to_(to) {}
  std::chrono::nanoseconds waits(const spi::Waiting& waiting) noexcept override {
    if (to_ == nullptr) return std::chrono::hours(24);
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

class LockVigil final : public Vigil {
 public:
  LockVigil(Pool& pool, const Connection& connection, const spi::Request& request, Teller& teller,
            const spi::Waiting& waiting);
  ~LockVigil() override;
  LockVigil(const LockVigil&) = delete;
  LockVigil& operator=(const LockVigil&) = delete;

  std::optional<Clock::duration> next() override;
  int wake() const override { return ended() ? -1 : wake_; }

  // The deadline has passed, or the request was cancelled: whatever the server still answers is too late. Its KILL was
  // answered by then, so that it cannot hit a later statement.
  bool ended() const noexcept { return end_by_.has_value(); }
  bool cancelled() const noexcept { return request_.cancel != nullptr && request_.cancel->stop_requested(); }

 private:
  struct Wake {
    int descriptor;
    void operator()() const noexcept;
  };
  bool interrupt();

  Pool& pool_;
  const Connection& connection_;
  const spi::Request& request_;
  Teller& teller_;
  const spi::Waiting& waiting_;
  Clock::time_point tell_at_;
  std::optional<Clock::time_point> end_by_;
  int wake_ = -1;
  std::optional<std::stop_callback<Wake>> on_cancel_;
};

}  // namespace hierlock::mysql
