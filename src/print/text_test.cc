#include "print/text.h"

#include <gtest/gtest.h>

namespace hierlock::print {
namespace {

TEST(PrintText, wide_characters_take_two_columns) {
  EXPECT_EQ(columns("abc"), 3u);
  EXPECT_EQ(columns("資源"), 4u);
  EXPECT_EQ(columns("é"), 1u);
  EXPECT_EQ(fit_end("u1/a1/r1", 8), "u1/a1/r1");
  EXPECT_EQ(fit_end("u1/a1/r1", 6), "…a1/r1");
  EXPECT_EQ(fit_end("資源資源", 5), "…資源");
}

TEST(PrintText, texts_are_cut_at_the_end_that_matters_less) {
  EXPECT_EQ(fit_begin("a long note", 11), "a long note");
  EXPECT_EQ(fit_begin("a long note", 7), "a long…");
  EXPECT_EQ(fit_begin("資源資源", 6), "資源…");
  EXPECT_EQ(fit_begin("資源資源", 0), "…");
}

TEST(PrintText, long_texts_are_wrapped_at_blanks_or_where_there_are_none_anywhere) {
  EXPECT_EQ(wrapped("", 10), "");
  EXPECT_EQ(wrapped("one two", 10), "one two\n");
  EXPECT_EQ(wrapped("one two three", 7), "one two\nthree\n");
  EXPECT_EQ(wrapped("one two three", 9, 4), "one two\n    three\n");
  EXPECT_EQ(wrapped("abcdefgh", 3), "abc\ndef\ngh\n");
  EXPECT_EQ(wrapped("資源資源", 5), "資源\n資源\n");
  EXPECT_EQ(wrapped("ab", 0, 9), "a\nb\n");
}

TEST(PrintText, times_are_brief) {
  using namespace std::chrono_literals;
  EXPECT_EQ(brief_time(-5ms), "0ms");
  EXPECT_EQ(brief_time(250ms), "250ms");
  EXPECT_EQ(brief_time(1s), "1s");
  EXPECT_EQ(brief_time(1'990ms), "1.9s");
  EXPECT_EQ(brief_time(12'700ms), "12s");
  EXPECT_EQ(brief_time(60s), "1m");
  EXPECT_EQ(brief_time(123s), "2m03s");
  EXPECT_EQ(brief_time(3h + 5min), "3h05m");
  EXPECT_EQ(brief_time(100h), "4d04h");
}

TEST(PrintText, numbers_are_grouped_by_three) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1'000), "1,000");
  EXPECT_EQ(grouped(10'000'000), "10,000,000");
}

TEST(PrintText, bytes_that_are_no_text_are_told_by_their_numbers) {
  EXPECT_EQ(valid("資源\n\x01"), "資源\n\x01");
  EXPECT_EQ(valid("a\xFF\xC3"), "a\\xFF\\xC3");
}

}  // namespace
}  // namespace hierlock::print
