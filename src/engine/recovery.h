// Recovery: what becomes of what a dead process had.
//
// A process is dead from the instant its slot says so (processes.h); nothing it had counts any more. So nothing here is
// urgent, and nothing has to be done in one go: those who waited for the dead are told, words that name it are cleared,
// its waiters are removed, its memory is given to others, and last of all its slot. Each step looks for what the dead
// process still has and clears it, so any process may repeat it, or go on where another stopped.
//
// Who may do a step. Whoever collects a dead process holds the latch of its slot (Collecting). While it does, whatever
// names the dead process stays the dead one's: its chunks and lanes are given to others by the collector only. So the
// collector may be stopped between looking and clearing, for as long as it likes. It keeps one dead process from being
// collected, and nobody from collecting the others. A newcomer may take the slot meanwhile, because nothing in a chunk,
// a lane or a latch names a slot alone: a ProcessRef also says how often the slot was used (Processes::left_by).
//
// What a step may wait for: nothing. A latch that is not to be had at once is left out. Only the queues need latches: a
// dead process whose waiter stands in the stripe of a stopped one keeps its slot, and everything else is collected.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/budget.h"
#include "engine/log.h"
#include "engine/mapping.h"
#include "engine/names.h"
#include "engine/nodes.h"
#include "engine/parts.h"
#include "engine/queues.h"
#include "engine/records.h"
#include "engine/tallies.h"

namespace hierlock::engine {

class Recovery : Parts {
 public:
  Recovery(Mapping& mapping, Queues& queues, Nodes& nodes, Records& records, Tallies& tallies, Names& names, Log& log);

  // Looks for dead processes, unless another process did just now, and gives back what they had. Returns true if it
  // found one that nobody knew of. `soon`: for a caller that will not look again.
  //
  // Marking the dead is quick and always done. Collecting what they had goes on for `budget` nanoseconds, and at least
  // one step; the rest is left for the next look. Only an unhurried caller makes the index again.
  static constexpr std::int64_t unhurried = Budget::unhurried;
  bool recover(bool soon = false, std::int64_t budget = unhurried) noexcept;
  bool recover_now(bool thorough, std::int64_t budget = unhurried) noexcept;
  // The same, unless somebody has looked within `interval`.
  enum class Watch : std::uint8_t { not_due, nothing, found };
  Watch watch(std::int64_t interval, std::int64_t budget) noexcept;
  // If nobody has looked for so long, none of those who wait is looking regularly.
  static constexpr std::int64_t nobody_watches = 45'000'000;
  // One waiting process is on duty: it looks regularly. True if this one is it now, because nobody was, or whoever was
  // died, or has not looked for long.
  bool begin_duty() noexcept;
  // How often it looks. A look asks the kernel about each process, so among many it looks less often.
  std::int64_t duty_interval() const noexcept { return processes_.used() > 100 ? 30'000'000 : 15'000'000; }
  void end_duty() noexcept;
  // There are dead processes of which not everything is collected.
  bool anything_left() const noexcept;
  // Changes when dead processes were found.
  std::uint32_t deaths() const noexcept { return header_->deaths.acquire(); }

  // What an earlier process left whose slot is this one's now. If it cannot be collected, or not all of it, the rest is
  // collected together with what this process leaves.
  void collect_before(ProcessRef dead) noexcept;

 private:
  bool collect(ProcessRef dead, const Budget& budget) noexcept;
  void log_death(std::uint32_t slot) noexcept;
  void tell_of_deaths(const Budget& budget) noexcept;
  bool collect_garbage(ProcessRef dead, const Budget& budget) noexcept;
  bool collect_latches(ProcessRef dead, const Budget& budget) noexcept;
  bool collect_records(ProcessRef dead, const Budget& budget) noexcept;
  bool drop_words(Record& record, ProcessRef dead, const Budget& budget) noexcept;
  void drop_word(Index node, ProcessRef dead) noexcept;
  // Calls f(chunk) for every chunk of one kind that a dead process has, until f says true.
  template <class F>
  bool any_chunk_of(ProcessRef dead, const ChunkPool& pool, const Area& area, F f) const;

  Mapping& mapping_;
  Queues& queues_;
  Nodes& nodes_;
  Records& records_;
  Tallies& tallies_;
  const Names& names_;
  Log& log_;
  std::atomic<std::int64_t> last_thorough_{0};
  std::atomic<std::uint32_t> next_collect_{0};  // where the next look begins to collect
};

}  // namespace hierlock::engine
