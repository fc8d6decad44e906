// Table: the lock table. It grants, queues and gives back, one node at a time, and never sleeps: waiting is engine.h's.
//
// THE PROTOCOL (invariants I1 to I6; the comments in table.cc name them)
//
// I1 exclusion     For every node: if its word names a record (X), no tally of it counts anybody else, and if some
// tally
//                  counts an S, no tally counts another record's IX.
// I2 handshake     A sharer first counts itself in its lane, then reads the word (a locked instruction between). A
// writer (or an S against IX) first
//                  sets `queued` in the word, then reads the lanes. So at least one sees the other. The sharer that
//                  sees the writer takes its count back and comes again through the latch.
// I3 mark          A tally of a node is non-zero only while the word is `marked`. The first sharer sets the mark under
//                  the latch before it counts; only a writer that has found every lane empty, while `queued` keeps the
//                  fast path shut, clears it.
// I4 queue         A request is granted exactly when it conflicts with no holder and with no earlier waiter of the
// node.
//                  Requests of owners that already hold the node are earlier than all others; one whose owner holds
//                  the node in a covering mode does not look at the queue. `queued` is set while anybody waits.
// I5 self-grant    A waiter grants itself, under the latch, when it finds that it may. Others only tell it to look. So
// a
//                  grant is never made to somebody who is gone, and a lost wake-up costs time, not correctness.
// I6 fence         A fence is one more than the highest last_fence of the plan's nodes, read after they were taken. It
// goes
//                  into last_fence of the nodes held in X and of the lane, before anything is given back. When an X (or
//                  the first S) is taken at a node that was shared, last_fence of the node rises to the highest of all
//                  lanes, after the tallies were seen to be gone: so it is not below the fence of any earlier lock
//                  further down. The first last_fence is the wall clock in nanoseconds, and a chain of locks that each
//                  wait for the one before is slower than one a nanosecond: so a later table starts higher.
//
// Unguarded reads of a node that is being reused see a mixture; the generation in the word, read before and compared
// after, throws such a mixture away.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/mode.h>
#include <hierlock/spi/plan.h>

#include "engine/layout.h"
#include "engine/region.h"

namespace hierlock::engine {

// How much a table may grow to. Addresses are reserved for all of it, memory is used as needed.
struct Capacity {
  std::uint32_t nodes = 0;
  std::uint32_t records = 0;
  std::uint32_t owners = 0;
  std::uint32_t blocks = 0;
  std::uint32_t tallies = 0;
  std::uint32_t waiters_per_stripe = 0;
  std::uint32_t idle_nodes = 0;  // nodes kept before idle ones are looked for and reused

  static Capacity for_locks(std::uint64_t locks);
};

enum class Progress : std::uint8_t {
  granted,
  blocked,         // in the queue (or, without permission to queue, nowhere): come again when signalled
  self_deadlock,   // the owner itself holds or awaits what this would wait for
  deadlock,        // waiting would close a cycle: Attempt::cycle
  full,            // out of nodes, records, blocks, tallies or waiters
  slots_disagree,  // the holders of this slots name counted on another number: Attempt::slots_there
};

// One acquire or extend on its way. Lives on the stack of whoever makes it.
struct Attempt {
  std::span<const spi::Step> steps;
  Index owner = none;
  Index record = none;
  std::uint32_t lane = 0;
  bool crowd = false;      // several threads may act for the owner
  bool extending = false;  // the record holds something already

  std::size_t next = 0;  // the step being taken
  Index waiter = none;   // its place in the queue
  std::int64_t floor = 0;
  std::uint32_t slots_there = 0;
  Index wanted = none;  // blocks: the request as text, for those who look; once `described`
  bool described = false;
  std::string cycle;  // after `deadlock`, `self_deadlock`: what happened, in words

  Index& node_of(std::size_t step) { return step < few.size() ? few[step] : many[step - few.size()]; }
  std::array<Index, max_depth> few;  // nodes of the steps
  std::vector<Index> many;

  struct Undo {
    Index node;
    std::optional<Mode> before;
    bool asked_before;
  };
  std::vector<Undo> undo;  // extending: what to put back on failure
};

// Waiters to wake once the latch is free again.
class WakeList {
 public:
  void add(Waiter& waiter);
  ~WakeList();

 private:
  std::array<Waiter*, 8> waiters_;
  std::size_t count_ = 0;
};

class Table {
 public:
  explicit Table(const Capacity& capacity);
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  // --- owners and records -------------------------------------------------------------------------------------------
  // none if full.
  Index make_owner(std::string_view name, OwnerKind kind);
  // The owner goes; what it still holds stays held, and its slot is used again after that.
  void retire_owner(Index owner) noexcept;

