#include "engine/recovery.h"

#include <time.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/text.h"

namespace hierlock::engine {

namespace {

constexpr std::int64_t soon_interval = 1'000'000;        // ns between two looks for the dead, by those who ask once
constexpr std::int64_t thorough_interval = 150'000'000;  // and for forked children that hide a death, by each process
// Between two times of which the first was read from the table: whatever that says, it is no overflow.
constexpr std::int64_t elapsed(std::int64_t from, std::int64_t to) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from));
}

constexpr std::int64_t break_patience = 100'000'000;  // for latches, where a lock may have been missed
constexpr std::size_t most_logged = 100;              // bytes of what a process held

void clear_indices(std::initializer_list<Cell<Index>*> fields) noexcept {
  for (Cell<Index>* field : fields) {
    if (field->relaxed() != none) field->set(none);
  }
}

}  // namespace

Recovery::Recovery(Mapping& mapping, Queues& queues, Nodes& nodes, Records& records, Tallies& tallies, Names& names,
                   Log& log)
    : Parts(mapping.parts()),
      mapping_(mapping),
      queues_(queues),
      nodes_(nodes),
      records_(records),
      tallies_(tallies),
      names_(names),
      log_(log) {}

// --- death -----------------------------------------------------------------------------------------------

template <class F>
bool Recovery::any_chunk_of(ProcessRef dead, const ChunkPool& pool, const Area& area, F f) const {
  const Index chunks = std::min(pool.next.ordered(), area.chunks);
  for (Index chunk = 0; chunk < chunks; ++chunk) {
    if (Processes::left_by(dead, chunk_owner(area, chunk).ordered()) && f(chunk)) return true;
  }
  return false;
}

bool Recovery::recover(bool soon, std::int64_t budget) noexcept {
  return watch(soon ? soon_interval : nobody_watches, budget) == Watch::found;
}

Recovery::Watch Recovery::watch(std::int64_t interval, std::int64_t budget) noexcept {
  if (processes_.alone() || mapping_.lost()) return Watch::not_due;
  const std::int64_t now = coarse_time();
  std::int64_t last = header_->last_watch.ordered();
  // A time ahead is from before the machine's last restart, or damage.
  if (last <= now && elapsed(last, now) < interval) return Watch::not_due;
  if (!header_->last_watch.cas(last, now)) return Watch::not_due;  // somebody else is about to look
  const bool thorough = now - last_thorough_.load(std::memory_order_relaxed) >= thorough_interval;
  if (thorough) last_thorough_.store(now, std::memory_order_relaxed);
  return recover_now(thorough, budget) ? Watch::found : Watch::nothing;
}

bool Recovery::begin_duty() noexcept {
  ProcessRef seen = header_->on_duty.ordered();
  if (seen == processes_.self()) return true;
  const std::int64_t ago = elapsed(header_->last_watch.ordered(), coarse_time());
  if (seen != 0 && processes_.runs(seen) && ago >= 0 && ago < nobody_watches) return false;
  return header_->on_duty.cas(seen, processes_.self());
}

void Recovery::end_duty() noexcept {
  ProcessRef self = processes_.self();
  if (header_->on_duty.ordered() == self) header_->on_duty.cas(self, 0);
}

bool Recovery::recover_now(bool thorough, std::int64_t nanoseconds) noexcept {
  if (processes_.alone() || mapping_.lost()) return false;
  const Budget budget(nanoseconds);
  std::size_t found = 0;
  const std::uint32_t used = processes_.used();
  for (std::uint32_t slot = 1; slot < used; ++slot) {
    const bool was_live = processes_.slot_live(slot);
    if (!processes_.find_dead(slot, thorough) || !was_live) continue;
    if (++found <= LogRing::size) log_death(slot);  // the log has no room for more
  }
  if (found > 0) nodes_.note_release();
  tell_of_deaths(budget);
  // In turn, so that a dead process that cannot be finished keeps no other from being collected.
  const std::uint32_t first = next_collect_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < used; ++i) {
    const std::uint32_t slot = (first + i) % used;
    const ProcessRef dead = processes_.dead(slot);
    if (dead == 0) continue;
    collect(dead, budget);
    next_collect_.store(slot + 1, std::memory_order_relaxed);
    if (budget.spent()) break;
  }
  if (found > 0) header_->deaths.add(1);  // after those who may go were told: whoever looks now finds it so
  return found > 0;
}

