// TextPlaces: where paths that were asked for as text were found last, in the memory of this process. It does for plain
// strings what a Target's Place does for a Target: from the text to the place of the deepest node.
//
// Any number of threads read and write without a lock. Each entry has a version, which is odd while the entry is
// written: whoever reads the same even version before and after has read one text and its place.
//
// A text has four entries to choose from: two that share a cache line, and two in another. So while the table is half
// full, nearly nothing is pushed out. An entry holds the first and the last 8 bytes of a text, and that is all of most
// paths; what a longer one has in between is kept apart. 1 MiB of addresses a table. Memory is used page by page, when
// texts are noted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "engine/layout.h"

namespace hierlock::engine {

class TextPlaces {
 public:
  static constexpr std::size_t longest = 112;  // bytes of a text that can be noted

  TextPlaces();  // without memory nothing is noted
  ~TextPlaces();
  TextPlaces(const TextPlaces&) = delete;
  TextPlaces& operator=(const TextPlaces&) = delete;

  // The place that was noted for exactly this text, or 0.
  std::uint64_t find(std::string_view text) const noexcept {
    if (text.size() - 8 > 8) [[unlikely]]
      return find_other(text);
    return find(key_of(text), [](std::size_t) { return true; });
  }

  // `place` is not 0.
  void note(std::string_view text, std::uint64_t place) noexcept;

 private:
  static constexpr std::size_t count = std::size_t{1} << 13;

  struct alignas(line / 2) Entry {
    std::atomic<std::uint32_t> version;
    std::atomic<std::uint32_t> tag;  // size and a part of the hash; 0: no entry
    std::atomic<std::uint64_t> place;
    std::atomic<std::uint64_t> first, last;  // 8 bytes of the text each; or all of it, if it is shorter
  };
  static_assert(sizeof(Entry) == line / 2);
  using Middle = std::array<std::atomic<std::uint64_t>, (longest - 16) / 8>;  // whole words after the first

  struct Key {
    std::uint64_t first, last, hash;
    std::uint32_t tag;
  };

  // `same_middle` compares what lies between the first 8 and the last 8 bytes with the entry of that number.
  template <class SameMiddle>
  std::uint64_t find(const Key& key, SameMiddle same_middle) const noexcept {
    if (entries_ == nullptr) return 0;
    std::size_t at = first_choice(key.hash);
    if (!has_tag(at, key) && !has_tag(at ^= 1, key)) [[unlikely]] {
      at = second_choice(key.hash);
      if (!has_tag(at, key) && !has_tag(at ^= 1, key)) return 0;
    }
    // Acquire: the version is read again after all of these.
    constexpr auto order = std::memory_order_acquire;
    const Entry& entry = entries_[at];
    const std::uint32_t before = entry.version.load(order);
    const bool same = entry.tag.load(order) == key.tag && entry.first.load(order) == key.first &&
                      entry.last.load(order) == key.last && same_middle(at);
    const std::uint64_t found = entry.place.load(order);
    if (!same || (before & 1) != 0 || entry.version.load(std::memory_order_relaxed) != before) return 0;
    return found;
  }
  std::uint64_t find_other(std::string_view text) const noexcept;
  bool has_tag(std::size_t at, const Key& key) const noexcept {
    return entries_[at].tag.load(std::memory_order_relaxed) == key.tag;
  }

  static std::uint64_t word(const char* bytes) noexcept {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes, 8);
    return value;
  }
  // Of 8 to 16 bytes: most paths are that short.
  static Key key_of(std::string_view text) noexcept {
    Key key{word(text.data()), word(text.data() + text.size() - 8), 0, 0};
    finish(key, key.last, text.size());
    return key;
  }
  static Key key_of_any(std::string_view text) noexcept;
  static void finish(Key& key, std::uint64_t rest, std::size_t size) noexcept {
    key.hash = mix(key.first, rest ^ size);
    key.tag = static_cast<std::uint32_t>(key.hash >> 32) << 7 | static_cast<std::uint32_t>(size);
  }
  static std::size_t first_choice(std::uint64_t hash) noexcept { return hash % count; }
  static std::size_t second_choice(std::uint64_t hash) noexcept { return (hash >> 13) % count; }
  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide{a ^ 0xA0761D6478BD642F} * (b ^ 0xE7037ED1A0B428DB);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }

  Entry* entries_ = nullptr;
  Middle* middles_ = nullptr;
};

}  // namespace hierlock::engine
