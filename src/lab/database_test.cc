// The lab's engines, each against a real one: what it answers, and what it shows of who waits for whom.
#include "lab/database.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "lab/engines.h"

namespace hierlock::lab {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Kind = Answer::Kind;

std::string variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

bool eventually(const std::function<bool()>& fact, std::chrono::seconds limit = 20s) {
  for (const auto end = Clock::now() + limit; Clock::now() < end; std::this_thread::sleep_for(1ms)) {
    if (fact()) return true;
  }
  return fact();
}

std::optional<Error> error_of(const std::function<void()>& action) {
  try {
    action();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

testing::AssertionResult fails_with(ErrorKind kind, const std::function<void()>& action,
                                    const std::string& saying = "") {
  const std::optional<Error> error = error_of(action);
  if (!error) return testing::AssertionFailure() << "it succeeds";
  if (error->kind() != kind) return testing::AssertionFailure() << to_string(error->kind()) << ": " << error->what();
  if (std::string(error->what()).find(saying) == std::string::npos) {
    return testing::AssertionFailure() << "does not say \"" << saying << "\": " << error->what();
  }
  return testing::AssertionSuccess();
}

std::string text_of(const Answer& answer) {
  std::string text = "kind " + std::to_string(static_cast<int>(answer.kind)) + " " + answer.code + " " + answer.message;
  for (const Row& row : answer.rows) {
    text += "; ";
    for (const auto& value : row) text += value.value_or("NULL") + ",";
  }
  return text;
}

std::string text_of(const View& view) {
  std::string text;
  for (const WaitSeen& wait : view.waits) {
    text += wait.session + " waits for " + wait.object + " of";
    for (const std::string& blocker : wait.blockers) text += " " + blocker;
    text += "\n";
  }
  for (const LockSeen& lock : view.locks) {
    text += lock.session + (lock.granted ? " has " : " wants ") + lock.object + " " + lock.mode + "\n";
  }
  return text;
}

using Names = std::vector<std::string>;

Names sorted(Names names) {
  std::sort(names.begin(), names.end());
  return names;
}

// --- without a server ---------------------------------------------------------------------------------------------

TEST(Words, are_those_outside_of_quotes_and_comments) {
  EXPECT_EQ(words_of("SELECT a FROM `t` /* nowait */ WHERE b = 'x nowait' -- nowait"),
            (Names{"select", "a", "from", "where", "b"}));
  EXPECT_TRUE(changes_rows(words_of("/* x */ Update t set a = 1")));
  EXPECT_FALSE(changes_rows(words_of("select 1 for update")));
}

TEST(OpenDatabase, knows_what_is_no_sql_engine) {
  EXPECT_EQ(open_database("memory:"), nullptr);
  EXPECT_EQ(open_database("shm:x"), nullptr);
}

TEST(OpenDatabase, refuses_what_it_cannot_read_without_showing_a_password) {
  for (const char* url : {"mysql:db", "mysql://app:secret/shop", "mysql://app:secret@/shop", "mysql://db/shop",
                          "mysql://app:secret@db/shop?password_env=PATH", "sqlite:relative", "sqlite:?mode=memory",
                          "postgres://app:secret@host:notaport/x?secret"}) {
    const std::optional<Error> error = error_of([&] { open_database(url); });
    ASSERT_TRUE(error.has_value()) << url;
    EXPECT_EQ(error->kind(), ErrorKind::invalid_argument) << error->what();
    EXPECT_EQ(std::string(error->what()).find("secret"), std::string::npos) << error->what();
  }
  EXPECT_TRUE(fails_with(ErrorKind::unavailable, [] { open_database("mysql://app:secret@127.0.0.1:1/x"); }));
  EXPECT_TRUE(fails_with(ErrorKind::unavailable, [] { open_database("postgres://app:secret@127.0.0.1:1/x"); }));
  EXPECT_TRUE(fails_with(ErrorKind::unavailable, [] { open_database("sqlite:///no/such/folder"); }));
}

// --- on each engine -----------------------------------------------------------------------------------------------

class OnEngine : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!sqlite() && variable("HIERLOCK_TEST_" + GetParam()).empty()) {
      GTEST_SKIP() << "HIERLOCK_TEST_" << GetParam() << " names no server: eval \"$(tools/servers env)\"";
    }
    if (sqlite()) {
      std::string name = (std::filesystem::temp_directory_path() / "lab_test.XXXXXX").string();
      ASSERT_NE(mkdtemp(name.data()), nullptr);
      folder_ = name;
    }
    database_ = open();
    database_->make_room(20s);
    setup_ = database_->connect("setup");
    if (mysql() || mariadb()) run("create table t (id int primary key, v int) engine=innodb");
    if (postgres() || sqlite()) run("create table t (id int primary key, v int)");
    run("insert into t values (1, 10), (2, 20), (3, 30)");
  }
  void TearDown() override {
    setup_.reset();
    database_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  bool mysql() const { return GetParam() == "MYSQL"; }
  bool mariadb() const { return GetParam() == "MARIADB"; }
  bool postgres() const { return GetParam() == "POSTGRES"; }
  bool sqlite() const { return GetParam() == "SQLITE"; }
  std::string url() const { return sqlite() ? "sqlite://" + folder_ : variable("HIERLOCK_TEST_" + GetParam()); }
  std::unique_ptr<Database> open() const { return open_database(url()); }
  Database& database() { return *database_; }
  std::unique_ptr<Connection> connect(const std::string& name) { return database_->connect(name); }

  Answer run(const std::string& sql) { return well(*setup_, sql); }
  static Answer well(Connection& session, const std::string& sql) {
    Answer answer = session.execute(sql);
    EXPECT_TRUE(answer.well()) << session.name() << ": " << sql << ": " << text_of(answer);
    return answer;
  }
  // In a thread of its own.
  static std::future<Answer> start(Connection& session, const std::string& sql) {
    return std::async(std::launch::async, [&session, sql] { return session.execute(sql); });
  }
  static bool ended(const std::future<Answer>& answer) { return answer.wait_for(0s) == std::future_status::ready; }

  // Who keeps it waiting, once it is seen to wait; none: it is not seen.
  std::optional<WaitSeen> seen_waiting(const std::string& session) {
    std::optional<WaitSeen> seen;
    eventually([&] {
      const View view = database_->look();
      if (const WaitSeen* const wait = view.wait_of(session)) seen = *wait;
      return seen.has_value();
    });
    return seen;
  }
  Names blockers(const std::string& session) {
    const std::optional<WaitSeen> wait = seen_waiting(session);
    return wait ? sorted(wait->blockers) : Names{"is not seen to wait"};
  }

  // What begins a transaction and takes the row's lock.
  void take(Connection& session, int id) {
    well(session, "begin");
    well(session, "update t set v = v + 1 where id = " + std::to_string(id));
  }

  // There is no room, or nothing can be found in it.
  static bool is_gone(Database& database) {
    bool gone = true;
    (void)error_of([&] { gone = !database.connect("looks")->execute("select * from " + marker).well(); });
    return gone;
  }

  std::string folder_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<Connection> setup_;
};

class OnServer : public OnEngine {};            // not in this process
class OnMysqlLike : public OnEngine {};         // MySQL and what came from it
class OnOneThatAsksAgain : public OnEngine {};  // ends a transaction that it cannot put into an order with others

TEST_P(OnEngine, tells_its_name_and_version) {
  const std::string name = mysql() ? "mysql" : mariadb() ? "mariadb" : postgres() ? "postgres" : "sqlite";
  EXPECT_EQ(database().engine(), name);
  EXPECT_EQ(database().version().find_first_not_of("0123456789"), database().version().find('.'));
}

TEST_P(OnEngine, rows_are_as_the_engine_writes_them_and_null_is_none) {
  const Answer some = run("select id, nullif(v, 20), 'a,b' from t order by id");
  EXPECT_TRUE(some.has_rows);
  EXPECT_EQ(some.rows, (std::vector<Row>{{"1", "10", "a,b"}, {"2", std::nullopt, "a,b"}, {"3", "30", "a,b"}}));
  EXPECT_FALSE(some.affected.has_value());
  const Answer none = run("select id from t where id = 99");
  EXPECT_TRUE(none.has_rows);
  EXPECT_TRUE(none.rows.empty());
  const Answer begin = run("begin");
  EXPECT_FALSE(begin.has_rows);
  EXPECT_FALSE(begin.affected.has_value());
  run("rollback");
}

TEST_P(OnEngine, counts_the_rows_that_a_statement_found_to_change) {
  EXPECT_EQ(run("insert into t values (4, 40), (5, 50)").affected, 2u);
  EXPECT_EQ(run("update t set v = 41 where id = 4").affected, 1u);
  EXPECT_EQ(run("update t set v = 41 where id = 4").affected, 1u) << "found, though there is nothing to change";
  EXPECT_EQ(run("update t set v = 0 where id = 99").affected, 0u);
  EXPECT_EQ(run("delete from t where id >= 4").affected, 2u);
  EXPECT_FALSE(run("create table u (a int)").affected.has_value());
}

TEST_P(OnEngine, an_error_has_the_engines_own_code) {
  const Answer twice = setup_->execute("insert into t values (1, 0)");
  EXPECT_EQ(twice.kind, Kind::error);
  EXPECT_EQ(twice.code, mysql() || mariadb() ? "1062" : postgres() ? "23505" : "1555");
  EXPECT_NE(twice.message, "");
  const Answer nonsense = setup_->execute("selekt 1");
  EXPECT_EQ(nonsense.code, mysql() || mariadb() ? "1064" : postgres() ? "42601" : "1");
  EXPECT_TRUE(run("select 1").well()) << "and the session goes on";
}

TEST_P(OnEngine, sessions_begin_with_the_engines_defaults) {
  const auto t1 = connect("T1");
  if (mysql()) {
    EXPECT_EQ(well(*t1, "select @@autocommit, @@transaction_isolation, @@innodb_lock_wait_timeout").rows,
              (std::vector<Row>{{"1", "REPEATABLE-READ", "50"}}));
  } else if (mariadb()) {
    EXPECT_EQ(well(*t1, "select @@autocommit, @@tx_isolation, @@innodb_lock_wait_timeout").rows,
              (std::vector<Row>{{"1", "REPEATABLE-READ", "50"}}));
  } else if (postgres()) {
    EXPECT_EQ(well(*t1, "select current_setting('transaction_isolation'), current_setting('lock_timeout')").rows,
              (std::vector<Row>{{"read committed", "0"}}));
  }
}

// --- waits --------------------------------------------------------------------------------------------------------

TEST_P(OnEngine, a_wait_is_seen_with_its_blocker_and_no_longer_once_it_is_over) {
  const auto t1 = connect("T1"), t2 = connect("T2");
  take(*t1, 1);
  EXPECT_TRUE(database().look().waits.empty());
  auto answer = start(*t2, "update t set v = 0 where id = 1");
  const std::optional<WaitSeen> wait = seen_waiting("T2");
  ASSERT_TRUE(wait.has_value());
  EXPECT_EQ(wait->blockers, Names{"T1"});
  EXPECT_EQ(wait->object, mysql() || mariadb() ? "t(1)" : postgres() ? "t(0,1)" : "database");
  EXPECT_FALSE(ended(answer));
  const View view = database().look();
  ASSERT_NE(view.wait_of("T2"), nullptr) << text_of(view);
  EXPECT_EQ(view.wait_of("T1"), nullptr) << text_of(view);
  const auto has = [&](const std::string& session, bool granted) {
    return std::any_of(view.locks.begin(), view.locks.end(), [&](const LockSeen& lock) {
      return lock.session == session && lock.granted == granted && !lock.mode.empty();
    });
  };
  EXPECT_TRUE(has("T1", true)) << text_of(view);
  EXPECT_TRUE(has("T2", false)) << text_of(view);
  well(*t1, "commit");
  EXPECT_TRUE(answer.get().well());
  EXPECT_TRUE(database().look().waits.empty()) << text_of(database().look());
}

TEST_P(OnEngine, from_the_moment_of_the_release_no_wait_is_told) {
  // The answer may be on its way still; then the engine's view must not be behind.
  const auto t1 = connect("T1"), t2 = connect("T2");
  for (int i = 0; i < (mariadb() ? 3 : 30); ++i) {
    take(*t1, 1);
    auto answer = start(*t2, "update t set v = 0 where id = 1");
    ASSERT_EQ(blockers("T2"), Names{"T1"});
    well(*t1, "commit");
    const View view = database().look();
    EXPECT_TRUE(view.waits.empty()) << i << ": " << text_of(view);
    EXPECT_TRUE(answer.get().well());
  }
}

TEST_P(OnEngine, a_wait_is_seen_soon) {
  const auto t1 = connect("T1"), t2 = connect("T2");
  take(*t1, 1);
  Clock::duration best = 1h;
  for (int i = 0; i < 5; ++i) {
    well(*t2, "begin");
    const auto begin = Clock::now();
    auto answer = start(*t2, "update t set v = 0 where id = 1");
    ASSERT_EQ(blockers("T2"), Names{"T1"});
    best = std::min(best, Clock::now() - begin);
    well(*t1, "rollback");
    answer.get();
    well(*t2, "rollback");
    take(*t1, 1);
  }
  RecordProperty("best_us", static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(best).count()));
  EXPECT_LT(best, database().lag() + 80ms);
}

