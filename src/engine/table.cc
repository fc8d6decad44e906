#include "engine/table.h"

#include <algorithm>
#include <utility>

#include "engine/find.h"
#include "engine/wait_graph.h"

namespace hierlock::engine {

// --- waking ----------------------------------------------------------------------------------------------

void WakeList::add(Waiter& waiter) {
  if (waiter.signal.relaxed() != 0) return;
  waiter.signal.set(1);
  if (count_ == waiters_.size()) {
    futex_wake(waiter.signal, 1, reach_);
  } else {
    waiters_[count_++] = &waiter;
  }
}

// The place in the queue may belong to somebody else by now: being told to look again harms nobody.
WakeList::~WakeList() {
  for (std::size_t i = 0; i < count_; ++i) futex_wake(waiters_[i]->signal, 1, reach_);
}

Table::Latched::Latched(Table& table, Index node, bool all, std::int64_t patience) noexcept
    : table_(table), first_(all ? 0 : stripe_of(node)), end_(first_) {
  const unsigned end = all ? stripe_count : first_ + 1;
  for (; end_ < end; ++end_) {
    if (table_.header_->stripes[end_].latch.lock(table_.processes_, patience) != Latching::late) continue;
    while (end_ > first_) table_.header_->stripes[--end_].latch.unlock(table_.processes_);
    return;
  }
}

Table::Latched::~Latched() {
  while (end_ > first_) table_.header_->stripes[--end_].latch.unlock(table_.processes_);
}

// Model: Z1.
void Table::sleep(Index w, std::int64_t nanoseconds) const noexcept {
  futex_wait(waiter(w).signal, 0, nanoseconds, processes_.reach());
}

void Table::tell(Index w) noexcept {
  waiter(w).signal.set(1);
  futex_wake(waiter(w).signal, 1, processes_.reach());
}

// --- what a node looks like ------------------------------------------------------------------------------

// Model: Q1 to Q3. The sum over the lanes of live processes. A process's lanes mean something only together (one may be
// below zero), so if one that was counted has died meanwhile, the rest of its lanes may have been left out: then once
// more.
Table::Counts Table::count(const Node& node) const noexcept {
  const Index tally = node.tally.acquire();
  if (tally == none) return {};
  for (std::uint32_t deaths = 0;; ++deaths) {
    std::uint64_t intents = 0;
    std::uint64_t shared = 0;
    std::array<ProcessRef, most_lanes> counted;  // not initialised
    std::size_t count = 0;
    const std::uint32_t lanes = lanes_used();
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      const ProcessRef process = header_->lanes[lane].process.ordered();  // before its tally: then it is its tally
      if (!processes_.live(process)) continue;
      const Tally& t = tally_of(lane, tally);
      const std::uint64_t i = t.intents.ordered();
      const std::uint64_t s = t.shared.ordered();
      if ((i | s) == 0) continue;
      intents += i;
      shared += s;
      counted[count++] = process;
    }
    const bool all_live = std::all_of(counted.begin(), counted.begin() + static_cast<std::ptrdiff_t>(count),
                                      [this](ProcessRef process) { return processes_.live(process); });
    if (all_live) return {intents & 0xFFFFFFFF, intents >> 32, shared};
    if (deaths > process_count) return {1, 1, 1};  // damaged: in conflict with everything is what is safe
  }
}

std::int64_t Table::highest_fence() const noexcept {
  std::int64_t highest = 0;
  const std::uint32_t lanes = lanes_used();
  for (std::uint32_t lane = 0; lane < lanes; ++lane)
    highest = std::max(highest, header_->lanes[lane].last_fence.acquire());
  return highest;
}

inline void Table::note_fence(std::uint32_t lane, std::int64_t fence) noexcept {
  Cell<std::int64_t>& highest = header_->lanes[lane].last_fence;
  std::int64_t seen = highest.relaxed();
  if (lane != common_lane_) {
    if (seen < fence) highest.set(fence);
    return;
  }
  while (seen < fence && !highest.cas(seen, fence)) {
  }
}

std::optional<Mode> Table::held_mode(Index record, Index node) const noexcept {
  std::optional<Mode> found;
  any_hold(record_at(record), [&](Index held, Mode mode, bool) {
    if (held == node) found = mode;
    return found.has_value();
  });
  return found;
}

bool Table::holders_conflict(Index index, Mode mode, Index record) const noexcept {
  const Node& node = node_at(index);
  const auto holder = static_cast<Index>(node.word.ordered() & word::holder);
  if (holder != none && holder != record && live_record(holder)) return true;
  if (mode == Mode::IS) return false;
  Counts counts = count(node);
  const auto conflict = [&] {
    switch (mode) {
      case Mode::IX:
        return counts.s != 0;
      case Mode::S:
        return counts.ix != 0;
      default:
        return counts.is + counts.ix + counts.s != 0;
    }
  };
  if (!conflict()) return false;
  const std::optional<Mode> own = held_mode(record, index);
  if (own == Mode::IS && counts.is > 0) --counts.is;
  if (own == Mode::IX && counts.ix > 0) --counts.ix;
  if (own == Mode::S && counts.s > 0) --counts.s;
  return conflict();
}

bool Table::queue_conflicts(Index node, Mode mode, QueueKey key) const noexcept {
  bool conflict = false;
  each_waiter(stripe_of(node), [&](const Waiter& w) {
    conflict =
        conflict || (w.node.relaxed() == node && w.key.relaxed() < key && !compatible(mode_of(w.mode.relaxed()), mode));
  });
  return conflict;
}

