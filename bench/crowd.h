// Crowd: hundreds of processes or thousands of threads that wait for the same thing.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "measure.h"
#include "process.h"

namespace bench {

// Processes that run one function, which is not expected to return. They are killed with the object.
class ProcessCrowd {
 public:
  // A child calls its argument just before it waits. Returns when all children have done so and have been seen asleep.
  using Body = std::function<void(const std::function<void()>& about_to_wait)>;
  ProcessCrowd(std::size_t count, const Body& body);
  ~ProcessCrowd();
  ProcessCrowd(const ProcessCrowd&) = delete;
  ProcessCrowd& operator=(const ProcessCrowd&) = delete;

  // Processor time that all of them have used since they started.
  double processor_nanoseconds() const;

 private:
  void end() noexcept;

  Shared<std::atomic<std::size_t>> about_to_wait_;
  std::vector<pid_t> children_;
};

// Threads that are started once and sleep between two orders.
class ThreadCrowd {
 public:
  explicit ThreadCrowd(std::size_t count);
  ~ThreadCrowd();
  ThreadCrowd(const ThreadCrowd&) = delete;
  ThreadCrowd& operator=(const ThreadCrowd&) = delete;

  std::size_t size() const { return threads_.size(); }
  // Every thread calls body(its number).
  void begin(std::function<void(std::size_t)> body);
  // The same, and returns when each of them has been seen asleep in it, or has returned.
  void start(std::function<void(std::size_t)> body);
  // Returns when all have returned from the body.
  void finish();

 private:
  struct Thread {
    ThreadCrowd* crowd = nullptr;
    std::size_t number = 0;
    pthread_t thread{};
    pid_t id = 0;
    std::atomic<std::uint32_t> begun{0};  // the latest order that it began with
  };
  static void* run(void* argument);
  void work(Thread& self);

  std::vector<Thread> threads_;
  std::function<void(std::size_t)> body_;
  std::atomic<std::uint32_t> order_{0};  // counts orders; the body is that of the latest
  std::atomic<std::size_t> busy_{0};     // threads that have not returned from it
  std::atomic<bool> ends_{false};
};

}  // namespace bench