TEST_P(OnEngine, behind_an_elder_waiter) {
  const auto t1 = connect("T1"), t2 = connect("T2"), t3 = connect("T3");
  take(*t1, 1);
  well(*t2, "begin");
  auto second = start(*t2, "update t set v = 2 where id = 1");
  ASSERT_EQ(blockers("T2"), Names{"T1"});
  well(*t3, "begin");
  auto third = start(*t3, "update t set v = 3 where id = 1");
  // InnoDB names all it has to wait for, PostgreSQL the next one in the queue; SQLite has no queue.
  EXPECT_EQ(blockers("T3"), postgres() ? Names{"T2"} : sqlite() ? Names{"T1"} : (Names{"T1", "T2"}));
  EXPECT_EQ(blockers("T2"), Names{"T1"});
  well(*t1, "commit");
  if (sqlite() || postgres()) {  // either of them: on PostgreSQL both wake up, and look for the row's new version
    ASSERT_TRUE(eventually([&] { return ended(second) || ended(third); }));
    const bool is_second = ended(second);
    well(is_second ? *t2 : *t3, "commit");
  } else {
    EXPECT_TRUE(second.get().well());
    EXPECT_EQ(blockers("T3"), Names{"T2"});
    well(*t2, "commit");
  }
  EXPECT_TRUE(third.get().well());
}