// Two requests of one owner that conflict with each other never both exist, whichever came first: granted, each would
// keep the other waiting. True if another thread of the owner waits here in a mode that conflicts.
bool Table::own_waiter_conflicts(const Attempt& a, Index node, Mode mode) const noexcept {
  bool conflict = false;
  each_waiter(stripe_of(node), [&](const Waiter& w) {
    conflict = conflict || (w.node.relaxed() == node && w.owner.relaxed() == a.owner &&
                            w.record.relaxed() != a.record && !compatible(mode_of(w.mode.relaxed()), mode));
  });
  return conflict;
}

// In words how the owner would wait for itself; empty if it would not.
std::string Table::self_conflict(const Attempt& a, Index index, Mode mode) const {
  const auto as = [](Mode m) { return " (" + std::string(to_string(m)) + ")"; };
  std::string how;
  any_hold_of(a.owner, index, [&](Index record, Mode held) {
    if (record == a.record || compatible(held, mode)) return false;
    how = "holds it" + as(held) + " through its lock on " + record_text(record);
    return true;
  });
  if (how.empty() && own_waiter_conflicts(a, index, mode)) how = "waits for it in another call";
  if (how.empty()) return how;
  const std::string node = node_text(index);
  return owner_text(a.owner) + " asks for " + spi::describe(a.steps) + ", needs " + node + as(mode) +
         " for it and already " + how + ": it would wait for itself";
}

// --- taking ----------------------------------------------------------------------------------------------

bool Table::begin(Attempt& a) {
  if (a.steps.size() > a.few.size()) a.many.resize(a.steps.size() - a.few.size());
  if (a.extending) a.undo.reserve(a.steps.size());  // so that nothing fails between taking a step and noting it
  Record& record = record_at(a.record);
  if (a.extending) {
    // An operator may break what is held, not what is being changed.
    std::uint64_t w = record.word.acquire();
    if (record_state(w) != RecordState::held ||
        !record.word.cas(w, record_word(record_generation(w), RecordState::taking))) {
      return false;
    }
  } else {
    record.fence.set(0);
    record.node.set(none);
    record.mode.set(static_cast<std::uint32_t>(Mode::IS));  // what it held before must not make it look stronger
    record.word.set(record_word(record_generation(record.word.relaxed()) + 1, RecordState::taking));
  }
  return true;
}

namespace {

// One path and nothing else: the record then needs no list.
bool is_chain(std::span<const spi::Step> steps) noexcept {
  if (steps.size() > max_depth) return false;
  const Mode above = intention(steps.back().mode);
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    if (steps[i].asked || steps[i].mode != above || steps[i + 1].parent != static_cast<std::int32_t>(i)) return false;
  }
  return true;
}

constexpr std::uint64_t shut = word::holder | word::queued | word::closed;

// Which words let a sharer in without a latch.
struct Gate {
  std::uint64_t mask, open;

  explicit constexpr Gate(Mode mode) noexcept
      : mask(shut | word::marked | (mode == Mode::IS ? 0 : word::sharing)),
        open(word::marked | (mode == Mode::S ? word::sharing : 0)) {}

  constexpr bool lets_in(std::uint64_t w) const noexcept { return (w & mask) == open; }
  // Still open, and still the node that had the word `before`.
  constexpr bool still_lets_in(std::uint64_t now, std::uint64_t before) const noexcept {
    constexpr std::uint64_t generation = ~std::uint64_t{0} << word::generation_shift;
    return (now & (mask | generation)) == (open | (before & generation));
  }
};

}  // namespace

// In one step, if nothing at all is in the way. (Model: F2 to F6.)
inline bool Table::take_fast(Attempt& a, Index index, std::uint64_t w, Mode mode) noexcept {
  Node& node = node_at(index);
  if (mode == Mode::X) return (w & (shut | word::marked)) == 0 && node.word.cas(w, w | a.record);
  const Gate gate(mode);
  if (!gate.lets_in(w)) return false;
  Cell<std::uint64_t>& mine = tally_of(a.lane, node.tally.acquire()).of(mode);
  mine.add(Tally::unit(mode));  // I2: count, then look
  if (gate.still_lets_in(node.word.ordered(), w)) return true;
  mine.subtract(Tally::unit(mode));  // whoever saw the count meanwhile is told by settle(), in take_latched
  return false;
}

