// doctor, and what explain says of a database, as the tool's users meet them.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "support/needs_server.h"
#include "tool.h"

namespace tooltest {
namespace {

// The URL of a server, or nothing; its password may be in no output.
std::string server() { return hierlock::tests::server_url("MYSQL"); }
std::string password_of(const std::string& url) {
  const std::size_t at = url.rfind('@'), colon = url.rfind(':', at);
  return url.substr(colon + 1, at - colon - 1);
}

TEST(Doctor, has_nothing_to_look_at_where_there_is_no_server) {
  const Store store;
  for (const char* url : {"memory:", store.url()}) {
    const Result result = run({"doctor"}, url);
    EXPECT_EQ(result.code, 64);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("nothing to check"), std::string::npos) << result.err;
  }
}

TEST(Doctor, ends_with_78_where_something_is_unsafe_and_with_0_where_nothing_is) {
  HIERLOCK_NEEDS_SERVER("MYSQL");
  const Result bare = run({"doctor", "--on", server() + "?table=nobody_made_this"});
  EXPECT_EQ(bare.code, 78);
  EXPECT_NE(bare.out.find("unsafe    tables: there is no nobody_made_this"), std::string::npos) << bare.out;
  EXPECT_NE(bare.out.find("\n          fix: run `hierlock provision"), std::string::npos) << bare.out;
  EXPECT_NE(bare.out.find("\n1 unsafe, 0 slow, "), std::string::npos) << bare.out;
  EXPECT_LT(bare.out.find("unsafe"), bare.out.find("good"));
  const Result lazy = run({"doctor", "--on", server() + "?table=nobody_made_this&provision=lazy"});
  EXPECT_EQ(lazy.code, 0) << lazy.out;
  for (const Result& result : {bare, lazy}) {
    EXPECT_LE(widest_line(result.out), 80u) << result.out;
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.out.find(password_of(server())), std::string::npos);
  }
}

// Looking must not make anything: neither the tables nor their rows.
TEST(Doctor, and_status_make_no_tables_where_the_first_who_locks_would) {
  HIERLOCK_NEEDS_SERVER("MYSQL");
  const std::string url = server() + "?table=only_looked_at&provision=lazy";
  for (int round = 0; round < 2; ++round) {  // what the first look made the second would find
    const Result status = run({"status", "--on", url});
    EXPECT_EQ(status.code, 0) << status.err;
    EXPECT_NE(status.out.find("Nothing is held: the database has no table only_looked_at"), std::string::npos)
        << status.out;
    EXPECT_NE(run({"doctor", "--on", url}).out.find("tables: not there yet"), std::string::npos);
  }
}

TEST(Doctor, prints_one_json_document) {
  HIERLOCK_NEEDS_SERVER("MYSQL");
  const Result result = run({"doctor", "--json"}, (server() + "?table=nobody_made_this").c_str());
  EXPECT_EQ(result.code, 78);
  EXPECT_TRUE(is_json(result.out)) << result.out;
  EXPECT_TRUE(result.out.starts_with("{\n  \"version\": 1,\n  \"store\": \"mysql://")) << result.out;
  EXPECT_NE(result.out.find("\"safe\": false"), std::string::npos);
  EXPECT_NE(result.out.find("\"check\": \"isolation\",\n      \"verdict\": \"good\""), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find(password_of(server())), std::string::npos);
}

TEST(Doctor, tells_who_cannot_come_in) {
  HIERLOCK_NEEDS_SERVER("MYSQL");
  std::string stranger = server();
  stranger.replace(stranger.find(password_of(stranger)), password_of(stranger).size(), "wrong");
  EXPECT_EQ(run({"doctor", "--on", stranger}).code, 77);
  EXPECT_EQ(run({"doctor", "--on", "mysql://app@127.0.0.1:1/shop"}).code, 69);
  EXPECT_EQ(run({"doctor", "--on", "mysql://app@127.0.0.1:1/shop?nonsense=1"}).code, 64);
}

TEST(Explain, prints_the_statements_of_a_database) {
  HIERLOCK_NEEDS_SERVER("MYSQL");
  const Result result = run({"explain", "--on", server() + "?table=nobody_made_this", "u1/a1/r1"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("\nSTRAIGHT_JOIN `nobody_made_this` AS r2\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nAND r2.level=2 AND r2.bucket=8675750\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nROLLBACK;\n"), std::string::npos);
  EXPECT_EQ(result.out.find(password_of(server())), std::string::npos);
  const Result json = run({"explain", "--json", "--on", server(), "u1/a1/r1"});
  EXPECT_TRUE(is_json(json.out)) << json.out;
  EXPECT_NE(json.out.find("\"statements\": \"-- MySQL"), std::string::npos) << json.out;
}

TEST(Explain, of_a_database_that_does_not_answer_says_so) {
  const Result result = run({"explain", "--on", "mysql://app@127.0.0.1:1/shop?buckets=10", "u1"});
  if (result.err.find("has no mysql: store") != std::string::npos) GTEST_SKIP() << "built without mysql:";
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("assuming MySQL, 10 buckets"), std::string::npos) << result.out;
}

TEST(Explain, of_what_a_database_refuses_tells_why) {
  const Result result = run({"explain", "--on", "mysql://app@127.0.0.1:1/shop", "shared u1"});
  if (result.err.find("has no mysql: store") != std::string::npos) GTEST_SKIP() << "built without mysql:";
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("-- refused: shared u1: rows have no intention modes"), std::string::npos) << result.out;
  // How many levels there are is not known: nobody was asked.
  EXPECT_NE(result.out.find("(assuming MySQL, 10000000 buckets, 3 levels, because the server was not asked"),
            std::string::npos)
      << result.out;
}

TEST(Explain, of_names_on_a_database_does_not_speak_of_buckets) {
  const Result result = run({"explain", "--on", "mysql://app@127.0.0.1:1/shop", "--named", "token-refresh"});
  if (result.err.find("has no mysql: store") != std::string::npos) GTEST_SKIP() << "built without mysql:";
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("-- assuming MySQL, because the server was not asked"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("GET_LOCK"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("bucket"), std::string::npos) << result.out;
}

// The statements in the pages, line by line. A server that does not answer is taken for one as the pages have it.
TEST(Explain, of_a_database_prints_what_the_pages_say) {
  const Result result = run({"explain", "--on", "mysql://app@127.0.0.1:1/shop", "u1/a1/r1"});
  if (result.err.find("has no mysql: store") != std::string::npos) GTEST_SKIP() << "built without mysql:";
  const std::size_t first = result.out.find("-- no two"), last = result.out.find("ROLLBACK;");
  ASSERT_NE(last, std::string::npos) << result.out;
  const std::string statements = result.out.substr(first, last - first) + "ROLLBACK;\n";
  for (const char* page : {"cli.md", "mysql.md"}) {
    std::ifstream file(std::string(HIERLOCK_DOCS "/") + page);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_NE(text.find(statements), std::string::npos) << page << " does not have:\n" << statements;
  }
}

}  // namespace
}  // namespace tooltest
