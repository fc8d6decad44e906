// Hold: the driver's state of one held lock; reports the loss of the lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>

#include "remote/cell.h"

namespace hierlock::remote {

// Nanoseconds on a clock that runs while the machine is suspended: leases run on then, too.
inline std::int64_t now_with_suspend() noexcept {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Any thread may call anything here.
class Hold : public std::enable_shared_from_this<Hold> {
 public:
  Hold() = default;
  virtual ~Hold() = default;
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  // The number by which the store's own view, and other processes, know the lock.
  virtual std::uint64_t session() const noexcept = 0;
  // True while the lock is certainly held. No I/O.
  virtual bool surely() const noexcept = 0;

  bool gone() const noexcept { return gone_.load(); }
  // Of a lock that is gone: whether the store still keeps others from this cell until the lock is given back. A lock
  // that is in several places at the store may have lost only one of them.
  virtual bool keeps(const Cell& cell) const {
    const Hold* const its = part();
    return its != nullptr && its->keeps(cell);
  }

  // A lock may be in two places at the store: rows and names. The holder knows one Hold, the whole. The other Hold is
  // its part: if one is lost, both are. Call it at most once for each whole.
  void attach(std::shared_ptr<Hold> part) {
    {
      const std::lock_guard guard(part->mutex_);  // a thread may be about to declare it lost
      part->whole_ = weak_from_this();
    }
    owned_part_ = std::move(part);
    part_ = owned_part_.get();
    if (part_.load()->gone()) declare_lost();
  }
  Hold* part() const noexcept { return part_.load(); }
  std::shared_ptr<Hold> shared_part() const { return part_.load() == nullptr ? nullptr : owned_part_; }

  // The store took the lock away. False: no thread could be started to run the callbacks. Call it again.
  bool declare_lost() {
    gone_ = true;
    std::stop_source lost{std::nostopstate};
    std::shared_ptr<Hold> whole;
    {
      const std::lock_guard guard(mutex_);
      lost = lost_;
      whole = whole_.lock();
    }
    if (whole != nullptr) return whole->declare_lost();
    if (!lost.stop_possible() || lost.stop_requested()) return true;  // nobody listens, or all were told
    // The callbacks belong to the application. They may release the lock, or take long. So they run on their own
    // thread, and the caller can look after the other locks.
    try {
      std::thread([lost]() mutable { lost.request_stop(); }).detach();
    } catch (const std::exception&) {
      return false;
    }
    return true;
  }
  std::stop_token lost() {
    std::stop_source source{std::nostopstate};
    {
      const std::lock_guard guard(mutex_);
      if (!lost_.stop_possible()) lost_ = std::stop_source();
      source = lost_;
    }
    if (!surely()) source.request_stop();
    return source.get_token();
  }

 protected:
  bool part_surely() const noexcept {
    const Hold* const part = part_.load();
    return part == nullptr || part->surely();
  }

 private:
  std::atomic<bool> gone_{false};
  std::shared_ptr<Hold> owned_part_;  // written before part_, and not again
  std::atomic<Hold*> part_{nullptr};
  std::mutex mutex_;  // guards what follows
  std::weak_ptr<Hold> whole_;
  std::stop_source lost_{std::nostopstate};
};

}  // namespace hierlock::remote
