#include "engine/queues.h"

#include <algorithm>

#include "engine/futex.h"

namespace hierlock::engine {

namespace {

constexpr std::uint32_t waiters_per_commit = 64;

}  // namespace

Queues::Queues(const Parts& parts, const Holders& holders)
    : Parts(parts),
      holders_(holders),
      patience_(shared() ? 10'000'000 : Latch::for_ever),
      relinked_(std::make_unique_for_overwrite<Relinked[]>(capacity_.waiters_per_stripe)) {}

// --- waking ----------------------------------------------------------------------------------------------

std::uint32_t WakeList::told_now() noexcept {
  return static_cast<std::uint32_t>(coarse_time() / 1'000'000) | 2;  // neither 0 nor 1
}

bool WakeList::add(Waiter& waiter) {
  constexpr std::uint32_t long_ago = 30;  // ms
  const std::uint32_t now = told_now();
  const std::uint32_t told = waiter.signal.relaxed();
  if (told == 1) return false;
  if (told != 0 && now - told < long_ago) return true;
  waiter.signal.set(told == 0 ? now : 1);
  if (count_ == waiters_.size()) {
    futex_wake(waiter.signal, 1, reach_);
  } else {
    waiters_[count_++] = &waiter;
  }
  return told == 0;
}

// The place in the queue may belong to somebody else by now: being told to look again harms nobody.
WakeList::~WakeList() {
  for (std::size_t i = 0; i < count_; ++i) futex_wake(waiters_[i]->signal, 1, reach_);
}

Queues::Latched::Latched(Queues& queues, Index node, bool all, std::int64_t patience) noexcept
    : queues_(queues), first_(all ? 0 : stripe_of(node)), end_(first_) {
  if (!take(all ? stripe_count : first_ + 1, patience)) return;
  // Before `queued` is set, and after what the dead decided was settled.
  Cell<Index>& deciding = queues_.stripe(node).deciding;
  if (node != none && deciding.relaxed() != node) deciding.set(node);
}

Queues::Latched::Latched(Queues& queues, OneStripe one) noexcept : queues_(queues), first_(one.number), end_(first_) {
  if (take(first_ + 1, 0))
    queues_.header_->stripes[first_].deciding.set(none);  // nobody is in the middle of a decision
}

bool Queues::Latched::take(unsigned end, std::int64_t patience) noexcept {
  for (; end_ < end; ++end_) {
    Stripe& stripe = queues_.header_->stripes[end_];
    const Latching how = stripe.latch.lock(queues_.processes_, patience);
    if (how == Latching::late) {
      while (end_ > first_) queues_.header_->stripes[--end_].latch.unlock(queues_.processes_);
      return false;
    }
    if (how == Latching::taken_over) queues_.relink(end_);
  }
  return true;
}

Queues::Latched::~Latched() {
  while (end_ > first_) queues_.header_->stripes[--end_].latch.unlock(queues_.processes_);
}

// Model: Z1.
void Queues::sleep(Index w, std::int64_t nanoseconds) const noexcept {
  futex_wait(waiter(w).signal, 0, nanoseconds, processes_.reach());
}

void Queues::tell(Index w) noexcept {
  waiter(w).signal.set(WakeList::told_now());
  futex_wake(waiter(w).signal, 1, processes_.reach());
}

// --- places ----------------------------------------------------------------------------------------------

// A place for a waiter in the stripe's part of the pool; none if all are taken.
Index Queues::take_place(unsigned s) noexcept {
  Stripe& stripe = header_->stripes[s];
  Waiter* const first = waiters_of(s);
  const auto in_stripe = [&](Index index) {
    return index >= waiter_index(*first) && index < waiter_index(*first) + waiters_used(s);
  };
  // Nobody unlinked those who died, or left without the latch: then it is done now.
  if (stripe.free.relaxed() == none && waiters_used(s) == capacity_.waiters_per_stripe) relink(s);
  if (const Index free = stripe.free.relaxed(); free != none) {
    if (in_stripe(free) && waiter(free).process.relaxed() == 0) {
      stripe.free.set(waiter(free).next.relaxed());
      stripe.waiting.set(stripe.waiting.relaxed() + 1);
      return free;
    }
    stripe.free.set(none);  // damaged
  }
  const std::uint32_t place = waiters_used(s);
  if (place == capacity_.waiters_per_stripe) return none;
  Waiter& w = first[place];
  if (place % waiters_per_commit == 0 && region_->in_file() &&
      !region_->commit(static_cast<std::size_t>(reinterpret_cast<std::byte*>(&w) - region_->base()),
                       waiters_per_commit * line)) {
    return none;
  }
  if (w.process.relaxed() != 0) w.process.set(0);  // damaged
  // Before anybody waits there: then the waiter is seen, and collected.
  stripe.used.set(place + 1);
  stripe.waiting.set(stripe.waiting.relaxed() + 1);
  return waiter_index(w);
}

// Of a waiter that is in no ring.
void Queues::free_place(Waiter& w) noexcept {
  const Index index = waiter_index(w);
  Stripe& stripe = header_->stripes[(index - 1) / capacity_.waiters_per_stripe % stripe_count];
  const std::uint32_t waiting = stripe.waiting.relaxed();
  stripe.waiting.set(waiting > 0 ? waiting - 1 : 0);
  w.next.set(stripe.free.relaxed());
  stripe.free.set(index);
  // When nobody is left, walks over the stripe are short again.
  if (waiting <= 1 && stripe.used.relaxed() > waiters_per_commit) {
    stripe.free.set(none);
    stripe.used.set(0);
  }
}

// --- rings -----------------------------------------------------------------------------------------------

std::uint64_t Queues::queue_counts(Index node) const noexcept {
  const Waiter* const first = queued_at(node_at(node).queue.relaxed(), node);
  return first == nullptr ? 0 : first->counts.relaxed();
}

// By its key. Newcomers come last, so for them the ring is walked from its end.
void Queues::join_ring(Waiter& w) noexcept {
  const Index node = w.node.relaxed();
  const Index me = waiter_index(w);
  const QueueKey key = w.key.relaxed();
  const std::uint64_t unit = queue_unit(mode_of(w.mode.relaxed()));
  Waiter* const first = queued_at(node_at(node).queue.relaxed(), node);
  if (first == nullptr) {
    w.next.set(me);
    w.prev.set(me);
    w.counts.set(unit);
    node_at(node).queue.set(me);
    return;
  }
  Waiter* behind = nullptr;  // the first with a higher key
  Waiter* at = key >= newcomer ? queued_at(first->prev.relaxed(), node) : first;
  for (std::uint32_t walked = 0; at != nullptr && walked < capacity_.waiters_per_stripe; ++walked) {
    if (key >= newcomer) {
      if (at->key.relaxed() < key) break;
      behind = at;
      if (at == first) break;
      at = queued_at(at->prev.relaxed(), node);
    } else {
      if (at->key.relaxed() > key) behind = at;
      at = behind != nullptr ? nullptr : queued_at(at->next.relaxed(), node);
      if (at == first) break;
    }
  }
  Waiter& next = behind != nullptr ? *behind : *first;
  Waiter* const found = queued_at(next.prev.relaxed(), node);
  Waiter& prev = found != nullptr ? *found : next;  // damaged
  w.next.set(waiter_index(next));
  w.prev.set(waiter_index(prev));
  prev.next.set(me);
  next.prev.set(me);
  const std::uint64_t counts = first->counts.relaxed() + unit;
  if (behind == first) {
    w.counts.set(counts);
    node_at(node).queue.set(me);
  } else {
    first->counts.set(counts);
  }
}

void Queues::leave_ring(Waiter& w) noexcept {
  const Index node = w.node.relaxed();
  const Index me = waiter_index(w);
  Waiter* const next = queued_at(w.next.relaxed(), node);
  Waiter* const prev = queued_at(w.prev.relaxed(), node);
  Waiter* const first = queued_at(node_at(node).queue.relaxed(), node);
  if (next == &w || next == nullptr || prev == nullptr || first == nullptr) {
    node_at(node).queue.set(none);  // it was the only one; or the ring is damaged, and who was in it looks for itself
  } else {
    const std::uint64_t counts = first->counts.relaxed() - queue_unit(mode_of(w.mode.relaxed()));
    if (first == &w) {
      next->counts.set(counts);
      node_at(node).queue.set(waiter_index(*next));
    } else {
      first->counts.set(counts);
    }
    if (prev->next.relaxed() == me) prev->next.set(waiter_index(*next));
    if (next->prev.relaxed() == me) next->prev.set(waiter_index(*prev));
  }
  w.prev.set(none);
}

// Somebody died while it had the latch. What a waiter says of itself is true; rings and free places follow from it.
// Dying in the middle of this leaves it to the next, who begins again.
void Queues::relink(unsigned s) noexcept {
  const std::lock_guard guard(relink_mutex_);
  Stripe& stripe = header_->stripes[s];
  Waiter* const first = waiters_of(s);
  Relinked* const live = relinked_.get();
  std::uint32_t count = 0;
  Index free = none;
  for (std::uint32_t i = waiters_used(s); i-- > 0;) {
    Waiter& w = first[i];
    if (stripe_of(w.node.relaxed()) == s) node_at(w.node.relaxed()).queue.set(none);
    if (waits(w)) {
      live[count++] = {w.key.relaxed(), waiter_index(w)};
      continue;
    }
    w.process.set(0);
    w.prev.set(none);
    w.next.set(free);
    free = waiter_index(w);
  }
  stripe.free.set(free);
  stripe.waiting.set(count);
  std::sort(live, live + count, [](const Relinked& a, const Relinked& b) { return a.key < b.key; });
  for (std::uint32_t i = 0; i < count; ++i) join_ring(waiter(live[i].waiter));
  // Those who may go are told, and the fast path is open where nobody waits.
  WakeList wake(processes_.reach());
  for (std::uint32_t i = 0; i < waiters_used(s); ++i) {
    const Index node = first[i].node.relaxed();
    const bool told = i > 0 && first[i - 1].node.relaxed() == node;
    if (!told && stripe_of(node) == s) settle(node, wake);
  }
  if (const Index node = stripe.deciding.relaxed(); stripe_of(node) == s) settle(node, wake);
}

bool Queues::anybody_waits(Index node) noexcept {
  for (std::uint32_t walked = 0; walked < capacity_.waiters_per_stripe; ++walked) {
    Waiter* const first = queued_at(node_at(node).queue.relaxed(), node);
    if (first == nullptr) {
      if (node_at(node).queue.relaxed() != none) node_at(node).queue.set(none);  // damaged
      return false;
    }
    if (waits(*first)) return true;
    drop_waiter(*first);
  }
  return false;
}

// --- joining and leaving ---------------------------------------------------------------------------------

bool Queues::queue_conflicts(Index index, Mode mode, QueueKey key) const noexcept {
  const std::uint64_t counts = queue_counts(index);
  const bool none_wants = std::all_of(all_modes.begin(), all_modes.end(),
                                      [&](Mode other) { return !queue_has(counts, other) || compatible(other, mode); });
  if (none_wants) return false;
  bool conflict = false;
  each_in_queue(index, [&](const Waiter& w) {
    if (w.key.relaxed() >= key) return true;
    conflict = !compatible(mode_of(w.mode.relaxed()), mode);
    return conflict;
  });
  return conflict;
}

// Two requests of one owner that conflict with each other never both exist, whichever came first: granted, each would
// keep the other waiting. True if another thread of the owner waits here in a mode that conflicts.
bool Queues::own_waiter_conflicts(const Attempt& a, Index index, Mode mode) const noexcept {
  bool conflict = false;
  each_in_queue(index, [&](const Waiter& w) {
    conflict =
        w.owner.relaxed() == a.owner && w.record.relaxed() != a.record && !compatible(mode_of(w.mode.relaxed()), mode);
    return conflict;
  });
  return conflict;
}

// Model: E1.
Index Queues::enqueue(const Attempt& a, Index node, Mode mode, QueueKey key, bool entangled) {
  const Index place = take_place(stripe_of(node));
  if (place == none) return none;
  Waiter& w = waiter(place);
  w.signal.set(0);
  w.key.set(key);
  w.since.set(coarse_time());
  w.node.set(node);
  w.record.set(a.record);
  w.owner.set(a.owner);
  w.wanted.set(a.wanted);
  w.mode.set(static_cast<std::uint32_t>(mode));
  w.entangled.set(entangled ? 1 : 0);  // counted by the caller
  join_ring(w);
  w.process.set(processes_.self());
  return place;
}

// One that waits, or did.
void Queues::drop_waiter(Waiter& w) noexcept {
  w.process.set(0);
  w.wanted.set(none);
  leave_ring(w);
  free_place(w);
}

// Model: P4, Z2.
void Queues::leave_queue(Attempt& a) noexcept {
  Waiter& w = waiter(a.waiter);
  a.waiter = none;
  if (w.process.relaxed() != processes_.self() || w.record.relaxed() != a.record) return;  // we were taken for dead
  const bool entangled = w.entangled.relaxed() != 0;
  drop_waiter(w);
  if (entangled) own_entangled().subtract(1);
}

// --- telling ---------------------------------------------------------------------------------------------

// Model: T1 to T4. Under the latch, after any change: sets `queued` to whether anybody waits, and tells those who may
// go now (I5).
void Queues::settle(Index index, WakeList& wake, std::optional<std::uint64_t> slots_held) noexcept {
  Node& node = node_at(index);
  const bool anybody = is_slots(node) ? tell_slots(index, wake, slots_held) : tell_modes(index, wake);
  const bool set = (node.word.relaxed() & word::queued) != 0;
  if (set != anybody) node.word.change_bits(anybody ? 0 : word::queued, anybody ? word::queued : 0);
}

// As many as there are free slots, the first in the queue first, in one walk.
bool Queues::tell_slots(Index index, WakeList& wake, std::optional<std::uint64_t> slots_held) noexcept {
  if (!anybody_waits(index)) return false;
  const Node& node = node_at(index);
  const std::uint64_t held = slots_held ? *slots_held : holders_.count_holders(index).s;
  const std::uint64_t slots = node.slots().relaxed();
  std::uint64_t free = slots > held ? slots - held : 0;
  int going = 0;
  each_in_queue(index, [&](Waiter& w) {
    if (free == 0) return true;
    --free;
    if (wake.add(w)) ++going;
    return going == WakeList::most_at_once;
  });
  return true;
}

// Those that conflict with no holder and no earlier waiter (I4), the first in the queue first. The walk ends where
// nobody further back may go.
//
// Nobody further back needs to be told because a grant has made its owner a holder in a covering mode (I4). Suppose
// that W waits behind E, in conflict with it, and a request R of W's owner is granted in a mode that covers W's. Then R
// is in conflict with E as well, so E waits for that owner from the moment that R stands before E or is let past it,
// and W's owner waits for E. Only a crowd has two requests at a time, and those of a crowd are looked at for cycles
// with all latches: when W joins the queue, when R does, and when R passes it. The last of these was refused. A lock
// that is handed over is no grant: give() tells the waiters of its new owner.
bool Queues::tell_modes(Index index, WakeList& wake) noexcept {
  if (!anybody_waits(index)) return false;
  constexpr auto bit = [](Mode mode) { return 1u << static_cast<unsigned>(mode); };
  const std::uint64_t counts = queue_counts(index);
  unsigned wanted = 0;  // modes that somebody in the queue wants
  for (const Mode mode : all_modes) wanted |= queue_has(counts, mode) ? bit(mode) : 0;
  unsigned behind = 0;  // modes that conflict with somebody seen so far
  unsigned asked = 0, held_up = 0;
  // Whether the holders keep a newcomer waiting who wants this mode: asked once a mode.
  const auto newcomer_held_up = [&](Mode mode) {
    if ((asked & bit(mode)) == 0 && holders_.holders_conflict(index, mode, none)) held_up |= bit(mode);
    asked |= bit(mode);
    return (held_up & bit(mode)) != 0;
  };
  int going = 0;
  each_in_queue(index, [&](Waiter& w) {
    const Mode mode = mode_of(w.mode.relaxed());
    const bool here = w.key.relaxed() < newcomer;  // its record may hold the node already, through the lock it extends
    if ((behind & bit(mode)) == 0) {
      const bool waits = here ? holders_.holders_conflict(index, mode, w.record.relaxed()) : newcomer_held_up(mode);
      if (!waits && wake.add(w) && ++going == WakeList::most_at_once) return true;
    }
    for (const Mode other : all_modes) behind |= compatible(mode, other) ? 0 : bit(other);
    for (const Mode other : all_modes) {
      if ((wanted & ~behind & bit(other)) != 0 && (here || !newcomer_held_up(other))) return false;
    }
    return true;
  });
  return true;
}

void Queues::tell_queue(Index index) noexcept {
  // With a stopped process in the way, those who wait look for themselves (I5); and who has many to tell is not kept.
  // Each stripe has a time of its own: that one was late takes no patience from the others.
  constexpr std::int64_t just_now = 100'000'000;
  std::atomic<std::int64_t>& last_late = last_late_[stripe_of(index)];
  const bool late = shared() && coarse_time() - last_late.load(std::memory_order_relaxed) < just_now;
  WakeList wake(processes_.reach());
  const Latched latched(*this, index, false, late ? 0 : patience_);
  if (latched.taken()) {
    settle(index, wake);
  } else {
    last_late.store(coarse_time(), std::memory_order_relaxed);
  }
}

void Queues::tell_queue_of_number(Index number) noexcept {
  if (number == none || number / arena_size >= arenas_used()) return;
  const Index node = arena_at(number / arena_size).node[number % arena_size].ordered();
  if (node != none && node != nobodys_node && (node_at(node).word.ordered() & word::queued) != 0) tell_queue(node);
}

// So that it finds out that its lock was taken away.
void Queues::tell_waiter_of(Index record) noexcept {
  for (unsigned s = 0; s < stripe_count; ++s) {
    each_waiter(s, [&](const Waiter& w) {
      if (w.record.acquire() == record) tell(waiter_index(w));
    });
  }
}

// Model: C2 and C3. Removes the waiters of dead processes from a stripe, and tells those who may go now. Also takes the
// latch over, if it names a dead process. False if another process has it.
bool Queues::tidy_stripe(unsigned s) noexcept {
  WakeList wake(processes_.reach());
  const Latched latched(*this, Latched::OneStripe{s});
  if (!latched.taken()) return false;
  std::array<Index, 16> settled{};  // a few are remembered; settling a node twice is harmless
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < waiters_used(s); ++i) {
    Waiter& w = waiters_of(s)[i];
    const ProcessRef process = w.process.acquire();
    if (process == 0) continue;
    const Index node = w.node.acquire();
    const bool dead = !processes_.live(process);
    if (dead) {
      header_->stripes[s].deciding.set(node);  // if this process dies before it settles the node, the next one does
      drop_waiter(w);
    }
    if (!dead && std::find(settled.begin(), settled.end(), node) != settled.end()) continue;
    settled[count++ % settled.size()] = node;
    settle(node, wake);
  }
  return true;
}

}  // namespace hierlock::engine