// Model: A1 to A6. All ancestors are counted first, then the target is taken with a locked instruction, then all are
// looked at: that one instruction is the "between" of I2 for the whole path.
std::int64_t Table::take_at_once(const spi::Chain& chain, Index index, std::uint32_t lane) noexcept {
  struct Level {
    const Node* node;
    std::uint64_t word;
    Cell<std::uint64_t>* mine;
  };
  std::array<Level, max_depth> above;
  Record& record = records_[index];
  const std::uint32_t generation = record_generation(record.word.relaxed()) + 1;
  record.mode.set(static_cast<std::uint32_t>(Mode::IS));
  record.word.set(record_word(generation, RecordState::taking));

  const Mode intent = intention(chain.mode);
  const Gate gate(intent);
  const std::uint64_t unit = Tally::unit(intent);
  const std::size_t last = chain.depth - 1u;
  const IndexView all = index_now();
  expect(all, chain);
  Index parent = none;
  std::uint64_t w = 0;
  std::size_t counted = 0;
  for (; counted < last; ++counted) {
    const Index node = find(
        all, {chain.hashes[counted], chain.segment(counted), static_cast<unsigned>(counted), chain.space}, parent, w);
    if (node == none || !gate.lets_in(w)) break;
    const Node& ancestor = node_at(node);
    Cell<std::uint64_t>& mine = tally_of(lane, ancestor.tally.acquire()).intents;
    mine.set(mine.relaxed() + unit);
    above[counted] = {&ancestor, w, &mine};
    parent = node;
  }
  if (counted == last) {
    const Index target =
        find(all, {chain.hashes[last], chain.segment(last), static_cast<unsigned>(last), chain.space}, parent, w);
    Node& node = node_at(target);
    record.want.set(target);
    bool taken = false;
    if (target != none && chain.mode == Mode::X) {
      taken = (w & (shut | word::marked)) == 0 && node.word.cas(w, w | index);
    } else if (target != none && Gate(Mode::S).lets_in(w)) {
      Cell<std::uint64_t>& mine = tally_of(lane, node.tally.acquire()).shared;
      mine.add(1);
      taken = Gate(Mode::S).still_lets_in(node.word.ordered(), w);
      if (!taken) {
        mine.subtract(1);
        if ((node.word.ordered() & word::queued) != 0) tell_queue(target);
      }
    }
    if (taken) {
      barrier_after_locked();
      std::int64_t floor = node.last_fence.acquire();
      bool open = true;
      for (std::size_t i = 0; i < last; ++i) {
        const Node& ancestor = *above[i].node;
        open = gate.still_lets_in(ancestor.word.ordered(), above[i].word) && open;
        floor = std::max(floor, ancestor.last_fence.acquire());
      }
      if (open && (processes_.alone() || processes_.live(processes_.self()))) {
        const std::int64_t fence = floor + 1;  // I6
        if (chain.mode == Mode::X) node.last_fence.set(fence);
        note_fence(lane, fence);
        record.node.set(target);
        record.mode.set(static_cast<std::uint32_t>(chain.mode));
        record.fence.set(fence);
        record.since.set(coarse_time());
        record.word.set(record_word(generation, RecordState::held));
        return fence;
      }
      give_back(target, index, chain.mode, lane);
    }
  }
  // Somebody is in the way: as if nothing had been. Those who saw a count meanwhile are told.
  for (std::size_t i = 0; i < counted; ++i) above[i].mine->set(above[i].mine->relaxed() - unit);
  record.word.exchange(record_word(generation, RecordState::free));
  barrier_after_locked();
  for (std::size_t i = 0; i < counted; ++i) {
    if ((above[i].node->word.ordered() & word::queued) != 0) tell_queue(static_cast<Index>(above[i].node - nodes_));
  }
  return 0;
}

Progress Table::advance(Attempt& a, bool queue) {
  Record& record = record_at(a.record);
  const bool chain = !a.extending && is_chain(a.steps);
  for (; a.next < a.steps.size(); ++a.next) {
    const spi::Step& step = a.steps[a.next];
    const Index parent = step.parent < 0 ? none : a.node_of(static_cast<std::size_t>(step.parent));
    if (!chain && !prepare_step(a)) return Progress::full;
    Index node = none;
    Mode mode = step.mode;
    std::optional<Mode> own;
    Progress progress = Progress::blocked;
    for (bool stale = true; stale;) {
      stale = false;
      std::uint64_t w = 0;
      if (a.waiter != none) {  // its node cannot be reused: somebody, this waiter, waits for it
        node = a.node_of(a.next);
        w = node_at(node).word.acquire();
      } else {
        node = find_or_create(step, parent, w, a.patience);
        if (node == none) return Progress::full;
        if (node == too_late) return Progress::late;
        a.node_of(a.next) = node;
      }
      if ((step.mode != Mode::X || step.slots != 0) && node_at(node).tally.acquire() == none) {
        const Progress ready = prepare_sharing(node, a.patience);
        if (ready != Progress::granted) return ready;
      }
      if (a.extending) {
        own = held_mode(a.record, node);
        if (own) mode = strongest(*own, step.mode);
      }
      if (own && *own == mode) {
        progress = Progress::granted;
        if (step.slots != 0 && node_at(node).slots.relaxed() != step.slots) {
          a.slots_there = node_at(node).slots.relaxed();
          progress = Progress::slots_disagree;
        }
        break;
      }
      record.want.set(node);  // model: F1
      if (a.waiter == none && !own && take_fast(a, node, w, mode)) {
        progress = Progress::granted;
        break;
      }
      progress = take_latched(a, node, word::generation(w), mode, own, queue, stale);
    }
    if (progress != Progress::granted) return progress;
    a.floor = std::max(a.floor, node_at(node).last_fence.acquire());
    if (chain) {
      record.node.set(node);  // in this order: for a moment it may look weaker than it is, never stronger
      record.mode.set(static_cast<std::uint32_t>(mode));
    } else {
      if (a.extending) {
        const Cell<std::uint64_t>* const place = own ? find_step(a.record, node) : nullptr;
        a.undo.push_back({node, own, place != nullptr && step_asked(place->relaxed())});
      }
      note_step(a, node, mode, !own);
    }
    // Another thread of a crowd may be waiting. Whoever queued here before this step was written down could not see it
    // as a reason for a deadlock, so it is looked for once more.
    if (a.crowd) {
      record.want.exchange(none);  // ordered: written down, then looked at
      if ((node_at(node).word.ordered() & word::queued) != 0 && anybody_entangled()) {
        const Latched latched(*this, none, true, a.patience);
        // Not to be had: a stopped process. Then the cycle, if there is one, ends by its members' timeouts.
        if (!latched.taken()) continue;
        a.cycle = WaitGraph(*this).cycle_of(a.owner, none);
        if (!a.cycle.empty()) {
          ++a.next;
          a.closed_by_taking = true;
          return Progress::deadlock;
        }
      }
    }
  }
  return Progress::granted;
}

