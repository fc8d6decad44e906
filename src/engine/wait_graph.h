// WaitGraph: would this wait ever end? Used with all stripes latched, so that no queue moves.
#pragma once

#include <vector>

#include "engine/found_cycle.h"
#include "engine/names.h"
#include "engine/parts.h"
#include "engine/reduction.h"

namespace hierlock::engine {

class WaitGraph {
 public:
  // A lock that is about to be granted. The graph treats it as granted.
  struct Supposed {
    Index owner, record, node;
    Mode mode;
  };
  WaitGraph(const Parts& table, const Names& names, Supposed supposed = {none, none, none, Mode::IS});

  // Empty if every wait of the owner can end. Otherwise the cycle that it is caught in, told from `waiter` if
  // that is one of its stuck waits. To be asked once, about the owner that has just changed something: only those who
  // wait for it are looked at.
  FoundCycle cycle_of(Index owner, Index waiter);

 private:
  // A node's word names the record that holds it in X.
  struct Exclusive {
    Reduction::Hold hold;
    std::uint32_t next;  // of the same owner, counted from 1
  };
  void find_exclusive();
  template <class F>
  void each_hold_of(Index owner, F f);
  template <class F>
  void each_shared_hold_of(Index owner, F f);
  FoundCycle tell(Reduction::Stuck first);

  const Parts& table_;
  const Names& names_;
  const Supposed supposed_;
  Reduction reduction_;
  std::vector<Exclusive> exclusive_;
  std::vector<std::uint32_t> first_exclusive_;  // by the number of the owner, counted from 1; 0: none
  bool shared_ = false;                         // some awaited node may be held other than in X
  std::vector<Reduction::Hold> held_;           // of one record; here, so that it is allocated once
};

}  // namespace hierlock::engine
