// Latch: a short mutual exclusion inside the table. One word: 0 free, 1 taken, 2 taken and somebody sleeps.
// (Drepper, Futexes Are Tricky, mutex 3.) Every sleep is bounded and looks again, so a lost wake costs time only.
#pragma once

#include <cstdint>

#include "engine/cell.h"
#include "engine/futex.h"

namespace hierlock::engine {

class Latch {
 public:
  void lock() noexcept {
    std::uint32_t seen = 0;
    if (word_.cas(seen, 1)) return;
    lock_slowly();
  }
  void unlock() noexcept {
    if (word_.exchange(0) == 2) futex_wake(word_, 1);
  }

 private:
  void lock_slowly() noexcept {
    for (int i = 0; i < spins; ++i) {
      std::uint32_t seen = word_.relaxed();
      if (seen == 0 && word_.cas(seen, 1)) return;
      pause();
    }
    while (word_.exchange(2) != 0) futex_wait(word_, 2, look_again);
  }

  static constexpr int spins = 100;
  static constexpr std::int64_t look_again = 50'000'000;  // ns

  Cell<std::uint32_t> word_;
};

}  // namespace hierlock::engine
