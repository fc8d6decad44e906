#include "plan/option.h"

#include <gtest/gtest.h>

#include <hierlock/error.h>

namespace hierlock::plan {
namespace {

std::string refusal(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Option, a_time_is_a_number_of_milliseconds_and_so_the_refusal_says) {
  EXPECT_EQ(read_milliseconds("lease", "1500", 1000, 600'000), std::chrono::milliseconds(1500));
  EXPECT_EQ(
      refusal([&] { read_milliseconds("lease", "10s", 1000, 600'000); }),
      "lease=10s is not a whole number from 1000 to 600000. It is a time in milliseconds, written without a unit");
}

TEST(Option, numbers_are_whole_and_within_bounds) {
  EXPECT_EQ(read_number("n", "1", 1, 8), 1u);
  EXPECT_EQ(read_number("n", "8", 1, 8), 8u);
  for (const char* bad : {"", "0", "9", "-1", "1.5", "1 ", " 1", "0x1", "99999999999999999999999"}) {
    EXPECT_EQ(refusal([&] { read_number("n", bad, 1, 8); }),
              std::string("n=") + bad + " is not a whole number from 1 to 8");
  }
}

TEST(Option, counts_have_units) {
  EXPECT_EQ(read_count("n", "100k", 1, 2'147'483'647), 100'000u);
  EXPECT_EQ(read_count("n", "10M", 1, 2'147'483'647), 10'000'000u);
  EXPECT_EQ(read_count("n", "2G", 1, 2'147'483'647), 2'000'000'000u);
  EXPECT_EQ(read_count("n", "7", 1, 2'147'483'647), 7u);
  for (const char* bad : {"k", "3G", "1kk", "1K", "0k"}) {
    EXPECT_NE(refusal([&] { read_count("n", bad, 1, 2'147'483'647); }).find(std::string("n=") + bad + " "),
              std::string::npos);
  }
}

TEST(Option, a_choice_has_two_words) {
  EXPECT_TRUE(read_choice("views", "on", "on", "off"));
  EXPECT_FALSE(read_choice("views", "off", "on", "off"));
  EXPECT_EQ(refusal([] { read_choice("views", "ON", "on", "off"); }), "views=ON: write on or off");
}

TEST(Option, a_table_needs_no_quotes) {
  EXPECT_EQ(read_table_name("table", "Az_09", 5), "Az_09");
  for (const char* bad : {"", "a-b", "a`b", "a b", "\xc3\xa4", "abcdef"}) {
    EXPECT_NE(refusal([&] { read_table_name("table", bad, 5); }).find("1 to 5 letters"), std::string::npos) << bad;
  }
}

}  // namespace
}  // namespace hierlock::plan
