// NodeHash: the 64-bit hash of a node for lock tables with exact keys (Target::hash). One pass over a path gives the
// hash of every level: the state is carried from level to level and finished per level.
//
// SipHash-1-3 (Aumasson, Bernstein: SipHash: a fast short-input PRF, 2012) with a fixed key, over one block stream per
// node: each segment is its length (low byte) and its first 7 bytes in one little-endian word, then the rest in words
// of 8 bytes, zero-padded. The length comes first, so the stream of one path is never that of another. The key is fixed
// because hashes are stored in memory shared by processes and builds: changing it, or anything here, is a format change
// (docs/format.md). A chosen pair of equal hashes costs its maker 2^32 work and the table one comparison of keys.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <hierlock/target.h>

namespace hierlock::plan {

inline std::uint64_t little_endian(std::uint64_t value) noexcept {
  if constexpr (std::endian::native == std::endian::big) value = __builtin_bswap64(value);
  return value;
}

inline std::uint64_t load_word(const char* bytes) noexcept {
  std::uint64_t value;
  std::memcpy(&value, bytes, sizeof value);
  return little_endian(value);
}

inline void store_word(char* bytes, std::uint64_t value) noexcept {
  value = little_endian(value);
  std::memcpy(bytes, &value, sizeof value);
}

// The `count` (0 to 7) bytes at `bytes`, the first in the lowest byte, zeros above; reads nothing beyond them.
inline std::uint64_t load_tail(const char* bytes, std::size_t count) noexcept {
  const auto byte = [bytes](std::size_t i) { return static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])); };
  if (count >= 4) {
    // Two loads that overlap; the shared bytes are equal, so that or-ing them changes nothing.
    std::uint32_t low;
    std::uint32_t high;
    std::memcpy(&low, bytes, sizeof low);
    std::memcpy(&high, bytes + count - 4, sizeof high);
    if constexpr (std::endian::native == std::endian::big) {
      low = __builtin_bswap32(low);
      high = __builtin_bswap32(high);
    }
    return low | static_cast<std::uint64_t>(high) << (8 * (count - 4));
  }
  if (count == 0) return 0;
  return byte(0) | byte(count / 2) << (8 * (count / 2)) | byte(count - 1) << (8 * (count - 1));
}

class NodeHash {
 public:
  // `name_bytes`: the length of a name, whose low byte alone the stream would hold; 0 for paths.
  explicit NodeHash(Space space, std::size_t name_bytes = 0) noexcept {
    v0_ ^= static_cast<std::uint64_t>(space) | static_cast<std::uint64_t>(name_bytes) << 8;
  }

  // A segment of at most 7 bytes, as load_tail gives it.
  void add_short(std::uint64_t bytes, std::size_t count) noexcept { block(bytes << 8 | count); }

  void add(std::string_view segment) noexcept {
    const std::size_t size = segment.size();
    const char* at = segment.data();
    if (size <= 7) return add_short(load_tail(at, size), size);
    block(load_word(at) << 8 | (size & 0xff));
    std::size_t left = size - 7;
    for (at += 7; left >= 8; at += 8, left -= 8) block(load_word(at));
    if (left > 0) block(load_tail(at, left));
  }

  // The hash of what was added so far; more may be added.
  std::uint64_t value() const noexcept {
    NodeHash end = *this;
    end.v2_ ^= 0xff;
    end.round();
    end.round();
    end.round();
    return end.v0_ ^ end.v1_ ^ end.v2_ ^ end.v3_;
  }

 private:
  void round() noexcept {
    v0_ += v1_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v3_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ += v3_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ += v1_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v2_ = std::rotl(v2_, 32);
  }
  void block(std::uint64_t word) noexcept {
    v3_ ^= word;
    round();
    v0_ ^= word;
  }

  // SipHash's constants ("somepseudorandomlygeneratedbytes") with the key "hierlock" "nodehash" mixed in.
  static constexpr std::uint64_t k0 = 0x6b636f6c72656968;
  static constexpr std::uint64_t k1 = 0x6873616865646f6e;
  std::uint64_t v0_ = 0x736f6d6570736575 ^ k0;
  std::uint64_t v1_ = 0x646f72616e646f6d ^ k1;
  std::uint64_t v2_ = 0x6c7967656e657261 ^ k0;
  std::uint64_t v3_ = 0x7465646279746573 ^ k1;
};

}  // namespace hierlock::plan
