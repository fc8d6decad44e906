// WaitGraph: would this wait ever end? Used with all stripes latched, so that no queue moves.
#pragma once

#include <string>
#include <vector>

#include "engine/table.h"

namespace hierlock::engine {

class WaitGraph {
 public:
  // What somebody is about to be granted, to be looked at as if it were.
  struct Supposed {
    Index owner, record, node;
    Mode mode;
  };
  explicit WaitGraph(const Table& table, Supposed supposed = {none, none, none, Mode::IS});

  // Empty if every wait can end. Otherwise the cycle that the waiter is caught in, in words.
  std::string cycle_through(Index waiter);

 private:
  struct Wait {
    Index waiter, owner, node, record;
    Mode mode;
    QueueKey key;
    bool stuck = true;
    bool any_will_do = false;           // slots: one of the holders is enough
    std::uint64_t free_slots = 0;       // beside what waiting owners hold
    std::vector<Index> owners;          // waiting owners it waits for: holders and earlier waiters in conflict
    std::vector<std::uint64_t> counts;  // any_will_do: how many slots each of `owners` holds
    std::vector<Index> ahead;           // any_will_do: owners of earlier waiters
  };
  void find_blockers(Wait& wait);
  bool owner_stuck(Index owner) const;
  bool can_end(const Wait& wait) const;

  const Table& table_;
  const Supposed supposed_;
  std::vector<Wait> waits_;
};

}  // namespace hierlock::engine
