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

constexpr std::uint64_t entry_of(std::uint64_t hash, Index node) { return (hash & 0xFFFFFFFF00000000u) | node; }

}  // namespace

bool Table::rest_matches(const Node& node, std::string_view segment) const noexcept {
  std::string_view rest = segment.substr(inline_text);
  for (Index block = node.more.relaxed(); block != none && !rest.empty(); block = blocks_[block].next.relaxed()) {
    const std::string_view part = rest.substr(0, Block::words * 8);
    for (std::size_t i = 0; i * 8 < part.size(); ++i) {
      if (blocks_[block].word[i].relaxed() != text_word(part, i)) return false;
    }
    rest.remove_prefix(part.size());
  }
  return rest.empty();
}

Index Table::find_or_create(const spi::Step& step, Index parent, std::uint64_t& word) {
  if (const Index node = find(index_now(), key_of(step), parent, word); node != none) return node;
  const std::lock_guard guard(header_->index_latch);
  if (const Index node = find(index_now(), key_of(step), parent, word); node != none) return node;
  if ((std::size_t{header_->index_entries.relaxed()} + 1) * 2 > std::size_t{1} << header_->index_log2.relaxed() &&
      !grow_index()) {
    return none;
  }
  const Index index = fresh_node();
  if (index == none) return none;
  Node& node = nodes_[index];
  Index more = none;
  if (step.segment.size() > inline_text) {
    more = write_text(step.segment.substr(inline_text));
    if (more == none) {
      const std::lock_guard pool_guard(header_->pool_latch);
      node.parent.set(header_->nodes.free.relaxed());
      header_->nodes.free.set(index);
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
  if (parent != none) nodes_[parent].children.add(1);
  // Open for business: only now may a fast path find the generation it will be compared with.
  word = (std::uint64_t{word::generation(node.word.relaxed())} + 1) << word::generation_shift |
         (step.space == Space::slots ? word::closed : 0);
  node.word.set(word);
  index_insert(step.hash, index);
  header_->index_entries.set(header_->index_entries.relaxed() + 1);
  return index;
}

Index Table::fresh_node() {
  constexpr std::uint32_t glance = 8;
  const auto link = [](Table& t, Index i) { return &t.nodes_[i].parent; };
  if (header_->nodes.free.relaxed() == none && header_->nodes.next.relaxed() > capacity_.idle_nodes) {
    sweep(glance);
  }
  if (const Index node = pool_take(header_->nodes, at_.nodes, link); node != none) return node;
  sweep(header_->nodes.next.relaxed());
  return pool_take(header_->nodes, at_.nodes, link);
}

// Looks at the next `steps` nodes in turn and frees the idle ones it meets.
void Table::sweep(std::uint32_t steps) {
  const Index end = header_->nodes.next.relaxed();
  Index hand = header_->sweep_hand.relaxed();
  for (std::uint32_t i = 0; i < steps; ++i) {
    hand = hand + 1 < end ? hand + 1 : 1;
    if (hand < end) reuse(hand);
  }
  header_->sweep_hand.set(hand);
}

bool Table::reuse(Index index) {
  Node& node = nodes_[index];
  if (node.meta.relaxed() == 0 || node.children.relaxed() != 0) return false;
  if ((node.word.relaxed() & (word::holder | word::queued)) != 0) return false;
  std::uint64_t before = 0;
  {
    WakeList wake;
    const std::lock_guard guard(stripe(index).latch);
    before = node.word.change_bits(0, word::queued);  // I2: then look at the lanes
    bool idle = (before & (word::holder | word::queued)) == 0;
    if (idle) {
      const Counts counts = count(node);
      idle = counts.is + counts.ix + counts.s == 0;
    }
    if (!idle) {
      settle(index, wake);
      return false;
    }
    // A new generation first: whatever still refers to the old key fails from here on.
    node.word.set((std::uint64_t{word::generation(before)} + 1) << word::generation_shift | word::closed |
                  word::unused);
  }
  index_remove(node.hash.relaxed(), index);
  header_->index_entries.set(header_->index_entries.relaxed() - 1);
  header_->fence_floor.set(std::max({header_->fence_floor.relaxed(), node.last_fence.relaxed(),
                                     (before & word::marked) != 0 ? highest_fence() : 0}));  // I6
  if (const Index parent = node.parent.relaxed(); parent != none) nodes_[parent].children.subtract(1);
  node.meta.set(0);
  free_blocks(node.more.exchange(none));
  const std::lock_guard guard(header_->pool_latch);
  node.parent.set(header_->nodes.free.relaxed());
  header_->nodes.free.set(index);
  return true;
}

bool Table::grow_index() {
  const std::uint32_t old = header_->index_log2.relaxed();
  const std::size_t old_size = std::size_t{1} << old;
  const std::size_t offset = at_.index + (2 * old_size - first_index_size) * sizeof(std::uint64_t);
  if (!region_.commit(offset, 2 * old_size * sizeof(std::uint64_t))) return false;
  Cell<std::uint64_t>* const entries = index_of(old + 1);
  const std::size_t mask = 2 * old_size - 1;
  for (std::size_t i = 0; i < old_size; ++i) {
    const std::uint64_t entry = index_of(old)[i].relaxed();
    if (entry == 0) continue;
    std::size_t place = index_place(nodes_[static_cast<Index>(entry)].hash.relaxed(), old + 1);
    while (entries[place].relaxed() != 0) place = (place + 1) & mask;
    entries[place].set(entry);
  }
  header_->index_log2.set(old + 1);
  // Late readers of the old index find zeros, which is a miss, and come to the latch.
  region_.discard(at_.index + (old_size - first_index_size) * sizeof(std::uint64_t), old_size * sizeof(std::uint64_t));
  return true;
}

void Table::index_insert(std::uint64_t hash, Index node) noexcept {
  const std::uint32_t log2 = header_->index_log2.relaxed();
  Cell<std::uint64_t>* const entries = index_of(log2);
  std::size_t place = index_place(hash, log2);
  while (entries[place].relaxed() != 0) place = (place + 1) & ((std::size_t{1} << log2) - 1);
  entries[place].set(entry_of(hash, node));
}

// Closes the gap by moving later entries up: each is copied before its old place is cleared, so none is ever absent.
void Table::index_remove(std::uint64_t hash, Index node) noexcept {
  const std::uint32_t log2 = header_->index_log2.relaxed();
  Cell<std::uint64_t>* const entries = index_of(log2);
  const std::size_t mask = (std::size_t{1} << log2) - 1;
  std::size_t gap = index_place(hash, log2);
  while (entries[gap].relaxed() != entry_of(hash, node)) {
    if (entries[gap].relaxed() == 0) return;
    gap = (gap + 1) & mask;
  }
  for (std::size_t next = (gap + 1) & mask;; next = (next + 1) & mask) {
    const std::uint64_t entry = entries[next].relaxed();
    if (entry == 0) break;
    const std::size_t home = index_place(nodes_[static_cast<Index>(entry)].hash.relaxed(), log2);
    if (((next - home) & mask) < ((next - gap) & mask)) continue;  // it would stand before its home
    entries[gap].set(entry);
    gap = next;
  }
  entries[gap].set(0);
}

}  // namespace hierlock::engine
