// A Runner uses its connections and its schema again, and nothing of one scenario is left to the next.
#include "lab/session_reuse.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <hierlock/lab.h>

#include "lab/database.h"

namespace hierlock::lab {
namespace {

TEST(SessionReuse, a_text_that_may_outlive_a_reset_is_found) {
  for (const std::string sql : {"set my.name = 1",
                                "SET LOCAL my . name TO 1",
                                "set session a.b = 1",
                                "show plpgsql.extra_errors",
                                "select set_config('a', 'b', false)",
                                "select current_setting('a.b', true)",
                                "load 'auto_explain'",
                                "do $$ begin set my.x = 1; end $$",
                                "do $$ begin execute 'se' || 't my.x = 1'; end $$",
                                "create function f() returns void as 'begin execute $1; end' language plpgsql",
                                "set \"my.name\" = 1",
                                "create extension dblink",
                                "select pg_create_logical_replication_slot('s', 'o', true)",
                                "create\nfunction f() returns int as 'x' language plperl",
                                "set /* c */ my.v = 1",
                                "set -- c\n my.v = 1",
                                "set U&\"my.v\" = 1",
                                "alter role current_user set default_transaction_isolation = 'serializable'",
                                "ALTER\nDATABASE d SET lock_timeout = 1",
                                "alter system set deadlock_timeout = 1"}) {
    EXPECT_TRUE(may_outlive_a_reset(sql, "postgres")) << sql;
  }
  for (const std::string sql :
       {"update t set v = 1", "set work_mem = '1MB'", "set role other", "prepare p as select 1; execute p",
        "create table t(id int, payload text)", "create temp table t(id int references u)",
        "create trigger g before insert on t for each row execute function f()", "reset all", "show work_mem",
        "insert into t values ('a.b')", "alter table t add foreign key (a) references u"}) {
    EXPECT_FALSE(may_outlive_a_reset(sql, "postgres")) << sql;
  }
}

TEST(SessionReuse, a_statement_that_changes_settings_is_found) {
  for (const std::string sql : {"set work_mem = 1", "begin; SET LOCAL work_mem = 1", "do $$ begin set a = 1; end $$",
                                "create function f() returns void as 'set work_mem = 1' language sql",
                                "do $x$ begin if true then set a = 1; end if; end $x$", " \n set role x"}) {
    EXPECT_TRUE(may_change_settings(sql)) << sql;
  }
  for (const std::string sql : {"update t set v = 1", "insert into t values (1) on conflict do update set v = 1",
                                "select 1", "alter table t set (fillfactor = 10)"}) {
    EXPECT_FALSE(may_change_settings(sql)) << sql;
  }
}

class ReuseOnPostgres : public testing::Test {
 protected:
  void SetUp() override {
    if (url().empty()) GTEST_SKIP() << "HIERLOCK_TEST_POSTGRES names no server: eval \"$(tools/servers env)\"";
  }
  static std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  }
  static std::string url() { return variable("HIERLOCK_TEST_POSTGRES"); }
  // As one who may do anything.
  static std::string operator_url() {
    const std::string named = variable("HIERLOCK_TEST_POSTGRES_OPERATOR");
    return named.empty() ? url() : named;
  }
  static Scenario scenario(const std::string& lines) { return parse("scenario test\n" + lines); }
  static void passes(Runner& runner, const std::string& lines) {
    const Result result = runner.run(scenario(lines));
    EXPECT_TRUE(result.passed()) << lines << "\n" << result.message << "\n" << result.str();
  }
  // The backends of two sessions.
  static std::set<std::string> backends(Runner& runner) {
    const Result result = runner.run(scenario("T1 a: select pg_backend_pid()\nT2 b: select pg_backend_pid()"));
    EXPECT_TRUE(result.passed()) << result.message;
    std::set<std::string> found;
    for (const Event& event : result.events) found.insert(event.actual);
    return found;
  }

  // What must be as at the beginning, of a session and of the schema. It passes only in a new one.
  inline static const std::string probe = R"(
P p1: select session_user = current_user and session_user = usename from pg_stat_activity
     | where pid = pg_backend_pid() => rows t
P p2: select count(*) from pg_prepared_statements => rows 0
P p3: select count(*) from pg_cursors => rows 0
P p4: select count(*) from pg_listening_channels() => rows 0
P p5: select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory' => rows 0
P p6: select pg_my_temp_schema() => rows 0
P p7: select count(*) from pg_settings where source = 'session' => rows 0
P p8: select pg_current_xact_id_if_assigned() is null => rows t
P p9: select count(*) from pg_prepared_xacts where gid like 'lab left%' => rows 0
P p10: select count(*) from pg_depend where refclassid = 'pg_namespace'::regclass
     | and refobjid = 'hierlock_lab'::regnamespace => rows 1
P p11: select position(',=UC/' in nspacl::text) > 0 from pg_namespace where nspname = 'hierlock_lab' => rows t
P p12: select lastval() => error 55000
)";

