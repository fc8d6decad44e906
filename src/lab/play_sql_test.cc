// Scenarios of SQL that are played on real servers: each shows something that the lab once told wrong, or not at all.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <hierlock/lab.h>

#include "lab/database.h"
#include "lab/postgres_view.h"

namespace hierlock::lab {
namespace {

using namespace std::chrono_literals;
using Verdict = Result::Verdict;

class PlayOn : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (url().empty()) {
      GTEST_SKIP() << "HIERLOCK_TEST_" << GetParam() << " names no server: eval \"$(tools/servers env)\"";
    }
  }
  static std::string url() {
    const std::string name = "HIERLOCK_TEST_" + GetParam();
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? "" : value;
  }
  // As one who may do anything.
  static std::string operator_url() {
    const std::string name = "HIERLOCK_TEST_" + GetParam() + "_OPERATOR";
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? url() : value;
  }
  // A schema that is not the lab's.
  static std::string outside() {
    if (GetParam() == "POSTGRES") return "public";
    const std::string place = url().substr(0, url().find('?'));
    return place.substr(place.rfind('/') + 1);
  }
  static Result play(const std::string& lines, const std::string& at = url(), const RunOptions& options = {}) {
    return run(parse("scenario test\n" + lines), at, options);
  }
  static void passes(const std::string& lines, const std::string& at = url()) {
    const Result result = play(lines, at);
    EXPECT_TRUE(result.passed()) << lines << "\n" << result.message << "\n" << result.str();
  }
  // Also says at which line; lines count from 1, and the first is not the caller's.
  static void fails(const std::string& lines) {
    const Result result = play(lines);
    EXPECT_EQ(result.verdict, Verdict::failed) << lines << "\n" << result.message << "\n" << result.str();
  }
};

const std::string table = "setup create table t(id int primary key, v int)\nsetup insert into t values (1,0),(2,0)\n";

class PlayOnPostgres : public PlayOn {};
class PlayOnMysqlLike : public PlayOn {};

TEST_P(PlayOnPostgres, an_operator_of_hashes_does_not_hide_its_expectation) {
  passes("T1 a: select 5 # 3 => rows 6\nT1 b: select '{\"a\": 7}'::json #>> '{a}' => rows 7");
  fails("T1 a: select 5 # 3 => rows 999");
  fails("T1 a: select '{\"a\": 7}'::json #>> '{a}' => rows 8");
}

TEST_P(PlayOnPostgres, statements_are_sent_as_they_are_quoted) {
  passes(R"(
setup create function f(a int) returns int as $$
   | begin
   |   -- it's one more => ok
   |   return a + 1;
   | end $$ language plpgsql
T1 a: select $$it's$$, E'it\'s', $${1,2}$$::int[] => rows 'it''s','it''s','{1,2}'
T1 b: select 'x
y' => rows 'x\ny'
T1 c: select f(
   |   a => 1) => rows 2
T1 d:
T1 e: begin
T1 f: savepoint s
T1 g: release s => ok
T1 h: release s => error 3B001
)");
}

TEST_P(PlayOnMysqlLike, an_empty_step_sends_nothing) { passes("T1 a: => ok\nT1 b: select 1 => rows 1"); }

// --- what a failure was -------------------------------------------------------------------------------------------

TEST_P(PlayOnPostgres, what_was_asked_tells_busy_from_timeout) {
  const std::string held =
      table + "setup alter table t add nowait int\nT1 a: begin\nT1 b: update t set v = 1 where id = 1\n";
  passes(held + "T2 c: prepare p as select v from t where id = 1 for update nowait\nT2 d: execute p => busy");
  fails(held + "T2 c: prepare p as select v from t where id = 1 for update nowait\nT2 d: execute p => timeout");
  passes(held + "T2 c: {timeout 50ms}\nT2 d: select nowait from t where id = 1 for update => timeout");
  fails(held + "T2 c: {timeout 50ms}\nT2 d: select nowait from t where id = 1 for update => busy");
  passes(held + "T2 c: {timeout 50ms}\nT2 d: begin\nT2 e: lock table t in exclusive mode nowait => busy");
}

