// Budget: how long collecting what the dead left may keep its caller.
#pragma once

#include <time.h>

#include <cstdint>

namespace hierlock::engine {

class Budget {
 public:
  // Only an unhurried caller makes the index again.
  static constexpr std::int64_t unhurried = 100'000'000;

  explicit Budget(std::int64_t nanoseconds) noexcept : until_(now() + nanoseconds), hurried_(nanoseconds < unhurried) {}
  bool spent() const noexcept { return now() >= until_; }
  bool hurried() const noexcept { return hurried_; }

 private:
  static std::int64_t now() noexcept {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }

  std::int64_t until_;
  bool hurried_;
};

}  // namespace hierlock::engine