  struct Trace {
    std::string what, statements;  // of the session P, each on a line `P …`
  };
  inline static const std::vector<Trace> traces = {
      {"a setting", "P a: set work_mem = '1MB'"},
      {"a level", "P a: {level serializable}"},
      {"a role", "P a: set role pg_monitor"},
      {"a session's account", "P a: set session authorization pg_monitor"},
      {"a prepared statement", "P a: prepare p as select 1"},
      {"a cursor", "P a: declare c cursor with hold for select 1"},
      {"a channel", "P a: listen news"},
      {"an advisory lock", "P a: select pg_advisory_lock(4711)"},
      {"a temporary table", "P a: create temp table left_over(a int)"},
      {"an open transaction", "P a: begin\nP b: create table left_over(a int)"},
      {"a failed transaction", "P a: begin\nP b: select 1/0 => error"},
      {"a prepared transaction", "P a: begin\nP b: create table left_over(a int)\nP c: prepare transaction 'lab left'"},
      {"a sequence", "P a: create sequence s\nP b: select nextval('s') => rows 1"},
      {"a table", "P a: create table left_over(a serial primary key)"},
      {"a function", "P a: create function f(int) returns int as 'select 1' language sql"},
      {"a procedure", "P a: create procedure f() as 'select 1' language sql"},
      {"an aggregate", "P a: create aggregate g(int) (sfunc = int4pl, stype = int)"},
      {"types", "P a: create type e as enum ('a')\nP b: create domain d as int\nP c: create type r as (a e)"},
      {"views", "P a: create view v as select 1 as a\nP b: create materialized view m as select * from v"},
      {"an operator",
       "P a: create function f(int, int) returns int as 'select 1' language sql\n"
       "P b: create operator ## (leftarg = int, rightarg = int, function = f)"},
      {"a collation", "P a: create collation c from \"C\""},
      {"the schema's rights", "P a: revoke all on schema hierlock_lab from public"},
      {"rights of objects to come",
       "P a: alter default privileges in schema hierlock_lab grant select on tables to public"},
      {"another schema of the name",
       "P a: drop schema hierlock_lab cascade\nP b: create schema hierlock_lab\nP c: create table "
       "hierlock_lab.made_by_hierlock_lab(a int)"},
  };
};

TEST_F(ReuseOnPostgres, connections_are_used_again) {
  Runner runner(url());
  const std::set<std::string> first = backends(runner);
  EXPECT_EQ(first.size(), 2u);
  const std::set<std::string> second = backends(runner), third = backends(runner);
  // The lab's own session had a third connection, which may be anybody's next.
  std::set<std::string> all = first;
  all.insert(second.begin(), second.end());
  all.insert(third.begin(), third.end());
  EXPECT_LE(all.size(), 3u);
}

TEST_F(ReuseOnPostgres, nothing_is_left_to_the_next_scenario) {
  Runner runner(operator_url());
  passes(runner, probe);
  for (const Trace& trace : traces) {
    SCOPED_TRACE(trace.what);
    passes(runner, trace.statements);
    passes(runner, probe);
  }
}

// Otherwise the test above would show nothing.
TEST_F(ReuseOnPostgres, the_probe_finds_each_trace_in_the_same_session) {
  Runner runner(operator_url());
  for (const Trace& trace : traces) {
    const Result result = runner.run(scenario(trace.statements + probe));
    EXPECT_EQ(result.verdict, Result::Verdict::failed) << trace.what << "\n" << result.str();
  }
}

TEST_F(ReuseOnPostgres, a_setting_that_the_server_does_not_know_is_not_left_either) {
  Runner runner(url());
  const std::string asks = "P z: select current_setting('lab.rest', true) is null => rows t";
  passes(runner, "P a: set lab.rest = 'x'");
  passes(runner, asks);
  passes(runner, "P a: do $$ begin perform set_config('lab.' || 'rest', 'x', false); end $$");
  passes(runner, asks);
}

TEST_F(ReuseOnPostgres, chance_begins_anew) {
  Runner runner(url());
  const auto drawn = [&](const std::string& first) {
    const Result result = runner.run(scenario(first + "P b: select random()"));
    EXPECT_TRUE(result.passed()) << result.message;
    return result.events.back().actual;
  };
  const std::string seed = "P a: select setseed(0.5)\n";
  EXPECT_EQ(drawn(seed), drawn(seed));
  const std::string after = drawn("");
  drawn(seed);
  EXPECT_NE(after, drawn(""));
}

// The schema and the connections are another run's while nothing is played.
TEST_F(ReuseOnPostgres, two_of_them_take_turns) {
  Runner one(url()), other(url());
  for (int i = 0; i < 3; ++i) {
    passes(one, probe);
    passes(other, probe);
  }
}

TEST_F(ReuseOnPostgres, nothing_is_left_in_the_end) {
  {
    Runner runner(url());
    passes(runner, "P a: create table t(a int)");
  }
  const auto database = open_database(url());
  const auto session = database->connect("looks");
  EXPECT_FALSE(session->execute("select * from hierlock_lab.made_by_hierlock_lab").well());
}

}  // namespace
}  // namespace hierlock::lab