TEST_P(PlayOnMysqlLike, what_was_asked_tells_busy_from_timeout) {
  const std::string held =
      table + "setup alter table t add `nowait` int\nT1 a: begin\nT1 b: update t set v = 1 where id = 1\n";
  passes(held + "T2 c: prepare p from 'select v from t where id = 1 for update nowait'\nT2 d: execute p => busy");
  fails(held + "T2 c: prepare p from 'select v from t where id = 1 for update nowait'\nT2 d: execute p => timeout");
  // One play, because a timeout takes at least a second there.
  const Result wrong = play(held + "T2 c: {timeout 1s}\nT2 d: select t.nowait from t where id = 1 for update => busy");
  EXPECT_EQ(wrong.verdict, Verdict::failed) << wrong.str();
  ASSERT_FALSE(wrong.events.empty()) << wrong.message;
  EXPECT_EQ(wrong.events.back().actual, "timeout") << wrong.str();
}

TEST_P(PlayOnPostgres, a_cancel_by_another_session_is_no_timeout) {
  const std::string steps = table +
                            "setup create table who(pid int)\nT2 a: insert into who values (pg_backend_pid())\n"
                            "T1 b: begin\nT1 c: update t set v = 1 where id = 1\n"
                            "T2 d: update t set v = 2 where id = 1 => blocked by T1\n";
  passes(steps + "T1 e: select pg_cancel_backend(pid) from who => rows t, unblocks T2 (cancelled)");
  fails(steps + "T1 e: select pg_cancel_backend(pid) from who => rows t, unblocks T2 (timeout)");
  passes(table + "T1 a: set statement_timeout = 50\nT1 b: select pg_sleep(20) => timeout");
  fails(table + "T1 a: set statement_timeout = 50\nT1 b: select pg_sleep(20) => cancelled");
}

TEST_P(PlayOnMysqlLike, a_cancel_by_another_session_is_no_timeout) {
  const std::string steps = table +
                            "setup create table who(id int)\nT2 a: insert into who values (connection_id())\n"
                            "T1 b: begin\nT1 c: update t set v = 1 where id = 1\n"
                            "T2 d: update t set v = 2 where id = 1 => blocked by T1\n"
                            "T1 e: select concat('kill query ', id) from who into @kill\nT1 f: prepare p from @kill\n";
  passes(steps + "T1 g: execute p => ok, unblocks T2 (cancelled)");
  fails(steps + "T1 g: execute p => ok, unblocks T2 (timeout)");
}

// --- who is waited for --------------------------------------------------------------------------------------------

TEST_P(PlayOnPostgres, a_wait_for_a_toast_table_is_seen) {
  passes(R"(
setup create table t(id int primary key, v text)
setup alter table t alter v set storage external
T1 a: begin
T1 b: insert into t values (1, repeat('x', 100000))
T2 c: do $$ begin execute 'reindex table ' || (select reltoastrelid::regclass from pg_class where relname = 't'); end $$ \
      => blocked by T1
T1 d: commit => ok, unblocks T2
)",
         operator_url());
}

TEST_P(PlayOnPostgres, a_wait_of_a_parallel_worker_is_its_sessions) {
  passes(R"(
setup create table t as select x from generate_series(1, 100) x
setup create function f(int) returns int as 'select pg_advisory_xact_lock_shared(7); select 1' language sql parallel safe
T1 a: select pg_advisory_lock(7)
T2 b: set parallel_setup_cost = 0
T2 c: set parallel_tuple_cost = 0
T2 d: set min_parallel_table_scan_size = 0
T2 e: set parallel_leader_participation = off
T2 f: select sum(f(x)) from t => blocked by T1
T1 g: select pg_advisory_unlock(7) => rows t, unblocks T2 (rows 100)
)");
}

TEST_P(PlayOnPostgres, a_prepared_transaction_can_be_waited_for) {
  if (play("T1 a: select setting <> '0' from pg_settings where name = 'max_prepared_transactions' => rows f")
          .passed()) {
    // ./test counts these words apart (tests/support/not_applicable.h). A server of tools/servers prepares some.
    ASSERT_EQ(std::getenv("HIERLOCK_TEST_POSTGRES_PID"), nullptr);
    GTEST_SKIP() << "not applicable: this server prepares no transactions (max_prepared_transactions=0)";
  }
  const std::string steps = table +
                            "T1 a: begin\nT1 b: update t set v = 1 where id = 1\nT1 c: prepare transaction 'lab_p'\n"
                            "T2 d: update t set v = 2 where id = 1 => ";
  passes(steps + "blocked by prepared\nT1 e: commit prepared 'lab_p' => ok, unblocks T2");
  fails(steps + "blocked by T1\nT1 e: commit prepared 'lab_p'");
  // What these have left behind is nobody's concern.
  passes(steps + "blocked by prepared");
  passes(table + "T1 a: begin\nT1 b: create table more(a int)\nT1 c: prepare transaction 'lab_p'\n");
  passes(table + "T1 a: select count(*) from pg_prepared_xacts where gid = 'lab_p' => rows 0");
  // One that has dropped a function has no lock on a table.
  passes(
      "setup create function f() returns int language sql as 'select 1'\nT1 a: begin\nT1 b: drop function f()\n"
      "T1 c: prepare transaction 'lab_p'");
  passes("T1 a: select count(*) from pg_prepared_xacts where gid = 'lab_p' => rows 0");
}

