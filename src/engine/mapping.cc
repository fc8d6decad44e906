#include "engine/mapping.h"

#include <time.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <utility>

#include <hierlock/error.h>

namespace hierlock::engine {

namespace {

Error no_memory() {
  return {ErrorKind::exhausted,
          "no memory for a lock table: close Lockers that are not needed; each takes memory and mappings "
          "(vm.max_map_count)",
          errno};
}

}  // namespace

Mapping::Mapping(const Capacity& capacity)
    : capacity_(capacity), region_(std::make_unique<Region>(lay_out(capacity).end)) {
  index_multiplier_ = random_multiplier();
  map_lanes();
  initialise();
  processes_.begin_alone(header()->processes, &header()->processes_used);
}

Mapping::Mapping(const FileOptions& options) : file_(std::make_unique<TableFile>(options)) {
  for (int tries = 0; !enter(options); ++tries) {
    if (tries == 200) {
      throw Error(ErrorKind::unavailable,
                  "\"" + options.path + "\" is removed or replaced again and again: try again when that is over");
    }
    usleep(10'000);
  }
}

Header* Mapping::header() const noexcept {
  return reinterpret_cast<Header*>(region_->base() + lay_out(capacity_).header);
}

void Mapping::map_lanes() {
  const Offsets at = lay_out(capacity_);
  auto* const tallies = reinterpret_cast<Tally*>(region_->base() + at.tallies);
  const auto* const pages = reinterpret_cast<const Cell<PageState>*>(region_->base() + at.pages);
  views_ = std::make_unique<LaneView[]>(capacity_.lanes);
  for (std::uint32_t lane = 0; lane < capacity_.lanes; ++lane)
    views_[lane] = {tallies + std::size_t{lane} * capacity_.tallies, pages + lane};
}

// Becomes one of those who use the table in the file. False if the file was taken away before: then there is a next
// one.
bool Mapping::enter(const FileOptions& options) {
  open_or_create(options);
  const auto begin = [&] {
    return processes_.begin(header()->processes, &header()->processes_used, file_->descriptor(), region_->base(),
                            instead_of_);
  };
  const auto used = [&] { return Processes::use_by_others(file_->descriptor()) == Processes::Use::used; };
  // If it fails the table is full, or was shut for a moment.
  const bool entered = begin() || (used() && begin());
  const bool there = file_->still_there();
  if (entered && there) return true;
  if (there && !entered && used()) {
    throw Error(ErrorKind::exhausted, "\"" + options.path + "\" is used by " + std::to_string(process_count - 1) +
                                          " processes already: that is as many as can share a table");
  }
  if (entered) processes_.leave();
  region_.reset();
  return false;
}

void Mapping::open_or_create(const FileOptions& options) {
  for (;;) {
    const bool there = file_->open_existing();
    if (!there) file_->create(lay_out(options.capacity).end);
    const Description& description = file_->description();
    capacity_ = description.capacity;
    const std::size_t end = lay_out(capacity_).end;
    if (end != description.file_bytes || capacity_.lanes > most_lanes || capacity_.lanes < 2 ||
        capacity_.tallies < arena_size) {
      throw Error(ErrorKind::incompatible,
                  "\"" + options.path + "\" is damaged. It was left as it is: use another name");
    }
    index_multiplier_ = description.index_multiplier;
    region_ = std::make_unique<Region>(file_->descriptor(), end);
    map_lanes();
    if (there) break;
    initialise();
    if (file_->publish()) break;
    region_.reset();
  }
}

void Mapping::initialise() {
  const Offsets at = lay_out(capacity_);
  Header* const table = header();
  // In private memory waiters are made usable at once: addresses only, a page is used when somebody waits on it.
  bool ready = region_->commit(at.header, sizeof(Header)) &&
               region_->commit(at.index, first_index_size * sizeof(std::uint64_t)) &&
               region_->commit(at.nodes, growth * line) && region_->commit(at.texts, growth * line) &&
               region_->commit(at.waiters, line) && region_->commit(at.arenas, sizeof(Arena)) &&
               region_->commit(at.pages, capacity_.lanes);
  if (!region_->in_file()) {
    ready = ready && region_->commit(at.waiters, (std::size_t{stripe_count} * capacity_.waiters_per_stripe + 1) * line);
  }
  if (!ready) throw no_memory();
  region_->use_small_pages(at.tallies, at.end - at.tallies);
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  table->fence_floor.set(std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec);
  table->index_log2.set(std::bit_width(first_index_size) - 1);
  table->nodes.next.set(1);
  table->texts.next.set(1);
  Arena& first = *reinterpret_cast<Arena*>(region_->base() + at.arenas);
  first.node[0].set(nobodys_node);
  first.used.set(1);
  table->arenas.set(1);
  table->processes_used.set(1);
}

// As if this process had died, which is always right. Whoever comes next, or waits, collects.
void Mapping::leave() noexcept {
  if (region_ != nullptr && !processes_.alone() && processes_.self() != 0 && !region_->torn()) processes_.leave();
}

void Mapping::leave_for_good() noexcept {
  if (processes_.alone()) return;
  lost_.store(true);  // first: what is asked from here on is answered without the table
  leave();
  region_.reset();
  file_->close_for_good();
}

void Mapping::close_in_child() noexcept {
  if (!file_) return;
  file_->close_in_child();
  if (region_ != nullptr) region_->forget();  // there is none after leave_for_good()
}

bool Mapping::lost() noexcept {
  if (processes_.alone()) return false;
  if (lost_.load(std::memory_order_relaxed)) return true;
  if (region_->torn() || !processes_.live(processes_.self())) lost_.store(true);
  return lost_.load(std::memory_order_relaxed);
}

bool Mapping::look_for_loss() noexcept {
  if (processes_.alone()) return false;
  last_look_.store(coarse_time(), std::memory_order_relaxed);
  if (!file_->still_there() || !processes_.byte_is_mine()) lost_.store(true);
  return lost();
}

std::uint32_t Mapping::processes() const noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t slot = 1; slot < processes_.used(); ++slot) {
    if (processes_.state(slot) != ProcessState::free) ++count;
  }
  return count;
}

int Mapping::lifeline() noexcept {
  if (processes_.alone()) return -1;
  processes_.slot(processes_.self_slot()).lifeline.set(1);
  return file_->descriptor();
}

}  // namespace hierlock::engine
