// Breaking a lock.
//
// A break is one compare-and-swap, as a death is one word: the record's word changes from `held` to `broken`, or from
// `changing` to `doomed` (I8). Nobody but the owner ever subtracts from the owner's tallies. What each party relies on:
//
// The record's word. An owner changes what a lock holds only after its word has left `held`, and every extend and every
// hand-over counts itself in the word. So if the word is still the one that was read before the holds, the holds are
// still what was read. There is one exception: the owner of a lock on one node in X gives the node back before it
// changes its own word. Then the node's word no longer names the record; or it is broken while it is being released,
// which harms nobody.
//
// The number of changes has 28 bits. A breaker that was stopped while it went all the way round harms nobody: the word
// still has the generation, so it is the same lock, and what that was asked for with is the same. At worst it has come
// to share a node since that the breaker did not see: that stays counted until the lock is released.
//
// Extends. A lock that is being extended holds more from step to step, or less while it is undone, and a step and its
// tally do not change at one instant. So the breaker only dooms it. A doomed lock counts as held in every respect. Its
// owner ends the extend, well or not, and cannot but change the word to `broken` then (Table::end_change). What the
// extend has asked for, and the lock has not, is marked in the step itself (step_new): by that target the lock is not
// found before the extend has ended, because it may still fail.
//
// Hand-overs. A lock that goes from one record to another is `held` in neither for a moment. Header::handovers tells a
// breaker that this happened while it looked at the records. It looks once more, with all latches, as a hand-over has.
//
// The node. While a lock holds a node, the node stands for the same key. The target's generation is read when the
// target is looked up, and again after the holds: so the lock held the node while the node was the target.
//
// Exclusive holds. A node whose word names a broken record is not held (Parts::holds_words). The next holder overwrites
// the name, under the latch. The owner clears the name only if it is still there.
//
// Counted holds (S, slots). The breaker lists the lock before it changes the word. A decider adds up the lanes of a
// node first and looks at the list afterwards. A lock that is broken then has not been subtracted by its owner
// yet, so it is in the sum. The owner works the other way round: its word leaves `broken` first, then it subtracts. In
// between the lock counts, which is too much for a moment; then the owner tells the queue. Two processes that break the
// same lock may list it twice; it is subtracted once.
//
// A breaker that dies or is stopped anywhere leaves a lock that is broken or doomed, or a lock that is not. If it did
// not tell those who wait, they look for themselves (I5); so does the owner of a doomed lock.
#include "engine/breaks.h"

#include <algorithm>

#include <hierlock/error.h>

