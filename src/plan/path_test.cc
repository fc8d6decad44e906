// Paths as text (H7): what is read, what is refused, and how it is told.
#include "plan/path.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/error.h>
#include <hierlock/spi/plan.h>

#include "plan/node_hash.h"
#include "plan/test_random.h"

namespace hierlock::plan {
namespace {

using spi::PathText;

// The message a path is refused with; empty if it is not.
std::string refusal(std::string_view text) {
  try {
    const PathText path(text);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_EQ(find_invalid_utf8(error.what()), std::string_view::npos) << "a message is text";
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << "a message is one line";
    return error.what();
  }
}

void expect_refused(std::string_view text, std::string_view message) {
  const std::string got = refusal(text);
  EXPECT_NE(got.find(message), std::string::npos) << "expected: " << message << "\n     got: " << got;
}

std::vector<std::string> segments(std::string_view text) {
  const PathText path(text);
  std::vector<std::string> out;
  for (std::size_t level = 0; level < path.depth(); ++level) out.emplace_back(path.segment(level));
  return out;
}

using Segments = std::vector<std::string>;

TEST(Path, segments_are_separated_by_slashes) {
  EXPECT_EQ(segments("u1"), (Segments{"u1"}));
  EXPECT_EQ(segments("u1/a1/r1"), (Segments{"u1", "a1", "r1"}));
  EXPECT_EQ(segments("1/2/3/4/5/6/7/8"), (Segments{"1", "2", "3", "4", "5", "6", "7", "8"}));
  EXPECT_EQ(segments(" a / b "), (Segments{" a ", " b "})) << "byte-exact: spaces count";
}

TEST(Path, segments_of_every_length_around_the_reading_width_are_read) {
  for (std::size_t first = 1; first <= 26; ++first) {
    for (std::size_t second = 1; second <= 26; ++second) {
      const std::string a = std::string("abcdefghijklmnopqrstuvwxyz").substr(0, first);
      const std::string b = std::string("ZYXWVUTSRQPONMLKJIHGFEDCBA").substr(0, second);
      ASSERT_EQ(segments(a + "/" + b), (Segments{a, b}));
      ASSERT_EQ(segments(a + "%41%42/" + b), (Segments{a + "AB", b}));
      ASSERT_EQ(segments(a + "\xC3\xA9/\xC3\xA9" + b), (Segments{a + "\xC3\xA9", "\xC3\xA9" + b}));
    }
  }
}

TEST(Path, escapes_are_undone) {
  EXPECT_EQ(segments("a%2Fb/100%25"), (Segments{"a/b", "100%"}));
  EXPECT_EQ(segments("%2f%2F"), (Segments{"//"}));
  EXPECT_EQ(segments("caf%C3%A9"), (Segments{"café"}));
  EXPECT_EQ(segments("caf\xC3%A9"), (Segments{"café"})) << "half of a character may be escaped";
  EXPECT_EQ(segments("%41"), (Segments{"A"}));
}

TEST(Path, empty_path_is_refused) {  // H7
  expect_refused("", "the path is empty");
}

TEST(Path, empty_segment_is_refused_and_named) {  // H7
  expect_refused("u1//r1", "segment 2 is empty: \"u1//r1\"");
  expect_refused("/u1", "segment 1 is empty: \"/u1\"");
  expect_refused("u1/", "segment 2 is empty: \"u1/\"");
  expect_refused("/", "segment 1 is empty: \"/\"");
}

TEST(Path, the_ninth_segment_is_refused) {  // H7
  expect_refused("1/2/3/4/5/6/7/8/9", "more than 8 segments");
  expect_refused("1/2/3/4/5/6/7/8/", "more than 8 segments");
}

TEST(Path, a_segment_has_at_most_255_bytes_after_unescaping) {  // H7
  const std::string longest(255, 'x');
  EXPECT_EQ(segments(longest + "/" + longest), (Segments{longest, longest}));
  expect_refused("u1/" + longest + "x", "segment 2 has more than 255 bytes");
  expect_refused(longest + "%41", "segment 1 has more than 255 bytes");
  std::string escaped;
  for (int i = 0; i < 255; ++i) escaped += "%41";
  EXPECT_EQ(segments(escaped), (Segments{std::string(255, 'A')}));
  expect_refused(escaped + "%41", "segment 1 has more than 255 bytes");
  for (std::size_t size = 256; size < 280; ++size) expect_refused(std::string(size, 'x'), "segment 1 has more than");
}

TEST(Path, the_longest_path_is_read) {
  const std::string id(255, 'x');
  std::string text = id;
  for (int i = 1; i < 8; ++i) text += "/" + id;
  const PathText path(text);
  EXPECT_EQ(path.depth(), 8u);
  EXPECT_EQ(path.key(7).size(), 8u * 259u);
  EXPECT_EQ(path.segment(7), id);
}

TEST(Path, nul_is_refused_wherever_it_comes_from) {  // H7
  using namespace std::string_view_literals;
  expect_refused("u1/a\0b"sv, "NUL (byte 0x00) at offset 4");
  expect_refused("\0"sv, "NUL (byte 0x00) at offset 0");
  expect_refused("u1\0"sv, "NUL (byte 0x00) at offset 2");
  expect_refused("u1/%61%00", "NUL (byte 0x00) at offset 6");
}

TEST(Path, malformed_utf8_is_refused_and_the_byte_named) {  // H7
  expect_refused("u1/caf\xC3", "byte 0xC3 at offset 6 is not valid UTF-8");
  expect_refused("caf\xC3/r1", "byte 0xC3 at offset 3 is not valid UTF-8");
  expect_refused("u1/%61\xFFz", "byte 0xFF at offset 6 is not valid UTF-8");
  expect_refused("u1/%61%fF", "byte 0xFF at offset 6 is not valid UTF-8");
  expect_refused("\xC0\xAF", "byte 0xC0 at offset 0");
  expect_refused("\xED\xA0\x80", "byte 0xED at offset 0");
  expect_refused("\xF4\x90\x80\x80", "byte 0xF4 at offset 0");
}

TEST(Path, malformed_escapes_are_refused_and_located) {  // H7
  for (const std::string_view text : {"u1/%", "u1/%4", "u1/%zz", "u1/%4g", "u1/%%25", "u1/%4/41"}) {
    expect_refused(text, "\"%\" at offset 3 is not followed by two hexadecimal digits");
  }
}

TEST(Path, hostile_input_is_shown_escaped_and_cut) {  // H7
  expect_refused("\x1B]0;owned\x07//", "\"\\x1B]0;owned\\x07//\"");
  const std::string message = refusal("//" + std::string(100'000, 'x'));
  EXPECT_LT(message.size(), 250u);
  EXPECT_NE(message.find("(100002 bytes)"), std::string::npos) << message;
}

TEST(Path, reading_text_and_giving_segments_make_the_same_target) {
  HIERLOCK_TELL_SEED();
  Random random;
  for (int i = 0; i < 5'000; ++i) {
    const std::vector<std::string> ids = random.path(true);
    const Target target = Random::as_target(ids);
    std::string text;
    for (const std::string& id : ids) {
      if (!text.empty()) text += '/';
      append_to_text(text, id);
    }
    const PathText path(text);
    ASSERT_EQ(path.depth(), ids.size()) << text;
    for (std::size_t level = 0; level < ids.size(); ++level) {
      ASSERT_EQ(path.segment(level), ids[level]) << text;
      ASSERT_EQ(path.key(level), target.key(level)) << text;
      ASSERT_EQ(path.hash(level), target.hash(level)) << text;
    }
    ASSERT_EQ(Target(text), target);
  }
}

TEST(Path, random_bytes_are_refused_or_read_in_full) {  // H7
  HIERLOCK_TELL_SEED();
  Random random;
  int read = 0;
  for (int i = 0; i < 50'000; ++i) {
    const std::string text = random.bytes(random.one_in(50) ? 2'000 : 16);
    // Exactly as long as the text, so that a sanitizer sees a read beyond it.
    const std::vector<char> exact(text.begin(), text.end());
    const std::string_view view(exact.data(), exact.size());
    if (!refusal(view).empty()) continue;
    ++read;
    const PathText path(view);
    std::string again;
    for (std::size_t level = 0; level < path.depth(); ++level) {
      check_segment(path.segment(level), level);
      if (level > 0) again += '/';
      append_to_text(again, path.segment(level));
    }
    const PathText second(again);
    ASSERT_EQ(second.key(second.depth() - 1), path.key(path.depth() - 1)) << quote(text);
  }
  EXPECT_GT(read, 1'000) << "too few of the random paths are valid to mean anything";
}

TEST(Segments, are_refused_as_in_text) {  // H7
  const auto told = [](std::initializer_list<std::string_view> ids) -> std::string {
    try {
      Target::path(ids);
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  };
  using namespace std::string_view_literals;
  EXPECT_EQ(told({"u1", "a/1", "100%"}), "");
  EXPECT_NE(told({}).find("no segments"), std::string::npos);
  EXPECT_NE(told({"1", "2", "3", "4", "5", "6", "7", "8", "9"}).find("9 segments, more than 8"), std::string::npos);
  EXPECT_NE(told({"u1", ""}).find("segment 2 is empty"), std::string::npos);
  EXPECT_NE(told({std::string(256, 'x')}).find("segment 1 has 256 bytes, more than 255"), std::string::npos);
  EXPECT_NE(told({"u1", "a\0"sv}).find("segment 2: NUL (byte 0x00) at offset 1"), std::string::npos);
  EXPECT_NE(told({"caf\xC3"}).find("segment 1: byte 0xC3 at offset 3 is not valid UTF-8"), std::string::npos);
}

TEST(NodeHash, is_the_same_however_the_bytes_are_given) {
  const std::string bytes = "abcdefghijklmnopqrstuvwxyz0123456789";
  for (std::size_t size = 0; size <= 7; ++size) {
    const std::vector<char> exact(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < size; ++i) word |= static_cast<std::uint64_t>(exact[i]) << (8 * i);
    EXPECT_EQ(load_tail(exact.data(), size), word);
  }
}

TEST(NodeHash, different_targets_have_different_hashes) {
  std::set<std::uint64_t> seen;
  std::size_t count = 0;
  const auto add = [&](std::uint64_t hash) {
    seen.insert(hash);
    ++count;
  };
  for (int user = 0; user < 20; ++user) {
    for (int account = 0; account < 50; ++account) {
      for (int resource = 0; resource < 50; ++resource) {
        const Target t("u" + std::to_string(user) + "/a" + std::to_string(account) + "/r" + std::to_string(resource));
        add(t.hash(2));
      }
    }
  }
  for (std::size_t size = 1; size <= max_name_bytes; ++size) {
    // Lengths that agree modulo 256, and bytes that are nearly all zero when padded.
    add(named(std::string(size, '\x01')).hash(0));
    add(slots(std::string(size, '\x01'), 1).hash(0));
    if (size <= max_segment_bytes) add(Target(std::string(size, '\x01')).hash(0));
  }
  EXPECT_EQ(seen.size(), count);
}

TEST(NodeHash, every_bit_of_it_depends_on_every_byte) {
  // A change of one byte flips each bit of the hash about half the time.
  std::array<int, 64> flips{};
  constexpr int trials = 4'000;
  for (int i = 0; i < trials; ++i) {
    const std::string text = "u" + std::to_string(i) + "/a1/r1";
    std::string other = text;
    const auto at = static_cast<std::size_t>(i) % text.size();
    if (text[at] == '/') continue;
    other[at] = static_cast<char>(other[at] ^ 1);
    const std::uint64_t changed = Target(text).hash(2) ^ Target(other).hash(2);
    for (std::size_t bit = 0; bit < 64; ++bit) flips[bit] += static_cast<int>(changed >> bit & 1);
  }
  for (const int count : flips) {
    EXPECT_GT(count, trials / 4);
    EXPECT_LT(count, trials * 3 / 4);
  }
}

}  // namespace
}  // namespace hierlock::plan
