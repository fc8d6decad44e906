// BriefMutex: a mutex for a few instructions at a time. A thread that finds it taken tries again for a moment before it
// sleeps: going to sleep and being woken takes longer than what the other thread does.
#pragma once

#include <mutex>

namespace hierlock::timed {

class BriefMutex {
 public:
  void lock() {
    for (int tries = 0; tries < most_tries; ++tries) {
      if (mutex_.try_lock()) return;
      pause();
    }
    mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  static constexpr int most_tries = 100;
  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }

  std::mutex mutex_;
};

}  // namespace hierlock::timed
