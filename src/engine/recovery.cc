// Recovery: what becomes of what a dead process had, and of what an operator takes away.
//
// A process is dead from the instant its slot says so (processes.h); nothing it had counts any more. So nothing here is
// urgent and nothing has to be done at once: words that name it are cleared, waiters of its taken out of the queues,
// those who waited for it told, its memory given to others, and its slot, last of all. Each step may be repeated, by
// another process, from the beginning: every one looks for what the dead process has and is done when there is none.
#include <time.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include <hierlock/error.h>

#include "engine/find.h"
#include "engine/table.h"
#include "plan/text.h"

namespace hierlock::engine {

namespace {

constexpr std::int64_t watch_interval = 15'000'000;      // ns between two looks for the dead, by anybody
constexpr std::int64_t soon_interval = 1'000'000;        // or, for somebody who will not look again
constexpr std::int64_t collect_patience = 1'000'000;     // for latches: what is late is done at the next look
constexpr std::int64_t thorough_interval = 100'000'000;  // and for forked children that hide a death, by each process
constexpr std::size_t most_logged = 100;                 // bytes of what a process held

}  // namespace

// --- death -----------------------------------------------------------------------------------------------

bool Table::recover(bool soon) noexcept {
  if (processes_.alone() || lost()) return false;
  const std::int64_t now = coarse_time();
  std::int64_t due = header_->next_watch.ordered();
  // Not after: somebody is about to look. A time far ahead is from before the machine's last restart, or damage.
  const std::int64_t interval = soon ? soon_interval : watch_interval;
  if (now < due - watch_interval + interval && due - now <= watch_interval) return false;
  if (!header_->next_watch.cas(due, now + watch_interval)) return false;
  const bool thorough = now - last_thorough_.load(std::memory_order_relaxed) >= thorough_interval;
  if (thorough) last_thorough_.store(now, std::memory_order_relaxed);
  return recover_now(thorough);
}

bool Table::recover_now(bool thorough) noexcept {
  if (processes_.alone() || lost()) return false;
  bool found = false;
  bool collects = true;  // until a stopped process is in the way: then it would be in the way of each of the dead
  for (std::uint32_t slot = 1; slot < processes_.used(); ++slot) {
    const bool was_live = processes_.slot_live(slot);
    if (!processes_.find_dead(slot, thorough)) continue;
    if (was_live) {
      found = true;
      log_death(slot);
    }
    collects = collects && collect(processes_.ref(slot));
  }
  return found;
}

// Whoever held nothing is of no interest: somebody who looked, and was killed by a pipe that nobody reads.
void Table::log_death(std::uint32_t slot) noexcept {
  try {
    std::string held;
    each_entry_of(processes_.ref(slot), header_->records, at_.records, [&](Index r) {
      if (record_state(record_at(r).word.acquire()) == RecordState::free || held.size() > most_logged) return;
      const std::string text = record_text(r);
      if (!text.empty()) held += (held.empty() ? "" : ", ") + text;
    });
    if (held.empty()) return;
    if (held.size() > most_logged) held = std::string(plan::cut_short(held, most_logged)) + "…";
    write_log("process " + std::to_string(processes_.slot(slot).pid.acquire()) + " died, releasing " + held + ": " +
              processes_.command(slot));
  } catch (...) {  // no memory for the words
  }
}

// Model: C0 and C7. One at a time: who collects clears what names the dead, and must not go on when somebody else has
// finished and it names the living again.
bool Table::collect(ProcessRef dead) noexcept {
  const std::uint32_t slot = slot_of(dead);
  // Whoever is at it, or stopped at it, is left to it: nothing is urgent.
  if (header_->recovery_latch.lock(processes_, 0) == Latching::late) return false;
  bool done = true;
  if (processes_.state(slot) == ProcessState::dead && processes_.ref(slot) == dead) {
    done = collect_garbage(dead);
    if (done) processes_.free_slot(dead);
  }
  header_->recovery_latch.unlock(processes_);
  return done;
}

// Of a process whose slot is this one's now. What is left, because a stopped process is in the way, is collected when
// this one is gone, too.
void Table::collect_all_of(ProcessRef dead) noexcept {
  if (header_->recovery_latch.lock(processes_, join_patience) == Latching::late) return;
  collect_garbage(dead);
  header_->recovery_latch.unlock(processes_);
}

// Model: C1 to C6. Under recovery_latch. False if a stopped process was in the way of some of it.
bool Table::collect_garbage(ProcessRef dead) noexcept {
  // Words before waiters: those who are told then find them gone.
  each_entry_of(dead, header_->records, at_.records, [&](Index r) { drop_words(record_at(r), dead); });
  for (unsigned s = 0; s < stripe_count; ++s) {
    if (!drop_waiters(s, dead)) return false;
  }
  if (header_->index_latch.names(dead) && !IndexGuard(*this, collect_patience).taken()) return false;
  // One more than were given: somebody may be giving one, and others count in it already.
  const Index tallies = std::min(header_->tallies.next.ordered() + 1, capacity_.tallies);
  for (std::uint32_t lane = 0; lane < lanes_used(); ++lane) {
    if (!Processes::left_by(dead, header_->lanes[lane].process.ordered())) continue;
    for (Index t = 0; t < tallies; ++t) {
      Tally& tally = tally_of(lane, t);
      if (tally.intents.relaxed() != 0) tally.intents.set(0);
      if (tally.shared.relaxed() != 0) tally.shared.set(0);
    }
    header_->lanes[lane].process.exchange(0);
  }
  const auto clear = [](std::initializer_list<Cell<Index>*> fields) {
    for (Cell<Index>* field : fields) {
      if (field->relaxed() != none) field->set(none);
    }
  };
  each_entry_of(dead, header_->owners, at_.owners, [&](Index o) {
    OwnerSlot& owner = owner_at(o);
    const std::uint64_t free = (owner.word.relaxed() >> 32) << 32 | static_cast<std::uint32_t>(OwnerState::free);
    if (owner.word.relaxed() != free) owner.word.set(free);
    clear({&owner.records, &owner.returned, &owner.name, &owner.process});
  });
  each_entry_of(dead, header_->records, at_.records, [&](Index r) {
    Record& record = record_at(r);
    const std::uint64_t free = record_word(record_generation(record.word.relaxed()), RecordState::free);
    if (record.word.relaxed() != free) record.word.set(free);
    clear({&record.owner, &record.process, &record.next_of_owner, &record.want, &record.node, &record.steps,
           &record.note});
  });
  const auto free_chunks = [&](ChunkPool& pool, const Area& area) {
    for (Index chunk = 0; chunk < std::min(pool.next.ordered(), area.chunks); ++chunk) {
      if (Processes::left_by(dead, chunk_owner(area, chunk).ordered())) free_chunk(pool, area, chunk);
    }
  };
  free_chunks(header_->records, at_.records);
  free_chunks(header_->owners, at_.owners);
  free_chunks(header_->blocks, at_.blocks);
  return true;
}

template <class F>
void Table::each_entry_of(ProcessRef dead, const ChunkPool& pool, const Area& area, F f) const {
  const Index chunks = std::min(pool.next.ordered(), area.chunks);
  for (Index chunk = 0; chunk < chunks; ++chunk) {
    if (!Processes::left_by(dead, chunk_owner(area, chunk).ordered())) continue;
    for (Index i = chunk == 0 ? 1 : 0; i < chunk_size; ++i) f(chunk * chunk_size + i);
  }
}

// A record names every node whose word may name it: what it wants is written before the word, and what it has is
// forgotten after. Which of the process's records the word names does not matter: locks are handed over.
void Table::drop_words(const Record& record, ProcessRef dead) noexcept {
  drop_word(record.want.acquire(), dead);
  drop_word(record.node.acquire(), dead);
  Index block = record.steps.acquire();
  for (Index walked = 0; block != none && walked < blocks_end(); ++walked, block = block_at(block).next.acquire()) {
    for (const auto& step : block_at(block).word) drop_word(step_node(step.acquire()), dead);
  }
}

// Model: C1.
void Table::drop_word(Index index, ProcessRef dead) noexcept {
  if (index == none) return;
  Node& node = node_at(index);
  std::uint64_t w = node.word.ordered();
  for (;;) {
    const auto holder = static_cast<Index>(w & word::holder);
    if (holder == none || !Processes::left_by(dead, record_at(holder).process.acquire())) return;
    if (node.word.cas(w, w & ~word::holder)) return;
  }
}

// Model: C2 to C4. Takes a dead process's waiters out of a stripe, and tells those who waited for it. Also takes the
// latch over, if it still names the dead. False if a stopped process has it.
bool Table::drop_waiters(unsigned s, ProcessRef dead) noexcept {
  WakeList wake(processes_.reach());
  const Latched latched(*this, s, false, collect_patience);
  if (!latched.taken()) return false;
  for (std::uint32_t i = 0; i < waiters_used(s); ++i) {
    Waiter& w = waiters_of(s)[i];
    if (w.waiting.acquire() == 0 || !Processes::left_by(dead, w.process.acquire())) continue;
    const Index node = w.node.acquire();
    w.waiting.set(0);
    settle(node, wake);
  }
  Index settled = none;
  each_waiter(s, [&](const Waiter& w) {
    const Index node = w.node.acquire();
    if (node != settled) settle(node, wake);
    settled = node;
  });
  return true;
}

std::uint32_t Table::processes() const noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t slot = 1; slot < processes_.used(); ++slot) {
    if (processes_.state(slot) != ProcessState::free) ++count;
  }
  return count;
}

