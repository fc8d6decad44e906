// The rights that docs/mysql.md lists are enough, and not more than is needed: the statements of the page are run.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include <hierlock/operate.h>

#include "on_server.h"
#include "program.h"

namespace hierlock::mysql_tests {
namespace {

// The lines of the page, by block; of the GRANTs: to lock, and to lock with lazy rows.
std::vector<std::vector<std::string>> blocks_of_the_page(const std::string& beginning = "```sql") {
  std::ifstream page(HIERLOCK_DOCS "/mysql.md");
  std::vector<std::vector<std::string>> blocks;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("```")) {
      inside = line == beginning;
      if (inside) blocks.emplace_back();
    } else if (inside) {
      blocks.back().push_back(line);
    }
  }
  return blocks;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  if (at == text.npos) throw std::runtime_error("the page says " + text + " without " + what);
  return text.replace(at, what.size(), by);
}

class Rights : public OnServer {
 protected:
  void TearDown() override {
    if (!HasFatalFailure() && !IsSkipped()) plain().ask("DROP TABLE IF EXISTS `" + table() + "_notices`");
    OnServer::TearDown();
  }
  void grant(const Server& user, const std::vector<std::string>& grants) {
    for (const std::string& line : grants) {
      std::string sql = replaced(line, "'app'", "'" + user.user + "'");
      sql = replaced(sql, "shop.hier_lock_buckets", "`" + server().database + "`." + table());
      plain().ask(sql.substr(0, sql.find(';')));
    }
  }
  Server user_with(const std::vector<std::string>& grants) {
    const Server user = make_user("", "");
    grant(user, grants);
    return user;
  }
  // As those do who use it: locks, waits, is timed out, is told of others.
  static void use(const std::string& url) {
    Locker locker = hierlock::open(url), other = hierlock::open(url);
    Lock lock = locker.acquire("u1/a1/r1");
    EXPECT_GT(lock.fence(), 0);
    EXPECT_FALSE(other.try_acquire("u1/a1", 100ms));
    EXPECT_TRUE(other.try_acquire("u1/a1/r2", 5s));
    lock.extend("u1/a2/r1");
    EXPECT_TRUE(lock.held());
    lock.release();
    EXPECT_TRUE(other.try_acquire("u1", 5s));
  }
  // Nothing that this account may not do is unsafe or slow.
  static void expect_enough(const std::string& url) {
    for (const Finding& found : hierlock::doctor(url)) {
      EXPECT_NE(found.verdict, Finding::Verdict::unsafe) << found.check << ": " << found.text;
      if (found.check != "publish") continue;
      EXPECT_EQ(found.verdict, Finding::Verdict::good) << found.text;
    }
  }
};

TEST_P(Rights, of_the_page_are_enough_to_lock) {
  const auto blocks = blocks_of_the_page();
  ASSERT_EQ(blocks.size(), 2u);
  hierlock::open(url("buckets=100"));
  ProvisionOptions all;
  hierlock::provision(server().url("table=" + table()), all);
  const Server user = user_with(blocks[0]);
  use(user.url("table=" + table()));
  expect_enough(user.url("table=" + table()));
}

#ifdef HIERLOCK_BIN

// "Start" of the page, command by command: with this server in place of db, this test's table, and the page's GRANTs in
// between. Times differ, and what doctor can see of a server.
TEST_P(Rights, and_the_commands_with_which_the_page_starts_are_all_it_takes) {
  const Server user = user_with({});
  setenv("ADMIN_PASSWORD", operator_server().password.c_str(), 1);
  setenv("APP_PASSWORD", user.password.c_str(), 1);
  const auto here = [&](std::string command) {
    const std::string db =
        server().host + ":" + std::to_string(server().port) + "/" + server().database + "?table=" + table() + "&";
    command = std::regex_replace(command, std::regex("//admin@db/shop\\?"), "//" + operator_server().user + "@" + db);
    return std::regex_replace(command, std::regex("//app@db/shop\\?"), "//" + user.user + "@" + db);
  };
  const auto comparable = [](std::string text) {
    text = std::regex_replace(text, std::regex("hierlock: [0-9,]+ of [0-9,]+ rows [^\n]*\n"), "");  // how far it is
    text = std::regex_replace(text, std::regex(" in [0-9.]+m?s;"), " in T;");
    return std::regex_replace(text, std::regex("[0-9]+ unknown, [0-9]+ good"), "some unknown, the rest good");
  };
  const std::string folder = std::filesystem::path(HIERLOCK_BIN).parent_path();
  int ran = 0;
  for (const std::vector<std::string>& block : blocks_of_the_page("```console start")) {
    for (std::size_t i = 0; i < block.size(); ++ran) {
      ASSERT_TRUE(block[i].starts_with("$ ")) << block[i];
      Program shell({"/bin/sh", "-c", "PATH=" + folder + ":$PATH; " + here(block[i].substr(2))});
      std::string expected;
      while (++i < block.size() && !block[i].starts_with("$ ")) expected += block[i] + "\n";
      shell.says_all();
      EXPECT_EQ(comparable(shell.said()), comparable(expected));
    }
    grant(user, blocks_of_the_page().at(0));
  }
  EXPECT_EQ(ran, 3);
  unsetenv("ADMIN_PASSWORD");
  unsetenv("APP_PASSWORD");
}

#endif

// The UPDATE of the page, with a fence that is higher, the same, and lower than what was written last.
TEST_P(Rights, and_the_update_of_the_page_refuses_a_lower_fence) {  // B3
  const std::string update = blocks_of_the_page("```sql fence").at(0).at(0);
  const std::string orders = "`" + server().database + "`.orders_of_" + table();
  plain().ask("CREATE TABLE " + orders + " (id INT PRIMARY KEY, state VARCHAR(20), fence BIGINT)");
  for (const auto& [fence, state] : {std::pair("11", "shipped"), {"10", "shipped"}, {"9", "packed"}}) {
    plain().ask("REPLACE INTO " + orders + " VALUES (17, 'packed', 10)");
    std::string sql = replaced(update, "orders", orders);
    for (const char* value : {fence, "17", fence}) sql = replaced(sql, "?", value);
    plain().ask(sql);
    EXPECT_EQ(plain().one("SELECT state FROM " + orders), state) << sql;
  }
  plain().ask("DROP TABLE " + orders);
}

TEST_P(Rights, of_the_page_are_enough_to_make_what_is_missing) {
  const auto blocks = blocks_of_the_page();
  ASSERT_EQ(blocks.size(), 2u);
  const Server user = user_with(blocks[1]);
  use(url(user));
  expect_enough(url(user));
}

TEST_P(Rights, to_lock_do_not_allow_to_make_rows) {
  hierlock::open(url("buckets=100"));
  const Server user = user_with(blocks_of_the_page().at(0));
  EXPECT_TRUE(fails_with(ErrorKind::denied, [&] { const Lock lock = hierlock::open(url(user)).acquire("u1"); }));
  EXPECT_TRUE(fails_with(ErrorKind::not_provisioned,
                         [&] { const Lock lock = hierlock::open(user.url("table=" + table())).acquire("u1"); }));
}

TEST_P(Rights, that_are_missing_are_named) {
  hierlock::open(url("buckets=100"));
  const Server user = make_user("SELECT", "`" + server().database + "`." + table() + "_settings");
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { const Lock lock = hierlock::open(url(user)).acquire("u1"); }, "docs/mysql.md"));
}

HIERLOCK_ON_BOTH_SERVERS(Rights);

}  // namespace
}  // namespace hierlock::mysql_tests