namespace hierlock::engine {

namespace {

constexpr std::int64_t find_patience = 2'000'000'000;  // for index_latch
constexpr std::int64_t break_patience = 100'000'000;   // for latches, where a lock may have been missed

}  // namespace

Breaks::Breaks(const Parts& parts, Holders& holders, Queues& queues, Nodes& nodes)
    : Parts(parts), holders_(holders), queues_(queues), nodes_(nodes) {}

// Model: B1.
Breaks::Breaking Breaks::break_locks(std::span<const spi::Step> steps) {
  Nodes::Found target = nodes_.find_steps(steps);
  if (target.node == none) {  // or entries of the index are just being moved
    const Nodes::Guard guard(nodes_, shared() ? find_patience : Latch::for_ever);
    if (!guard.taken()) {
      throw Error(ErrorKind::unavailable,
                  "a stopped process keeps the table from being changed: let it go on, or kill it");
    }
    target = nodes_.find_steps(steps);
  }
  Breaking all;
  if (target.node == none) return all;
  const std::uint32_t generation = word::generation(target.word);
  // First all are found, then they are broken: whoever gets the target because of that keeps it.
  struct Seen {
    Index record;
    std::int64_t fence;
  };
  const auto find_all = [&] {
    std::vector<Seen> found;
    const Index end = records_end();
    for (Index r = 0; (r = next_live(at_.records, r + 1, end)) < end;) {
      if (asked_with(r, target.node, generation, nullptr)) found.push_back({r, record_at(r).fence.acquire()});
    }
    return found;
  };
  // A lock that goes from one record to another may be missed: when all are looked for, or between that and its break.
  // With all latches nothing is handed over.
  std::optional<Queues::Latched> latched;
  const auto latch = [&] { latched.emplace(queues_, none, true, shared() ? break_patience : Latch::for_ever); };
  std::uint64_t handovers = header_->handovers.ordered();
  const auto moved = [&] { return (handovers & 1) != 0 || header_->handovers.ordered() != handovers; };
  std::vector<Seen> found = find_all();
  if (moved()) {
    latch();
    handovers = header_->handovers.ordered();
    found = find_all();
  }
  std::vector<Index> freed;  // nodes, to be told
  std::vector<std::int64_t> missed;
  for (const Seen& lock : found) {
    if (!break_record(lock.record, target.node, generation, freed, all)) missed.push_back(lock.fence);
  }
  if (!missed.empty() && !latched && moved()) {  // released, or handed over: then it has kept its fence
    latch();
    std::sort(missed.begin(), missed.end());
    for (const Seen& lock : find_all()) {
      if (std::binary_search(missed.begin(), missed.end(), lock.fence))
        break_record(lock.record, target.node, generation, freed, all);
    }
  }
  all.unsure = latched && !latched->taken() && moved();
  latched.reset();
  for (const Index node : freed) {
    if ((node_at(node).word.ordered() & word::queued) != 0) queues_.tell_queue(node);
  }
  return all;
}

// The lock of this record as it is, if it was asked for with the target. `freed`: gets the nodes that breaking it frees
// at once.
std::optional<Breaks::Asked> Breaks::asked_with(Index index, Index target, std::uint32_t generation,
                                                std::vector<Index>* freed) const {
  const Record& record = record_at(index);
  const std::uint64_t w = record.word.ordered();
  const bool changing = extended(record_state(w));
  if ((record_state(w) != RecordState::held && !changing) || !live_record(index)) return std::nullopt;
  bool asked = false;
  bool counted = changing;  // before the extend has ended, it may be
  const auto look = [&](Index node, Mode mode, bool was_asked) {
    const bool slot = is_slots(node_at(node));
    counted = counted || slot || mode == Mode::S;
    if (freed != nullptr && !changing && (mode == Mode::X || mode == Mode::S)) freed->push_back(node);
    if (!was_asked || node != target) return false;
    const std::uint64_t now = node_at(node).word.ordered();
    asked = word::generation(now) == generation && (slot || mode != Mode::X || (now & word::holder) == index);
    return false;
  };
  if (record.steps.acquire() == none) {
    any_hold(record, look);
  } else {  // each step is read once: a second look at it may find it undone
    any_step(record, [&](std::uint64_t step) {
      return look(step_node(step), step_mode(step), step_asked(step) && (step & step_new) == 0);
    });
  }
  if (!asked) return std::nullopt;
  return Asked{w, changing, counted};
}

// Model: B2 to B4, and B6.
bool Breaks::break_record(Index index, Index target, std::uint32_t generation, std::vector<Index>& freed,
                          Breaking& all) {
  Record& record = record_at(index);
  const std::size_t before = freed.size();
  // Again only if its owner began to change it, or ended that: then it is another lock, or this one is looked at once
  // more.
  for (;; freed.resize(before)) {
    const std::optional<Asked> lock = asked_with(index, target, generation, &freed);
    if (!lock) break;
    if (lock->counted && !holders_.list_broken(index, record_generation(lock->word))) {
      ++all.no_room;
      freed.resize(before);
      return true;
    }
    // One that is doomed already changes only when its owner ends the extend. Whoever doomed it may have died before it
    // told the owner.
    std::uint64_t w = lock->word;
    const std::uint64_t after = with_state(w, lock->changing ? RecordState::doomed : RecordState::broken);
    if (w == after ? record.word.ordered() != w : !record.word.cas(w, after)) continue;
    if (w != after) ++all.broken;
    if (lock->changing) {
      all.doomed.push_back({index, after});
      queues_.tell_waiter_of(index);
    }
    return true;
  }
  freed.resize(before);
  return false;
}

}  // namespace hierlock::engine