Progress Table::take_latched(Attempt& a, Index index, std::uint32_t generation, Mode mode, std::optional<Mode> own,
                             bool queue, bool& stale) {
  Node& node = node_at(index);
  bool all = false;
  for (;;) {
    Again again = Again::no;
    {
      WakeList wake(processes_.reach());  // outlives the latch: the woken find it free
      const Latched latched(*this, index, all, a.patience);
      if (!latched.taken()) return Progress::late;
      if (word::generation(node.word.relaxed()) != generation) {
        settle(index, wake);
        stale = true;
        return Progress::blocked;
      }
      node.word.change_bits(0, word::queued);  // I2: shut the fast path, then look at the lanes (model: D1)
      const Progress progress =
          is_slots(node) ? decide_slots(a, index, queue, all, again) : decide(a, index, mode, own, queue, all, again);
      settle(index, wake);
      if (again == Again::no) return progress;
    }
    all = all || again == Again::with_all;
    if (again == Again::with_text) describe(a);
  }
}

// Under the latch of the node's stripe (or all of them), `queued` set. (Model: D2 to D4.)
Progress Table::decide(Attempt& a, Index index, Mode mode, std::optional<Mode> own, bool queue, bool all,
                       Again& again) {
  bool passes = false;  // the queue, because its owner is here already
  bool must_wait =
      holders_conflict(index, mode, a.record) || (a.crowd && a.waiter == none && own_waiter_conflicts(a, index, mode));
  if (!must_wait && queue_conflicts(index, mode, a.waiter != none ? waiter(a.waiter).key.relaxed() : ~QueueKey{0})) {
    bool already = false;
    const bool covered = any_hold_of(a.owner, index, [&](Index, Mode held) {
      already = true;
      return covers(held, mode);
    });
    passes = already && !covered && a.waiter == none && !queue_conflicts(index, mode, newcomer);
    must_wait = !covered && !passes;
  }
  if (!must_wait) {
    // While one thread of a crowd waits, another that passes a queue can close a cycle without waiting itself.
    if (passes && a.crowd) {
      if (!all) {
        again = Again::with_all;
        return Progress::blocked;
      }
      a.cycle = WaitGraph(*this, {a.owner, a.record, index, mode}).cycle_of(a.owner, none);
      if (!a.cycle.empty()) return Progress::deadlock;
    }
    const Progress progress = apply(a, index, mode, own);
    if (a.waiter != none) leave_queue(a);
    return progress;
  }
  if (a.waiter == none) {
    a.cycle = self_conflict(a, index, mode);
    if (!a.cycle.empty()) return Progress::self_deadlock;
  }
  if (!queue) return Progress::blocked;
  return wait_or_refuse(a, index, mode, all, again);
}

// A slots name: any of the holders will do, so it is not a conflict with each but a matter of how many.
Progress Table::decide_slots(Attempt& a, Index index, bool queue, bool all, Again& again) {
  Node& node = node_at(index);
  const std::uint64_t held = count(node).s;
  bool others_wait = false;
  std::uint64_t ahead = 0;
  each_waiter(stripe_of(index), [&](const Waiter& w) {
    if (w.node.relaxed() != index || w.record.relaxed() == a.record) return;
    others_wait = true;
    if (a.waiter == none || w.key.relaxed() < waiter(a.waiter).key.relaxed()) ++ahead;
  });
  const std::uint32_t wanted = a.steps[a.next].slots;
  if (held == 0 && !others_wait) node.slots.set(wanted);
  if (node.slots.relaxed() != wanted) {
    a.slots_there = node.slots.relaxed();
    return Progress::slots_disagree;
  }
  if (held + ahead < wanted) {
    const Progress progress = apply(a, index, Mode::X, std::nullopt);
    if (a.waiter != none) leave_queue(a);
    return progress;
  }
  if (!queue) return Progress::blocked;
  return wait_or_refuse(a, index, Mode::X, all, again);
}

Progress Table::wait_or_refuse(Attempt& a, Index index, Mode mode, bool all, Again& again) {
  if (a.waiter != none) {
    waiter(a.waiter).signal.set(0);  // under the latch: whatever frees it from here on tells it again
    return Progress::blocked;
  }
  if (!a.described) {
    again = Again::with_text;
    return Progress::blocked;
  }
  // See wait_graph.cc: without anybody entangled there is no cycle to close.
  bool entangled = a.extending || a.crowd;
  Index walked = 0;
  for (Index r = owner_at(a.owner).records.acquire(); !entangled && r != none && ++walked < capacity_.records;
       r = record_at(r).next_of_owner.acquire()) {
    entangled = r != a.record && record_state(record_at(r).word.acquire()) != RecordState::free;
  }
  if (!all && (entangled || anybody_entangled())) {
    again = Again::with_all;
    return Progress::blocked;
  }
  bool already = false;
  if (!is_slots(node_at(index))) {
    already = any_hold_of(a.owner, index, [](Index, Mode) { return true; });
  }
  const QueueKey ticket = stripe(index).tickets.add(1);
  a.waiter = enqueue(a, index, mode, already ? ticket : newcomer | ticket, entangled);
  if (a.waiter == none) return Progress::full;
  if (all) {
    a.cycle = WaitGraph(*this).cycle_of(a.owner, a.waiter);
    if (!a.cycle.empty()) {
      leave_queue(a);
      return Progress::deadlock;
    }
  }
  return Progress::blocked;
}

