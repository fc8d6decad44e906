#include "engine/look.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace hierlock::engine {

Look::Look(const Parts& parts, const Lanes& lanes, const Holders& holders, const Records& records, const Names& names)
    : Parts(parts), lanes_(lanes), holders_(holders), records_(records), names_(names) {}

Look::PartyCopy Look::copy_party(Index owner, Index record) const {
  const std::uint32_t slot = slot_of(owner_at(owner).process.acquire());
  return {names_.owner_identity(owner),        names_.owner_name(owner), read_text(record_at(record).note.acquire()),
          processes_.slot(slot).pid.acquire(), processes_.program(slot), slot};
}

Look::Copy Look::copy() const {
  Copy result;
  const Index owners = owners_end();
  for (Index owner = 0; (owner = next_live(at_.owners, owner + 1, owners)) < owners;) {
    if (!processes_.live(owner_at(owner).process.acquire())) continue;
    const auto copy_record = [&](Index r) {
      const Record& record = record_at(r);
      const std::uint64_t before = record.word.acquire();
      if (record_state(before) == RecordState::free) return false;
      const std::size_t first = result.holders.size();
      const std::size_t party = result.parties.size();
      result.parties.push_back(copy_party(owner, r));
      const bool held = record_state(before) == RecordState::held;
      const std::int64_t fence = record.fence.acquire();
      const std::int64_t since = fence != 0 ? record.since.acquire() : 0;
      any_hold(record, [&](Index node, Mode mode, bool asked) {
        result.holders.push_back({owner, r, node, mode, asked, held ? fence : 0, since, party, names_.node_text(node)});
        return false;
      });
      // While it is the same lock, its owner, its note and the nodes it holds stay what they are. Otherwise we may have
      // seen a mixture; also if it was broken meanwhile, because then its nodes may stand for other keys.
      const std::uint64_t after = record.word.acquire();
      const bool broken = record_state(before) != RecordState::broken && record_state(after) == RecordState::broken;
      if (!same_lock(after, before) || record_state(after) == RecordState::free || broken) {
        result.holders.resize(first);
        result.parties.pop_back();
      }
      return false;
    };
    constexpr int most = 64;
    const std::size_t holders = result.holders.size();
    const std::size_t parties = result.parties.size();
    bool whole = false;
    for (int i = 0; i < most && !whole; ++i) {
      result.holders.resize(holders);
      result.parties.resize(parties);
      walk_records_of(owner, whole, copy_record);
    }
  }
  for (unsigned s = 0; s < stripe_count; ++s) {
    each_waiter(s, [&](const Waiter& w) {
      const ProcessRef process = w.process.acquire();
      const QueueKey key = w.key.acquire();
      const Index node = w.node.acquire();
      WaiterCopy copy{w.owner.acquire(),
                      w.record.acquire(),
                      node,
                      waiter_index(w),
                      mode_of(w.mode.acquire()),
                      key,
                      w.since.acquire(),
                      result.parties.size(),
                      names_.node_text(node),
                      read_text(w.wanted.acquire())};
      const Record& record = record_at(copy.record);
      const std::uint64_t before = record.word.acquire();
      PartyCopy party = copy_party(copy.owner, copy.record);
      if (w.process.acquire() != process || w.key.acquire() != key || w.node.acquire() != node) return;
      // The first in a queue has the same key each time, so another request may have taken the place meanwhile. A
      // record is free before it loses its note.
      const std::uint64_t after = record.word.acquire();
      if (!same_lock(after, before) || record_state(after) == RecordState::free) return;
      if (w.record.acquire() != copy.record || w.owner.acquire() != copy.owner) return;
      result.parties.push_back(std::move(party));
      result.waiters.push_back(std::move(copy));
    });
  }
  std::sort(result.waiters.begin(), result.waiters.end(),
            [](const WaiterCopy& a, const WaiterCopy& b) { return std::tie(a.node, a.key) < std::tie(b.node, b.key); });
  return result;
}

