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
// Invariant: no set of waiters is deadlocked, but for the moment in which the one who closed a cycle is about to give
// up. New waits, and locks given to waiting owners, are tried and taken back if they would break it. Everything else
// only takes edges away: a release, a waiter that leaves, and a grant, which turns edges to an earlier waiter into
// edges to a holder.
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
      wait.mode = mode_of(w.mode.relaxed());
      wait.key = w.key.relaxed();
      const Node& node = table_.node_at(wait.node);
      wait.any_will_do = table_.is_slots(node);
      wait.capacity = node.slots.relaxed();
      by_node_[wait.node].push_back(waits_.size());
      ++stuck_of_[wait.owner];
      waits_.push_back(std::move(wait));
    });
  }
  find_queues();
  find_holders();
}

// Who stands before whom.
void WaitGraph::find_queues() {
  for (auto& [node, queue] : by_node_) {
    std::sort(queue.begin(), queue.end(),
              [this](std::size_t a, std::size_t b) { return waits_[a].key < waits_[b].key; });
    for (std::size_t i = 0; i < queue.size(); ++i) {
      Wait& wait = waits_[queue[i]];
      for (std::size_t before = i; before-- > 0;) {
        const Wait& earlier = waits_[queue[before]];
        if (wait.any_will_do) {
          wait.ahead.push_back(earlier.owner);
          continue;
        }
        if (!compatible(earlier.mode, wait.mode)) wait.owners.push_back(earlier.owner);
        if (earlier.mode == Mode::X) break;  // and that one waits for all before it
      }
    }
  }
}

// What the waiting owners hold of what is waited for: each owner's locks are walked along once.
void WaitGraph::find_holders() {
  const auto holds = [this](Index owner, Index record, Index node, Mode mode) {
    const auto queue = by_node_.find(node);
    if (queue == by_node_.end()) return;
    for (const std::size_t i : queue->second) {
      Wait& wait = waits_[i];
      if (wait.any_will_do || (record != wait.record && !compatible(mode, wait.mode))) wait.owners.push_back(owner);
    }
  };
  for (const auto& [owner, stuck] : stuck_of_) {
    Index walked = 0;
    for (Index r = table_.owner_at(owner).records.acquire(); r != none && ++walked < table_.capacity_.records;
         r = table_.record_at(r).next_of_owner.acquire()) {
      const Record& record = table_.record_at(r);
      const std::uint64_t before = record.word.acquire();
      if (record_state(before) == RecordState::free) continue;
      std::vector<std::pair<Index, Mode>> held;
      table_.any_hold(record, [&](Index node, Mode mode, bool) {
        if (by_node_.contains(node)) held.emplace_back(node, mode);
        return false;
      });
      // Another thread of a crowd may have released it meanwhile.
      const std::uint64_t after = record.word.acquire();
      if (record_generation(after) != record_generation(before) || record_state(after) == RecordState::free) continue;
      for (const auto& [node, mode] : held) holds(owner, r, node, mode);
    }
    if (owner == supposed_.owner) holds(owner, supposed_.record, supposed_.node, supposed_.mode);
  }
}

bool WaitGraph::owner_stuck(Index owner) const {
  const auto at = stuck_of_.find(owner);
  return at != stuck_of_.end() && at->second > 0;
}

bool WaitGraph::can_end(const Wait& wait) const {
  const auto stuck = [this](Index owner) { return owner_stuck(owner); };
  const auto kept = static_cast<std::uint64_t>(std::count_if(wait.owners.begin(), wait.owners.end(), stuck));
  if (!wait.any_will_do) return kept == 0;
  // Those ahead are served first; the stuck ones among them keep what they get.
  return wait.capacity > kept + static_cast<std::uint64_t>(std::count_if(wait.ahead.begin(), wait.ahead.end(), stuck));
}

std::string WaitGraph::cycle_of(Index owner, Index waiter) {
  for (bool changed = true; changed;) {
    changed = false;
    for (Wait& wait : waits_) {
      if (!wait.stuck || !can_end(wait)) continue;
      wait.stuck = false;
      --stuck_of_[wait.owner];
      changed = true;
    }
  }
  std::size_t first = waits_.size();
  for (std::size_t i = 0; i < waits_.size(); ++i) {
    if (!waits_[i].stuck || waits_[i].owner != owner) continue;
    if (first == waits_.size() || waits_[i].waiter == waiter) first = i;
  }
  return first == waits_.size() ? std::string() : tell(first);
}

// From one stuck wait to the next, until somebody comes up a second time.
std::string WaitGraph::tell(std::size_t first) const {
  std::string words;
  std::vector<Index> told;
  for (std::size_t at = first; std::find(told.begin(), told.end(), waits_[at].owner) == told.end();) {
    const Wait& wait = waits_[at];
    told.push_back(wait.owner);
    if (!words.empty()) words += "; ";
    words += table_.owner_text(wait.owner) + " waits for " + table_.node_text(wait.node) + " (" +
             std::string(to_string(wait.mode)) + ")";
    std::size_t next = waits_.size();
    for (const std::vector<Index>* list : {&wait.owners, &wait.ahead}) {
      for (const Index owner : *list) {
        for (std::size_t i = 0; next == waits_.size() && i < waits_.size(); ++i) {
          if (waits_[i].stuck && waits_[i].owner == owner) next = i;
        }
      }
    }
    if (next == waits_.size()) break;
    const bool holds = table_.any_hold_of(waits_[next].owner, wait.node, [](Index, Mode) { return true; });
    words += holds ? ", held by " : ", where an earlier place in the queue is taken by ";
    words += table_.owner_text(waits_[next].owner);
    at = next;
  }
  return words;
}

}  // namespace hierlock::engine
