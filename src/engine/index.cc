// Index: from a key to its node. Open addressing, linear probing, at most half full.
//
// Reading takes no latch: an entry is one word (tag and node), and whatever is found is compared with the node itself.
// A reader that is overtaken by a change may miss a node that is there; whoever misses asks again under index_latch,
// where nothing moves. So entries may be shifted and the whole index replaced while others read.
//
// A node is reused when nobody holds it, waits for it, or has a node below it. Idle nodes are kept until there are
// many.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "engine/find.h"
#include "engine/table.h"

namespace hierlock::engine {

namespace {

constexpr std::uint32_t text_mark = 0x80000000u;

constexpr std::uint64_t entry_of(std::uint64_t hash, Index node) { return (hash & 0xFFFFFFFF00000000u) | node; }

}  // namespace

bool Table::rest_matches(const Node& node, std::string_view segment) const noexcept {
  std::string_view rest = segment.substr(inline_text);
  for (Index block = node.more.relaxed(); block != none && !rest.empty(); block = text_at(block).next.relaxed()) {
    const std::string_view part = rest.substr(0, Block::words * 8);
    for (std::size_t i = 0; i * 8 < part.size(); ++i) {
      if (text_at(block).word[i].relaxed() != text_word(part, i)) return false;
    }
    rest.remove_prefix(part.size());
  }
  return rest.empty();
}

Table::IndexGuard::IndexGuard(Table& table, std::int64_t patience) noexcept : table_(table) {
  const Latching how = table_.header_->index_latch.lock(table_.processes_, patience);
  taken_ = how != Latching::late;
  if (how == Latching::taken_over) table_.rebuild();
}

Table::IndexGuard::~IndexGuard() {
  if (taken_) table_.header_->index_latch.unlock(table_.processes_);
}

Index Table::find_or_create(const spi::Step& step, Index parent, std::uint64_t& word, std::int64_t patience) {
  if (const Index node = find(index_now(), key_of(step), parent, word); node != none) return node;
  const IndexGuard guard(*this, patience);
  if (!guard.taken()) return too_late;
  if (const Index node = find(index_now(), key_of(step), parent, word); node != none) return node;
  if ((std::size_t{header_->index_entries.relaxed()} + 1) * 2 > std::size_t{1} << index_log2() && !grow_index()) {
    return none;
  }
  const Index index = fresh_node();
  if (index == none || index == too_late) return index;
  Node& node = node_at(index);
  Index more = none;
  if (step.segment.size() > inline_text) {
    more = write_long_segment(step.segment.substr(inline_text));
    if (more == none) {
      free_node(index);
      return none;
    }
  }
  node.hash.set(step.hash);
  node.parent.set(parent);
  node.meta.set(make_meta(step.segment.size(), step.level, step.space));
  node.text[0].set(text_word(step.segment, 0));
  node.text[1].set(text_word(step.segment, 1));
  node.more.set(more);
  node.children.set(0);
  node.slots.set(0);
  node.last_fence.set(header_->fence_floor.relaxed());
  if (parent != none) node_at(parent).children.add(1);
  if ((step.mode != Mode::X || step.slots != 0) && node.tally.relaxed() == none && !give_tally(node)) {
    if (parent != none) node_at(parent).children.subtract(1);
    node.meta.set(0);
    free_texts(node.more.exchange(none));
    free_node(index);
    return none;
  }
  // Open for business: only now may a fast path find the generation it will be compared with. And from here on it is a
  // node: if this process dies, rebuild() puts it into the index, and before not.
  word = (std::uint64_t{word::generation(node.word.relaxed())} + 1) << word::generation_shift |
         (step.space == Space::slots ? word::closed : 0);
  node.word.set(word);
  if (!index_insert(step.hash, index)) return none;  // damaged
  header_->index_entries.set(header_->index_entries.relaxed() + 1);
  return index;
}

Progress Table::prepare_sharing(Index index, std::int64_t patience) {
  const IndexGuard guard(*this, patience);
  if (!guard.taken()) return Progress::late;
  Node& node = node_at(index);
  return node.tally.relaxed() != none || give_tally(node) ? Progress::granted : Progress::full;
}

Index Table::take_node() {
  Pool& pool = header_->nodes;
  if (const Index free = pool.free.relaxed(); free != none) {
    pool.free.set(node_at(free).parent.relaxed());
    return free < capacity_.nodes ? free : none;
  }
  const Index fresh = pool.next.relaxed();
  if (fresh >= capacity_.nodes) return none;
  if (fresh % growth == 0 && !region_->commit(at_.nodes + std::size_t{fresh} * line, growth * line)) return none;
  pool.next.set(fresh + 1);
  return fresh;
}

void Table::free_node(Index index) noexcept {
  node_at(index).parent.set(header_->nodes.free.relaxed());
  header_->nodes.free.set(index);
}

Index Table::fresh_node() {
  constexpr std::uint32_t glance = 8;
  if (header_->nodes.free.relaxed() == none && header_->nodes.next.relaxed() > capacity_.idle_nodes) sweep(glance);
  if (const Index node = take_node(); node != none) return node;
  const bool late = sweep(nodes_end());
  const Index node = take_node();
  return node == none && late ? too_late : node;
}

// Looks at the next `steps` nodes in turn and frees the idle ones it meets. True if a stopped process was in the way:
// it is met once a stripe, and not at every node.
bool Table::sweep(std::uint32_t steps) {
  static_assert(stripe_count == 64);
  const Index end = nodes_end();
  Index hand = header_->sweep_hand.relaxed();
  std::uint64_t late = 0;  // stripes
  for (std::uint32_t i = 0; i < steps; ++i) {
    hand = hand + 1 < end ? hand + 1 : 1;
    const std::uint64_t stripe = std::uint64_t{1} << stripe_of(hand);
    if (hand < end && (late & stripe) == 0 && reuse(hand) == Reuse::late) late |= stripe;
  }
  header_->sweep_hand.set(hand);
  return late != 0;
}

Table::Reuse Table::reuse(Index index) {
  Node& node = node_at(index);
  if (node.meta.relaxed() == 0 || node.children.relaxed() != 0) return Reuse::in_use;
  if ((node.word.relaxed() & (word::holder | word::queued)) != 0) return Reuse::in_use;
  {
    WakeList wake(processes_.reach());
    const Latched latched(*this, index, false, shared() ? 0 : Latch::for_ever);
    if (!latched.taken()) return Reuse::late;
    const std::uint64_t before = node.word.change_bits(0, word::queued);  // I2: then look at the lanes
    bool idle = (before & (word::holder | word::queued)) == 0;
    if (idle) {
      const Counts counts = count(node);
      idle = counts.is + counts.ix + counts.s == 0;
    }
    if (!idle) {
      settle(index, wake);
      return Reuse::in_use;
    }
    // The floor first: if this process dies in between, the key's next node must not start below.
    header_->fence_floor.set(std::max({header_->fence_floor.relaxed(), node.last_fence.relaxed(),
                                       (before & word::marked) != 0 ? highest_fence() : 0}));  // I6
    // A new generation next: whatever still refers to the old key fails from here on.
    node.word.set((std::uint64_t{word::generation(before)} + 1) << word::generation_shift | word::closed |
                  word::unused);
  }
  index_remove(node.hash.relaxed(), index);
  header_->index_entries.set(header_->index_entries.relaxed() - 1);
  if (const Index parent = node.parent.relaxed(); parent != none) node_at(parent).children.subtract(1);
  node.meta.set(0);
  free_texts(node.more.exchange(none));
  free_node(index);
  return Reuse::done;
}

bool Table::grow_index() {
  const std::uint32_t old = index_log2();
  if (old >= largest_index_log2_) return false;
  const std::size_t old_size = std::size_t{1} << old;
  const std::size_t offset = at_.index + (2 * old_size - first_index_size) * sizeof(std::uint64_t);
  if (!region_->commit(offset, 2 * old_size * sizeof(std::uint64_t))) return false;
  Cell<std::uint64_t>* const entries = index_of(old + 1);
  const std::size_t mask = 2 * old_size - 1;
  for (std::size_t i = 0; i <= mask; ++i) {
    if (entries[i].relaxed() != 0) entries[i].set(0);  // left by somebody who died here
  }
  for (std::size_t i = 0; i < old_size; ++i) {
    const std::uint64_t entry = index_of(old)[i].relaxed();
    if (entry == 0) continue;
    std::size_t place = index_place(node_at(static_cast<Index>(entry)).hash.relaxed(), old + 1);
    while (entries[place].relaxed() != 0) place = (place + 1) & mask;
    entries[place].set(entry);
  }
  header_->index_log2.set(old + 1);
  // Late readers of the old index find zeros, which is a miss, and come to the latch. Not in a file: there it would be
  // a hole, and on a full filesystem even reading a hole can fail.
  if (!region_->in_file())
    region_->discard(at_.index + (old_size - first_index_size) * sizeof(std::uint64_t),
                     old_size * sizeof(std::uint64_t));
  return true;
}

bool Table::index_insert(std::uint64_t hash, Index node) noexcept {
  const std::uint32_t log2 = index_log2();
  Cell<std::uint64_t>* const entries = index_of(log2);
  const std::size_t mask = (std::size_t{1} << log2) - 1;
  std::size_t place = index_place(hash, log2);
  for (std::size_t probes = 0; entries[place].relaxed() != 0; place = (place + 1) & mask) {
    if (++probes > mask) return false;
  }
  entries[place].set(entry_of(hash, node));
  return true;
}

// Closes the gap by moving later entries up: each is copied before its old place is cleared, so none is ever absent.
void Table::index_remove(std::uint64_t hash, Index node) noexcept {
  const std::uint32_t log2 = index_log2();
  Cell<std::uint64_t>* const entries = index_of(log2);
  const std::size_t mask = (std::size_t{1} << log2) - 1;
  std::size_t gap = index_place(hash, log2);
  for (std::size_t probes = 0; entries[gap].relaxed() != entry_of(hash, node); gap = (gap + 1) & mask) {
    if (entries[gap].relaxed() == 0 || ++probes > mask) return;
  }
  std::size_t next = (gap + 1) & mask;
  for (std::size_t probes = 0; probes < mask; ++probes, next = (next + 1) & mask) {
    const std::uint64_t entry = entries[next].relaxed();
    if (entry == 0) break;
    const std::size_t home = index_place(node_at(static_cast<Index>(entry)).hash.relaxed(), log2);
    if (((next - home) & mask) < ((next - gap) & mask)) continue;  // it would stand before its home
    entries[gap].set(entry);
    gap = next;
  }
  entries[gap].set(0);
}

// Whoever had index_latch died in the middle of something. What is a node says its word; everything else here follows
// from the nodes and is made again: the index, the numbers of children, the free nodes and texts, the next tally. Dying
// in the middle of this leaves it to the next, who begins again. Those who read the index meanwhile miss, and wait.
void Table::rebuild() noexcept {
  const std::uint32_t log2 = index_log2();
  Cell<std::uint64_t>* const entries = index_of(log2);
  for (std::size_t i = 0; i < std::size_t{1} << log2; ++i) {
    if (entries[i].relaxed() != 0) entries[i].set(0);
  }
  const Index end = nodes_end();
  const auto is_node = [&](Index i) {
    const std::uint64_t w = node_at(i).word.acquire();
    return word::generation(w) != 0 && (w & word::unused) == 0;
  };
  for (Index i = 1; i < end; ++i) node_at(i).children.set(0);
  header_->nodes.free.set(none);
  Index tallies = 1;
  std::uint32_t live = 0;
  for (Index i = 1; i < end; ++i) {
    Node& node = node_at(i);
    if (node.tally.relaxed() < capacity_.tallies) tallies = std::max(tallies, node.tally.relaxed() + 1);
    if (!is_node(i)) {
      node.meta.set(0);
      node.more.set(none);
      free_node(i);
      continue;
    }
    if (node.parent.relaxed() != none) node_at(node.parent.relaxed()).children.add(1);
    if (index_insert(node.hash.relaxed(), i)) ++live;
  }
  header_->index_entries.set(live);
  header_->tallies.next.set(std::max(tallies, std::min(header_->tallies.next.relaxed(), capacity_.tallies)));
  // Texts that no node has. Marked in themselves: `used` of one that is in use is never 0.
  const Index texts = std::min(header_->texts.next.relaxed(), capacity_.texts);
  header_->texts.free.set(none);
  const auto in_use = [&](Index text) { return (text_at(text).used.relaxed() & text_mark) != 0; };
  for (Index t = 1; t < texts; ++t) text_at(t).used.set(text_at(t).used.relaxed() & ~text_mark);
  for (Index i = 1; i < end; ++i) {
    Index t = node_at(i).more.relaxed();
    for (std::size_t n = 0; t != none && t < texts && n < max_name_bytes && !in_use(t); ++n) {
      text_at(t).used.set(text_at(t).used.relaxed() | text_mark);
      t = text_at(t).next.relaxed();
    }
  }
  for (Index t = 1; t < texts; ++t) {
    if (in_use(t)) {
      text_at(t).used.set(text_at(t).used.relaxed() & ~text_mark);
    } else {
      text_at(t).next.set(header_->texts.free.relaxed());
      header_->texts.free.set(t);
    }
  }
}

}  // namespace hierlock::engine
