// Finding a node by its key and its parent. See nodes.h.
#pragma once

#include <cstring>
#include <string_view>

#include "engine/nodes.h"

namespace hierlock::engine {

// Bytes 8 * index to 8 * index + 7 of the text, zeros after its end. Reads up to seven bytes before the text's own: a
// segment stands behind its length in the key, and a later word of it behind an earlier one, so they are there.
inline std::uint64_t text_word(std::string_view text, std::size_t index) noexcept {
  const std::size_t begin = index * 8;
  if (text.size() <= begin) return 0;
  const std::size_t size = text.size() - begin;
  if (size >= 8) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + begin, 8);
    return bytes;
  }
  if (size >= 4) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + text.size() - 8, 8);
    return bytes >> (64 - 8 * size);
  }
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, text.data() + text.size() - 4, 4);
  return bytes >> (32 - 8 * size);
}

inline bool Nodes::matches(const Node& node, const Key& key, Index parent) const noexcept {
  return node.hash.acquire() == key.hash && node.parent.acquire() == parent &&
         node.meta.acquire() == make_meta(key.segment.size(), key.level, key.space) &&
         node.text[0].acquire() == text_word(key.segment, 0) &&
         (key.segment.size() <= 8 || node.text[1].acquire() == text_word(key.segment, 1)) &&
         (key.segment.size() <= inline_text || rest_matches(node, key.segment));
}

inline Nodes::IndexView Nodes::index_now() const noexcept {
  const std::uint32_t log2 = index_log2();
  return {index_of(log2), (std::size_t{1} << log2) - 1, 64 - log2};
}

inline Index Nodes::find(const IndexView& index, const Key& key, Index parent, std::uint64_t& word) const noexcept {
  std::size_t place = (key.hash * index_multiplier_) >> index.shift;
  for (std::size_t probes = 0; probes <= index.mask; ++probes, place = (place + 1) & index.mask) {
    const std::uint64_t entry = index.entries[place].acquire();
    if (entry == 0) return none;
    if ((entry ^ key.hash) >> 32 != 0) continue;
    const auto node = static_cast<Index>(entry);
    const Node& found = node_at(node);
    word = found.word.acquire();  // before the comparison: its generation vouches for what was compared
    if ((word & word::unused) == 0 && matches(found, key, parent)) return node;
  }
  return none;
}

}  // namespace hierlock::engine
