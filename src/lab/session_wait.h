// SessionWait: a session waits for its answer as long as that takes, unless another thread interrupts it.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include <hierlock/error.h>

#include "timed/wait_limit.h"

namespace hierlock::lab {

class SessionWait final : public timed::WaitLimit {
 public:
  SessionWait() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake_ < 0)
      throw Error(ErrorKind::exhausted, "no more file descriptors for a session: raise the limit (ulimit -n)");
  }
  ~SessionWait() override { close(wake_); }
  SessionWait(const SessionWait&) = delete;
  SessionWait& operator=(const SessionWait&) = delete;

  // By any thread, for good.
  void interrupt() noexcept {
    interrupted_ = true;
    const std::uint64_t one = 1;
    (void)!write(wake_, &one, sizeof one);
  }
  bool interrupted() const noexcept { return interrupted_; }

  std::optional<timed::Clock::duration> next() override {
    if (interrupted_) return std::nullopt;
    return std::chrono::hours(1);
  }
  int wake() const override { return wake_; }

 private:
  const int wake_;
  std::atomic<bool> interrupted_{false};
};

}  // namespace hierlock::lab
