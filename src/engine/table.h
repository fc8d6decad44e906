// Table: the lock table. It decides who is granted, who waits, and what is given back, one node at a time, and never
// sleeps: waiting is engine.h's. What it needs for that, others do, each in a file of its own:
//
//   Mapping    the memory, private or a file        Parts     where everything lies in it
//   Nodes      from a key to its node               Records   locks, owners, and their lists
//   Lanes      who counts where                     Tallies   under which number, and in which memory
//   Holders    who holds a node                     Queues    who waits for it, and who is told
//   Recovery   what the dead had                    Breaks    an operator's hand
//   Look, Names, Log   for people
//
// THE PROTOCOL (invariants I1 to I8; the comments in table.cc name them, and the steps of the model in model/)
//
// I1 exclusion   For every node: if its word names a record (X), no tally of it counts anybody else, and if some tally
//                counts an S, no tally counts another record's IX.
// I2 handshake   A sharer first counts itself in its lane, then reads the word (a locked instruction between). A writer
//                (or an S against IX) first sets `queued` in the word, then reads the lanes. So at least one sees the
//                other. The sharer that sees the writer takes its count back and comes again through the latch.
// I3 mark        A tally of a node is non-zero only while the word is `marked`. The first sharer sets the mark, under
//                the latch, before it counts; only a writer that has found every lane empty, while `queued` keeps the
//                fast path shut, clears it. A node loses its number in the same way: see "Numbers" in docs/engine.md.
//                (A late sharer counts for a moment under a number that its node has lost, and takes it back.)
// I4 queue       A request is granted exactly when it conflicts with no holder and with no earlier waiter of the node.
//                Requests of owners that already hold the node are earlier than all others, and with
//                serve_holders_first() so are those of owners that hold anything else. A request whose owner holds
//                the node in a covering mode does not look at the queue. `queued` is set while anybody waits.
// I5 self-grant  A waiter grants itself, under the latch, when it finds that it may. Others only tell it to look. So a
//                grant is never made to somebody who is gone, and a lost wake-up costs time, not correctness. At most
//                16 of a queue are told at a time, and each that goes on tells the next.
// I6 fence       A fence is one more than the highest last_fence of the plan's nodes, read after they were taken. It
//                goes into last_fence of the nodes held in X and of the lane, before anything is given back. When an X
//                (or the first S) is taken at a node that was shared, last_fence of the node rises to the highest of
//                all lanes, after the tallies were seen to be gone: so it is not below the fence of any earlier lock
//                further down. The first last_fence is the wall clock in nanoseconds, and a chain of locks that each
//                wait for the one before is slower than one a nanosecond: so a later table starts higher.
// I7 death       Whatever a process adds names it (its records, lanes, waiters, latches, chunks), and counts only while
//                its slot says `live`. So its death is one compare-and-swap on that slot; see processes.h, recovery.cc.
// I8 break       From the instant a record's word says `broken`, its X, S and slots count for nobody; its intentions
//                count until its owner releases it. A holder that is broken does not hold a node's word, and broken
//                locks with counted holds are listed, so that they can be subtracted from a sum. The owner's tallies
//                are its own to subtract, after it has left `broken`. A lock that is being extended is only doomed by
//                others, and broken by its owner. See docs/engine.md, "Breaking a lock".
//
// Unguarded reads of a node that is being reused see a mixture; the generation in the word, read before and compared
// after, throws such a mixture away.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <hierlock/mode.h>
#include <hierlock/spi/plan.h>

#include "engine/attempt.h"
#include "engine/breaks.h"
#include "engine/file.h"
#include "engine/holders.h"
#include "engine/lanes.h"
#include "engine/log.h"
#include "engine/look.h"
#include "engine/mapping.h"
#include "engine/names.h"
#include "engine/nodes.h"
#include "engine/parts.h"
#include "engine/queues.h"
#include "engine/records.h"
#include "engine/recovery.h"
#include "engine/tallies.h"

namespace hierlock::engine {

class Table : Parts {
 public:
  // In private memory.
  explicit Table(const Capacity& capacity);
  // In a file, with all other processes that open it. Creates it if there is none. Throws Error.
  explicit Table(const FileOptions& options);
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  using Parts::capacity;
  using Parts::shared;

  // A request whose owner holds a lock already stands before those whose owners hold none; but not for slots. Call it
  // before the first lock, in private memory.
  void serve_holders_first() noexcept { holders_first_ = true; }

  // --- those who work on it, each with a duty of its own ---
  Mapping& mapping() const noexcept { return *mapping_; }
  Queues& queues() noexcept { return queues_; }
  const Queues& queues() const noexcept { return queues_; }
  const Nodes& nodes() const noexcept { return nodes_; }
  Records& records() noexcept { return records_; }
  const Records& records() const noexcept { return records_; }
  Recovery& recovery() noexcept { return recovery_; }
  Breaks& breaks() noexcept { return breaks_; }
  const Holders& holders() const noexcept { return holders_; }
  const Names& names() const noexcept { return names_; }
  const Look& look() const noexcept { return look_; }
  Log& log() noexcept { return log_; }
  const Log& log() const noexcept { return log_; }

