// Worker: a thread that locks, counts and unlocks at random until it is told to stop, or its process is killed. The
// workers of one process use one Locker.
#pragma once

#include <cstddef>
#include <cstdint>

#include "store.h"
#include "witness.h"

namespace storm {

// Faults that the storm makes itself, to show that it would notice the engine's.
enum class Break : std::uint8_t {
  nothing,
  unlocked_write,  // counts without holding
  lost_write,      // puts the old value back after counting
  unlocked_entry,  // believes to hold what it did not ask for
  extra_slot,      // the same with a slot
  stale_fence,     // goes by a fence it had before
  unsaid_break,    // takes locks away that nobody is to break
  hang,            // never lets go
  crash,           // dies by itself
  leftover,        // a lock is held when all is over
  leak,            // processes are left in the table when all is over
  slow,            // what a dead holder held is not free for a while
};

struct Setting {
  Store store;
  std::uint64_t seed = 0;
  std::size_t processes = 16;
  std::size_t threads = 1;  // workers in each of them
  unsigned scratch = 0;     // leaves below each account that nobody else asks for: more in all than the table has nodes
  Break fault = Break::nothing;
  std::uint32_t own_stops = 0;  // a worker stops itself inside the engine once in about so many stores; 0: never
  unsigned danger = 0;          // of a hundred turns, how many go to locks that are broken, and to breaking them
  unsigned hot = 0;             // of a hundred turns, how many are a lock on the one hot place

  std::size_t workers() const { return processes * threads; }
  std::size_t first_worker(std::size_t process) const { return process * threads; }
};

// The workers of one process. Returns when the witness says stop.
void work(const Witness& witness, const Setting& setting, std::size_t process);

}  // namespace storm