TEST_P(OnEngine, a_second_insert_of_a_key_waits_for_the_first) {
  // On MySQL the first has no lock until the second meets the record, and then one of the second's making.
  const auto t1 = connect("T1"), t2 = connect("T2");
  well(*t1, "begin");
  well(*t1, "insert into t values (7, 1)");
  auto answer = start(*t2, "insert into t values (7, 2)");
  const std::optional<WaitSeen> wait = seen_waiting("T2");
  ASSERT_TRUE(wait.has_value());
  EXPECT_EQ(wait->blockers, Names{"T1"});
  if (mysql() || mariadb()) {
    EXPECT_EQ(wait->object, "t(7)");
    const View view = database().look();
    EXPECT_TRUE(std::any_of(view.locks.begin(), view.locks.end(), [](const LockSeen& lock) {
      return lock.session == "T1" && lock.object == "t(7)" && lock.granted;
    })) << text_of(view);
  }
  well(*t1, "commit");
  EXPECT_EQ(answer.get().kind, Kind::error) << "the key is there";
}

TEST_P(OnServer, somebody_who_is_not_of_the_lab_is_an_outsider) {
  const auto other = open();
  const auto stranger = other->connect("T1"), t2 = connect("T2");
  const std::string id =
      well(*stranger, postgres() ? "select pg_backend_pid()" : "select connection_id()").rows.front().front().value();
  take(*stranger, 1);
  auto answer = start(*t2, "update t set v = 0 where id = 1");
  EXPECT_EQ(blockers("T2"), Names{"outsider " + id});
  well(*stranger, "rollback");
  EXPECT_TRUE(answer.get().well());
}

