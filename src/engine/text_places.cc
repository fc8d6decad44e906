#include "engine/text_places.h"

#include <sys/mman.h>

namespace hierlock::engine {

namespace {

// How many words lie between the first 8 and the last 8 bytes.
std::size_t middle_words(std::string_view text) noexcept { return text.size() <= 16 ? 0 : (text.size() - 9) / 8; }

}  // namespace

TextPlaces::TextPlaces() {
  constexpr std::size_t bytes = count * (sizeof(Entry) + sizeof(Middle) + sizeof(Slot));
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  entries_ = static_cast<Entry*>(memory);  // zeros, which are entries of nothing
  slots_ = reinterpret_cast<Pair*>(entries_ + count);
  middles_ = reinterpret_cast<Middle*>(slots_ + count / 2);
  short_sizes_ = 9;
}

TextPlaces::~TextPlaces() {
  if (entries_ != nullptr) munmap(entries_, count * (sizeof(Entry) + sizeof(Middle) + sizeof(Slot)));
}

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
  key.hash = mix(key.first, rest ^ text.size());
  return key;
}

TextPlaces::Noted TextPlaces::find_in(std::size_t number, const Key& key, std::string_view text) const noexcept {
  constexpr auto order = std::memory_order_acquire;  // as in find()
  const Entry& entry = entries_[number];
  const std::uint64_t before = entry.stamp.load(order);
  bool same = wrong(before, text) == 0 && entry.first.load(order) == key.first && entry.last.load(order) == key.last;
  for (std::size_t i = 0; i < middle_words(text); ++i)
    same = same && middles_[number][i].load(order) == word(text.data() + 8 + i * 8);
  const Noted found{entry.place.load(order), entry.above.load(order)};
  return same && entry.stamp.load(std::memory_order_relaxed) == before ? found : Noted{};
}

// Of any size, in any slot.
TextPlaces::Noted TextPlaces::find_other(std::string_view text) const noexcept {
  if (text.empty() || text.size() > longest || slots_ == nullptr) return {};
  const Key key = key_of_any(text);
  const Noted found = find_in(number_in(first_pair(key.hash), key.hash), key, text);
  return found.place != 0 ? found : find_in(number_in(second_pair(key.hash), key.hash), key, text);
}

// The slot with the same tag that find() looks at. If there is none, an empty one; otherwise one of the four by the
// hash.
std::atomic<TextPlaces::Slot>* TextPlaces::choose_slot(std::uint64_t hash) noexcept {
  Pair &first = first_pair(hash), &second = second_pair(hash);
  for (std::atomic<Slot>* slot : {&first.slot[0], &first.slot[1], &second.slot[0], &second.slot[1]})
    if (has_tag(slot->load(std::memory_order_relaxed), hash)) return slot;
  for (std::atomic<Slot>* slot : {&first.slot[0], &first.slot[1], &second.slot[0], &second.slot[1]})
    if (slot->load(std::memory_order_relaxed) == 0) return slot;
  return &(hash % 2 == 0 ? first : second).slot[hash / 2 % 2];
}

// The entry of a slot; none_yet if there is none.
std::size_t TextPlaces::number_for(std::atomic<Slot>& slot, std::uint64_t hash) noexcept {
  Slot before = 0;
  if (!slot.compare_exchange_strong(before, make_slot(hash, none_yet))) return before % count;
  const std::uint64_t number = used_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number < none_yet) return number;
  slot.store(0, std::memory_order_relaxed);
  return none_yet;
}

// If another thread is writing the entry, this text is noted the next time.
void TextPlaces::note(std::string_view text, const Noted& noted) noexcept {
  if (text.empty() || text.size() > longest || slots_ == nullptr) return;
  const Key key = key_of_any(text);
  std::atomic<Slot>& slot = *choose_slot(key.hash);
  const std::size_t number = number_for(slot, key.hash);
  if (number == none_yet) return;
  Entry& entry = entries_[number];
  std::uint64_t stamp = entry.stamp.load(std::memory_order_relaxed);
  if ((stamp & being_written) != 0 || !entry.stamp.compare_exchange_strong(stamp, stamp | being_written)) return;
  // Release: whoever reads one of these finds the stamp changed.
  constexpr auto order = std::memory_order_release;
  entry.first.store(key.first, order);
  entry.last.store(key.last, order);
  for (std::size_t i = 0; i < middle_words(text); ++i) middles_[number][i].store(word(text.data() + 8 + i * 8), order);
  entry.place.store(noted.place, order);
  entry.above.store(noted.above, order);
  slot.store(make_slot(key.hash, number), std::memory_order_relaxed);
  const std::uint64_t next = (stamp & ~(being_written - 1)) + being_written * 2;
  entry.stamp.store(next | text.size(), order);
}

}  // namespace hierlock::engine