// Under the latch, `queued` set, nothing in conflict. (Model: P1 for X, P2 and P3 for the others.)
Progress Table::apply(Attempt& a, Index index, Mode mode, std::optional<Mode> own) {
  Node& node = node_at(index);
  const bool slot = is_slots(node);
  if (mode == Mode::X && !slot) {
    if (own) tally_of(a.lane, node.tally.relaxed()).of(*own).subtract(Tally::unit(*own));
    const Counts counts = count(node);
    const bool empty = counts.is + counts.ix + counts.s == 0;  // or a sharer between its count and its look
    if ((node.word.relaxed() & word::marked) != 0) {
      node.last_fence.set(std::max(node.last_fence.relaxed(), highest_fence()));  // I6
    }
    node.word.change_bits(word::holder | (empty ? word::marked | word::sharing : 0), a.record);
    return Progress::granted;
  }
  const Mode counted = slot ? Mode::S : mode;
  if (node.tally.relaxed() == none) return Progress::full;  // prepare_sharing() gave it one, unless it is damaged
  // From S to IX or back: those of the other kind are gone, and their fences must not be higher than what comes now.
  // Before the word is turned: if this process dies in between, others may come in by the fast path.
  const bool turns = mode != Mode::IS && (mode == Mode::S) != ((node.word.relaxed() & word::sharing) != 0);
  if (turns || slot) node.last_fence.set(std::max(node.last_fence.relaxed(), highest_fence()));  // I6
  if (!slot) {
    node.word.change_bits(mode == Mode::IX ? word::sharing : 0,
                          word::marked | (mode == Mode::S ? word::sharing : 0));  // I3: mark, then count
  }
  Tally& mine = tally_of(a.lane, node.tally.relaxed());
  mine.of(counted).add(Tally::unit(counted));
  if (own) mine.of(*own).subtract(Tally::unit(*own));
  return Progress::granted;
}

// Model: H1 and H2, with what advance() wrote down.
std::int64_t Table::finish(Attempt& a) {
  Record& record = record_at(a.record);
  const std::int64_t fence = std::max(a.floor, record.fence.relaxed()) + 1;  // I6
  if (record.steps.relaxed() != none) {
    any_hold(record, [&](Index node, Mode mode, bool) {
      if (mode == Mode::X) node_at(node).last_fence.set(fence);
      return false;
    });
  } else if (a.steps.back().mode == Mode::X) {
    node_at(record.node.relaxed()).last_fence.set(fence);
  }
  free_blocks(std::exchange(a.wanted, none));
  note_fence(a.lane, fence);
  record.fence.set(fence);
  if (!a.extending) record.since.set(coarse_time());
  record.want.set(none);
  // Extended, it is another lock: whoever looked at what it held before must not act on that.
  const std::uint32_t generation = record_generation(record.word.relaxed()) + (a.extending ? 1 : 0);
  record.word.set(record_word(generation, RecordState::held));
  return fence;
}

// --- giving back -----------------------------------------------------------------------------------------

// Model: G4 for X, G1 to G3 for the others.
void Table::give_back(Index index, Index record, Mode mode, std::uint32_t lane) noexcept {
  Node& node = node_at(index);
  std::uint64_t w = node.word.acquire();
  const bool slot = (w & word::closed) != 0;  // a node that is held is closed only if it is a slots name
  if (mode == Mode::X && !slot) {
    // One compare-and-swap, whether somebody waits or not. That it is still ours is looked at because an operator may
    // have taken it away.
    do {
      if ((w & word::holder) != record) return;
    } while (!node.word.cas(w, w & ~word::holder));
    if ((w & word::queued) != 0) tell_queue(index);
    return;
  }
  const Mode counted = slot ? Mode::S : mode;
  tally_of(lane, node.tally.relaxed()).of(counted).subtract(Tally::unit(counted));
  if ((node.word.ordered() & word::queued) != 0) tell_queue(index);  // I2: give back, then look
}

void Table::tell_queue(Index index) noexcept {
  // With a stopped process in the way, those who wait look for themselves (I5); and who has many to tell is not kept.
  constexpr std::int64_t just_now = 100'000'000;
  const bool late = shared() && coarse_time() - last_late_.load(std::memory_order_relaxed) < just_now;
  WakeList wake(processes_.reach());
  const Latched latched(*this, index, false, late ? 0 : patience_);
  if (latched.taken()) {
    settle(index, wake);
  } else {
    last_late_.store(coarse_time(), std::memory_order_relaxed);
  }
}

// Undoes an upgrade. False if a stopped process is in the way.
bool Table::weaken(Index index, Index record, std::uint32_t lane, Mode from, Mode to, std::int64_t patience) noexcept {
  Node& node = node_at(index);
  WakeList wake(processes_.reach());
  const Latched latched(*this, index, false, patience);
  if (!latched.taken()) return false;
  node.word.change_bits(0, word::queued);
  node.word.change_bits(to == Mode::IX ? word::sharing : 0, word::marked | (to == Mode::S ? word::sharing : 0));
  Tally& mine = tally_of(lane, node.tally.relaxed());
  mine.of(to).add(Tally::unit(to));
  if (from == Mode::X) {
    if ((node.word.relaxed() & word::holder) == record) node.word.change_bits(word::holder, 0);
  } else {
    mine.of(from).subtract(Tally::unit(from));
  }
  settle(index, wake);
  return true;
}

