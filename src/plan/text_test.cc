#include "plan/text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "plan/test_random.h"

namespace hierlock::plan {
namespace {

// Written from the definition of UTF-8 rather than from its byte ranges: decode, then ask whether encoding gives the
// same.
bool valid_by_definition(std::string_view bytes) {
  while (!bytes.empty()) {
    const unsigned lead = static_cast<unsigned char>(bytes[0]);
    const int size = lead < 0x80             ? 1
                     : (lead & 0xE0) == 0xC0 ? 2
                     : (lead & 0xF0) == 0xE0 ? 3
                     : (lead & 0xF8) == 0xF0 ? 4
                                             : 0;
    if (size == 0 || bytes.size() < static_cast<std::size_t>(size)) return false;
    std::uint32_t point = size == 1 ? lead : lead & (0xFFu >> (size + 1));
    for (int i = 1; i < size; ++i) {
      const unsigned byte = static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
      if ((byte & 0xC0) != 0x80) return false;
      point = point << 6 | (byte & 0x3F);
    }
    constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < least[size] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) return false;
    bytes.remove_prefix(static_cast<std::size_t>(size));
  }
  return true;
}

TEST(Utf8, every_sequence_of_two_bytes_and_every_start_of_four_is_judged_as_defined) {  // H7
  for (unsigned a = 0; a < 256; ++a) {
    for (unsigned b = 0; b < 256; ++b) {
      for (const std::string_view tail : {"", "\x80", "\xBF", "\x80\x80", "\xBF\xBF", "\x80z", "z"}) {
        const std::string bytes = std::string{static_cast<char>(a), static_cast<char>(b)} + std::string(tail);
        ASSERT_EQ(find_invalid_utf8(bytes) == std::string::npos, valid_by_definition(bytes)) << quote(bytes);
      }
    }
  }
}

TEST(Utf8, random_bytes_are_judged_as_defined) {  // H7
  HIERLOCK_TELL_SEED();
  Random random;
  for (int i = 0; i < 20'000; ++i) {
    const std::string bytes = random.bytes(20);
    ASSERT_EQ(find_invalid_utf8(bytes) == std::string::npos, valid_by_definition(bytes)) << quote(bytes);
  }
}

TEST(Utf8, the_first_bad_byte_is_found) {
  EXPECT_EQ(find_invalid_utf8("caf\xC3"), 3u);
  EXPECT_EQ(find_invalid_utf8("\xC3\xA9\xFF"), 2u);
  EXPECT_EQ(find_invalid_utf8("\xED\xA0\x80"), 0u) << "a surrogate";
  EXPECT_EQ(find_invalid_utf8("\xC0\xAF"), 0u) << "an overlong slash";
}

TEST(Quoted, a_terminal_is_not_told_what_to_do) {
  EXPECT_EQ(quote("plain"), "\"plain\"");
  EXPECT_EQ(quote("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(quote("\x1B[31m"), "\"\\x1B[31m\"");
  EXPECT_EQ(quote("a\nb"), "\"a\\x0Ab\"");
  EXPECT_EQ(quote("\xC2\x9B"), "\"\\xC2\\x9B\"") << "a C1 control";
  EXPECT_EQ(quote("\xE2\x80\xAE"), "\"\\xE2\\x80\\xAE\"") << "a change of direction";
  EXPECT_EQ(quote("\xFF"), "\"\\xFF\"");
  EXPECT_EQ(quote("資源"), "\"資源\"");
}

TEST(Quoted, reading_gives_back_any_bytes) {
  HIERLOCK_TELL_SEED();
  Random random;
  for (int i = 0; i < 5'000; ++i) {
    const std::string bytes = random.bytes(30);
    const std::string text = quote(bytes) + " rest";
    std::string_view rest = text;
    std::string why;
    ASSERT_EQ(read_quoted(rest, why), bytes) << text;
    ASSERT_EQ(rest, " rest");
  }
}

TEST(ShellWord, is_quoted_where_a_shell_would_read_more_into_it) {
  EXPECT_EQ(shell_word("mysql://app@db:3306/shop"), "mysql://app@db:3306/shop");
  EXPECT_EQ(shell_word("mysql://app@db/shop?table=a&levels=4"), "'mysql://app@db/shop?table=a&levels=4'");
  EXPECT_EQ(shell_word("mysql://app:***@db/shop"), "'mysql://app:***@db/shop'");
  EXPECT_EQ(shell_word("o'dd"), "'o'\\''dd'");
  EXPECT_EQ(shell_word("\x1B[2J"), "'\\x1B[2J'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(Excerpt, is_cut_between_characters_and_tells_the_length) {
  EXPECT_EQ(excerpt("short"), "\"short\"");
  EXPECT_EQ(excerpt(std::string(300, 'x'), 5), "\"xxxxx\"… (300 bytes)");
  EXPECT_EQ(excerpt("aa資源", 4), "\"aa\"… (8 bytes)");
  EXPECT_EQ(excerpt(std::string(9, '\x80'), 4), "\"\\x80\"… (9 bytes)");
}

}  // namespace
}  // namespace hierlock::plan