TEST_P(OnServer, sessions_are_encrypted_as_the_url_says) {
  const std::string ca = variable("HIERLOCK_TEST_" + GetParam() + "_CA");
  const std::string wrong_ca = variable("HIERLOCK_TEST_" + GetParam() + "_WRONG_CA");
  if (ca.empty() || wrong_ca.empty()) {
    // ./test counts these words apart (tests/support/not_applicable.h). tools/servers names the certificates.
    ASSERT_EQ(variable("HIERLOCK_TEST_" + GetParam() + "_PID"), "");
    GTEST_SKIP() << "not applicable: nothing names the certificates of this server";
  }
  const auto encrypted = [&](const std::string& options) {
    const auto other = open_database(url() + "?" + options);
    const auto session = other->connect("T1");
    if (postgres()) {
      return well(*session, "select ssl from pg_stat_ssl where pid = pg_backend_pid()").rows.front().front() == "t";
    }
    return well(*session, "show session status like 'Ssl_cipher'").rows.front().at(1) != "";
  };
  EXPECT_FALSE(encrypted("tls=off"));
  EXPECT_TRUE(encrypted("tls=on"));
  EXPECT_TRUE(encrypted("tls=verify&ca=" + ca));
  EXPECT_TRUE(fails_with(ErrorKind::denied, [&] { open_database(url() + "?tls=verify&ca=" + wrong_ca); }));
}

TEST_P(OnServer, names_are_waited_for_too) {
  const auto t1 = connect("T1"), t2 = connect("T2");
  const std::string sql = postgres() ? "select pg_advisory_lock(42)" : "select get_lock('the name', 30)";
  well(*t1, sql);
  auto answer = start(*t2, sql);
  const std::optional<WaitSeen> wait = seen_waiting("T2");
  ASSERT_TRUE(wait.has_value());
  EXPECT_EQ(wait->blockers, Names{"T1"});
  EXPECT_EQ(wait->object, postgres() ? "advisory 42" : "named \"the name\"");
  well(*t1, postgres() ? "select pg_advisory_unlock(42)" : "select release_lock('the name')");
  EXPECT_TRUE(answer.get().well());
  EXPECT_TRUE(database().look().waits.empty()) << text_of(database().look());
  if (!postgres()) {
    EXPECT_EQ(well(*t1, "select get_lock('the name', 0)").rows, (std::vector<Row>{{"0"}})) << "a row, not an error";
  }
}

TEST_P(OnServer, a_change_of_a_table_waits_for_who_uses_it) {
  const auto t1 = connect("T1"), t2 = connect("T2"), t3 = connect("T3");
  well(*t1, "begin");
  well(*t1, "select * from t");
  auto alters = start(*t2, "alter table t add column w int");
  const std::optional<WaitSeen> wait = seen_waiting("T2");
  ASSERT_TRUE(wait.has_value());
  // MariaDB says that it waits, but not for whom, unless it was started with performance_schema=ON.
  const bool named = !mariadb() || run("select @@performance_schema").rows.front().front() == "1";
  if (named) {
    EXPECT_EQ(wait->blockers, Names{"T1"});
    EXPECT_EQ(wait->object, "t");
  }
  auto reads = start(*t3, "select count(*) from t");
  EXPECT_EQ(blockers("T3"), named ? Names{"T2"} : Names{}) << "behind the one that waits";
  well(*t1, "commit");
  EXPECT_TRUE(alters.get().well());
  EXPECT_TRUE(reads.get().well());
}

// --- how a statement ends -----------------------------------------------------------------------------------------

TEST_P(OnEngine, a_deadlock) {
  const auto t1 = connect("T1"), t2 = connect("T2");
  if (sqlite()) {
    well(*t1, "begin");
    well(*t2, "begin");
    well(*t1, "select * from t");
    well(*t2, "select * from t");
    well(*t1, "update t set v = 1 where id = 1");
    const Answer refused = t2->execute("update t set v = 2 where id = 1");
    EXPECT_EQ(refused.kind, Kind::deadlock) << "SQLite does not let it wait";
    EXPECT_EQ(refused.code, "5");
    auto commits = start(*t1, "commit");
    EXPECT_EQ(blockers("T1"), Names{"T2"}) << "who still reads keeps it from its commit";
    well(*t2, "rollback");
    EXPECT_TRUE(commits.get().well());
    return;
  }
  take(*t1, 1);
  take(*t2, 2);
  auto first = start(*t1, "update t set v = 0 where id = 2");
  ASSERT_EQ(blockers("T1"), Names{"T2"});
  auto second = start(*t2, "update t set v = 0 where id = 1");
  ASSERT_TRUE(eventually([&] { return ended(first) || ended(second); }));
  // PostgreSQL's victim has to end its transaction before the other goes on.
  Answer one, two;
  if (ended(first)) {
    one = first.get();
    if (postgres() && !one.well()) well(*t1, "rollback");
    two = second.get();
  } else {
    two = second.get();
    if (postgres() && !two.well()) well(*t2, "rollback");
    one = first.get();
  }
  const Answer& victim = one.well() ? two : one;
  EXPECT_NE(one.well(), two.well()) << text_of(one) << " / " << text_of(two);
  EXPECT_EQ(victim.kind, Kind::deadlock) << text_of(victim);
  EXPECT_EQ(victim.code, postgres() ? "40P01" : "1213");
}

