#include <hierlock/retry.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <random>
#include <string>

#include "plan/backoff.h"

namespace hierlock::detail {

using Seconds = std::chrono::duration<double>;

namespace {

Seconds now(const RetryEnvironment& environment) {
  return environment.now ? environment.now() : Seconds(std::chrono::steady_clock::now().time_since_epoch());
}

double jitter(const RetryEnvironment& environment) {
  if (environment.uniform) return environment.uniform(0.5, 1.5);
  thread_local std::mt19937_64 source{std::random_device{}()};
  return std::uniform_real_distribution<double>(0.5, 1.5)(source);
}

void pause(const RetryEnvironment& environment, const std::stop_token& cancel, Seconds time) {
  if (environment.sleep) return environment.sleep(time);
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any().wait_for(lock, cancel, time, [] { return false; });
}

std::string in_words(unsigned tries, Seconds time) {
  char text[64];
  std::snprintf(text, sizeof text, " (tried %u time%s in %.3g s)", tries, tries == 1 ? "" : "s", time.count());
  return text;
}

void check(const RetryPolicy& policy) {
  const auto refuse = [](const char* what) { throw Error(ErrorKind::invalid_argument, what); };
  if (policy.tries == 0) refuse("RetryPolicy::tries must be 1 or more");
  if (!(policy.initial_delay.count() >= 0)) refuse("RetryPolicy::initial_delay must be zero or more");
  if (!(policy.max_delay.count() >= 0)) refuse("RetryPolicy::max_delay must be zero or more");
  if (policy.timeout && !(policy.timeout->count() >= 0)) refuse("RetryPolicy::timeout must be zero or more");
}

}  // namespace

void retry(const RetryPolicy& policy, const RetryEnvironment& environment, const std::function<void()>& attempt) {
  check(policy);
  const Seconds start = now(environment);
  plan::Backoff backoff(policy.initial_delay.count(), policy.max_delay.count());
  const auto cancelled = [&](const std::string& why) {
    return Error(ErrorKind::cancelled, "cancelled while retrying" + why);
  };
  if (policy.cancel.stop_requested()) throw cancelled(": no try was made");
  for (unsigned tries = 1;; ++tries) {
    Retried failed{tries, Error(ErrorKind::invalid_argument, ""), Seconds{}};
    try {
      return attempt();
    } catch (const Error& error) {
      const bool again = error.retryable() || (policy.conflicts && error.kind() == ErrorKind::conflict);
      if (!again) throw;
      failed.error = error;
    }
    const Seconds spent = now(environment) - start;
    failed.pause = Seconds(backoff.next(jitter(environment)));
    const bool in_time = !policy.timeout || spent + failed.pause <= *policy.timeout;
    const Error& last = failed.error;
    if (tries >= policy.tries || !in_time) {
      throw Error(last.kind(), last.what() + in_words(tries, spent), last.native_code(), last.cycle());
    }
    if (policy.on_retry) policy.on_retry(failed);
    pause(environment, policy.cancel, failed.pause);
    if (policy.cancel.stop_requested()) throw cancelled(". The last try failed: " + std::string(last.what()));
  }
}

}  // namespace hierlock::detail
