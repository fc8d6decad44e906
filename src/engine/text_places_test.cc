#include "engine/text_places.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
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
    EXPECT_EQ(places.find(text), 0u);
    places.note(text, 42);
    EXPECT_EQ(places.find(text), 42u) << size;
    for (std::size_t i = 0; i < size; ++i) {
      std::string other = text;
      other[i] = static_cast<char>(other[i] ^ 1);
      EXPECT_EQ(places.find(other), 0u) << size << ", byte " << i;
    }
    EXPECT_EQ(places.find(text + '\0'), 0u) << size;
    EXPECT_EQ(places.find(std::string_view(text).substr(0, size - 1)), 0u) << size;
    places.note(text, 43);
    EXPECT_EQ(places.find(text), 43u) << "the last place counts";
  }
}

TEST(TextPlaces, notes_no_text_that_is_empty_or_too_long) {
  TextPlaces places;
  places.note("", 1);
  EXPECT_EQ(places.find(""), 0u);
  const std::string longer = text_of(1, TextPlaces::longest + 1);
  places.note(longer, 1);
  EXPECT_EQ(places.find(longer), 0u);
  EXPECT_EQ(places.find(std::string(100'000, 'x')), 0u);
}

TEST(TextPlaces, remembers_most_of_a_thousand_texts_and_never_a_wrong_place) {  // H3
  TextPlaces places;
  constexpr std::uint64_t all = 20'000;
  for (std::uint64_t i = 1; i <= all; ++i) {
    places.note(text_of(i, 12 + i % 40), i);
    for (std::uint64_t back : {i, i / 2 + 1}) {
      const std::uint64_t found = places.find(text_of(back, 12 + back % 40));
      EXPECT_TRUE(found == 0 || found == back);
    }
  }
  std::size_t kept = 0;
  for (std::uint64_t i = all - 1000; i <= all; ++i) kept += places.find(text_of(i, 12 + i % 40)) == i ? 1 : 0;
  EXPECT_GT(kept, 900u);
}

// Few texts that fall into few entries, so that threads write over each other all the time.
TEST(TextPlaces, gives_no_thread_the_place_of_another_text_while_others_write) {  // H3
  TextPlaces places;
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; i < 20'000; ++i) texts.push_back(text_of(i, 8 + i % 80));
  std::atomic<std::size_t> found{0};
  std::vector<std::thread> crew;
  for (unsigned t = 0; t < 4; ++t) {
    crew.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::size_t mine = 0;
      for (int i = 0; i < 300'000; ++i) {
        const std::size_t at = random() % texts.size();
        if (i % 2 == 0) {
          places.note(texts[at], at + 1);
        } else if (const std::uint64_t place = places.find(texts[at]); place != 0) {
          ++mine;
          if (place != at + 1) ADD_FAILURE() << texts[at] << " has the place of " << texts[place - 1];
        }
      }
      found += mine;
    });
  }
  for (auto& thread : crew) thread.join();
  EXPECT_GT(found, 1000u);
}

}  // namespace
}  // namespace hierlock::engine
