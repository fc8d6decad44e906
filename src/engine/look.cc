// Looking at the table: copies for snapshots, text for people, and the walk that checks that everything is sound.
#include <algorithm>
#include <map>
#include <tuple>

#include "engine/table.h"

namespace hierlock::engine {

Table::PartyCopy Table::copy_party(Index owner, Index record) const {
  const std::uint32_t slot = slot_of(owner_at(owner).process.acquire());
  return {owner_identity(owner),
          owner_name(owner),
          read_text(record_at(record).note.acquire()),
          processes_.slot(slot).pid.acquire(),
          processes_.command(slot),
          slot};
}

Table::Copy Table::copy() const {
  Copy result;
  const Index owners = owners_end();
  for (Index owner = 1; owner < owners; ++owner) {
    if (!processes_.live(owner_at(owner).process.acquire())) continue;
    Index walked = 0;
    for (Index r = owner_at(owner).records.acquire(); r != none && ++walked < capacity_.records;
         r = record_at(r).next_of_owner.acquire()) {
      const Record& record = record_at(r);
      const std::uint64_t before = record.word.acquire();
      if (record_state(before) == RecordState::free) continue;
      const std::size_t first = result.holders.size();
      const std::size_t party = result.parties.size();
      result.parties.push_back(copy_party(owner, r));
      const bool held = record_state(before) == RecordState::held;
      const std::int64_t fence = record.fence.acquire();
      const std::int64_t since = fence != 0 ? record.since.acquire() : 0;
      any_hold(record, [&](Index node, Mode mode, bool asked) {
        result.holders.push_back({owner, r, node, mode, asked, held ? fence : 0, since, party, node_text(node)});
        return false;
      });
      // While it is the same lock, its owner, its note and the nodes it holds stay what they are. Otherwise we may have
      // seen a mixture.
      const std::uint64_t after = record.word.acquire();
      if (record_generation(after) != record_generation(before) || record_state(after) == RecordState::free) {
        result.holders.resize(first);
        result.parties.pop_back();
      }
    }
  }
  for (unsigned s = 0; s < stripe_count; ++s) {
    each_waiter(s, [&](const Waiter& w) {
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
                      node_text(node),
                      read_text(w.wanted.acquire())};
      PartyCopy party = copy_party(copy.owner, copy.record);
      if (w.waiting.acquire() == 0 || w.key.acquire() != key || w.node.acquire() != node) return;
      result.parties.push_back(std::move(party));
      result.waiters.push_back(std::move(copy));
    });
  }
  std::sort(result.waiters.begin(), result.waiters.end(),
            [](const WaiterCopy& a, const WaiterCopy& b) { return std::tie(a.node, a.key) < std::tie(b.node, b.key); });
  return result;
}

std::vector<Index> Table::blockers(const Copy& copy, const WaiterCopy& waiter) const {
  std::vector<Index> owners;
  const bool slot = is_slots(node_at(waiter.node));
  std::size_t held = 0;
  for (const HolderCopy& h : copy.holders) {
    if (h.node != waiter.node || h.record == waiter.record) continue;
    if (!slot && compatible(h.mode, waiter.mode)) continue;
    ++held;
    owners.push_back(h.owner);
  }
  if (slot && held < node_at(waiter.node).slots.acquire()) owners.clear();
  for (const WaiterCopy& w : copy.waiters) {
    if (w.node == waiter.node && w.key < waiter.key && !compatible(w.mode, waiter.mode)) owners.push_back(w.owner);
  }
  std::sort(owners.begin(), owners.end());
  owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  return owners;
}

