// A server's own defaults may be anything: sessions that lock set what they need, or the server is refused, or doctor
// says what to do.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include <hierlock/operate.h>

#include "on_own_server.h"
#include "relay.h"

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

// A default of the whole server, until the end of the scope.
class Global {
 public:
  Global(const std::string& url, std::string name, const std::string& value) : plain_(url), name_(std::move(name)) {
    before_ = plain_.one("SELECT @@GLOBAL." + name_);
    if (before_.find_first_not_of("0123456789.") != before_.npos) before_ = "'" + before_ + "'";
    if (before_.empty()) before_ = "DEFAULT";
    plain_.ask("SET GLOBAL " + name_ + "=" + value);
  }
  ~Global() { plain_.ask("SET GLOBAL " + name_ + "=" + before_); }
  Global(const Global&) = delete;
  Global& operator=(const Global&) = delete;

 private:
  Plain plain_;  // from before: what is set is no default of it
  const std::string name_;
  std::string before_;
};

// On servers of their own.
class Defaults : public OnOwnServer {
 protected:
  void SetUp() override {
    OnOwnServer::SetUp();
    if (has_server()) clean();
  }
  void TearDown() override {
    if (has_server()) clean();
  }
  void clean() {
    drop("defaults");
    drop("made");
  }
  static std::string lazy(const std::string& url, const std::string& more = "") {
    return url + "?provision=lazy&buckets=1000&table=defaults" + (more.empty() ? "" : "&" + more);
  }
  std::string url(const std::string& more = "") const { return lazy(own().url(), more); }

  // All that a Locker does: two exclude each other, and each sees the other.
  static void locks(const std::string& url) {
    Locker one = hierlock::open(url + "&publish_after=0"), two = hierlock::open(url + "&publish_after=0");
    Lock first = one.acquire("u1/a1/r1");
    EXPECT_FALSE(two.try_acquire("u1/a1/r1"));
    EXPECT_FALSE(two.try_acquire("u1", 100ms));
    EXPECT_TRUE(two.try_acquire("u1/a1/r2"));
    first.extend("u2/a1/r1");
    EXPECT_FALSE(two.try_acquire("u2/a1"));
    std::vector<Target> many;
    for (int i = 0; i < 12; ++i) many.emplace_back("m" + std::to_string(i) + "/a/r");
    const Lock all = one.acquire(many);
    EXPECT_FALSE(two.try_acquire("m7"));
    EXPECT_TRUE(eventually([&] {
      const auto holders = two.snapshot().holders;
      return std::any_of(holders.begin(), holders.end(),
                         [](const auto& holder) { return holder.target == "u1/a1/r1"; });
    })) << "what is held is written down";
    const std::int64_t fence = first.fence();
    first.release();
    EXPECT_GT(two.acquire("u1/a1/r1").fence(), fence);
  }
};

TEST_P(Defaults, that_would_change_what_statements_mean_do_not_matter) {
  std::vector<std::pair<std::string, std::string>> all{
      {"sql_mode", "''"},
      {"sql_mode", "'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'"},
      {"sql_mode", "'TRADITIONAL'"},
      {"sql_select_limit", "1"},
      {"sql_select_limit", "0"},
      {"max_join_size", "1"},
      {"autocommit", "0"},
      {"completion_type", "'CHAIN'"},
      {"completion_type", "'RELEASE'"},
      {"net_read_timeout", "1"},
  };
  if (mariadb()) {
    all.insert(all.end(), {{"sql_mode", "'ORACLE'"},
                           {"sql_mode", "'EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT'"},
                           {"tx_isolation", "'SERIALIZABLE'"},
                           {"tx_read_only", "1"},
                           {"sql_safe_updates", "1"},
                           {"optimizer_switch", "'derived_merge=off'"}});
  } else {
    all.insert(all.end(), {{"transaction_isolation", "'SERIALIZABLE'"},
                           {"transaction_read_only", "1"},
                           {"optimizer_switch", "'hypergraph_optimizer=on'"}});
  }
  for (const auto& [name, value] : all) {
    SCOPED_TRACE(name + "=" + value);
    clean();
    const Global global(own().operator_url(), name, value);
    const std::optional<Error> error = error_of([&] {
      locks(url());
      hierlock::provision(own().url() + "?table=made", {.buckets = 10});
    });
    EXPECT_FALSE(error) << error->what();
    const Finding session = finding(url(), "session");
    EXPECT_EQ(session.verdict, Verdict::good) << session.text;
  }
}

