// Parts: where everything in a table lies, and how to get there by index. Those who work on the table (Nodes, Queues,
// Records, …) are each a Parts: they reach all of it, and what each may change its own header says.
//
// It is a handful of pointers, and copied freely. The table is mapped before a Parts is made, and does not move.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include <hierlock/mode.h>

#include "engine/layout.h"
#include "engine/region.h"
#include "engine/table_size.h"

namespace hierlock::engine {

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

// A number that only rises, whoever raises it.
inline void raise(Cell<std::uint32_t>& cell, std::uint32_t at_least) noexcept {
  for (std::uint32_t seen = cell.ordered(); seen < at_least && !cell.cas(seen, at_least);) {
  }
}

inline constexpr std::size_t growth = 1024;  // entries of a pool made usable at a time

inline constexpr std::uint32_t first_index_log2 = 10;
inline constexpr std::size_t first_index_size = std::size_t{1} << first_index_log2;

// Where the chunks of one kind lie.
struct Area {
  Index chunks;
  std::size_t owners, entries;
};

// In bytes from the beginning of the table.
struct Offsets {
  std::size_t description, header, index, nodes, texts;
  Area records, owners, blocks;
  std::size_t waiters, arenas, pages, tallies, end;
};
Offsets lay_out(const Capacity& capacity);

// The tallies of a lane by number, and whether they are there.
struct LaneView {
  Tally* tallies;
  const Cell<PageState>* pages;

  [[gnu::always_inline]] bool has(Index number) const noexcept {
    constexpr std::size_t stride = most_lanes / arena_size;  // a row of pages for each arena
    return pages[std::size_t{number & ~(arena_size - 1)} * stride].acquire() == PageState::used;
  }
};

class Parts {
 public:
  // `views`: one for each lane.
  Parts(const Capacity& capacity, Region& region, Processes& processes, const LaneView* views);

  // Other processes may use the table, too.
  bool shared() const noexcept { return !processes_.alone(); }
  const Capacity& capacity() const noexcept { return capacity_; }

  // --- entries ---
  // Every index that was read from the table passes through one of these: entry 0 is nobody's, so whatever a damaged
  // table says, nothing else is touched.
  Node& node_at(Index i) const noexcept { return node_array_[i < capacity_.nodes ? i : 0]; }
  Record& record_at(Index i) const noexcept { return record_array_[i < capacity_.records ? i : 0]; }
  OwnerSlot& owner_at(Index i) const noexcept { return owner_array_[i < capacity_.owners ? i : 0]; }
  Block& block_at(Index i) const noexcept { return block_array_[i < capacity_.blocks ? i : 0]; }
  Block& text_at(Index i) const noexcept { return text_array_[i < capacity_.texts ? i : 0]; }
  Waiter& waiter(Index i) const noexcept {
    return waiter_array_[i <= stripe_count * capacity_.waiters_per_stripe ? i : 0];
  }
  Index waiter_index(const Waiter& waiter) const { return static_cast<Index>(&waiter - waiter_array_); }
  Index node_index(const Node& node) const { return static_cast<Index>(&node - node_array_); }
  Arena& arena_at(Index i) const noexcept { return arena_array_[i < arenas_end() ? i : 0]; }
  Cell<PageState>& page_at(std::uint32_t lane, Index arena) const noexcept {
    return page_array_[std::size_t{arena} * most_lanes + lane];
  }
  bool has_page(std::uint32_t lane, Index arena) const noexcept {
    return page_at(lane, arena).ordered() == PageState::used;
  }
  // The lane can have a page there without new memory.
  bool has_memory(std::uint32_t lane, Index arena) const noexcept {
    return page_at(lane, arena).ordered() != PageState::absent;
  }
  bool counts(std::uint32_t lane, Index number) const noexcept {
    return number < capacity_.tallies && views_[lane].has(number);
  }
  // Where a lane counts under a number; nullptr if it has no page for it.
  Tally* tally_of(std::uint32_t lane, Index number) const noexcept {
    return counts(lane, number) ? views_[lane].tallies + number : nullptr;
  }
  // Mixed, because nodes of different threads have the same places in their pages.
  static unsigned stripe_of(Index node) { return node * 0x9E3779B1u >> 26; }
  Stripe& stripe(Index node) const noexcept { return header_->stripes[stripe_of(node)]; }
  Waiter* waiters_of(unsigned stripe) const {
    return waiter_array_ + 1 + std::size_t{stripe} * capacity_.waiters_per_stripe;
  }
  std::uint32_t waiters_used(unsigned stripe) const {
    return std::min(header_->stripes[stripe].used.acquire(), capacity_.waiters_per_stripe);
  }
  // Whose a chunk is.
  Cell<ProcessRef>& chunk_owner(const Area& area, Index chunk) const noexcept {
    return reinterpret_cast<Cell<ProcessRef>*>(region_->base() + area.owners)[chunk < area.chunks ? chunk : 0];
  }
  std::uint32_t index_log2() const noexcept {
    return std::clamp<std::uint32_t>(header_->index_log2.acquire(), first_index_log2, largest_index_log2_);
  }
  Cell<std::uint64_t>* index_of(std::uint32_t log2) const noexcept {
    return index_array_ + (std::size_t{1} << log2) - first_index_size;
  }

