// Opening: the time limit of open(), and its cancellation.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include <hierlock/error.h>
#include <hierlock/options.h>

#include "timed/wait_limit.h"

namespace hierlock::remote {

class Opening {
 public:
  // `usually`: the time for each step, if the caller has set no limit for all steps together.
  Opening(const OpenOptions& options, timed::Clock::duration usually)
      : time_(options.connect_timeout), usually_(usually), cancel_(options.cancel) {}

  // For the next step.
  timed::Deadline deadline() const {
    constexpr std::chrono::hours longest{24 * 365};  // so that no deadline overflows
    if (!time_) return {timed::Clock::now() + usually_, cancel_};
    return {begin_ + std::min<std::chrono::nanoseconds>(*time_, longest), cancel_};
  }
  // Throws the error of a failed step. If open() was cancelled, throws `cancelled` instead.
  [[noreturn]] void failed(const Error& error, const std::string& url) const {
    if (cancel_.stop_requested()) throw Error(ErrorKind::cancelled, "opening " + url + " was cancelled");
    throw Error(error);
  }

 private:
  const timed::Clock::time_point begin_ = timed::Clock::now();
  const std::optional<std::chrono::nanoseconds> time_;
  const timed::Clock::duration usually_;
  const std::stop_token cancel_;
};

}  // namespace hierlock::remote
