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
  std::uint32_t tallies = 0;
  std::uint32_t lanes = 0;
  std::uint32_t waiters_per_stripe = 0;
  std::uint32_t idle_nodes = 0;  // nodes kept before idle ones are looked for and reused

  // For about so many locks at once. Threads of one process seldom need more than 128 lanes; processes take two each.
  static Capacity for_locks(std::uint64_t locks, std::uint32_t lanes = 128);

  friend bool operator==(const Capacity&, const Capacity&) = default;
};

}  // namespace hierlock::engine
