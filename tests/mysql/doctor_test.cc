// `doctor` (H17): each thing it looks at, seen well on a server that is as it should be, and seen badly on one that is
// not: a real server set up wrongly, or a real server behind something that changes what is said.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include <hierlock/operate.h>

#include "forger.h"
#include "on_server.h"
#include "support/own_server.h"

namespace hierlock::mysql_tests {
namespace {

using Verdict = Finding::Verdict;

Finding finding(const std::string& url, const std::string& check) {
  for (const Finding& found : hierlock::doctor(url)) {
    if (found.check == check) return found;
  }
  ADD_FAILURE() << "nothing was said about " << check;
  return {};
}

// It has that verdict, says this, and tells what to do unless it is good.
testing::AssertionResult says(const Finding& found, Verdict verdict, const std::string& saying) {
  const auto failure = [&] {
    return testing::AssertionFailure() << found.check << " is " << to_string(found.verdict) << ": " << found.text
                                       << "\nfix: " << found.fix << "\n";
  };
  if (found.verdict != verdict) return failure() << "expected " << to_string(verdict);
  if (found.text.find(saying) == std::string::npos) return failure() << "does not say \"" << saying << "\"";
  if ((verdict == Verdict::good) != found.fix.empty()) return failure() << "whether there is a fix is wrong";
  return testing::AssertionSuccess();
}

// Four rows on each of three levels, all there.
void make_table(Plain& plain, const std::string& app_url, const std::string& name) {
  hierlock::open(app_url + "?provision=lazy&buckets=4&table=" + name);
  for (const char* level : {"0", "1", "2"}) {
    plain.ask("INSERT INTO `" + name + "` (level, bucket) VALUES (" + level + ", 0), (" + level + ", 1), (" + level +
              ", 2), (" + level + ", 3)");
  }
}

class Doctor : public OnServer {
 protected:
  void SetUp() override {
    OnServer::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    make_table(plain(), server().url(), table());
  }
  // Rows are not made when they are missing, unlike with url().
  std::string there(const Server& who, const std::string& more = "") const {
    return who.url("table=" + table() + (more.empty() ? "" : "&" + more));
  }
  std::string there(const std::string& more = "") const { return there(server(), more); }
  std::string through(const Forger& forger) const { return forger.url() + "?table=" + table(); }
  // Sees `check` through something that replaces bytes.
  Finding forged(const std::string& check, const std::string& what, const std::string& by) const {
    const Forger forger(server().url(), {{what, by}});
    return finding(through(forger), check);
  }
  std::string version() { return plain().one("SELECT VERSION()"); }
  std::string quoted(const std::string& table_name) const { return "`" + server().database + "`.`" + table_name + "`"; }
  std::string settings() const { return table() + "_settings"; }
};

TEST_P(Doctor, finds_nothing_wrong_where_all_is_as_it_should_be) {
  std::set<std::string> names;
  for (const Finding& found : hierlock::doctor(there(operator_server()))) {
    EXPECT_TRUE(says(found, Verdict::good, ""));
    EXPECT_TRUE(names.insert(found.check).second) << found.check << " is there twice";
  }
  EXPECT_EQ(names.size(), 28u);
}

TEST_P(Doctor, changes_nothing) {
  const auto everything = [&] {
    return std::pair(plain().ask("SELECT * FROM " + quoted(table())),
                     plain().ask("SELECT * FROM " + quoted(settings())));
  };
  const auto before = everything();
  hierlock::doctor(there());
  EXPECT_EQ(everything(), before);
}

TEST_P(Doctor, is_not_in_the_way_of_a_lock_nor_it_in_its_way) {
  Locker locker = hierlock::open(there());
  const Lock held = locker.acquire("u1/a1/r1");
  EXPECT_TRUE(says(finding(there(), "rows"), Verdict::good, "all 12"));
  EXPECT_TRUE(held.held());
  EXPECT_TRUE(says(finding(there(), "lock_rows"), Verdict::good, ""));
}

TEST_P(Doctor, reports_everything_even_where_nothing_can_be_locked) {  // several things are wrong at once
  plain().ask("DROP TABLE " + quoted(table()));
  plain().ask("UPDATE " + quoted(settings()) + " SET format=2");
  const std::vector<Finding> all = hierlock::doctor(there("buckets=7"));
  EXPECT_EQ(all.size(), 28u);
  EXPECT_GE(std::count_if(all.begin(), all.end(), [](const Finding& f) { return f.verdict == Verdict::good; }), 12);
  EXPECT_TRUE(fails_with(ErrorKind::incompatible, [&] { hierlock::open(there()); }));
}

TEST_P(Doctor, who_is_not_let_in_is_told_so) {
  Server stranger = server();
  stranger.password = "wrong";
  EXPECT_TRUE(fails_with(ErrorKind::denied, [&] { hierlock::doctor(there(stranger)); }));
}

TEST_P(Doctor, a_grant_can_be_pasted_whatever_the_account_is_called) {
  Server odd = server();
  odd.user = "o'dd_" + std::to_string(getpid());
  odd.password = "secret-of-the-test";
  const std::string account = "'o''dd_" + std::to_string(getpid()) + "'@'127.0.0.%'";
  plain().ask("CREATE USER " + account + " IDENTIFIED BY '" + odd.password + "'");
  plain().ask("GRANT SELECT ON `" + server().database + "`.* TO " + account);
  odd.user.replace(1, 1, "%27");  // in a URL
  const Finding before = finding(there(odd), "publish");
  EXPECT_NE(before.fix.find(" TO " + account), std::string::npos) << before.fix;
  if (!before.fix.empty()) plain().ask(before.fix);
  const Finding after = finding(there(odd), "publish");
  plain().ask("DROP USER " + account);
  EXPECT_EQ(after.verdict, Verdict::good) << after.text;
}

// --- who answers ---------------------------------------------------------------------------------------------

TEST_P(Doctor, server_of_another_version_is_untested) {
  const std::string now = mariadb() ? "10.11." : "9.7.", other = mariadb() ? "10.12." : "8.4.";
  EXPECT_TRUE(says(forged("server", now, other), Verdict::unknown, "tested with MySQL 9.7 and MariaDB 10.11 only"));
}

TEST_P(Doctor, server_that_cannot_share_rows_is_unsafe) {
  if (mariadb()) return;  // it can in all versions
  EXPECT_TRUE(says(forged("server", "9.7.", "5.7."), Verdict::unsafe, "FOR SHARE"));
}

TEST_P(Doctor, proxy_that_renumbers_sessions_is_unsafe) {
  Forger forger(server().url(), {});
  EXPECT_TRUE(says(finding(through(forger), "proxy"), Verdict::good, ""));  // it is not the way that is found
  forger.renumber_sessions();
  EXPECT_TRUE(says(finding(through(forger), "proxy"), Verdict::unsafe, "mixes sessions"));
}

TEST_P(Doctor, proxy_that_says_so_is_unsafe) {
  const std::string now = version(), other = now.substr(0, now.size() - 6) + "router";
  EXPECT_TRUE(says(forged("proxy", now, other), Verdict::unsafe, "is a proxy"));
}

TEST_P(Doctor, proxy_that_greets_with_a_version_of_its_own_is_seen) {
  const std::string now = version();
  const std::string name = "version" + std::string(1, static_cast<char>(now.size()));
  EXPECT_TRUE(says(forged("proxy", name + now, name + "0" + now.substr(1)), Verdict::unknown, "in between"));
}

TEST_P(Doctor, tls_is_needed_on_the_way_to_another_machine) {
  Server far = server();
  far.host = "2130706433";  // 127.0.0.1 as one number: nothing in it says that it is this machine
  if (mariadb()) {
    EXPECT_TRUE(says(finding(there(far, "tls=off"), "tls"), Verdict::unsafe, "another machine"));
  } else {  // its accounts do not log in so
    EXPECT_TRUE(fails_with(
        ErrorKind::denied, [&] { hierlock::doctor(there(far, "tls=off")); }, "tls="));
  }
  EXPECT_TRUE(says(finding(there(far, "tls=on"), "tls"), Verdict::unknown, "nobody has checked"));
  const std::string ca = server_variable(GetParam() + "_CA").value_or("");
  EXPECT_TRUE(says(finding(there("tls=verify&ca=" + ca), "tls"), Verdict::good, "verified"));
  EXPECT_TRUE(says(finding(there(), "tls"), Verdict::good, "on this machine"));
}

// --- what it does with locks -----------------------------------------------------------------------------------

TEST_P(Doctor, failover_is_told_where_replicas_may_follow) {
  EXPECT_TRUE(says(finding(there(), "failover"), Verdict::good, ""));
  EXPECT_TRUE(
      says(forged("failover", "log_bin\x03OFF", "log_bin\x03YES"), Verdict::unknown, "Locks are not replicated"));
}

TEST_P(Doctor, isolation_that_does_not_become_read_committed_is_unsafe) {
  EXPECT_TRUE(says(forged("isolation", "='READ-COMMITTED'", "='SERIALIZABLE'  "), Verdict::unsafe, "is SERIALIZABLE"));
}

TEST_P(Doctor, session_that_cannot_be_set_is_unsafe) {
  const Forger forger(server().url(), {{"innodb_lock_wait_timeout=2", "innodb_lock_wait_timeout=x"}});
  EXPECT_TRUE(says(finding(through(forger), "isolation"), Verdict::unsafe, "cannot be set for locking"));
  EXPECT_TRUE(says(finding(through(forger), "autocommit"), Verdict::unknown, ""));
}

TEST_P(Doctor, autocommit_that_stays_on_is_unsafe) {
  EXPECT_TRUE(says(forged("autocommit", "autocommit=0", "autocommit=1"), Verdict::unsafe, "stays on"));
}

TEST_P(Doctor, wait_timeout_that_cannot_be_set_is_unsafe) {
  EXPECT_TRUE(says(forged("wait_timeout", " wait_timeout=12", " wait_timeout=99"), Verdict::unsafe, "has 99 s"));
}

TEST_P(Doctor, session_that_is_not_as_it_was_set_is_unsafe) {
  const auto changed = [&](const std::string& what, const std::string& by, const std::string& saying) {
    EXPECT_TRUE(says(forged("session", what, by), Verdict::unsafe, saying));
  };
  changed("sql_select_limit=18446744073709551615", "sql_select_limit=18446744073709551610", "sql_select_limit is 1844");
  if (mariadb()) {
    changed("idle_transaction_timeout=0", "idle_transaction_timeout=5", "idle_transaction_timeout is 5 in place of 0");
  } else {
    changed("'hypergraph_optimizer=off'", "'hypergraph_optimizer=on' ", "lacks hypergraph_optimizer=off");
  }
}

TEST_P(Doctor, rollback_on_timeout_is_unsafe) {
  const std::string name = "innodb_rollback_on_timeout";
  EXPECT_TRUE(says(forged("rollback_on_timeout", name + "\x03OFF", name + "\x03YES"), Verdict::unsafe, "is on"));
  EXPECT_TRUE(says(forged("rollback_on_timeout", name, "innodb_rollback_on_tumeout"), Verdict::unknown, ""));
}

TEST_P(Doctor, connections_that_the_server_does_not_have_are_slow) {
  EXPECT_TRUE(says(finding(there("connections=1000"), "connections"), Verdict::slow, "exhausted"));
}

TEST_P(Doctor, connections_that_the_account_may_not_have_are_slow) {
  const Server user = make_user("ALL", quoted(table()));
  plain().ask("ALTER USER '" + user.user + "'@'%' WITH MAX_USER_CONNECTIONS 13");
  EXPECT_TRUE(says(finding(there(user), "connections"), Verdict::slow, "this account may have 13"));
  EXPECT_TRUE(
      says(finding(there(user, "connections=3"), "connections"), Verdict::slow, "opens up to 14, 8 of them for names"));
  EXPECT_TRUE(says(finding(there(user, "connections=2"), "connections"), Verdict::good, "room for 1 "));
}

// --- rights ------------------------------------------------------------------------------------------------------

TEST_P(Doctor, lock_rows_needs_a_right_to_lock) {
  // On MySQL FOR UPDATE needs more than SELECT; on MariaDB it does not.
  const Server user = make_user("SELECT, UPDATE", quoted(settings()));
  if (!mariadb()) plain().ask("GRANT SELECT ON " + quoted(table()) + " TO '" + user.user + "'@'%'");
  const Finding found = finding(there(user), "lock_rows");
  EXPECT_TRUE(says(found, Verdict::unsafe, "may not lock rows"));
  EXPECT_TRUE(says(finding(there(user), "read_settings"), Verdict::good, ""));
  plain().ask(found.fix);  // the fix is one
  EXPECT_TRUE(says(finding(there(user), "lock_rows"), Verdict::good, ""));
  EXPECT_NO_THROW(const Lock lock = hierlock::open(there(user)).acquire("u1/a1/r1"));
}

TEST_P(Doctor, read_settings_needs_rights_on_the_settings) {
  const Server user = make_user("SELECT, UPDATE", quoted(table()));
  const Finding found = finding(there(user), "read_settings");
  EXPECT_TRUE(says(found, Verdict::unsafe, "may not read the settings"));
  EXPECT_TRUE(says(finding(there(user), "lock_rows"), Verdict::good, ""));
  EXPECT_TRUE(says(finding(there(user), "tables"), Verdict::unknown, ""));
  EXPECT_TRUE(says(finding(there(user), "settings"), Verdict::unknown, ""));
  plain().ask("GRANT SELECT ON " + quoted(settings()) + " TO '" + user.user + "'@'%'");
  EXPECT_TRUE(says(finding(there(user), "read_settings"), Verdict::unsafe, "floor cannot be raised"));
  plain().ask(found.fix);
  EXPECT_TRUE(says(finding(there(user), "read_settings"), Verdict::good, ""));
}

TEST_P(Doctor, make_rows_needs_insert_where_rows_are_made_when_needed) {
  const Server user = make_user("SELECT, UPDATE", quoted(table()));
  EXPECT_TRUE(says(finding(there(user), "make_rows"), Verdict::good, "not needed"));
  EXPECT_TRUE(says(finding(url(user), "make_rows"), Verdict::unsafe, "this account may not"));
  plain().ask("GRANT INSERT ON " + quoted(table()) + " TO '" + user.user + "'@'%'");
  EXPECT_TRUE(says(finding(url(user), "make_rows"), Verdict::good, ""));
}

TEST_P(Doctor, publish_needs_rights_on_a_table_of_its_own) {  // B11
  const std::string who = quoted(table() + "_notices");
  const Server user = make_user("SELECT, UPDATE", quoted(table()));
  for (const char* right : {"SELECT", "INSERT", "UPDATE", "DELETE"}) {
    const Finding found = finding(there(user), "publish");
    EXPECT_TRUE(says(found, Verdict::slow, "ended by timeouts only")) << "before " << right;
    EXPECT_NE(found.fix.find(right), std::string::npos) << found.fix;
    plain().ask(std::string("GRANT ") + right + " ON " + who + " TO '" + user.user + "'@'%'");
  }
  EXPECT_TRUE(says(finding(there(user), "publish"), Verdict::good, ""));
  plain().ask("DROP TABLE " + who);
  EXPECT_TRUE(says(finding(there(), "publish"), Verdict::slow, "there is no"));
}

TEST_P(Doctor, kill_needs_a_second_session) {
  const Server user = make_user("ALL", quoted(table()));
  plain().ask("ALTER USER '" + user.user + "'@'%' WITH MAX_USER_CONNECTIONS 1");
  EXPECT_TRUE(says(finding(there(user), "kill"), Verdict::unsafe, "no second session"));
}

TEST_P(Doctor, wait_views_need_a_right_of_their_own) {
  const Server user = make_user("ALL", quoted(table()));
  const Finding found = finding(there(user), "wait_views");
  EXPECT_TRUE(says(found, Verdict::unknown, "may not see who waits"));
  plain().ask(found.fix);
  EXPECT_TRUE(says(finding(there(user), "wait_views"), Verdict::good, ""));
}

// --- the tables --------------------------------------------------------------------------------------------------

TEST_P(Doctor, tables_that_are_not_there_are_unsafe_unless_they_are_made_when_needed) {
  plain().ask("DROP TABLE " + quoted(table()) + ", " + quoted(settings()) + ", " + quoted(table() + "_notices"));
  const auto verdict_of = [&](const std::string& check) { return finding(there(), check).verdict; };
  EXPECT_TRUE(says(finding(there(), "tables"), Verdict::unsafe, "there is no " + table()));
  for (const char* check : {"lock_rows", "read_settings", "publish", "settings", "engine", "rows"}) {
    EXPECT_EQ(verdict_of(check), Verdict::unknown) << check;
  }
  for (const char* check : {"tables", "settings", "engine", "rows", "fence_floor", "publish"}) {
    EXPECT_TRUE(says(finding(url(), check), Verdict::good, ""));
  }
}

TEST_P(Doctor, tables_need_a_database) {
  Server elsewhere = server();
  elsewhere.database = "no_such_database";
  EXPECT_TRUE(says(finding(there(elsewhere), "tables"), Verdict::unsafe, "database cannot be used"));
  Server as_operator = operator_server();
  as_operator.database = "no_such_database";
  EXPECT_TRUE(says(finding(there(as_operator), "tables"), Verdict::unsafe, "no_such_database"));
  EXPECT_TRUE(says(finding(there(as_operator), "deadlock_detection"), Verdict::good, ""));
}

TEST_P(Doctor, settings_that_the_url_contradicts_are_unsafe) {
  EXPECT_TRUE(says(finding(there("buckets=4"), "settings"), Verdict::good, "4 buckets"));
  EXPECT_TRUE(says(finding(there("buckets=5"), "settings"), Verdict::unsafe, "buckets=5 was asked for"));
  EXPECT_TRUE(says(finding(there("levels=2"), "settings"), Verdict::unsafe, "levels=2 was asked for"));
}

TEST_P(Doctor, settings_of_another_format_or_without_sense_are_unsafe) {
  plain().ask("UPDATE " + quoted(settings()) + " SET format=2");
  EXPECT_TRUE(says(finding(there(), "settings"), Verdict::unsafe, "format 2"));
  plain().ask("UPDATE " + quoted(settings()) + " SET format=1, buckets=0");
  EXPECT_TRUE(says(finding(there(), "settings"), Verdict::unsafe, "damaged"));
}

TEST_P(Doctor, settings_that_the_table_was_not_made_for_are_unsafe) {  // H3
  plain().ask("UPDATE " + quoted(settings()) + " SET buckets=5");
  EXPECT_TRUE(says(finding(there(), "settings"), Verdict::unsafe, "not made for the recorded 5 buckets"));
  plain().ask("UPDATE " + quoted(settings()) + " SET buckets=4");
  EXPECT_TRUE(says(finding(there(), "settings"), Verdict::good, "4 buckets"));
}

TEST_P(Doctor, engine_without_row_locks_is_unsafe) {
  plain().ask("ALTER TABLE " + quoted(table()) + " ENGINE=MyISAM");
  const Finding found = finding(there(), "engine");
  EXPECT_TRUE(says(found, Verdict::unsafe, "MyISAM"));
  plain().ask(found.fix);
  EXPECT_TRUE(says(finding(there(), "engine"), Verdict::good, "InnoDB"));
}

TEST_P(Doctor, rows_that_are_missing_are_counted_unless_they_are_made_when_needed) {
  plain().ask("DELETE FROM " + quoted(table()) + " WHERE level=1 AND bucket IN (2, 3)");
  plain().ask("INSERT INTO " + quoted(table()) + " (level, bucket) VALUES (1, 77)");  // one that counts for nothing
  EXPECT_TRUE(says(finding(there(), "rows"), Verdict::unsafe, "2 of level 1 are missing"));
  EXPECT_TRUE(says(finding(url(), "rows"), Verdict::good, "lazy"));
}

// --- fences ------------------------------------------------------------------------------------------------------

TEST_P(Doctor, fence_floor_of_another_server_is_good_and_tells_the_offset) {
  hierlock::open(there());
  EXPECT_TRUE(says(finding(there(), "fence_floor"), Verdict::good, "this server's numbers are above it"));
  const std::string above = "(UUID_SHORT() & ((1 << 56) - 1)) + (1 << 30)";
  plain().ask("UPDATE " + quoted(settings()) + " SET fence_floor=" + above + ", mint_server=12345");
  EXPECT_TRUE(says(finding(there(), "fence_floor"), Verdict::good, "recorded by another server"));
  hierlock::open(there());
  EXPECT_TRUE(says(finding(there(), "fence_floor"), Verdict::good, "added to them, are above it"));
}

TEST_P(Doctor, fence_floor_that_leaves_no_room_is_unsafe) {
  plain().ask("UPDATE " + quoted(settings()) + " SET fence_floor=(1 << 56) - 1");
  EXPECT_TRUE(says(finding(there(), "fence_floor"), Verdict::unsafe, "no room"));
  EXPECT_TRUE(fails_with(
      ErrorKind::incompatible, [&] { hierlock::open(there()); }, "no room"));
}

TEST_P(Doctor, read_settings_of_an_earlier_version_is_unsafe) {
  plain().ask("ALTER TABLE " + quoted(settings()) +
              " CHANGE COLUMN mint_server fence_server INT UNSIGNED NOT NULL, DROP COLUMN mint_offset");
  EXPECT_TRUE(says(finding(there(), "read_settings"), Verdict::unsafe, "another version"));
}

TEST_P(Doctor, fence_floor_needs_numbers_that_rise) {
  EXPECT_TRUE(says(forged("fence_floor", "SELECT UUID_SHORT()", "SELECT 123456789012"), Verdict::unsafe, "not rise"));
}

TEST_P(Doctor, clock_that_was_set_back_is_told) {
  EXPECT_TRUE(says(forged("clock", "SYSDATE(6)", "'1970-1-2'"), Verdict::unknown, "set back"));
}

TEST_P(Doctor, clock_that_is_not_ours_is_told) {
  EXPECT_TRUE(says(forged("clock", "SYSDATE(6)", "'2037-1-2'"), Verdict::unknown, "ahead"));
}

HIERLOCK_ON_BOTH_SERVERS(Doctor);

// --- what only a server of one's own can be made to have -------------------------------------------------------------

class SickServer : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    HIERLOCK_NEEDS_SERVER("MYSQL");  // where there is none, there is none of one's own either
    mysql::enable();
    own_ = OwnServer::get(GetParam());
    ASSERT_TRUE(own_ != nullptr || !in_ci());
    if (own_ == nullptr) GTEST_SKIP() << "no server of its own can be had";
  }
  bool mariadb() const { return GetParam() == "mariadb"; }
  std::string url() const { return own_->url() + "?provision=lazy&table=sick"; }
  // Sees `check` while a variable of the whole server has that value.
  Finding with(const std::string& variable, const std::string& value, const std::string& check) const {
    Plain plain(own_->operator_url());
    const std::string before = plain.one("SELECT @@GLOBAL." + variable);
    plain.ask("SET GLOBAL " + variable + "=" + value);
    const Finding found = finding(url(), check);
    plain.ask("SET GLOBAL " + variable + "=" + before);
    return found;
  }