bool Table::anybody_entangled() const noexcept {
  for (std::uint32_t slot = 1; slot < processes_.used(); ++slot) {
    if (processes_.slot(slot).entangled.ordered() != 0 && processes_.slot_live(slot)) return true;
  }
  return false;
}

int Table::lifeline() noexcept {
  if (processes_.alone()) return -1;
  processes_.slot(processes_.self_slot()).lifeline.set(1);
  return file_->descriptor();
}

// --- an operator's hand ----------------------------------------------------------------------------------

std::size_t Table::break_locks(std::span<const spi::Step> steps) {
  Index target = none;
  std::uint64_t w = 0;
  for (const spi::Step& step : steps) {
    target = find(index_now(), key_of(step), target, w);
    if (target == none) return 0;
  }
  // Whoever dies meanwhile is not collected, so its records, lanes and words stay its own.
  if (header_->recovery_latch.lock(processes_, join_patience) == Latching::late) {
    throw Error(ErrorKind::unavailable,
                "a stopped process keeps the table from being changed: let it go on, or kill it");
  }
  struct Unlock {
    Table& table;
    ~Unlock() { table.header_->recovery_latch.unlock(table.processes_); }
  } const unlock{*this};
  std::size_t broken = 0;
  std::vector<Held> held;
  for (Index r = 1; r < records_end(); ++r) {
    Record& record = record_at(r);
    std::uint64_t before = record.word.acquire();
    if (record_state(before) != RecordState::held || !live_record(r)) continue;
    const std::uint32_t stayed_stronger = record.stayed_stronger.acquire();
    held.clear();
    bool asked = false;
    any_hold(record, [&](Index node, Mode mode, bool was_asked) {
      held.push_back({node, mode});
      asked = asked || (was_asked && node == target);
      return false;
    });
    if (!asked) continue;
    // If this succeeds, what was read is what it held: a record leaves `held` by a compare-and-swap only, or, with one
    // exclusive node, by that node's word; and comes back with another generation if it holds something else, or
    // counts that it does. From here on its owner finds it lost, and gives back only the intentions on ancestors
    // (Table::release).
    if (!record.word.cas(before, record_word(record_generation(before), RecordState::broken))) continue;
    ++broken;
    if (record.stayed_stronger.ordered() != stayed_stronger) continue;  // as if this process died here
    for (const Held& hold : held) break_hold(r, record_generation(before), hold);
  }
  return broken;
}