  // --- ends of what is used ---
  Index nodes_end() const noexcept { return std::min(header_->nodes.next.acquire(), capacity_.nodes); }
  Index records_end() const noexcept {
    return std::min(header_->records.next.acquire(), at_.records.chunks) * chunk_size;
  }
  Index owners_end() const noexcept { return std::min(header_->owners.next.acquire(), at_.owners.chunks) * chunk_size; }
  Index blocks_end() const noexcept { return std::min(header_->blocks.next.acquire(), at_.blocks.chunks) * chunk_size; }
  Index arenas_end() const noexcept { return capacity_.tallies / arena_size; }
  Index arenas_used() const noexcept { return std::clamp(header_->arenas.ordered(), 1u, arenas_end()); }
  std::uint32_t lanes_used() const noexcept { return std::min(header_->lanes_used.ordered(), capacity_.lanes); }
  // The first entry from this one on in a chunk of a live process; `end` if there is none. A file has room for many
  // more entries than are used: whoever looks at all of them looks at the chunks' words first.
  Index next_live(const Area& area, Index entry, Index end) const noexcept {
    while (entry < end && !processes_.live(chunk_owner(area, entry / chunk_size).ordered()))
      entry = (entry / chunk_size + 1) * chunk_size;
    return std::min(entry, end);
  }

  // --- what is said of an entry ---
  bool is_slots(const Node& node) const { return meta_space(node.meta.relaxed()) == Space::slots; }
  Mode node_mode(const Record& record) const { return mode_of(record.mode.acquire()); }
  OwnerKind owner_kind(Index owner) const { return static_cast<OwnerKind>(owner_at(owner).kind.relaxed()); }
  bool live_record(Index record) const noexcept { return processes_.live(record_at(record).process.acquire()); }
  // A node's word that names this record says that the node is held. (I7, I8)
  bool holds_words(Index record) const noexcept {
    return live_record(record) && record_state(record_at(record).word.ordered()) != RecordState::broken;
  }
  bool waits(const Waiter& w) const noexcept { return processes_.runs(w.process.acquire()); }
  // The owners of some waiters hold something outside the canonical order, see wait_graph.cc.
  bool anybody_entangled() const noexcept;
  Cell<std::uint32_t>& own_entangled() const noexcept { return processes_.slot(processes_.self_slot()).entangled; }

  // --- what a lock holds ---
  // Calls f(node, mode, asked) for everything the record holds, descendants before ancestors; stops when f says true.
  template <class F>
  bool any_hold(const Record& record, F f) const;
  // Calls f(step) for each step in the record's blocks, newest first; stops when f says true.
  template <class F>
  bool any_step(const Record& record, F f) const;
  // Calls f(node, mode) for every tally that counts the record, broken or not; stops when f says true.
  template <class F>
  bool any_tally(const Record& record, F f) const;
  Cell<std::uint64_t>* find_step(Index record, Index node) const noexcept;
  std::optional<Mode> held_mode(Index record, Index node) const noexcept;

