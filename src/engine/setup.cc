// Setting a table up: where everything lies, a fresh table, joining one that is there, and leaving it.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include <hierlock/error.h>

#include "engine/table.h"

namespace hierlock::engine {

namespace {

constexpr std::size_t page = 65'536;  // a multiple of every page size we know

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

Capacity Capacity::for_locks(std::uint64_t locks, std::uint32_t lanes) {
  // A lock on a path of its own needs a record and up to three nodes in the usual schema. An owner keeps the records of
  // the most locks it ever held at once, so there are more of them than locks. All of this is addresses, not memory.
  const auto bounded = [](std::uint64_t wanted, std::uint64_t most) {
    return static_cast<std::uint32_t>(round_up(std::min(wanted, most), chunk_size));
  };
  Capacity c;
  // And each process takes at least a chunk of each kind.
  const std::uint64_t chunks = std::min<std::uint64_t>(lanes, process_count) * chunk_size;
  c.records = bounded(4 * locks + chunks, word::holder - chunk_size);
  c.nodes = bounded(3 * locks + 64, std::uint64_t{1} << 26);
  c.owners = bounded(locks + chunks, std::uint64_t{1} << 25);
  c.blocks = bounded(4 * locks + chunks, std::uint64_t{1} << 26);
  c.texts = bounded(4 * locks + 1024, std::uint64_t{1} << 26);
  c.lanes = lanes;
  c.waiters_per_stripe = 16'384;
  c.idle_nodes = 262'144;
  // A node keeps its tally, so idle ones must not have them all.
  const std::uint64_t idle = std::min<std::uint64_t>(c.nodes, c.idle_nodes + 4096);
  c.tallies = static_cast<std::uint32_t>(
      round_up(bounded(std::max(2 * locks, idle) + 64, std::uint64_t{1} << 23), tally_growth));
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
  at.tallies = next(std::size_t{c.lanes} * c.tallies * sizeof(Tally));
  at.end = end;
  return at;
}

Table::Table(const Capacity& capacity)
    : capacity_(capacity), at_(lay_out(capacity)), region_(std::make_unique<Region>(at_.end)) {
  find_parts();
  index_multiplier_ = random_multiplier();
  initialise();
  processes_.begin_alone(header_->processes, &header_->processes_used);
  join();
}

Table::Table(const FileOptions& options) : file_(std::make_unique<TableFile>(options)) {
  patience_ = 10'000'000;
  ProcessRef instead_of = 0;
  for (int tries = 0; !enter(options, instead_of); ++tries) {
    if (tries == 200) {
      throw Error(ErrorKind::unavailable,
                  "\"" + options.path + "\" is removed or replaced again and again: try again when that is over");
    }
    usleep(10'000);
  }
  try {
    if (instead_of != 0) {
      collect_all_of(instead_of);
      recover_now(true);
    }
    join();
  } catch (...) {
    leave();
    throw;
  }
  recover();
}

// Becomes one of those who use the table in the file. False if the file was taken away before: then there is a next
// one.
bool Table::enter(const FileOptions& options, ProcessRef& instead_of) {
  open_or_create(options);
  const bool entered =
      processes_.begin(header_->processes, &header_->processes_used, file_->descriptor(), region_->base(), instead_of);
  const bool there = file_->still_there();
  if (entered && there) return true;
  if (there && !Processes::is_shut(file_->descriptor())) {
    throw Error(ErrorKind::exhausted, "\"" + options.path + "\" is used by " + std::to_string(process_count - 1) +
                                          " processes already: that is as many as can share a table");
  }
  if (entered) processes_.leave();
  region_.reset();
  return false;
}

void Table::open_or_create(const FileOptions& options) {
  for (;;) {
    const bool there = file_->open_existing();
    if (!there) file_->create(lay_out(options.capacity).end);
    const Description& description = file_->description();
    capacity_ = description.capacity;
    at_ = lay_out(capacity_);
    if (at_.end != description.file_bytes || capacity_.lanes > most_lanes || capacity_.lanes < 2) {
      throw Error(ErrorKind::incompatible,
                  "\"" + options.path + "\" is damaged. It was left as it is: use another name");
    }
    index_multiplier_ = description.index_multiplier;
    region_ = std::make_unique<Region>(file_->descriptor(), at_.end);
    find_parts();
    if (there) break;
    initialise();
    if (file_->publish()) break;
    region_.reset();
  }
}

Table::~Table() { leave(); }

void Table::find_parts() noexcept {
  std::byte* const base = region_->base();
  header_ = reinterpret_cast<Header*>(base + at_.header);
  index_ = reinterpret_cast<Cell<std::uint64_t>*>(base + at_.index);
  nodes_ = reinterpret_cast<Node*>(base + at_.nodes);
  texts_ = reinterpret_cast<Block*>(base + at_.texts);
  records_ = reinterpret_cast<Record*>(base + at_.records.entries);
  owners_ = reinterpret_cast<OwnerSlot*>(base + at_.owners.entries);
  blocks_ = reinterpret_cast<Block*>(base + at_.blocks.entries);
  waiters_ = reinterpret_cast<Waiter*>(base + at_.waiters);
  tallies_ = reinterpret_cast<Tally*>(base + at_.tallies);
  const std::size_t largest = std::max(std::bit_ceil(std::size_t{capacity_.nodes} * 2), first_index_size);
  largest_index_log2_ = static_cast<std::uint32_t>(std::bit_width(largest) - 1);
}

void Table::initialise() {
  // In private memory waiters are made usable at once: addresses only, a page is used when somebody waits on it.
  bool ready = region_->commit(at_.header, sizeof(Header)) &&
               region_->commit(at_.index, first_index_size * sizeof(std::uint64_t)) &&
               region_->commit(at_.nodes, growth * line) && region_->commit(at_.texts, growth * line) &&
               region_->commit(at_.tallies, tally_growth * sizeof(Tally)) && region_->commit(at_.waiters, line);
  if (!region_->in_file()) {
    ready =
        ready && region_->commit(at_.waiters, (std::size_t{stripe_count} * capacity_.waiters_per_stripe + 1) * line);
  }
  if (!ready) throw no_memory();
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  header_->fence_floor.set(std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec);
  header_->index_log2.set(std::bit_width(first_index_size) - 1);
  header_->nodes.next.set(1);
  header_->texts.next.set(1);
  header_->tallies.next.set(1);
  header_->processes_used.set(1);
}

// What a process needs before its first lock.
void Table::join() {
  idle_lanes_.reserve(capacity_.lanes);
  Lanes claimed = claim_lane(capacity_.lanes, shared() ? join_patience : Latch::for_ever);
  if (!claimed.lane && shared()) {  // those who left or died may have had them all
    recover_now(true);
    claimed = claim_lane(capacity_.lanes, join_patience);
  }
  if (claimed.late) {
    throw Error(ErrorKind::unavailable, "a stopped process keeps the lock table " + path() +
                                            " from being opened: let it go on, or kill it, and try again");
  }
  if (!claimed.lane) {
    throw Error(ErrorKind::exhausted,
                "the lock table has no room for another process: close some, or use another table (shm:NAME)");
  }
  common_lane_ = *claimed.lane;
  processes_.slot(processes_.self_slot()).common_lane.set(common_lane_);
}

// As if this process had died, which is always right. Whoever comes next, or waits, collects.
void Table::leave() noexcept {
  if (!processes_.alone() && processes_.self() != 0 && !region_->torn()) processes_.leave();
}

bool Table::lost() noexcept {
  if (processes_.alone()) return false;
  if (lost_.load(std::memory_order_relaxed)) return true;
  if (region_->torn() || !processes_.live(processes_.self())) lost_.store(true);
  return lost_.load(std::memory_order_relaxed);
}

bool Table::look_for_loss() noexcept {
  if (processes_.alone()) return false;
  last_look_.store(coarse_time(), std::memory_order_relaxed);
  if (!file_->still_there() || !processes_.byte_is_mine()) lost_.store(true);
  return lost();
}

}  // namespace hierlock::engine