std::vector<Index> Look::blockers(const Copy& copy, const WaiterCopy& waiter) const {
  std::vector<Index> owners;
  const bool slot = is_slots(node_at(waiter.node));
  std::size_t held = 0;
  for (const HolderCopy& h : copy.holders) {
    if (h.node != waiter.node || h.record == waiter.record) continue;
    if (!slot && compatible(h.mode, waiter.mode)) continue;
    ++held;
    owners.push_back(h.owner);
  }
  if (slot && held < node_at(waiter.node).slots().acquire()) owners.clear();
  for (const WaiterCopy& w : copy.waiters) {
    if (w.node == waiter.node && w.key < waiter.key && !compatible(w.mode, waiter.mode)) owners.push_back(w.owner);
  }
  std::sort(owners.begin(), owners.end());
  owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  return owners;
}

std::vector<Index> Look::blockers_of(Index index) const {
  const Waiter& w = waiter(index);
  const Index node = w.node.acquire();
  const auto mode = mode_of(w.mode.acquire());
  const bool slot = is_slots(node_at(node));
  std::vector<Index> owners;
  const Index last = owners_end();
  for (Index owner = 0; (owner = next_live(at_.owners, owner + 1, last)) < last;) {
    if (!processes_.live(owner_at(owner).process.acquire())) continue;
    const bool blocks = any_hold_of(owner, node, [&](Index record, Mode held) {
      return record != w.record.acquire() && (slot || !compatible(held, mode));
    });
    if (blocks) owners.push_back(owner);
  }
  each_waiter(stripe_of(node), [&](const Waiter& other) {
    if (other.node.acquire() != node || other.key.acquire() >= w.key.acquire()) return;
    if (compatible(mode_of(other.mode.acquire()), mode)) return;
    const Index owner = other.owner.acquire();
    if (std::find(owners.begin(), owners.end(), owner) == owners.end()) owners.push_back(owner);
  });
  return owners;
}

// Of this process.
bool Look::nothing_held() const {
  const Index records = records_end();
  for (Index r = 0; (r = next_live(at_.records, r + 1, records)) < records;) {
    const Record& record = record_at(r);
    if (record_state(record.word.acquire()) != RecordState::free && record.process.acquire() == processes_.self())
      return false;
  }
  return true;
}

Look::Use Look::use() const {
  const Records::Use own = records_.use();
  Use use{header_->index_entries.relaxed(), own.records, own.owners, own.blocks + header_->texts.next.relaxed() - 1, 0,
          header_->pages.relaxed()};
  for (Index arena = 0; arena < arenas_used(); ++arena) use.numbers += arena_at(arena).used.relaxed();
  --use.numbers;  // 0 is nobody's
  Index walked = 0;
  for (Index t = header_->texts.free.relaxed(); t != none && ++walked < capacity_.texts;
       t = text_at(t).next.relaxed()) {
    --use.blocks;
  }
  return use;
}

