// Deadlock, found at the moment the cycle closes.
//
// Every member of a cycle waits, so the graph has the waiting requests as its nodes. reduction.cc says when a wait can
// end. What cannot is deadlocked.
//
// Why most waits need no look at the graph: a request takes its nodes in the canonical order. If every waiter held
// nothing but earlier nodes of the plan it waits in, then along "waits for a node held by" the nodes waited for would
// only rise, and could not come round. So a cycle has at least one member whose owner holds something outside its plan:
// another lock, or the lock it extends. Such a waiter is counted as `entangled`; the graph is looked at only if the new
// waiter is entangled or such a waiter exists. An owner that several threads act for may become entangled while it
// waits, so its waiters always count.
//
// Why most of the others need none either: a cycle that a new waiter closes goes on from somebody who waits for a node
// that its owner holds (or behind a wait of its owner; but an owner with one thread that does not extend a lock has no
// other wait). So if none of these nodes is `queued`, the waiter joins the queue under the latch of its stripe alone.
//
// Handshake: two waiters may do so at the same time. Each sets `queued` at the node it will wait for, counts itself if
// it is entangled, and only then looks whether anybody is entangled and whether its own nodes are `queued`; all these
// steps are ordered. Of the members of a cycle, let L be the one that sets `queued` last. It holds what another member
// waits for, so it sees `queued` there if it looks. If it does not look, then because it is not entangled and the
// member E that is had not been counted: then E looks later than L has set `queued`, and sees it. L or E takes all
// latches. It gets them after the others have joined their queues, because each keeps its stripe's latch from setting
// `queued` until then, so its graph has them all. (If L stands in a queue before another member, that one joined
// earlier, so L has passed it: its owner holds the node, or holders are served first. In both cases it looks at the
// graph.)
//
// An owner that several threads act for might be rescued from a cycle by itself: one of its threads comes to hold the
// node and lets the other pass the queue. The graph does not count on it, because what rescues may be released first.
//
// Invariant: no set of waiters is deadlocked, but for the moment in which the one who closed a cycle is about to give
// up. New waits, and locks given to waiting owners, are tried and taken back if they would break it. Everything else
// only takes edges away: a release, a waiter that leaves, and a grant, which turns edges to an earlier waiter into
// edges to a holder. So a deadlock contains the owner that has just begun to wait or come to hold something, all its
// members wait for that owner, and it is enough to look at those who do. The others' locks are not walked along.
#include "engine/wait_graph.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

