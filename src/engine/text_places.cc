#include "engine/text_places.h"

#include <sys/mman.h>

#include <algorithm>

namespace hierlock::engine {

TextPlaces::TextPlaces() {
  void* const memory = mmap(nullptr, count * (sizeof(Entry) + sizeof(Middle)), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  entries_ = static_cast<Entry*>(memory);  // zeros, which are entries of nothing
  middles_ = reinterpret_cast<Middle*>(entries_ + count);
}

TextPlaces::~TextPlaces() {
  if (entries_ != nullptr) munmap(entries_, count * (sizeof(Entry) + sizeof(Middle)));
}

namespace {

// How many words lie between the first 8 and the last 8 bytes.
std::size_t middle_words(std::string_view text) noexcept { return text.size() <= 16 ? 0 : (text.size() - 9) / 8; }

}  // namespace

TextPlaces::Key TextPlaces::key_of_any(std::string_view text) noexcept {
  if (text.size() - 8 <= 8) return key_of(text);
  Key key{};
  if (text.size() < 8) {
    std::memcpy(&key.first, text.data(), text.size());
    key.last = key.first;
  } else {
    key.first = word(text.data());
    key.last = word(text.data() + text.size() - 8);
  }
  std::uint64_t rest = key.last;
  for (std::size_t i = 0; i < middle_words(text); ++i) rest = mix(rest, word(text.data() + 8 + i * 8));
  finish(key, rest, text.size());
  return key;
}

std::uint64_t TextPlaces::find_other(std::string_view text) const noexcept {
  if (text.empty() || text.size() > longest) return 0;
  return find(key_of_any(text), [&](std::size_t at) {
    bool same = true;
    for (std::size_t i = 0; i < middle_words(text); ++i)
      same = same && middles_[at][i].load(std::memory_order_acquire) == word(text.data() + 8 + i * 8);
    return same;
  });
}

// An entry of the same tag is replaced, then an empty one, then one of the four that the hash says. If another thread
// is writing the entry, this text is noted the next time.
void TextPlaces::note(std::string_view text, std::uint64_t place) noexcept {
  if (text.empty() || text.size() > longest || entries_ == nullptr) return;
  const Key key = key_of_any(text);
  const std::array<std::size_t, 4> choices{first_choice(key.hash), first_choice(key.hash) ^ 1, second_choice(key.hash),
                                           second_choice(key.hash) ^ 1};
  std::size_t at = choices[(key.hash >> 30) % choices.size()];
  for (const std::uint32_t wanted : {key.tag, 0u}) {
    const auto found = std::find_if(choices.begin(), choices.end(), [&](std::size_t choice) {
      return entries_[choice].tag.load(std::memory_order_relaxed) == wanted;
    });
    if (found == choices.end()) continue;
    at = *found;
    break;
  }
  Entry& entry = entries_[at];
  std::uint32_t version = entry.version.load(std::memory_order_relaxed);
  if ((version & 1) != 0 || !entry.version.compare_exchange_strong(version, version + 1)) return;
  // Release: whoever reads one of these finds the version changed.
  constexpr auto order = std::memory_order_release;
  entry.tag.store(key.tag, order);
  entry.first.store(key.first, order);
  entry.last.store(key.last, order);
  for (std::size_t i = 0; i < middle_words(text); ++i) middles_[at][i].store(word(text.data() + 8 + i * 8), order);
  entry.place.store(place, order);
  entry.version.store(version + 2, order);
}

}  // namespace hierlock::engine