// Counted holds are subtracted in a lane of their own process, so that they still mean something only together. If this
// process dies before it is done, too much is counted until the other one ends, never too little.
void Table::break_hold(Index index, std::uint32_t generation, const Held& held) noexcept {
  const Record& record = record_at(index);
  Node& node = node_at(held.node);
  WakeList wake(processes_.reach());
  if (is_slots(node) || held.mode == Mode::S) {
    const ProcessRef process = record.process.acquire();
    const std::uint32_t lane = processes_.slot(slot_of(process)).common_lane.acquire();
    if (lane >= capacity_.lanes || header_->lanes[lane].process.ordered() != process) return;
    tally_of(lane, node.tally.acquire()).shared.subtract(1);
    tell_queue(held.node);
  } else if (held.mode == Mode::X) {
    // Its owner may be giving it back at this moment, and even have taken it again with the same record: not while the
    // latch is ours and the fast path is shut, so if the record is still the broken one, the word is the broken one's.
    const Latched latched(*this, held.node, false, join_patience);
    if (!latched.taken()) return;  // its owner clears it when it lets go
    std::uint64_t w = node.word.change_bits(0, word::queued) | word::queued;
    if (record.word.ordered() == record_word(generation, RecordState::broken)) {
      while ((w & word::holder) == index && !node.word.cas(w, w & ~word::holder)) {
      }
    }
    settle(held.node, wake);
  }
}

// --- the log ---------------------------------------------------------------------------------------------

void Table::write_log(std::string_view text) noexcept {
  if (processes_.alone()) return;
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  const std::uint64_t ticket = header_->log_next.add(1);
  LogEntry& entry = header_->log[ticket % log_size];
  entry.ticket.exchange(0);
  entry.when.set(std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec);
  for (std::size_t i = 0; i < LogEntry::words; ++i) {
    std::uint64_t bytes = 0;
    if (i * 8 < text.size()) std::memcpy(&bytes, text.data() + i * 8, std::min<std::size_t>(8, text.size() - i * 8));
    entry.text[i].set(bytes);
  }
  entry.ticket.set(ticket + 1);
}

std::vector<Table::LogCopy> Table::read_log() const {
  std::vector<std::pair<std::uint64_t, LogCopy>> found;
  for (const LogEntry& entry : header_->log) {
    const std::uint64_t ticket = entry.ticket.acquire();
    if (ticket == 0) continue;
    std::string text(LogEntry::words * 8, '\0');
    for (std::size_t i = 0; i < LogEntry::words; ++i) {
      const std::uint64_t bytes = entry.text[i].acquire();
      std::memcpy(text.data() + i * 8, &bytes, 8);
    }
    text.resize(strnlen(text.data(), text.size()));
    LogCopy copy{entry.when.acquire(), std::move(text)};
    if (entry.ticket.acquire() == ticket) found.emplace_back(ticket, std::move(copy));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<LogCopy> log;
  for (auto& [ticket, copy] : found) log.push_back(std::move(copy));
  return log;
}

}  // namespace hierlock::engine