std::string Look::check() const {
  std::string wrong;
  const auto complain = [&](const std::string& what) { wrong += what + "\n"; };

  bool nobody_dead = true;  // and not collected yet
  for (std::uint32_t slot = 1; slot < processes_.used(); ++slot) {
    nobody_dead = nobody_dead && processes_.state(slot) != ProcessState::dead;
  }

  // What the records say, per node.
  struct Expected {
    std::uint64_t count[3] = {0, 0, 0};
    std::uint64_t broken = 0;  // of those in S
    Index holder = none;
  };
  std::map<Index, Expected> expected;
  const Index records = records_end();
  for (Index r = 1; r < records; ++r) {
    const Record& record = record_at(r);
    if (record_state(record.word.relaxed()) == RecordState::free || !live_record(r)) continue;
    any_hold(record, [&](Index node, Mode mode, bool) {
      if (mode != Mode::X || is_slots(node_at(node))) return false;
      Expected& e = expected[node];
      if (e.holder != none) complain("two records hold " + names_.node_text(node) + " exclusively");
      e.holder = r;
      return false;
    });
    // Broken or not: its owner has not subtracted it yet.
    any_tally(record, [&](Index node, Mode mode) {
      ++expected[node].count[static_cast<int>(mode)];
      if (record_state(record.word.relaxed()) == RecordState::broken && mode == Mode::S) ++expected[node].broken;
      return false;
    });
  }
  std::map<Index, unsigned> waiting;
  for (unsigned s = 0; s < stripe_count; ++s) {
    each_waiter(s, [&](const Waiter& w) {
      ++waiting[w.node.relaxed()];
      if (stripe_of(w.node.relaxed()) != s) complain("a waiter stands in the wrong stripe");
    });
  }
  for (unsigned s = 0; s < stripe_count && nobody_dead; ++s) {
    const std::uint32_t used = waiters_used(s);
    for (std::uint32_t i = 0; i < capacity_.waiters_per_stripe && i <= used; ++i) {
      const Waiter& w = waiters_of(s)[i];
      if (w.process.acquire() == 0) continue;
      if (i == used) complain("somebody waits beyond the end of a queue");
      if (!processes_.live(w.process.acquire())) complain("a process waits that is not there");
    }
  }
  check_queues(wrong, waiting);
  // What the nodes say.
  std::map<Index, std::uint32_t> children;
  std::uint32_t live = 0;
  const Index nodes = nodes_end();
  for (Index n = 1; n < nodes; ++n) {
    const Node& node = node_at(n);
    if (node.meta.relaxed() == 0) {
      if (expected.contains(n) || waiting.contains(n)) complain("a free node is held or waited for");
      continue;
    }
    ++live;
    if (node.parent.relaxed() != none) ++children[node.parent.relaxed()];
    const std::uint64_t w = node.word.relaxed();
    const Expected e = expected.contains(n) ? expected[n] : Expected{};
    const Holders::Counts counts = holders_.count(n);
    const std::string name = names_.node_text(n);
    const auto holder = static_cast<Index>(w & word::holder);
    if ((holder != none && holds_words(holder) ? holder : none) != e.holder)
      complain(name + ": the word names record " + std::to_string(w & word::holder) + ", the records say " +
               std::to_string(e.holder));
    if (counts.is != e.count[0] || counts.ix != e.count[1] || counts.s != e.count[2]) {
      complain(name + ": tallies " + std::to_string(counts.is) + "/" + std::to_string(counts.ix) + "/" +
               std::to_string(counts.s) + ", records " + std::to_string(e.count[0]) + "/" + std::to_string(e.count[1]) +
               "/" + std::to_string(e.count[2]));
    }
    const Holders::Counts holders = holders_.count_holders(n);
    if (holders.s + e.broken != counts.s) {
      complain(name + ": " + std::to_string(counts.s) + " share it, " + std::to_string(e.broken) +
               " of them are broken, and " + std::to_string(holders.s) + " count (I8)");
    }
    if (!is_slots(node)) {
      if (counts.is + counts.ix + counts.s > 0 && (w & word::marked) == 0)
        complain(name + ": counted but not marked (I3)");
      if (e.holder != none && holders.is + holders.ix + holders.s > 0)
        complain(name + ": exclusive and shared at once (I1)");
      if (holders.ix > 0 && holders.s > 0) complain(name + ": IX and S at once (I1)");
    } else if (holders.s > node.slots().relaxed()) {
      complain(name + ": more holders than slots");
    }
    if ((w & word::queued) == 0 && waiting.contains(n)) complain(name + ": somebody waits, the fast path is open (I4)");
    if (holder != none && !live_record(holder) && nobody_dead) complain(name + ": the word names a record of nobody's");
    if (nobody_dead && (w & word::queued) != 0 && !waiting.contains(n))
      complain(name + ": nobody waits, the fast path is shut");
  }
  for (const auto& [node, number] : children) {
    if (node_at(node).meta.relaxed() == 0) complain("a free node has children");
    if (node_at(node).children.relaxed() != number) complain(names_.node_text(node) + ": wrong number of children");
  }
  if (live != header_->index_entries.relaxed())
    complain("the index counts " + std::to_string(header_->index_entries.relaxed()) + " nodes, there are " +
             std::to_string(live));
  if (waiting.empty() && anybody_entangled() && nobody_dead) complain("nobody waits but somebody is entangled");
  check_memory(wrong, nobody_dead);
  records_.check_accounts(wrong, names_);
  return wrong;
}