void Table::release(Index index, std::uint32_t lane) noexcept {
  Record& record = records_[index];
  const Index target = record.node.relaxed();
  // An operator may break the lock at this moment (break_record). Whoever changes the word of the record gives back
  // what is counted; a lock on one node in X needs no such decision, because there the node's word decides.
  const bool many = record.steps.relaxed() != none;
  const Mode mode = node_mode(record);
  std::uint64_t w = record.word.acquire();
  const std::uint32_t generation = record_generation(w);
  if ((many || mode != Mode::X || is_slots(node_at(target))) && record_state(w) == RecordState::held) {
    record.word.cas(w, record_word(generation, RecordState::taking));
  }
  const bool broken = record_state(w) == RecordState::broken;
  if (broken) clear_own_words(index);  // whoever broke it may have died before it did
  if (broken || many) {
    any_hold(record, [&](Index node, Mode held, bool) {
      give_back(node, index, held, lane);
      return false;
    });
    free_blocks(record.steps.exchange(none));
  } else if (target != none) {
    // As in take_at_once: the target's locked instruction stands between giving back the ancestors and looking at them.
    const Mode intent = intention(mode);
    std::array<const Node*, max_depth> above;
    std::size_t count = 0;
    for (Index node = node_at(target).parent.relaxed(); node != none && count < above.size();) {
      above[count] = &node_at(node);
      node = above[count++]->parent.relaxed();
    }
    for (std::size_t i = 0; i < count; ++i) {
      Cell<std::uint64_t>& mine = tally_of(lane, above[i]->tally.relaxed()).intents;
      if (lane == common_lane_) {
        mine.subtract(Tally::unit(intent));
      } else {
        mine.set(mine.relaxed() - Tally::unit(intent));
      }
    }
    give_back(target, index, mode, lane);
    barrier_after_locked();
    for (std::size_t i = 0; i < count; ++i) {
      if ((above[i]->word.ordered() & word::queued) != 0) tell_queue(static_cast<Index>(above[i] - nodes_));
    }
  }
  record.node.set(none);
  record.word.set(record_word(generation, RecordState::free));
  if (record.note.relaxed() != none) free_blocks(record.note.exchange(none));  // after: a held record has its note
}

void Table::clear_own_words(Index index) noexcept {
  const Record& record = record_at(index);
  const auto clear = [&](Index n) {
    Node& node = node_at(n);
    std::uint64_t w = node.word.ordered();
    while (n != none && (w & word::holder) == index) {
      if (!node.word.cas(w, w & ~word::holder)) continue;
      if ((w & word::queued) != 0) tell_queue(n);
      return;
    }
  };
  clear(record.node.relaxed());
  Index walked = 0;
  for (Index b = record.steps.relaxed(); b != none && ++walked < capacity_.blocks; b = block_at(b).next.relaxed()) {
    for (const auto& step : block_at(b).word) clear(step_node(step.relaxed()));
  }
}

// What the whole request is, for those who look at the queue. Written before the latch is taken; none if full.
void Table::describe(Attempt& a) {
  a.wanted = write_text(spi::describe(a.steps));
  a.described = true;
}

void Table::abandon(Attempt& a) noexcept {
  if (a.waiter != none) {
    const Index node = waiter(a.waiter).node.relaxed();
    WakeList wake(processes_.reach());
    const Latched latched(*this, node, false, patience_);
    if (latched.taken()) {
      leave_queue(a);
      settle(node, wake);
    } else {
      // A stopped process has the latch. Leaving is one store; the others look for themselves (I5).
      const bool entangled = waiter(a.waiter).entangled.relaxed() != 0;
      waiter(a.waiter).waiting.exchange(0);
      if (entangled) own_entangled().subtract(1);
      a.waiter = none;
    }
  }
  free_blocks(std::exchange(a.wanted, none));
  if (!a.extending) {
    release(a.record, a.lane);
    return;
  }
  std::int64_t patience = patience_;  // for all of them together: somebody has a deadline
  for (auto undo = a.undo.rbegin(); undo != a.undo.rend(); ++undo) {
    Cell<std::uint64_t>* const place = find_step(a.record, undo->node);
    if (place == nullptr) continue;  // damaged
    const Mode now = step_mode(place->relaxed());
    if (undo->before) {
      place->set(make_step(undo->node, *undo->before, undo->asked_before));
      // A stopped process in the way: then it stays stronger than it need be until it is released.
      if (*undo->before != now && !weaken(undo->node, a.record, a.lane, now, *undo->before, patience)) {
        place->set(make_step(undo->node, now, undo->asked_before));
        record_at(a.record).stayed_stronger.add(1);
        patience = 0;
      }
    } else {
      give_back(undo->node, a.record, now, a.lane);
      drop_last_step(a.record);
    }
  }
  a.undo.clear();
  Record& record = record_at(a.record);
  record.word.set(record_word(record_generation(record.word.relaxed()), RecordState::held));
}

// --- the queue -------------------------------------------------------------------------------------------

