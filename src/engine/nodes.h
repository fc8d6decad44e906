// Nodes: from a key to its node. It finds nodes, makes them, and uses those again that nobody needs.
//
// The index is open addressing, linear probing, at most half full. Reading takes no latch: an entry is one word (tag
// and node), and whatever is found is compared with the node itself. A reader that is overtaken by a change may miss a
// node that is there; whoever misses asks again under index_latch, where nothing moves. So entries may be shifted and
// the whole index replaced while others read.
//
// A node is reused when nobody holds it, waits for it, or has a node below it. Idle nodes are kept until there are
// many.
#pragma once

#include <cstdint>
#include <string_view>

#include <hierlock/spi/plan.h>

#include "engine/attempt.h"
#include "engine/holders.h"
#include "engine/lanes.h"
#include "engine/parts.h"
#include "engine/queues.h"
#include "engine/tallies.h"
#include "engine/text_places.h"

namespace hierlock::engine {

class Nodes : Parts {
 public:
  Nodes(const Parts& parts, std::uint64_t index_multiplier, const Holders& holders, Queues& queues, const Lanes& lanes,
        Tallies& tallies);

  // Holds index_latch; put right what a dead process left half done.
  class Guard {
   public:
    Guard(Nodes& nodes, std::int64_t patience) noexcept;
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    bool taken() const noexcept { return taken_; }

   private:
    Nodes& nodes_;
    bool taken_;
  };

  // A node that is known to be the right one as long as its word has this generation; or none.
  struct Found {
    Index node = none;
    std::uint64_t word = 0;
  };
  // The deepest node of a path, if it is there. A reader that is overtaken by a change of the index may miss it.
  [[gnu::always_inline]] Found find_at_once(const spi::Chain& chain) noexcept;
  // The same for a path given as text, if find_at_once() has found it before.
  [[gnu::always_inline]] Found find_text(std::string_view path) const noexcept;
  // The node of the last of these steps, if it is there.
  Found find_steps(std::span<const spi::Step> steps) const noexcept;

  static constexpr Index too_late = ~Index{0};  // index_latch could not be had, or looking for room takes long
  // none if full, or too_late.
  Index find_or_create(const spi::Step& step, Index parent, std::uint32_t lane, std::uint64_t& word,
                       std::int64_t patience);
  // Before a lane counts at a node of this generation: `granted`, or full, or late. If the node has another generation
  // by then, nothing is done; take_latched() finds out. `may_move`: the node may get another number for it.
  Progress prepare_sharing(Index node, std::uint32_t generation, std::uint32_t lane, bool may_move,
                           std::int64_t patience);

  // A lock was released: if the table is full, there may be room now.
  void note_release() noexcept {
    if (header_->swept_in_vain.relaxed() != 0) header_->swept_in_vain.set(0);
  }

 private:
  static constexpr Index swept_on = ~Index{0} - 1;  // no room so far: look on
  struct Key {
    std::uint64_t hash;
    std::string_view segment;
    unsigned level;
    Space space;
  };
  static Key key_of(const spi::Step& step) noexcept { return {step.hash, step.segment, step.level, step.space}; }
  struct IndexView {
    const Cell<std::uint64_t>* entries;
    std::size_t mask;
    unsigned shift;
  };
  IndexView index_now() const noexcept;
  Found find_place(std::uint64_t place) const noexcept;
  Found find_noted(const spi::Chain& chain) const noexcept;
  Found find_path(const spi::Chain& chain) noexcept;  // notes its place
  Index find(const IndexView& index, const Key& key, Index parent, std::uint64_t& word) const noexcept;
  bool matches(const Node& node, const Key& key, Index parent) const noexcept;
  bool rest_matches(const Node& node, std::string_view segment) const noexcept;

  Index create(const spi::Step& step, Index parent, std::uint32_t lane, std::uint64_t& word, std::int64_t patience);
  Index take_node(std::uint32_t lane);
  Index pop(Cell<Index>& list) noexcept;
  bool begin_run(Cell<Index>& run);
  void free_node(Index node) noexcept;
  Index fresh_node(std::uint32_t lane);
  enum class Reuse : std::uint8_t { done, in_use, late };
  Reuse reuse(Index node);
  struct Swept {
    std::uint32_t looked;  // at so many nodes
    bool found;            // idle ones, which are free now
  };
  Swept sweep(std::uint32_t steps, std::uint64_t& late) noexcept;
  Index look_for_idle() noexcept;
  Index take_text();
  void free_texts(Index first) noexcept;
  Index write_long_segment(std::string_view text);

  bool grow_index();
  bool index_insert(std::uint64_t hash, Index node) noexcept;
  void index_remove(std::uint64_t hash, Index node) noexcept;
  std::size_t index_place(std::uint64_t hash, std::uint32_t log2) const noexcept {
    return (hash * index_multiplier_) >> (64 - log2);
  }
  void rebuild() noexcept;

  const std::uint64_t number_;  // of this table in this process; never used twice
  const std::uint64_t index_multiplier_;
  const Holders& holders_;
  Queues& queues_;
  const Lanes& lanes_;
  Tallies& tallies_;
  TextPlaces texts_noted_;
};

}  // namespace hierlock::engine
