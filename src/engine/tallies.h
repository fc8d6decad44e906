// Tallies: under which number the lanes count a node, and which lanes have memory for it. Numbers come in arenas of
// 256, and a lane has a page for each arena in which it counts. Memory follows what is shared now: docs/engine.md,
// "Numbers", has the argument.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/budget.h"
#include "engine/holders.h"
#include "engine/lanes.h"
#include "engine/parts.h"
#include "engine/queues.h"

namespace hierlock::engine {

class Tallies : Parts {
 public:
  Tallies(const Parts& parts, const Holders& holders, Queues& queues, Lanes& lanes);
  ~Tallies();
  Tallies(const Tallies&) = delete;
  Tallies& operator=(const Tallies&) = delete;

  // --- under index_latch ---
  // A number for a node that has none, and a page for the lane. False if there is no room: shortage() says of what.
  bool give_number(Index node, std::uint32_t lane);
  // A page for the lane, or at least for the common lane. False if there is no memory.
  bool give_pages(std::uint32_t lane, Index arena) noexcept;
  // Takes the number from a node that nobody shares. False if somebody does, or has the latch.
  bool take_back_number(Index node);
  // Of a node that falls out of use.
  void free_number(Node& node) noexcept;
  void drop_some_page(std::uint32_t lane) noexcept;
  // Makes the arenas again from the nodes.
  void rebuild_numbers() noexcept;

  // Whether pages may lie idle: a few of each table, and some more of all tables in private memory together, or of a
  // file.
  bool roomy() const noexcept;
  // The thread of the lane has ended and counts no more, so its empty pages can go.
  void drop_empty_pages(std::uint32_t lane) noexcept;

  // Wipes the tallies of a dead process and gives its lanes back. False if time was up before everything was done.
  // Under the latch of its Collecting.
  bool collect_lanes(ProcessRef dead, const Budget& budget) noexcept;

 private:
  bool make_arena();
  bool give_page(std::uint32_t lane, Index arena) noexcept;
  bool drop_page_if_empty(std::uint32_t lane, Index arena) noexcept;
  bool give_number_of(Index arena, Index node, std::uint32_t lane);
  bool give_number_without_memory(Index node, std::uint32_t lane);
  void take_back_numbers(Index arena, std::uint32_t looks);
  void count_pages(std::uint32_t lane, std::int32_t more) noexcept;

  const Holders& holders_;
  Queues& queues_;
  Lanes& lanes_;
  // Pages of all tables in private memory: one that is idle must not keep what another needs.
  inline static std::atomic<std::int64_t> private_pages_{0};
};

}  // namespace hierlock::engine
