#include "engine/parts.h"

#include <time.h>

#include <algorithm>
#include <bit>

#include "engine/block_text.h"
#include "engine/file.h"

namespace hierlock::engine {

namespace {

constexpr std::size_t page = 65'536;  // a multiple of every page size we know

}  // namespace

std::int64_t coarse_time() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

namespace {

// `alone`: one process has all chunks there are. Otherwise every entry that is used may be the only one in its chunk.
Capacity capacity_for(std::uint64_t locks, std::uint32_t lanes, bool alone) {
  // A lock on a path of its own needs a record and up to three nodes in the usual schema, and an owner if every handle
  // has one. All of this is addresses, not memory.
  constexpr std::uint64_t growth_step = std::uint64_t{chunk_size} * chunks_per_growth;
  const auto bounded = [](std::uint64_t wanted, std::uint64_t most) {
    return static_cast<std::uint32_t>(round_up(std::min(wanted, most - growth_step), growth_step));
  };
  Capacity c;
  // What is used beside what is held: a thread with a lane keeps 64 free records (or owners with a record each), any
  // other owner keeps two. A process keeps 64 entries of each kind, in chunks of which it uses nothing. Half the lanes
  // of a file are those of processes.
  const std::uint64_t kept = std::uint64_t{alone ? lanes : lanes / 2} * 64;
  const std::uint64_t spares = std::min<std::uint64_t>(lanes, process_count) * 64;
  const std::uint64_t owners = locks + kept;
  const std::uint64_t for_each = alone ? 1 : chunk_size;
  c.records = bounded(for_each * (3 * locks + kept) + spares, word::holder);
  c.nodes = bounded(3 * locks + 64, std::uint64_t{1} << 26);
  c.owners = bounded(for_each * owners + spares, word::holder);
  c.blocks = bounded(for_each * 4 * locks + spares, std::uint64_t{1} << 28);
  c.texts = bounded(4 * locks + 1024, std::uint64_t{1} << 26);
  c.lanes = lanes;
  c.waiters_per_stripe = 16'384;
  c.idle_nodes = 262'144;
  c.idle_pages = 4096;  // 16 MiB
  // Each lane has addresses for all of them. So small tables have a number for each node, large ones have fewer.
  const std::uint64_t idle = std::min<std::uint64_t>(c.nodes, c.idle_nodes + 4096);
  c.tallies = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(round_up(std::max(2 * locks, idle) + 1, arena_size), std::uint64_t{1} << 23));
  return c;
}

}  // namespace

Capacity Capacity::for_locks(std::uint64_t locks) { return capacity_for(locks, 128, true); }

Capacity Capacity::for_locks(std::uint64_t locks, std::uint32_t lanes) { return capacity_for(locks, lanes, false); }

Offsets lay_out(const Capacity& c) {
  Offsets at{};
  std::size_t end = 0;
  const auto next = [&](std::size_t bytes) {
    const std::size_t here = end;
    end = round_up(end + bytes, page);
    return here;
  };
  const std::size_t largest_index = std::bit_ceil(std::size_t{c.nodes} * 2);
  at.description = next(Description::bytes);
  at.header = next(sizeof(Header));
  at.index = next(std::max(2 * largest_index, 2 * first_index_size) * sizeof(std::uint64_t));
  at.nodes = next((std::size_t{c.nodes} + growth) * line);
  at.texts = next((std::size_t{c.texts} + growth) * line);
  const auto chunked = [&](Area& area, std::uint32_t entries) {
    area.chunks = entries / chunk_size;
    area.owners = next(std::size_t{area.chunks} * sizeof(ProcessRef));
    area.entries = next(std::size_t{entries} * line);
  };
  chunked(at.records, c.records);
  chunked(at.owners, c.owners);
  chunked(at.blocks, c.blocks);
  at.waiters = next((std::size_t{stripe_count} * c.waiters_per_stripe + 1) * line);
  at.arenas = next(std::size_t{c.tallies} / arena_size * sizeof(Arena));
  at.pages = next(std::size_t{c.tallies} / arena_size * most_lanes * sizeof(PageState));
  at.tallies = next(std::size_t{c.lanes} * c.tallies * sizeof(Tally));
  at.end = end;
  return at;
}

Parts::Parts(const Capacity& capacity, Region& region, Processes& processes, const LaneView* views)
    : capacity_(capacity), at_(lay_out(capacity)), region_(&region), processes_(processes), views_(views) {
  std::byte* const base = region_->base();
  header_ = reinterpret_cast<Header*>(base + at_.header);
  index_array_ = reinterpret_cast<Cell<std::uint64_t>*>(base + at_.index);
  node_array_ = reinterpret_cast<Node*>(base + at_.nodes);
  text_array_ = reinterpret_cast<Block*>(base + at_.texts);
  record_array_ = reinterpret_cast<Record*>(base + at_.records.entries);
  owner_array_ = reinterpret_cast<OwnerSlot*>(base + at_.owners.entries);
  block_array_ = reinterpret_cast<Block*>(base + at_.blocks.entries);
  waiter_array_ = reinterpret_cast<Waiter*>(base + at_.waiters);
  arena_array_ = reinterpret_cast<Arena*>(base + at_.arenas);
  page_array_ = reinterpret_cast<Cell<PageState>*>(base + at_.pages);
  tally_array_ = reinterpret_cast<Tally*>(base + at_.tallies);
  const std::size_t largest = std::max(std::bit_ceil(std::size_t{capacity_.nodes} * 2), first_index_size);
  largest_index_log2_ = static_cast<std::uint32_t>(std::bit_width(largest) - 1);
}

bool Parts::anybody_entangled() const noexcept {
  for (std::uint32_t slot = 1; slot < processes_.used(); ++slot) {
    if (processes_.slot(slot).entangled.ordered() != 0 && processes_.slot_live(slot)) return true;
  }
  return false;
}

std::optional<Mode> Parts::held_mode(Index record, Index node) const noexcept {
  std::optional<Mode> found;
  any_hold(record_at(record), [&](Index held, Mode mode, bool) {
    if (held == node) found = mode;
    return found.has_value();
  });
  return found;
}

Cell<std::uint64_t>* Parts::find_step(Index record, Index node) const noexcept {
  Index walked = 0;
  for (Index b = record_at(record).steps.relaxed(); b != none && ++walked < capacity_.blocks;
       b = block_at(b).next.relaxed()) {
    for (auto& w : block_at(b).word) {
      if (w.relaxed() != 0 && step_node(w.relaxed()) == node) return &w;
    }
  }
  return nullptr;
}

std::string Parts::read_text(Index first) const {
  return read_blocks(first, [this](Index i) -> const Block& { return block_at(i); });
}

std::string Parts::read_long_segment(Index first) const {
  return read_blocks(first, [this](Index i) -> const Block& { return text_at(i); });
}

}  // namespace hierlock::engine
