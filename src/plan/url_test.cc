#include <hierlock/spi/url.h>

#include <gtest/gtest.h>
#include <strings.h>

#include <string>
#include <string_view>
#include <vector>

#include <hierlock/error.h>

#include "plan/test_random.h"

namespace hierlock::spi {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

std::string refusal(std::string_view text) {
  try {
    Url::parse(text);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_EQ(plan::find_invalid_utf8(error.what()), std::string_view::npos);
    return error.what();
  }
}

TEST(Url, is_scheme_rest_and_options) {
  const Url plain = Url::parse("memory:");
  EXPECT_EQ(plain.scheme, "memory");
  EXPECT_EQ(plain.rest, "");
  EXPECT_TRUE(plain.options.empty());

  const Url full = Url::parse("MySQL://app@db:3306/shop?buckets=100&ca=%2Fetc%2Fx%26y");
  EXPECT_EQ(full.scheme, "mysql");
  EXPECT_EQ(full.rest, "//app@db:3306/shop");
  EXPECT_EQ(full.options, (Options{{"buckets", "100"}, {"ca", "/etc/x&y"}}));
  EXPECT_EQ(Url::parse("shm:/dev/shm/x?a=").options, (Options{{"a", ""}}));
}

TEST(Url, malformed_ones_are_refused_with_the_fix) {  // H7
  const auto expect = [](std::string_view text, std::string_view message) {
    const std::string got = refusal(text);
    EXPECT_NE(got.find(message), std::string::npos) << text << "\n" << got;
  };
  expect("", "the URL is empty");
  for (const std::string_view text : {"memory", ":x", "1st:", "me mory:", "//host/db", "mémory:"}) {
    expect(text, "the URL has no scheme");
  }
  expect(std::string(100'000, 'x') + ":", "the URL has no scheme");
  expect("memory:\n", "control character 0x0A at offset 7");
  expect("memory:\x7F", "control character 0x7F at offset 7");
  expect("memory:\xFF", "byte 0xFF at offset 7 is not valid UTF-8");
  expect("memory:?", "option 1 has no \"=\"");
  expect("memory:?a", "option 1 has no \"=\"");
  expect("memory:?a=1&", "option 2 has no \"=\"");
  expect("memory:?=1", "option 1 has no name");
  expect("memory:?a=1&b=2&a=3", "option \"a\" is there twice");
  expect("memory:?a=1&%61=3", "option \"a\" is there twice");
  expect("memory:?a=%4", "\"%\" at offset 10 is not followed by two hexadecimal digits");
  expect("memory:?a=%00", "NUL (%00) at offset 10");
}

TEST(Url, no_message_shows_a_password) {
  for (const std::string_view text :
       {"mysql//app:hunter2@db/shop", "mysql://app:hunter2\n@db", "mysql://app:hunter2@db/shop?x", "app:hunter2\xFF@db",
        "mysql://app:?hunter2@db/shop", "mysql://app:?x=hunter2@db/shop", "mysql://app:hunter2@db?a=%"}) {
    const std::string message = refusal(text);
    EXPECT_FALSE(message.empty()) << text;
    EXPECT_EQ(message.find("hunter2"), std::string::npos) << message;
  }
}

TEST(Url, safe_text_hides_passwords_and_nothing_else) {
  const auto safe = [](std::string_view text) { return Url::parse(text).safe_text(); };
  EXPECT_EQ(safe("memory:"), "memory:");
  EXPECT_EQ(safe("mysql://app:hunter2@db:3306/shop?buckets=100"), "mysql://app:***@db:3306/shop?buckets=100");
  EXPECT_EQ(safe("mysql://app@db:3306/shop"), "mysql://app@db:3306/shop");
  EXPECT_EQ(safe("mysql://db:3306/shop"), "mysql://db:3306/shop");
  EXPECT_EQ(safe("mysql://app:p@ss:w/rd@db/shop"), "mysql://app:***@db/shop") << "a password with an @ in it";
  EXPECT_EQ(safe("valkey://:hunter2@db"), "valkey://:***@db") << "no user";
  EXPECT_EQ(safe("mysql:app:hunter2@db"), "mysql:app:***@db");
  EXPECT_EQ(safe("mysql://app@db?password=hunter2&ssl_pwd=x"), "mysql://app@db?password=***&ssl_pwd=***");
  EXPECT_EQ(safe("mysql://app@db?pass=hunter2&db_passphrase=x"), "mysql://app@db?pass=***&db_passphrase=***");
  for (const std::string colon : {"%3A", "%3a"}) {
    EXPECT_EQ(safe("mysql://app" + colon + "hunter2@db/shop"), "mysql://app" + colon + "***@db/shop");
    EXPECT_EQ(safe("mysql://app" + colon + "hunter2:x@db/shop"), "mysql://app" + colon + "***@db/shop");
  }
  EXPECT_EQ(safe("mysql://app@db/a%3Ab"), "mysql://app@db/a%3Ab");
  EXPECT_EQ(safe("mysql://app@db?password_file=/run/secret"), "mysql://app@db?password_file=/run/secret");
  EXPECT_EQ(safe("memory:?a=%0A%26"), "memory:?a=%0A%26") << "stays one line";
}

TEST(Url, random_bytes_are_refused_or_read_as_something_that_prints_and_reads_the_same) {
  HIERLOCK_TELL_SEED();
  plan::Random random;
  int read = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string text = random.one_in(4) ? "" : "mysql:";
    text += random.bytes(10);
    if (random.one_in(2)) text += "?" + random.bytes(3) + "=" + random.bytes(6);
    if (!refusal(text).empty()) continue;
    ++read;
    const Url url = Url::parse(text);
    // A password may have been hidden: before an @, after the colon of what may be a user whose host was forgotten, or
    // in an option, which of three letters can only be ?pwd=.
    if (url.rest.find('@') != std::string::npos) continue;
    if (url.rest.starts_with("//") && url.rest.find(':') != std::string::npos) continue;
    const Url again = Url::parse(url.safe_text());
    ASSERT_EQ(again.scheme, url.scheme);
    ASSERT_EQ(again.rest, url.rest);
    if (url.options.size() == 1 && strcasecmp(url.options.begin()->first.c_str(), "pwd") == 0) continue;
    ASSERT_EQ(again.options, url.options) << plan::quote(text);
  }
  EXPECT_GT(read, 1'000);
}

}  // namespace
}  // namespace hierlock::spi
