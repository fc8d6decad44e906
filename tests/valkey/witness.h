// Witness: sees whether two hold one lock at a time. Load: threads that lock while a test disturbs the server.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "on_valkey.h"

namespace hierlock::valkey_tests {

class Witness {
 public:
  void enter(const std::string& what, const Lock& lock) {
    const std::lock_guard guard(mutex_);
    Seen& seen = seen_[what];
    if (seen.inside != nullptr && seen.inside->held() && lock.held()) ++overlaps_;
    seen.inside = &lock;
    try {
      if (lock.fence() <= seen.fence) ++falls_;
      seen.fence = std::max(seen.fence, lock.fence());
    } catch (const Error&) {  // its lease has ended
    }
    ++pairs_;
  }
  void leave(const std::string& what, const Lock& lock) {
    const std::lock_guard guard(mutex_);
    if (seen_[what].inside == &lock) seen_[what].inside = nullptr;
  }
  int overlaps() const { return overlaps_; }  // two held one lock
  int falls() const { return falls_; }        // a fence was not above the one before
  int pairs() const { return pairs_; }

 private:
  struct Seen {
    const Lock* inside = nullptr;
    std::int64_t fence = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Seen> seen_;  // guarded by mutex_
  std::atomic<int> overlaps_{0}, falls_{0}, pairs_{0};
};

// Inside of a lock, as the witness sees it.
class Visit {
 public:
  Visit(Witness& witness, std::string what, const Lock& lock) : witness_(witness), what_(std::move(what)), lock_(lock) {
    witness_.enter(what_, lock_);
  }
  ~Visit() { witness_.leave(what_, lock_); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  Witness& witness_;
  const std::string what_;
  const Lock& lock_;
};

// Threads that lock roots at random until the end, one for each URL, and stay inside for 1 to 5 ms.
class Load {
 public:
  Load(const std::vector<std::string>& urls, const std::vector<std::string>& roots) : roots_(roots) {
    for (const std::string& url : urls) lockers_.push_back(hierlock::open(url));
    for (std::size_t i = 0; i < urls.size(); ++i) {
      threads_.emplace_back([this, i](const std::stop_token& stop) {
        for (std::minstd_rand random(static_cast<unsigned>(i)); !stop.stop_requested();) lock_one(lockers_[i], random);
      });
    }
  }
  Witness& witness() { return witness_; }
  bool goes_on(int pairs = 20, std::chrono::seconds limit = 60s) {
    const int before = witness_.pairs();
    return eventually([&] { return witness_.pairs() >= before + pairs; }, limit);
  }
  // What went wrong besides; a server that is disturbed may not be available.
  std::set<std::string> end() {
    for (std::jthread& thread : threads_) thread.request_stop();
    for (std::jthread& thread : threads_) thread.join();
    return unclean_;
  }

 private:
  void lock_one(Locker& locker, std::minstd_rand& random) {
    const std::string& root = roots_[random() % roots_.size()];
    try {
      const Lock lock = locker.acquire(root + "/a", {.timeout = 20s});
      const Visit visit(witness_, root, lock);
      std::this_thread::sleep_for(1ms + 1us * (random() % 4000));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::unavailable || error.kind() == ErrorKind::timeout) return;
      const std::lock_guard guard(mutex_);
      unclean_.insert(error.what());
    }
  }

  const std::vector<std::string> roots_;
  std::vector<Locker> lockers_;
  Witness witness_;
  std::mutex mutex_;
  std::set<std::string> unclean_;  // guarded by mutex_
  std::vector<std::jthread> threads_;
};

}  // namespace hierlock::valkey_tests
