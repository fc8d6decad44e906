#include "engine/tallies.h"

#include <algorithm>
#include <span>

#include "engine/shortage.h"

namespace hierlock::engine {

Tallies::Tallies(const Parts& parts, const Holders& holders, Queues& queues, Lanes& lanes)
    : Parts(parts), holders_(holders), queues_(queues), lanes_(lanes) {}

Tallies::~Tallies() {
  if (!shared()) private_pages_.fetch_sub(header_->pages.relaxed(), std::memory_order_relaxed);
}

// --- pages of tallies ------------------------------------------------------------------------------------
//
// Only the thread of a lane counts in the pages of the lane, and only it gives them back. The common lane of a process
// gets its page first and keeps it: whoever gives back what another thread took can always count there.

// In private memory the pages of the common lane are only addresses, as long as nobody needs to count there.
void Tallies::count_pages(std::uint32_t lane, std::int32_t more) noexcept {
  if (!region_->in_file() && lane == lanes_.common()) return;
  header_->pages.add(static_cast<std::uint32_t>(more));
  if (!region_->in_file()) private_pages_.fetch_add(more, std::memory_order_relaxed);
}

// Under index_latch. A page has memory before anybody sees that it is there.
bool Tallies::give_page(std::uint32_t lane, Index arena) noexcept {
  if (has_page(lane, arena)) return true;
  constexpr std::size_t together = 65'536;  // in private memory: the pages of a lane are one mapping
  const std::size_t all = std::size_t{capacity_.tallies} * sizeof(Tally);
  const std::size_t first = region_->in_file() ? arena * tally_page : 0;
  const std::size_t end =
      region_->in_file() ? first + tally_page : std::min(round_up((arena + 1) * tally_page, together), all);
  const bool spare = has_memory(lane, arena);
  if (!spare && !region_->commit(at_.tallies + lane * all + first, end - first)) return false;
  // Ordered: a writer that misses the page is seen by whoever counts in it (I2).
  page_at(lane, arena).exchange(PageState::used);
  if (!spare) count_pages(lane, 1);
  return true;
}

bool Tallies::give_pages(std::uint32_t lane, Index arena) noexcept {
  lacks(Shortage::memory);
  if (!give_page(lanes_.common(), arena)) return false;
  give_page(lane, arena);  // if it cannot be had, the lane's thread counts in the common page
  return true;
}

// By the lane's own thread, or when it has ended. Nobody else writes there, so what is empty stays empty. Not in a
// file: somebody may just be reading the page, and reading a hole of a file can fail when the filesystem is full.
bool Tallies::drop_page_if_empty(std::uint32_t lane, Index arena) noexcept {
  if (region_->in_file() || lane == lanes_.common()) return false;
  const Tally* const page = tally_of(lane, arena * arena_size);
  if (page == nullptr) return false;
  for (const Tally& tally : std::span(page, arena_size)) {
    if ((tally.intents.relaxed() | tally.shared.relaxed()) != 0) return false;
  }
  page_at(lane, arena).exchange(PageState::absent);
  region_->discard(at_.tallies + (std::size_t{lane} * capacity_.tallies + arena * arena_size) * sizeof(Tally),
                   tally_page);
  count_pages(lane, -1);
  return true;
}

// Looks at one page of the lane at a time. The page where it got its last number stays.
void Tallies::drop_some_page(std::uint32_t lane) noexcept {
  if (region_->in_file()) return;
  Lane& own = header_->lanes[lane];
  const Index arena = own.page_hand.relaxed() % arenas_used();
  own.page_hand.set(arena + 1);
  if (arena != own.arena.relaxed()) drop_page_if_empty(lane, arena);
}

void Tallies::drop_empty_pages(std::uint32_t lane) noexcept {
  for (Index arena = 0; !region_->in_file() && arena < arenas_used(); ++arena) drop_page_if_empty(lane, arena);
}

// Whether pages may lie idle: a few of each table, and some more of all tables in private memory together, or of a
// file.
bool Tallies::roomy() const noexcept {
  constexpr std::uint32_t few = 16;
  const std::uint32_t own = header_->pages.relaxed();
  if (own < std::min(few, capacity_.idle_pages)) return true;
  const std::int64_t all = region_->in_file() ? own : private_pages_.load(std::memory_order_relaxed);
  return all < capacity_.idle_pages;
}

// Model: C5. Wipes the pages of the dead process's lanes. They stay with the lane, for its next user. Pages without
// memory are not touched: on a full filesystem even reading them is a signal.
bool Tallies::collect_lanes(ProcessRef dead, const Budget& budget) noexcept {
  Cell<std::uint64_t>& at = header_->collecting[slot_of(dead)].at;
  constexpr Index pages_at_a_time = 16;
  const Index arenas = arenas_used();
  for (std::uint32_t lane = 0; lane < lanes_used(); ++lane) {
    if (!Processes::left_by(dead, header_->lanes[lane].process.ordered())) continue;
    const std::uint64_t begun = at.acquire();
    Index wiped = 0;
    for (Index arena = begun >> 32 == lane + 1 ? static_cast<Index>(begun) : 0; arena < arenas; ++arena) {
      Tally* const page = tally_of(lane, arena * arena_size);
      if (page == nullptr) continue;
      if (++wiped % pages_at_a_time == 0 && budget.spent()) {
        at.set(std::uint64_t{lane + 1} << 32 | arena);
        return false;
      }
      for (Tally& tally : std::span(page, arena_size)) {
        if (tally.intents.relaxed() != 0) tally.intents.set(0);
        if (tally.shared.relaxed() != 0) tally.shared.set(0);
      }
      page_at(lane, arena).set(PageState::spare);
    }
    // Before the lane is given away: its next user begins with other tallies.
    if (begun != 0) at.set(0);
    header_->lanes[lane].process.exchange(0);
    if (budget.spent()) return false;
  }
  return true;
}

// --- numbers of tallies ----------------------------------------------------------------------------------
//
// A node has a number while it is shared, and until somebody else needs it. Everything here happens under index_latch.
// If a process dies in the middle, rebuild_numbers() makes the arenas again: Node::tally decides. The argument stands
// in docs/engine.md, "Numbers".

bool Tallies::make_arena() {
  const Index arena = header_->arenas.relaxed();
  lacks(Shortage::tallies);
  if (arena >= arenas_end()) return false;
  lacks(Shortage::memory);
  if (!region_->commit(at_.arenas + arena * sizeof(Arena), sizeof(Arena)) ||
      !region_->commit(at_.pages + std::size_t{arena} * most_lanes, capacity_.lanes)) {
    return false;
  }
  header_->arenas.set(arena + 1);
  return true;
}

// From an arena in which the lane has a page already, if there is one near: so a thread needs few pages, and processes
// that lock different things do not need pages for each other's.
bool Tallies::give_number(Index node, std::uint32_t lane) {
  constexpr Index looks = 64;
  constexpr std::uint32_t glance = 16;
  constexpr int tries = 4;
  const Index arenas = arenas_used();
  const Index last = std::min(header_->lanes[lane].arena.relaxed(), arenas - 1);
  if (!roomy()) drop_some_page(lane);
  if (give_number_of(last, node, lane)) return true;
  Index sparse = arenas;
  for (Index i = 1; i < std::min(looks, arenas); ++i) {
    const Index arena = (last + i) % arenas;
    const std::uint32_t used = arena_array_[arena].used.relaxed();
    if (used < arena_size / 4 && sparse == arenas) sparse = arena;
    if (used <= arena_size * 3 / 4 && has_memory(lane, arena) && give_number_of(arena, node, lane)) return true;
  }
  if (!roomy()) {
    int tried = 0;
    for (Index i = 0; i < std::min(looks, arenas) && tried < tries; ++i) {
      const Index arena = (last + i) % arenas;
      if (!has_memory(lane, arena)) continue;
      ++tried;
      take_back_numbers(arena, glance);
      if (give_number_of(arena, node, lane)) return true;
    }
    if (sparse < arenas && give_number_of(sparse, node, lane)) return true;
  }
  if (make_arena() && give_number_of(arenas, node, lane)) return true;
  return give_number_without_memory(node, lane);
}

// There is no memory for another page, or no number that was never given: then any number will do that needs none.
bool Tallies::give_number_without_memory(Index node, std::uint32_t lane) {
  constexpr int most_arenas = 16;
  const Index arenas = arenas_used();
  const bool no_memory = shortage() == Shortage::memory;
  const auto usable = [&](Index arena) { return !no_memory || has_memory(lanes_.common(), arena); };
  for (Index arena = 0; arena < arenas; ++arena) {
    if (usable(arena) && give_number_of(arena, node, lane)) return true;
  }
  int tried = 0;
  Index arena = header_->number_hand.relaxed();
  for (Index i = 0; i < arenas && tried < most_arenas; ++i) {
    arena = arena + 1 < arenas ? arena + 1 : 0;
    if (!usable(arena)) continue;
    ++tried;
    take_back_numbers(arena, arena_size);
    if (!give_number_of(arena, node, lane)) continue;
    header_->number_hand.set(arena);
    return true;
  }
  header_->number_hand.set(arena);
  lacks(no_memory ? Shortage::memory : Shortage::tallies);
  return false;
}

bool Tallies::give_number_of(Index index, Index node, std::uint32_t lane) {
  Arena& arena = arena_at(index);
  if (arena.used.relaxed() >= arena_size || !give_pages(lane, index)) return false;
  for (Index i = 0; i < arena_size; ++i) {
    const Index place = (arena.hint.relaxed() + i) % arena_size;
    if (arena.node[place].relaxed() != none) continue;
    arena.node[place].set(node);
    arena.hint.set(place + 1);
    arena.used.set(arena.used.relaxed() + 1);
    if (Cell<Index>& last = header_->lanes[lane].arena; last.relaxed() != index) last.set(index);
    node_at(node).tally.set(index * arena_size + place);
    return true;
  }
  return false;
}

void Tallies::free_number(Node& node) noexcept {
  const Index number = node.tally.relaxed();
  if (number == none || number / arena_size >= arenas_used()) return;
  node.tally.set(none);
  Arena& arena = arena_at(number / arena_size);
  arena.node[number % arena_size].set(none);
  arena.used.set(arena.used.relaxed() - 1);
}

void Tallies::take_back_numbers(Index index, std::uint32_t looks) {
  Arena& arena = arena_at(index);
  const std::uint32_t hint = arena.hint.relaxed();
  bool any = false;
  for (std::uint32_t i = 0; i < looks; ++i) {
    const Index number = (hint + i) % arena_size;
    const Index node = arena.node[number].relaxed();
    if (node == none || node == nobodys_node) continue;
    any = (node_at(node).tally.relaxed() == index * arena_size + number && take_back_number(node)) || any;
  }
  if (!any) arena.hint.set(hint + looks);  // the next look begins with others
}

// The same steps as reuse(), but the node stays what it is. Also under the latch of its stripe.
bool Tallies::take_back_number(Index index) {
  Node& node = node_at(index);
  if ((node.word.relaxed() & (word::holder | word::queued)) != 0) return false;
  WakeList wake(processes_.reach());
  const Queues::Latched latched(queues_, index, false, shared() ? 0 : Latch::for_ever);
  if (!latched.taken()) return false;
  const std::uint64_t before = node.word.change_bits(0, word::queued);  // I2: then look at the lanes
  bool idle = (before & (word::holder | word::queued | word::unused)) == 0;
  if (idle) {
    const Holders::Counts counts = holders_.count(index);  // broken locks included: their owners will subtract here
    idle = counts.is + counts.ix + counts.s == 0;
  }
  if (idle) {
    // Without the mark nobody looks at the lanes any more.
    if ((before & word::marked) != 0)
      node.last_fence.set(std::max(node.last_fence.relaxed(), lanes_.highest_fence()));  // I6
    // A new generation first: from here on whoever has read the number before fails.
    const std::uint32_t generation = word::generation(before) + 1;
    node.word.set(std::uint64_t{generation} << word::generation_shift | (before & word::closed) | word::queued);
    free_number(node);
  }
  queues_.settle(index, wake);
  return idle;
}

void Tallies::rebuild_numbers() noexcept {
  const Index arenas = arenas_used();
  std::uint32_t pages = 0;
  for (Index a = 0; a < arenas; ++a) {
    for (auto& node : arena_array_[a].node) {
      if (node.relaxed() != none) node.set(none);
    }
    arena_array_[a].used.set(0);
    for (std::uint32_t lane = 0; lane < lanes_used(); ++lane) pages += has_memory(lane, a) ? 1 : 0;
  }
  header_->pages.set(pages);
  const auto enter = [&](Index number, Index node) {
    Arena& arena = arena_at(number / arena_size);
    arena.node[number % arena_size].set(node);
    arena.used.set(arena.used.relaxed() + 1);
  };
  enter(0, nobodys_node);
  const Index end = nodes_end();
  for (Index i = 1; i < end; ++i) {
    const Index number = node_at(i).tally.relaxed();
    if (number != none && number / arena_size < arenas) enter(number, i);
  }
}

}  // namespace hierlock::engine
