// WaitLimit: how long a call may wait for a server's answer, and what it does meanwhile.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <stop_token>
#include <utility>

namespace hierlock::timed {

using Clock = std::chrono::steady_clock;

class WaitLimit {
 public:
  virtual ~WaitLimit() = default;
  // How long to watch the socket before the next call of next(). No value: give up. It may do other work, such as
  // telling the user that the call waits.
  virtual std::optional<Clock::duration> next() = 0;
  // A descriptor that becomes readable when next() must be called at once; -1: there is none.
  virtual int wake() const { return -1; }
};

// A deadline for several threads, which one of them may bring nearer. By default it is never.
class SharedDeadline {
 public:
  void set(Clock::time_point end) noexcept { end_ = end.time_since_epoch().count(); }
  Clock::time_point get() const noexcept { return Clock::time_point(Clock::duration(end_.load())); }

 private:
  std::atomic<Clock::rep> end_{Clock::time_point::max().time_since_epoch().count()};
};

// Gives up at a moment, or when a SharedDeadline has passed, or when a stop is requested.
class Deadline final : public WaitLimit {
 public:
  explicit Deadline(Clock::time_point end, const SharedDeadline* shared = nullptr) : end_(end), shared_(shared) {}
  explicit Deadline(Clock::duration time, const SharedDeadline* shared = nullptr)
      : end_(Clock::now() + time), shared_(shared) {}
  Deadline(Clock::duration time, std::stop_token cancel) : Deadline(Clock::now() + time, std::move(cancel)) {}
  Deadline(Clock::time_point end, std::stop_token cancel) : end_(end), cancel_(std::move(cancel)) {}
  Clock::time_point end() const noexcept { return shared_ != nullptr ? std::min(end_, shared_->get()) : end_; }
  std::optional<Clock::duration> next() override {
    const Clock::duration left = end() - Clock::now();
    if (left <= Clock::duration::zero() || cancel_.stop_requested()) return std::nullopt;
    const bool looks = shared_ != nullptr || cancel_.stop_possible();
    return looks ? std::min<Clock::duration>(left, look_interval) : left;
  }

 private:
  static constexpr std::chrono::milliseconds look_interval{50};
  const Clock::time_point end_;
  const SharedDeadline* const shared_ = nullptr;
  const std::stop_token cancel_;
};

// Gives up when another limit does, or when its own time is over.
class Within final : public WaitLimit {
 public:
  Within(WaitLimit& outer, Clock::duration time) : outer_(outer), own_(time) {}
  std::optional<Clock::duration> next() override {
    const std::optional<Clock::duration> own = own_.next(), outer = outer_.next();
    if (!own || !outer) return std::nullopt;
    return std::min(*own, *outer);
  }
  int wake() const override { return outer_.wake(); }

 private:
  WaitLimit& outer_;
  Deadline own_;
};

}  // namespace hierlock::timed
