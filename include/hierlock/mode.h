// Modes: how a node of the hierarchy is held, which modes are compatible, and which mode combines two others.
//
// A lock on a target holds the target itself in X (exclusive) or S (shared). It holds every ancestor in the matching
// intention mode: IX means that some node below is held exclusively, IS that some node below is held shared.
// (Gray, Lorie, Putzolu, Traiger: Granularity of Locks in a Shared Data Base, 1976; without the mode SIX.)
//
//          IS   IX   S    X           strongest(a, b)
//     IS   yes  yes  yes  no          IS  IX  S   X
//     IX   yes  yes  no   no          IX  IX  X   X      IX with S is X: SIX does not exist here
//     S    yes  no   yes  no          S   X   S   X
//     X    no   no   no   no          X   X   X   X
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace hierlock {

enum class Mode : std::uint8_t { IS, IX, S, X };

inline constexpr std::array<Mode, 4> all_modes{Mode::IS, Mode::IX, Mode::S, Mode::X};

// True if two different holders may hold one node in `a` and `b` at the same time. Symmetric.
constexpr bool compatible(Mode a, Mode b) noexcept {
  constexpr bool table[4][4] = {
      {true, true, true, false},
      {true, true, false, false},
      {true, false, true, false},
      {false, false, false, false},
  };
  return table[static_cast<int>(a)][static_cast<int>(b)];
}

// The weakest mode that grants everything that `a` and `b` grant. Commutative, associative, idempotent.
constexpr Mode strongest(Mode a, Mode b) noexcept {
  constexpr Mode table[4][4] = {
      {Mode::IS, Mode::IX, Mode::S, Mode::X},
      {Mode::IX, Mode::IX, Mode::X, Mode::X},
      {Mode::S, Mode::X, Mode::S, Mode::X},
      {Mode::X, Mode::X, Mode::X, Mode::X},
  };
  return table[static_cast<int>(a)][static_cast<int>(b)];
}

// True if a holder in `held` needs no stronger mode to have `wanted`.
constexpr bool covers(Mode held, Mode wanted) noexcept { return strongest(held, wanted) == held; }

// The mode of all ancestors of a node that is held in `mode`.
constexpr Mode intention(Mode mode) noexcept { return mode == Mode::X || mode == Mode::IX ? Mode::IX : Mode::IS; }

constexpr std::string_view to_string(Mode mode) noexcept {
  constexpr std::string_view names[4] = {"IS", "IX", "S", "X"};
  return names[static_cast<int>(mode)];
}

}  // namespace hierlock
