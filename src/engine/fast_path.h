// The fast path, inline: one path or name is taken while nothing is in the way, and given back.
//
// Most acquires and releases of a program go through these lines and through nothing else of the engine, so
// instructions are counted here (bench/compare instructions). Whatever is unusual is left to table.cc, in functions of
// their own.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "engine/nodes.h"
#include "engine/table.h"

namespace hierlock::engine {

// --- which words let whom in -----------------------------------------------------------------------------------------

inline constexpr std::uint64_t shut = word::holder | word::queued | word::closed;

// Which words let a sharer in without a latch.
struct Gate {
  static constexpr std::uint64_t generation = ~std::uint64_t{0} << word::generation_shift;

  std::uint64_t mask, open;

  explicit constexpr Gate(Mode mode) noexcept
      : mask(shut | word::marked | (mode == Mode::IS ? 0 : word::sharing)),
        open(word::marked | (mode == Mode::S ? word::sharing : 0)) {}

  constexpr bool lets_in(std::uint64_t w) const noexcept { return (w & mask) == open; }
  // Still open, and still the node that had the word `before`, which let in.
  constexpr bool still_lets_in(std::uint64_t now, std::uint64_t before) const noexcept {
    return ((now ^ before) & (mask | generation)) == 0;
  }
};

// --- finding ---------------------------------------------------------------------------------------------------------

// The deepest node of a path that this table has found before, for the same Target or for the same text. Its generation
// vouches for it: the place was noted for this key and this table, and a node has the same key and the same parent as
// long as it has the same generation.
inline Nodes::Found Nodes::find_place(std::uint64_t place) const noexcept {
  const auto index = static_cast<Index>(place);
  const std::uint64_t w = node_at(index).word.acquire();
  if (index == none || ((place ^ w) & Gate::generation) != 0) return {};
  return {index, w};
}

inline Nodes::Found Nodes::find_noted(const spi::Chain& chain) const noexcept {
  return chain.place != nullptr ? find_place(chain.place->noted_by(number_)) : Found{};
}

inline Nodes::Found Nodes::find_text(std::string_view path) const noexcept {
  const TextPlaces::Noted noted = texts_noted_.find(path);
  // Taking goes from each node to the one above it. These are fetched now, at the same time as the deepest one.
  __builtin_prefetch(node_array_ + static_cast<Index>(noted.above));
  __builtin_prefetch(node_array_ + static_cast<Index>(noted.above >> 32));
  const auto index = static_cast<Index>(noted.place);  // from this process's own memory: not checked again
  const std::uint64_t w = node_array_[index].word.acquire();
  if (((noted.place ^ w) & Gate::generation) != 0) return {};
  return {index, w};
}

inline Nodes::Found Nodes::find_at_once(const spi::Chain& chain) noexcept {
  const Found noted = find_noted(chain);
  return noted.node != none ? noted : find_path(chain);
}

inline Nodes::Found Table::find_at_once(const spi::Chain& chain) noexcept { return nodes_.find_at_once(chain); }

// --- taking ----------------------------------------------------------------------------------------------------------

// Model: A1 to A6. Takes the node `found`, whose word was found.word when it was known to be the right one. The
// ancestors are counted first, then the target is taken with a locked instruction, then all are looked at: that one
// instruction is the "between" of I2 for the whole path.
//
// Why these are the right ancestors. While the target has the generation that was found, it has its parent, and a node
// with another below it is not reused: so neither is its parent, nor any node further up. The instruction that takes
// the target proves that the generation has not changed. If it has, what was counted on nodes that are somebody else's
// by now is taken back: too high for a moment, never too low. The reads in between are `acquire`: whoever has read
// something of a later generation finds the word changed, too.
template <Mode mode>
inline Table::Taken Table::take_found(const Nodes::Found& found, Index index, std::uint32_t lane,
                                      std::int64_t now) noexcept {
  static_assert(mode == Mode::X || mode == Mode::S);
  constexpr Mode intent = intention(mode);
  constexpr Gate gate(intent);
  constexpr Gate target_gate(Mode::S);
  Node& node = node_at(found.node);
  std::uint64_t w = found.word;
  if (mode == Mode::X ? (w & (shut | word::marked)) != 0 : !target_gate.lets_in(w)) return {};

  Record& record = record_array_[index];
  const std::uint32_t generation = record_generation(record.word.relaxed()) + 1;
  record.mode.set(static_cast<std::uint32_t>(Mode::IS));
  record.word.set(record_word(generation, RecordState::taking));

  const LaneView& own = views_[lane];
  std::array<Counted, max_depth> counted;
  Counted* end = counted.data();
  const Index parent = node.parent.acquire();
  for (Index up = parent; up != none && end != counted.data() + counted.size();) {
    const Node& ancestor = node_at(up);
    const std::uint64_t before = ancestor.word.acquire();
    if (!gate.lets_in(before)) return withdraw({counted.data(), end}, index, intent, lane);
    const Index number = ancestor.tally.acquire();
    if (number >= capacity_.tallies || !own.has(number)) [[unlikely]]
      return withdraw({counted.data(), end}, index, intent, lane);
    Cell<std::uint64_t>& mine = own.tallies[number].intents;
    mine.set(mine.relaxed() + Tally::unit(intent));
    *end++ = {&ancestor, before, number};
    up = ancestor.parent.acquire();
  }
  record.want.set(found.node);
  if constexpr (mode == Mode::X) {
    if (!node.word.cas(w, w | index)) return withdraw({counted.data(), end}, index, intent, lane);
  } else {
    const Index number = node.tally.acquire();
    if (number >= capacity_.tallies || !own.has(number)) [[unlikely]]
      return withdraw({counted.data(), end}, index, intent, lane);
    Cell<std::uint64_t>& mine = own.tallies[number].shared;
    mine.add(1);
    if (!target_gate.still_lets_in(node.word.ordered(), w)) {
      mine.subtract(1);
      tell_after_withdrawing(node, number);
      return withdraw({counted.data(), end}, index, intent, lane);
    }
  }
  barrier_after_locked();
  std::int64_t floor = node.last_fence.acquire();
  bool open = true;
  for (const Counted* c = counted.data(); c != end; ++c) {
    open = gate.still_lets_in(c->node->word.ordered(), c->word) && open;
    floor = std::max(floor, c->node->last_fence.acquire());
  }
  if (!open || !(processes_.alone() || processes_.live(processes_.self()))) [[unlikely]] {
    give_back(found.node, index, static_cast<std::uint32_t>(mode), lane);
    return withdraw({counted.data(), end}, index, intent, lane);
  }
  const std::int64_t fence = floor + 1;  // I6
  if (mode == Mode::X) node.last_fence.set(fence);
  Cell<std::int64_t>& highest = header_->lanes[lane].last_fence;
  if (highest.relaxed() < fence) highest.set(fence);
  record.parent.set(parent);
  record.node.set(found.node);
  record.mode.set(static_cast<std::uint32_t>(mode));
  record.fence.set(fence);
  record.since.set(now);
  record.word.set(record_word(generation, RecordState::held));
  return {fence, generation};
}

inline Table::Taken Table::take_at_once(const Nodes::Found& found, Mode mode, Index record, std::uint32_t lane,
                                        std::int64_t now) noexcept {
  if (found.node == none) return {};
  if (mode == Mode::X) [[likely]]
    return take_found<Mode::X>(found, record, lane, now);
  return take_shared(found, record, lane, now);
}

// --- giving back -----------------------------------------------------------------------------------------------------

// The usual lock: one path or name in X, held by nobody else's doing, in a lane of one's own. `handle` is what the
// record's word must be. False if it is anything else: then nothing has changed, and release() knows what to do.
//
// As in take_found: the target's locked instruction stands between giving back the ancestors and looking at them. An
// operator may break the lock at any moment (I8): the node's word says whether the lock still has it, and its
// intentions are its own in either case. The ancestors are found from `parent`, because the target of a broken lock may
// be reused.
inline bool Table::release_at_once(Index index, std::uint64_t handle, std::uint32_t lane) noexcept {
  Record& record = record_array_[index];
  if (record.word.acquire() != handle) return false;
  const Index target = record.node.relaxed();
  Node& node = node_at(target);
  std::uint64_t w = node.word.acquire();
  if (record.mode.relaxed() != static_cast<std::uint32_t>(Mode::X) ||
      (record.steps.relaxed() | record.note.relaxed()) != none || (w & word::holder) != index) {
    return false;
  }
  const LaneView& own = views_[lane];
  std::array<const Node*, max_depth> above;
  const Node** end = above.data();
  Index rest = none;
  for (Index up = record.parent.relaxed(); up != none && end != above.data() + above.size();) {
    const Node& ancestor = node_at(up);
    const Index number = ancestor.tally.relaxed();
    if (number >= capacity_.tallies || !own.has(number)) [[unlikely]] {  // another thread took the lock
      rest = up;
      break;
    }
    *end++ = &ancestor;
    up = ancestor.parent.relaxed();  // before it is given back: until then it is not reused
    Cell<std::uint64_t>& mine = own.tallies[number].intents;
    mine.set(mine.relaxed() - Tally::unit(Mode::IX));
  }
  if (rest != none) [[unlikely]]
    end = uncount_rest(rest, lane, end, above.data() + above.size());
  while (!node.word.cas(w, w & ~word::holder)) {
    if ((w & word::holder) != index) {  // broken just now, and taken by somebody else
      full_fence();
      w = 0;
      break;
    }
  }
  barrier_after_locked();
  std::uint64_t seen = w;
  for (const Node** a = above.data(); a != end; ++a) seen |= (*a)->word.ordered();
  if ((seen & word::queued) != 0) [[unlikely]] {
    if ((w & word::queued) != 0) queues_.tell_queue(target);
    tell_queues({above.data(), end});
  }
  record.node.set(none);
  record.word.set(record_word(record_generation(handle), RecordState::free));
  return true;
}

}  // namespace hierlock::engine
