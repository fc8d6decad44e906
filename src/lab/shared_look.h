// SharedLook: one reader of a view for all who need it.
//
// MariaDB renews its view of waits only if nobody has read it for 100 ms. If several scenarios read it by themselves,
// it never changes. So they read it here: reads are never closer than `apart`, and all who wait for one share it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace hierlock::lab {

// Any thread may call.
template <typename Seen>
class SharedLook {
 public:
  using Clock = std::chrono::steady_clock;

  explicit SharedLook(Clock::duration apart) : apart_(apart) {}

  // What a read has shown that began at `since` or later. Waits for the read that is due, or reads by itself. Throws
  // what `read` throws, to its own caller only.
  std::shared_ptr<const Seen> after(Clock::time_point since, const std::function<Seen()>& read) {
    std::unique_lock guard(mutex_);
    for (;;) {
      if (seen_ != nullptr && began_ >= since) return seen_;
      if (!reading_) break;
      over_.wait(guard);
    }
    reading_ = true;
    const Clock::time_point due = ended_ + apart_;
    guard.unlock();
    std::this_thread::sleep_until(due);
    const Clock::time_point began = Clock::now();
    std::shared_ptr<const Seen> seen;
    try {
      seen = std::make_shared<const Seen>(read());
    } catch (...) {
      end(nullptr, began);
      throw;
    }
    end(seen, began);
    return seen;
  }

  // When after() can answer: in the past if it need not wait.
  Clock::time_point due(Clock::time_point since) const {
    const std::lock_guard guard(mutex_);
    return seen_ != nullptr && began_ >= since ? Clock::time_point{} : ended_ + apart_;
  }

 private:
  void end(std::shared_ptr<const Seen> seen, Clock::time_point began) {
    const std::lock_guard guard(mutex_);
    seen_ = std::move(seen);
    began_ = began;
    ended_ = Clock::now();
    reading_ = false;
    over_.notify_all();
  }

  const Clock::duration apart_;
  mutable std::mutex mutex_;
  std::condition_variable over_;
  bool reading_ = false;
  std::shared_ptr<const Seen> seen_;
  Clock::time_point began_{}, ended_ = Clock::now();  // somebody before us may have read it just now
};

}  // namespace hierlock::lab
