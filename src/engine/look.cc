// Looking at the table: copies for snapshots, text for people, and the walk that checks that everything is sound.
#include <algorithm>
#include <map>
#include <tuple>

#include "engine/table.h"

namespace hierlock::engine {

Table::PartyCopy Table::copy_party(Index owner, Index record) const {
  return {owner_identity(owner), owner_text(owner), read_text(records_[record].note.acquire()),
          owners_[owner].process.acquire()};
}

Table::Copy Table::copy() const {
  Copy result;
  const Index owners = header_->owners.next.acquire();
  for (Index owner = 1; owner < owners; ++owner) {
    for (Index r = owners_[owner].records.acquire(); r != none; r = records_[r].next_of_owner.acquire()) {
      const Record& record = records_[r];
      const std::uint64_t before = record.word.acquire();
      if (record_state(before) == RecordState::free) continue;
      const std::size_t first = result.holders.size();
      const std::size_t party = result.parties.size();
      result.parties.push_back(copy_party(owner, r));
      const bool held = record_state(before) == RecordState::held;
      const std::int64_t fence = record.fence.acquire();
      const std::int64_t since = record.since.acquire();
      any_hold(record, [&](Index node, Mode mode, bool asked) {
        result.holders.push_back({owner, r, node, mode, asked, held, held ? fence : 0, since, party, node_text(node)});
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
                      static_cast<Mode>(w.mode.acquire()),
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
  const bool slot = is_slots(nodes_[waiter.node]);
  std::size_t held = 0;
  for (const HolderCopy& h : copy.holders) {
    if (h.node != waiter.node || h.record == waiter.record) continue;
    if (!slot && compatible(h.mode, waiter.mode)) continue;
    ++held;
    owners.push_back(h.owner);
  }
  if (slot && held < nodes_[waiter.node].slots.acquire()) owners.clear();
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
  const auto mode = static_cast<Mode>(w.mode.acquire());
  const bool slot = is_slots(nodes_[node]);
  std::vector<Index> owners;
  const Index last = header_->owners.next.acquire();
  for (Index owner = 1; owner < last; ++owner) {
    const bool blocks = any_hold_of(owner, node, [&](Index record, Mode held) {
      return record != w.record.acquire() && (slot || !compatible(held, mode));
    });
    if (blocks) owners.push_back(owner);
  }
  each_waiter(stripe_of(node), [&](const Waiter& other) {
    if (other.node.acquire() != node || other.key.acquire() >= w.key.acquire()) return;
    if (compatible(static_cast<Mode>(other.mode.acquire()), mode)) return;
    const Index owner = other.owner.acquire();
    if (std::find(owners.begin(), owners.end(), owner) == owners.end()) owners.push_back(owner);
  });
  return owners;
}

std::string Table::node_text(Index node) const {
  std::string key;
  Space space = Space::path;
  for (std::size_t i = 0; node != none && i < max_depth; ++i) {
    const Node& n = nodes_[node];
    const std::uint32_t meta = n.meta.acquire();
    space = meta_space(meta);
    std::string segment(inline_text, '\0');
    for (std::size_t w = 0; w < inline_text / 8; ++w) {
      for (std::size_t b = 0; b < 8; ++b) segment[w * 8 + b] = static_cast<char>(n.text[w].acquire() >> (8 * b) & 0xFF);
    }
    segment += read_text(n.more.acquire());
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
  any_hold(records_[record], [&](Index node, Mode, bool asked) {
    if (!asked) return false;
    text += (text.empty() ? "" : ", ") + node_text(node);
    return text.size() > 1000;
  });
  return text;
}

std::string Table::owner_text(Index owner) const {
  const OwnerSlot& slot = owners_[owner];
  std::string name = read_text(slot.name.acquire());
  if (!name.empty()) return name;
  if (owner_kind(owner) == OwnerKind::handle) return "handle " + std::to_string(owner);
  return "thread " + std::to_string(slot.thread.acquire());
}

std::uint64_t Table::owner_identity(Index owner) const {
  return (owners_[owner].word.acquire() >> 32 & 0xFFFFFFFF) << 32 | owner;
}

bool Table::nothing_held() const {
  const Index records = header_->records.next.acquire();
  for (Index r = 1; r < records; ++r) {
    if (record_state(records_[r].word.acquire()) != RecordState::free) return false;
  }
  return true;
}

Table::Use Table::use() const {
  Use use{};
  use.records = header_->records.next.relaxed() - 1;
  use.owners = header_->owners.next.relaxed() - 1;
  use.blocks = header_->blocks.next.relaxed() - 1;
  for (Index b = header_->blocks.free.relaxed(); b != none; b = blocks_[b].next.relaxed()) --use.blocks;
  use.nodes = header_->index_entries.relaxed();
  return use;
}

std::string Table::check() const {
  std::string wrong;
  const auto complain = [&](const std::string& what) { wrong += what + "\n"; };

  // What the records say, per node.
  struct Expected {
    std::uint64_t count[3] = {0, 0, 0};
    Index holder = none;
  };
  std::map<Index, Expected> expected;
  const Index records = header_->records.next.relaxed();
  for (Index r = 1; r < records; ++r) {
    const Record& record = records_[r];
    if (record_state(record.word.relaxed()) == RecordState::free) continue;
    any_hold(record, [&](Index node, Mode mode, bool) {
      Expected& e = expected[node];
      if (is_slots(nodes_[node])) {
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
  // What the nodes say.
  std::map<Index, std::uint32_t> children;
  std::uint32_t live = 0;
  const Index nodes = header_->nodes.next.relaxed();
  for (Index n = 1; n < nodes; ++n) {
    const Node& node = nodes_[n];
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
    if ((w & word::holder) != e.holder)
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
    if (((w & word::queued) != 0) != waiting.contains(n)) complain(name + ": the queue's flag is wrong (I4)");
  }
  for (const auto& [node, number] : children) {
    if (nodes_[node].meta.relaxed() == 0) complain("a free node has children");
    if (nodes_[node].children.relaxed() != number) complain(node_text(node) + ": wrong number of children");
  }
  if (live != header_->index_entries.relaxed())
    complain("the index counts " + std::to_string(header_->index_entries.relaxed()) + " nodes, there are " +
             std::to_string(live));
  if (waiting.empty() && header_->entangled.relaxed() != 0) complain("nobody waits but somebody is entangled");
  return wrong;
}

}  // namespace hierlock::engine
