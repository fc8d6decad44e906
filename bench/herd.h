// Herd: threads of one Locker that lock and release without a pause.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "crowd.h"
#include "measure.h"
#include "ours.h"

namespace bench {

inline void sleep_until_done(const std::function<bool()>& done) {
  const Clock::time_point end = Clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (Clock::now() > end) throw std::runtime_error("nothing has happened for a minute");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

struct alignas(64) Count {
  std::atomic<std::uint64_t> value{0};
};

// A thread for each path, or target.
class Herd {
 public:
  Herd(hierlock::Locker& locker, const std::vector<std::string>& paths)
      : Herd(locker, std::vector<hierlock::Target>(paths.begin(), paths.end())) {}
  Herd(hierlock::Locker& locker, std::vector<hierlock::Target> targets)
      : locker_(locker), targets_(std::move(targets)), pairs_(targets_.size()), crowd_(targets_.size()) {}

  // Pairs a second; processor time of this process and sleeps of its threads, a pair. All threads run when `meanwhile`
  // is called. If it takes longer, so does the run.
  std::array<double, 3> run(
      Clock::duration length, const std::function<void()>& meanwhile = [] {}) {
    std::atomic<bool> over = false;
    std::atomic<std::size_t> begun = 0;
    crowd_.begin([&](std::size_t i) {
      locker_.acquire(targets_[i]).release();
      ++begun;
      while (!over) {
        locker_.acquire(targets_[i]).release();
        pairs_[i].value.fetch_add(1, std::memory_order_relaxed);
      }
    });
    sleep_until_done([&] { return begun == crowd_.size(); });
    const Sample before = now();
    meanwhile();
    std::this_thread::sleep_until(before.at + length);
    const Sample after = now();
    over = true;
    crowd_.finish();
    const double pairs = after.pairs - before.pairs;
    return {pairs / (nanoseconds(after.at - before.at) / 1e9), (after.processor - before.processor) / pairs,
            (after.sleeps - before.sleeps) / pairs};
  }

 private:
  struct Sample {
    Clock::time_point at;
    double pairs, processor, sleeps;
  };
  Sample now() const {
    double pairs = 0;
    for (const Count& count : pairs_) pairs += static_cast<double>(count.value.load(std::memory_order_relaxed));
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return {Clock::now(), pairs, process_nanoseconds(getpid()), static_cast<double>(usage.ru_nvcsw)};
  }

  hierlock::Locker& locker_;
  std::vector<hierlock::Target> targets_;
  std::vector<Count> pairs_;
  ThreadCrowd crowd_;
};

}  // namespace bench
