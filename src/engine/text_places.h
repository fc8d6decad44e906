// TextPlaces: remembers where the path of a text was found last, in the memory of this process. It does for plain
// strings what a Target's Place does for a Target: from the text to the place of the deepest node.
//
// The hash of a text chooses two pairs of slots. A slot is one word: a part of the hash, and the number of an entry. A
// lookup reads one slot at random and then its entry. Slots are small, so all of them stay in the processor's cache.
// Entries are numbered in the order of their first use. So texts that are used in turn have neighbouring entries, which
// the processor fetches beforehand. An entry also names the nodes above its node, so that these are fetched at once.
//
// A slot keeps the entry that it got first. While a quarter of the slots is used, nearly nothing is pushed out.
//
// Any number of threads read and write without a lock. Each entry has a stamp, which says whether the entry is being
// written. A reader that finds the same stamp before and after has read one text and its place. A slot is only a hint,
// because the whole text is compared with the entry.
//
// An entry holds the first and the last 8 bytes of a text, and that is all of most paths. The bytes in between are kept
// apart. A table needs 2.3 MiB of addresses, and uses memory page by page, when texts are noted.
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

  struct Noted {
    std::uint64_t place = 0;  // 0: the text was not noted
    std::uint64_t above = 0;  // the parent's index (low 32 bits) and that of its parent: for fetching them beforehand
  };

  // Returns the place that was noted for exactly this text.
  Noted find(std::string_view text) const noexcept {
    if (text.size() - 8 >= short_sizes_) [[unlikely]]
      return find_other(text);
    const Key key = key_of(text);
    const Entry& entry = entries_[number_in(first_pair(key.hash), key.hash)];
    // Acquire: the stamp is read again after all of these.
    constexpr auto order = std::memory_order_acquire;
    const std::uint64_t before = entry.stamp.load(order);
    const std::uint64_t other =
        (entry.first.load(order) ^ key.first) | (entry.last.load(order) ^ key.last) | wrong(before, text);
    const Noted found{entry.place.load(order), entry.above.load(order)};
    if (other != 0 || entry.stamp.load(std::memory_order_relaxed) != before) [[unlikely]]
      return find_other(text);
    return found;
  }

  // `noted.place` is not 0.
  void note(std::string_view text, const Noted& noted) noexcept;

 private:
  // A part of the hash | the number of an entry. 0: no entry.
  using Slot = std::uint32_t;
  static constexpr unsigned number_bits = 14;
  static constexpr std::size_t count = std::size_t{1} << number_bits;  // of slots, and of entries
  static constexpr std::size_t none_yet = count - 1;                   // of a slot that is about to get its entry
  struct Pair {
    std::atomic<Slot> slot[2];
  };

  struct Entry {
    std::atomic<std::uint64_t> stamp;  // how often it was written (55) | being written (1) | bytes of the text (8)
    std::atomic<std::uint64_t> place, above;
    std::atomic<std::uint64_t> first, last;  // 8 bytes of the text each; or all of it, if it is shorter
  };
  using Middle = std::array<std::atomic<std::uint64_t>, (longest - 16) / 8>;  // whole words after the first 8 bytes

  static constexpr std::uint64_t being_written = 1 << 8;
  // Not 0 if the entry is being written, or has a text of another size.
  static std::uint64_t wrong(std::uint64_t stamp, std::string_view text) noexcept {
    return (stamp ^ text.size()) & (being_written * 2 - 1);
  }

  struct Key {
    std::uint64_t first, last, hash;
  };
  // From the top of the hash: 13 bits for the first pair, 18 for the tag, 13 for the second pair.
  static constexpr unsigned pair_bits = number_bits - 1;
  static Slot tag_and_more(std::uint64_t hash) noexcept { return static_cast<Slot>(hash >> (32 - pair_bits)); }
  static Slot make_slot(std::uint64_t hash, std::size_t number) noexcept {
    return tag_and_more(hash) >> number_bits << number_bits | static_cast<Slot>(number);
  }
  static bool has_tag(Slot slot, std::uint64_t hash) noexcept {
    return (slot ^ tag_and_more(hash)) >> number_bits == 0;
  }
  Pair& first_pair(std::uint64_t hash) const noexcept { return slots_[hash >> (64 - pair_bits)]; }
  Pair& second_pair(std::uint64_t hash) const noexcept { return slots_[tag_and_more(hash) % (count / 2)]; }
  static std::size_t number_in(const Pair& pair, std::uint64_t hash) noexcept {
    const Slot first = pair.slot[0].load(std::memory_order_relaxed);
    if (has_tag(first, hash)) [[likely]]
      return first % count;
    return pair.slot[1].load(std::memory_order_relaxed) % count;
  }
  std::atomic<Slot>* choose_slot(std::uint64_t hash) noexcept;
  std::size_t number_for(std::atomic<Slot>& slot, std::uint64_t hash) noexcept;
  Noted find_other(std::string_view text) const noexcept;
  Noted find_in(std::size_t number, const Key& key, std::string_view text) const noexcept;

  static std::uint64_t word(const char* bytes) noexcept {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes, 8);
    return value;
  }
  // Of 8 to 16 bytes: most paths are that short.
  static Key key_of(std::string_view text) noexcept {
    const std::uint64_t first = word(text.data()), last = word(text.data() + text.size() - 8);
    return {first, last, mix(first, last ^ text.size())};
  }
  static Key key_of_any(std::string_view text) noexcept;
  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide{a ^ 0xA0761D6478BD642F} * (b ^ 0xE7037ED1A0B428DB);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }

  std::size_t short_sizes_ = 0;  // so many sizes, from 8 bytes on, are short
  Pair* slots_ = nullptr;
  Entry* entries_ = nullptr;
  Middle* middles_ = nullptr;
  std::atomic<std::uint64_t> used_{0};  // entries that slots have got
};

}  // namespace hierlock::engine
