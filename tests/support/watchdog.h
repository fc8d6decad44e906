// Watchdog: a test that hangs ends the program with its name and the state of the store, instead of hanging for ever.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace hierlock::conformance {

class Watchdog {
 public:
  // Unless destroyed within `limit`: prints `what` and describe() to stderr and aborts.
  Watchdog(std::string what, std::chrono::seconds limit, std::function<std::string()> describe);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace hierlock::conformance