  // --- what an owner holds ---
  // Calls f(record index) for each of the owner's records; stops when f says true. Once along the list: `whole` tells
  // whether that was all of it, or records went out of it meanwhile and some may have been missed, or met twice. Under
  // the latch of the owner's stripe it is whole, unless its process has died.
  template <class F>
  bool walk_records_of(Index owner, bool& whole, F f) const;
  // The same, again and again until it was whole (but not for ever: see records.cc).
  template <class F>
  bool any_record_of(Index owner, F f) const;
  // Calls f(record index, node mode) for each of the owner's holds of `node`; stops when f says true.
  template <class F>
  bool any_hold_of(Index owner, Index node, F f) const;

  // --- who waits ---
  // Calls f(waiter) for the waiters of a stripe, those of dead processes left out.
  template <class F>
  void each_waiter(unsigned stripe, F f) const;
  // Calls f(waiter) for those who wait for the node, in the order of the queue; stops when f says true.
  template <class F>
  void each_in_queue(Index node, F f) const;
  // One of the queue of `node`, as far as a damaged table tells: none if the link leads anywhere else.
  Waiter* queued_at(Index waiter, Index node) const noexcept;

  // --- text in blocks ---
  std::string read_text(Index first) const;
  std::string read_long_segment(Index first) const;