// Rings, counts and free places. `waiting`: how many wait, by node.
void Look::check_queues(std::string& wrong, const std::map<Index, unsigned>& waiting) const {
  const auto complain = [&](const std::string& what) { wrong += what + "\n"; };
  for (Index n = 1; n < nodes_end(); ++n) {
    const auto known = waiting.find(n);
    const unsigned expected = known == waiting.end() ? 0 : known->second;
    if (node_at(n).queue.relaxed() == none && expected == 0) continue;
    const Waiter* const first = queued_at(node_at(n).queue.relaxed(), n);
    unsigned found = 0;
    std::uint64_t counts = 0;
    const Waiter* w = first;
    for (std::uint32_t walked = 0; w != nullptr && walked < capacity_.waiters_per_stripe; ++walked) {
      const Waiter* const next = queued_at(w->next.relaxed(), n);
      if (waits(*w)) ++found;
      counts += queue_unit(mode_of(w->mode.relaxed()));
      if (next == nullptr || next->prev.relaxed() != waiter_index(*w))
        complain(names_.node_text(n) + ": the ring is broken");
      if (next != first && next != nullptr && next->key.relaxed() <= w->key.relaxed())
        complain(names_.node_text(n) + ": the queue is not in order (I4)");
      w = next == first ? nullptr : next;
    }
    if (found != expected)
      complain(names_.node_text(n) + ": " + std::to_string(expected) + " wait, " + std::to_string(found) +
               " of them in the queue");
    if (first != nullptr && first->counts.relaxed() != counts)
      complain(names_.node_text(n) + ": the queue is miscounted");
  }
  for (unsigned s = 0; s < stripe_count; ++s) {
    const Stripe& stripe = header_->stripes[s];
    std::uint32_t free = 0;
    for (Index i = stripe.free.relaxed(); i != none && free <= waiters_used(s); i = waiter(i).next.relaxed()) {
      ++free;
      if (waiter(i).process.relaxed() != 0) complain("somebody waits in a free place");
    }
    if (free + stripe.waiting.relaxed() != waiters_used(s)) complain("places of waiters are lost");
  }
}

