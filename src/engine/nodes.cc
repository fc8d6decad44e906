#include "engine/nodes.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "engine/block_text.h"
#include "engine/find.h"
#include "engine/shortage.h"
#include "threads/registry.h"

namespace hierlock::engine {

namespace {

constexpr std::uint32_t text_mark = 0x80000000u;

constexpr std::uint64_t entry_of(std::uint64_t hash, Index node) { return (hash & 0xFFFFFFFF00000000u) | node; }

}  // namespace

Nodes::Nodes(const Parts& parts, std::uint64_t index_multiplier, const Holders& holders, Queues& queues,
             const Lanes& lanes, Tallies& tallies)
    : Parts(parts),
      number_(threads::next_number()),
      index_multiplier_(index_multiplier),
      holders_(holders),
      queues_(queues),
      lanes_(lanes),
      tallies_(tallies) {}

// --- finding ---------------------------------------------------------------------------------------------

bool Nodes::rest_matches(const Node& node, std::string_view segment) const noexcept {
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

// The deepest node is looked up by its hash, those above it follow from it; the keys are compared level by level. The
// generation of the deepest node, read first, vouches for all of it: see take_found().
Nodes::Found Nodes::find_path(const spi::Chain& chain) noexcept {
  const IndexView index = index_now();
  const std::size_t deepest = chain.depth - 1u;
  const std::uint64_t hash = chain.hashes[deepest];
  std::size_t place = (hash * index_multiplier_) >> index.shift;
  for (std::size_t probes = 0; probes <= index.mask; ++probes, place = (place + 1) & index.mask) {
    const std::uint64_t entry = index.entries[place].acquire();
    if (entry == 0) return {};
    if ((entry ^ hash) >> 32 != 0) continue;
    const auto found = static_cast<Index>(entry);
    const std::uint64_t word = node_at(found).word.acquire();  // before the comparison
    if ((word & word::unused) != 0) continue;
    Index node = found;
    std::size_t level = chain.depth;
    while (level > 0) {
      --level;
      const Node& at = node_at(node);
      const Index parent = at.parent.acquire();
      if (!matches(at, {chain.hashes[level], chain.segment(level), static_cast<unsigned>(level), chain.space}, parent))
        break;
      node = parent;
      if (level > 0) continue;
      if (node != none) break;  // damaged
      const std::uint64_t noted = std::uint64_t{word::generation(word)} << word::generation_shift | found;
      if (chain.place != nullptr) chain.place->note(number_, noted);
      if (!chain.text.empty()) {
        const Node& above = node_at(node_at(found).parent.acquire());
        const std::uint64_t next = node_index(node_at(above.parent.acquire()));
        texts_noted_.note(chain.text, {noted, next << 32 | node_index(above)});
      }
      return {found, word};
    }
  }
  return {};
}

Nodes::Found Nodes::find_steps(std::span<const spi::Step> steps) const noexcept {
  Found found;
  for (const spi::Step& step : steps) {
    found.node = find(index_now(), key_of(step), found.node, found.word);
    if (found.node == none) break;
  }
  return found;
}

// --- making ----------------------------------------------------------------------------------------------

Nodes::Guard::Guard(Nodes& nodes, std::int64_t patience) noexcept : nodes_(nodes) {
  const Latching how = nodes_.header_->index_latch.lock(nodes_.processes_, patience);
  taken_ = how != Latching::late;
  if (how == Latching::taken_over) nodes_.rebuild();
}

Nodes::Guard::~Guard() {
  if (taken_) nodes_.header_->index_latch.unlock(nodes_.processes_);
}

// A full table is swept in slices, so that the others come to index_latch in between. A caller with a
// deadline gets `too_late` after a few slices, looks at the clock, and goes on where it stopped.
Index Nodes::find_or_create(const spi::Step& step, Index parent, std::uint32_t lane, std::uint64_t& word,
                            std::int64_t patience) {
  if (const Index node = find(index_now(), key_of(step), parent, word); node != none) return node;
  constexpr int most = 16;
  for (int slices = 0; slices < most; ++slices) {
    if (const Index node = create(step, parent, lane, word, patience); node != swept_on) return node;
  }
  return too_late;
}

Index Nodes::create(const spi::Step& step, Index parent, std::uint32_t lane, std::uint64_t& word,
                    std::int64_t patience) {
  const Guard guard(*this, patience);
  if (!guard.taken()) return too_late;
  if (const Index node = find(index_now(), key_of(step), parent, word); node != none) return node;
  if ((std::size_t{header_->index_entries.relaxed()} + 1) * 2 > std::size_t{1} << index_log2() && !grow_index()) {
    lacks(Shortage::memory);
    return none;
  }
  const Index index = fresh_node(lane);
  if (index == none || index == too_late || index == swept_on) return index;
  Node& node = node_at(index);
  Index more = none;
  if (step.segment.size() > inline_text) {
    more = write_long_segment(step.segment.substr(inline_text));
    if (more == none) {
      free_node(index);
      lacks(header_->texts.next.relaxed() < capacity_.texts ? Shortage::memory : Shortage::texts);
      return look_for_idle();
    }
  }
  node.hash.set(step.hash);
  node.parent.set(parent);
  node.meta.set(make_meta(step.segment.size(), step.level, step.space));
  node.text[0].set(text_word(step.segment, 0));
  node.text[1].set(text_word(step.segment, 1));
  node.more.set(more);
  node.children.set(0);
  node.queue.set(none);
  node.last_fence.set(header_->fence_floor.relaxed());
  if (parent != none) node_at(parent).children.add(1);
  if ((step.mode != Mode::X || step.slots != 0) && !tallies_.give_number(index, lane)) {
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

Progress Nodes::prepare_sharing(Index index, std::uint32_t generation, std::uint32_t lane, bool may_move,
                                std::int64_t patience) {
  const Guard guard(*this, patience);
  if (!guard.taken()) return Progress::late;
  const Node& node = node_at(index);
  if (word::generation(node.word.acquire()) != generation) return Progress::granted;
  const Index number = node.tally.relaxed();
  if (number / arena_size >= arenas_used()) return Progress::full;  // damaged
  // Beyond what may lie idle: if nobody shares the node now, a number for which this lane has a page saves another
  // page.
  const bool fresh = number == none || (may_move && !has_page(lane, number / arena_size) && !tallies_.roomy() &&
                                        tallies_.take_back_number(index));
  if (fresh) return tallies_.give_number(index, lane) ? Progress::granted : Progress::full;
  if (!tallies_.roomy()) tallies_.drop_some_page(lane);
  return tallies_.give_pages(lane, number / arena_size) ? Progress::granted : Progress::full;
}

Index Nodes::take_node(std::uint32_t lane) {
  Cell<Index>& run = header_->runs[lane % run_count];
  Cell<Index>& used_before = header_->nodes.free;
  const bool few = header_->index_entries.relaxed() < capacity_.idle_nodes;
  for (Cell<Index>* const list : {few ? &run : &used_before, few ? &used_before : &run}) {
    if (const Index node = pop(*list); node != none) return node;
  }
  if (begin_run(run)) return pop(run);
  for (Cell<Index>& other : header_->runs) {
    if (const Index node = pop(other); node != none) return node;
  }
  return none;
}

Index Nodes::pop(Cell<Index>& list) noexcept {
  const Index first = list.relaxed();
  if (first == none || first >= capacity_.nodes) return none;  // none left, or damaged
  list.set(node_at(first).parent.relaxed());
  return first;
}

bool Nodes::begin_run(Cell<Index>& run) {
  static_assert(growth % run_size == 0);
  const Index first = header_->nodes.next.relaxed();
  if (first >= capacity_.nodes) return false;
  if (first % growth == 0 && !region_->commit(at_.nodes + std::size_t{first} * line, growth * line)) return false;
  const Index end = std::min(first + run_size - first % run_size, capacity_.nodes);
  for (Index node = first; node < end; ++node) node_at(node).parent.set(node + 1 < end ? node + 1 : none);
  run.set(first);
  header_->nodes.next.set(end);
  return true;
}

void Nodes::free_node(Index index) noexcept {
  node_at(index).parent.set(header_->nodes.free.relaxed());
  header_->nodes.free.set(index);
}

Index Nodes::fresh_node(std::uint32_t lane) {
  constexpr std::uint32_t glance = 8;
  if (header_->index_entries.relaxed() >= capacity_.idle_nodes) {
    std::uint64_t late = 0;
    sweep(glance, late);
  }
  if (const Index node = take_node(lane); node != none) return node;
  lacks(header_->nodes.next.relaxed() < capacity_.nodes ? Shortage::memory : Shortage::nodes);
  const Index otherwise = look_for_idle();
  const Index node = take_node(lane);
  return node != none ? node : otherwise;
}

// Under index_latch: the text belongs to the table.
Index Nodes::take_text() {
  Pool& pool = header_->texts;
  Index text = pool.free.relaxed();
  if (text != none) {
    pool.free.set(text_at(text).next.relaxed());
  } else {
    text = pool.next.relaxed();
    if (text >= capacity_.texts) return none;
    if (text % growth == 0 && !region_->commit(at_.texts + std::size_t{text} * line, growth * line)) return none;
    pool.next.set(text + 1);
  }
  clear_block(text_at(text));
  return text;
}

void Nodes::free_texts(Index first) noexcept {
  if (first == none) return;
  Index last = first;
  for (Index i = 0; text_at(last).next.relaxed() != none && i < max_name_bytes; ++i)
    last = text_at(last).next.relaxed();
  text_at(last).next.set(header_->texts.free.relaxed());
  header_->texts.free.set(first);
}

Index Nodes::write_long_segment(std::string_view text) {
  return write_blocks(
      text, [this](Index i) -> Block& { return text_at(i); }, [this] { return take_text(); },
      [this](Index first) { free_texts(first); });
}

// --- using again -----------------------------------------------------------------------------------------

// Under index_latch: one slice. swept_on if it is worth to look on; none if every node is in use.
Index Nodes::look_for_idle() noexcept {
  constexpr std::uint32_t slice = 1024;
  constexpr std::uint32_t glance = 64;
  constexpr std::int64_t remembered = 100'000'000;  // ns
  const std::int64_t now = coarse_time();
  const auto just_now = [&](std::int64_t when) { return when > 0 && now >= when && now - when < remembered; };
  std::uint64_t late = 0;
  if (just_now(header_->swept_in_vain.ordered())) return sweep(glance, late).found ? swept_on : none;
  std::uint32_t looked = 0;
  if (just_now(header_->swept_at.relaxed())) {
    looked = header_->swept.relaxed();
    late = header_->swept_late.relaxed();
  }
  const Swept swept = sweep(slice, late);
  looked = swept.found ? 0 : looked + swept.looked;
  const bool once_round = looked >= nodes_end();
  header_->swept.set(once_round ? 0 : looked);
  header_->swept_late.set(once_round || swept.found ? 0 : late);
  header_->swept_at.set(now);
  if (!once_round) return swept_on;
  if (late != 0) return too_late;  // what somebody keeps the latch of may be idle
  header_->swept_in_vain.exchange(std::max<std::int64_t>(now, 1));
  return none;
}

// Under index_latch. Looks at the next `steps` nodes in turn, or as many as a short time allows, and frees the idle
// ones it meets. A stopped process in the way is met once a stripe (`late`), and not at every node.
Nodes::Swept Nodes::sweep(std::uint32_t steps, std::uint64_t& late) noexcept {
  static_assert(stripe_count == 64);
  constexpr std::int64_t longest = 200'000;  // ns
  constexpr std::uint32_t between_looks = 16;
  const auto clock = [] {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  const std::int64_t began = steps < between_looks ? 0 : clock();
  const Index end = nodes_end();
  Index hand = header_->sweep_hand.relaxed();
  Swept swept{0, false};
  const std::uint32_t farthest = steps + 2 * run_size;  // free nodes are passed over, but not too many
  for (std::uint32_t met = 0; met < steps && swept.looked < farthest;) {
    hand = hand + 1 < end ? hand + 1 : 1;
    ++swept.looked;
    if (began != 0 && swept.looked % between_looks == 0 && clock() - began >= longest) break;
    if (hand < end && node_at(hand).meta.relaxed() == 0) continue;
    ++met;
    const std::uint64_t stripe = std::uint64_t{1} << stripe_of(hand);
    if (hand < end && (late & stripe) == 0) {
      const Reuse reused = reuse(hand);
      if (reused == Reuse::late) late |= stripe;
      swept.found = swept.found || reused == Reuse::done;
    }
  }
  header_->sweep_hand.set(hand);
  return swept;
}

// Model: U1 and U2; U3 is in create().
Nodes::Reuse Nodes::reuse(Index index) {
  Node& node = node_at(index);
  if (node.meta.relaxed() == 0 || (!is_slots(node) && node.children.relaxed() != 0)) return Reuse::in_use;
  const std::uint64_t seen = node.word.relaxed();
  if ((seen & word::holder) != 0) return Reuse::in_use;
  if (const Waiter* const first = queued_at(node.queue.relaxed(), index); first != nullptr && waits(*first)) {
    return Reuse::in_use;
  }
  {
    WakeList wake(processes_.reach());
    const Queues::Latched latched(queues_, index, false, shared() ? 0 : Latch::for_ever);
    if (!latched.taken()) return Reuse::late;
    const std::uint64_t before = node.word.change_bits(0, word::queued);  // I2: then look at the lanes
    // Nobody decides about the node, since the latch is ours: `queued` without a waiter means nothing.
    bool idle = (before & word::holder) == 0 && !queues_.anybody_waits(index);
    if (idle) {
      const Holders::Counts counts = holders_.count(index);  // broken locks included: their owners will subtract here
      idle = counts.is + counts.ix + counts.s == 0;
    }
    if (!idle) {
      queues_.settle(index, wake);
      return Reuse::in_use;
    }
    // The floor first: if this process dies in between, the key's next node must not start below.
    header_->fence_floor.set(std::max({header_->fence_floor.relaxed(), node.last_fence.relaxed(),
                                       (before & word::marked) != 0 ? lanes_.highest_fence() : 0}));  // I6
    // A new generation next: whatever still refers to the old key fails from here on.
    node.word.set((std::uint64_t{word::generation(before)} + 1) << word::generation_shift | word::closed |
                  word::unused);
  }
  tallies_.free_number(node);
  index_remove(node.hash.relaxed(), index);
  header_->index_entries.set(header_->index_entries.relaxed() - 1);
  if (const Index parent = node.parent.relaxed(); parent != none) node_at(parent).children.subtract(1);
  node.meta.set(0);
  free_texts(node.more.exchange(none));
  free_node(index);
  return Reuse::done;
}

// --- the index -------------------------------------------------------------------------------------------

bool Nodes::grow_index() {
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

bool Nodes::index_insert(std::uint64_t hash, Index node) noexcept {
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
void Nodes::index_remove(std::uint64_t hash, Index node) noexcept {
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
// from the nodes and is made again: the index, the numbers of children, the free nodes and texts, the numbers. Dying
// in the middle of this leaves it to the next, who begins again. Those who read the index meanwhile miss, and wait.
void Nodes::rebuild() noexcept {
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
  for (Index i = 1; i < end; ++i) {
    if (!is_node(i) || !is_slots(node_at(i))) node_at(i).children.set(0);
  }
  header_->nodes.free.set(none);
  for (Cell<Index>& run : header_->runs) run.set(none);
  std::uint32_t live = 0;
  for (Index i = 1; i < end; ++i) {
    Node& node = node_at(i);
    if (!is_node(i)) {
      node.tally.set(none);
      node.meta.set(0);
      node.more.set(none);
      free_node(i);
      continue;
    }
    if (node.parent.relaxed() != none) node_at(node.parent.relaxed()).children.add(1);
    if (index_insert(node.hash.relaxed(), i)) ++live;
  }
  header_->index_entries.set(live);
  tallies_.rebuild_numbers();
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