// Rows are locked in one order by everybody, or one acquire could deadlock with another.
TEST_P(Defaults, of_the_optimizer_do_not_change_the_order_of_rows) {  // H5
  const Global global(own().operator_url(), "optimizer_switch",
                      mariadb() ? "'derived_merge=off'" : "'hypergraph_optimizer=on'");
  const std::vector<std::vector<Target>> plans{{"u1/a1/r1"},
                                               {shared("u1/a1/r1")},
                                               {"u1/a1/r1", "u2/a2", "u3"},
                                               {"u1/a1/r1", "u2/a2/r2"},
                                               {"u1/a1/r1", "u2/a2/r2", "u3/a3"},
                                               {shared("u1/a1/r1"), shared("u2/a2/r2"), "u3", "u4"}};
  for (const std::vector<Target>& targets : plans) {
    Locker locker = hierlock::open(url());
    // A release does not wait for the server: rows of the last turn may be locked for a moment yet.
    ASSERT_TRUE(eventually([&] {
      return plain().ask("SHOW TABLES LIKE 'defaults'").empty() || locked_rows(plain(), "defaults").empty();
    }));
    Lock first = locker.acquire(targets);
    const auto rows = locked_rows(plain(), "defaults");
    first.release();
    plain().ask("ANALYZE TABLE defaults");  // what the optimizer does depends on what it knows
    for (auto blocked = rows.begin(); blocked != rows.end(); ++blocked) {
      Plain holder(own().operator_url());
      holder.ask("START TRANSACTION");
      holder.ask("SELECT 1 FROM defaults WHERE level=" + std::to_string(blocked->first.first) +
                 " AND bucket=" + std::to_string(blocked->first.second) + " FOR UPDATE");
      auto waits = std::async(std::launch::async, [&] { return locker.acquire(targets, {.timeout = 30s}); });
      std::map expected(rows.begin(), blocked);
      expected[blocked->first] = 'X';
      EXPECT_TRUE(eventually([&] { return locked_rows(plain(), "defaults") == expected; }))
          << targets.front().str() << ": " << testing::PrintToString(locked_rows(plain(), "defaults"));
      holder.ask("ROLLBACK");
      (void)waits.get();
    }
  }
}

// MariaDB has three more that end a session, for those in a transaction.
TEST_P(Defaults, that_end_idle_sessions_sooner_make_no_second_holder) {  // B4
  if (!mariadb()) return;
  const std::string as = own().operator_url();
  const Global any(as, "idle_transaction_timeout", "2"), read(as, "idle_readonly_transaction_timeout", "2"),
      write(as, "idle_write_transaction_timeout", "2");
  Server far(own().url());
  Relay relay(far.host, far.port);
  far.port = relay.port();
  Locker one = hierlock::open(lazy(far.url())), two = hierlock::open(url());
  const Lock first = one.acquire("u1");
  relay.pause();
  const Lock second = two.acquire("u1", {.timeout = 30s});
  EXPECT_FALSE(first.held()) << "and another holds it";
  relay.resume();
}

TEST_P(Defaults, of_the_engine_are_refused_where_it_has_no_row_locks) {
  (void)hierlock::open(url());
  plain().ask("ALTER TABLE defaults ENGINE=MyISAM");
  for (const std::string& how : {url(), own().url() + "?table=defaults"}) {
    EXPECT_TRUE(fails_with(
        ErrorKind::unsafe_topology, [&] { (void)hierlock::open(how); }, "ENGINE=InnoDB"));
  }
  plain().ask(finding(url(), "engine").fix);
  EXPECT_FALSE(error_of([&] { locks(url()); }));
  if (!mariadb()) return;
  clean();
  {
    const Global aria(own().operator_url(), "enforce_storage_engine", "Aria");
    EXPECT_TRUE(fails_with(
        ErrorKind::unsafe_topology, [&] { (void)hierlock::open(url()); }, "InnoDB"));
  }
  EXPECT_FALSE(error_of([&] { locks(url()); }));
}

TEST_P(Defaults, of_the_servers_number_may_change_while_it_runs) {  // B3
  const std::int64_t before = hierlock::open(url()).acquire("u1").fence();
  const Global number(own().operator_url(), "server_id", "4711");
  std::int64_t after = 0;
  const std::optional<Error> error = error_of([&] { after = hierlock::open(url()).acquire("u1").fence(); });
  EXPECT_FALSE(error) << error->what();
  EXPECT_GT(after, before);
}

