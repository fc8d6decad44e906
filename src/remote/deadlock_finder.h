// DeadlockFinder: finds cycles of waits between processes, from their notices and the store's own view. No I/O.
//
// A guess is not enough: no request may become a victim without a deadlock, and no cycle may be missed.
//
// A request takes its cells in one order. So a request that waits at the store waits for one cell. It has all cells
// before that cell, and none after it. Its notice does not say which cell that is. But the request cannot have passed
// the first cell that another notice holds in a conflicting mode. That cell is its limit. It follows:
// - A wait needs all its cells. So it surely needs each cell that a holder has in a conflicting mode, wherever it waits
//   now. (Exception: the leftover of a failed extend may be held or not.)
// - Another wait may be in its way at a cell only if neither wait has its limit before that cell. Then the other wait
//   has passed the cell, or stands before this wait in the queue there. Only the store knows which. Ages do not tell.
//   Requests of two processes overtake each other on the way, and a request asks again when the store has ended its
//   wait. (If a holder is in the way there, the other wait is not in the way: both wait for the holder.)
// - A wait in the queue of its process surely waits for the requests before it.
// - A wait for one of several slots ends when any of their holders releases one. So it is in a cycle only if all slots
//   have holders, and none of these can go on.
// Everything that can keep a wait from ending is in this list. So every cycle consists of such waits. Requests that
// take all their cells in one order close no cycle by themselves. So some member of each cycle holds a lock and waits
// for another lock. The victim is one of these members.
//
// Cost: one pass over all notices builds a graph with a vertex for each wait, each owner and each contended cell. Graph
// reduction (Holt 1972) takes away the slots that will be free. Then the finder computes the strongly connected
// components (Tarjan 1972). All of it is linear in the notices' nodes. find() looks for the cycle itself only inside a
// component in which a wait needs a cell that another member holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <hierlock/error.h>

#include "remote/notice.h"
#include "remote/view.h"

namespace hierlock::remote {

struct InTheWay {
  const Notice* notice = nullptr;
  bool surely = false;
  std::optional<Cell> cell{};  // of a wait: the cell that it has passed, or where it stands in the queue
};

struct Cycle {
  bool surely = false;  // otherwise it may be one
  // The youngest wait of an owner that holds a lock. If any of these wait in the queue of their process, it is the
  // youngest there: no store shows those waits, and only their own process knows them for certain.
  const Notice* victim = nullptr;
  std::vector<const Notice*> members;  // waits, each for the next one's owner
  std::vector<const Notice*> between;  // by member: the notice in its way
  // If it passes slots: what else makes it a deadlock, that is, all holders of these slots, and what they wait for.
  std::vector<const Notice*> evidence;
  std::string text() const;
  std::vector<Error::Wait> waits() const;  // for Error::cycle()
};

class DeadlockFinder {
 public:
  // The view, if there is one, was read after the notices. A wait at the store then waits only for those that the view
  // shows. (A wait that never ends is stuck at a cell, and the view shows who has that cell: no cycle is missed.)
  // Both must outlive the finder.
  explicit DeadlockFinder(const std::vector<Notice>& all, const View* view = nullptr);
  ~DeadlockFinder();
  DeadlockFinder(const DeadlockFinder&) = delete;
  DeadlockFinder& operator=(const DeadlockFinder&) = delete;

  // A cycle that this wait, one of the notices, is part of: a sure one, if there is one.
  std::optional<Cycle> find(const Notice& waiter);
  // False: this wait is certainly in no cycle.
  bool suspicious(const Notice& waiter) const;
  std::vector<InTheWay> in_the_way(const Notice& waiter);
  // Whether the owner of this wait holds a lock.
  bool holds(const Notice& wait) const;

 private:
  class Graph;
  const std::unique_ptr<Graph> graph_;
};

}  // namespace hierlock::remote
