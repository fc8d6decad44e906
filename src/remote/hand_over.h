// HandOver: keeps a released lock at the store for a request of this process that waits for exactly the same plan (B8).
// That request takes the lock over without asking the store.
//
//   held ──park──> parked ──take, the same plan──────────────────> held, by the next owner, with the next fence
//                     ├────take, another plan in conflict────> given back
//                     └────no request waits for it, or its time is up────> given back
//
// The local queue decides which request is next, as always: a lock is parked before its place in the queue is released.
// INVARIANT: if a lock is parked, a request waits for its plan in the local queue, or is on its way from there to
// take(). Otherwise the lock is being given back.
//
// Other processes do not starve. A lock is handed over at most `most` times, and only until `longest` after the store
// granted it. park() checks both. A thread gives back locks that are parked for longer. That can happen if the next
// request has its turn at one node of the plan, and still waits a long time for another node.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include <hierlock/spi/plan.h>

#include "remote/cell.h"
#include "remote/locks.h"
#include "timed/brief_mutex.h"

namespace hierlock::remote {

class HandOver {
 public:
  static constexpr int most = 100;  // fewer than the 128 fences that the store leaves free after each of its own
  static constexpr std::chrono::milliseconds longest{50};

  using Lock = std::shared_ptr<Held>;
  using GiveBack = std::function<void(const Lock&)>;  // must not throw
  using CellsOf = std::function<std::vector<Cell>()>;
  explicit HandOver(GiveBack give_back) : give_back_(std::move(give_back)) {}
  ~HandOver();
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  // A request that is about to wait in the local queue: while this lives, a lock on its plan may be parked.
  class Waiting {
   public:
    Waiting(HandOver& of, const spi::Plan& plan);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    friend class HandOver;
    HandOver& of_;
    const std::uint64_t plan_;
    bool counts_ = true;
  };

  // Parks a lock if a request waits for its plan, the lock may be handed over once more, and `park` returns true.
  // `park` is called last. False: the caller gives the lock back.
  bool park(const Lock& held, const std::function<bool()>& park) noexcept;

  // The request has its place in the local queue. Returns the lock that is parked for its plan, or null. In the latter
  // case no parked lock is in conflict with the cells any more, and the store can be asked. `waiting` ends.
  Lock take(const spi::Plan& plan, const CellsOf& cells, Waiting* waiting);
  // The same for a request that takes over no parked lock: an extend.
  void clear(const CellsOf& cells);

  // Equal plans have equal numbers.
  static std::uint64_t number_of(const spi::Plan& plan) noexcept;

  // Final: gives back all parked locks, and ends the thread. Returns when the thread has ended, or soon after `by`. A
  // second call does nothing.
  void end(Clock::time_point by) noexcept;

 private:
  struct Parked;
  using Entry = std::list<Parked>::iterator;
  using ByPlan = std::unordered_multimap<std::uint64_t, Entry>;
  using ByCell = std::multimap<Place, Entry>;
  struct Parked {
    Lock held;
    std::optional<ByPlan::iterator> by_plan{};
    std::vector<ByCell::iterator> by_cell{};
  };

  Lock remove(Entry entry) noexcept;
  void remove_conflicting(const std::vector<Cell>& cells, std::vector<Lock>& removed);
  void stop_waiting(Waiting& waiting, std::vector<Lock>& unwanted) noexcept;
  Lock remove_same(const spi::Plan& plan) noexcept;
  class Unwanted;
  void run(const std::stop_token& end);

  const GiveBack give_back_;
  std::atomic<std::size_t> count_{0};  // of parked locks; written under the mutex

  mutable timed::BriefMutex mutex_;                         // guards what follows
  std::unordered_map<std::uint64_t, std::size_t> waiting_;  // by number of the plan
  std::list<Parked> parked_;
  ByPlan by_plan_;
  ByCell by_cell_;
  std::condition_variable_any woken_, ended_;
  bool closed_ = false, runs_ = false;
  bool asleep_ = false;  // the thread waits until something is parked
  std::jthread thread_;
};

}  // namespace hierlock::remote