  // --- lanes ---
  // A lane for one thread, or the common one of this process if there is none left.
  std::uint32_t enter_lane() noexcept;
  void leave_lane(std::uint32_t lane) noexcept;
  std::uint32_t common_lane() const noexcept { return lanes_.common(); }

  // --- locks ---
  // Begins: the record is the attempt's, in state `taking`. False if what is to be extended was taken away.
  bool begin(Attempt& attempt);
  // Goes on until everything is held, or something stands in the way. With `queue` false a conflict leaves no waiter.
  Progress advance(Attempt& attempt, bool queue);
  // After `granted`: mints the fence; the record is held. 0 if it was taken away meanwhile: then it is broken.
  std::int64_t finish(Attempt& attempt);
  // Gives up: leaves the queue and undoes what this attempt took (extending: what it added).
  void abandon(Attempt& attempt) noexcept;
  // Gives back everything the record holds. The record is then free, but still its owner's to return.
  void release(Index record, std::uint32_t lane) noexcept;
  // Moves a lock to `to`, a free record of another owner's. If that would close a cycle: deadlock, nothing has changed,
  // and `cycle` tells.
  Progress give(Index record, Index to, FoundCycle& cycle);
  std::uint64_t record_state_word(Index record) const { return record_array_[record].word.acquire(); }
  // A lock was released: if the table is full, there may be room now.
  void note_release() noexcept { nodes_.note_release(); }

  // --- the usual case from beginning to end: one path or name, nothing in the way, a lane of one's own ---
  // First the deepest node is found.
  [[gnu::always_inline]] Nodes::Found find_at_once(const spi::Chain& chain) noexcept;
  // Then it is taken in X or S, and those above it. If the fence is 0, nothing has changed.
  struct Taken {
    std::int64_t fence = 0;
    std::uint32_t generation = 0;  // of the record
  };
  [[gnu::always_inline]] Taken take_at_once(const Nodes::Found& found, Mode mode, Index record, std::uint32_t lane,
                                            std::int64_t now) noexcept;
  [[gnu::always_inline]] bool release_at_once(Index record, std::uint64_t handle, std::uint32_t lane) noexcept;

 private:
  explicit Table(std::unique_ptr<Mapping> mapping);
  void join();

  // --- deciding, under the latch of the node's stripe ---
  enum class Again : std::uint8_t { no, with_text, with_all };  // what a decision to wait still needs
  Progress take_latched(Attempt& attempt, Index node, std::uint32_t generation, Mode mode, std::optional<Mode> own,
                        bool queue, bool& stale);
  Progress decide(Attempt& attempt, Index node, Mode mode, std::optional<Mode> own, bool queue, bool all, Again& again);
  Progress decide_slots(Attempt& attempt, Index node, bool queue, bool all, Again& again,
                        std::optional<std::uint64_t>& now_held);
  Progress wait_or_refuse(Attempt& attempt, Index node, Mode mode, bool all, Again& again);
  bool has_more(const Attempt& attempt) const noexcept;
  bool stands_ahead(const Attempt& attempt, Index node) const noexcept;
  bool awaited_by_others(const Attempt& attempt, Index node) const noexcept;
  FoundCycle self_conflict(const Attempt& attempt, Index node, Mode mode) const;
  Progress apply(Attempt& attempt, Index node, Mode mode, std::optional<Mode> own);
  bool weaken(Index node, Index record, std::uint32_t lane, Mode from, Mode to, std::int64_t patience) noexcept;
  void describe(Attempt& attempt);

  // --- giving back ---
  bool give_back(Index node, Index record, std::uint32_t stored_mode, std::uint32_t lane) noexcept;
  void release_broken(Index record, std::uint32_t lane) noexcept;
  bool end_change(Index record, std::uint64_t word) noexcept;
  void tell_queues(std::span<const Node* const> nodes) noexcept;
  void move_record(Index from, Index to) noexcept;

  // --- the fast path (fast_path.h, and what of it is unusual in table.cc) ---
  bool take_fast(Attempt& attempt, Index node, std::uint64_t word, Mode mode) noexcept;
  // An ancestor that was counted, with its word and the number of its tally as they were before.
  struct Counted {
    const Node* node;
    std::uint64_t word;
    Index tally;
  };
  template <Mode mode>
  [[gnu::always_inline]] Taken take_found(const Nodes::Found& found, Index record, std::uint32_t lane,
                                          std::int64_t now) noexcept;
  Taken take_shared(const Nodes::Found& found, Index record, std::uint32_t lane, std::int64_t now) noexcept;
  void tell_after_withdrawing(const Node& node, Index number) noexcept;
  void uncount_ancestor(std::uint32_t lane, Index number, Mode intent) noexcept;
  [[gnu::cold]] const Node** uncount_rest(Index node, std::uint32_t lane, const Node** end, const Node** most) noexcept;
  Taken withdraw(std::span<const Counted> counted, Index record, Mode intent, std::uint32_t lane) noexcept;

  bool holders_first_ = false;
  std::unique_ptr<Mapping> mapping_;
  Lanes lanes_;
  Holders holders_;
  Queues queues_;
  Tallies tallies_;
  Nodes nodes_;
  Records records_;
  Names names_;
  Log log_;
  Recovery recovery_;
  Breaks breaks_;
  Look look_;
};

}  // namespace hierlock::engine
