// Holders: who holds a node, as far as others are concerned. X is in the node's word. The rest is added up over the
// lanes, without those who died and without locks that were broken (I7, I8).
#pragma once

#include <cstdint>

#include "engine/parts.h"

namespace hierlock::engine {

class Holders : Parts {
 public:
  explicit Holders(const Parts& parts) : Parts(parts) {}

  struct Counts {
    std::uint64_t is = 0, ix = 0, s = 0;
  };
  // What the lanes say: whether anybody will still subtract something here. For the mark (I3) and for reuse.
  Counts count(Index node) const noexcept { return sum(node, false); }
  // Without broken locks (I8): what a request is in conflict with.
  Counts count_holders(Index node) const noexcept { return sum(node, true); }
  // Whether somebody holds the node who keeps a request in this mode waiting. What `record` holds does not.
  bool holders_conflict(Index node, Mode mode, Index record) const noexcept;
  // A guess, without the latch: nothing that can be seen at once keeps the waiter from going.
  bool seems_free(Index waiter) const noexcept;

  // Before a lock with counted holds is broken. False if there is no room in the list.
  bool list_broken(Index record, std::uint32_t generation) noexcept;

 private:
  Counts sum(Index node, bool without_broken) const noexcept;
  bool is_lock(Index record, std::uint32_t generation) const noexcept;
  std::uint64_t broken_sharers(Index node) const noexcept;
};

}  // namespace hierlock::engine