  // A free record of this owner's, or a new one; none if full. Only one party at a time may ask for one owner.
  Index take_record(Index owner);
  // Back to its owner's free records; may be called by anybody.
  void return_record(Index record) noexcept;
  void set_note(Index record, std::string_view note);
  Index owner_of(Index record) const { return records_[record].owner.relaxed(); }
  OwnerKind owner_kind(Index owner) const { return static_cast<OwnerKind>(owners_[owner].kind.relaxed()); }
  // A list of free records of the caller's own.
  Index next_free(Index record) const { return records_[record].next_free.relaxed(); }
  void set_next_free(Index record, Index next) { records_[record].next_free.set(next); }

  // --- lanes --------------------------------------------------------------------------------------------------------
  // A lane for one thread, or the common one if there is none left.
  std::uint32_t enter_lane() noexcept;
  void leave_lane(std::uint32_t lane) noexcept;

  // --- locks --------------------------------------------------------------------------------------------------------
  // Begins: the record is the attempt's, in state `taking`.
  void begin(Attempt& attempt);
  // Goes on until everything is held, or something stands in the way. With `queue` false a conflict leaves no waiter.
  Progress advance(Attempt& attempt, bool queue);
  // After `granted`: mints the fence; the record is held.
  std::int64_t finish(Attempt& attempt);
  // The usual case from beginning to end: one path or name, nothing in the way, a lane of one's own. The fence, or 0
  // and nothing has changed.
  std::int64_t take_at_once(const spi::Chain& chain, Index record, std::uint32_t lane) noexcept;
  // Gives up: leaves the queue and undoes what this attempt took (extending: what it added).
  void abandon(Attempt& attempt) noexcept;
  // Gives back everything the record holds. The record is then free, but still its owner's to return.
  void release(Index record, std::uint32_t lane) noexcept;
  // Moves a lock to `to`, a free record of another owner's. If that would close a cycle: false, nothing has changed,
  // and `cycle` tells.
  bool give(Index record, Index to, std::string& cycle);

  std::uint64_t record_state_word(Index record) const { return records_[record].word.acquire(); }

  Index node_awaited(Index index) const { return waiter(index).node.relaxed(); }
  // Sleeps until the waiter is told to look again, for at most so long.
  void sleep(Index waiter, std::int64_t nanoseconds) const noexcept;
  // Tells it.
  void tell(Index waiter) noexcept;

  // --- looking ------------------------------------------------------------------------------------------------------
  struct PartyCopy {
    std::uint64_t identity;  // distinguishes successive owners of one slot
    std::string name, note;
    std::int32_t process;
  };
  struct HolderCopy {
    Index owner, record, node;
    Mode mode;
    bool asked, held;
    std::int64_t fence, since;
    std::size_t party;
    std::string target;
  };
  struct WaiterCopy {
    Index owner, record, node, waiter;
    Mode mode;
    QueueKey key;
    std::int64_t since;
    std::size_t party;
    std::string target, wanted;
  };
  struct Copy {
    std::vector<PartyCopy> parties;
    std::vector<HolderCopy> holders;
    std::vector<WaiterCopy> waiters;  // by node, then by place in the queue
  };
  Copy copy() const;
  // The owners that a waiter of the copy waits for.
  std::vector<Index> blockers(const Copy& copy, const WaiterCopy& waiter) const;
  // The owners that a waiter waits for, looked up for it alone.
  std::vector<Index> blockers_of(Index waiter) const;
  std::string node_text(Index node) const;
  std::string owner_text(Index owner) const;
  std::string record_text(Index record) const;  // the targets it was asked for
  std::uint64_t owner_identity(Index owner) const;
  bool nothing_held() const;

  // Walks the whole table, with everything quiet, and says what is wrong; empty if sound.
  std::string check() const;
  struct Use {
    std::uint32_t nodes, records, owners, blocks;
  };
  Use use() const;

 private:
  friend class WaitGraph;