bool Recovery::anything_left() const noexcept {
  const std::uint32_t used = processes_.used();
  for (std::uint32_t slot = 1; slot < used; ++slot) {
    if (processes_.dead(slot) != 0) return true;
  }
  return false;
}

// A process that held nothing is of no interest: it looked, and was killed by a pipe that nobody reads.
void Recovery::log_death(std::uint32_t slot) noexcept {
  try {
    std::string held;
    std::vector<std::string> targets;
    any_chunk_of(processes_.ref(slot), header_->records, at_.records, [&](Index chunk) {
      for (Index r = chunk * chunk_size; r < (chunk + 1) * chunk_size && held.size() <= most_logged; ++r) {
        if (record_state(record_at(r).word.acquire()) == RecordState::free) continue;
        for (std::string& target : names_.record_targets(r)) {
          held += (held.empty() ? "" : ", ") + target;
          targets.push_back(std::move(target));
        }
      }
      return held.size() > most_logged;
    });
    if (held.empty()) return;
    if (held.size() > most_logged) held = std::string(plan::cut_short(held, most_logged)) + "…";
    log_.write_log({"process " + std::to_string(processes_.slot(slot).pid.acquire()) + " died, releasing " + held +
                        ": " + processes_.program(slot),
                    std::move(targets)});
  } catch (...) {  // no memory for the words
  }
}

// Model: M1 and M2. Settles all queues, once after each death: whatever the dead held, wanted or waited for, those who
// may go are told. Whoever waits in the stripe of a stopped process looks for itself (I5).
void Recovery::tell_of_deaths(const Budget& budget) noexcept {
  std::array<ProcessRef, process_count> untold;  // not initialised
  std::size_t count = 0;
  for (std::uint32_t slot = 1; slot < processes_.used(); ++slot) {
    const ProcessRef dead = processes_.dead(slot);
    if (dead != 0 && header_->collecting[slot].told.acquire() != dead) untold[count++] = dead;
  }
  if (count == 0) return;
  const std::uint32_t first = next_collect_.load(std::memory_order_relaxed);
  for (unsigned i = 0; i < stripe_count; ++i) {
    const unsigned s = (first + i) % stripe_count;
    if (waiters_used(s) == 0) continue;
    queues_.tidy_stripe(s);
    if (budget.spent()) return;
  }
  // By name: this may be written late, when the slot is another's. Then the queues are settled once more.
  for (std::size_t i = 0; i < count; ++i) header_->collecting[slot_of(untold[i])].told.set(untold[i]);
}

// --- collecting ------------------------------------------------------------------------------------------

// Model: C0 and C7. False if something is left.
bool Recovery::collect(ProcessRef dead, const Budget& budget) noexcept {
  const std::uint32_t slot = slot_of(dead);
  Latch& latch = header_->collecting[slot].latch;
  if (latch.lock(processes_, 0) == Latching::late) return false;  // another process collects it, or is stopped at it
  const bool done = processes_.dead(slot) == dead && collect_garbage(dead, budget);
  if (done) processes_.free_slot(dead);
  latch.unlock(processes_);
  return done;
}

// What an earlier process left whose slot is this one's now. If it cannot be collected, or not all of it, the rest is
// collected together with what this process leaves.
void Recovery::collect_before(ProcessRef dead) noexcept {
  Latch& latch = header_->collecting[slot_of(dead)].latch;
  if (latch.lock(processes_, 0) == Latching::late) return;
  collect_garbage(dead, Budget(unhurried));
  latch.unlock(processes_);
}

