#include "engine/records.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "engine/block_text.h"
#include "engine/names.h"
#include "plan/text.h"

namespace hierlock::engine {

namespace {

constexpr std::size_t longest_note = 255;  // bytes kept of a note or an owner's name

}  // namespace

Records::Records(const Parts& parts, Queues& queues, std::function<void()> make_room)
    : Parts(parts), queues_(queues), make_room_(std::move(make_room)) {}

// --- chunks ----------------------------------------------------------------------------------------------

// One word decides whose a chunk is. Everything else is done before: its memory is there, and `next` counts it. So
// whoever dies here leaves nothing, or a chunk that collect() finds.
std::optional<Index> Records::claim_chunk(ChunkPool& pool, const Area& area) noexcept {
  for (const bool from_the_first : {false, true}) {
    Index hint = from_the_first ? 0 : std::min(pool.hint.ordered(), area.chunks);
    const Index begin = hint;
    for (Index chunk = begin; chunk < area.chunks; ++chunk) {
      if (chunk >= pool.next.ordered()) {
        const Index first = chunk / chunks_per_growth * chunks_per_growth;
        const Index end = std::min(first + chunks_per_growth, area.chunks);
        if (!region_->commit(area.owners + std::size_t{first} * sizeof(ProcessRef),
                             std::size_t{end - first} * sizeof(ProcessRef)) ||
            !region_->commit(area.entries + std::size_t{first} * chunk_size * line,
                             std::size_t{end - first} * chunk_size * line)) {
          break;
        }
        raise(pool.next, end);  // from here on others may look at it
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

void Records::free_chunk(ChunkPool& pool, const Area& area, Index chunk) noexcept {
  chunk_owner(area, chunk).exchange(0);
  for (Index seen = pool.hint.ordered(); chunk < seen && !pool.hint.cas(seen, chunk);) {
  }
}

// With pool_mutex_ held.
Index Records::take_entry(OwnPool& own, ChunkPool& pool, const Area& area, Shortage what) {
  if (const Index entry = own.take(); entry != none) return entry;
  lacks(what);
  std::optional<Index> chunk = claim_chunk(pool, area);
  if (!chunk && shared()) {  // those who left or died may have had them all
    make_room_();
    chunk = claim_chunk(pool, area);
  }
  if (!chunk && pool.next.ordered() < area.chunks) lacks(Shortage::memory);
  if (!chunk) return none;
  try {
    if (!own.add(*chunk)) return none;
  } catch (const std::bad_alloc&) {
    free_chunk(pool, area, *chunk);
    return none;
  }
  return own.take();
}

// With pool_mutex_ held. Nobody needs the entry, and whoever looks at it knows that (any_hold, walk_records_of): from
// here on it may be another process's.
void Records::free_entry(OwnPool& own, ChunkPool& pool, const Area& area, Index entry) noexcept {
  if (own.give_back(entry)) free_chunk(pool, area, entry / chunk_size);
}

// --- blocks and text -------------------------------------------------------------------------------------

Index Records::take_block() {
  const std::lock_guard guard(pool_mutex_);
  const Index block = take_entry(own_blocks_, header_->blocks, at_.blocks, Shortage::blocks);
  if (block != none) clear_block(block_at(block));
  return block;
}

// They are this process's own. One that is stood on by a walk of somebody else's may be read on: see any_hold.
void Records::free_blocks(Index first) noexcept {
  if (first == none) return;
  const std::lock_guard guard(pool_mutex_);
  forget_blocks(first);
}

// With pool_mutex_ held.
void Records::forget_blocks(Index first) noexcept {
  while (own_blocks_.uses(first)) {  // a list that is damaged ends at the first block that is not in use
    const Index next = block_at(first).next.relaxed();
    free_entry(own_blocks_, header_->blocks, at_.blocks, first);
    first = next;
  }
}

Index Records::write_text(std::string_view text) {
  return write_blocks(
      text, [this](Index i) -> Block& { return block_at(i); }, [this] { return take_block(); },
      [this](Index first) { free_blocks(first); });
}

// --- owners and records ----------------------------------------------------------------------------------
//
// The records of an owner. A record is in one of these places:
//
//   used by a lock     linked to its owner
//   free, its owner's  linked to its owner, and in its thread's stack (Engine) or in OwnerSlot::returned: few
//   free, a process's  in own_records_
//   free, the table's  in a chunk that is nobody's
//
// Others walk along the list of an owner: for deadlocks (WaitGraph), for what an owner holds itself (decide), and for
// people (copy, blockers_of). Why that is right although records leave the list:
//
// - Only free records leave it, and only a process changes the lists of its own owners, under pool_mutex_. A walk looks
//   for records that are not free, so what it must not miss stays where it is.
// - A record leaves in this order: the link to it is changed; `departures` is raised; it may be used again. Its own
//   link stays as it is until then. So whoever stands on it walks on along the same list, or finds that records left
//   meanwhile, and walks again: the new link was written after `departures` was raised.
// - A record of another owner's that a walk has strayed to is noticed: its owner is written before its link.
// - Records leave under the latch of stripe `owner % 64`. So for whoever has all latches (WaitGraph) nothing leaves,
//   and one walk is exact. An owner that is freed needs no latch: it has no lock and waits for nothing.
// - The others walk at most 64 times. To make each of these walks fail, other threads of the same owner would have to
//   release dozens of its locks during each of them. Then a lock of its owner's may be missed: the request waits in the
//   queue instead of passing it, and looks again (I5); that it waits for itself is then found by WaitGraph.
//
// A process that dies here is collected: every record of its chunks is, linked or not.

namespace {

// How many free records an owner keeps, beside those in its thread's own stack. A thread may get them back at once when
// others release its locks; there may be as many other owners as locks.
constexpr std::uint32_t most_returned(OwnerKind kind) { return kind == OwnerKind::thread ? 64 : 2; }
constexpr std::uint32_t kept_returned(OwnerKind kind) { return kind == OwnerKind::thread ? 32 : 1; }

constexpr std::int64_t give_back_patience = 100'000;  // for a latch: what is late goes back the next time

}  // namespace

Index Records::make_owner(std::string_view name, OwnerKind kind) {
  Index owner = none;
  {
    const std::lock_guard guard(pool_mutex_);
    owner = take_entry(own_owners_, header_->owners, at_.owners, Shortage::owners);
  }
  if (owner == none) return none;
  OwnerSlot& slot = owner_at(owner);
  slot.records.set(none);
  slot.linked.set(0);
  slot.returned.set(0);
  slot.name.set(write_text(plan::cut_short(name, longest_note)));
  slot.process.set(processes_.self());
  slot.thread.set(static_cast<std::int32_t>(syscall(SYS_gettid)));
  slot.kind.set(static_cast<std::uint32_t>(kind));
  slot.word.set(((slot.word.relaxed() >> 32) + 1) << 32 | static_cast<std::uint32_t>(OwnerState::live));
  return owner;
}

void Records::retire_owner(Index owner) noexcept {
  OwnerSlot& slot = owner_at(owner);
  std::uint64_t live = slot.word.ordered();
  if (static_cast<OwnerState>(live & 0xFFFFFFFF) == OwnerState::live) {
    slot.word.cas(live, (live >> 32) << 32 | static_cast<std::uint32_t>(OwnerState::retired));
  }
  free_retired(owner);
}

// Frees an owner that has retired and of which all records came back. A thread that returns a record changes `returned`
// and then reads the owner's word; a thread that retires the owner changes the word and then reads `returned`. All four
// are sequentially consistent, and there is one order of all such operations: whichever change is second, its thread
// reads the other's change. So the last of them sees both.
void Records::free_retired(Index owner) noexcept {
  OwnerSlot& slot = owner_at(owner);
  const std::lock_guard guard(pool_mutex_);
  // It may have been freed meanwhile, and be another's.
  if (!own_owners_.uses(owner)) return;
  const std::uint64_t word = slot.word.ordered();
  if (static_cast<OwnerState>(word & 0xFFFFFFFF) != OwnerState::retired) return;
  if (stack_count(slot.returned.ordered()) != slot.linked.relaxed()) return;
  slot.word.set((word >> 32) << 32 | static_cast<std::uint32_t>(OwnerState::free));
  slot.records.set(none);
  slot.linked.set(0);
  slot.departures.add(1);
  free_records(slot.returned.exchange(0));
  forget_blocks(slot.name.exchange(none));
  free_entry(own_owners_, header_->owners, at_.owners, owner);
}

// With pool_mutex_ held. A new record in the owner's list; none if full.
Index Records::new_record(Index owner) {
  const Index record = take_entry(own_records_, header_->records, at_.records, Shortage::records);
  if (record == none) return none;
  try {
    previous_of_owner_.make_room(record);
  } catch (const std::bad_alloc&) {
    free_entry(own_records_, header_->records, at_.records, record);
    return none;
  }
  link_record(owner, record);
  return record;
}

void Records::link_record(Index owner, Index record) noexcept {
  OwnerSlot& slot = owner_at(owner);
  const Index head = slot.records.relaxed();
  record_at(record).owner.set(owner);
  record_at(record).process.set(processes_.self());
  record_at(record).next_of_owner.set(head);
  previous_of_owner_[record] = none;
  if (Index* const previous = previous_of_owner_.find(head); head != none && previous != nullptr) *previous = record;
  slot.records.set(record);
  slot.linked.set(slot.linked.relaxed() + 1);
}

// With pool_mutex_ and the latch of the owner's stripe held. The record's own link stays: somebody may stand on it.
void Records::unlink_record(OwnerSlot& slot, Index record) noexcept {
  const Index previous = previous_of_owner_[record];
  const Index next = record_at(record).next_of_owner.relaxed();
  if (previous != none) {
    record_at(previous).next_of_owner.set(next);
  } else {
    slot.records.set(next);
  }
  if (Index* const after = previous_of_owner_.find(next); next != none && after != nullptr) *after = previous;
  slot.linked.set(slot.linked.relaxed() - 1);
}

// With pool_mutex_ held: records that are in no list any more.
void Records::free_records(std::uint64_t stack) noexcept {
  Index record = stack_first(stack);
  for (std::uint32_t i = 0; i < stack_count(stack) && own_records_.uses(record); ++i) {
    const Index next = next_free(record);
    record_at(record).owner.set(none);
    record_at(record).process.set(0);
    free_entry(own_records_, header_->records, at_.records, record);
    record = next;
  }
}

bool Records::give_back_records(Index owner, std::uint64_t stack) noexcept {
  OwnerSlot& slot = owner_at(owner);
  const std::lock_guard guard(pool_mutex_);
  {
    const Queues::Latched latched(queues_, owner, false, give_back_patience);
    if (!latched.taken()) return false;
    Index record = stack_first(stack);
    for (std::uint32_t i = 0; i < stack_count(stack) && own_records_.uses(record); ++i, record = next_free(record))
      unlink_record(slot, record);
    slot.departures.add(1);
  }
  free_records(stack);
  return true;
}

Index Records::take_record(Index owner) {
  OwnerSlot& slot = owner_at(owner);
  std::unique_lock guard(pool_mutex_, std::defer_lock);
  if (owner_kind(owner) != OwnerKind::handle) guard.lock();  // others may give back what is returned
  // Pushing by anybody and popping by one at a time needs no counter against reuse: a popped record is not pushed
  // again before this pop is over.
  std::uint64_t stack = slot.returned.acquire();
  while (stack_first(stack) != none &&
         !slot.returned.cas(stack, record_stack(next_free(stack_first(stack)), stack_count(stack) - 1))) {
  }
  // From here on it is a number of ours: those who get it need not check it again.
  if (const Index record = stack_first(stack); record != none) return record < capacity_.records ? record : none;
  if (!guard.owns_lock()) guard.lock();
  return new_record(owner);
}

std::uint64_t Records::take_records(Index owner, std::uint32_t most) {
  const std::lock_guard guard(pool_mutex_);
  std::uint64_t stack = owner_at(owner).returned.exchange(0);
  if (stack_first(stack) != none && stack_first(stack) < capacity_.records) return stack;
  stack = 0;
  for (std::uint32_t i = 0; i < most; ++i) {
    const Index record = new_record(owner);
    if (record == none) break;
    set_next_free(record, stack_first(stack));
    stack = record_stack(record, stack_count(stack) + 1);
  }
  return stack;
}

void Records::push_returned(OwnerSlot& slot, Index record) noexcept {
  std::uint64_t stack = slot.returned.relaxed();
  do {
    set_next_free(record, stack_first(stack));
  } while (!slot.returned.cas(stack, record_stack(record, stack_count(stack) + 1)));
}

void Records::return_record(Index record) noexcept {
  const Index owner = record_at(record).owner.relaxed();
  OwnerSlot& slot = owner_at(owner);
  const OwnerKind kind = owner_kind(owner);
  push_returned(slot, record);
  // From here on the record, and the owner, may be gone.
  if (static_cast<OwnerState>(slot.word.ordered() & 0xFFFFFFFF) == OwnerState::retired) {
    free_retired(owner);
  } else if (kind != OwnerKind::handle && stack_count(slot.returned.relaxed()) > most_returned(kind)) {
    shed_returned(owner);
  }
}

// Back to the process: all free records but a few.
void Records::shed_returned(Index owner) noexcept {
  OwnerSlot& slot = owner_at(owner);
  const std::lock_guard guard(pool_mutex_);
  if (!own_owners_.uses(owner)) return;  // it may have been freed meanwhile, and be another's
  if (stack_count(slot.returned.ordered()) <= kept_returned(owner_kind(owner))) return;
  const OwnerKind kind = owner_kind(owner);  // after `returned`: it has been written before the first record came back
  if (kind == OwnerKind::handle) return;
  std::uint64_t surplus = 0;
  {
    const Queues::Latched latched(queues_, owner, false, give_back_patience);
    if (!latched.taken()) return;
    const std::uint64_t stack = slot.returned.exchange(0);
    Index record = stack_first(stack);
    for (std::uint32_t i = 0; i < stack_count(stack) && own_records_.uses(record); ++i) {
      const Index next = next_free(record);
      if (i < kept_returned(kind)) {
        push_returned(slot, record);
      } else {
        unlink_record(slot, record);
        set_next_free(record, stack_first(surplus));
        surplus = record_stack(record, stack_count(surplus) + 1);
      }
      record = next;
    }
    slot.departures.add(1);
  }
  free_records(surplus);
}

void Records::set_note(Index record, std::string_view note) {
  record_at(record).note.set(write_text(plan::cut_short(note, longest_note)));
}

// --- locks on many targets -------------------------------------------------------------------------------

bool Records::prepare_step(Attempt& a) {
  Record& record = record_at(a.record);
  if (a.extending && record.steps.relaxed() == none && !to_steps(a.record)) return false;
  const Index head = record.steps.relaxed();
  if (head != none && block_at(head).used.relaxed() < Block::words) return true;
  const Index fresh = take_block();
  if (fresh == none) return false;
  block_at(fresh).next.set(head);
  record.steps.set(fresh);
  return true;
}

void Records::note_step(Attempt& a, Index node, Mode mode, bool fresh) noexcept {
  const bool asked = a.steps[a.next].asked;
  const std::uint32_t stored = stored_mode(mode, a.steps[a.next].slots != 0);
  if (fresh) {
    Block& block = block_at(record_at(a.record).steps.relaxed());
    const auto used = static_cast<std::uint32_t>(block.used.relaxed() % Block::words);
    block.word[used].set(make_step(node, stored, asked) | (a.extending && asked ? step_new : 0));
    block.used.set(used + 1);
    return;
  }
  Cell<std::uint64_t>* const place = find_step(a.record, node);
  if (place == nullptr) return;  // damaged
  const std::uint64_t before = place->relaxed();
  const bool now_asked = a.extending && asked && !step_asked(before);
  place->set(make_step(node, stored, asked || step_asked(before)) | (before & step_new) | (now_asked ? step_new : 0));
}

// The newest step goes. Its block stays, empty or not, until the lock is released: others may be walking along the
// list.
void Records::drop_last_step(Index index) noexcept {
  Index block = record_at(index).steps.relaxed();
  Index walked = 0;
  while (block != none && ++walked < capacity_.blocks && block_at(block).used.relaxed() == 0)
    block = block_at(block).next.relaxed();
  const std::uint32_t used = block_at(block).used.relaxed();
  if (block == none || used == 0 || used > Block::words) return;  // damaged
  block_at(block).word[used - 1].set(0);
  block_at(block).used.set(used - 1);
}

// Turns the record of one path into a list, ancestors first. What it holds is read from its node, once: a damaged
// record that has a list by now is not walked along.
bool Records::to_steps(Index index) {
  Record& record = record_at(index);
  std::array<std::uint64_t, max_depth> steps{};
  std::size_t count = 0;
  std::uint32_t stored = record.mode.relaxed();
  for (Index node = record.node.relaxed(); node != none && count < steps.size();
       node = node_at(node).parent.relaxed()) {
    steps[count] = make_step(node, stored, count == 0);  // the deepest is what was asked for
    stored = stored_mode(intention(mode_of(stored)), false);
    ++count;
  }
  Index head = none;
  for (std::size_t i = 0; i < count; ++i) {
    if (head == none || block_at(head).used.relaxed() == Block::words) {
      const Index fresh = take_block();
      if (fresh == none) {
        free_blocks(head);
        return false;
      }
      block_at(fresh).next.set(head);
      head = fresh;
    }
    const auto used = static_cast<std::uint32_t>(block_at(head).used.relaxed() % Block::words);
    block_at(head).word[used].set(steps[count - 1 - i]);
    block_at(head).used.set(used + 1);
  }
  record.steps.set(head);
  return true;
}

// --- accounts --------------------------------------------------------------------------------------------

Records::Use Records::use() const {
  const std::lock_guard guard(pool_mutex_);
  return {own_records_.used(), own_owners_.used(), own_blocks_.used()};
}

// What this process believes that it uses: each of its records is in the list of one owner, each block is somebody's.
void Records::check_accounts(std::string& wrong, const Names& names) const {
  const std::lock_guard guard(pool_mutex_);
  const auto complain = [&](const std::string& what) { wrong += what + "\n"; };
  Index owners = 0, records = 0, blocks = 0;
  const auto count_blocks = [&](Index first) {
    for (Index walked = 0; first != none && walked < capacity_.blocks; ++walked) {
      if (!own_blocks_.uses(first)) complain("block " + std::to_string(first) + " is free and in use");
      ++blocks;
      first = block_at(first).next.acquire();
    }
  };
  const Index end = owners_end();
  for (Index owner = 1; owner < end; ++owner) {
    if (!own_owners_.uses(owner)) continue;
    const OwnerSlot& slot = owner_at(owner);
    ++owners;
    count_blocks(slot.name.acquire());
    Index linked = 0, previous = none;
    bool whole = false;
    walk_records_of(owner, whole, [&](Index r) {
      if (!own_records_.uses(r)) complain("record " + std::to_string(r) + " is free and in a list");
      const Index* const before = previous_of_owner_.find(r);
      if (before == nullptr || *before != previous) complain("record " + std::to_string(r) + " is linked one way only");
      count_blocks(record_at(r).note.acquire());
      count_blocks(record_at(r).steps.acquire());
      previous = r;
      ++linked;
      return false;
    });
    if (!whole) complain("the list of " + names.owner_name(owner) + " leads elsewhere");
    if (linked != slot.linked.acquire())
      complain(names.owner_name(owner) + " has " + std::to_string(linked) + " records, and counts " +
               std::to_string(slot.linked.acquire()));
    records += linked;
  }
  for (unsigned s = 0; s < stripe_count; ++s) {
    each_waiter(s, [&](const Waiter& w) {
      if (w.process.acquire() == processes_.self()) count_blocks(w.wanted.acquire());
    });
  }
  const auto compare = [&](const char* what, Index found, Index used) {
    if (found != used)
      complain(std::to_string(used) + " " + what + " are in use, " + std::to_string(found) + " were found");
  };
  compare("owners", owners, own_owners_.used());
  compare("records", records, own_records_.used());
  compare("blocks", blocks, own_blocks_.used());
}

}  // namespace hierlock::engine