  // --- nodes and their index (find.h, index.cc) ---
  struct Key {
    std::uint64_t hash;
    std::string_view segment;
    unsigned level;
    Space space;
  };
  static Key key_of(const spi::Step& step) noexcept { return {step.hash, step.segment, step.level, step.space}; }
  struct IndexView {
    const Cell<std::uint64_t>* entries;
    std::size_t mask;
    unsigned shift;
  };
  IndexView index_now() const noexcept;
  [[gnu::always_inline]] Index find(const IndexView& index, const Key& key, Index parent,
                                    std::uint64_t& word) const noexcept;
  Index find_or_create(const spi::Step& step, Index parent, std::uint64_t& word);
  bool matches(const Node& node, const Key& key, Index parent) const noexcept;
  bool rest_matches(const Node& node, std::string_view segment) const noexcept;
  Index fresh_node();
  bool reuse(Index node);
  void sweep(std::uint32_t steps);
  bool grow_index();
  void index_insert(std::uint64_t hash, Index node) noexcept;
  void index_remove(std::uint64_t hash, Index node) noexcept;
  Cell<std::uint64_t>* index_of(std::uint32_t log2) const noexcept {
    return index_ + (std::size_t{1} << log2) - first_index_size;
  }
  std::size_t index_place(std::uint64_t hash, std::uint32_t log2) const noexcept {
    return (hash * index_multiplier_) >> (64 - log2);
  }

  // --- pools (pools.cc) ---
  bool owner_holds_anything(Index owner) const;
  Index pool_take(Pool& pool, std::size_t offset, Cell<Index>* (*link)(Table&, Index));
  Index take_block();
  void free_blocks(Index first) noexcept;
  Index write_text(std::string_view text);
  std::string read_text(Index first) const;
  bool give_tally(Node& node);

  // --- one node (table.cc) ---
  // Holds the latch of a node's stripe, or all of them.
  class Latched {
   public:
    Latched(Table& table, Index node, bool all) noexcept;
    ~Latched();
    Latched(const Latched&) = delete;
    Latched& operator=(const Latched&) = delete;

   private:
    Table& table_;
    Index node_;
    bool all_;
  };
  enum class Again : std::uint8_t { no, with_text, with_all };  // what a decision to wait still needs
  struct Counts {
    std::uint64_t is = 0, ix = 0, s = 0;
  };
  Counts count(const Node& node) const noexcept;
  std::optional<Mode> held_mode(Index record, Index node) const noexcept;
  bool holders_conflict(Index node, Mode mode, Index record) const noexcept;
  bool queue_conflicts(Index node, Mode mode, QueueKey key) const noexcept;
  bool own_waiter_conflicts(const Attempt& attempt, Index node, Mode mode) const noexcept;
  PartyCopy copy_party(Index owner, Index record) const;
  std::string self_conflict(const Attempt& attempt, Index node, Mode mode) const;
  bool take_fast(Attempt& attempt, Index node, std::uint64_t word, Mode mode) noexcept;
  std::int64_t highest_fence() const noexcept;
  void note_fence(std::uint32_t lane, std::int64_t fence) noexcept;
  void tell_queue(Index node) noexcept;
  Progress take_latched(Attempt& attempt, Index node, std::uint32_t generation, Mode mode, std::optional<Mode> own,
                        bool queue, bool& stale);
  Progress decide(Attempt& attempt, Index node, Mode mode, std::optional<Mode> own, bool queue, bool all, Again& again);
  Progress decide_slots(Attempt& attempt, Index node, bool queue, bool all, Again& again);
  Progress wait_or_refuse(Attempt& attempt, Index node, Mode mode, bool all, Again& again);
  Progress apply(Attempt& attempt, Index node, Mode mode, std::optional<Mode> own);
  void give_back(Index node, Mode mode, std::uint32_t lane) noexcept;
  void weaken(Index node, Index record, std::uint32_t lane, Mode from, Mode to) noexcept;
  void settle(Index node, WakeList& wake) noexcept;
  bool tell_slots(Index node, WakeList& wake) noexcept;
  bool tell_modes(Index node, WakeList& wake) noexcept;
  void leave_queue(Attempt& attempt) noexcept;
  Index enqueue(const Attempt& attempt, Index node, Mode mode, QueueKey key, bool entangled);
  void dequeue(Waiter& waiter) noexcept;
  bool prepare_step(Attempt& attempt);
  void describe(Attempt& attempt);
  void drop_last_step(Index record) noexcept;
  void note_step(Attempt& attempt, Index node, Mode mode, bool fresh) noexcept;
  bool to_steps(Index record);
  void move_record(Index from, Index to) noexcept;
  Waiter& waiter(Index index) const { return waiters_[index - 1]; }
  Index waiter_index(const Waiter& waiter) const { return static_cast<Index>(&waiter - waiters_) + 1; }
  Cell<std::uint64_t>* find_step(Index record, Index node) const noexcept;

  // Calls f(node, mode, asked) for everything the record holds, descendants before ancestors; stops when f says true.
  template <class F>
  bool any_hold(const Record& record, F f) const;
  // Calls f(record index, node mode) for each of the owner's holds of `node`; stops when f says true.
  template <class F>
  bool any_hold_of(Index owner, Index node, F f) const;
  // Calls f(waiter) for the waiters of a stripe.
  template <class F>
  void each_waiter(unsigned stripe, F f) const;

