#include "engine/table.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <hierlock/error.h>

#include "engine/fast_path.h"
#include "engine/shortage.h"
#include "engine/wait_graph.h"

namespace hierlock::engine {

namespace {

constexpr std::int64_t join_patience = 2'000'000'000;

}  // namespace

// --- setting up ------------------------------------------------------------------------------------------

Table::Table(const Capacity& capacity) : Table(std::make_unique<Mapping>(capacity)) {}

Table::Table(const FileOptions& options) : Table(std::make_unique<Mapping>(options)) {}

Table::Table(std::unique_ptr<Mapping> mapping)
    : Parts(mapping->parts()),
      mapping_(std::move(mapping)),
      lanes_(*this),
      holders_(*this),
      queues_(*this, holders_),
      tallies_(*this, holders_, queues_, lanes_),
      nodes_(*this, mapping_->index_multiplier(), holders_, queues_, lanes_, tallies_),
      records_(*this, queues_, [this] { recovery_.recover_now(false); }),
      names_(*this),
      log_(*this),
      recovery_(*mapping_, queues_, nodes_, records_, tallies_, names_, log_),
      breaks_(*this, holders_, queues_, nodes_),
      look_(*this, lanes_, holders_, records_, names_) {
  if (mapping_->instead_of() != 0) {
    recovery_.collect_before(mapping_->instead_of());
    recovery_.recover_now(true);
  }
  join();
  if (shared()) recovery_.recover();
}

// What a process needs before its first lock: its common lane.
void Table::join() {
  struct Claimed {
    std::optional<std::uint32_t> lane;
    bool late;
  };
  const auto claim = [this](std::int64_t patience) -> Claimed {
    const Nodes::Guard guard(nodes_, patience);
    if (!guard.taken()) return {std::nullopt, true};
    return {lanes_.claim_lane(capacity_.lanes), false};
  };
  Claimed claimed = claim(shared() ? join_patience : Latch::for_ever);
  if (!claimed.lane && shared()) {  // those who left or died may have had them all
    recovery_.recover_now(true, join_patience);
    claimed = claim(join_patience);
  }
  if (claimed.late) {
    throw Error(ErrorKind::unavailable, "a stopped process keeps the lock table " + mapping_->path() +
                                            " from being opened: let it go on, or kill it, and try again");
  }
  if (!claimed.lane) {
    throw Error(ErrorKind::exhausted,
                "the lock table has no room for another process: close some, or use another table (shm:NAME)");
  }
  lanes_.set_common(*claimed.lane);
}

void Table::leave_lane(std::uint32_t lane) noexcept {
  if (lane == lanes_.common()) return;
  tallies_.drop_empty_pages(lane);
  lanes_.leave_lane(lane);
}

std::uint32_t Table::enter_lane() noexcept {
  if (const std::optional<std::uint32_t> idle = lanes_.take_idle()) return *idle;
  const Nodes::Guard guard(nodes_, shared() ? 100'000'000 : Latch::for_ever);
  if (!guard.taken()) return lanes_.common();
  // Of a shared table half the lanes are kept for processes, which cannot do without one.
  return lanes_.claim_lane(shared() ? capacity_.lanes / 2 : capacity_.lanes).value_or(lanes_.common());
}

// --- deciding --------------------------------------------------------------------------------------------

// How the owner would wait for itself; empty if it would not.
FoundCycle Table::self_conflict(const Attempt& a, Index index, Mode mode) const {
  const auto as = [](Mode m) { return " (" + std::string(to_string(m)) + ")"; };
  std::string how, holds;
  any_hold_of(a.owner, index, [&](Index record, Mode held) {
    if (record == a.record || compatible(held, mode)) return false;
    holds = names_.record_text(record);
    how = "holds it" + as(held) + " through its lock on " + holds;
    return true;
  });
  if (how.empty() && a.crowd && queues_.own_waiter_conflicts(a, index, mode)) how = "waits for it in another call";
  if (how.empty()) return {};
  const std::string node = names_.node_text(index);
  return {names_.owner_text(a.owner) + " asks for " + spi::describe(a.steps) + ", needs " + node + as(mode) +
              " for it and already " + how + ": it would wait for itself",
          {{names_.owner_name(a.owner), names_.process_of(a.owner), "", node, holds}}};
}

// --- taking ----------------------------------------------------------------------------------------------

// Model: X1, if it extends.
bool Table::begin(Attempt& a) {
  if (a.steps.size() > a.few.size()) a.many.resize(a.steps.size() - a.few.size());
  if (a.extending) a.undo.reserve(a.steps.size());  // so that nothing fails between taking a step and noting it
  Record& record = record_at(a.record);
  if (a.extending) {
    // What is being changed is not broken at once, but doomed: its owner ends the change, and the lock with it.
    std::uint64_t w = record.word.acquire();
    if (record_state(w) != RecordState::held || !record.word.cas(w, with_change(w, RecordState::changing))) {
      return false;
    }
  } else {
    record.fence.set(0);
    record.node.set(none);
    record.parent.set(none);
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

}  // namespace

// In one step, if nothing at all is in the way. (Model: F2 to F6.)
inline bool Table::take_fast(Attempt& a, Index index, std::uint64_t w, Mode mode) noexcept {
  Node& node = node_at(index);
  if (mode == Mode::X) return (w & (shut | word::marked)) == 0 && node.word.cas(w, w | a.record);
  const Gate gate(mode);
  if (!gate.lets_in(w)) return false;
  const Index number = node.tally.acquire();
  Cell<std::uint64_t>& mine = lanes_.locked_tally_of(a.lane, number).of(mode);
  mine.add(Tally::unit(mode));  // I2: count, then look
  if (gate.still_lets_in(node.word.ordered(), w)) return true;
  mine.subtract(Tally::unit(mode));  // whoever saw the count meanwhile is told by settle(), in take_latched
  if (node.tally.acquire() != number) queues_.tell_queue_of_number(number);
  return false;
}

Table::Taken Table::take_shared(const Nodes::Found& found, Index record, std::uint32_t lane,
                                std::int64_t now) noexcept {
  return take_found<Mode::S>(found, record, lane, now);
}

// Somebody is in the way of take_found(): as if nothing had been. Those who saw a count meanwhile are told. (Model:
// A6.)
Table::Taken Table::withdraw(std::span<const Counted> counted, Index index, Mode intent, std::uint32_t lane) noexcept {
  for (const Counted& c : counted) {
    Tally* const tally = tally_of(lane, c.tally);
    if (tally != nullptr) tally->intents.set(tally->intents.relaxed() - Tally::unit(intent));
  }
  Cell<std::uint64_t>& word = record_array_[index].word;
  word.exchange(record_word(record_generation(word.relaxed()), RecordState::free));
  barrier_after_locked();
  for (const Counted& c : counted) tell_after_withdrawing(*c.node, c.tally);
  return {};
}

// A sharer that withdraws may have been seen. If it came so late that the number was another node's by then, it was
// seen there: as long as it is counted, the number stays with that node.
void Table::tell_after_withdrawing(const Node& node, Index number) noexcept {
  if ((node.word.ordered() & word::queued) != 0) queues_.tell_queue(node_index(node));
  if (node.tally.acquire() != number) queues_.tell_queue_of_number(number);
}

// For release_at_once(): this node, and those above it, in a lane that may have no pages there.
const Node** Table::uncount_rest(Index node, std::uint32_t lane, const Node** end, const Node** most) noexcept {
  while (node != none && end != most) {
    const Node& ancestor = node_at(node);
    *end++ = &ancestor;
    node = ancestor.parent.relaxed();
    uncount_ancestor(lane, ancestor.tally.relaxed(), Mode::IX);
  }
  return end;
}

// The lock was taken in another lane, and this one has no page there; or this is the common lane.
void Table::uncount_ancestor(std::uint32_t lane, Index number, Mode intent) noexcept {
  lanes_.locked_tally_of(lane, number).intents.subtract(Tally::unit(intent));
}

Progress Table::advance(Attempt& a, bool queue) {
  Record& record = record_at(a.record);
  const bool chain = !a.extending && is_chain(a.steps);
  for (; a.next < a.steps.size(); ++a.next) {
    const spi::Step& step = a.steps[a.next];
    const Index parent = step.parent < 0 ? none : a.node_of(static_cast<std::size_t>(step.parent));
    if (!chain && !records_.prepare_step(a)) return Progress::full;
    Index node = none;
    Mode mode = step.mode;
    std::optional<Mode> own;
    Progress progress = Progress::blocked;
    bool first_try = true;
    for (bool stale = true; stale; first_try = false) {
      stale = false;
      std::uint64_t w = 0;
      if (a.waiter != none) {  // its node cannot be reused: somebody, this waiter, waits for it
        node = a.node_of(a.next);
        w = node_at(node).word.acquire();
      } else {
        node = nodes_.find_or_create(step, parent, a.lane, w, a.patience);
        if (node == none) return Progress::full;
        if (node == Nodes::too_late) return Progress::late;
        a.node_of(a.next) = node;
      }
      if (step.mode != Mode::X || step.slots != 0) {
        const Index number = node_at(node).tally.acquire();
        if (number == none || !counts(a.lane, number)) {
          const Progress ready = nodes_.prepare_sharing(node, word::generation(w), a.lane, first_try, a.patience);
          if (ready != Progress::granted) return ready;
        }
      }
      if (a.extending) {
        own = held_mode(a.record, node);
        if (own) mode = strongest(*own, step.mode);
      }
      if (own && *own == mode) {
        progress = Progress::granted;
        if (step.slots != 0 && node_at(node).slots().relaxed() != step.slots) {
          a.slots_there = node_at(node).slots().relaxed();
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
      record.parent.set(parent);
      record.node.set(node);  // in this order: for a moment it may look weaker than it is, never stronger
      record.mode.set(stored_mode(mode, step.slots != 0));
    } else {
      if (a.extending) {
        const Cell<std::uint64_t>* const place = own ? find_step(a.record, node) : nullptr;
        a.undo.push_back({node, own, place != nullptr && step_asked(place->relaxed())});
      }
      records_.note_step(a, node, mode, !own);
    }
    // Another thread of a crowd may be waiting. Whoever queued here before this step was written down could not see it
    // as a reason for a deadlock, so it is looked for once more.
    if (a.crowd) {
      // Two fences, this one and that of WaitGraph, decide who sees whom. This thread wrote its step down, then comes
      // the fence, then it looks for `queued` and for the entangled. A waiter sets `queued`, counts itself entangled,
      // then comes the fence, then it reads the steps of others. In the one order of all sequentially consistent
      // fences, one of the two is first: if it is this one, the waiter reads the step; if it is the waiter's, this
      // thread sees `queued`.
      record.want.exchange(none);
      barrier_after_locked();
      if ((node_at(node).word.ordered() & word::queued) != 0 && anybody_entangled()) {
        const Queues::Latched latched(queues_, none, true, a.patience);
        // Not to be had: a stopped process. Then the cycle, if there is one, ends by its members' timeouts.
        if (!latched.taken()) continue;
        a.cycle = WaitGraph(*this, names_).cycle_of(a.owner, none);
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
      const Queues::Latched latched(queues_, index, all, a.patience);
      if (!latched.taken()) return Progress::late;
      // Or the node has lost its number, and may have got another, for which this process has no page. It has its new
      // generation a moment before it loses the number, so the generation alone does not tell.
      const bool counted = mode != Mode::X || is_slots(node);
      if (word::generation(node.word.relaxed()) != generation ||
          (counted && !lanes_.can_count(a.lane, node.tally.relaxed()))) {
        queues_.settle(index, wake);
        stale = true;
        return Progress::blocked;
      }
      node.word.change_bits(0, word::queued);  // I2: shut the fast path, then look at the lanes (model: D1)
      std::optional<std::uint64_t> held;
      const Progress progress = is_slots(node) ? decide_slots(a, index, queue, all, again, held)
                                               : decide(a, index, mode, own, queue, all, again);
      queues_.settle(index, wake, held);
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
  bool must_wait = holders_.holders_conflict(index, mode, a.record) ||
                   (a.crowd && a.waiter == none && queues_.own_waiter_conflicts(a, index, mode));
  if (!must_wait &&
      queues_.queue_conflicts(index, mode, a.waiter != none ? waiter(a.waiter).key.relaxed() : ~QueueKey{0})) {
    bool already = false;
    const bool covered = any_hold_of(a.owner, index, [&](Index, Mode held) {
      already = true;
      return covers(held, mode);
    });
    passes = !covered && a.waiter == none && (already || stands_ahead(a, index)) &&
             !queues_.queue_conflicts(index, mode, newcomer);
    must_wait = !covered && !passes;
  }
  if (!must_wait) {
    // While one thread of a crowd waits, another that passes a queue can close a cycle without waiting itself.
    if (passes && a.crowd) {
      if (!all) {
        again = Again::with_all;
        return Progress::blocked;
      }
      a.cycle = WaitGraph(*this, names_, {a.owner, a.record, index, mode}).cycle_of(a.owner, none);
      if (!a.cycle.empty()) return Progress::deadlock;
    }
    const Progress progress = apply(a, index, mode, own);
    if (a.waiter != none) queues_.leave_queue(a);
    return progress;
  }
  if (a.waiter == none) {
    a.cycle = self_conflict(a, index, mode);
    if (!a.cycle.empty()) return Progress::self_deadlock;
  }
  if (!queue) return Progress::blocked;
  return wait_or_refuse(a, index, mode, all, again);
}

// A slots name: any of the holders will do, so it is not a conflict with each but a matter of how many. `now_held` is
// for settle(): whoever gives a slot back after it was counted tells the queue itself.
Progress Table::decide_slots(Attempt& a, Index index, bool queue, bool all, Again& again,
                             std::optional<std::uint64_t>& now_held) {
  Node& node = node_at(index);
  const std::uint64_t held = holders_.count_holders(index).s;
  now_held = held;
  const std::uint64_t slots = node.slots().relaxed();
  bool others_wait = false;
  std::uint64_t ahead = 0;
  each_in_queue(index, [&](const Waiter& w) {
    if (w.record.relaxed() == a.record) return false;
    others_wait = true;
    if (a.waiter != none && w.key.relaxed() > waiter(a.waiter).key.relaxed()) return true;
    ++ahead;
    return held + ahead >= slots;
  });
  const std::uint32_t wanted = a.steps[a.next].slots;
  if (held == 0 && !others_wait) node.slots().set(wanted);
  if (node.slots().relaxed() != wanted) {
    a.slots_there = node.slots().relaxed();
    return Progress::slots_disagree;
  }
  if (held + ahead < wanted) {
    const Progress progress = apply(a, index, Mode::X, std::nullopt);
    now_held = held + 1;
    if (a.waiter != none) queues_.leave_queue(a);
    return progress;
  }
  if (!queue) return Progress::blocked;
  return wait_or_refuse(a, index, Mode::X, all, again);
}

// Whether its owner has something outside of the plan.
bool Table::has_more(const Attempt& a) const noexcept {
  return a.extending || any_record_of(a.owner, [&](Index r) {
           return r != a.record && record_state(record_at(r).word.acquire()) != RecordState::free;
         });
}

// Whether it stands before those whose owners hold nothing. But nobody is passed for ever, and a place before the
// newcomers is found after a short walk. So if the first of them is far back, or has been there while many others came,
// there is no passing.
bool Table::stands_ahead(const Attempt& a, Index index) const noexcept {
  if (!holders_first_ || is_slots(node_at(index)) || !has_more(a)) return false;
  constexpr unsigned most_ahead = 32;
  constexpr QueueKey most_passes = 64;  // by waiters of the node's stripe
  unsigned ahead = 0;
  QueueKey first = 0;
  each_in_queue(index, [&](const Waiter& w) {
    first = w.key.relaxed();
    return first >= newcomer || ++ahead >= most_ahead;
  });
  if (first < newcomer) return ahead < most_ahead;
  return stripe(index).tickets.relaxed() - (first & ~newcomer) < most_passes;
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
  const bool entangled = a.crowd || has_more(a);
  if (entangled) own_entangled().add(1);  // until it leaves the queue; before the look at what it holds
  const auto not_queued = [&] {
    if (entangled) own_entangled().subtract(1);
  };
  const bool ahead = stands_ahead(a, index);
  if (!all && (entangled || anybody_entangled()) && (a.extending || a.crowd || ahead || awaited_by_others(a, index))) {
    not_queued();
    again = Again::with_all;
    return Progress::blocked;
  }
  bool already = false;
  if (!is_slots(node_at(index))) {
    already = any_hold_of(a.owner, index, [](Index, Mode) { return true; });
  }
  const QueueKey ticket = stripe(index).tickets.add(1);
  a.waiter = queues_.enqueue(a, index, mode, already || ahead ? ticket : newcomer | ticket, entangled);
  if (a.waiter == none) {
    not_queued();
    lacks(Shortage::waiters);
    return Progress::full;
  }
  if (all) {
    a.cycle = WaitGraph(*this, names_).cycle_of(a.owner, a.waiter);
    if (!a.cycle.empty()) {
      queues_.leave_queue(a);
      return Progress::deadlock;
    }
  }
  return Progress::blocked;
}

// Whether somebody may wait for what the owner holds. Asked with `queued` set at `node`, which the owner is about to
// wait for: see "handshake" in wait_graph.cc. Looks at a few holds only; for an owner with more the answer is yes.
bool Table::awaited_by_others(const Attempt& a, Index node) const noexcept {
  constexpr unsigned few = 64;
  unsigned looked = 0;
  bool whole = false;
  const bool awaited = walk_records_of(a.owner, whole, [&](Index r) {
    const RecordState state = record_state(record_at(r).word.acquire());
    if (state == RecordState::free) return false;
    // Another thread extends or releases this lock: it may wait as well.
    if ((state == RecordState::taking || extended(state)) && r != a.record) return true;
    return any_hold(record_at(r), [&](Index held, Mode, bool) {
      return ++looked > few || held == node || (node_at(held).word.ordered() & word::queued) != 0;
    });
  });
  return awaited || !whole;
}

// Under the latch, `queued` set, nothing in conflict. (Model: P1 for X, P2 and P3 for the others.) A record that the
// word still names is a dead process's or broken, and loses the word here: the fast path is shut, so nobody else took
// it.
Progress Table::apply(Attempt& a, Index index, Mode mode, std::optional<Mode> own) {
  Node& node = node_at(index);
  const bool slot = is_slots(node);
  if (mode == Mode::X && !slot) {
    if (own) lanes_.locked_tally_of(a.lane, node.tally.relaxed()).of(*own).subtract(Tally::unit(*own));
    bool empty = true;
    if ((node.word.relaxed() & word::marked) != 0) {  // I3
      const Holders::Counts counts = holders_.count(index);
      empty = counts.is + counts.ix + counts.s == 0;  // if not: a sharer between its count and its look
      node.last_fence.set(std::max(node.last_fence.relaxed(), lanes_.highest_fence()));  // I6
    }
    node.word.change_bits(word::holder | (empty ? word::marked | word::sharing : 0), a.record);
    return Progress::granted;
  }
  // From S to IX or back: those of the other kind are gone, and their fences must not be higher than what comes now.
  // Before the word is turned: if this process dies in between, others may come in by the fast path.
  const bool turns = mode != Mode::IS && (mode == Mode::S) != ((node.word.relaxed() & word::sharing) != 0);
  if (turns || slot) node.last_fence.set(std::max(node.last_fence.relaxed(), lanes_.highest_fence()));  // I6
  if (!slot) {
    node.word.change_bits(word::holder | (mode == Mode::IX ? word::sharing : 0),
                          word::marked | (mode == Mode::S ? word::sharing : 0));  // I3: mark, then count
  }
  Tally& mine = lanes_.locked_tally_of(a.lane, node.tally.relaxed());
  if (slot) {
    mine.shared.add(Tally::slot);
  } else {
    mine.of(mode).add(Tally::unit(mode));
  }
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
  records_.free_blocks(std::exchange(a.wanted, none));
  lanes_.note_fence(a.lane, fence);
  record.fence.set(fence);
  if (!a.extending) record.since.set(coarse_time());
  record.want.set(none);
  const std::uint32_t generation = record_generation(record.word.relaxed());
  if (!a.extending) {
    record.word.set(record_word(generation, RecordState::held));
    return fence;
  }
  Index walked = 0;
  for (Index b = record.steps.relaxed(); b != none && ++walked < capacity_.blocks; b = block_at(b).next.relaxed()) {
    for (auto& step : block_at(b).word) {
      if ((step.relaxed() & step_new) != 0) step.set(step.relaxed() & ~step_new);
    }
  }
  // Extended, it is another lock: whoever looked at what it held before must not act on that.
  return end_change(a.record, record_word(generation + 1, RecordState::held)) ? fence : 0;
}

// An extend has ended, well or not: `word` is what the record's word is to be. False if an operator has taken the lock
// away meanwhile. Then the lock is broken from here on, as a whole, and those who wait for it are told.
bool Table::end_change(Index index, std::uint64_t word) noexcept {
  Record& record = record_at(index);
  std::uint64_t w = record.word.acquire();
  while (record_state(w) == RecordState::changing) {
    if (record.word.cas(w, word)) return true;
  }
  if (record_state(w) != RecordState::doomed) return record_state(w) != RecordState::broken;  // it had ended before
  record.word.exchange(with_state(w, RecordState::broken));  // locked: then the look at `queued`, as in I2
  any_step(record, [&](std::uint64_t step) {
    const bool was_held = step_mode(step) == Mode::X || step_mode(step) == Mode::S;
    if (was_held && (node_at(step_node(step)).word.ordered() & word::queued) != 0) queues_.tell_queue(step_node(step));
    return false;
  });
  if (record.steps.relaxed() == none && (node_at(record.node.relaxed()).word.ordered() & word::queued) != 0)
    queues_.tell_queue(record.node.relaxed());
  return false;
}

// --- giving back -----------------------------------------------------------------------------------------

// Model: G4 for X, G1 to G3 for the others. False if there was nothing to give back, and so no locked instruction: the
// lock was broken, and the node is somebody else's. What the lock is, it says itself: the node may be a slots name now.
bool Table::give_back(Index index, Index record, std::uint32_t stored, std::uint32_t lane) noexcept {
  Node& node = node_at(index);
  if (mode_of(stored) == Mode::X && !is_slot(stored)) {
    // One compare-and-swap, whether somebody waits or not. A word that names this record is held by it and nobody else,
    // broken or not: it is overwritten by whoever takes the node from a broken lock.
    std::uint64_t w = node.word.acquire();
    do {
      if ((w & word::holder) != record) return false;
    } while (!node.word.cas(w, w & ~word::holder));
    if ((w & word::queued) != 0) queues_.tell_queue(index);
    return true;
  }
  Tally& mine = lanes_.locked_tally_of(lane, node.tally.relaxed());
  if (is_slot(stored)) {
    mine.shared.subtract(Tally::slot);
  } else {
    mine.of(mode_of(stored)).subtract(Tally::unit(mode_of(stored)));
  }
  if ((node.word.ordered() & word::queued) != 0) queues_.tell_queue(index);  // I2: give back, then look
  return true;
}

// Undoes an upgrade. False if a stopped process is in the way.
bool Table::weaken(Index index, Index record, std::uint32_t lane, Mode from, Mode to, std::int64_t patience) noexcept {
  Node& node = node_at(index);
  WakeList wake(processes_.reach());
  const Queues::Latched latched(queues_, index, false, patience);
  if (!latched.taken()) return false;
  node.word.change_bits(0, word::queued);
  node.word.change_bits(to == Mode::IX ? word::sharing : 0, word::marked | (to == Mode::S ? word::sharing : 0));
  Tally& mine = lanes_.locked_tally_of(lane, node.tally.relaxed());
  mine.of(to).add(Tally::unit(to));
  if (from == Mode::X) {
    if ((node.word.relaxed() & word::holder) == record) node.word.change_bits(word::holder, 0);
  } else {
    mine.of(from).subtract(Tally::unit(from));
  }
  queues_.settle(index, wake);
  return true;
}

void Table::release(Index index, std::uint32_t lane) noexcept {
  Record& record = record_array_[index];
  const Index target = record.node.relaxed();
  // An operator may break the lock at this moment (I8). What is counted is subtracted only by who has left `broken`, or
  // has kept others from breaking it. A lock on one node in X needs no such decision: there the node's word says
  // whether the lock still has it, and its intentions are its own in either case.
  const bool many = record.steps.relaxed() != none;
  const std::uint32_t stored = record.mode.relaxed();
  std::uint64_t w = record.word.acquire();
  if ((many || mode_of(stored) != Mode::X || is_slot(stored)) && record_state(w) == RecordState::held) {
    record.word.cas(w, with_state(w, RecordState::taking));
  }
  if (record_state(w) == RecordState::broken) {
    release_broken(index, lane);
  } else if (many) {
    any_step(record, [&](std::uint64_t step) {
      give_back(step_node(step), index, step_stored_mode(step), lane);
      return false;
    });
    records_.free_blocks(record.steps.exchange(none));
  } else if (target != none) {
    // As in release_at_once: the target's locked instruction stands between giving back the ancestors and looking at
    // them. The ancestors are found from `parent`: broken meanwhile, the target may be a node below others.
    const Mode intent = intention(mode_of(stored));
    std::array<const Node*, max_depth> above;
    std::size_t count = 0;
    for (Index node = record.parent.relaxed(); node != none && count < above.size();) {
      above[count] = &node_at(node);
      node = above[count++]->parent.relaxed();
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Index number = above[i]->tally.relaxed();
      Tally* const mine = tally_of(lane, number);
      if (mine == nullptr || lane == lanes_.common()) {
        uncount_ancestor(lane, number, intent);
      } else {
        mine->intents.set(mine->intents.relaxed() - Tally::unit(intent));
      }
    }
    if (give_back(target, index, stored, lane)) {
      barrier_after_locked();
    } else {
      full_fence();
    }
    tell_queues({above.data(), count});
  }
  record.node.set(none);
  record.word.set(record_word(record_generation(w), RecordState::free));
  if (record.note.relaxed() != none)
    records_.free_blocks(record.note.exchange(none));  // after: a held record has its note
}

void Table::tell_queues(std::span<const Node* const> nodes) noexcept {
  for (const Node* node : nodes) {
    if ((node->word.ordered() & word::queued) != 0) queues_.tell_queue(node_index(*node));
  }
}

// Model: G4, then G1. The nodes that it had in X may be somebody else's and even mean other keys: they are forgotten
// first, while the lock is broken and nobody takes them for its own. The others are still counted, so they are what
// they were. They are subtracted after the lock has left `broken` (I8): until then others subtract them from what they
// count.
void Table::release_broken(Index index, std::uint32_t lane) noexcept {
  Record& record = record_at(index);
  const auto exclusive = [](std::uint32_t stored) { return mode_of(stored) == Mode::X && !is_slot(stored); };
  if (const std::uint32_t stored = record.mode.relaxed(); record.steps.relaxed() == none && exclusive(stored)) {
    give_back(record.node.relaxed(), index, stored, lane);
    record.node.set(none);
  }
  Index walked = 0;
  for (Index b = record.steps.relaxed(); b != none && ++walked < capacity_.blocks; b = block_at(b).next.relaxed()) {
    for (auto& step : block_at(b).word) {
      if (step.relaxed() == 0 || !exclusive(step_stored_mode(step.relaxed()))) continue;
      give_back(step_node(step.relaxed()), index, step_stored_mode(step.relaxed()), lane);
      step.set(0);
    }
  }
  record.word.exchange(with_state(record.word.relaxed(), RecordState::taking));
  any_tally(record, [&](Index node, Mode mode) {
    give_back(node, index, stored_mode(mode, is_slots(node_at(node))), lane);
    return false;
  });
  records_.free_blocks(record.steps.exchange(none));
}

// What the whole request is, for those who look at the queue. Written before the latch is taken; none if full.
void Table::describe(Attempt& a) {
  a.wanted = records_.write_text(spi::describe(a.steps));
  a.described = true;
}

// Model: Z2, or Z3 without the latch; X4, if it extends.
void Table::abandon(Attempt& a) noexcept {
  if (a.waiter != none) {
    const Index node = waiter(a.waiter).node.relaxed();
    WakeList wake(processes_.reach());
    const Queues::Latched latched(queues_, node, false, queues_.patience());
    if (latched.taken()) {
      queues_.leave_queue(a);
      queues_.settle(node, wake);
    } else {
      // A stopped process has the latch. Leaving is one store, and whoever has the latch later unlinks what is left;
      // the others look for themselves (I5).
      const bool entangled = waiter(a.waiter).entangled.relaxed() != 0;
      ProcessRef mine = processes_.self();
      waiter(a.waiter).process.cas(mine, 0);
      if (entangled) own_entangled().subtract(1);
      a.waiter = none;
    }
  }
  records_.free_blocks(std::exchange(a.wanted, none));
  if (!a.extending) {
    release(a.record, a.lane);
    return;
  }
  std::int64_t patience = queues_.patience();  // for all of them together: somebody has a deadline
  for (auto undo = a.undo.rbegin(); undo != a.undo.rend(); ++undo) {
    Cell<std::uint64_t>* const place = find_step(a.record, undo->node);
    if (place == nullptr) continue;  // damaged
    const std::uint32_t stored = step_stored_mode(place->relaxed());
    const Mode now = mode_of(stored);
    if (undo->before) {
      place->set(make_step(undo->node, stored_mode(*undo->before, is_slot(stored)), undo->asked_before));
      // A stopped process in the way: then it stays stronger than it need be until it is released.
      if (*undo->before != now && !weaken(undo->node, a.record, a.lane, now, *undo->before, patience)) {
        place->set(make_step(undo->node, stored, undo->asked_before));
        patience = 0;
      }
    } else {
      give_back(undo->node, a.record, stored, a.lane);
      records_.drop_last_step(a.record);
    }
  }
  a.undo.clear();
  Record& record = record_at(a.record);
  end_change(a.record, with_state(record.word.relaxed(), RecordState::held));
}

// --- handing over ----------------------------------------------------------------------------------------

// Under all latches: everything `from` holds is `to`'s. Neither is `held` before the caller says so: until then the
// lock may be taken back, and must not be broken.
void Table::move_record(Index from, Index to) noexcept {
  Record& a = record_at(from);
  Record& b = record_at(to);
  // The new record names every node before a node's word names the new record, and the old one forgets them after. So
  // wherever this process dies, each record names all words that name it, and its chunk can be collected by itself.
  b.fence.set(a.fence.relaxed());
  b.since.set(a.since.relaxed());
  b.mode.set(a.mode.relaxed());
  b.parent.set(a.parent.relaxed());
  b.node.set(a.node.relaxed());
  b.steps.set(a.steps.relaxed());
  b.note.set(a.note.relaxed());
  b.want.set(none);
  any_hold(a, [&](Index node, Mode mode, bool) {
    if (mode == Mode::X && !is_slots(node_at(node))) node_at(node).word.change_bits(word::holder, to);
    return false;
  });
  a.node.set(none);
  a.steps.set(none);
  a.note.set(none);
}

Progress Table::give(Index from, Index to, FoundCycle& cycle) {
  const std::int64_t give_patience = shared() ? 100'000'000 : Latch::for_ever;
  const Queues::Latched latched(queues_, none, true, give_patience);
  if (!latched.taken()) return Progress::late;
  Record& record = record_at(from);
  Record& other = record_at(to);
  // Whoever looks for the lock to break it may meet neither record while it goes from one to the other.
  struct UnderWay {
    Cell<std::uint64_t>& handovers;
    explicit UnderWay(Cell<std::uint64_t>& count) : handovers(count) { count.exchange(count.relaxed() | 1); }
    ~UnderWay() { handovers.exchange((handovers.relaxed() | 1) + 1); }
  } const under_way(header_->handovers);
  std::uint64_t lock = record.word.relaxed();
  if (record_state(lock) != RecordState::held || !record.word.cas(lock, with_change(lock, RecordState::taking))) {
    return Progress::lost;
  }
  move_record(from, to);
  other.word.set(record_word(record_generation(other.word.relaxed()) + 1, RecordState::taking));
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
  // Its handle is as good as before, but whoever read the record's word before must not act on it.
  const auto take_back = [&] {
    move_record(to, from);
    other.word.set(with_state(other.word.relaxed(), RecordState::free));
    record.word.set(with_state(record.word.relaxed(), RecordState::held));
  };
  try {
    if (waiting != none) cycle = WaitGraph(*this, names_).cycle_of(owner, waiting);
  } catch (...) {
    take_back();
    throw;
  }
  if (!cycle.empty()) {
    take_back();
    return Progress::deadlock;
  }
  other.word.set(with_state(other.word.relaxed(), RecordState::held));
  record.word.set(record_word(record_generation(record.word.relaxed()), RecordState::free));
  for (unsigned s = 0; waiting != none && s < stripe_count; ++s) {
    each_waiter(s, [&](Waiter& w) {  // what it holds now may let it pass a queue
      if (w.owner.relaxed() == owner) queues_.tell(waiter_index(w));
    });
  }
  return Progress::granted;
}

}  // namespace hierlock::engine