namespace hierlock::engine {

WaitGraph::WaitGraph(const Parts& table, const Names& names, Supposed supposed)
    : table_(table), names_(names), supposed_(supposed) {
  barrier_after_locked();  // the latches were taken and `queued` was set: the other side is in Table::advance
  std::size_t waiters = 0;
  for (unsigned s = 0; s < stripe_count; ++s) waiters += table_.waiters_used(s);
  reduction_.reserve(waiters);
  for (unsigned s = 0; s < stripe_count; ++s) {
    table_.each_waiter(s, [&](const Waiter& w) {
      const Index index = w.node.relaxed();
      const Node& node = table_.node_at(index);
      // A damaged table may say 0 slots.
      const std::uint64_t slots = table_.is_slots(node) ? std::max<std::uint64_t>(node.slots().relaxed(), 1) : 0;
      reduction_.add({table_.waiter_index(w), w.owner.relaxed(), index, w.record.relaxed(), mode_of(w.mode.relaxed()),
                      w.key.relaxed()},
                     slots);
    });
  }
  reduction_.arrange();
}

FoundCycle WaitGraph::cycle_of(Index owner, Index waiter) {
  if (!reduction_.waits(owner)) return {};
  find_exclusive();
  reduction_.reach(owner, [this](Index reached, const auto& f) { each_hold_of(reached, f); });
  reduction_.reduce();
  const std::optional<Reduction::Stuck> first = reduction_.stuck_of(owner, waiter);
  return first ? tell(*first) : FoundCycle();
}

// Which waiting owners hold an awaited node in X, and whether any is held in another way: only then are the locks of
// owners walked along, which may be many.
void WaitGraph::find_exclusive() {
  first_exclusive_.assign(reduction_.owners(), 0);
  exclusive_.reserve(reduction_.nodes());
  for (std::uint32_t n = 0; n < reduction_.nodes(); ++n) {
    const Index index = reduction_.node(n);
    const Node& node = table_.node_at(index);
    const std::uint64_t word = node.word.acquire();
    shared_ = shared_ || (word & word::marked) != 0 || table_.is_slots(node);
    const auto record = static_cast<Index>(word & word::holder);
    if (record == none || !table_.holds_words(record)) continue;
    const Index owner = table_.record_at(record).owner.acquire();
    // Still the same: then the owner is that of the record that holds it. Who does not wait does not matter.
    if ((node.word.acquire() & word::holder) != record || !reduction_.waits(owner)) continue;
    std::uint32_t& first = first_exclusive_[reduction_.number_of(owner)];
    exclusive_.push_back({{record, index, Mode::X}, first});
    first = static_cast<std::uint32_t>(exclusive_.size());
  }
}

template <class F>
void WaitGraph::each_hold_of(Index owner, F f) {
  for (std::uint32_t at = first_exclusive_[reduction_.number_of(owner)]; at != 0; at = exclusive_[at - 1].next) {
    f(exclusive_[at - 1].hold);
  }
  if (shared_) each_shared_hold_of(owner, f);
  if (owner == supposed_.owner) f({supposed_.record, supposed_.node, supposed_.mode});
}

// An owner may have thousands of locks under a few parents. What a lock holds above its target is told once for each
// parent; the rest is a look at the lock alone.
template <class F>
void WaitGraph::each_shared_hold_of(Index owner, F f) {
  constexpr std::size_t remembered = 256;
  std::array<std::uint64_t, remembered> told{};  // parent and the intention on it
  bool whole = false;                            // it is, unless the owner's process has died: all latches are ours
  table_.walk_records_of(owner, whole, [&](Index r) {
    const Record& record = table_.record_at(r);
    const std::uint64_t before = record.word.acquire();
    if (record_state(before) == RecordState::free) return false;
    std::uint64_t* place = nullptr;
    std::uint64_t above = 0;
    if (record_state(before) == RecordState::held && record.steps.acquire() == none) {
      const Index parent = record.parent.acquire();
      above = make_step(parent, static_cast<std::uint32_t>(intention(table_.node_mode(record))), true);
      place = &told[parent % remembered];
      if (*place == above && !reduction_.awaited(record.node.acquire())) return false;
    }
    held_.clear();
    table_.any_hold(record, [&](Index node, Mode mode, bool) {
      if (reduction_.awaited(node) && (mode != Mode::X || table_.is_slots(table_.node_at(node)))) {
        held_.push_back({r, node, mode});
      }
      return false;
    });
    // Another thread of a crowd may have released it meanwhile.
    const std::uint64_t after = record.word.acquire();
    if (!same_lock(after, before) || record_state(after) == RecordState::free) return false;
    for (const Reduction::Hold& hold : held_) f(hold);
    if (place != nullptr && after == before) *place = above;
    return false;
  });
}

// From one stuck wait to the next, until an owner comes up a second time.
FoundCycle WaitGraph::tell(Reduction::Stuck first) {
  FoundCycle found;
  std::unordered_map<Index, std::size_t> told;  // owners, and their places among the waits
  std::string held;                             // by the owner that comes next
  for (const Reduction::Wait* wait = first.wait;;) {
    const auto [place, fresh] = told.emplace(wait->owner, found.waits.size());
    if (!fresh) {  // the circle is closed
      found.waits[place->second].holds = held;
      break;
    }
    const std::string node = names_.node_text(wait->node);
    found.waits.push_back({names_.owner_name(wait->owner), names_.process_of(wait->owner), "", node, held});
    found.words += (found.words.empty() ? "" : "; ") + names_.owner_text(wait->owner) + " waits for " + node + " (" +
                   std::string(to_string(wait->mode)) + ")";
    const std::optional<Reduction::Stuck> next = reduction_.next_of(*wait);
    if (!next) break;
    found.words += next->by_hold ? ", held by " : ", where an earlier place in the queue is taken by ";
    found.words += names_.owner_text(next->wait->owner);
    held = next->by_hold ? node : "";
    wait = next->wait;
  }
  return found;
}

}  // namespace hierlock::engine