// Model: E1.
Index Table::enqueue(const Attempt& a, Index node, Mode mode, QueueKey key, bool entangled) {
  constexpr std::uint32_t waiters_per_commit = 64;
  const unsigned s = stripe_of(node);
  Waiter* const first = waiters_of(s);
  const std::uint32_t used = waiters_used(s);
  std::uint32_t place = 0;
  while (place < used && first[place].waiting.relaxed() != 0) ++place;
  if (place == capacity_.waiters_per_stripe) return none;
  Waiter& w = first[place];
  if (place == used && place % waiters_per_commit == 0 && region_->in_file() &&
      !region_->commit(static_cast<std::size_t>(reinterpret_cast<std::byte*>(&w) - region_->base()),
                       waiters_per_commit * line)) {
    return none;
  }
  w.signal.set(0);
  w.key.set(key);
  w.since.set(coarse_time());
  w.node.set(node);
  w.record.set(a.record);
  w.owner.set(a.owner);
  w.process.set(processes_.self());
  w.wanted.set(a.wanted);
  w.mode.set(static_cast<std::uint32_t>(mode));
  w.entangled.set(entangled ? 1 : 0);
  if (entangled) own_entangled().add(1);
  if (place == used) header_->stripes[s].used.set(used + 1);  // before it waits: then it is seen, and collected
  w.waiting.set(1);
  return waiter_index(w);
}

void Table::dequeue(Waiter& w) noexcept {
  w.waiting.set(0);
  if (w.entangled.relaxed() != 0) own_entangled().subtract(1);
  w.wanted.set(none);
  const unsigned s = stripe_of(w.node.relaxed());
  Waiter* const first = waiters_of(s);
  std::uint32_t used = waiters_used(s);
  while (used > 0 && first[used - 1].waiting.relaxed() == 0) --used;
  header_->stripes[s].used.set(used);
}

// Model: P4, Z2.
void Table::leave_queue(Attempt& a) noexcept {
  dequeue(waiter(a.waiter));
  a.waiter = none;
}

// Model: T1 to T4. Under the latch, after any change: sets `queued` to whether anybody waits, and tells those who may
// go now (I5).
void Table::settle(Index index, WakeList& wake) noexcept {
  Node& node = node_at(index);
  const bool anybody = is_slots(node) ? tell_slots(index, wake) : tell_modes(index, wake);
  const bool set = (node.word.relaxed() & word::queued) != 0;
  if (set != anybody) node.word.change_bits(anybody ? 0 : word::queued, anybody ? word::queued : 0);
}

// As many as there are free slots, the first in the queue first.
bool Table::tell_slots(Index index, WakeList& wake) noexcept {
  const Node& node = node_at(index);
  const std::uint64_t held = count(node).s;
  bool anybody = false;
  QueueKey last = 0;
  for (std::uint64_t free = node.slots.relaxed() > held ? node.slots.relaxed() - held : 0;; --free) {
    Waiter* next = nullptr;
    each_waiter(stripe_of(index), [&](Waiter& w) {
      if (w.node.relaxed() != index || w.key.relaxed() < last) return;
      if (next == nullptr || w.key.relaxed() < next->key.relaxed()) next = &w;
    });
    anybody = anybody || next != nullptr;
    if (next == nullptr || free == 0) return anybody;
    last = next->key.relaxed() + 1;
    wake.add(*next);
  }
}

// All that conflict with no holder and no earlier waiter (I4). Two passes over the stripe's waiters, however many.
bool Table::tell_modes(Index index, WakeList& wake) noexcept {
  std::array<QueueKey, all_modes.size()> first;  // the earliest waiter in each mode
  first.fill(~QueueKey{0});
  bool anybody = false;
  each_waiter(stripe_of(index), [&](const Waiter& w) {
    if (w.node.relaxed() != index) return;
    anybody = true;
    QueueKey& earliest = first[w.mode.relaxed() % first.size()];
    earliest = std::min(earliest, w.key.relaxed());
  });
  if (!anybody) return false;
  std::array<bool, all_modes.size()> held_up{};
  for (const Mode mode : all_modes) held_up[static_cast<std::size_t>(mode)] = holders_conflict(index, mode, none);
  each_waiter(stripe_of(index), [&](Waiter& w) {
    if (w.node.relaxed() != index) return;
    const auto mode = mode_of(w.mode.relaxed());
    // Only the entangled can hold the node already: through the lock they extend, or through another of their owner's.
    const bool here = w.entangled.relaxed() != 0;
    if (held_up[static_cast<std::size_t>(mode)] && !(here && !holders_conflict(index, mode, w.record.relaxed())))
      return;
    const bool behind = std::any_of(all_modes.begin(), all_modes.end(), [&](Mode other) {
      return first[static_cast<std::size_t>(other)] < w.key.relaxed() && !compatible(other, mode);
    });
    if (!behind ||
        (here && any_hold_of(w.owner.relaxed(), index, [&](Index, Mode held) { return covers(held, mode); }))) {
      wake.add(w);
    }
  });
  return true;
}

// --- locks on many targets -------------------------------------------------------------------------------

bool Table::prepare_step(Attempt& a) {
  Record& record = record_at(a.record);
  if (a.extending && record.steps.relaxed() == none && !to_steps(a.record)) return false;
  const Index head = record.steps.relaxed();
  if (head != none && block_at(head).used.relaxed() < Block::words) return true;
  const Index fresh = take_block();
  if (fresh == none) return false;
  block_at(fresh).next.set(head);
  record.steps.set(fresh);
  return true;
}