TEST_P(OnMysqlLike, a_deadlock_of_names) {
  const auto t1 = connect("T1"), t2 = connect("T2");
  well(*t1, "select get_lock('a', 0)");
  well(*t2, "select get_lock('b', 0)");
  auto first = start(*t1, "select get_lock('b', 30)");
  ASSERT_EQ(blockers("T1"), Names{"T2"});
  const Answer second = t2->execute("select get_lock('a', 30)");
  EXPECT_EQ(second.kind, Kind::deadlock) << text_of(second);
  EXPECT_EQ(second.code, mysql() ? "3058" : "1213");
  well(*t2, "select release_lock('b')");
  EXPECT_TRUE(first.get().well());
}

TEST_P(OnEngine, a_time_limit_that_passes) {
  const auto t1 = connect("T1"), t2 = connect("T2");
  take(*t1, 1);
  well(*t2, postgres() ? "set lock_timeout = '200ms'"
            : sqlite() ? "pragma busy_timeout = 200"
                       : "set session innodb_lock_wait_timeout = 1");
  const auto begin = Clock::now();
  const Answer late = t2->execute("update t set v = 0 where id = 1");
  EXPECT_EQ(late.kind, Kind::timeout) << text_of(late);
  EXPECT_EQ(late.code, postgres() ? "55P03" : sqlite() ? "5" : "1205");
  EXPECT_GE(Clock::now() - begin, 190ms);
  if (mariadb()) {
    const Answer stopped = t2->execute("set statement max_statement_time=0.2 for update t set v = 0 where id = 1");
    EXPECT_EQ(stopped.kind, Kind::timeout) << text_of(stopped);
    EXPECT_EQ(stopped.code, "1969");
  }
  if (postgres()) {
    well(*t2, "set lock_timeout = 0");
    well(*t2, "set statement_timeout = '200ms'");
    const Answer stopped = t2->execute("update t set v = 0 where id = 1");
    EXPECT_EQ(stopped.kind, Kind::timeout) << text_of(stopped);
    EXPECT_EQ(stopped.code, "57014");
  }
}

TEST_P(OnEngine, a_statement_that_is_not_to_wait) {
  const auto t1 = connect("T1"), t2 = connect("T2");
  take(*t1, 1);
  if (sqlite()) {
    well(*t2, "PRAGMA busy_timeout=0;");
    const Answer busy = t2->execute("update t set v = 0 where id = 1");
    EXPECT_EQ(busy.kind, Kind::busy) << text_of(busy);
    EXPECT_EQ(busy.code, "5");
    return;
  }
  const Answer busy = t2->execute("select * from t where id = 1 for update nowait");
  EXPECT_EQ(busy.kind, Kind::busy) << text_of(busy);
  EXPECT_EQ(busy.code, mysql() ? "3572" : mariadb() ? "1205" : "55P03");
  if (mariadb()) {
    well(*t2, "set session innodb_lock_wait_timeout = 0");
    const Answer again = t2->execute("update t set v = 0 where id = 1");
    EXPECT_EQ(again.kind, Kind::busy) << text_of(again);
  }
}

TEST_P(OnOneThatAsksAgain, a_transaction_that_has_to_be_run_again) {
  const auto t1 = connect("T1"), t2 = connect("T2");
  if (sqlite()) run("pragma journal_mode = wal");
  if (mariadb()) well(*t1, "set session innodb_snapshot_isolation = 1");
  well(*t1, postgres() ? "begin isolation level repeatable read" : "begin");
  well(*t1, "select * from t");
  well(*t2, "update t set v = 0 where id = 1");
  const Answer again = t1->execute("update t set v = 1 where id = 1");
  EXPECT_EQ(again.kind, Kind::serialization) << text_of(again);
  EXPECT_EQ(again.code, postgres() ? "40001" : sqlite() ? "517" : "1020");
}

// --- ends ---------------------------------------------------------------------------------------------------------

TEST_P(OnEngine, an_interrupted_wait_ends_within_a_second_and_leaves_nothing) {
  const auto t1 = connect("T1"), t3 = connect("T3");
  auto t2 = connect("T2");
  take(*t1, 1);
  auto answer = start(*t2, "update t set v = 0 where id = 1");
  ASSERT_EQ(blockers("T2"), Names{"T1"});
  const auto begin = Clock::now();
  t2->interrupt();
  EXPECT_TRUE(fails_with(ErrorKind::lost, [&] { answer.get(); }));
  EXPECT_LT(Clock::now() - begin, 1s + 5s) << "a second, and what a machine that stalls adds";
  EXPECT_TRUE(fails_with(ErrorKind::lost, [&] { t2->execute("select 1"); }));
  t2->interrupt();  // harmless
  // And at the server it waits no more.
  EXPECT_TRUE(eventually([&] { return database().look().wait_of("T2") == nullptr; }));
  t2.reset();
  well(*t1, "commit");
  EXPECT_EQ(well(*t3, "update t set v = 5 where id = 1").affected, 1u);
}

