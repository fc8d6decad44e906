// Cell: the unit that a remote store locks: a row, a key, an advisory lock.
//
// The nodes of a plan become cells. If a store has fewer cells than there are nodes (rows of a fixed table), two nodes
// may share a cell. conflict() is the rule for two cells. Code that already knows that two requests meet at one cell,
// or at one node of the local queue, compares only their modes, by compatible().
#pragma once

#include <compare>
#include <cstdint>
#include <utility>

#include <hierlock/mode.h>

namespace hierlock::remote {

struct Cell {
  std::uint8_t level = 0;
  std::uint64_t key = 0;
  Mode mode = Mode::X;
  friend bool operator==(const Cell&, const Cell&) = default;
};

// Cells of names and of slots have levels of their own. They come after all rows in the one order, and the views of a
// store that locks rows do not show them.
inline constexpr std::uint8_t name_level = 64, slots_level = 65;
constexpr bool by_name(const Cell& cell) noexcept { return cell.level >= name_level; }

// Where a cell lies in the one order in which cells are locked.
using Place = std::pair<std::uint8_t, std::uint64_t>;
constexpr Place place(const Cell& cell) noexcept { return {cell.level, cell.key}; }

constexpr bool same_place(const Cell& a, const Cell& b) noexcept { return a.level == b.level && a.key == b.key; }

// True when two different locks cannot hold both.
constexpr bool conflict(const Cell& a, const Cell& b) noexcept {
  return same_place(a, b) && !compatible(a.mode, b.mode);
}

// The same, but a lock on one of several slots is also in the way of a request for a slot. (It blocks the request if
// all slots have holders.)
constexpr bool in_the_way(const Cell& wanted, const Cell& other) noexcept {
  return conflict(wanted, other) || (wanted.level == slots_level && same_place(wanted, other));
}

}  // namespace hierlock::remote
