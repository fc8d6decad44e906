// Deadlock, found at the moment the cycle closes.
//
// Every member of a cycle waits, so the graph has the waiting requests as its nodes. A wait ends when everybody it
// waits for can go on (for slots: when one holder can), and an owner can go on when all its waits end. Starting from
// "nobody is stuck who does not wait", this is reduced until nothing changes; what is left is deadlocked. (Holt, Some
// Deadlock Properties of Computer Systems, 1972: graph reduction, which unlike the search for a cycle is right for
// slots too.)
//
// Why most waits need no look at the graph: a request takes its nodes in the canonical order. If every waiter held
// nothing but earlier nodes of the plan it waits in, then along "waits for a node held by" the nodes waited for would
// only rise, and could not come round. So a cycle has at least one member whose owner holds something outside its plan:
// another lock, or the lock it extends. Such a waiter is counted as `entangled`; the graph is looked at only if the new
// waiter is entangled or such a waiter exists. An owner that several threads act for may become entangled while it
// waits, so its waiters always count.
//
// An owner that several threads act for might be rescued from a cycle by itself: one of its threads comes to hold the
// node and lets the other pass the queue. The graph does not count on it, because what rescues may be released first.
//
// Invariant: no set of waiters is deadlocked. New waits, and locks given to waiting owners, are tried and taken
// back if they would break it. Everything else only takes edges away: a release, a waiter that leaves, and a grant,
// which turns edges to an earlier waiter into edges to a holder.
#include "engine/wait_graph.h"

#include <algorithm>

namespace hierlock::engine {

WaitGraph::WaitGraph(const Table& table, Supposed supposed) : table_(table), supposed_(supposed) {
  for (unsigned s = 0; s < stripe_count; ++s) {
    table_.each_waiter(s, [&](const Waiter& w) {
      Wait wait{};
      wait.waiter = table_.waiter_index(w);
      wait.owner = w.owner.relaxed();
      wait.node = w.node.relaxed();
      wait.record = w.record.relaxed();
      wait.mode = static_cast<Mode>(w.mode.relaxed());
      wait.key = w.key.relaxed();
      waits_.push_back(std::move(wait));
    });
  }
}

void WaitGraph::find_blockers(Wait& wait) {
  std::vector<Index> waiting;
  for (const Wait& w : waits_) {
    if (std::find(waiting.begin(), waiting.end(), w.owner) == waiting.end()) waiting.push_back(w.owner);
  }
  const Node& node = table_.nodes_[wait.node];
  if (table_.is_slots(node)) {
    wait.any_will_do = true;
    std::uint64_t by_waiting = 0;
    for (const Index owner : waiting) {
      std::uint64_t held = 0;
      table_.any_hold_of(owner, wait.node, [&](Index, Mode) {
        ++held;
        return false;
      });
      if (held == 0) continue;
      wait.owners.push_back(owner);
      wait.counts.push_back(held);
      by_waiting += held;
    }
    const std::uint64_t capacity = node.slots.relaxed();
    wait.free_slots = capacity > by_waiting ? capacity - by_waiting : 0;
    for (const Wait& w : waits_) {
      if (w.node == wait.node && w.key < wait.key) wait.ahead.push_back(w.owner);
    }
    return;
  }
  for (const Index owner : waiting) {
    const bool holds = table_.any_hold_of(owner, wait.node, [&](Index record, Mode held) {
      return record != wait.record && !compatible(held, wait.mode);
    });
    const bool earlier = std::any_of(waits_.begin(), waits_.end(), [&](const Wait& w) {
      return w.owner == owner && w.node == wait.node && w.key < wait.key && !compatible(w.mode, wait.mode);
    });
    const bool will_hold = owner == supposed_.owner && wait.node == supposed_.node && wait.record != supposed_.record &&
                           !compatible(supposed_.mode, wait.mode);
    if (holds || earlier || will_hold) wait.owners.push_back(owner);
  }
}

bool WaitGraph::owner_stuck(Index owner) const {
  return std::any_of(waits_.begin(), waits_.end(), [&](const Wait& w) { return w.owner == owner && w.stuck; });
}

bool WaitGraph::can_end(const Wait& wait) const {
  const auto stuck = [this](Index owner) { return owner_stuck(owner); };
  if (!wait.any_will_do) return std::none_of(wait.owners.begin(), wait.owners.end(), stuck);
  std::uint64_t free = wait.free_slots;
  for (std::size_t i = 0; i < wait.owners.size(); ++i) {
    if (!owner_stuck(wait.owners[i])) free += wait.counts[i];
  }
  // Those ahead are served first; the stuck ones among them keep what they get.
  return free > static_cast<std::uint64_t>(std::count_if(wait.ahead.begin(), wait.ahead.end(), stuck));
}

std::string WaitGraph::cycle_through(Index waiter) {
  for (Wait& wait : waits_) find_blockers(wait);
  for (bool changed = true; changed;) {
    changed = false;
    for (Wait& wait : waits_) {
      if (wait.stuck && can_end(wait)) {
        wait.stuck = false;
        changed = true;
      }
    }
  }
  const auto find = [this](auto predicate) { return std::find_if(waits_.begin(), waits_.end(), predicate); };
  auto at = find([&](const Wait& w) { return w.waiter == waiter && w.stuck; });
  if (at == waits_.end()) at = find([](const Wait& w) { return w.stuck; });
  if (at == waits_.end()) return {};

  std::string words;
  std::vector<Index> told;
  while (at != waits_.end() && std::find(told.begin(), told.end(), at->owner) == told.end()) {
    told.push_back(at->owner);
    if (!words.empty()) words += "; ";
    words += table_.owner_text(at->owner) + " waits for " + table_.node_text(at->node) + " (" +
             std::string(to_string(at->mode)) + ")";
    auto next = waits_.end();
    for (const std::vector<Index>* list : {&at->owners, &at->ahead}) {
      for (const Index owner : *list) {
        if (next != waits_.end()) break;
        next = find([&](const Wait& w) { return w.owner == owner && w.stuck; });
      }
    }
    if (next == waits_.end()) break;
    const bool holds = table_.any_hold_of(next->owner, at->node, [](Index, Mode) { return true; });
    words += holds ? ", held by " : ", where an earlier place in the queue is taken by ";
    words += table_.owner_text(next->owner);
    at = next;
  }
  return words;
}

}  // namespace hierlock::engine
