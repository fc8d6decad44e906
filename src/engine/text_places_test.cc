#include "engine/text_places.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hierlock::engine {
namespace {

std::string text_of(std::uint64_t number, std::size_t size) {
  std::string text = "u" + std::to_string(number) + "/";
  while (text.size() < size) text += static_cast<char>('a' + (number + text.size()) % 26);
  text.resize(size);
  return text;
}

TEST(TextPlaces, finds_the_place_of_exactly_the_text_that_was_noted) {  // H3
  for (std::size_t size = 1; size <= TextPlaces::longest; ++size) {
    TextPlaces places;
    const std::string text = text_of(7, size);
    EXPECT_EQ(places.find(text).place, 0u);
    places.note(text, {42, 7});
    EXPECT_EQ(places.find(text).place, 42u) << size;
    EXPECT_EQ(places.find(text).above, 7u) << size;
    for (std::size_t i = 0; i < size; ++i) {
      std::string other = text;
      other[i] = static_cast<char>(other[i] ^ 1);
      EXPECT_EQ(places.find(other).place, 0u) << size << ", byte " << i;
    }
    EXPECT_EQ(places.find(text + '\0').place, 0u) << size;
    EXPECT_EQ(places.find(std::string_view(text).substr(0, size - 1)).place, 0u) << size;
    places.note(text, {43, 8});
    EXPECT_EQ(places.find(text).place, 43u) << "the last place counts";
  }
}

TEST(TextPlaces, notes_no_text_that_is_empty_or_too_long) {
  TextPlaces places;
  places.note("", {1, 1});
  EXPECT_EQ(places.find("").place, 0u);
  const std::string longer = text_of(1, TextPlaces::longest + 1);
  places.note(longer, {1, 1});
  EXPECT_EQ(places.find(longer).place, 0u);
  EXPECT_EQ(places.find(std::string(100'000, 'x')).place, 0u);
}

TEST(TextPlaces, remembers_nearly_all_of_four_thousand_texts) {
  TextPlaces places;
  constexpr std::uint64_t all = 4000;
  for (std::uint64_t i = 1; i <= all; ++i) places.note(text_of(i, 9 + i % 40), {i, i});
  std::size_t kept = 0;
  for (std::uint64_t i = 1; i <= all; ++i) kept += places.find(text_of(i, 9 + i % 40)).place == i ? 1 : 0;
  EXPECT_GT(kept, all - all / 100);
}

TEST(TextPlaces, remembers_most_of_the_last_texts_and_never_a_wrong_place) {  // H3
  TextPlaces places;
  constexpr std::uint64_t all = 40'000;  // more than there is room for
  for (std::uint64_t i = 1; i <= all; ++i) {
    places.note(text_of(i, 12 + i % 40), {i, i});
    for (std::uint64_t back : {i, i / 2 + 1}) {
      const std::uint64_t found = places.find(text_of(back, 12 + back % 40)).place;
      EXPECT_TRUE(found == 0 || found == back);
    }
  }
  std::size_t kept = 0;
  for (std::uint64_t i = all - 1000; i <= all; ++i) kept += places.find(text_of(i, 12 + i % 40)).place == i ? 1 : 0;
  EXPECT_GT(kept, 900u);
}

// More texts than there is room for, so that threads write over each other all the time.
TEST(TextPlaces, gives_no_thread_the_place_of_another_text_while_others_write) {  // H3
  TextPlaces places;
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; i < 40'000; ++i) texts.push_back(text_of(i, 8 + i % 80));
  std::atomic<std::size_t> found{0};
  std::vector<std::thread> crew;
  for (unsigned t = 0; t < 4; ++t) {
    crew.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::size_t mine = 0;
      for (int i = 0; i < 300'000; ++i) {
        const std::size_t at = random() % texts.size();
        if (i % 2 == 0) {
          places.note(texts[at], {at + 1, ~std::uint64_t{at + 1}});
        } else if (const TextPlaces::Noted noted = places.find(texts[at]); noted.place != 0) {
          ++mine;
          if (noted.place != at + 1) ADD_FAILURE() << texts[at] << " has the place of " << texts[noted.place - 1];
          if (noted.above != ~noted.place) ADD_FAILURE() << texts[at] << " has a parent of another text";
        }
      }
      found += mine;
    });
  }
  for (auto& thread : crew) thread.join();
  EXPECT_GT(found, 1000u);
}

// All texts differ in 6 bytes only, in the same ones. The table is full, so texts that were not noted are compared with
// some that were.
TEST(TextPlaces, compares_every_byte_with_an_entry_that_it_looks_at) {  // H3
  const auto text = [](std::uint64_t number, std::size_t at, std::size_t size) {
    const std::string digits = std::to_string(100'000 + number);
    return std::string(at, 'x') + digits + std::string(size - at - digits.size(), 'x');
  };
  const auto check = [&](std::size_t at, std::size_t size) {
    TextPlaces places;
    constexpr std::uint64_t all = 40'000;
    for (std::uint64_t i = 1; i <= all; ++i) places.note(text(i, at, size), {i, i});
    std::size_t wrong = 0;
    for (std::uint64_t i = all + 1; i <= 2 * all; ++i) wrong += places.find(text(i, at, size)).place != 0 ? 1 : 0;
    EXPECT_EQ(wrong, 0u) << at << " of " << size;
  };
  check(0, 14);
  check(8, 14);
  check(0, 30);
  check(12, 30);
  check(24, 30);
  check(60, TextPlaces::longest);
}

// Two texts of one size that push each other out, because they get the same entry of a full table.
std::pair<std::string, std::string> rivals(TextPlaces& places, std::size_t size) {
  for (std::uint64_t i = 1; i < 60'000; ++i) places.note(text_of(i, size), {i, i});
  const std::string one = text_of(1, size);
  for (std::uint64_t i = 2;; ++i) {
    const std::string other = text_of(i, size);
    places.note(one, {1, 1});
    places.note(other, {2, 2});
    if (places.find(one).place != 0) continue;
    places.note(one, {1, 1});
    if (places.find(other).place == 0) return {one, other};
  }
}

// A thread notes them in turn, while others read the entry that it writes.
TEST(TextPlaces, gives_no_thread_half_of_an_entry_that_is_written) {  // H3
  for (const std::size_t size : {std::size_t{12}, TextPlaces::longest}) {
    TextPlaces places;
    const auto [one, other] = rivals(places, size);
    std::atomic<bool> done{false};
    std::atomic<std::size_t> found{0}, looks{0};
    std::vector<std::thread> readers;
    for (unsigned t = 0; t < 2; ++t) {
      readers.emplace_back([&] {
        std::size_t mine = 0;
        for (; !done; ++looks) {
          const TextPlaces::Noted a = places.find(one), b = places.find(other);
          ASSERT_TRUE(a.place == a.above && (a.place == 0 || a.place % 2 == 1)) << a.place << ", " << a.above;
          ASSERT_TRUE(b.place == b.above && b.place % 2 == 0) << b.place << ", " << b.above;
          mine += a.place != 0 || b.place != 0 ? 1 : 0;
        }
        found += mine;
      });
    }
    // On a busy machine readers get little time. So the writer goes on until they have looked often enough, too.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    constexpr std::uint64_t enough = 500'000, most = 20 * enough;
#else
    constexpr std::uint64_t enough = 3'000'000, most = 20 * enough;
#endif
    for (std::uint64_t i = 1; i < enough || (looks < enough && i < most); ++i) {
      places.note(i % 2 == 1 ? one : other, {i, i});
    }
    done = true;
    for (auto& thread : readers) thread.join();
    EXPECT_GT(found, 0u) << size;
  }
}

}  // namespace
}  // namespace hierlock::engine