void Table::note_step(Attempt& a, Index node, Mode mode, bool fresh) noexcept {
  const bool asked = a.steps[a.next].asked;
  if (fresh) {
    Block& block = block_at(record_at(a.record).steps.relaxed());
    const auto used = static_cast<std::uint32_t>(block.used.relaxed() % Block::words);
    block.word[used].set(make_step(node, mode, asked));
    block.used.set(used + 1);
    return;
  }
  Cell<std::uint64_t>* const place = find_step(a.record, node);
  if (place == nullptr) return;  // damaged
  place->set(make_step(node, mode, asked || step_asked(place->relaxed())));
}

// The newest step goes. Its block stays, empty or not, until the lock is released: others may be walking along the
// list.
void Table::drop_last_step(Index index) noexcept {
  Index block = record_at(index).steps.relaxed();
  while (block != none && block_at(block).used.relaxed() == 0) block = block_at(block).next.relaxed();
  const std::uint32_t used = block_at(block).used.relaxed();
  if (block == none || used > Block::words) return;  // damaged
  block_at(block).word[used - 1].set(0);
  block_at(block).used.set(used - 1);
}

// Turns the record of one path into a list, ancestors first.
bool Table::to_steps(Index index) {
  Record& record = record_at(index);
  std::array<std::uint64_t, max_depth> steps{};
  std::size_t count = 0;
  any_hold(record, [&](Index node, Mode mode, bool) {
    steps[count] = make_step(node, mode, count == 0);  // the deepest is what was asked for
    ++count;
    return false;
  });
  Index head = none;
  for (std::size_t i = 0; i < count; ++i) {
    if (head == none || block_at(head).used.relaxed() == Block::words) {
      const Index fresh = take_block();
      if (fresh == none) {
        free_blocks(head);
        return false;
      }
      block_at(fresh).next.set(head);
      head = fresh;
    }
    const auto used = static_cast<std::uint32_t>(block_at(head).used.relaxed() % Block::words);
    block_at(head).word[used].set(steps[count - 1 - i]);
    block_at(head).used.set(used + 1);
  }
  record.steps.set(head);
  return true;
}

Cell<std::uint64_t>* Table::find_step(Index record, Index node) const noexcept {
  Index walked = 0;
  for (Index b = record_at(record).steps.relaxed(); b != none && ++walked < capacity_.blocks;
       b = block_at(b).next.relaxed()) {
    for (auto& w : block_at(b).word) {
      if (w.relaxed() != 0 && step_node(w.relaxed()) == node) return &w;
    }
  }
  return nullptr;
}

// --- handing over ----------------------------------------------------------------------------------------

// Under all latches: everything `from` holds is `to`'s, which is not `held` before the caller says so: until then it
// may be taken back, and must not be broken.
void Table::move_record(Index from, Index to) noexcept {
  Record& a = record_at(from);
  Record& b = record_at(to);
  any_hold(a, [&](Index node, Mode mode, bool) {
    if (mode == Mode::X && !is_slots(node_at(node))) node_at(node).word.change_bits(word::holder, to);
    return false;
  });
  // The new one has everything before the old one has nothing: whatever dies in between, one of them names each node.
  b.fence.set(a.fence.relaxed());
  b.since.set(a.since.relaxed());
  b.mode.set(a.mode.relaxed());
  b.node.set(a.node.relaxed());
  b.steps.set(a.steps.relaxed());
  b.note.set(a.note.relaxed());
  b.want.set(none);
  a.node.set(none);
  a.steps.set(none);
  a.note.set(none);
  b.word.set(record_word(record_generation(b.word.relaxed()) + 1, RecordState::taking));
  a.word.set(record_word(record_generation(a.word.relaxed()), RecordState::free));
}

Progress Table::give(Index record, Index to, std::string& cycle) {
  const std::int64_t give_patience = shared() ? 100'000'000 : Latch::for_ever;
  const Latched latched(*this, none, true, give_patience);
  if (!latched.taken()) return Progress::late;
  std::uint64_t handle = record_at(record).word.relaxed();
  if (record_state(handle) != RecordState::held ||
      !record_at(record).word.cas(handle, record_word(record_generation(handle), RecordState::taking))) {
    return Progress::lost;
  }
  move_record(record, to);
  const Index owner = record_at(to).owner.relaxed();
  Index waiting = none;
  for (unsigned s = 0; s < stripe_count; ++s) {
    each_waiter(s, [&](Waiter& w) {
      if (w.owner.relaxed() != owner) return;
      waiting = waiter_index(w);
      if (w.entangled.relaxed() == 0) {  // it waits and now holds something beside
        own_entangled().add(1);
        w.entangled.set(1);
      }
    });
  }
  const auto take_back = [&] {
    move_record(to, record);
    record_at(record).word.set(handle);  // its handle is as good as before
  };
  try {
    if (waiting != none) cycle = WaitGraph(*this).cycle_of(owner, waiting);
  } catch (...) {
    take_back();
    throw;
  }
  if (!cycle.empty()) {
    take_back();
    return Progress::deadlock;
  }
  record_at(to).word.set(record_word(record_generation(record_at(to).word.relaxed()), RecordState::held));
  for (unsigned s = 0; waiting != none && s < stripe_count; ++s) {
    each_waiter(s, [&](Waiter& w) {  // what it holds now may let it pass a queue
      if (w.owner.relaxed() == owner) tell(waiter_index(w));
    });
  }
  return Progress::granted;
}

}  // namespace hierlock::engine