std::vector<Index> Table::blockers_of(Index index) const {
  const Waiter& w = waiter(index);
  const Index node = w.node.acquire();
  const auto mode = mode_of(w.mode.acquire());
  const bool slot = is_slots(node_at(node));
  std::vector<Index> owners;
  const Index last = owners_end();
  for (Index owner = 1; owner < last; ++owner) {
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

std::string Table::node_text(Index node) const {
  std::string key;
  Space space = Space::path;
  for (std::size_t i = 0; node != none && i < max_depth; ++i) {
    const Node& n = node_at(node);
    const std::uint32_t meta = n.meta.acquire();
    space = meta_space(meta);
    std::string segment(inline_text, '\0');
    for (std::size_t w = 0; w < inline_text / 8; ++w) {
      for (std::size_t b = 0; b < 8; ++b) segment[w * 8 + b] = static_cast<char>(n.text[w].acquire() >> (8 * b) & 0xFF);
    }
    segment += read_long_segment(n.more.acquire());
    segment.resize(std::min(segment.size(), meta_length(meta)));
    const auto size = static_cast<std::uint32_t>(segment.size());
    const char length[4] = {static_cast<char>(size >> 24), static_cast<char>(size >> 16), static_cast<char>(size >> 8),
                            static_cast<char>(size)};
    key.insert(0, segment);
    key.insert(0, length, 4);
    node = n.parent.acquire();
  }
  return spi::describe_key(space, key);
}

std::string Table::record_text(Index record) const {
  std::string text;
  any_hold(record_at(record), [&](Index node, Mode, bool asked) {
    if (!asked) return false;
    text += (text.empty() ? "" : ", ") + node_text(node);
    return text.size() > 1000;
  });
  return text;
}

std::string Table::owner_name(Index owner) const {
  const OwnerSlot& slot = owner_at(owner);
  std::string name = read_text(slot.name.acquire());
  if (!name.empty()) return name;
  if (owner_kind(owner) == OwnerKind::handle) return "handle " + std::to_string(owner);
  return "thread " + std::to_string(slot.thread.acquire());
}

std::string Table::owner_text(Index owner) const {
  const ProcessRef process = owner_at(owner).process.acquire();
  if (process == processes_.self()) return owner_name(owner);
  return owner_name(owner) + " of process " + std::to_string(processes_.slot(slot_of(process)).pid.acquire());
}

std::uint64_t Table::owner_identity(Index owner) const {
  return (owner_at(owner).word.acquire() >> 32 & 0xFFFFFFFF) << 32 | owner;
}

// Of this process.
bool Table::nothing_held() const {
  const Index records = records_end();
  for (Index r = 1; r < records; ++r) {
    const Record& record = record_at(r);
    if (record_state(record.word.acquire()) != RecordState::free && record.process.acquire() == processes_.self())
      return false;
  }
  return true;
}

Table::Use Table::use() {
  const std::lock_guard guard(pool_mutex_);
  Use use{};
  use.records = own_records_.handed_out;
  use.owners = own_owners_.handed_out;
  use.blocks = own_blocks_.handed_out - own_blocks_.idle + header_->texts.next.relaxed() - 1;
  Index walked = 0;
  for (Index t = header_->texts.free.relaxed(); t != none && ++walked < capacity_.texts;
       t = text_at(t).next.relaxed()) {
    --use.blocks;
  }
  use.nodes = header_->index_entries.relaxed();
  return use;
}

std::string Table::check() const {
  std::string wrong;
  const auto complain = [&](const std::string& what) { wrong += what + "\n"; };

  bool nobody_dead = true;  // and not collected yet
  for (std::uint32_t slot = 1; slot < processes_.used(); ++slot) {
    nobody_dead = nobody_dead && processes_.state(slot) != ProcessState::dead;
  }

  // What the records say, per node.
  struct Expected {
    std::uint64_t count[3] = {0, 0, 0};
    Index holder = none;
  };
  std::map<Index, Expected> expected;
  const Index records = records_end();
  for (Index r = 1; r < records; ++r) {
    const Record& record = record_at(r);
    if (record_state(record.word.relaxed()) == RecordState::free || !live_record(r)) continue;
    any_hold(record, [&](Index node, Mode mode, bool) {
      Expected& e = expected[node];
      if (is_slots(node_at(node))) {
        ++e.count[static_cast<int>(Mode::S)];
      } else if (mode == Mode::X) {
        if (e.holder != none) complain("two records hold " + node_text(node) + " exclusively");
        e.holder = r;
      } else {
        ++e.count[static_cast<int>(mode)];
      }
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
      if (w.waiting.acquire() == 0) continue;
      if (i == used) complain("somebody waits beyond the end of a queue");
      if (!processes_.live(w.process.acquire())) complain("a process waits that is not there");
    }
  }
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
    const Counts counts = count(node);
    const std::string name = node_text(n);
    const auto holder = static_cast<Index>(w & word::holder);
    if ((holder != none && live_record(holder) ? holder : none) != e.holder)
      complain(name + ": the word names record " + std::to_string(w & word::holder) + ", the records say " +
               std::to_string(e.holder));
    if (counts.is != e.count[0] || counts.ix != e.count[1] || counts.s != e.count[2]) {
      complain(name + ": tallies " + std::to_string(counts.is) + "/" + std::to_string(counts.ix) + "/" +
               std::to_string(counts.s) + ", records " + std::to_string(e.count[0]) + "/" + std::to_string(e.count[1]) +
               "/" + std::to_string(e.count[2]));
    }
    if (!is_slots(node)) {
      if (counts.is + counts.ix + counts.s > 0 && (w & word::marked) == 0)
        complain(name + ": counted but not marked (I3)");
      if (e.holder != none && counts.is + counts.ix + counts.s > 0)
        complain(name + ": exclusive and shared at once (I1)");
      if (counts.ix > 0 && counts.s > 0) complain(name + ": IX and S at once (I1)");
    } else if (counts.s > node.slots.relaxed()) {
      complain(name + ": more holders than slots");
    }
    if ((w & word::queued) == 0 && waiting.contains(n)) complain(name + ": somebody waits, the fast path is open (I4)");
    if (holder != none && !live_record(holder) && nobody_dead) complain(name + ": the word names a record of nobody's");
    if (nobody_dead && !shared() && (w & word::queued) != 0 && !waiting.contains(n))
      complain(name + ": nobody waits, the fast path is shut");
  }
  for (const auto& [node, number] : children) {
    if (node_at(node).meta.relaxed() == 0) complain("a free node has children");
    if (node_at(node).children.relaxed() != number) complain(node_text(node) + ": wrong number of children");
  }
  if (live != header_->index_entries.relaxed())
    complain("the index counts " + std::to_string(header_->index_entries.relaxed()) + " nodes, there are " +
             std::to_string(live));
  if (waiting.empty() && anybody_entangled() && nobody_dead) complain("nobody waits but somebody is entangled");
  check_memory(wrong, nobody_dead);
  return wrong;
}

// Lanes, chunks, lists and the index: whose they are, and that nothing is in two places or lost.
void Table::check_memory(std::string& wrong, bool nobody_dead) const {
  const auto complain = [&](const std::string& what) { wrong += what + "\n"; };
  const auto known = [&](ProcessRef process) {
    const ProcessState state = processes_.state(slot_of(process));
    return process == 0 || (processes_.ref(slot_of(process)) == process && state != ProcessState::free);
  };
  const Index tallies = std::min(header_->tallies.next.relaxed(), capacity_.tallies);
  const Index counted = std::min(tallies + (shared() ? 1 : 0), capacity_.tallies);
  for (std::uint32_t lane = 0; lane < capacity_.lanes && lane < lanes_used(); ++lane) {
    const ProcessRef process = header_->lanes[lane].process.acquire();
    if (!known(process)) complain("lane " + std::to_string(lane) + " belongs to a process that is not there");
    if (process != 0) continue;
    for (Index t = 0; t < counted; ++t) {
      if ((tally_of(lane, t).intents.relaxed() | tally_of(lane, t).shared.relaxed()) == 0) continue;
      complain("lane " + std::to_string(lane) + " is nobody's and counts something");
      break;
    }
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
  std::map<Index, unsigned> seen;
  const std::uint32_t log2 = index_log2();
  for (std::size_t i = 0; i < std::size_t{1} << log2; ++i) {
    const std::uint64_t entry = index_of(log2)[i].relaxed();
    if (entry != 0) ++seen[static_cast<Index>(entry)];
  }
  Index walked = 0;
  for (Index n = header_->nodes.free.relaxed(); n != none && ++walked < capacity_.nodes;
       n = node_at(n).parent.relaxed()) {
    ++seen[n];
    const std::uint64_t w = node_at(n).word.relaxed();
    if (settled && word::generation(w) != 0 && (w & word::unused) == 0) complain("a node is in use and free");
  }
  const Index nodes = nodes_end();
  std::map<Index, unsigned> tallies_of, texts;
  for (Index n = 1; n < nodes; ++n) {
    if (settled && seen[n] != 1)
      complain("node " + std::to_string(n) + " is in " + std::to_string(seen[n]) +
               " places of the index and free list");
    if (const Index tally = node_at(n).tally.relaxed(); tally != none && ++tallies_of[tally] > 1)
      complain("two nodes have one tally");
    Index bound = 0;
    for (Index t = node_at(n).more.relaxed(); t != none && ++bound < capacity_.texts; t = text_at(t).next.relaxed())
      ++texts[t];
  }
  if (settled && tallies_of.size() + 1 != tallies)
    complain(std::to_string(tallies - 1) + " tallies were given, " + std::to_string(tallies_of.size()) + " are in use");
  walked = 0;
  for (Index t = header_->texts.free.relaxed(); t != none && ++walked < capacity_.texts; t = text_at(t).next.relaxed())
    ++texts[t];
  for (Index t = 1; settled && t < std::min(header_->texts.next.relaxed(), capacity_.texts); ++t) {
    if (texts[t] != 1) complain("text " + std::to_string(t) + " is in " + std::to_string(texts[t]) + " places");
  }
}

}  // namespace hierlock::engine
