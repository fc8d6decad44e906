// What a mysql:// URL says.
#include "mysql/address.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

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

TEST(Address, a_url_names_user_password_host_port_and_database) {
  const Address a = read("mysql://app:secret@db.example:3307/shop").address;
  EXPECT_EQ(a.user, "app");
  EXPECT_EQ(a.password, "secret");
  EXPECT_EQ(a.host, "db.example");
  EXPECT_EQ(a.port, 3307u);
  EXPECT_EQ(a.database, "shop");
  EXPECT_EQ(a.place(), "db.example:3307");
}

TEST(Address, what_is_left_out_has_a_default) {
  const Options o = read("mysql://app@db/shop");
  EXPECT_EQ(o.address.password, "");
  EXPECT_EQ(o.address.port, 3306u);
  EXPECT_EQ(o.layout.table, "hier_lock_buckets");
  EXPECT_FALSE(o.layout.buckets.has_value());
  EXPECT_FALSE(o.layout.levels.has_value());
  EXPECT_FALSE(o.layout.lazy);
  EXPECT_EQ(o.connections, 16u);
}

TEST(Address, parts_are_percent_decoded) {
  const Address a = read("mysql://a%40b:p%2Fw%3F%3A%40%25x@db/sh%20op").address;
  EXPECT_EQ(a.user, "a@b");
  EXPECT_EQ(a.password, "p/w?:@%x");
  EXPECT_EQ(a.database, "sh op");
}

TEST(Address, an_at_sign_in_a_password_needs_no_escape) {
  const Address a = read("mysql://app:p@ss@db/shop").address;
  EXPECT_EQ(a.password, "p@ss");
  EXPECT_EQ(a.host, "db");
}

TEST(Address, an_ipv6_address_stands_in_brackets) {
  EXPECT_EQ(read("mysql://app@[::1]/shop").address.host, "::1");
  const Address a = read("mysql://app@[2001:db8::7]:3307/shop").address;
  EXPECT_EQ(a.host, "2001:db8::7");
  EXPECT_EQ(a.port, 3307u);
  EXPECT_TRUE(says(refusal("mysql://app@[::1/shop"), "]"));
  EXPECT_TRUE(says(refusal("mysql://app@[::1]3306/shop"), "port"));
}

TEST(Address, a_socket_stands_for_a_host) {
  const Address a = read("mysql://app@/shop?socket=%2Frun%2Fmysqld.sock").address;
  EXPECT_EQ(a.socket, "/run/mysqld.sock");
  EXPECT_EQ(a.tls, Tls::off);
  EXPECT_TRUE(says(a.place(), "/run/mysqld.sock"));
  EXPECT_TRUE(says(refusal("mysql://app@/shop"), "host"));
}

TEST(Address, a_database_must_be_named) {
  for (const char* url : {"mysql://app@db", "mysql://app@db/", "mysql://"}) {
    EXPECT_TRUE(says(refusal(url), "names no database")) << url;
  }
  EXPECT_TRUE(says(refusal("mysql://app@db/a/b"), "more than the database"));
  EXPECT_NE(refusal("mysql:app@db/shop"), "");
}

// Otherwise the client library logs in as whoever runs the program.
TEST(Address, a_user_must_be_named) {
  for (const char* url : {"mysql://db/shop", "mysql://@db/shop", "mysql://:secret@db/shop", "mysql://db:3306/shop",
                          "mysql:///shop?socket=/run/mysqld.sock"}) {
    EXPECT_TRUE(says(refusal(url), "names no user")) << url;
  }
}

TEST(Address, who_has_a_slash_or_a_question_mark_in_a_password_is_told_how_to_write_it) {
  for (const char* url : {"mysql://app:pa/zz@db/shop", "mysql://app:12/zz@db/shop", "mysql://app:12/zz@db",
                          "mysql://app:pa/zz@db", "mysql://app:pa?zz@db/shop", "mysql://app:pa?z#zz@db/shop",
                          "mysql://app:pa?z=zz@db/shop", "mysql://app:/@db"}) {
    const std::string text = refusal(url);
    EXPECT_TRUE(says(text, "%3F")) << url << "\n" << text;
    EXPECT_FALSE(says(text, "zz")) << text;
  }
}

TEST(Address, buckets_are_written_as_the_tool_takes_them) {
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

TEST(Address, an_option_that_is_not_known_is_refused_by_name) {
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?bucket=7"), "\"bucket\""));
}