TEST_P(OnEngine, an_idle_session_can_be_interrupted_too) {
  const auto t1 = connect("T1"), t2 = connect("T2");
  take(*t1, 1);
  t1->interrupt();
  EXPECT_TRUE(fails_with(ErrorKind::lost, [&] { t1->execute("select 1"); }));
  if (!sqlite()) {  // there, when it is closed
    EXPECT_TRUE(well(*t2, "update t set v = 5 where id = 1").well());
  }
}

TEST_P(OnServer, a_session_that_the_server_ended_is_lost) {
  const auto t1 = connect("T1"), t2 = connect("T2");
  const std::string id =
      well(*t1, postgres() ? "select pg_backend_pid()" : "select connection_id()").rows.front().front().value();
  well(*t2, postgres() ? "select pg_terminate_backend(" + id + ")" : "kill " + id);
  EXPECT_TRUE(fails_with(ErrorKind::lost, [&] {
    for (int i = 0; i < 1000; ++i) t1->execute("select 1");  // it may have been asked before it was ended
  }));
}

// --- the room -----------------------------------------------------------------------------------------------------

TEST_P(OnEngine, the_room_is_made_anew_and_dropped) {
  run("create table left_over (a int)");
  setup_.reset();
  database().make_room(1s);
  setup_ = connect("setup");
  EXPECT_FALSE(setup_->execute("select * from left_over").well());
  setup_.reset();
  database().clear_room();
  database().clear_room();  // harmless
  EXPECT_TRUE(is_gone(database()));
}

TEST_P(OnEngine, a_second_run_waits_for_the_first) {
  setup_.reset();
  const auto second = open();
  EXPECT_TRUE(fails_with(
      ErrorKind::busy, [&] { second->make_room(100ms); }, "another run"));
  auto made = std::async(std::launch::async, [&] { second->make_room(20s); });
  EXPECT_EQ(made.wait_for(200ms), std::future_status::timeout);
  database().clear_room();
  EXPECT_FALSE(error_of([&] { made.get(); }).has_value());
  EXPECT_TRUE(fails_with(ErrorKind::busy, [&] { database().make_room(0s); }));
  second->clear_room();
  database().make_room(0s);
}

TEST_P(OnEngine, a_room_of_somebody_else_is_refused_and_left_alone) {
  run("drop table " + marker);
  setup_.reset();
  EXPECT_TRUE(fails_with(
      ErrorKind::incompatible, [&] { database().make_room(1s); }, "has not made"));
  database_.reset();
  database_ = open();
  EXPECT_TRUE(fails_with(
      ErrorKind::incompatible, [&] { database().make_room(1s); }, "has not made"));
  if (sqlite()) {
    EXPECT_TRUE(std::filesystem::exists(folder_ + "/hierlock_lab.db"));
    return;
  }
  setup_ = connect("setup");
  EXPECT_EQ(run("select id from t where id = 1").rows, (std::vector<Row>{{"1"}}));
  run(postgres() ? "drop schema hierlock_lab cascade" : "drop database hierlock_lab");
}

TEST_P(OnEngine, what_a_killed_run_left_goes) {
  setup_.reset();
  database_.reset();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto theirs = open();
    theirs->make_room(20s);
    const auto t1 = theirs->connect("T1"), t2 = theirs->connect("T2");
    t1->execute("create table left_over (a int primary key)");
    t1->execute("insert into left_over values (1)");
    t1->execute("begin");
    t1->execute("update left_over set a = 2");
    std::thread([&] { t2->execute("update left_over set a = 3"); }).detach();
    while (theirs->look().wait_of("T2") == nullptr) std::this_thread::sleep_for(1ms);
    (void)!write(ready[1], "x", 1);
    for (;;) pause();
  }
  char x = 0;
  EXPECT_EQ(read(ready[0], &x, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  const auto begin = Clock::now();
  database_ = open();
  database().make_room(20s);
  EXPECT_LT(Clock::now() - begin, 15s);
  setup_ = connect("setup");
  EXPECT_FALSE(setup_->execute("select * from left_over").well());
  EXPECT_TRUE(database().look().waits.empty());
}

// --- what only one of them has ------------------------------------------------------------------------------------

class OnSqlite : public OnEngine {};

TEST_P(OnSqlite, a_file_of_its_own_is_removed_with_its_folder) {
  const auto own = open_database("sqlite:");
  own->make_room(1s);
  const std::string file = well(*own->connect("T1"), "select file from pragma_database_list where name = 'main'")
                               .rows.front()
                               .front()
                               .value();
  EXPECT_TRUE(std::filesystem::exists(file));
  const auto other = open_database("sqlite:");
  other->make_room(0s);  // two of these do not meet
  own->clear_room();
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(file).parent_path()));
  EXPECT_TRUE(fails_with(ErrorKind::not_provisioned, [&] { own->connect("T2"); }));
}