  static unsigned stripe_of(Index node) { return node % stripe_count; }
  Stripe& stripe(Index node) { return header_->stripes[stripe_of(node)]; }
  Tally& tally_of(std::uint32_t lane, Index tally) const noexcept {
    return tallies_[std::size_t{lane} * capacity_.tallies + tally];
  }
  Mode node_mode(const Record& record) const { return static_cast<Mode>(record.mode.acquire()); }
  bool is_slots(const Node& node) const { return meta_space(node.meta.relaxed()) == Space::slots; }

  static constexpr std::size_t first_index_size = 1024;

  Capacity capacity_;
  struct Offsets {
    std::size_t header, index, nodes, records, owners, blocks, waiters, tallies, end;
  };
  static Offsets lay_out(const Capacity& capacity);
  Offsets at_;
  Region region_;

  Header* header_;
  Cell<std::uint64_t>* index_;
  Node* nodes_;
  Record* records_;
  OwnerSlot* owners_;
  Block* blocks_;
  Waiter* waiters_;
  Tally* tallies_;
  std::uint64_t index_multiplier_;  // a copy of the header's: it never changes
};

// Nanoseconds, to within a few milliseconds, of a clock that all processes share: for ages, not for order.
std::int64_t coarse_time() noexcept;

// A walk may meet a record that somebody releases and takes again: what it reads is then a mixture, so every index is
// looked at before it is used and every list has a bound. Those who need the truth compare the generation afterwards.
template <class F>
bool Table::any_hold(const Record& record, F f) const {
  if (Index block = record.steps.acquire(); block != none) {
    const Index blocks = header_->blocks.next.acquire();
    const Index nodes = header_->nodes.next.acquire();
    const std::uint64_t lock = record.word.acquire();
    for (Index walked = 0; block != none && block < blocks && walked < blocks; ++walked) {
      if (record_generation(record.word.acquire()) != record_generation(lock)) return false;  // it is another lock now
      if (record_state(record.word.acquire()) == RecordState::free) return false;
      for (std::size_t i = Block::words; i-- > 0;) {
        const std::uint64_t step = blocks_[block].word[i].acquire();
        if (step_node(step) == none || step_node(step) >= nodes) continue;
        if (f(step_node(step), step_mode(step), step_asked(step))) return true;
      }
      block = blocks_[block].next.acquire();
    }
    return false;
  }
  Mode mode = node_mode(record);  // before the node: a lock on its way never looks stronger than it is
  Index node = record.node.acquire();
  bool asked = record_state(record.word.acquire()) == RecordState::held;
  for (std::size_t i = 0; node != none && i < max_depth; ++i) {
    const Index parent = nodes_[node].parent.acquire();  // before f, which may give the node back
    if (f(node, mode, asked)) return true;
    node = parent;
    mode = intention(mode);
    asked = false;
  }
  return false;
}

template <class F>
bool Table::any_hold_of(Index owner, Index node, F f) const {
  const unsigned level = meta_level(nodes_[node].meta.relaxed());
  for (Index r = owners_[owner].records.acquire(); r != none; r = records_[r].next_of_owner.acquire()) {
    const Record& record = records_[r];
    const std::uint64_t before = record.word.acquire();
    if (record_state(before) == RecordState::free) continue;
    const auto still = [&] {
      const std::uint64_t now = record.word.acquire();
      return record_generation(now) == record_generation(before) && record_state(now) != RecordState::free;
    };
    if (record.steps.acquire() == none) {  // one path: look at its node of the same level only
      Mode mode = node_mode(record);       // before the node, as above
      Index at = record.node.acquire();
      if (at == none || meta_level(nodes_[at].meta.relaxed()) < level) continue;
      for (std::size_t i = 0; at != none && i < max_depth && meta_level(nodes_[at].meta.relaxed()) > level; ++i) {
        at = nodes_[at].parent.acquire();
        mode = intention(mode);
      }
      if (at == node && still() && f(r, mode)) return true;
    } else if (any_hold(record, [&](Index held, Mode mode, bool) { return held == node && still() && f(r, mode); })) {
      return true;
    }
  }
  return false;
}

template <class F>
void Table::each_waiter(unsigned stripe, F f) const {
  const std::uint32_t used = header_->stripes[stripe].used.acquire();
  Waiter* const first = waiters_ + std::size_t{stripe} * capacity_.waiters_per_stripe;
  for (std::uint32_t i = 0; i < used; ++i) {
    if (first[i].waiting.acquire() != 0) f(first[i]);
  }
}

}  // namespace hierlock::engine
