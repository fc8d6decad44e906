// H10: the server of the tests may be named by MYSQL_DSN, in Go's form.
#include <gtest/gtest.h>

#include "plain.h"
#include "support/server.h"

namespace hierlock::mysql_tests {
using namespace tests;
namespace {

TEST(Dsn, is_translated) {
  EXPECT_EQ(url_of_dsn("app:secret@tcp(db.example:3307)/shop?parseTime=true"),
            "mysql://app:secret@db.example:3307/shop");
  EXPECT_EQ(url_of_dsn("app:p@ss@tcp(10.0.0.1:3306)/shop"), "mysql://app:p@ss@10.0.0.1:3306/shop");
}

TEST(Dsn, that_leaves_something_out_means_what_docker_compose_yml_has) {
  EXPECT_EQ(url_of_dsn("root:mgl@tcp(127.0.0.1:3306)/mgl_test"), "mysql://root:mgl@127.0.0.1:3306/mgl_test");
  EXPECT_EQ(url_of_dsn("root:mgl@tcp(127.0.0.1)/"), "mysql://root:mgl@127.0.0.1:3306/mgl_test");
  EXPECT_EQ(url_of_dsn("root:mgl@/"), "mysql://root:mgl@127.0.0.1:3306/mgl_test");
  EXPECT_EQ(url_of_dsn("root@tcp(db)/"), "mysql://root:@db:3306/mgl_test");
  EXPECT_EQ(url_of_dsn("/"), "mysql://root:@127.0.0.1:3306/mgl_test");
}

TEST(Dsn, names_the_server_where_nothing_else_does) {
  const char* const given = std::getenv("HIERLOCK_TEST_MYSQL");
  const std::string before = given == nullptr ? "" : given;
  setenv("MYSQL_DSN", "root:mgl@tcp(127.0.0.1:1)/mgl_test", 1);
  if (!before.empty()) {
    EXPECT_EQ(server_url("MYSQL"), before);  // the project's own name goes first
  }
  unsetenv("HIERLOCK_TEST_MYSQL");
  if (std::getenv("HIERLOCK_TEST_MYSQL_OPERATOR") == nullptr) {
    EXPECT_EQ(server_url("MYSQL_OPERATOR"), server_url("MYSQL"));
  }
  const Server server(server_url("MYSQL"));
  EXPECT_EQ(server.port, 1u);
  EXPECT_EQ(server.database, "mgl_test");
  EXPECT_EQ(server_variable("MYSQL_SOCKET").has_value(), std::getenv("HIERLOCK_TEST_MYSQL_SOCKET") != nullptr);
  unsetenv("MYSQL_DSN");
  if (!before.empty()) setenv("HIERLOCK_TEST_MYSQL", before.c_str(), 1);
}

TEST(Dsn, the_only_user_that_is_named_is_the_operator) {
  setenv("HIERLOCK_TEST_NOBODYS", "mysql://root:mgl@127.0.0.1:3307/mgl_test", 1);
  EXPECT_EQ(server_url("NOBODYS_OPERATOR"), server_url("NOBODYS"));
  setenv("HIERLOCK_TEST_NOBODYS_OPERATOR", "mysql://operator:x@127.0.0.1:3307/mgl_test", 1);
  EXPECT_NE(server_url("NOBODYS_OPERATOR"), server_url("NOBODYS"));
  EXPECT_FALSE(server_variable("NOBODYS_SOCKET"));
  unsetenv("HIERLOCK_TEST_NOBODYS");
  unsetenv("HIERLOCK_TEST_NOBODYS_OPERATOR");
}

}  // namespace
}  // namespace hierlock::mysql_tests