TEST_P(OnSqlite, a_file_that_an_outsider_locked) {
  const auto t1 = connect("T1");
  const auto elsewhere = fork();
  if (elsewhere == 0) {  // in another process, where the file's locks are others
    execlp("python3", "python3", "-c",
           "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\nc.execute('begin immediate')\n"
           "open(sys.argv[1] + '.locked', 'w').close()\nimport time\ntime.sleep(60)",
           (folder_ + "/hierlock_lab.db").c_str(), nullptr);
    _exit(127);
  }
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder_ + "/hierlock_lab.db.locked"); }));
  auto answer = start(*t1, "update t set v = 0");
  EXPECT_EQ(blockers("T1"), Names{"outsider"});
  kill(elsewhere, SIGKILL);
  waitpid(elsewhere, nullptr, 0);
  EXPECT_TRUE(answer.get().well());
}

TEST_P(OnSqlite, who_wants_everything_waits_for_those_who_read) {
  const auto t1 = connect("T1"), t2 = connect("T2");
  well(*t1, "begin");
  well(*t1, "select * from t");
  auto begins = start(*t2, "begin exclusive");
  EXPECT_EQ(blockers("T2"), Names{"T1"});
  well(*t1, "commit");
  EXPECT_TRUE(begins.get().well());
}

TEST_P(OnSqlite, a_reader_is_not_taken_for_the_blocker_of_a_writer) {
  run("pragma journal_mode = wal");
  const auto t1 = connect("T1"), t2 = connect("T2"), reader = connect("R");
  well(*reader, "begin");
  well(*reader, "select * from t");
  for (int i = 0; i < 50; ++i) {
    take(*t1, 1);
    auto waits = start(*t2, "update t set v = 0 where id = 1");
    ASSERT_EQ(blockers("T2"), Names{"T1"});
    well(*t1, "commit");
    const View view = database().look();
    EXPECT_TRUE(view.waits.empty()) << text_of(view);
    EXPECT_TRUE(waits.get().well());
  }
}

TEST_P(OnSqlite, a_read_keeps_the_others_commit_waiting_and_new_readers_out) {
  const auto t1 = connect("T1"), t2 = connect("T2"), t3 = connect("T3");
  well(*t1, "begin");
  well(*t1, "select * from t");
  take(*t2, 1);
  auto commits = start(*t2, "commit");
  EXPECT_EQ(blockers("T2"), Names{"T1"});
  auto reads = start(*t3, "select v from t where id = 1");
  EXPECT_EQ(blockers("T3"), Names{"T2"});
  well(*t1, "commit");
  EXPECT_TRUE(commits.get().well());
  EXPECT_EQ(reads.get().rows, (std::vector<Row>{{"11"}}));
}

class OnMysql : public OnEngine {};

TEST_P(OnMysql, locks_are_named_by_table_index_and_key_and_keep_their_modes) {
  run("create table s (id int primary key, name varchar(9), key by_name (name)) engine=innodb");
  run("insert into s values (1, 'a'), (5, 'e')");
  const auto t1 = connect("T1"), t2 = connect("T2");
  well(*t1, "begin");
  well(*t1, "select * from s where id >= 5 for update");
  well(*t1, "select * from s where name = 'a' for share");
  auto inserts = start(*t2, "insert into s values (9, 'z')");
  const std::optional<WaitSeen> wait = seen_waiting("T2");
  ASSERT_TRUE(wait.has_value());
  EXPECT_EQ(wait->object, "s(supremum)");
  EXPECT_EQ(wait->blockers, Names{"T1"});
  const View view = database().look();
  const auto has = [&](const LockSeen& wanted) {
    return std::any_of(view.locks.begin(), view.locks.end(), [&](const LockSeen& lock) {
      return lock.session == wanted.session && lock.object == wanted.object && lock.mode == wanted.mode &&
             lock.granted == wanted.granted;
    });
  };
  EXPECT_TRUE(has({"T1", "s", "IX", true})) << text_of(view);
  EXPECT_TRUE(has({"T1", "s(5)", "X,REC_NOT_GAP", true})) << text_of(view);
  EXPECT_TRUE(has({"T1", "s(supremum)", "X", true})) << text_of(view);
  EXPECT_TRUE(has({"T1", "s.by_name('a', 1)", "S", true})) << text_of(view);
  EXPECT_TRUE(has({"T2", "s(supremum)", "X,INSERT_INTENTION", false})) << text_of(view);
  well(*t1, "rollback");
  EXPECT_TRUE(inserts.get().well());
}

class OnPostgres : public OnEngine {};

TEST_P(OnPostgres, a_snapshot_that_has_to_be_safe_is_waited_for) {
  const auto t1 = connect("T1"), t2 = connect("T2");
  well(*t1, "begin isolation level serializable");
  well(*t1, "update t set v = 1 where id = 1");
  well(*t2, "begin isolation level serializable read only deferrable");
  auto reads = start(*t2, "select v from t where id = 2");
  EXPECT_EQ(blockers("T2"), Names{"T1"});
  well(*t1, "commit");
  EXPECT_TRUE(reads.get().well());
  EXPECT_TRUE(database().look().waits.empty());
}

TEST_P(OnPostgres, a_transaction_is_waited_for_as_a_whole) {
  const auto t1 = connect("T1"), t2 = connect("T2");
  take(*t1, 1);
  auto makes = start(*t2, "create index concurrently by_v on t (v)");
  EXPECT_EQ(blockers("T2"), Names{"T1"});
  well(*t1, "commit");
  EXPECT_TRUE(makes.get().well());
}

