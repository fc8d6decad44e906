#include "valkey/places.h"

#include <algorithm>

namespace hierlock::valkey {

namespace {

constexpr int node_bits = 37, level_bits = 3;

// FNV-1a with 64 bits, and the end of MurmurHash3, which spreads it over all bits. Every process and version must get
// the same.
std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
  return hash ^ hash >> 33;
}

// The first segment, with its length before it (Target::key).
std::string_view root_of(std::string_view key) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < 4; ++i) size = size << 8 | static_cast<unsigned char>(key[i]);
  return key.substr(0, 4 + size);
}

}  // namespace

std::string place_of(const remote::Cell& cell, const std::string& table) {
  constexpr int digits = 6;  // of the tag, in hexadecimal
  const std::uint64_t tag = cell.key >> (node_bits + level_bits);
  std::string place = "hl:" + table + ":{";
  place += cell.level == 0 ? 'p' : cell.level == 1 ? 'n' : 's';
  for (int i = digits - 1; i >= 0; --i) place += "0123456789abcdef"[tag >> (4 * i) & 15];
  return place += '}';
}

remote::Cell cell_of(Space space, std::uint8_t level, std::string_view key, Mode mode) {
  const std::uint64_t tag = hash_of(root_of(key)) >> (node_bits + level_bits);
  const std::uint64_t node = hash_of(key) & ((std::uint64_t{1} << node_bits) - 1);
  const std::uint8_t kind = space == Space::path ? 0 : space == Space::name ? 1 : remote::slots_level;
  return {kind, (tag << level_bits | (level & 7u)) << node_bits | node, mode};
}

std::vector<remote::LeaseGroup> groups_of(const spi::Plan& plan, const std::string& table) {
  std::vector<std::pair<remote::Cell, const spi::Step*>> cells;
  for (const spi::Step& step : plan.steps())
    cells.emplace_back(cell_of(step.space, step.level, step.key, step.mode), &step);
  std::sort(cells.begin(), cells.end(), [](const auto& a, const auto& b) {
    const remote::Place x = place(a.first), y = place(b.first);
    return x != y ? x < y : a.second->key < b.second->key;
  });
  std::vector<remote::LeaseGroup> groups;
  for (const auto& [cell, step] : cells) {
    std::string at = place_of(cell, table);
    if (groups.empty() || groups.back().place != at) groups.push_back({std::move(at), {}});
    groups.back().nodes.push_back({spi::describe_key(step->space, step->key), step->mode, step->slots});
  }
  return groups;
}

std::string words_of(const std::vector<remote::LeaseNode>& nodes) {
  std::string words;
  for (const remote::LeaseNode& node : nodes) {
    words += node.name + "\n" + static_cast<char>('1' + static_cast<int>(node.mode)) + "\n" +
             std::to_string(node.slots) + "\n";
  }
  return words;
}

}  // namespace hierlock::valkey
