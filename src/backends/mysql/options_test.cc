// What a mysql:// URL says to the store.
#include "mysql/options.h"

#include <gtest/gtest.h>

#include <hierlock/error.h>

namespace hierlock::mysql {
namespace {

Options read(const std::string& url) { return read_url(spi::Url::parse(url)); }

// What the refusal says; empty: it is not refused.
std::string refusal(const std::string& url) {
  try {
    read(url);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    return error.what();
  }
}
bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Options, what_is_left_out_has_a_default) {
  const Options o = read("mysql://app@db/shop");
  EXPECT_EQ(o.address.password, "");
  EXPECT_EQ(o.address.port, 3306u);
  EXPECT_EQ(o.layout.table, "hier_lock_buckets");
  EXPECT_FALSE(o.layout.buckets.has_value());
  EXPECT_FALSE(o.layout.levels.has_value());
  EXPECT_FALSE(o.layout.lazy);
  EXPECT_EQ(o.connections, 16u);
}

TEST(Options, buckets_are_written_as_the_tool_takes_them) {
  const auto buckets = [](const std::string& text) {
    return *read("mysql://app@db/shop?buckets=" + text).layout.buckets;
  };
  EXPECT_EQ(buckets("100k"), 100'000u);
  EXPECT_EQ(buckets("10M"), 10'000'000u);
  EXPECT_EQ(buckets("2G"), 2'000'000'000u);
  for (const char* wrong : {"3G", "k", "0k", "1K", "1kk", "1.5k", "-1k"}) {
    EXPECT_TRUE(says(refusal(std::string("mysql://app@db/shop?buckets=") + wrong), std::string("buckets=") + wrong))
        << wrong;
  }
}

TEST(Options, an_option_that_is_not_known_is_refused_by_name) {
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?bucket=7"), "\"bucket\""));
}

TEST(Options, numbers_have_bounds) {
  for (const char* wrong : {"buckets=0", "buckets=-1", "buckets=2147483648", "buckets=1e6", "buckets=", "levels=0",
                            "levels=9", "connections=0", "connections=1001"}) {
    EXPECT_TRUE(says(refusal(std::string("mysql://app@db/shop?") + wrong), "whole number")) << wrong;
  }
  const Options o = read("mysql://app@db/shop?buckets=1000&levels=8&connections=2&views=off");
  EXPECT_EQ(o.layout.buckets, 1000u);
  EXPECT_EQ(o.layout.levels, 8u);
  EXPECT_EQ(o.connections, 2u);
  EXPECT_FALSE(o.views);
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?views=yes"), "write on or off"));
  for (const char* port : {"0", "65536", "x", "-1"}) {
    EXPECT_TRUE(says(refusal("mysql://app@db:" + std::string(port) + "/shop"), "port")) << port;
  }
}

TEST(Options, a_table_has_a_plain_name) {
  EXPECT_EQ(read("mysql://app@db/shop?table=my_locks2").layout.table, "my_locks2");
  for (const char* wrong : {"", "a%60b", "a%20b", "a.b", "x%27"}) {
    EXPECT_NE(refusal("mysql://app@db/shop?table=" + std::string(wrong)), "") << wrong;
  }
  EXPECT_NE(refusal("mysql://app@db/shop?table=" + std::string(51, 'x')), "");
}

TEST(Options, words_are_checked) {
  EXPECT_TRUE(read("mysql://app@db/shop?provision=lazy").layout.lazy);
  EXPECT_FALSE(read("mysql://app@db/shop?provision=ahead").layout.lazy);
  EXPECT_NE(refusal("mysql://app@db/shop?provision=yes"), "");
  EXPECT_NE(refusal("mysql://app@db/shop?tls=maybe"), "");
}

TEST(Options, hand_over_can_be_switched_off) {  // B8
  EXPECT_TRUE(read("mysql://app@db/shop").gate);
  EXPECT_TRUE(read("mysql://app@db/shop?gate=on").gate);
  EXPECT_FALSE(read("mysql://app@db/shop?gate=off").gate);
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?gate=no"), "write on or off"));
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?gates=off"), "gate,")) << "the message names the option";
}

TEST(Options, a_password_is_in_no_message) {
  const std::string secret = "hunter2";
  for (const std::string url :
       {"mysql://app:hunter2@db", "mysql://app:hunter2@db/shop?nothing=1", "mysql://app:hunter2@db/shop?buckets=x",
        "mysql://app:hunter2@db:port/shop", "mysql://app:hunter2@/shop", "mysql://app:hunter2@[::1/shop",
        "mysql://app:hunter2/shop", "mysql://app:hunter2/x@db/shop", "mysql://app:hunter2/x@db"}) {
    const std::string text = refusal(url);
    EXPECT_NE(text, "") << url;
    EXPECT_FALSE(says(text, secret)) << text;
  }
  EXPECT_FALSE(says(read("mysql://app:hunter2@db/shop?buckets=7").url, secret));
}

}  // namespace
}  // namespace hierlock::mysql
