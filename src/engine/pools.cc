// Pools: where records, owners and blocks come from, chunk by chunk; the text in blocks; lanes and tallies.
//
// A process keeps the accounts of its own chunks in private memory (own_records_, …), guarded by pool_mutex_.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "engine/table.h"
#include "plan/text.h"

namespace hierlock::engine {

namespace {

constexpr std::size_t longest_note = 255;  // bytes kept of a note or an owner's name

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

void raise(Cell<Index>& cell, Index at_least) noexcept {
  for (Index seen = cell.ordered(); seen < at_least && !cell.cas(seen, at_least);) {
  }
}

}  // namespace

Cell<ProcessRef>& Table::chunk_owner(const Area& area, Index chunk) const noexcept {
  return reinterpret_cast<Cell<ProcessRef>*>(region_->base() + area.owners)[chunk < area.chunks ? chunk : 0];
}

// One word decides whose a chunk is. Everything else is done before: its memory is there, and `next` counts it. So
// whoever dies here leaves nothing, or a chunk that collect() finds.
std::optional<Index> Table::claim_chunk(ChunkPool& pool, const Area& area) noexcept {
  for (const bool from_the_first : {false, true}) {
    Index hint = from_the_first ? 0 : std::min(pool.hint.ordered(), area.chunks);
    const Index begin = hint;
    for (Index chunk = begin; chunk < area.chunks; ++chunk) {
      const std::size_t entries = area.entries + std::size_t{chunk} * chunk_size * line;
      if (chunk >= pool.next.ordered()) {
        if (!region_->commit(area.owners + std::size_t{chunk} * sizeof(ProcessRef), sizeof(ProcessRef)) ||
            !region_->commit(entries, chunk_size * line)) {
          break;
        }
        raise(pool.next, chunk + 1);  // from here on others may look at it
      }
      ProcessRef nobody = 0;
      Cell<ProcessRef>& owner = chunk_owner(area, chunk);
      if (owner.relaxed() != 0) continue;
      if (!owner.cas(nobody, processes_.self())) continue;
      if (!from_the_first) pool.hint.cas(hint, chunk + 1);
      return chunk;
    }
    if (begin == 0) break;
  }
  return std::nullopt;
}

void Table::free_chunk(ChunkPool& pool, const Area& area, Index chunk) noexcept {
  chunk_owner(area, chunk).exchange(0);
  for (Index seen = pool.hint.ordered(); chunk < seen && !pool.hint.cas(seen, chunk);) {
  }
}

// With pool_mutex_ held.
Index Table::take_entry(OwnPool& own, ChunkPool& pool, const Area& area, Cell<Index>& (*link)(const Table&, Index)) {
  if (own.free >= area.chunks * chunk_size) own.free = none;  // the list runs through the table: damaged
  if (own.free != none) {
    const Index entry = own.free;
    own.free = link(*this, entry).relaxed();
    --own.idle;
    return entry;
  }
  if (own.next == own.end) {
    std::optional<Index> chunk = claim_chunk(pool, area);
    if (!chunk && shared()) {  // those who left or died may have had them all
      recover_now(false);
      chunk = claim_chunk(pool, area);
    }
    if (!chunk) return none;
    own.next = std::max<Index>(*chunk * chunk_size, 1);  // 0 is nobody
    own.end = (*chunk + 1) * chunk_size;
  }
  ++own.handed_out;
  return own.next++;
}

// --- blocks and text -------------------------------------------------------------------------------------

Index Table::take_block() {
  const std::lock_guard guard(pool_mutex_);
  const Index block = take_entry(own_blocks_, header_->blocks, at_.blocks,
                                 [](const Table& t, Index i) -> Cell<Index>& { return t.block_at(i).next; });
  if (block != none) clear_block(block_at(block));
  return block;
}

void Table::clear_block(Block& block) noexcept {
  for (auto& w : block.word) {
    if (w.relaxed() != 0) w.set(0);
  }
  block.next.set(none);
  block.used.set(0);
}

// They are this process's own. One that is stood on by a walk of somebody else's may be read on: see any_hold.
void Table::free_blocks(Index first) noexcept {
  if (first == none) return;
  const std::lock_guard guard(pool_mutex_);
  Index last = first;
  Index count = 1;
  for (; block_at(last).next.relaxed() != none && count < capacity_.blocks; ++count)
    last = block_at(last).next.relaxed();
  block_at(last).next.set(own_blocks_.free);
  own_blocks_.free = first;
  own_blocks_.idle += count;
}

// Under index_latch: the text belongs to the table.
Index Table::take_text() {
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

void Table::free_texts(Index first) noexcept {
  if (first == none) return;
  Index last = first;
  for (Index i = 0; text_at(last).next.relaxed() != none && i < max_name_bytes; ++i)
    last = text_at(last).next.relaxed();
  text_at(last).next.set(header_->texts.free.relaxed());
  header_->texts.free.set(first);
}

Index Table::write_text(std::string_view text) {
  return write(
      text, [this](Index i) -> Block& { return block_at(i); }, [this] { return take_block(); },
      [this](Index first) { free_blocks(first); });
}

Index Table::write_long_segment(std::string_view text) {
  return write(
      text, [this](Index i) -> Block& { return text_at(i); }, [this] { return take_text(); },
      [this](Index first) { free_texts(first); });
}

template <class At, class Take, class Free>
Index Table::write(std::string_view text, At at, Take take, Free give_back) {
  constexpr std::size_t room = Block::words * 8;
  Index first = none;
  Index previous = none;
  while (!text.empty()) {
    const Index index = take();
    if (index == none) {
      give_back(first);
      return none;
    }
    Block& block = at(index);
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
      at(previous).next.set(index);
    }
    previous = index;
  }
  return first;
}

std::string Table::read_text(Index first) const {
  return read(first, [this](Index i) -> const Block& { return block_at(i); });
}

std::string Table::read_long_segment(Index first) const {
  return read(first, [this](Index i) -> const Block& { return text_at(i); });
}

template <class At>
std::string Table::read(Index first, At at) {
  constexpr std::size_t room = Block::words * 8;
  constexpr std::size_t most = max_name_bytes / room + 2;
  std::string text;
  Index index = first;
  for (std::size_t i = 0; index != none && i < most; ++i) {
    const Block& block = at(index);
    const std::size_t size = std::min<std::size_t>(room, block.used.acquire());
    char bytes[room];
    for (std::size_t w = 0; w < Block::words; ++w) {
      const std::uint64_t word = block.word[w].acquire();
      std::memcpy(bytes + w * 8, &word, 8);
    }
    text.append(bytes, size);
    index = block.next.acquire();
  }
  return text;
}

// --- owners and records ----------------------------------------------------------------------------------

Index Table::make_owner(std::string_view name, OwnerKind kind) {
  Index owner = none;
  {
    const std::lock_guard guard(pool_mutex_);
    owner = take_entry(own_owners_, header_->owners, at_.owners,
                       [](const Table& t, Index i) -> Cell<Index>& { return t.owner_at(i).next_free; });
  }
  if (owner == none) return none;
  OwnerSlot& slot = owner_at(owner);
  slot.name.set(write_text(plan::cut_short(name, longest_note)));
  slot.process.set(processes_.self());
  slot.thread.set(static_cast<std::int32_t>(syscall(SYS_gettid)));
  slot.kind.set(static_cast<std::uint32_t>(kind));
  slot.word.set(((slot.word.relaxed() >> 32) + 1) << 32 | static_cast<std::uint32_t>(OwnerState::live));
  return owner;
}

bool Table::owner_holds_anything(Index owner) const {
  Index walked = 0;
  for (Index r = owner_at(owner).records.acquire(); r != none && ++walked < capacity_.records;
       r = record_at(r).next_of_owner.acquire()) {
    if (record_state(record_at(r).word.acquire()) != RecordState::free) return true;
  }
  return false;
}

void Table::retire_owner(Index owner) noexcept {
  OwnerSlot& slot = owner_at(owner);
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
  const std::lock_guard guard(pool_mutex_);
  slot.next_free.set(own_owners_.free);
  own_owners_.free = owner;
  ++own_owners_.idle;
}

Index Table::take_record(Index owner) {
  OwnerSlot& slot = owner_at(owner);
  std::unique_lock guard(pool_mutex_, std::defer_lock);
  if (owner_kind(owner) == OwnerKind::crowd) guard.lock();
  // Pushing by anybody and popping by one at a time needs no counter against reuse: a popped record is not pushed
  // again before this pop is over.
  Index record = slot.returned.acquire();
  while (record != none && !slot.returned.cas(record, record_at(record).next_free.relaxed())) {
  }
  // From here on it is a number of ours: those who get it need not check it again.
  if (record != none) return record < capacity_.records ? record : none;
  if (!guard.owns_lock()) guard.lock();
  record = take_entry(own_records_, header_->records, at_.records,
                      [](const Table& t, Index i) -> Cell<Index>& { return t.record_at(i).next_free; });
  if (record == none || record >= capacity_.records) return none;
  record_at(record).owner.set(owner);
  record_at(record).process.set(processes_.self());
  Index head = slot.records.relaxed();
  do {
    record_at(record).next_of_owner.set(head);
  } while (!slot.records.cas(head, record));
  return record;
}

void Table::return_record(Index record) noexcept {
  const Index owner = record_at(record).owner.relaxed();
  OwnerSlot& slot = owner_at(owner);
  Index head = slot.returned.relaxed();
  do {
    record_at(record).next_free.set(head);
  } while (!slot.returned.cas(head, record));
  if (static_cast<OwnerState>(slot.word.ordered() & 0xFFFFFFFF) == OwnerState::retired) retire_owner(owner);
}

void Table::set_note(Index record, std::string_view note) {
  record_at(record).note.set(write_text(plan::cut_short(note, longest_note)));
}

// --- lanes and tallies -----------------------------------------------------------------------------------

std::uint32_t Table::enter_lane() noexcept {
  {
    const std::lock_guard guard(pool_mutex_);
    if (!idle_lanes_.empty()) {
      const std::uint32_t lane = idle_lanes_.back();
      idle_lanes_.pop_back();
      return lane;
    }
  }
  // Of a shared table half the lanes are kept for processes, which cannot do without one.
  const std::uint32_t end = shared() ? capacity_.lanes / 2 : capacity_.lanes;
  return claim_lane(end, shared() ? 100'000'000 : Latch::for_ever).lane.value_or(common_lane_);
}

// It stays this process's: what was counted in it may still be held.
void Table::leave_lane(std::uint32_t lane) noexcept {
  if (lane == common_lane_) return;
  const std::lock_guard guard(pool_mutex_);
  idle_lanes_.push_back(lane);  // there is room: join() made it
}

// Under index_latch, because lanes and tallies together decide what memory is needed.
Table::Lanes Table::claim_lane(std::uint32_t end, std::int64_t patience) noexcept {
  const IndexGuard guard(*this, patience);
  if (!guard.taken()) return {std::nullopt, true};
  const std::uint32_t tallies = std::min(header_->tallies.next.relaxed(), capacity_.tallies);
  for (std::uint32_t lane = 0; lane < end; ++lane) {
    if (header_->lanes[lane].process.ordered() != 0) continue;
    const std::size_t offset = at_.tallies + std::size_t{lane} * capacity_.tallies * sizeof(Tally);
    if (!region_->commit(offset, round_up(tallies, tally_growth) * sizeof(Tally))) break;
    raise(header_->lanes_used, lane + 1);  // ordered: a writer that misses this lane is seen by its user (I2)
    ProcessRef nobody = 0;
    if (!header_->lanes[lane].process.cas(nobody, processes_.self())) continue;
    return {lane, false};
  }
  return {std::nullopt, false};
}

// Under index_latch. The node first: if this process dies between the two, rebuild() counts again.
bool Table::give_tally(Node& node) {
  const Index fresh = header_->tallies.next.relaxed();
  if (fresh >= capacity_.tallies) return false;
  if (fresh % tally_growth == 0) {
    for (std::uint32_t lane = 0; lane < lanes_used(); ++lane) {
      const std::size_t offset = at_.tallies + (std::size_t{lane} * capacity_.tallies + fresh) * sizeof(Tally);
      if (!region_->commit(offset, tally_growth * sizeof(Tally))) return false;
    }
  }
  node.tally.set(fresh);
  header_->tallies.next.set(fresh + 1);
  return true;
}

}  // namespace hierlock::engine