// A wait for one of them is not told (postgres_view.h). The operator sees what each process is, the application's user
// only that it has no user.
TEST_P(PlayOnPostgres, the_servers_own_processes_have_no_user) {
  const auto by_operator = open_database(operator_url()), by_application = open_database(url());
  const auto all = by_operator->connect("all"), application = by_application->connect("T1");
  const Answer processes = all->execute(
      "select pid, backend_type from pg_stat_activity where backend_type in ('client backend', 'autovacuum launcher', "
      "'autovacuum worker', 'checkpointer', 'walwriter')");
  ASSERT_TRUE(processes.well()) << processes.message;
  std::set<std::string> kinds;
  for (const Row& process : processes.rows) {
    const std::string kind = process[1].value_or("");
    const Answer seen = application->execute("select " + std::string(of_the_server) +
                                             " from pg_stat_activity a where pid = " + process[0].value_or(""));
    ASSERT_TRUE(seen.well()) << seen.message;
    if (seen.rows.empty()) continue;  // ended in between
    EXPECT_EQ(seen.rows[0][0], kind == "client backend" ? "f" : "t") << kind;
    kinds.insert(kind);
  }
  EXPECT_TRUE(kinds.contains("autovacuum launcher"));
  EXPECT_TRUE(kinds.contains("client backend")) << "these two, at least";
}

// --- the lab's schema ---------------------------------------------------------------------------------------------

TEST_P(PlayOnPostgres, a_session_that_is_reset_is_still_in_the_labs_schema) {
  passes(
      table +
      "T1 a: reset all\nT1 b: create table u(a int)\nT1 c: discard all\nT1 d: create table w(a int)\n"
      "check select count(*) from pg_tables where schemaname = 'hierlock_lab' and tablename in ('u', 'w') => rows 2");
}

TEST_P(PlayOnPostgres, another_role_may_use_the_labs_schema) {
  passes(
      "setup create role lab_other\nsetup grant lab_other to current_user\n"
      "T1 a: set role lab_other\nT1 b: create table u(a int)\nT1 c: select count(*) from u => rows 0\nT1 d: reset "
      "role\n"
      "teardown drop owned by lab_other\nteardown drop role lab_other",
      operator_url());
}

TEST_P(PlayOnPostgres, a_schema_that_cannot_be_dropped_is_told_with_the_statement) {
  const auto stranger = open_database(operator_url());
  const auto database = open_database(url());
  database->make_room(20s);
  {
    // Somebody else's table in the lab's schema, and a transaction that holds it.
    const auto other = stranger->connect("other");
    ASSERT_TRUE(other->execute("create table others(a int)").well());
    ASSERT_TRUE(other->execute("create view public.lab_view as select * from hierlock_lab.others").well());
    ASSERT_TRUE(other->execute("begin").well());
    ASSERT_TRUE(other->execute("lock table public.lab_view").well());
    try {
      database->make_room(1s);
      ADD_FAILURE() << "it succeeds";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("DROP SCHEMA IF EXISTS hierlock_lab CASCADE"), std::string::npos)
          << error.what();
    }
    ASSERT_TRUE(other->execute("rollback").well());
    ASSERT_TRUE(other->execute("drop view public.lab_view").well());
    ASSERT_TRUE(other->execute("drop table others").well());
  }
  database->make_room(20s);
}

// --- words --------------------------------------------------------------------------------------------------------

