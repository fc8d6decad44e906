// Holt, Some Deadlock Properties of Computer Systems, 1972: graph reduction, which unlike the search for a cycle is
// right for slots too.
//
// A wait ends when everybody it waits for can go on: those who hold the node in conflict with it, and those who stand
// before it in the queue in conflict with it. (Slots: when there is one slot more than holders who cannot go on, and
// those before it who cannot.) An owner can go on when all its waits have ended. Whoever does not wait can go on.
//
// Why this is linear. No edge is ever stored. Of each node it is known how many holds of stuck owners there are in each
// mode, and the first waiter of each mode whose owner is stuck: a wait is held up by the queue exactly if such a first
// one, in a mode that conflicts, stands before it. Both only ever move on. Of two waits for a node in the same mode the
// later one never ends first, so only the first of each mode needs to be looked at:
//
//   Let the earlier one be held up. If it is by the queue, so is the later one. If it is by a hold, so is the later
//   one, unless that hold is of the record that it upgrades itself. Then what it wants is X (a record that holds a node
//   and wants it in a mode that conflicts wants X: see strongest()), so the earlier one wants X as well, stands before
//   it and is stuck.
#include "engine/reduction.h"

#include <algorithm>
#include <utility>

namespace hierlock::engine {

// --- numbering -------------------------------------------------------------------------------------------

std::pair<std::uint32_t, bool> Numbering::add(Index index) {
  reserve(std::size_t{size_} + 1);
  Place& place = places_[place_of(index)];
  if (place.number != unknown) return {place.number, false};
  place = {index, size_++};
  return {place.number, true};
}

void Numbering::reserve(std::size_t count) {
  constexpr unsigned smallest = 6;
  unsigned log2 = places_.empty() ? smallest : 32 - shift_;
  while (log2 < 32 && std::size_t{1} << log2 < 2 * count) ++log2;
  if (std::size_t{1} << log2 > places_.size()) resize(log2);
}

void Numbering::resize(unsigned log2) {
  const std::vector<Place> old = std::exchange(places_, std::vector<Place>(std::size_t{1} << log2));
  shift_ = 32 - log2;
  for (const Place& place : old) {
    if (place.number != unknown) places_[place_of(place.index)] = place;
  }
}

// --- filling ---------------------------------------------------------------------------------------------

void Reduction::reserve(std::size_t waits) {
  waits_.reserve(waits);
  queues_.reserve(waits);
  parties_.reserve(waits);
  nodes_.reserve(waits);
  owners_.reserve(waits);
  records_.reserve(waits);
  holds_.reserve(waits);
}

void Reduction::add(const Wait& wait, std::uint64_t slots) {
  Entry entry{wait};
  const auto [queue, new_queue] = nodes_.add(wait.node);
  if (new_queue) queues_.emplace_back().node = wait.node;
  queues_[queue].slots = slots;
  ++queues_[queue].size;
  const auto [party, new_party] = owners_.add(wait.owner);
  if (new_party) parties_.emplace_back().owner = wait.owner;
  entry.queue = queue;
  entry.party = party;
  entry.next_of_owner = parties_[party].first_wait;
  parties_[party].first_wait = static_cast<std::uint32_t>(waits_.size());
  waits_.push_back(entry);
}

void Reduction::arrange() {
  std::uint32_t begin = 0;
  for (Queue& queue : queues_) {
    queue.begin = begin;
    begin += queue.size;
    queue.reached_from = queue.size;
    queue.size = 0;
    queue.first.fill(no_wait);
    queue.holds.fill(no_hold);
  }
  order_.resize(waits_.size());
  for (std::uint32_t w = 0; w < waits_.size(); ++w) {
    Queue& queue = queues_[waits_[w].queue];
    order_[queue.begin + queue.size++] = w;
  }
  const auto earlier = [this](std::uint32_t a, std::uint32_t b) { return waits_[a].key < waits_[b].key; };
  for (Queue& queue : queues_) {
    const auto first = order_.begin() + queue.begin;
    const auto last = first + queue.size;
    if (!std::is_sorted(first, last, earlier)) std::sort(first, last, earlier);
    for (std::uint32_t position = queue.size; position-- > 0;) {
      Entry& wait = waits_[first[position]];
      wait.position = position;
      std::uint32_t& same_mode = queue.first[static_cast<std::size_t>(wait.mode)];
      wait.next_of_mode = same_mode;
      same_mode = first[position];
    }
    queue.next_to_go = queue.blocking = queue.first;
  }
}

// --- reaching --------------------------------------------------------------------------------------------

void Reduction::reach_number(std::uint32_t party) {
  if (party == Numbering::unknown || parties_[party].reached) return;
  Owner& owner = parties_[party];
  owner.reached = true;
  owner.holds_begin = owner.holds_end = static_cast<std::uint32_t>(holds_.size());
  for (std::uint32_t w = owner.first_wait; w != no_wait; w = waits_[w].next_of_owner) {
    waits_[w].stuck = true;
    ++owner.stuck;
  }
  to_walk_.push_back(party);
}

void Reduction::reach_behind(std::uint32_t number, std::uint32_t position) {
  Queue& queue = queues_[number];
  while (queue.reached_from > position) reach_number(waits_[order_[queue.begin + --queue.reached_from]].party);
}

void Reduction::record_waits(std::uint32_t wait) {
  const auto [number, fresh] = records_.add(waits_[wait].record);
  if (fresh) {
    wait_of_record_.push_back(wait);
  } else {
    wait_of_record_[number] = wait;
  }
}

void Reduction::add_hold(std::uint32_t party, const Hold& hold) {
  const std::uint32_t number = nodes_.find(hold.node);
  if (number == Numbering::unknown) return;
  Queue& queue = queues_[number];
  Owner& owner = parties_[party];
  if (owner.holds_begin == owner.holds_end) {
    owner.holds_begin = owner.holds_end = static_cast<std::uint32_t>(holds_.size());
  }
  const std::uint32_t r = records_.find(hold.record);
  const auto mode = static_cast<std::size_t>(hold.mode);
  if (const std::uint32_t last = queue.holds[mode]; last != no_hold && queue.slots == 0) {
    // An owner may hold a node through thousands of locks below it. One more changes nothing.
    if (holds_[last].party == party && !holds_[last].waits && r == Numbering::unknown) return;
  }
  holds_.push_back({number, party, hold.record, hold.mode, queue.holds[mode], r != Numbering::unknown});
  queue.holds[mode] = owner.holds_end++;
  ++queue.held[mode];
  if (queue.slots != 0) return reach_behind(number, 0);
  if (r != Numbering::unknown) {
    Entry& own = waits_[wait_of_record_[r]];
    if (own.queue == number && !compatible(hold.mode, own.mode)) own.upgrades = true;
  }
  for (const Mode other : all_modes) {
    const std::uint32_t first = queue.first[static_cast<std::size_t>(other)];
    if (first != no_wait && !compatible(hold.mode, other)) reach_behind(number, waits_[first].position);
  }
}

// --- reducing --------------------------------------------------------------------------------------------

void Reduction::touch(std::uint32_t queue) {
  if (std::exchange(queues_[queue].dirty, true)) return;
  to_look_at_.push_back(queue);
}

void Reduction::reduce() {
  to_look_at_.reserve(queues_.size());
  for (std::uint32_t q = 0; q < queues_.size(); ++q) touch(q);
  while (!to_look_at_.empty()) {
    const std::uint32_t queue = to_look_at_.back();
    to_look_at_.pop_back();
    queues_[queue].dirty = false;
    let_go(queue);
  }
}

// All of a queue that can go now.
void Reduction::let_go(std::uint32_t number) {
  Queue& queue = queues_[number];
  if (queue.slots != 0) {
    for (; queue.next_slot < queue.size; ++queue.next_slot) {
      Entry& wait = waits_[order_[queue.begin + queue.next_slot]];
      if (!wait.stuck) continue;
      if (!can_end(queue, wait)) return;
      end(wait);
    }
    return;
  }
  for (bool again = true; again;) {
    again = false;
    for (std::uint32_t& next : queue.next_to_go) {
      while (next != no_wait && (!waits_[next].stuck || can_end(queue, waits_[next]))) {
        if (waits_[next].stuck) {
          end(waits_[next]);
          again = true;
        }
        next = waits_[next].next_of_mode;
      }
    }
  }
}

// Somebody before it in the queue, in conflict with it, whose owner is stuck.
std::uint32_t Reduction::blocker(Queue& queue, const Entry& wait) {
  for (const Mode mode : all_modes) {
    if (compatible(mode, wait.mode)) continue;
    std::uint32_t& first = queue.blocking[static_cast<std::size_t>(mode)];
    while (first != no_wait && parties_[waits_[first].party].stuck == 0) first = waits_[first].next_of_mode;
    if (first != no_wait && waits_[first].position < wait.position) return first;
  }
  return no_wait;
}

bool Reduction::can_end(Queue& queue, const Entry& wait) {
  std::uint64_t kept = 0;
  for (const Mode mode : all_modes) {
    if (queue.slots != 0 || !compatible(mode, wait.mode)) kept += queue.held[static_cast<std::size_t>(mode)];
  }
  // Those ahead are served first; the stuck ones among them keep what they get.
  if (queue.slots != 0) return queue.slots > kept + queue.served;
  return kept == (wait.upgrades ? 1 : 0) && blocker(queue, wait) == no_wait;
}

void Reduction::end(Entry& wait) {
  wait.stuck = false;
  queues_[wait.queue].served += 1;
  Owner& owner = parties_[wait.party];
  if (--owner.stuck != 0) return;
  for (std::uint32_t h = owner.holds_begin; h != owner.holds_end; ++h) {
    --queues_[holds_[h].queue].held[static_cast<std::size_t>(holds_[h].mode)];
    touch(holds_[h].queue);
  }
  for (std::uint32_t w = owner.first_wait; w != no_wait; w = waits_[w].next_of_owner) {
    queues_[waits_[w].queue].served -= 1;
    touch(waits_[w].queue);
  }
}

// --- asking ----------------------------------------------------------------------------------------------

std::optional<Reduction::Stuck> Reduction::stuck_of(Index owner, Index waiter) const {
  const std::uint32_t party = owners_.find(owner);
  const Entry* found = nullptr;
  for (std::uint32_t w = party == Numbering::unknown ? no_wait : parties_[party].first_wait; w != no_wait;
       w = waits_[w].next_of_owner) {
    if (waits_[w].stuck && (found == nullptr || waits_[w].waiter == waiter)) found = &waits_[w];
  }
  if (found == nullptr) return std::nullopt;
  return Stuck{found, false};
}

std::optional<Reduction::Stuck> Reduction::next_of(const Wait& from) {
  const Entry& wait = static_cast<const Entry&>(from);
  Queue& queue = queues_[wait.queue];
  const auto stuck_wait = [this](std::uint32_t party, bool by_hold) {
    std::optional<Stuck> stuck = stuck_of(parties_[party].owner, none);
    if (stuck) stuck->by_hold = by_hold;
    return stuck;
  };
  for (const Mode mode : all_modes) {
    if (queue.slots == 0 && compatible(mode, wait.mode)) continue;
    // Holds of owners who can go on are dropped from the list, so that it is walked once however often it is asked.
    std::uint32_t* place = &queue.holds[static_cast<std::size_t>(mode)];
    while (*place != no_hold) {
      const HeldNode& hold = holds_[*place];
      if (parties_[hold.party].stuck == 0) {
        *place = hold.next_of_mode;
      } else if (queue.slots == 0 && hold.record == wait.record) {
        place = &holds_[*place].next_of_mode;
      } else {
        return stuck_wait(hold.party, true);
      }
    }
  }
  if (queue.slots == 0) {
    const std::uint32_t before = blocker(queue, wait);
    if (before == no_wait) return std::nullopt;
    return stuck_wait(waits_[before].party, false);
  }
  for (; queue.first_stuck < wait.position; ++queue.first_stuck) {
    const std::uint32_t party = waits_[order_[queue.begin + queue.first_stuck]].party;
    if (parties_[party].stuck != 0) return stuck_wait(party, false);
  }
  return std::nullopt;
}

std::vector<Index> Reduction::stuck() const {
  std::vector<Index> waiters;
  for (const Entry& wait : waits_) {
    if (wait.stuck) waiters.push_back(wait.waiter);
  }
  return waiters;
}

}  // namespace hierlock::engine
