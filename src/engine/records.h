// Records: locks and their owners, and the blocks in which they keep text and lists. All of these come in chunks, and a
// chunk belongs to one process.
//
// A process keeps the accounts of its own chunks in private memory (own_pool.h), guarded by a mutex. It keeps few
// entries that it does not use, so that what a table has room for is what is held now, and not what was held once.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "engine/attempt.h"
#include "engine/names.h"
#include "engine/own_pool.h"
#include "engine/parts.h"
#include "engine/queues.h"
#include "engine/shortage.h"

namespace hierlock::engine {

class Records : Parts {
 public:
  // `make_room` is called when there is no chunk to be had: it collects what the dead have.
  Records(const Parts& parts, Queues& queues, std::function<void()> make_room);

  // --- owners ---
  // none if full.
  Index make_owner(std::string_view name, OwnerKind kind);
  // The owner goes; what it still holds stays held, and its slot is used again after that.
  void retire_owner(Index owner) noexcept;
  using Parts::owner_kind;

  // --- records ---
  // A free record of this owner's, or a new one; none if full. Only one party at a time may ask for one owner.
  Index take_record(Index owner);
  // The same for a thread that keeps free records itself: a stack of some, in words of OwnerSlot::returned. New ones:
  // at most so many.
  std::uint64_t take_records(Index owner, std::uint32_t most);
  // Back to its owner's free records; may be called by anybody.
  void return_record(Index record) noexcept;
  // Back to the process: a stack of free records of this owner's. False if somebody has a latch; then nothing has
  // changed.
  bool give_back_records(Index owner, std::uint64_t stack) noexcept;
  void set_note(Index record, std::string_view note);
  Index owner_of(Index record) const { return record_array_[record].owner.relaxed(); }
  // A list of free records of the caller's own.
  Index next_free(Index record) const {
    const Index next = record_array_[record].next_free.relaxed();
    return next < capacity_.records ? next : none;
  }
  void set_next_free(Index record, Index next) { record_array_[record].next_free.set(next); }

  // --- what a lock on many targets holds: a list of steps, in blocks ---
  // Makes room for the next step. False if full.
  bool prepare_step(Attempt& attempt);
  void note_step(Attempt& attempt, Index node, Mode mode, bool fresh) noexcept;
  void drop_last_step(Index record) noexcept;

  // --- blocks ---
  // none if full.
  Index write_text(std::string_view text);
  void free_blocks(Index first) noexcept;

  // --- chunks ---
  void free_chunk(ChunkPool& pool, const Area& area, Index chunk) noexcept;

  // --- accounts of this process ---
  struct Use {
    std::uint32_t records, owners, blocks;
  };
  Use use() const;
  void check_accounts(std::string& wrong, const Names& names) const;

 private:
  std::optional<Index> claim_chunk(ChunkPool& pool, const Area& area) noexcept;
  Index take_entry(OwnPool& own, ChunkPool& pool, const Area& area, Shortage what);
  void free_entry(OwnPool& own, ChunkPool& pool, const Area& area, Index entry) noexcept;
  Index new_record(Index owner);
  void link_record(Index owner, Index record) noexcept;
  void unlink_record(OwnerSlot& slot, Index record) noexcept;
  void push_returned(OwnerSlot& slot, Index record) noexcept;
  void free_records(std::uint64_t stack) noexcept;
  void shed_returned(Index owner) noexcept;
  void free_retired(Index owner) noexcept;
  void forget_blocks(Index first) noexcept;
  Index take_block();
  bool to_steps(Index record);

  Queues& queues_;
  const std::function<void()> make_room_;
  mutable std::mutex pool_mutex_;  // guards what follows; taken before latches, never under one
  OwnPool own_records_, own_owners_, own_blocks_;
  SparseArray<Index> previous_of_owner_;  // of the records of this process's owners: the other way along the list
};

}  // namespace hierlock::engine
