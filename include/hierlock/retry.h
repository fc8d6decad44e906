// retry: runs a piece of work again if it fails with an error that another try may avoid (X9).
//
//     const int left = hierlock::retry({.tries = 8, .conflicts = true}, [&] {
//       hierlock::rows::Transaction transaction(session);    // rolled back unless committed
//       …
//       transaction.commit();
//       return quantity;
//     });
//
// retry() repeats the work after an Error that is retryable(): timeout, busy, deadlock, serialization, exhausted,
// unavailable. With `conflicts` it also repeats the work after a `conflict`. Set `conflicts` only if the work itself
// reads the row again. If a person decided on a change from an old row, that person must look at the new row first. All
// other exceptions of the work pass through at once.
//
// The pauses between tries follow M4: min(delay * uniform(0.5, 1.5), max_delay), then delay = min(delay * 1.5,
// max_delay).
//
// If the work throws, it must leave no effect behind. A rolled-back transaction leaves none. A message that was sent is
// an effect.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

#include <hierlock/error.h>

namespace hierlock {

// A failed try that is followed by another one.
struct Retried {
  unsigned attempt;                     // 1 for the first try
  Error error;                          // why it failed
  std::chrono::duration<double> pause;  // how long retry() waits before the next try
};

struct RetryPolicy {
  unsigned tries = 10;  // in total, with the first one; 0 is invalid_argument
  // No pause ends later than this after the start of the first try. None: only `tries` counts.
  std::optional<std::chrono::duration<double>> timeout = std::chrono::duration<double>(30.0);
  std::chrono::duration<double> initial_delay{0.01};
  std::chrono::duration<double> max_delay{1.0};
  bool conflicts = false;  // also retry `conflict`
  // Ends a pause at once. Then retry() throws `cancelled`; the message has the error of the last try. If the token was
  // triggered before the first try, retry() makes no try.
  std::stop_token cancel{};
  // Called before each pause. If it throws, retry() ends with that exception.
  std::function<void(const Retried&)> on_retry{};
};

// The clock, sleep and random numbers of the pauses. Tests replace them, so that no test sleeps. An empty member means
// the real one.
struct RetryEnvironment {
  std::function<std::chrono::duration<double>()> now{};  // monotonic
  std::function<void(std::chrono::duration<double>)> sleep{};
  std::function<double(double low, double high)> uniform{};
};

namespace detail {
// Runs `attempt` until it returns. See retry().
void retry(const RetryPolicy& policy, const RetryEnvironment& environment, const std::function<void()>& attempt);
}  // namespace detail

// Returns the result of `work`. When tries or time are used up, retry() throws the last Error again, with the same
// kind, native code and cycle. The message adds how often and for how long the work was tried.
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
