// What the URL of a server says about reaching it.
#include "endpoint/endpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include <hierlock/error.h>

namespace hierlock::endpoint {
namespace {

constexpr Scheme mysql{.name = "mysql", .port = 3306};

Endpoint read(const std::string& url, Database database = Database::needed) {
  return endpoint::read(spi::Url::parse(url), mysql, database);
}

// The message of the refusal. Empty: the URL is not refused.
std::string refusal(const std::string& url, Database database = Database::needed) {
  try {
    read(url, database);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    return error.what();
  }
}
bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Endpoint, a_url_names_user_password_host_port_and_database) {
  const Endpoint a = read("mysql://app:secret@db.example:3307/shop");
  EXPECT_EQ(a.user, "app");
  EXPECT_EQ(a.password, "secret");
  EXPECT_EQ(a.host, "db.example");
  EXPECT_EQ(a.port, 3307u);
  EXPECT_EQ(a.database, "shop");
  EXPECT_EQ(a.place(), "db.example:3307");
}

TEST(Endpoint, parts_are_percent_decoded) {
  const Endpoint a = read("mysql://a%40b:p%2Fw%3F%3A%40%25x@db/sh%20op");
  EXPECT_EQ(a.user, "a@b");
  EXPECT_EQ(a.password, "p/w?:@%x");
  EXPECT_EQ(a.database, "sh op");
}

TEST(Endpoint, an_at_sign_in_a_password_needs_no_escape) {
  const Endpoint a = read("mysql://app:p@ss@db/shop");
  EXPECT_EQ(a.password, "p@ss");
  EXPECT_EQ(a.host, "db");
}

TEST(Endpoint, an_ipv6_address_stands_in_brackets) {
  EXPECT_EQ(read("mysql://app@[::1]/shop").host, "::1");
  const Endpoint a = read("mysql://app@[2001:db8::7]:3307/shop");
  EXPECT_EQ(a.host, "2001:db8::7");
  EXPECT_EQ(a.port, 3307u);
  EXPECT_TRUE(says(refusal("mysql://app@[::1/shop"), "]"));
  EXPECT_TRUE(says(refusal("mysql://app@[::1]3306/shop"), "port"));
}

TEST(Endpoint, a_socket_stands_for_a_host) {
  const Endpoint a = read("mysql://app@/shop?socket=%2Frun%2Fmysqld.sock");
  EXPECT_EQ(a.socket, "/run/mysqld.sock");
  EXPECT_EQ(a.tls, Tls::off);
  EXPECT_TRUE(says(a.place(), "/run/mysqld.sock"));
  EXPECT_TRUE(says(refusal("mysql://app@/shop"), "host"));
}

TEST(Endpoint, a_database_must_be_named) {
  for (const char* url : {"mysql://app@db", "mysql://app@db/", "mysql://"}) {
    EXPECT_TRUE(says(refusal(url), "names no database")) << url;
  }
  EXPECT_TRUE(says(refusal("mysql://app@db/a/b"), "more than the database"));
  EXPECT_NE(refusal("mysql:app@db/shop"), "");
}

// Otherwise the client library logs in as whoever runs the program.
TEST(Endpoint, a_user_must_be_named) {
  for (const char* url : {"mysql://db/shop", "mysql://@db/shop", "mysql://:secret@db/shop", "mysql://db:3306/shop",
                          "mysql:///shop?socket=/run/mysqld.sock"}) {
    EXPECT_TRUE(says(refusal(url), "names no user")) << url;
  }
}

TEST(Endpoint, who_has_a_slash_or_a_question_mark_in_a_password_is_told_how_to_write_it) {
  for (const char* url : {"mysql://app:pa/zz@db/shop", "mysql://app:12/zz@db/shop", "mysql://app:12/zz@db",
                          "mysql://app:pa/zz@db", "mysql://app:pa?zz@db/shop", "mysql://app:pa?z#zz@db/shop",
                          "mysql://app:pa?z=zz@db/shop", "mysql://app:/@db"}) {
    const std::string text = refusal(url);
    EXPECT_TRUE(says(text, "%3F")) << url << "\n" << text;
    EXPECT_FALSE(says(text, "zz")) << text;
  }
}

TEST(Endpoint, the_way_to_another_machine_is_verified_unless_told) {
  for (const char* host : {"db", "db.example", "10.0.0.7", "[2001:db8::7]", "127.0.0.1.example.com", "127.example.com",
                           "localhost.example.com"}) {
    EXPECT_EQ(read(std::string("mysql://app@") + host + "/shop").tls, Tls::verify) << host;
  }
  for (const char* host : {"127.0.0.1", "127.1", "localhost", "[::1]"}) {
    EXPECT_EQ(read(std::string("mysql://app@") + host + "/shop").tls, Tls::off) << host;
  }
  EXPECT_EQ(read("mysql://app@db/shop?tls=off").tls, Tls::off);
  EXPECT_EQ(read("mysql://app@db/shop?tls=on").tls, Tls::on);
  EXPECT_EQ(read("mysql://app@localhost/shop?tls=verify").tls, Tls::verify);
}

TEST(Endpoint, who_names_a_ca_wants_it_looked_at) {
  EXPECT_EQ(read("mysql://app@localhost/shop?ca=/ca.pem").tls, Tls::verify);
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?ca=/ca.pem&tls=on"), "verify"));
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?tls=off&ca=/ca.pem"), "verify"));
}

TEST(Endpoint, a_password_may_come_from_a_file) {
  const std::string file = testing::TempDir() + "hierlock_password_" + std::to_string(getpid());
  std::ofstream(file) << "se cret\nnot this\n";
  EXPECT_EQ(read("mysql://app@db/shop?password_file=" + file).password, "se cret");
  std::ofstream(file) << "se cret\r\nnot this\r\n";
  EXPECT_EQ(read("mysql://app@db/shop?password_file=" + file).password, "se cret") << "from another system";
  std::ofstream(file, std::ios::trunc).flush();
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?password_file=" + file), file)) << "it is empty";
  unlink(file.c_str());
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?password_file=" + file), file)) << "it is not there";
}

TEST(Endpoint, a_password_may_come_from_the_environment) {
  setenv("HIERLOCK_TEST_PASSWORD", "se:cret", 1);
  EXPECT_EQ(read("mysql://app@db/shop?password_env=HIERLOCK_TEST_PASSWORD").password, "se:cret");
  unsetenv("HIERLOCK_TEST_PASSWORD");
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?password_env=HIERLOCK_TEST_PASSWORD"), "HIERLOCK_TEST_PASSWORD"));
}

TEST(Endpoint, a_password_comes_from_one_place) {
  setenv("HIERLOCK_TEST_PASSWORD", "hunter2", 1);
  const std::string file = testing::TempDir() + "hierlock_password_" + std::to_string(getpid());
  std::ofstream(file) << "hunter2\n";
  const std::string from_file = "password_file=" + file, from_environment = "password_env=HIERLOCK_TEST_PASSWORD";
  for (const std::string& url :
       {"mysql://app@db/shop?" + from_file + "&" + from_environment, "mysql://app:x@db/shop?" + from_file,
        "mysql://app@db/shop?" + from_environment + "&" + from_file, "mysql://app:x@db/shop?" + from_environment}) {
    EXPECT_TRUE(says(refusal(url), "the password is given twice")) << url;
  }
  EXPECT_EQ(read("mysql://app:@db/shop?" + from_file).password, "hunter2") << "none is none";
  unlink(file.c_str());
  unsetenv("HIERLOCK_TEST_PASSWORD");
}

TEST(Endpoint, a_password_behind_an_encoded_colon_is_not_taken_for_a_part_of_the_user) {
  EXPECT_TRUE(says(refusal("mysql://app%3Ahunter2@db/shop"), "%3A"));
  EXPECT_EQ(read("mysql://app:a%3Ab@db/shop").password, "a:b");
}

TEST(Endpoint, the_port_has_a_default_and_bounds) {
  EXPECT_EQ(read("mysql://app@db/shop").port, 3306u);
  for (const char* port : {"0", "65536", "x", "-1"}) {
    EXPECT_TRUE(says(refusal("mysql://app@db:" + std::string(port) + "/shop"), "port")) << port;
  }
}

TEST(Endpoint, messages_name_the_scheme_and_its_port) {
  const auto message = [](const std::string& url) {
    try {
      endpoint::read(spi::Url::parse(url), {.name = "valkey", .port = 6379}, Database::optional);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_TRUE(says(message("valkey://app@db:x/0"), "valkey://user@host:6379/database"));
  EXPECT_TRUE(says(message("valkey://db"), "valkey://user@host/database"));
}

TEST(Endpoint, a_database_may_be_left_out_where_none_is_needed) {
  EXPECT_EQ(read("mysql://app@db", Database::optional).database, "");
  EXPECT_EQ(read("mysql://app@db/shop", Database::optional).database, "shop");
  EXPECT_TRUE(says(refusal("mysql://app:pa/zz@db/shop", Database::optional), "%2F"));
}

TEST(Endpoint, options_of_others_are_left_to_them) {
  EXPECT_EQ(read("mysql://app@db/shop?buckets=7&tls=on").tls, Tls::on);
  EXPECT_TRUE(is_option("tls") && is_option("socket") && is_option("password_env"));
  EXPECT_FALSE(is_option("buckets"));
}

TEST(Endpoint, a_wrong_word_for_tls_is_refused) {
  EXPECT_TRUE(says(refusal("mysql://app@db/shop?tls=maybe"), "verify"));
}

TEST(Endpoint, a_password_is_in_no_message) {
  for (const std::string url :
       {"mysql://app:hunter2@db", "mysql://app:hunter2@db:port/shop", "mysql://app:hunter2@/shop",
        "mysql://app:hunter2@[::1/shop", "mysql://app:hunter2/shop", "mysql://app:hunter2/x@db/shop",
        "mysql://app:hunter2/x@db"}) {
    const std::string text = refusal(url);
    EXPECT_NE(text, "") << url;
    EXPECT_FALSE(says(text, "hunter2")) << text;
  }
}

}  // namespace
}  // namespace hierlock::endpoint
