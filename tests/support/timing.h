// Times on a machine that may stall. A stalled machine makes one attempt late, or a few in a row. Code that waits for
// the wrong thing makes every attempt late. So a bound that is close to what is measured is judged by several attempts.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

namespace hierlock::tests {

// What a stalled machine may add to a time that is measured once.
inline constexpr std::chrono::seconds stall{5};

// Repeats `attempt`, which returns how long it took, until one took less than `bound`.
inline testing::AssertionResult once_within(std::chrono::nanoseconds bound,
                                            const std::function<std::chrono::nanoseconds()>& attempt,
                                            int attempts = 5) {
  using std::chrono::milliseconds;
  std::string times;
  for (int i = 0; i < attempts; ++i) {
    const std::chrono::nanoseconds took = attempt();
    if (took < bound) return testing::AssertionSuccess();
    times += " " + std::to_string(std::chrono::ceil<milliseconds>(took).count());
    if (testing::Test::HasFailure()) break;  // another attempt would repeat its messages
  }
  return testing::AssertionFailure() << "each attempt took longer than "
                                     << std::chrono::ceil<milliseconds>(bound).count() << " ms:" << times << " ms";
}

// How long an action takes.
inline std::chrono::nanoseconds time_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::steady_clock::now() - begin;
}

}  // namespace hierlock::tests
