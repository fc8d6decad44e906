#include "valkey_client/slot_map.h"

#include <algorithm>

#include "endpoint/sql.h"

namespace hierlock::valkey {

namespace {

// CRC-16/XMODEM.
unsigned crc_of(std::string_view bytes) {
  unsigned crc = 0;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned>(static_cast<unsigned char>(byte)) << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc << 1 ^ ((crc & 0x8000u) != 0 ? 0x1021u : 0u)) & 0xffffu;
  }
  return crc;
}

std::string host_of(const std::string& node) { return node.substr(0, node.rfind(':')); }

// A node that does not know its own name says nothing, or `?`.
std::string place_of(const std::string& host, std::string_view port, const std::string& from) {
  return (host.empty() || host == "?" ? host_of(from) : host) + ":" + std::string(port);
}

}  // namespace

unsigned slot_of(std::string_view key) {
  const std::size_t open = key.find('{');
  const std::size_t close = open == key.npos ? open : key.find('}', open);
  if (close != key.npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  return crc_of(key) % slot_count;
}

std::optional<Redirection> redirection_in(const Reply& reply, const std::string& from) {
  if (!reply.is_error("MOVED") && !reply.is_error("ASK")) return std::nullopt;
  const std::string_view text = reply.text;
  const std::size_t slot = text.find(' ') + 1, node = text.find(' ', slot) + 1, port = text.rfind(':') + 1;
  if (slot == 0 || node == 0 || port <= node) return std::nullopt;
  return Redirection{endpoint::number<unsigned>(text.substr(slot)) % slot_count,
                     place_of(std::string(text.substr(node, port - node - 1)), text.substr(port), from),
                     reply.is_error("ASK")};
}

bool SlotMap::known() const {
  const std::lock_guard guard(mutex_);
  return !by_slot_.empty();
}

std::string SlotMap::node_of(std::string_view key) const {
  const std::lock_guard guard(mutex_);
  return by_slot_.empty() ? std::string() : nodes_[by_slot_[slot_of(key)]];
}

std::uint16_t SlotMap::number_of(const std::string& node) {
  const auto found = std::find(nodes_.begin(), nodes_.end(), node);
  const auto number = static_cast<std::uint16_t>(found - nodes_.begin());
  if (found == nodes_.end()) nodes_.push_back(node);
  return number;
}

void SlotMap::set(unsigned slot, const std::string& node) {
  const std::lock_guard guard(mutex_);
  by_slot_.resize(slot_count);
  by_slot_[slot] = number_of(node);
}

// Each item is FIRST LAST PRIMARY REPLICA…, and each of these nodes HOST PORT ID ….
void SlotMap::read(const Reply& slots, const std::string& from) {
  if (slots.kind != Reply::Kind::array) return;
  const std::lock_guard guard(mutex_);
  nodes_ = {""};
  by_slot_.assign(slot_count, 0);
  shape_ = {.fewest_replicas = slot_count};
  for (const Reply& range : slots.items) {
    if (range.items.size() < 3 || range.items[2].items.size() < 2) continue;
    const std::vector<Reply>& primary = range.items[2].items;
    const std::string node = place_of(primary[0].text, std::to_string(primary[1].number), from);
    const std::uint16_t number = number_of(node);
    for (auto slot = range.items[0].number; slot <= range.items[1].number && slot < slot_count; ++slot) {
      by_slot_[static_cast<std::size_t>(slot)] = number;
      ++shape_.covered;
    }
    shape_.fewest_replicas = std::min(shape_.fewest_replicas, range.items.size() - 3);
  }
  shape_.primaries.assign(nodes_.begin() + 1, nodes_.end());
}

SlotMap::Shape SlotMap::shape() const {
  const std::lock_guard guard(mutex_);
  return shape_;
}

}  // namespace hierlock::valkey
