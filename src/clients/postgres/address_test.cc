// What a postgres:// URL says.
#include "postgres_client/address.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include <hierlock/error.h>

namespace hierlock::postgres {
namespace {

class PostgresAddress : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"PGSSLMODE", "PGHOST", "PGHOSTADDR", "PGPORT", "PGSERVICE"}) unsetenv(name);
  }
};

// The message of the refusal. Empty: the URL is not refused.
std::string refusal(const std::string& url) {
  try {
    read_address(url);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    return error.what();
  }
}
bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
std::string setting(const std::string& url, const std::string& keyword) {
  const Address address = read_address(url);
  const auto found = address.settings.find(keyword);
  return found == address.settings.end() ? "none" : found->second;
}

TEST_F(PostgresAddress, a_url_names_user_password_host_port_and_database) {
  const Address address = read_address("postgres://app:p%2Fw@db.example:5433/shop");
  EXPECT_EQ(address.settings.at("user"), "app");
  EXPECT_EQ(address.settings.at("password"), "p/w");
  EXPECT_EQ(address.settings.at("host"), "db.example");
  EXPECT_EQ(address.settings.at("port"), "5433");
  EXPECT_EQ(address.settings.at("dbname"), "shop");
  EXPECT_EQ(address.place, "db.example:5433");
  EXPECT_EQ(read_address("postgresql://app@db/shop").place, "db:5432");
}

TEST_F(PostgresAddress, options_of_libpq_are_kept) {
  EXPECT_EQ(setting("postgres://app@db/shop?tls=on&target_session_attrs=any&password_env=PATH", "target_session_attrs"),
            "any");
  EXPECT_TRUE(says(refusal("postgres://app@db/shop?nothing=1"), "libpq"));
}

TEST_F(PostgresAddress, the_way_to_another_machine_is_verified_unless_told) {
  for (const char* host : {"db", "10.0.0.7", "[2001:db8::7]", "127.0.0.1.example.com", "127.0.0.1,db"}) {
    EXPECT_EQ(setting(std::string("postgres://app@") + host + "/shop", "sslmode"), "verify-full") << host;
  }
  for (const char* host : {"127.0.0.1", "localhost", "[::1]", "", "%2Frun%2Fpostgresql", "localhost,127.0.0.1"}) {
    EXPECT_EQ(setting(std::string("postgres://app@") + host + "/shop", "sslmode"), "disable") << host;
  }
  EXPECT_EQ(setting("postgres://app@db/shop?hostaddr=127.0.0.1", "sslmode"), "disable");
  EXPECT_EQ(setting("postgres://app@localhost/shop?hostaddr=10.0.0.7", "sslmode"), "verify-full");
  EXPECT_EQ(setting("postgres:///shop?service=other", "sslmode"), "verify-full");
  EXPECT_EQ(setting("postgres://app@db/shop?tls=off", "sslmode"), "disable");
  EXPECT_EQ(setting("postgres://app@db/shop?tls=on", "sslmode"), "require");
  EXPECT_EQ(setting("postgres://app@localhost/shop?tls=verify", "sslmode"), "verify-full");
}

TEST_F(PostgresAddress, no_host_is_the_one_of_the_environment) {
  setenv("PGHOST", "db.example", 1);
  EXPECT_EQ(setting("postgres://app@/shop", "sslmode"), "verify-full");
  EXPECT_EQ(read_address("postgres://app@/shop").place, "db.example:5432");
  unsetenv("PGHOST");
}

TEST_F(PostgresAddress, a_ca_means_that_the_certificate_is_verified) {
  const std::string url = "postgres://app@localhost/shop?ca=/ca.pem";
  EXPECT_EQ(setting(url, "sslmode"), "verify-full");
  EXPECT_EQ(setting(url, "sslrootcert"), "/ca.pem");
  EXPECT_EQ(setting(url, "gssencmode"), "disable");
  EXPECT_TRUE(says(refusal("postgres://app@db/shop?ca=/ca.pem&tls=on"), "verify"));
}

TEST_F(PostgresAddress, words_of_libpq_for_tls_are_kept_and_not_mixed_with_ours) {
  EXPECT_EQ(setting("postgres://app@db/shop?sslmode=prefer", "sslmode"), "prefer");
  EXPECT_TRUE(says(refusal("postgres://app@db/shop?sslmode=prefer&tls=on"), "keep one"));
  EXPECT_TRUE(says(refusal("postgres://app@db/shop?sslrootcert=/x&tls=on"), "keep one"));
  setenv("PGSSLMODE", "require", 1);
  EXPECT_EQ(setting("postgres://app@db/shop", "sslmode"), "none") << "libpq takes it from the environment";
  EXPECT_EQ(setting("postgres://app@db/shop?tls=off", "sslmode"), "disable");
  unsetenv("PGSSLMODE");
}

TEST_F(PostgresAddress, a_password_may_come_from_a_file_or_the_environment) {
  const std::string file = testing::TempDir() + "hierlock_password_" + std::to_string(getpid());
  std::ofstream(file) << "se cret\r\nnot this\r\n";
  EXPECT_EQ(setting("postgres://app@db/shop?password_file=" + file, "password"), "se cret");
  setenv("HIERLOCK_TEST_PASSWORD", "se:cret", 1);
  EXPECT_EQ(setting("postgres://app@db/shop?password_env=HIERLOCK_TEST_PASSWORD", "password"), "se:cret");
  EXPECT_TRUE(says(refusal("postgres://app:x@db/shop?password_file=" + file), "the password is given twice"));
  EXPECT_TRUE(says(refusal("postgres://app@db/shop?password=x&password_file=" + file), "the password is given twice"));
  unsetenv("HIERLOCK_TEST_PASSWORD");
  unlink(file.c_str());
  EXPECT_TRUE(says(refusal("postgres://app@db/shop?password_file=" + file), file));
}

TEST_F(PostgresAddress, a_password_is_in_no_message) {
  for (const char* url :
       {"postgres://app:hunter2@db/shop?nothing=1", "postgres://app:hunter2/shop",
        "postgres://app:hunter2@db:port/shop", "postgres://app:hunter2@db/shop?tls=maybe",
        "postgres://app:hunter2@db/shop?hunter2", "postgres://app:hunter2@db/shop?password_env=PATH"}) {
    const std::string text = refusal(url);
    EXPECT_NE(text, "") << url;
    EXPECT_FALSE(says(text, "hunter2")) << text;
  }
}

}  // namespace
}  // namespace hierlock::postgres
