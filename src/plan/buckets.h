// Buckets: the striped stores' keys (H3). A node becomes a row (level, bucket); two nodes may share a row.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/spi/plan.h>

namespace hierlock::plan {

inline constexpr std::uint32_t default_buckets = 10'000'000;

// FNV-1a, 32 bits.
constexpr std::uint32_t fnv1a(std::string_view bytes) noexcept {
  std::uint32_t hash = 2166136261u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619u;
  return hash;
}

constexpr std::uint32_t bucket_of(std::string_view key, std::uint32_t buckets) noexcept { return fnv1a(key) % buckets; }

// How a row is held for a node held in `mode`. Rows have no intention modes: what only announces is S. That is why S on
// an inner node does not exclude writers below it on such a store (B10).
constexpr Mode row_mode(Mode mode) noexcept { return mode == Mode::X ? Mode::X : Mode::S; }

struct Row {
  std::uint8_t level = 0;
  std::uint32_t bucket = 0;
  Mode mode = Mode::X;  // S or X only: rows have no intention modes
  friend bool operator==(const Row&, const Row&) = default;
};

// The rows of a plan of paths in the one order that cannot deadlock: by (level, bucket), never by id, because the rows
// are what is locked (H5). Rows that several nodes share appear once, in the strongest mode. Names and slots
// have no rows and are left out. Throws invalid_argument for 0 buckets.
std::vector<Row> rows_of(const spi::Plan& plan, std::uint32_t buckets);

// Nodes of one plan that share a row, and so wait for each other's holders without need (H15). By (level, bucket).
struct SharedRow {
  unsigned level = 0;
  std::uint32_t bucket = 0;
  std::vector<std::string> nodes;  // as people write them, at least two
};
std::vector<SharedRow> shared_rows(const spi::Plan& plan, std::uint32_t buckets);

// Refuses what rows of so many levels cannot express, before anything is sent or shown (H7, B10). Throws unsupported
// for what is shared above the deepest level, and invalid_argument for deeper paths. Names and slots are not looked at.
// `store` is the scheme, for the message.
void check_rows(const spi::Plan& plan, unsigned levels, std::string_view store);

}  // namespace hierlock::plan
