// `explain` on mysql: prints what the server is really sent, as the server's own log has it.
#include <gtest/gtest.h>

#include <algorithm>

#include <hierlock/operate.h>

#include "on_server.h"
#include "support/own_server.h"

namespace hierlock::mysql_tests {
namespace {

std::vector<Target> targets_of(std::initializer_list<const char*> texts) {
  std::vector<Target> targets;
  for (const char* text : texts) targets.push_back(Target::parse(text));
  return targets;
}

struct Printed {
  std::string lock, release, comments;
};

// The statements without their comments, each on one line.
Printed printed(const std::string& text) {
  Printed result;
  std::string statement;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("--")) {
      result.comments += line + "\n";
      continue;
    }
    statement += (statement.empty() ? "" : " ") + line;
    if (!statement.ends_with(';')) continue;
    statement.pop_back();
    (result.lock.empty() ? result.lock : result.release) = statement;
    statement.clear();
  }
  return result;
}

class Explain : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    HIERLOCK_NEEDS_SERVER("MYSQL");
    mysql::enable();
    own_ = OwnServer::get(GetParam());
    ASSERT_TRUE(own_ != nullptr || !in_ci());
    if (own_ == nullptr) GTEST_SKIP() << "no server of its own can be had";
    plain_ = std::make_unique<Plain>(own_->operator_url());
    plain_->ask("SET GLOBAL log_output='TABLE', GLOBAL general_log=ON");
  }
  void TearDown() override {
    if (plain_ == nullptr) return;
    plain_->ask("SET GLOBAL general_log=OFF");
    plain_->ask("DROP TABLE IF EXISTS explained, explained_settings, explained_notices");
  }
  std::string url(const std::string& more = "") const {
    return own_->url() + "?provision=lazy&table=explained" + (more.empty() ? "" : "&" + more);
  }
  // What the session that locked was sent since the log was emptied: the statement, and what ended it.
  Printed sent() {
    Printed result;
    const std::string session = plain_->one(
        "SELECT thread_id FROM mysql.general_log WHERE command_type='Execute' AND CONVERT(argument USING "
        "utf8mb4) LIKE 'SELECT UUID_SHORT(), CONNECTION_ID() FROM%explained%' ORDER BY event_time LIMIT 1");
    for (const auto& row :
         plain_->ask("SELECT command_type, CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE "
                     "thread_id=" +
                     session + " ORDER BY event_time")) {
      const bool lock = row[1].find("explained") != std::string::npos;
      if (row[0] == "Execute" && lock) result.lock = row[1];
      if (row[0] == "Query" && !lock && !result.lock.empty()) result.release = row[1];
    }
    return result;
  }

  const OwnServer* own_ = nullptr;
  std::unique_ptr<Plain> plain_;
};

TEST_P(Explain, prints_what_the_server_is_sent) {
  for (const auto& targets : {targets_of({"u1/a1/r1"}), targets_of({"u1"}), targets_of({"shared u1/a1/r1"}),
                              targets_of({"u1/a1/r1", "u1/a2/r7", "u3/a3"})}) {
    static_cast<void>(hierlock::open(url("buckets=1000")).acquire(targets));  // makes the rows
    plain_->ask("TRUNCATE mysql.general_log");
    static_cast<void>(hierlock::open(url()).acquire(targets));
    Printed real;
    EXPECT_TRUE(eventually([&] {  // a release does not wait for the server
      real = sent();
      return !real.release.empty();
    }));
    const Printed said = printed(hierlock::statements(url(), targets));
    EXPECT_EQ(said.lock, real.lock);
    EXPECT_EQ(said.release, real.release);
    EXPECT_NE(said.comments.find("1000 buckets, 3 levels, as recorded"), std::string::npos) << said.comments;
  }
}

TEST_P(Explain, changes_nothing) {
  EXPECT_NE(hierlock::statements(url(), targets_of({"u1"})).find("nothing is recorded"), std::string::npos);
  EXPECT_EQ(plain_->code_of("SELECT 1 FROM explained_settings"), 1146u);
}

TEST_P(Explain, refuses_what_an_acquire_refuses) {
  Locker locker = hierlock::open(url("buckets=1000"));
  for (const char* text : {"shared u1", "shared named \"x\"", "a/b/c/d"}) {
    const std::optional<Error> real = error_of([&] { const Lock lock = locker.acquire(Target::parse(text)); });
    ASSERT_TRUE(real);
    EXPECT_TRUE(fails_with(real->kind(), [&] { hierlock::statements(url(), targets_of({text})); })) << text;
  }
}

TEST_P(Explain, names_the_nodes_that_share_a_row) {  // H15: and they really wait for each other
  const std::string few = url("buckets=2");
  const auto all = targets_of({"u1", "u2", "u3"});  // three in two rows
  const std::string comments = printed(hierlock::statements(few, all)).comments;
  ASSERT_NE(comments.find("-- false contention: "), std::string::npos) << comments;
  Locker locker = hierlock::open(few), other = hierlock::open(few);
  int meet = 0;
  for (const auto& [one, two] : {std::pair("u1", "u2"), {"u1", "u3"}, {"u2", "u3"}}) {
    const bool said = printed(hierlock::statements(few, targets_of({one, two}))).comments.find("false contention: ") !=
                      std::string::npos;
    const Lock held = locker.acquire(one);
    EXPECT_EQ(!other.try_acquire(two), said) << one << " and " << two;
    meet += said ? 1 : 0;
  }
  EXPECT_GE(meet, 1);
}

INSTANTIATE_TEST_SUITE_P(, Explain, testing::Values("mysql", "mariadb"), [](const auto& p) { return p.param; });

TEST(ExplainAlone, goes_by_the_url_or_the_defaults_where_no_server_answers_and_says_so) {
  mysql::enable();
  const std::string nobody = "mysql://app@127.0.0.1:1/shop";
  const Printed usual = printed(hierlock::statements(nobody, targets_of({"u1/a1/r1"})));
  EXPECT_NE(usual.comments.find("10000000 buckets, 3 levels, because the server was not asked"), std::string::npos)
      << usual.comments;
  EXPECT_NE(usual.lock.find("r2.level=2 AND r2.bucket=8675750 AND r2.made_for_10000000_buckets_3_levels IS NOT NULL "
                            "FOR SHARE OF r0, r1 FOR UPDATE OF r2"),
            std::string::npos)
      << usual.lock;  // docs/format.md
  EXPECT_EQ(usual.release, "ROLLBACK");
  const Printed asked = printed(hierlock::statements(nobody + "?buckets=1&table=mine", targets_of({"u1"})));
  EXPECT_NE(asked.lock.find("FROM `mine` AS r0 WHERE r0.level=0 AND r0.bucket=0 AND r0.made_for_1_buckets_3_levels IS "
                            "NOT NULL FOR UPDATE OF r0"),
            std::string::npos)
      << asked.lock;
}

}  // namespace
}  // namespace hierlock::mysql_tests
