// The rights that docs/mysql.md lists are enough, and not more than is needed: the statements of the page are run.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <hierlock/operate.h>

#include "on_server.h"

namespace hierlock::mysql_tests {
namespace {

// The GRANTs of the page, by block: to lock, and to lock with lazy rows.
std::vector<std::vector<std::string>> blocks_of_the_page() {
  std::ifstream page(std::filesystem::path(__FILE__).parent_path() / "../../docs/mysql.md");
  std::vector<std::vector<std::string>> blocks;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("```")) {
      inside = line == "```sql";
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
    if (!HasFatalFailure() && !IsSkipped()) plain().ask("DROP TABLE IF EXISTS `" + table() + "_who`");
    OnServer::TearDown();
  }
  Server user_with(const std::vector<std::string>& grants) {
    Server user = make_user("", "");
    for (const std::string& grant : grants) {
      std::string sql = replaced(grant, "'app'", "'" + user.user + "'");
      sql = replaced(sql, "shop.hier_lock_buckets", "`" + server().database + "`." + table());
      plain().ask(sql.substr(0, sql.find(';')));
    }
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
    EXPECT_TRUE(other.try_acquire("u1"));
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
