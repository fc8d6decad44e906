// TimedMutex: a mutex with try_lock_until().
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace hierlock::timed {

// The thread sanitizer of gcc 12 does not know pthread_mutex_clocklock, which std::timed_mutex uses. It understands
// this one.
class TimedMutex {
 public:
  void lock() {
    std::unique_lock guard(mutex_);
    freed_.wait(guard, [this] { return !taken_; });
    taken_ = true;
  }
  bool try_lock() {
    const std::lock_guard guard(mutex_);
    return !std::exchange(taken_, true);
  }
  bool try_lock_until(std::chrono::steady_clock::time_point end) {
    std::unique_lock guard(mutex_);
    if (!freed_.wait_until(guard, end, [this] { return !taken_; })) return false;
    taken_ = true;
    return true;
  }
  void unlock() {
    const std::lock_guard guard(mutex_);
    taken_ = false;
    freed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  bool taken_ = false;
};

}  // namespace hierlock::timed
