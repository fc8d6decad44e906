// Shortage: what a full table has no more of.
#pragma once

#include <cstdint>

namespace hierlock::engine {

enum class Shortage : std::uint8_t { nodes, texts, records, owners, blocks, tallies, waiters, memory };

namespace detail {
inline constinit thread_local Shortage last_shortage = Shortage::memory;
}

// What the calling thread could not have when it was last told that the table is full.
inline Shortage shortage() noexcept { return detail::last_shortage; }
inline void lacks(Shortage what) noexcept { detail::last_shortage = what; }

}  // namespace hierlock::engine