TEST_P(PlayOnPostgres, each_form_of_an_expectation_holds_and_a_wrong_one_does_not) {
  const std::string held =
      table +
      "T1 a: begin\nT1 b: update t set v = 1 where id = 1\nT3 c: begin\nT3 d: update t set v = 1 where id = 2\n";
  const std::string waits = held + "T2 e: update t set v = 2 where id = 1 => ";
  const std::string gives_up = held + "T2 e: {timeout 300ms}\nT2 f: update t set v = 2 where id = 1 => ";
  const std::string twice = table + "T1 a: select v from t; update t set v = 5; select 7 => ";
  const std::string says = "T1 a: do $$ begin raise notice 'it''s %', 1; raise warning 'two'; end $$ => ";
  const std::string hears = "T1 a: listen ch\nT2 b: notify ch, 'x'\nT1 c: select 1 => ";
  const std::string breaks = table + "T1 a: insert into t values (1, 1) => ";
  const struct {
    std::string steps;
    std::vector<std::string> right, wrong;
  } all[] = {
      {waits,
       {"blocked", "blocked by T1", "blocked by T1 or T3", "ok or blocked by T1", "blocked by T3 or blocked"},
       {"blocked by T3", "blocked by T2 or T3", "blocked by T1, T3", "ok or timeout or blocked by T3", "ok"}},
      {gives_up,
       {"blocked by T1, then timeout", "blocked, then ok or timeout", "timeout", "ok or timeout", "error",
        "blocked by T1 or T3, then error 55P03 'lock timeout'"},
       {"blocked by T3, then timeout", "blocked by T1, then busy", "blocked by T1, then ok or serialization",
        "blocked by T1, then error 'deadlock'", "ok or busy"}},
      {held + "T2 e: select 1 => ", {"ok or timeout"}, {"blocked", "blocked, then timeout", "error", "error 'x'"}},
      {breaks,
       {"error", "error 23505", "error 'duplicate key'", "error 23505 'duplicate'", "ok or error"},
       {"error 23506", "error 'no such'", "error 23505 'no such'", "error 1 'duplicate'", "ok or serialization"}},
      {table + "T1 a: select id from t order by id => ",
       {"rows 1; 2", "rows in any order: 2; 1", "rows 2; 1 or rows 1; 2"},
       {"rows 2; 1", "rows in any order: 2; 2", "rows in any order: 1", "rows 2 or rows 1", "rows 1; 2 and rows 3"}},
      {twice,
       {"rows 0; 0 and affected 2 and rows 7", "rows 0; 0 and rows 7", "ok"},
       {"rows 7", "rows 0; 0", "rows 0; 0 and affected 2", "rows 0; 0 and affected 2 and rows 8",
        "rows 0; 0 and affected 1 and rows 7", "rows 0; 0 and rows 8", "rows 0; 0 and rows 7 and rows 7"}},
      {says,
       {"ok", "ok, notice 'it''s 1', notice 'two'", "ok, notice 's 1', notice ''"},
       {"ok, notice 'it''s 1'", "ok, notice 'two', notice 'it''s 1'", "ok, notice 'it''s 2', notice 'two'",
        "ok, notify ch 'x'", "error"}},
      {hears,
       {"rows 1, notify ch 'x'", "rows 1"},
       {"rows 1, notify ch 'y'", "rows 1, notify other 'x'", "rows 1, notify ch 'x', notify ch 'x'",
        "rows 1, notice 'x'", "rows 2, notify ch 'x'"}},
  };
  for (const auto& one : all) {
    for (const std::string& right : one.right) passes(one.steps + right);
    for (const std::string& wrong : one.wrong) fails(one.steps + wrong);
  }
}

TEST_P(PlayOnMysqlLike, each_result_of_a_call_is_expected) {
  const std::string lines = table +
                            "setup create procedure p() begin select 1; select 2; end\n"
                            "T1 a: call p() => ";
  passes(lines + "rows 1 and rows 2");
  fails(lines + "rows 2");
  fails(lines + "rows 1 and rows 3");
}

TEST_P(PlayOnPostgres, a_setup_line_of_a_session_is_no_choice_of_permute) {
  const std::string lines = table +
                            "setup T1: begin\nsetup T1: update t set v = 1 where id = 1\n"
                            "T1 a: commit\nT2 b: select v from t where id = 1\n";
  passes(lines + "check select v from t where id = 1 => rows 1");
  const Permuted all = permute(parse("scenario test\n" + lines), url());
  EXPECT_EQ(all.schedules, 2u) << all.str();
  ASSERT_EQ(all.classes.size(), 2u) << all.str();  // only what T2 has read tells them apart
  EXPECT_EQ(all.classes[0].outcome, "b rows 1");
  EXPECT_EQ(all.classes[1].outcome, "b rows 0");
}

