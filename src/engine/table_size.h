// Capacity: how much a table may grow to. Addresses are reserved for all of it, memory is used as needed.
#pragma once

#include <cstdint>

namespace hierlock::engine {

struct Capacity {
  std::uint32_t nodes = 0;
  std::uint32_t records = 0;
  std::uint32_t owners = 0;
  std::uint32_t blocks = 0;
  std::uint32_t texts = 0;
  std::uint32_t tallies = 0;  // nodes that can be shared at once; whole arenas (layout.h)
  std::uint32_t lanes = 0;
  std::uint32_t waiters_per_stripe = 0;
  std::uint32_t idle_nodes = 0;  // nodes kept before idle ones are looked for and reused
  std::uint32_t idle_pages = 0;  // pages of tallies kept before those of idle nodes are used for others

  // For at least so many locks at once, on paths of three levels, whoever holds them. In private memory; threads of one
  // process seldom need more than 128 lanes.
  static Capacity for_locks(std::uint64_t locks);
  // The same in a file. Processes take two lanes each.
  static Capacity for_locks(std::uint64_t locks, std::uint32_t lanes);

  friend bool operator==(const Capacity&, const Capacity&) = default;
};

}  // namespace hierlock::engine