TEST_P(Defaults, that_leave_no_statement_to_be_prepared_only_slow_locks_down) {  // H17
  EXPECT_EQ(finding(url(), "prepared_statements").verdict, Verdict::good);
  const Global none(own().operator_url(), "max_prepared_stmt_count", "0");
  const Finding found = finding(url(), "prepared_statements");
  EXPECT_EQ(found.verdict, Verdict::slow) << found.text;
  EXPECT_NE(found.fix.find("max_prepared_stmt_count"), std::string::npos);
  locks(url());
  Locker locker = hierlock::open(url());
  std::vector<Target> many;
  for (int i = 0; i < 20; ++i) many.emplace_back("u" + std::to_string(i) + "/a1/r1");
  const std::int64_t before = locker.acquire(many).fence();  // rows that are not there are made as ever
  EXPECT_GT(locker.acquire("u1/a1/r1").fence(), before);
}

TEST_P(Defaults, that_leave_no_statement_to_be_prepared_leave_one_and_one_round_trip) {  // H4
  hierlock::open(url()).acquire("u1/a1/r1").release();                                   // its rows are there
  const Global none(own().operator_url(), "max_prepared_stmt_count", "0");
  Server behind(own().url());
  Relay relay(behind.host, behind.port);
  behind.port = relay.port();
  Locker locker = hierlock::open(lazy(behind.url()));
  const auto said = [&] {
    std::vector<std::string> words;
    for (const Relay::Command& command : relay.commands()) {
      if (is_heartbeat(command)) continue;
      words.push_back(command.code == com_query ? command.text.substr(0, command.text.find(' '))
                                                : std::to_string(command.code));
    }
    return words;
  };
  const auto released = [&] { return !said().empty() && said().back() == "ROLLBACK"; };
  locker.acquire("u1/a1/r1").release();  // learns that nothing is prepared
  ASSERT_TRUE(eventually(released));     // nobody waits for that
  relay.forget();
  Lock lock = locker.acquire("u1/a1/r1");
  EXPECT_EQ(said(), std::vector<std::string>{"SELECT"});
  relay.forget();
  lock.release();
  EXPECT_TRUE(eventually(released));
  EXPECT_EQ(said(), std::vector<std::string>{"ROLLBACK"});
}

TEST_P(Defaults, that_leave_a_session_no_memory_are_exhausted_and_not_taken_for_a_replica) {
  if (!mariadb()) return;
  (void)hierlock::open(url());
  const Global little(own().operator_url(), "max_session_mem_used", "8192");
  const std::optional<Error> error = error_of([&] { (void)hierlock::open(url()).acquire("u1"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::exhausted) << error->what();
  EXPECT_NE(std::string(error->what()).find("Raise max_session_mem_used"), std::string::npos) << error->what();
}

// The log of statements takes no locks at READ COMMITTED. Some accounts may have another for their sessions.
TEST_P(Defaults, that_log_statements_are_set_where_that_is_allowed_and_refused_elsewhere) {  // H17
  const OwnServer logs(GetParam(), "--with=log_bin=binlog", "logs");
  ASSERT_FALSE(logs.url().empty()) << "tools/servers cannot start another " << GetParam();
  const std::string app = lazy(logs.url()), operators = lazy(logs.operator_url());
  EXPECT_EQ(finding(app, "binary_log").verdict, Verdict::good);
  Plain plain(logs.operator_url());
  plain.ask("SET GLOBAL binlog_format='STATEMENT'");
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { (void)hierlock::open(app); }, "SET GLOBAL binlog_format"));
  EXPECT_EQ(finding(app, "binary_log").verdict, Verdict::unsafe);
  EXPECT_EQ(finding(operators, "binary_log").verdict, Verdict::good);
  std::optional<Error> error = error_of([&] { locks(operators); });
  EXPECT_FALSE(error) << error->what();
  EXPECT_FALSE(error_of([&] { hierlock::provision(logs.operator_url() + "?table=made", {.buckets = 10}); }));
  plain.ask(std::string("GRANT ") + (mariadb() ? "BINLOG ADMIN" : "SESSION_VARIABLES_ADMIN") + " ON *.* TO " +
            Server(logs.url()).user);
  error = error_of([&] { locks(app); });
  EXPECT_FALSE(error) << error->what();
}

HIERLOCK_ON_OWN_SERVERS(Defaults);

}  // namespace
}  // namespace hierlock::mysql_tests