// Two doctors, of whom one must be on call: each sees the other, and leaves.
TEST_P(PlayOnPostgres, pinning_begin_hides_no_anomaly) {
  const Permuted all = permute(parse(R"(scenario write skew
setup create table doctor(name text primary key, on_call bool)
setup insert into doctor values ('a', true), ('b', true)
T1 a: begin repeatable read
T1 b: update doctor set on_call = false where name = 'a' and (select count(*) from doctor where on_call) > 1
T1 c: commit
T2 d: begin repeatable read
T2 e: update doctor set on_call = false where name = 'b' and (select count(*) from doctor where on_call) > 1
T2 f: commit
check select count(*) from doctor where on_call
)"),
                               url(), {.pin = true});
  EXPECT_EQ(all.schedules, 6u) << all.str();
  const auto says = [&](const std::string& what) {
    return std::any_of(all.classes.begin(), all.classes.end(),
                       [&](const auto& one) { return one.outcome.find(what) != std::string::npos; });
  };
  EXPECT_TRUE(says("check rows 0")) << all.str();
  EXPECT_TRUE(says("check rows 1")) << all.str();
}

TEST_P(PlayOn, each_order_of_a_file_is_played_with_its_own_expectations) {
  const Scenario file = parse(R"(scenario orders
setup create table t(id int primary key, v int)
setup insert into t values (1,0)
T1 a: begin
T1 b: update t set v = 1 where id = 1
T1 c: commit
T2 d: update t set v = v + 10 where id = 1
order one waits
a
b
d => blocked by T1
c => ok, unblocks T2 (affected 1)
check select v from t => rows 11
order one after the other
d
a
b
c
check select v from t => rows 1
order wrong
d
a
b
c
check select v from t => rows 11
)");
  const std::vector<Scenario> orders = file.orders();
  ASSERT_EQ(orders.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const Result result = run(orders[i], url());
    EXPECT_EQ(result.verdict, i < 2 ? Verdict::passed : Verdict::failed) << result.str();
  }
  EXPECT_EQ(run(file, url()).verdict, Verdict::error);
}

// --- setup and teardown -------------------------------------------------------------------------------------------

TEST_P(PlayOn, a_setup_that_fails_is_an_error_with_the_engines_text) {
  const Result result =
      play("setup create table t(id int)\nsetup insert into no_such_table values (1)\nT1 a: select 1");
  EXPECT_EQ(result.verdict, Verdict::error) << result.message;
  EXPECT_NE(result.message.find("no_such_table"), std::string::npos) << result.message;
  EXPECT_NE(result.message.find(":3: "), std::string::npos) << result.message;
}

TEST_P(PlayOn, teardown_lines_run_also_after_a_failure) {
  // A table outside of the lab's schema, which only teardown removes.
  const std::string other = outside() + ".lab_leftover";
  const std::string lines = "setup create table " + other + "(a int)\nT1 a: begin\nT1 b: insert into " + other +
                            " values (1)\nT1 c: select count(*) from " + other + " => rows ";
  const std::string teardown = "\nteardown drop table " + other;
  passes(lines + "1" + teardown);
  fails(lines + "2" + teardown);
  passes(lines + "1" + teardown);
  const Result wrong = play("T1 a: select 1\nteardown drop table " + other);
  EXPECT_EQ(wrong.verdict, Verdict::error) << wrong.message;
  EXPECT_NE(wrong.message.find("lab_leftover"), std::string::npos) << wrong.message;
}

TEST_P(PlayOn, teardown_lines_of_a_killed_run_are_made_up_for_by_the_next) {
  const std::string other = outside() + ".lab_leftover";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    RunOptions options;
    options.on_event = [&](const Event& event) {
      if (event.name != "b") return;
      (void)!write(ready[1], "x", 1);
      for (;;) pause();
    };
    play("setup create table " + other + "(a int)\nT1 a: select 'it''s\\n'\nT1 b: select 2\nteardown drop table " +
             other,
         url(), options);
    _exit(0);
  }
  char x = 0;
  EXPECT_EQ(read(ready[0], &x, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  passes("setup create table " + other + "(a int)\nT1 a: select 1\nteardown drop table " + other);
}

INSTANTIATE_TEST_SUITE_P(, PlayOn, testing::Values("MYSQL", "MARIADB", "POSTGRES"),
                         [](const auto& engine) { return engine.param; });
INSTANTIATE_TEST_SUITE_P(, PlayOnPostgres, testing::Values("POSTGRES"),
                         [](const auto& engine) { return engine.param; });
INSTANTIATE_TEST_SUITE_P(, PlayOnMysqlLike, testing::Values("MYSQL", "MARIADB"),
                         [](const auto& engine) { return engine.param; });

}  // namespace
}  // namespace hierlock::lab
