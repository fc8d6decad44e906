// Text in a list of blocks: an owner's name, a note, a request, or the rest of a long segment.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/layout.h"

namespace hierlock::engine {

inline void clear_block(Block& block) noexcept {
  for (auto& w : block.word) {
    if (w.relaxed() != 0) w.set(0);
  }
  block.next.set(none);
  block.used.set(0);
}

// at(index) is a block, take() a cleared one or none, and give_back(first) frees a list. none if there is no room.
template <class At, class Take, class Free>
Index write_blocks(std::string_view text, At at, Take take, Free give_back) {
  constexpr std::size_t room = Block::words * 8;
  Index first = none;
  Index previous = none;
  while (!text.empty()) {
    const Index index = take();
    if (index == none) {
      give_back(first);
      return none;
    }
    Block& block = at(index);
    block.used.set(static_cast<std::uint32_t>(text.size()));
    const std::string_view part = text.substr(0, room);
    for (std::size_t i = 0; i < part.size(); i += 8) {
      std::uint64_t bytes = 0;
      std::memcpy(&bytes, part.data() + i, std::min<std::size_t>(8, part.size() - i));
      block.word[i / 8].set(bytes);
    }
    text.remove_prefix(part.size());
    if (previous == none) {
      first = index;
    } else {
      at(previous).next.set(index);
    }
    previous = index;
  }
  return first;
}

template <class At>
std::string read_blocks(Index first, At at) {
  constexpr std::size_t room = Block::words * 8;
  constexpr std::size_t most = max_name_bytes / room + 2;
  std::string text;
  Index index = first;
  for (std::size_t i = 0; index != none && i < most; ++i) {
    const Block& block = at(index);
    const std::size_t size = std::min<std::size_t>(room, block.used.acquire());
    char bytes[room];
    for (std::size_t w = 0; w < Block::words; ++w) {
      const std::uint64_t word = block.word[w].acquire();
      std::memcpy(bytes + w * 8, &word, 8);
    }
    text.append(bytes, size);
    index = block.next.acquire();
  }
  return text;
}

}  // namespace hierlock::engine
