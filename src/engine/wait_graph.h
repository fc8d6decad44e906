// WaitGraph: would this wait ever end? Used with all stripes latched, so that no queue moves.
#pragma once

#include <string>
#include <unordered_map>
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

  // Empty if every wait of the owner can end. Otherwise the cycle that it is caught in, in words, told from `waiter` if
  // that is one of its stuck waits. A cycle that an owner closes contains that owner: others' are not its business.
  std::string cycle_of(Index owner, Index waiter);

 private:
  struct Wait {
    Index waiter, owner, node, record;
    Mode mode;
    QueueKey key;
    bool stuck = true;
    bool any_will_do = false;  // slots: one of the holders is enough
    std::uint64_t capacity = 0;
    std::vector<Index>
        owners;  // waiting owners it waits for: holders and earlier waiters in conflict; for slots, once a slot
    std::vector<Index> ahead;  // slots: owners of earlier waiters
  };
  void find_queues();
  void find_holders();
  bool owner_stuck(Index owner) const;
  bool can_end(const Wait& wait) const;
  std::string tell(std::size_t first) const;

  const Table& table_;
  const Supposed supposed_;
  std::vector<Wait> waits_;
  std::unordered_map<Index, std::vector<std::size_t>> by_node_;  // waits, in the order of the queue
  std::unordered_map<Index, std::size_t> stuck_of_;              // by owner: how many of its waits are stuck
};

}  // namespace hierlock::engine
