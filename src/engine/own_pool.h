// OwnPool: the accounts that a process keeps of its own entries of one kind (records, owners, blocks): which chunks it
// has, and which of their entries are free. In private memory: nobody else needs them, because what a dead process had
// is found by the chunks' words, and a damaged table cannot make one entry be used twice.
//
// Chunks of which some entries are used come first when an entry is needed, so that the others can go back to the
// table. A few unused chunks are kept, so that a process that takes and gives back a little does not take and give back
// chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/layout.h"

namespace hierlock::engine {

// An array of which only the parts that are used take memory.
template <class T>
class SparseArray {
 public:
  // Makes room for an entry. May throw std::bad_alloc.
  void make_room(std::size_t i) {
    if (i / page >= pages_.size()) pages_.resize(i / page + 1);
    if (!pages_[i / page]) pages_[i / page] = std::make_unique<T[]>(page);
  }
  // nullptr if there never was one.
  T* find(std::size_t i) const noexcept {
    return i / page < pages_.size() && pages_[i / page] ? &pages_[i / page][i % page] : nullptr;
  }
  T& operator[](std::size_t i) const noexcept { return pages_[i / page][i % page]; }

 private:
  static constexpr std::size_t page = 256;
  std::vector<std::unique_ptr<T[]>> pages_;
};

class OwnPool {
 public:
  static constexpr Index spares = 8;  // unused chunks that are kept

  // A chunk that is this process's now. False if it was before: the table is damaged. May throw std::bad_alloc. Then,
  // too, nothing has changed.
  bool add(Index chunk) {
    chunks_.make_room(chunk);
    Chunk& own = chunks_[chunk];
    if (own.mine) return false;
    own.free = all_of(chunk);
    ++unused_;
    put_last(chunk);
    return true;
  }

  // A free entry; none if a chunk must be added first.
  Index take() noexcept {
    if (first_ == no_chunk) return none;
    const Index chunk = first_;
    Chunk& own = chunks_[chunk];
    if (own.free == all_of(chunk)) --unused_;
    const auto place = static_cast<Index>(__builtin_ctz(own.free));
    own.free &= own.free - 1;
    if (own.free == 0) remove(chunk);
    ++used_;
    return chunk * chunk_size + place;
  }

  // This process has the entry and uses it.
  bool uses(Index entry) const noexcept {
    const Chunk* const own = chunks_.find(entry / chunk_size);
    return own != nullptr && own->mine && (own->free >> entry % chunk_size & 1) == 0 && entry != none;
  }

  // The entry is free. True if its chunk is to go back to the table: then it is this process's no more. An entry that
  // is not in use (the number was read from a damaged table) changes nothing.
  bool give_back(Index entry) noexcept {
    if (!uses(entry)) return false;
    const Index chunk = entry / chunk_size;
    Chunk& own = chunks_[chunk];
    --used_;
    if (own.free != 0) remove(chunk);
    own.free |= 1u << entry % chunk_size;
    if (own.free != all_of(chunk)) {
      put_first(chunk);
      return false;
    }
    if (unused_ >= spares) {
      own.mine = false;
      own.free = 0;
      return true;
    }
    ++unused_;
    put_last(chunk);
    return false;
  }

  Index used() const noexcept { return used_; }

 private:
  static constexpr Index no_chunk = ~Index{0};
  static_assert(chunk_size <= 32);

  struct Chunk {
    std::uint32_t free = 0;  // a bit for each entry
    bool mine = false;
    Index before = no_chunk, after = no_chunk;  // chunks with free entries
  };

  static constexpr std::uint32_t all_of(Index chunk) noexcept {
    return ((std::uint32_t{1} << (chunk_size - 1)) - 1) * 2 + (chunk == 0 ? 0 : 1);  // entry 0 is nobody
  }
  void put_first(Index chunk) noexcept {
    Chunk& own = chunks_[chunk];
    own.mine = true;
    own.before = no_chunk;
    own.after = first_;
    (first_ != no_chunk ? chunks_[first_].before : last_) = chunk;
    first_ = chunk;
  }
  void put_last(Index chunk) noexcept {
    Chunk& own = chunks_[chunk];
    own.mine = true;
    own.before = last_;
    own.after = no_chunk;
    (last_ != no_chunk ? chunks_[last_].after : first_) = chunk;
    last_ = chunk;
  }
  void remove(Index chunk) noexcept {
    const Chunk& own = chunks_[chunk];
    (own.before != no_chunk ? chunks_[own.before].after : first_) = own.after;
    (own.after != no_chunk ? chunks_[own.after].before : last_) = own.before;
  }

  SparseArray<Chunk> chunks_;
  Index first_ = no_chunk, last_ = no_chunk;
  Index unused_ = 0;  // chunks
  Index used_ = 0;    // entries
};

}  // namespace hierlock::engine
