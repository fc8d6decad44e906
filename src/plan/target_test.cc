#include <hierlock/target.h>

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/error.h>

#include "plan/test_random.h"

namespace hierlock {
namespace {

using plan::Random;

std::string refusal(std::string_view text) {
  try {
    Target::parse(text);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_EQ(plan::find_invalid_utf8(error.what()), std::string_view::npos);
    return error.what();
  }
}

TEST(Target, a_string_is_a_path_and_exclusive) {
  const Target t = "u1/a1/r1";
  EXPECT_EQ(t.space(), Space::path);
  EXPECT_FALSE(t.is_shared());
  EXPECT_EQ(t.slot_count(), 0u);
  EXPECT_EQ(t.depth(), 3u);
  EXPECT_EQ(t.segment(0), "u1");
  EXPECT_EQ(t.segment(2), "r1");
  EXPECT_EQ(t, Target(std::string("u1/a1/r1")));
  EXPECT_EQ(t, Target::path({"u1", "a1", "r1"}));
}

TEST(Target, a_string_is_never_a_keyword) {
  EXPECT_EQ(Target("shared u1").segment(0), "shared u1");
  EXPECT_FALSE(Target("shared u1").is_shared());
  EXPECT_EQ(Target("named \"x\"").space(), Space::path);
  EXPECT_EQ(Target("slots \"x\" 3").space(), Space::path);
}

TEST(Target, the_key_is_length_and_bytes_of_each_segment) {  // H3
  using namespace std::string_view_literals;
  const Target t = "u1/a/xyz";
  EXPECT_EQ(t.key(0), "\0\0\0\2u1"sv);
  EXPECT_EQ(t.key(1), "\0\0\0\2u1\0\0\0\1a"sv);
  EXPECT_EQ(t.key(2), "\0\0\0\2u1\0\0\0\1a\0\0\0\3xyz"sv);
  EXPECT_EQ(named(std::string(0x0102, 'n')).key(0).substr(0, 5), "\0\0\1\2n"sv);
}

TEST(Target, two_different_paths_never_have_the_same_key) {  // H3
  HIERLOCK_TELL_SEED();
  Random random;
  std::map<std::string, std::vector<std::string>> by_key;
  const auto check = [&by_key](const std::vector<std::string>& path) {
    const Target t = Random::as_target(path);
    const auto [at, fresh] = by_key.emplace(t.key(t.depth() - 1), path);
    ASSERT_EQ(at->second, path);
  };
  for (int i = 0; i < 20'000; ++i) check(random.path(true));
  // Few letters, lengths that look like separators, and the bytes that lengths are made of.
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::string> path(1 + random.below(4));
    for (std::string& segment : path) {
      segment.clear();
      for (std::size_t left = 1 + random.below(6); left > 0; --left) segment += "\x01\x02\x03/%ab"[random.below(7)];
    }
    check(path);
  }
  EXPECT_GT(by_key.size(), 20'000u);
}

TEST(Target, paths_names_and_slots_are_different_locks) {  // N6
  EXPECT_FALSE(Target("x") == named("x"));
  EXPECT_FALSE(named("x") == slots("x", 1));
  EXPECT_EQ(Target("x").key(0), named("x").key(0)) << "the space is not in the key";
  EXPECT_NE(Target("x").hash(0), named("x").hash(0));
  EXPECT_NE(named("x").hash(0), slots("x", 1).hash(0));
  EXPECT_EQ(slots("x", 1).hash(0), slots("x", 2).hash(0)) << "the same node, whatever the number";
}

TEST(Target, names_are_byte_exact_and_may_be_long) {  // N4
  EXPECT_FALSE(named("job") == named("Job"));
  EXPECT_NE(named("job").hash(0), named("Job").hash(0));
  const std::string sixty_four(64, 'x');
  EXPECT_FALSE(named(sixty_four + "a") == named(sixty_four + "b"));
  EXPECT_NE(named(sixty_four + "a").hash(0), named(sixty_four + "b").hash(0));
  EXPECT_EQ(named(std::string(max_name_bytes, 'x')).segment(0).size(), max_name_bytes);
  EXPECT_EQ(named("a/b").depth(), 1u);
}

TEST(Target, names_and_slots_are_checked) {  // H7, N4, M1
  using namespace std::string_view_literals;
  const auto told = [](auto make) -> std::string {
    try {
      make();
      return {};
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      return error.what();
    }
  };
  EXPECT_NE(told([] { named(""); }).find("the name is empty"), std::string::npos);
  EXPECT_NE(told([] { named(std::string(4097, 'x')); }).find("4097 bytes, more than 4096"), std::string::npos);
  EXPECT_NE(told([] { named("a\0"sv); }).find("NUL (byte 0x00) at offset 1"), std::string::npos);
  EXPECT_NE(told([] { named("a\xFF"); }).find("byte 0xFF at offset 1"), std::string::npos);
  EXPECT_NE(told([] { slots("x", 0); }).find("number of slots is 0"), std::string::npos);
  EXPECT_NE(told([] { slots("x", 1'000'001); }).find("use 1 to 1000000"), std::string::npos);
  EXPECT_NE(told([] { slots("", 1); }).find("the name is empty"), std::string::npos);
  EXPECT_NE(told([] { shared(slots("x", 2)); }).find("slots cannot be shared: "), std::string::npos);
  EXPECT_EQ(slots("x", max_slots).slot_count(), max_slots);
}

TEST(Target, equality_is_of_space_key_mode_and_slots) {
  EXPECT_FALSE(Target("u1") == shared("u1"));
  EXPECT_EQ(shared("u1"), shared(shared("u1")));
  EXPECT_FALSE(slots("x", 1) == slots("x", 2));
  EXPECT_FALSE(Target("u1") == Target("u1/a1"));
}

TEST(Target, prints_what_a_person_would_write) {
  EXPECT_EQ(Target("u1/a1").str(), "u1/a1");
  EXPECT_EQ(shared("u1/a1").str(), "shared u1/a1");
  EXPECT_EQ(named("token-refresh").str(), "named \"token-refresh\"");
  EXPECT_EQ(shared(named("x")).str(), "shared named \"x\"");
  EXPECT_EQ(slots("import", 3).str(), "slots \"import\" 3");
  EXPECT_EQ(Target::path({"a/b", "100%"}).str(), "a%2Fb/100%25");
  EXPECT_EQ(Target("利用者/口座").str(), "利用者/口座");
  EXPECT_EQ(named("say \"hi\"\\\n").str(), "named \"say \\\"hi\\\"\\\\\\x0A\"");
}

TEST(Target, text_is_one_line_that_no_terminal_obeys) {
  EXPECT_EQ(Target("a\nb/\x1B[31m").str(), "a%0Ab/%1B[31m");
  EXPECT_EQ(Target("\xC2\x9B").str(), "%C2%9B");
}

TEST(Target, a_path_that_looks_like_a_keyword_is_escaped) {
  EXPECT_EQ(Target("shared u1").str(), "shared%20u1");
  EXPECT_EQ(shared("shared u1").str(), "shared shared%20u1");
  EXPECT_EQ(Target("named \"x\"").str(), "named%20\"x\"");
  EXPECT_EQ(Target("slots \"x\" 3").str(), "slots%20\"x\" 3");
  EXPECT_EQ(Target("named x").str(), "named%20x");
  EXPECT_EQ(Target("exclusive u1").str(), "exclusive%20u1");
  EXPECT_EQ(Target(" u1/ a1 ").str(), "%20u1/ a1%20");
  EXPECT_EQ(Target(" ").str(), "%20");
  EXPECT_EQ(Target("named%09x").str(), "named%09x");
  EXPECT_EQ(Target("u1/my account").str(), "u1/my account");
  EXPECT_EQ(Target("shared").str(), "shared");
  EXPECT_EQ(Target("u1/shared x").str(), "u1/shared x");
}

TEST(Target, parse_reads_what_str_prints) {
  for (const std::string_view text : {"u1/a1", "shared u1/a1", "named \"x\"", "shared named \"x\"",
                                      "slots \"import\" 3", "shared%20u1", "named%20x", "slots", "shared"}) {
    EXPECT_EQ(Target::parse(text).str(), text);
  }
  EXPECT_EQ(Target::parse("slots \"import\" 3"), slots("import", 3));
  EXPECT_EQ(Target::parse("named \"\\x0A\""), named("\n"));
}

TEST(Target, parse_is_the_inverse_of_str_for_every_target) {
  HIERLOCK_TELL_SEED();
  Random random;
  const auto check = [](const Target& target) {
    const std::string text = target.str();
    const Target again = Target::parse(text);
    ASSERT_EQ(again, target) << text;
    ASSERT_EQ(again.depth(), target.depth());
    for (std::size_t level = 0; level < target.depth(); ++level) ASSERT_EQ(again.hash(level), target.hash(level));
    for (const char c : text) ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) << plan::quote(text);
  };
  for (int i = 0; i < 20'000; ++i) check(random.target(true));
  for (const std::string_view start : {"shared ", "named \"", "slots \"", "shared shared ", "shared named \""}) {
    check(Target::path({start}));
    check(shared(Target::path({std::string(start) + "x\" 3", start})));
    check(named(start));
  }
}

TEST(Target, malformed_text_is_refused_with_the_fix) {  // H7
  const auto expect = [](std::string_view text, std::string_view message) {
    const std::string got = refusal(text);
    EXPECT_NE(got.find(message), std::string::npos) << text << "\n" << got;
  };
  expect("", "the path is empty");
  expect("shared ", "the path is empty");
  expect("shared shared u1", "\"shared\" is there twice");
  expect("named \"x", "the closing \" is missing");
  expect("named \"\"", "the name is empty");
  expect("named \"x\" ", "unexpected \" \" after the name");
  expect("named \"\\q\"", "a backslash must be followed by");
  expect("slots \"x\"", "malformed number of slots");
  expect("slots \"x\" 0", "malformed number of slots");
  expect("slots \"x\" 03", "malformed number of slots");
  expect("slots \"x\" -1", "malformed number of slots");
  expect("slots \"x\" 1000001", "use 1 to 1000000");
  expect("slots \"x\" 99999999999999999999", "malformed number of slots");
  expect("shared slots \"x\" 3", "slots cannot be shared");
}

TEST(Target, random_bytes_are_refused_or_read_as_something_that_prints_and_reads_the_same) {  // H7
  HIERLOCK_TELL_SEED();
  Random random;
  const std::string_view starts[] = {"", "shared ", "named \"", "slots \"", "shared named \""};
  const std::string_view ends[] = {"", "\"", "\" 3", "\" 99"};
  int read = 0;
  for (int i = 0; i < 50'000; ++i) {
    const std::string text =
        std::string(starts[random.below(5)]) + random.bytes(12) + std::string(ends[random.below(4)]);
    if (!refusal(text).empty()) continue;
    ++read;
    const Target target = Target::parse(text);
    ASSERT_EQ(Target::parse(target.str()), target) << plan::quote(text);
  }
  EXPECT_GT(read, 1'000);
}

TEST(Target, a_moved_from_target_may_be_looked_at) {
  Target a = named("a name that is too long for the small buffer of a string");
  const Target b = std::move(a);
  EXPECT_EQ(a.segment(0), "");  // NOLINT(bugprone-use-after-move)
  a = b;
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace hierlock
