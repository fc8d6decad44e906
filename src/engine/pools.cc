// Pools: where nodes, records, owners, blocks and tallies come from, and the text in blocks. Guarded by pool_latch.
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include <hierlock/error.h>

#include "engine/table.h"
#include "plan/text.h"

namespace hierlock::engine {

namespace {

constexpr std::size_t growth = 4096;        // entries of a pool made usable at a time
constexpr std::size_t tally_growth = 4096;  // 64 KiB of each lane
constexpr std::size_t page = 65'536;        // a multiple of every page size we know

constexpr std::size_t longest_note = 255;  // bytes kept of a note or an owner's name

Error no_memory() {
  return {ErrorKind::exhausted,
          "no memory for a lock table: close Lockers that are not needed; each takes memory and mappings "
          "(vm.max_map_count)",
          errno};
}

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

std::int64_t coarse_time() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Capacity Capacity::for_locks(std::uint64_t locks) {
  // A lock on a path of its own needs a record and up to three nodes in the usual schema. An owner keeps the records of
  // the most locks it ever held at once, so there are more of them than locks. All of this is addresses, not memory.
  const auto bounded = [](std::uint64_t wanted, std::uint64_t most) {
    return static_cast<std::uint32_t>(std::min(wanted, most));
  };
  Capacity c;
  c.records = bounded(4 * locks + 4096, word::holder - 1);
  c.nodes = bounded(3 * locks + 64, std::uint64_t{1} << 26);
  c.owners = bounded(locks + 1024, std::uint64_t{1} << 25);
  c.blocks = bounded(4 * locks + 1024, std::uint64_t{1} << 26);
  c.tallies = static_cast<std::uint32_t>(round_up(bounded(2 * locks + 64, std::uint64_t{1} << 23), tally_growth));
  c.waiters_per_stripe = 16'384;
  c.idle_nodes = 262'144;
  return c;
}

Table::Offsets Table::lay_out(const Capacity& c) {
  Offsets at{};
  std::size_t end = 0;
  const auto next = [&](std::size_t bytes) {
    const std::size_t here = end;
    end = round_up(end + bytes, page);
    return here;
  };
  const std::size_t largest_index = std::bit_ceil(std::size_t{c.nodes} * 2);
  at.header = next(sizeof(Header));
  at.index = next(std::max(2 * largest_index, 2 * first_index_size) * sizeof(std::uint64_t));
  at.nodes = next((std::size_t{c.nodes} + growth) * line);
  at.records = next((std::size_t{c.records} + growth) * line);
  at.owners = next((std::size_t{c.owners} + growth) * line);
  at.blocks = next((std::size_t{c.blocks} + growth) * line);
  at.waiters = next(std::size_t{stripe_count} * c.waiters_per_stripe * line);
  at.tallies = next(std::size_t{lane_count} * c.tallies * sizeof(Tally));
  at.end = end;
  return at;
}

Table::Table(const Capacity& capacity) : capacity_(capacity), at_(lay_out(capacity)), region_(at_.end) {
  std::byte* const base = region_.base();
  header_ = reinterpret_cast<Header*>(base + at_.header);
  index_ = reinterpret_cast<Cell<std::uint64_t>*>(base + at_.index);
  nodes_ = reinterpret_cast<Node*>(base + at_.nodes);
  records_ = reinterpret_cast<Record*>(base + at_.records);
  owners_ = reinterpret_cast<OwnerSlot*>(base + at_.owners);
  blocks_ = reinterpret_cast<Block*>(base + at_.blocks);
  waiters_ = reinterpret_cast<Waiter*>(base + at_.waiters);
  tallies_ = reinterpret_cast<Tally*>(base + at_.tallies);

  // Waiters are made usable at once: addresses only, a page is used when somebody waits on it.
  const bool ready = region_.commit(at_.header, sizeof(Header)) &&
                     region_.commit(at_.index, first_index_size * sizeof(std::uint64_t)) &&
                     region_.commit(at_.waiters, std::size_t{stripe_count} * capacity_.waiters_per_stripe * line);
  if (!ready) throw no_memory();

  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  header_->fence_floor.set(std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec);
  header_->index_log2.set(std::bit_width(first_index_size) - 1);
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) {
    random = static_cast<std::uint64_t>(wall.tv_nsec) * 0x9E3779B97F4A7C15u;
  }
  header_->index_multiplier.set(random | 1);
  index_multiplier_ = header_->index_multiplier.relaxed();
  const auto prepare = [](Pool& pool, std::uint32_t size) {
    pool.next.set(1);
    pool.capacity.set(size);
  };
  prepare(header_->nodes, capacity_.nodes);
  prepare(header_->records, capacity_.records);
  prepare(header_->owners, capacity_.owners);
  prepare(header_->blocks, capacity_.blocks);
  prepare(header_->tallies, capacity_.tallies);
  header_->lanes_used.set(common_lane + 1);
  if (!region_.commit(at_.nodes, growth * line) || !region_.commit(at_.records, growth * line) ||
      !region_.commit(at_.owners, growth * line) || !region_.commit(at_.blocks, growth * line) ||
      !region_.commit(at_.tallies, tally_growth * sizeof(Tally))) {
    throw no_memory();
  }
}

Index Table::pool_take(Pool& pool, std::size_t offset, Cell<Index>* (*link)(Table&, Index)) {
  const std::lock_guard guard(header_->pool_latch);
  if (const Index free = pool.free.relaxed(); free != none) {
    pool.free.set(link(*this, free)->relaxed());
    return free;
  }
  const Index fresh = pool.next.relaxed();
  if (fresh > pool.capacity.relaxed()) return none;
  if (fresh % growth == 0 && !region_.commit(offset + std::size_t{fresh} * line, growth * line)) return none;
  pool.next.set(fresh + 1);
  return fresh;
}

// --- blocks and text -------------------------------------------------------------------------------------

Index Table::take_block() {
  const Index block = pool_take(header_->blocks, at_.blocks, [](Table& t, Index i) { return &t.blocks_[i].next; });
  if (block == none) return none;
  Block& b = blocks_[block];
  for (auto& w : b.word) w.set(0);
  b.next.set(none);
  b.used.set(0);
  return block;
}

void Table::free_blocks(Index first) noexcept {
  if (first == none) return;
  Index last = first;
  while (blocks_[last].next.relaxed() != none) last = blocks_[last].next.relaxed();
  const std::lock_guard guard(header_->pool_latch);
  blocks_[last].next.set(header_->blocks.free.relaxed());
  header_->blocks.free.set(first);
}

Index Table::write_text(std::string_view text) {
  constexpr std::size_t room = Block::words * 8;
  Index first = none;
  Index previous = none;
  while (!text.empty()) {
    const Index index = take_block();
    if (index == none) {
      free_blocks(first);
      return none;
    }
    Block& block = blocks_[index];
    block.used.set(static_cast<std::uint32_t>(text.size()));
    const std::string_view part = text.substr(0, room);
    for (std::size_t i = 0; i < part.size(); i += 8) {
      std::uint64_t bytes = 0;
      std::memcpy(&bytes, part.data() + i, std::min<std::size_t>(8, part.size() - i));
      block.word[i / 8].set(bytes);
    }
    text.remove_prefix(part.size());
    if (previous == none) {
      first = index;
    } else {
      blocks_[previous].next.set(index);
    }
    previous = index;
  }
  return first;
}

std::string Table::read_text(Index first) const {
  constexpr std::size_t room = Block::words * 8;
  constexpr std::size_t most = max_name_bytes / room + 2;
  std::string text;
  Index index = first;
  for (std::size_t i = 0; index != none && i < most; ++i, index = blocks_[index].next.acquire()) {
    const std::size_t size = std::min<std::size_t>(room, blocks_[index].used.acquire());
    char bytes[room];
    for (std::size_t w = 0; w < Block::words; ++w) {
      const std::uint64_t word = blocks_[index].word[w].acquire();
      std::memcpy(bytes + w * 8, &word, 8);
    }
    text.append(bytes, size);
  }
  return text;
}

// --- owners and records ----------------------------------------------------------------------------------

Index Table::make_owner(std::string_view name, OwnerKind kind) {
  const Index owner = pool_take(header_->owners, at_.owners, [](Table& t, Index i) { return &t.owners_[i].next_free; });
  if (owner == none) return none;
  OwnerSlot& slot = owners_[owner];
  slot.name.set(write_text(plan::cut_short(name, longest_note)));
  slot.process.set(getpid());
  slot.thread.set(static_cast<std::int32_t>(syscall(SYS_gettid)));
  slot.kind.set(static_cast<std::uint32_t>(kind));
  slot.word.set(((slot.word.relaxed() >> 32) + 1) << 32 | static_cast<std::uint32_t>(OwnerState::live));
  return owner;
}

bool Table::owner_holds_anything(Index owner) const {
  for (Index r = owners_[owner].records.acquire(); r != none; r = records_[r].next_of_owner.acquire()) {
    if (record_state(records_[r].word.acquire()) != RecordState::free) return true;
  }
  return false;
}

void Table::retire_owner(Index owner) noexcept {
  OwnerSlot& slot = owners_[owner];
  std::uint64_t live = slot.word.ordered();
  if (static_cast<OwnerState>(live & 0xFFFFFFFF) == OwnerState::live) {
    slot.word.cas(live, (live >> 32) << 32 | static_cast<std::uint32_t>(OwnerState::retired));
  }
  // Whoever finds it retired with nothing held frees it; the compare-and-swap lets only one of them.
  if (owner_holds_anything(owner)) return;
  std::uint64_t retired = slot.word.ordered();
  if (static_cast<OwnerState>(retired & 0xFFFFFFFF) != OwnerState::retired) return;
  if (!slot.word.cas(retired, (retired >> 32) << 32 | static_cast<std::uint32_t>(OwnerState::free))) return;
  free_blocks(slot.name.exchange(none));
  const std::lock_guard guard(header_->pool_latch);
  slot.next_free.set(header_->owners.free.relaxed());
  header_->owners.free.set(owner);
}

Index Table::take_record(Index owner) {
  OwnerSlot& slot = owners_[owner];
  const bool crowd = owner_kind(owner) == OwnerKind::crowd;
  if (crowd) slot.latch.lock();
  // Pushing by anybody and popping by one at a time needs no counter against reuse: a popped record is not pushed
  // again before this pop is over.
  Index record = slot.returned.acquire();
  while (record != none && !slot.returned.cas(record, records_[record].next_free.relaxed())) {
  }
  if (record == none) {
    record = pool_take(header_->records, at_.records, [](Table& t, Index i) { return &t.records_[i].next_free; });
    if (record != none) {
      records_[record].owner.set(owner);
      Index head = slot.records.relaxed();
      do {
        records_[record].next_of_owner.set(head);
      } while (!slot.records.cas(head, record));
    }
  }
  if (crowd) slot.latch.unlock();
  return record;
}

void Table::return_record(Index record) noexcept {
  const Index owner = records_[record].owner.relaxed();
  OwnerSlot& slot = owners_[owner];
  Index head = slot.returned.relaxed();
  do {
    records_[record].next_free.set(head);
  } while (!slot.returned.cas(head, record));
  if (static_cast<OwnerState>(slot.word.ordered() & 0xFFFFFFFF) == OwnerState::retired) retire_owner(owner);
}

void Table::set_note(Index record, std::string_view note) {
  records_[record].note.set(write_text(plan::cut_short(note, longest_note)));
}

// --- lanes and tallies -----------------------------------------------------------------------------------

std::uint32_t Table::enter_lane() noexcept {
  const std::lock_guard guard(header_->pool_latch);
  const std::uint32_t used = header_->lanes_used.relaxed();
  for (std::uint32_t lane = common_lane + 1; lane < used; ++lane) {
    if (header_->lanes[lane].users.relaxed() != 0) continue;
    header_->lanes[lane].users.set(1);
    return lane;
  }
  const std::size_t bytes = round_up(header_->tallies.next.relaxed(), tally_growth) * sizeof(Tally);
  const std::size_t offset = at_.tallies + std::size_t{used} * capacity_.tallies * sizeof(Tally);
  if (used == lane_count || !region_.commit(offset, bytes)) return common_lane;
  header_->lanes[used].users.set(1);
  header_->lanes_used.exchange(used + 1);  // ordered: a writer that misses this lane is seen by its user (I2)
  return used;
}

void Table::leave_lane(std::uint32_t lane) noexcept {
  if (lane == common_lane) return;
  const std::lock_guard guard(header_->pool_latch);
  header_->lanes[lane].users.set(0);
}

bool Table::give_tally(Node& node) {
  const std::lock_guard guard(header_->pool_latch);
  const Index fresh = header_->tallies.next.relaxed();
  if (fresh >= capacity_.tallies) return false;
  if (fresh % tally_growth == 0) {
    for (std::uint32_t lane = 0; lane < header_->lanes_used.relaxed(); ++lane) {
      const std::size_t offset = at_.tallies + (std::size_t{lane} * capacity_.tallies + fresh) * sizeof(Tally);
      if (!region_.commit(offset, tally_growth * sizeof(Tally))) return false;
    }
  }
  header_->tallies.next.set(fresh + 1);
  node.tally.set(fresh);
  return true;
}

}  // namespace hierlock::engine