TEST_P(OnPostgres, advisory_locks_are_named_by_their_keys) {
  const auto t1 = connect("T1");
  well(*t1, "select pg_advisory_lock(-5), pg_advisory_lock(7, 8)");
  const View view = database().look();
  Names objects;
  for (const LockSeen& lock : view.locks) objects.push_back(lock.object);
  EXPECT_EQ(sorted(objects), (Names{"advisory -5", "advisory 7,8"})) << text_of(view);
}

INSTANTIATE_TEST_SUITE_P(, OnPostgres, testing::Values("POSTGRES"), [](const auto& engine) { return engine.param; });
INSTANTIATE_TEST_SUITE_P(, OnSqlite, testing::Values("SQLITE"), [](const auto& engine) { return engine.param; });
INSTANTIATE_TEST_SUITE_P(, OnMysql, testing::Values("MYSQL"), [](const auto& engine) { return engine.param; });

// --- rights -------------------------------------------------------------------------------------------------------

// A URL's user and password, replaced.
std::string as_user(const std::string& url, const std::string& user, const std::string& password) {
  const std::size_t begin = url.find("//") + 2;
  return url.substr(0, begin) + user + ":" + password + url.substr(url.find('@'));
}

class Rights : public OnEngine {
 protected:
  void SetUp() override {
    OnEngine::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    // Who is named alone may do anything, as in docker-compose.yml.
    const std::string named = variable("HIERLOCK_TEST_" + GetParam() + "_OPERATOR");
    operator_ = open_database(named.empty() ? url() : named);
    hands_ = operator_->connect("operator");
    setup_.reset();
    database_->clear_room();
    user_ = "lab_test_" + std::to_string(getpid());
    well(*hands_, postgres() ? "create role " + user_ + " login password 'secret'"
                             : "create user '" + user_ + "'@'%' identified by 'secret'");
  }
  void TearDown() override {
    if (hands_ != nullptr) well(*hands_, postgres() ? "drop role " + user_ : "drop user '" + user_ + "'@'%'");
    hands_.reset();
    operator_.reset();
    OnEngine::TearDown();
  }
  std::string database_name() const { return url().substr(url().rfind('/') + 1); }
  std::unique_ptr<Database> as_the_user() const { return open_database(as_user(url(), user_, "secret")); }

  std::unique_ptr<Database> operator_;
  std::unique_ptr<Connection> hands_;
  std::string user_;
};

TEST_P(Rights, that_are_missing_to_make_the_room_are_named) {
  const std::string grant =
      postgres() ? "GRANT CREATE ON DATABASE " + database_name() + " TO " + user_
                 : std::string("GRANT ALL ON `hierlock\\_lab") + (mysql() ? "" : "%") + "`.* TO '" + user_ + "'@'%'";
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { as_the_user()->make_room(1s); }, grant));
  well(*hands_, grant);
  as_the_user()->make_room(1s);
  if (postgres()) well(*hands_, "revoke create on database " + database_name() + " from " + user_);
}

TEST_P(Rights, a_wrong_password_is_denied) {
  const std::string wrong = as_user(url(), user_, "wrong");
  EXPECT_TRUE(fails_with(ErrorKind::denied, [&] { open_database(wrong); }));
}

TEST_P(Rights, a_password_file_may_have_lines_as_windows_writes_them) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("lab_password_" + std::to_string(getpid()));
  std::ofstream(file) << "secret\r\nnot this\r\n";
  const std::optional<Error> error =
      error_of([&] { open_database(as_user(url(), user_, "") + "?password_file=" + file.string()); });
  EXPECT_FALSE(error) << error->what();
  std::filesystem::remove(file);
}

class RightsToLook : public Rights {};

TEST_P(RightsToLook, that_are_missing_are_named) {
  well(*hands_, "GRANT ALL ON `hierlock\\_lab`.* TO '" + user_ + "'@'%'");
  const auto theirs = as_the_user();
  theirs->make_room(1s);
  const std::string grant =
      (mysql() ? "GRANT SELECT ON performance_schema.* TO '" : "GRANT PROCESS ON *.* TO '") + user_ + "'@'%'";
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { theirs->look(); }, grant));
  well(*hands_, grant);
  EXPECT_TRUE(as_the_user()->look().waits.empty());
}

INSTANTIATE_TEST_SUITE_P(, Rights, testing::Values("MYSQL", "MARIADB", "POSTGRES"),
                         [](const auto& engine) { return engine.param; });
INSTANTIATE_TEST_SUITE_P(, RightsToLook, testing::Values("MYSQL", "MARIADB"),
                         [](const auto& engine) { return engine.param; });

const auto by_name = [](const testing::TestParamInfo<std::string>& engine) { return engine.param; };
INSTANTIATE_TEST_SUITE_P(, OnEngine, testing::Values("MYSQL", "MARIADB", "POSTGRES", "SQLITE"), by_name);
INSTANTIATE_TEST_SUITE_P(, OnServer, testing::Values("MYSQL", "MARIADB", "POSTGRES"), by_name);
INSTANTIATE_TEST_SUITE_P(, OnMysqlLike, testing::Values("MYSQL", "MARIADB"), by_name);
INSTANTIATE_TEST_SUITE_P(, OnOneThatAsksAgain, testing::Values("MARIADB", "POSTGRES", "SQLITE"), by_name);

}  // namespace
}  // namespace hierlock::lab