TEST(Address, numbers_have_bounds) {
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

TEST(Address, a_table_has_a_plain_name) {
  EXPECT_EQ(read("mysql://app@db/shop?table=my_locks2").layout.table, "my_locks2");
  for (const char* wrong : {"", "a%60b", "a%20b", "a.b", "x%27"}) {
    EXPECT_NE(refusal("mysql://app@db/shop?table=" + std::string(wrong)), "") << wrong;
  }
  EXPECT_NE(refusal("mysql://app@db/shop?table=" + std::string(51, 'x')), "");
}

TEST(Address, words_are_checked) {
  EXPECT_TRUE(read("mysql://app@db/shop?provision=lazy").layout.lazy);
  EXPECT_FALSE(read("mysql://app@db/shop?provision=ahead").layout.lazy);
  EXPECT_NE(refusal("mysql://app@db/shop?provision=yes"), "");
  EXPECT_NE(refusal("mysql://app@db/shop?tls=maybe"), "");
}

TEST(Address, the_way_to_another_machine_is_verified_unless_told) {
  for (const char* host : {"db", "db.example", "10.0.0.7", "[2001:db8::7]", "127.0.0.1.example.com", "127.example.com",
                           "localhost.example.com"}) {
    EXPECT_EQ(read(std::string("mysql://app@") + host + "/shop").address.tls, Tls::verify) << host;
  }
  for (const char* host : {"127.0.0.1", "127.1", "localhost", "[::1]"}) {
    EXPECT_EQ(read(std::string("mysql://app@") + host + "/shop").address.tls, Tls::off) << host;
  }
  EXPECT_EQ(read("mysql://app@db/shop?tls=off").address.tls, Tls::off);
  EXPECT_EQ(read("mysql://app@db/shop?tls=on").address.tls, Tls::on);
  EXPECT_EQ(read("mysql://app@localhost/shop?tls=verify").address.tls, Tls::verify);
}

TEST(Address, who_names_a_ca_wants_it_looked_at) {
  EXPECT_EQ(read("mysql://app@localhost/shop?ca=/ca.pem").address.tls, Tls::verify);
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?ca=/ca.pem&tls=on"), "verify"));
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?tls=off&ca=/ca.pem"), "verify"));
}

TEST(Address, a_password_may_come_from_a_file) {
  const std::string file = testing::TempDir() + "hierlock_password_" + std::to_string(getpid());
  std::ofstream(file) << "se cret\nnot this\n";
  EXPECT_EQ(read("mysql://app@db/shop?password_file=" + file).address.password, "se cret");
  std::ofstream(file) << "se cret\r\nnot this\r\n";
  EXPECT_EQ(read("mysql://app@db/shop?password_file=" + file).address.password, "se cret") << "from another system";
  std::ofstream(file, std::ios::trunc).flush();
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?password_file=" + file), file)) << "it is empty";
  unlink(file.c_str());
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?password_file=" + file), file)) << "it is not there";
}

TEST(Address, a_password_may_come_from_the_environment) {
  setenv("HIERLOCK_TEST_PASSWORD", "se:cret", 1);
  EXPECT_EQ(read("mysql://app@db/shop?password_env=HIERLOCK_TEST_PASSWORD").address.password, "se:cret");
  unsetenv("HIERLOCK_TEST_PASSWORD");
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?password_env=HIERLOCK_TEST_PASSWORD"), "HIERLOCK_TEST_PASSWORD"));
}

TEST(Address, a_password_comes_from_one_place) {
  setenv("HIERLOCK_TEST_PASSWORD", "hunter2", 1);
  const std::string file = testing::TempDir() + "hierlock_password_" + std::to_string(getpid());
  std::ofstream(file) << "hunter2\n";
  const std::string from_file = "password_file=" + file, from_environment = "password_env=HIERLOCK_TEST_PASSWORD";
  for (const std::string& url :
       {"mysql://app@db/shop?" + from_file + "&" + from_environment, "mysql://app:x@db/shop?" + from_file,
        "mysql://app@db/shop?" + from_environment + "&" + from_file, "mysql://app:x@db/shop?" + from_environment}) {
    EXPECT_TRUE(says(refusal(url), "the password is given twice")) << url;
  }
  EXPECT_EQ(read("mysql://app:@db/shop?" + from_file).address.password, "hunter2") << "none is none";
  unlink(file.c_str());
  unsetenv("HIERLOCK_TEST_PASSWORD");
}

TEST(Address, a_password_behind_an_encoded_colon_is_not_taken_for_a_part_of_the_user) {
  EXPECT_TRUE(says(refusal("mysql://app%3Ahunter2@db/shop"), "%3A"));
  EXPECT_EQ(read("mysql://app:a%3Ab@db/shop").address.password, "a:b");
}

TEST(Address, a_password_is_in_no_message) {
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
