// Latch: a short mutual exclusion inside the table. One word that names the process that has it:
//
//     process (31) | somebody sleeps (1)          0: free
//
// Every sleep is bounded and looks again, so a lost wake-up costs time only. A latch that names a process that is dead
// (Processes::live) is taken over with one compare-and-swap; what the dead one was in the middle of is then the new
// one's to put right. One that names a stopped process is waited for, but never longer than the caller is patient.
#pragma once

#include <cstdint>

#include "engine/cell.h"
#include "engine/futex.h"

namespace hierlock::engine {

class Processes;

enum class Latching : std::uint8_t {
  taken,
  taken_over,  // from the dead: what it guards may be half changed
  late,        // not taken: somebody else has it, for longer than the patience
};

class Latch {
 public:
  static constexpr std::int64_t for_ever = INT64_MAX;

  Latching lock(Processes& processes, std::int64_t patience = for_ever) noexcept;
  void unlock(const Processes& processes) noexcept;
  std::uint32_t process() const noexcept { return word_.ordered() >> 1; }

 private:
  Latching lock_slowly(Processes& processes, std::int64_t patience) noexcept;

  Cell<std::uint32_t> word_;
};

}  // namespace hierlock::engine

#include "engine/processes.h"

namespace hierlock::engine {

inline Latching Latch::lock(Processes& processes, std::int64_t patience) noexcept {
  std::uint32_t seen = 0;
  if (word_.cas(seen, processes.self() << 1)) return Latching::taken;
  return lock_slowly(processes, patience);
}

// Model: L5.
inline void Latch::unlock(const Processes& processes) noexcept {
  std::uint32_t seen = processes.self() << 1;
  while (!word_.cas(seen, 0)) {
    if (seen >> 1 != processes.self()) return;  // taken over: this process was taken for dead
  }
  if ((seen & 1) != 0) futex_wake(word_, 1, processes.reach());
}

}  // namespace hierlock::engine
