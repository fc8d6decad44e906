// retry: runs a piece of work again while it fails with something that another try may cure (X9).
//
//     const int left = hierlock::retry({.tries = 8, .conflicts = true}, [&] {
//       hierlock::rows::Transaction transaction(session);    // rolled back unless committed
//       …
//       transaction.commit();
//       return quantity;
//     });
//
// It retries an Error that is retryable() (timeout, busy, deadlock, serialization, exhausted, unavailable) and,
// with `conflicts`, a `conflict`. Say `conflicts` only if the work reads the row again itself. A change that a person
// made after looking at an old row must not be repeated: that person has to look again. Anything else that the work
// throws passes through at once, after one try.
//
// The pauses between tries are those of M4: min(delay * uniform(0.5, 1.5), max_delay), then delay = min(delay * 1.5,
// max_delay).
//
// The work must leave nothing behind when it throws. A transaction that is rolled back does that; a message that was
// sent does not.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

#include <hierlock/error.h>

namespace hierlock {

// One try that failed and is followed by another one.
struct Retried {
  unsigned attempt;                     // 1 for the first try
  Error error;                          // why it failed
  std::chrono::duration<double> pause;  // how long retry() waits before the next try
};

struct RetryPolicy {
  unsigned tries = 10;  // in all, the first one included; 0 is invalid_argument
  // No pause ends later than this after the first try began. None: only `tries` counts.
  std::optional<std::chrono::duration<double>> timeout = std::chrono::duration<double>(30.0);
  std::chrono::duration<double> initial_delay{0.01};
  std::chrono::duration<double> max_delay{1.0};
  bool conflicts = false;  // also retry `conflict`
  // Ends a pause at once. retry() then throws `cancelled`, which names what the last try failed with.
  std::stop_token cancel{};
  // Told of each try that will be repeated, before the pause. What it throws ends the retrying.
  std::function<void(const Retried&)> on_retry{};
};

// What pauses are made of; replaced in tests so that nothing sleeps. Empty members mean the real thing.
struct RetryEnvironment {
  std::function<std::chrono::duration<double>()> now{};  // monotonic
  std::function<void(std::chrono::duration<double>)> sleep{};
  std::function<double(double low, double high)> uniform{};
};

namespace detail {
// Runs `attempt` until it returns. See retry().
void retry(const RetryPolicy& policy, const RetryEnvironment& environment, const std::function<void()>& attempt);
}  // namespace detail

// Returns what `work` returns. When tries or time are used up it throws the last Error again, with the same kind,
// native code and cycle; its message says how often and for how long the work was tried.
template <class Work>
auto retry(const RetryPolicy& policy, Work&& work, const RetryEnvironment& environment = {}) {
  using Result = std::invoke_result_t<Work&>;
  if constexpr (std::is_void_v<Result>) {
    detail::retry(policy, environment, [&] { work(); });
  } else {
    std::optional<Result> result;
    detail::retry(policy, environment, [&] { result.emplace(work()); });
    return *std::move(result);
  }
}

}  // namespace hierlock