 protected:
  Capacity capacity_;
  Offsets at_;
  Region* region_;
  Processes& processes_;
  Header* header_;
  Cell<std::uint64_t>* index_array_;
  Node* node_array_;
  Block* text_array_;
  Record* record_array_;
  OwnerSlot* owner_array_;
  Block* block_array_;
  Waiter* waiter_array_;
  Arena* arena_array_;
  Cell<PageState>* page_array_;  // by arena and lane: what a writer adds up lies together
  Tally* tally_array_;           // by lane and number
  const LaneView* views_;        // by lane
  std::uint32_t largest_index_log2_;
};

// Nanoseconds, to within a few milliseconds, of a clock that all processes share: for ages, not for order.
std::int64_t coarse_time() noexcept;

// A walk may meet a record that somebody releases and takes again: what it reads is then a mixture, so every index is
// looked at before it is used and every list has a bound. Those who need the truth compare the generation afterwards.
template <class F>
bool Parts::any_step(const Record& record, F f) const {
  const Index blocks = blocks_end();
  const Index nodes = nodes_end();
  Index block = record.steps.acquire();
  for (Index walked = 0; block != none && block < blocks && walked < blocks; ++walked) {
    const Index next = block_at(block).next.acquire();
    for (std::size_t i = Block::words; i-- > 0;) {
      const std::uint64_t step = block_at(block).word[i].acquire();
      if (step_node(step) != none && step_node(step) < nodes && f(step)) return true;
    }
    block = next;
  }
  return false;
}

template <class F>
bool Parts::any_hold(const Record& record, F f) const {
  if (record.steps.acquire() != none) {
    const std::uint64_t before = record.word.acquire();
    bool held = false;
    any_step(record, [&](std::uint64_t step) {
      const std::uint64_t now = record.word.acquire();
      if (!same_lock(now, before) || record_state(now) == RecordState::free) return true;  // it is another lock now
      const bool intends = step_mode(step) == Mode::IS || step_mode(step) == Mode::IX;
      if (record_state(now) == RecordState::broken && !intends) return false;
      held = f(step_node(step), step_mode(step), step_asked(step) && (step & step_new) == 0);
      return held;
    });
    return held;
  }
  // The nodes are read first and told afterwards: if the lock is broken meanwhile, its deepest node may be another's,
  // and the way up from there, too. A lock is broken only once, so twice is enough.
  std::array<Index, max_depth> nodes;
  std::size_t count = 0;
  RecordState state{};
  Mode mode{};
  for (int tries = 0; tries < 2; ++tries) {
    state = record_state(record.word.acquire());
    const bool broken = state == RecordState::broken;
    count = 0;
    mode = node_mode(record);  // before the node: a lock on its way never looks stronger than it is
    Index node = broken ? record.parent.acquire() : record.node.acquire();
    if (broken) mode = intention(mode);
    for (; node != none && count < nodes.size(); node = node_at(node).parent.acquire()) nodes[count++] = node;
    if ((record_state(record.word.acquire()) == RecordState::broken) == broken) break;
  }
  bool asked = state == RecordState::held || extended(state);
  for (std::size_t i = 0; i < count; ++i) {
    if (f(nodes[i], mode, asked)) return true;
    mode = intention(mode);
    asked = false;
  }
  return false;
}

template <class F>
bool Parts::any_tally(const Record& record, F f) const {
  const auto counted = [](std::uint32_t stored) { return mode_of(stored) != Mode::X || is_slot(stored); };
  const auto as = [](std::uint32_t stored) { return is_slot(stored) ? Mode::S : mode_of(stored); };
  if (record.steps.acquire() != none) {
    return any_step(record, [&](std::uint64_t step) {
      const std::uint32_t stored = step_stored_mode(step);
      return counted(stored) && f(step_node(step), as(stored));
    });
  }
  const std::uint32_t stored = record.mode.acquire();
  const Index target = record.node.acquire();
  if (target != none && counted(stored) && f(target, as(stored))) return true;
  Index node = record.parent.acquire();
  for (std::size_t i = 1; node != none && i < max_depth; ++i) {
    const Index parent = node_at(node).parent.acquire();  // before f, which may give the node back
    if (f(node, intention(mode_of(stored)))) return true;
    node = parent;
  }
  return false;
}

template <class F>
bool Parts::walk_records_of(Index owner, bool& whole, F f) const {
  const OwnerSlot& slot = owner_at(owner);
  const std::uint32_t before = slot.departures.ordered();
  whole = false;
  const Index most = records_end();
  Index walked = 0;
  for (Index r = slot.records.acquire(); r != none && ++walked < most;) {
    const Record& record = record_at(r);
    const Index next = record.next_of_owner.acquire();
    if (record.owner.acquire() != owner) return false;  // after `next`: so that was the owner's, too
    if (f(r)) return true;
    r = next;
  }
  whole =
      slot.departures.ordered() == before || walked >= most;  // a list that goes in circles does not end the next time
  return false;
}

template <class F>
bool Parts::any_record_of(Index owner, F f) const {
  constexpr int most = 64;
  bool whole = false;
  for (int i = 0; i < most && !whole; ++i) {
    if (walk_records_of(owner, whole, f)) return true;
  }
  return false;
}

template <class F>
bool Parts::any_hold_of(Index owner, Index node, F f) const {
  const unsigned level = meta_level(node_at(node).meta.relaxed());
  return any_record_of(owner, [&](Index r) {
    const Record& record = record_at(r);
    const std::uint64_t before = record.word.acquire();
    if (record_state(before) == RecordState::free) return false;
    const auto still = [&] {
      const std::uint64_t now = record.word.acquire();
      return same_lock(now, before) && record_state(now) != RecordState::free;
    };
    if (record.steps.acquire() == none && record_state(before) != RecordState::broken) {
      // one path: look at its node of the same level only
      Mode mode = node_mode(record);  // before the node, as above
      Index at = record.node.acquire();
      for (std::size_t i = 0; at != none && i < max_depth && meta_level(node_at(at).meta.relaxed()) > level; ++i) {
        at = node_at(at).parent.acquire();
        mode = intention(mode);
      }
      if (record_state(record.word.acquire()) != RecordState::broken) return at == node && still() && f(r, mode);
    }
    return any_hold(record, [&](Index held, Mode mode, bool) { return held == node && still() && f(r, mode); });
  });
}

template <class F>
void Parts::each_waiter(unsigned stripe, F f) const {
  const std::uint32_t used = waiters_used(stripe);
  Waiter* const first = waiters_of(stripe);
  for (std::uint32_t i = 0; i < used; ++i) {
    if (waits(first[i])) f(first[i]);
  }
}

template <class F>
void Parts::each_in_queue(Index node, F f) const {
  Waiter* const first = queued_at(node_at(node).queue.relaxed(), node);
  Waiter* w = first;
  for (std::uint32_t walked = 0; w != nullptr && walked < capacity_.waiters_per_stripe; ++walked) {
    if (waits(*w) && f(*w)) return;
    w = queued_at(w->next.relaxed(), node);
    if (w == first) return;
  }
}

inline Waiter* Parts::queued_at(Index index, Index node) const noexcept {
  if (index == none || index > stripe_count * capacity_.waiters_per_stripe) return nullptr;
  Waiter* const w = waiter_array_ + index;
  return w->node.relaxed() == node ? w : nullptr;
}

}  // namespace hierlock::engine