  const OwnServer* own_ = nullptr;
};

TEST_P(SickServer, deadlock_detection_that_is_off_is_unsafe) {
  EXPECT_TRUE(says(finding(url(), "deadlock_detection"), Verdict::good, ""));
  EXPECT_TRUE(says(with("innodb_deadlock_detect", "OFF", "deadlock_detection"), Verdict::unsafe, "is off"));
}

TEST_P(SickServer, read_only_server_is_unsafe) {
  EXPECT_TRUE(says(with("read_only", "ON", "read_only"), Verdict::unsafe, "read_only is ON"));
  if (!mariadb()) {
    EXPECT_TRUE(says(with("super_read_only", "ON", "read_only"), Verdict::unsafe, "super_read_only"));
    Plain(own_->operator_url()).ask("SET GLOBAL read_only=OFF");  // the one has set the other
  }
  EXPECT_TRUE(says(finding(url(), "read_only"), Verdict::good, ""));
}

TEST_P(SickServer, failover_is_told_where_replicas_acknowledge) {
  if (!mariadb()) return;  // a plugin, on MySQL
  EXPECT_TRUE(says(with("rpl_semi_sync_master_enabled", "ON", "failover"), Verdict::unknown, "semi-synchronous"));
}

TEST_P(SickServer, connections_that_others_have_taken_are_slow) {
  const Finding found = with("max_connections", "12", "connections");
  EXPECT_TRUE(says(found, Verdict::slow, "the server takes 12"));
}

INSTANTIATE_TEST_SUITE_P(, SickServer, testing::Values("mysql", "mariadb"), [](const auto& p) { return p.param; });

TEST(GaleraServer, is_unsafe_and_all_else_is_looked_at_as_well) {
  HIERLOCK_NEEDS_SERVER("MARIADB");
  mysql::enable();
  const OwnServer* const own = OwnServer::get("mariadb", "--galera");
  ASSERT_TRUE(own != nullptr || !in_ci());
  if (own == nullptr) GTEST_SKIP() << "no Galera can be had";
  EXPECT_TRUE(fails_with(
      ErrorKind::unsafe_topology, [&] { hierlock::open(own->url()); }, "Galera"));
  EXPECT_TRUE(says(finding(own->url(), "galera"), Verdict::unsafe, "two could hold one lock"));
  EXPECT_TRUE(says(finding(own->url(), "failover"), Verdict::unknown, "cluster"));
  EXPECT_TRUE(says(finding(own->url(), "isolation"), Verdict::good, ""));
}

}  // namespace
}  // namespace hierlock::mysql_tests
