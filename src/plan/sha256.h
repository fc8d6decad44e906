// SHA-256 (FIPS 180-4), for names that a store keeps by hash.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace hierlock::plan {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::string_view bytes);

// The first so many hex digits, in lower case.
std::string hex(const Digest& digest, std::size_t digits);

}  // namespace hierlock::plan