// Lanes, chunks, lists and the index: whose they are, and that nothing is in two places or lost.
void Look::check_memory(std::string& wrong, bool nobody_dead) const {
  const auto complain = [&](const std::string& what) { wrong += what + "\n"; };
  const auto known = [&](ProcessRef process) {
    const ProcessState state = processes_.state(slot_of(process));
    return process == 0 || (processes_.ref(slot_of(process)) == process && state != ProcessState::free);
  };
  std::uint32_t pages = 0;
  for (std::uint32_t lane = 0; lane < capacity_.lanes && lane < lanes_used(); ++lane) {
    const ProcessRef process = header_->lanes[lane].process.acquire();
    if (!known(process)) complain("lane " + std::to_string(lane) + " belongs to a process that is not there");
    bool counts = false;
    for (Index arena = 0; arena < arenas_used(); ++arena) {
      if (!has_memory(lane, arena)) continue;
      if (region_->in_file() || lane != lanes_.common()) ++pages;
      const Tally* const page = tally_array_ + std::size_t{lane} * capacity_.tallies + arena * arena_size;
      for (const Tally& tally : std::span(page, arena_size))
        counts = counts || (tally.intents.relaxed() | tally.shared.relaxed()) != 0;
    }
    if (process == 0 && counts) complain("lane " + std::to_string(lane) + " is nobody's and counts something");
  }
  const auto check_chunks = [&](const char* what, const ChunkPool& pool, const Area& area) {
    for (Index chunk = 0; chunk < std::min(pool.next.relaxed(), area.chunks); ++chunk) {
      if (!known(chunk_owner(area, chunk).acquire()))
        complain(std::string("a chunk of ") + what + " belongs to a process that is not there");
    }
  };
  check_chunks("records", header_->records, at_.records);
  check_chunks("owners", header_->owners, at_.owners);
  check_chunks("blocks", header_->blocks, at_.blocks);

  // Each node is in the index, or free, or its maker is dead and has the latch.
  const bool settled = nobody_dead;
  if (settled && pages != header_->pages.relaxed())
    complain(std::to_string(pages) + " pages of tallies are there, " + std::to_string(header_->pages.relaxed()) +
             " are counted");
  std::map<Index, unsigned> seen;
  const std::uint32_t log2 = index_log2();
  for (std::size_t i = 0; i < std::size_t{1} << log2; ++i) {
    const std::uint64_t entry = index_of(log2)[i].relaxed();
    if (entry != 0) ++seen[static_cast<Index>(entry)];
  }
  Index walked = 0;
  const auto walk_free = [&](Index first) {
    for (Index n = first; n != none && ++walked < capacity_.nodes; n = node_at(n).parent.relaxed()) {
      ++seen[n];
      const std::uint64_t w = node_at(n).word.relaxed();
      if (settled && word::generation(w) != 0 && (w & word::unused) == 0) complain("a node is in use and free");
    }
  };
  walk_free(header_->nodes.free.relaxed());
  for (const Cell<Index>& run : header_->runs) walk_free(run.relaxed());
  const Index nodes = nodes_end();
  std::map<Index, unsigned> numbers, texts;
  for (Index n = 1; n < nodes; ++n) {
    if (settled && seen[n] != 1)
      complain("node " + std::to_string(n) + " is in " + std::to_string(seen[n]) +
               " places of the index and free list");
    if (const Index number = node_at(n).tally.relaxed(); number != none) {
      if (++numbers[number] > 1) complain("two nodes have one number");
      const bool there = number / arena_size < arenas_used();
      if (!there || (settled && arena_at(number / arena_size).node[number % arena_size].relaxed() != n))
        complain("node " + std::to_string(n) + " has a number that is not its own");
    }
    Index bound = 0;
    for (Index t = node_at(n).more.relaxed(); t != none && ++bound < capacity_.texts; t = text_at(t).next.relaxed())
      ++texts[t];
  }
  Index used = 0;
  Index given = 0;
  for (Index arena = 0; arena < arenas_used(); ++arena) {
    used += arena_array_[arena].used.relaxed();
    for (const auto& node : arena_array_[arena].node) given += node.relaxed() != none ? 1 : 0;
  }
  if (settled && (numbers.size() + 1 != used || used != given))
    complain(std::to_string(used) + " numbers are counted, " + std::to_string(given) + " given, " +
             std::to_string(numbers.size() + 1) + " in use");
  walked = 0;
  for (Index t = header_->texts.free.relaxed(); t != none && ++walked < capacity_.texts; t = text_at(t).next.relaxed())
    ++texts[t];
  for (Index t = 1; settled && t < std::min(header_->texts.next.relaxed(), capacity_.texts); ++t) {
    if (texts[t] != 1) complain("text " + std::to_string(t) + " is in " + std::to_string(texts[t]) + " places");
  }
}

}  // namespace hierlock::engine
