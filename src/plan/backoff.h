// Backoff: the pauses of M4 as a pure sequence. Sleep min(delay * jitter, max), then delay = min(delay * 1.5, max).
#pragma once

#include <algorithm>

namespace hierlock::plan {

class Backoff {
 public:
  Backoff(double initial_delay, double max_delay) : delay_(initial_delay), max_(max_delay) {}

  // The next pause, in seconds. `jitter` is drawn by the caller from [0.5, 1.5].
  double next(double jitter) {
    const double pause = std::min(delay_ * jitter, max_);
    delay_ = std::min(delay_ * 1.5, max_);
    return pause;
  }

 private:
  double delay_;
  double max_;
};

}  // namespace hierlock::plan