// Model: C1 to C6, in the order C4, C2, C3, C1, C6, C5. Under the latch of the slot. False if something is left: time
// is up, or a stopped process is in the way of the queues.
bool Recovery::collect_garbage(ProcessRef dead, const Budget& budget) noexcept {
  const bool queues = collect_latches(dead, budget);
  if (!collect_records(dead, budget)) return false;
  const bool owners_left = any_chunk_of(dead, header_->owners, at_.owners, [&](Index chunk) {
    for (Index o = chunk * chunk_size; o < (chunk + 1) * chunk_size; ++o) {
      OwnerSlot& owner = owner_at(o);
      const std::uint64_t free = (owner.word.relaxed() >> 32) << 32 | static_cast<std::uint32_t>(OwnerState::free);
      if (owner.word.relaxed() != free) owner.word.set(free);
      clear_indices({&owner.records, &owner.linked, &owner.name, &owner.process});
      if (owner.returned.relaxed() != 0) owner.returned.set(0);
    }
    records_.free_chunk(header_->owners, at_.owners, chunk);
    return budget.spent();
  });
  if (owners_left) return false;
  // The records go first: their lists are in blocks.
  const bool blocks_left = any_chunk_of(dead, header_->blocks, at_.blocks, [&](Index chunk) {
    records_.free_chunk(header_->blocks, at_.blocks, chunk);
    return budget.spent();
  });
  return !blocks_left && tallies_.collect_lanes(dead, budget) && queues;
}

// Model: C4. Takes over the latches that still name the dead process, and removes its waiters.
bool Recovery::collect_latches(ProcessRef dead, const Budget& budget) noexcept {
  bool all = true;
  for (unsigned s = 0; s < stripe_count; ++s) {
    const Waiter* const first = waiters_of(s);
    const bool there = Processes::left_by(dead, header_->stripes[s].latch.process()) ||
                       std::any_of(first, first + waiters_used(s),
                                   [&](const Waiter& w) { return Processes::left_by(dead, w.process.acquire()); });
    if (there && !queues_.tidy_stripe(s)) all = false;
  }
  // Making the index again takes time: a hurried caller leaves it to whoever needs the latch next.
  if (Processes::left_by(dead, header_->index_latch.process())) {
    if (budget.hurried() || !Nodes::Guard(nodes_, 0).taken()) all = false;
  }
  return all;
}

// Model: C1 and C6. Chunk by chunk: each record names every word that may name it, so a chunk needs no other to be
// collected.
bool Recovery::collect_records(ProcessRef dead, const Budget& budget) noexcept {
  return !any_chunk_of(dead, header_->records, at_.records, [&](Index chunk) {
    for (Index r = chunk * chunk_size; r < (chunk + 1) * chunk_size; ++r) {
      if (!drop_words(record_at(r), dead, budget)) return true;
    }
    for (Index r = chunk * chunk_size; r < (chunk + 1) * chunk_size; ++r) {
      Record& record = record_at(r);
      const std::uint64_t free = record_word(record_generation(record.word.relaxed()), RecordState::free);
      if (record.word.relaxed() != free) record.word.set(free);
      clear_indices({&record.owner, &record.process, &record.next_of_owner, &record.want, &record.node, &record.steps,
                     &record.note});
    }
    records_.free_chunk(header_->records, at_.records, chunk);
    return budget.spent();
  });
}

// What a record wants is written before the word is changed, and what it has is forgotten after. Which of the process's
// records a word names does not matter. A long list is shortened on the way, so that the next look need not begin
// again. False if time is up.
bool Recovery::drop_words(Record& record, ProcessRef dead, const Budget& budget) noexcept {
  constexpr Index at_a_time = 64;
  drop_word(record.want.acquire(), dead);
  drop_word(record.node.acquire(), dead);
  Index block = record.steps.acquire();
  for (Index walked = 1; block != none && walked < blocks_end(); ++walked) {
    for (const auto& step : block_at(block).word) drop_word(step_node(step.acquire()), dead);
    block = block_at(block).next.acquire();
    if (walked % at_a_time != 0) continue;
    record.steps.set(block);
    if (budget.spent()) return false;
  }
  return true;
}

// Model: C1. Between the look and the compare-and-swap the word cannot come to name a living process: the record is the
// dead one's as long as the latch of its slot is ours.
void Recovery::drop_word(Index index, ProcessRef dead) noexcept {
  if (index == none) return;
  Node& node = node_at(index);
  std::uint64_t w = node.word.ordered();
  for (;;) {
    const auto holder = static_cast<Index>(w & word::holder);
    if (holder == none || !Processes::left_by(dead, record_at(holder).process.acquire())) return;
    if (node.word.cas(w, w & ~word::holder)) return;
  }
}

}  // namespace hierlock::engine
