#include <hierlock/lock_manager.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <thread>
#include <utility>

#include "locker/this_thread.h"
#include "plan/backoff.h"

namespace hierlock {

using locker::this_thread_number;
using Seconds = std::chrono::duration<double>;

namespace {

// More than anybody waits, and far from the end of what a clock in nanoseconds can count.
constexpr Seconds century{3'155'760'000.0};

PollingEnvironment completed(PollingEnvironment environment) {
  if (!environment.now) {
    environment.now = [] { return Seconds(std::chrono::steady_clock::now().time_since_epoch()); };
  }
  if (!environment.sleep) {
    environment.sleep = [](Seconds pause) { std::this_thread::sleep_for(std::min(pause, century)); };
  }
  if (!environment.uniform) {
    environment.uniform = [](double low, double high) {
      thread_local std::mt19937_64 source{std::random_device{}()};
      return std::uniform_real_distribution<double>(low, high)(source);
    };
  }
  return environment;
}

std::string in_words(Seconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", time.count());
  return text;
}

void check(const char* name, Seconds value) {
  if (value.count() >= 0) return;  // false for what is not a number
  throw Error(ErrorKind::invalid_argument,
              std::string("AwaitOptions::") + name + " must be zero or more, not " + std::to_string(value.count()));
}

Error timed_out(const Target& target, Seconds waited) {
  return Error(ErrorKind::timeout, "no slot of " + target.str() + " became free in " + in_words(waited) +
                                       ": wait longer, or look at snapshot() for who holds it");
}

}  // namespace

LockManager::LockManager(Locker& locker, std::string name, std::uint32_t parallelism, PollingEnvironment environment)
    : locker_(locker), target_(slots(name, parallelism)), environment_(completed(std::move(environment))) {}

void LockManager::await_lock(const AwaitOptions& options) {
  Lock slot = lock(options);
  const std::uint64_t thread = this_thread_number();
  const std::scoped_lock guard(mutex_);
  held_.push_back({thread, std::move(slot)});
}

bool LockManager::release_lock(bool raise_exception) {
  Lock slot;
  {
    const std::uint64_t thread = this_thread_number();
    const std::scoped_lock guard(mutex_);
    const auto found = std::find_if(held_.rbegin(), held_.rend(), [&](const Held& h) { return h.by == thread; });
    if (found != held_.rend()) {
      slot = std::move(found->lock);
      held_.erase(std::prev(found.base()));
    }
  }
  const bool was_held = slot.held();
  slot.release();
  if (!was_held && raise_exception) {
    throw Error(ErrorKind::lost, "this thread holds no slot of " + target_.str() +
                                     ": it never took one, has given it " + "back already, or the store took it away");
  }
  return was_held;
}

Lock LockManager::lock(const AwaitOptions& options) {
  check("timeout", options.timeout);
  check("initial_delay", options.initial_delay);
  check("max_delay", options.max_delay);
  const bool queues = environment_.polling == Polling::where_needed && locker_.capabilities().wakes_waiters;
  return queues ? queue(options.timeout) : poll(options);
}

Lock LockManager::queue(Seconds timeout) {
  const Seconds start = environment_.now();
  const auto wait = std::chrono::ceil<std::chrono::nanoseconds>(std::min(timeout, century));
  if (std::optional<Lock> slot = locker_.try_acquire(target_, wait)) return *std::move(slot);
  throw timed_out(target_, environment_.now() - start);
}

Lock LockManager::poll(const AwaitOptions& options) {
  const Seconds start = environment_.now();
  plan::Backoff backoff(options.initial_delay.count(), options.max_delay.count());
  for (;;) {
    if (std::optional<Lock> slot = locker_.try_acquire(target_)) return *std::move(slot);
    const Seconds waited = environment_.now() - start;
    if (waited >= options.timeout) throw timed_out(target_, waited);
    environment_.sleep(Seconds(backoff.next(environment_.uniform(0.5, 1.5))));
  }
}

}  // namespace hierlock
