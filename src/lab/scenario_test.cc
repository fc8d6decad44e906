// Reading scenarios: what each line means, and what is said of lines that mean nothing.
#include "lab/scenario.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace hierlock::lab {
namespace {

using Kind = Expected::Kind;
using std::chrono::milliseconds;
using Strings = std::vector<std::string>;

constexpr const char* example = R"(
    scenario  two rows in opposite order
    proves    X8
    engines   mysql mariadb postgres
    setup     create table t(id int primary key, v int)
    setup     insert into t values (1,0),(2,0)
    T1 a:  begin
    T2 b:  begin
    T1 c:  update t set v=1 where id=1          => ok
    T2 d:  update t set v=2 where id=2          => ok
    T1 e:  update t set v=1 where id=2          => blocked by T2
    T2 f:  update t set v=2 where id=1          => deadlock, T1 or T2
    check  select count(*) from t               => rows 2
)";

Script read(const std::string& text) { return parse(text).script(); }

// Of a file with this one step of T1, among sessions T2 and T3.
Line step(const std::string& text) {
  return read("scenario s\nT1 a: " + text + "\nT2 b: select 2\nT3 c: select 3\n").lines.at(0);
}
Expectation expectation(const std::string& text) {
  const Line line = step("select 1 => " + text);
  EXPECT_TRUE(line.everywhere.has_value()) << text;
  return line.everywhere.value_or(Expectation{});
}
Expected outcome(const std::string& text) {
  const Expectation whole = expectation(text);
  EXPECT_TRUE(whole.unblocks.empty()) << text;
  return whole.step;
}
LockStep lock(const std::string& text) {
  const Line line = step(text);
  EXPECT_TRUE(line.lock.has_value()) << text;
  EXPECT_EQ(line.text, text);
  return line.lock.value_or(LockStep{});
}
std::vector<Target> targets(const std::string& text) { return lock(text).targets; }

// What is said of a file that means nothing.
std::string complaint(const std::string& text) {
  try {
    parse(text, "f");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "none";
}

// --- the example --------------------------------------------------------------------------------------------------

TEST(Scenario, the_example_means_what_it_says_field_by_field) {  // X8
  const Scenario scenario = parse(example, "opposite.scenario");
  EXPECT_EQ(scenario.name(), "two rows in opposite order");
  EXPECT_EQ(scenario.file(), "opposite.scenario");
  EXPECT_EQ(scenario.proves(), Strings{"X8"});
  EXPECT_EQ(scenario.engines(), (Strings{"mysql", "mariadb", "postgres"}));
  const Script& script = scenario.script();
  EXPECT_EQ(*script.text, example);
  EXPECT_EQ(script.sessions(), (Strings{"T1", "T2"}));
  EXPECT_TRUE(script.has_sql("mysql"));
  EXPECT_FALSE(script.has_locks("mysql"));
  EXPECT_TRUE(script.about.empty());
  EXPECT_TRUE(script.facts.empty());

  struct Row {
    Event::Kind kind;
    std::size_t number;
    std::string session, name, text, expectation;
  };
  const std::vector<Row> rows{
      {Event::Kind::setup, 5, "", "", "create table t(id int primary key, v int)", ""},
      {Event::Kind::setup, 6, "", "", "insert into t values (1,0),(2,0)", ""},
      {Event::Kind::step, 7, "T1", "a", "begin", ""},
      {Event::Kind::step, 8, "T2", "b", "begin", ""},
      {Event::Kind::step, 9, "T1", "c", "update t set v=1 where id=1", "ok"},
      {Event::Kind::step, 10, "T2", "d", "update t set v=2 where id=2", "ok"},
      {Event::Kind::step, 11, "T1", "e", "update t set v=1 where id=2", "blocked by T2"},
      {Event::Kind::step, 12, "T2", "f", "update t set v=2 where id=1", "deadlock, T1 or T2"},
      {Event::Kind::check, 13, "", "", "select count(*) from t", "rows 2"},
  };
  ASSERT_EQ(script.lines.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Line& line = script.lines[i];
    EXPECT_EQ(line.kind, rows[i].kind) << i;
    EXPECT_EQ(line.number, rows[i].number);
    EXPECT_EQ(line.session, rows[i].session) << i;
    EXPECT_EQ(line.name, rows[i].name) << i;
    EXPECT_EQ(line.text, rows[i].text);
    EXPECT_EQ(line.expectation(), rows[i].expectation);
    EXPECT_EQ(line.everywhere.has_value(), !rows[i].expectation.empty()) << i;
    EXPECT_TRUE(line.by_engine.empty()) << i;
    EXPECT_TRUE(line.only.empty()) << i;
    EXPECT_FALSE(line.lock.has_value()) << i;
    EXPECT_EQ(line.expected_of("mysql").said, !rows[i].expectation.empty()) << i;
  }
  EXPECT_EQ(script.lines[6].everywhere->step.kind, Kind::blocked);
  EXPECT_EQ(script.lines[6].everywhere->step.sessions, Strings{"T2"});
  EXPECT_EQ(script.lines[7].everywhere->step.kind, Kind::deadlock);
  EXPECT_EQ(script.lines[7].everywhere->step.sessions, (Strings{"T1", "T2"}));
  EXPECT_EQ(script.lines[8].everywhere->step.rows, (std::vector<lab::Row>{{"2"}}));
}

TEST(Scenario, a_step_without_an_arrow_must_simply_succeed) {
  const Line line = step("begin");
  EXPECT_FALSE(line.everywhere.has_value());
  EXPECT_FALSE(line.expected_of("memory").said);
  EXPECT_EQ(line.expected_of("memory").step.kind, Kind::ok);
}

// --- outcomes -----------------------------------------------------------------------------------------------------

TEST(Scenario, every_outcome_is_read) {
  EXPECT_EQ(outcome("ok").kind, Kind::ok);
  EXPECT_EQ(outcome("timeout").kind, Kind::timeout);
  EXPECT_EQ(outcome("busy").kind, Kind::busy);
  EXPECT_EQ(outcome("conflict").kind, Kind::conflict);
  EXPECT_EQ(outcome("serialization").kind, Kind::serialization);
  EXPECT_EQ(outcome("affected 0"), (Expected{.kind = Kind::affected, .affected = 0}));
  EXPECT_EQ(outcome("affected  1000000000000"), (Expected{.kind = Kind::affected, .affected = 1'000'000'000'000}));
  EXPECT_EQ(outcome("blocked by T2"), (Expected{.kind = Kind::blocked, .sessions = {"T2"}}));
  EXPECT_EQ(outcome("blocked  by T2,T3"), (Expected{.kind = Kind::blocked, .sessions = {"T2", "T3"}}));
  EXPECT_EQ(outcome("deadlock"), (Expected{.kind = Kind::deadlock}));
  EXPECT_EQ(outcome("deadlock, T1"), (Expected{.kind = Kind::deadlock, .sessions = {"T1"}}));
  EXPECT_EQ(outcome("deadlock, T1 or T2 or T3"), (Expected{.kind = Kind::deadlock, .sessions = {"T1", "T2", "T3"}}));
  EXPECT_EQ(outcome("error 40P01"), (Expected{.kind = Kind::error, .code = "40P01"}));
  EXPECT_EQ(outcome("error invalid_argument"), (Expected{.kind = Kind::error, .code = "invalid_argument"}));
  EXPECT_EQ(outcome("error"), (Expected{.kind = Kind::error}));
  EXPECT_EQ(outcome("error 'no, or it''s' "), (Expected{.kind = Kind::error, .message = "no, or it's"}));
  EXPECT_EQ(outcome("error 23505 'key'"), (Expected{.kind = Kind::error, .code = "23505", .message = "key"}));
  EXPECT_EQ(outcome("cancelled"), (Expected{.kind = Kind::cancelled}));
  EXPECT_EQ(outcome("blocked"), (Expected{.kind = Kind::blocked}));
  EXPECT_EQ(outcome("blocked by T2 or T3"),
            (Expected{.kind = Kind::blocked, .sessions = {"T2", "T3"}, .one_of = true}));
  EXPECT_EQ(outcome("blocked by T2, prepared"), (Expected{.kind = Kind::blocked, .sessions = {"T2", "prepared"}}));
  EXPECT_EQ(outcome("blocked by T2, then timeout or error 1"),
            (Expected{.kind = Kind::blocked,
                      .sessions = {"T2"},
                      .then = {{.kind = Kind::timeout, .alternatives = {{.kind = Kind::error, .code = "1"}}}}}));
  EXPECT_EQ(outcome("ok or serialization or blocked by T2"),
            (Expected{.alternatives = {{.kind = Kind::serialization}, {.kind = Kind::blocked, .sessions = {"T2"}}}}));
  EXPECT_EQ(outcome("deadlock, T1 or T2 or ok"),
            (Expected{.kind = Kind::deadlock, .sessions = {"T1", "T2"}, .alternatives = {{.kind = Kind::ok}}}));
  EXPECT_EQ(outcome("rows in any order: 2; 1"),
            (Expected{.kind = Kind::rows, .rows = {{"2"}, {"1"}}, .any_order = true}));
  EXPECT_EQ(outcome("rows 1; 2 and affected 3 and rows none"),
            (Expected{.kind = Kind::rows,
                      .rows = {{"1"}, {"2"}},
                      .more = {{.kind = Kind::affected, .affected = 3}, {.kind = Kind::rows}}}));
  EXPECT_EQ(outcome("rows 1, notice 'a, b' , notice 'c', notify ch 'x'"),
            (Expected{.kind = Kind::rows, .rows = {{"1"}}, .notices = {"a, b", "c"}, .notifications = {{"ch", "x"}}}));
  EXPECT_EQ(outcome("rows a or b, more and less, notice it").rows,
            (std::vector<Row>{{"a or b", "more and less", "notice it"}}));
}

TEST(Scenario, a_setup_line_may_be_a_sessions) {
  const Script script = read(
      "scenario s\nsetup T1: mysql: begin\nsetup mysql: x\nsetup T2: acquire u1\nT1 a: x\nT2 b: y\nteardown drop role "
      "r\n");
  EXPECT_EQ(script.lines[0].session, "T1");
  EXPECT_EQ(script.lines[0].text, "begin");
  EXPECT_EQ(script.lines[0].only, Strings{"mysql"});
  EXPECT_EQ(script.lines[1].session, "");
  EXPECT_EQ(script.lines[1].only, Strings{"mysql"});
  EXPECT_TRUE(script.lines[2].lock.has_value());
  EXPECT_EQ(script.lines[5].kind, Event::Kind::teardown);
}

TEST(Scenario, a_file_may_have_several_orders) {
  const Scenario file = parse(
      "scenario s\nengines memory mysql\nsetup x\nT1 a: begin\nT2 b: commit\norder one after the other  # why\na\nb => "
      "ok, unblocks T1\n"
      "check y => rows 1\norder twice\nb => memory: ok; mysql: busy # why\na\nb\nteardown z\n",
      "f");
  const std::vector<Scenario> orders = file.orders();
  ASSERT_EQ(orders.size(), 2u);
  EXPECT_EQ(orders[0].name(), "s: one after the other");
  EXPECT_EQ(orders[1].name(), "s: twice");
  const std::vector<Line>& lines = orders[0].script().lines;
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0].text, "x");
  EXPECT_EQ(lines[1].text, "begin");
  EXPECT_EQ(lines[1].number, 7u);
  EXPECT_EQ(lines[2].expectation(), "ok, unblocks T1");
  EXPECT_EQ(lines[3].text, "y");
  EXPECT_EQ(lines[4].text, "z");
  EXPECT_EQ(orders[1].script().lines.size(), 5u);
  EXPECT_EQ(orders[1].script().lines[1].expected_of("mysql").str(), "busy");
  EXPECT_EQ(rewritten(orders[1].script(), {{11, "ok"}}),
            std::string(file.text()).replace(file.text().find("=> memory"), 26, "=> ok"));
  const Scenario plain = parse("scenario s\nT1 a: x\n");
  ASSERT_EQ(plain.orders().size(), 1u);
  EXPECT_EQ(plain.orders()[0].name(), "s");
  EXPECT_EQ(read("scenario s\norder a: begin\n").sessions(), Strings{"order"});  // a session may be called so
}

TEST(Scenario, rows_are_values_in_order_and_null_is_none_of_them) {
  const auto rows = [](const std::string& text) { return outcome("rows " + text).rows; };
  using Rows = std::vector<Row>;
  EXPECT_EQ(rows("1"), (Rows{{"1"}}));
  EXPECT_EQ(rows("1,2"), (Rows{{"1", "2"}}));
  EXPECT_EQ(rows("1 , 2 ;  3,4"), (Rows{{"1", "2"}, {"3", "4"}}));
  EXPECT_EQ(rows("a b, 10:30:00"), (Rows{{"a b", "10:30:00"}}));
  EXPECT_EQ(rows("null, NULL, 'null'"), (Rows{{std::nullopt, std::nullopt, "null"}}));
  EXPECT_EQ(rows("none"), Rows{});
  EXPECT_EQ(rows("none, 1"), (Rows{{"none", "1"}}));
  EXPECT_EQ(rows("'none'"), (Rows{{"none"}}));
  EXPECT_EQ(rows("''"), (Rows{{""}}));
  EXPECT_EQ(rows("'it''s, so; # it => is', x"), (Rows{{"it's, so; # it => is", "x"}}));
  EXPECT_EQ(rows(R"('a\nb\rc\\d\x00\xfF\xg')"), (Rows{{std::string("a\nb\rc\\d\0\xFFxg", 11)}}));
  EXPECT_EQ(rows("\"a"
                 " b\", `c`"),
            (Rows{{"\"a b\"", "`c`"}}));  // only ' quotes a value; these are part of it
  EXPECT_EQ(rows("größe"), (Rows{{"größe"}}));
}

TEST(Scenario, whoever_is_freed_is_told_at_the_step_that_frees) {
  EXPECT_EQ(expectation("ok, unblocks T2"), (Expectation{.unblocks = {{"T2"}}, .said = true}));
  EXPECT_EQ(expectation("unblocks T2"), (Expectation{.unblocks = {{"T2"}}, .said = true}));
  EXPECT_EQ(expectation("affected 1,unblocks T2 , T3"),
            (Expectation{.step = {.kind = Kind::affected, .affected = 1}, .unblocks = {{"T2"}, {"T3"}}, .said = true}));
  EXPECT_EQ(expectation("ok, unblocks T2 (rows 1,2; ')'), T3(serialization)"),
            (Expectation{.unblocks = {{"T2", {.kind = Kind::rows, .rows = {{"1", "2"}, {")"}}}},
                                      {"T3", {.kind = Kind::serialization}}},
                         .said = true}));
  EXPECT_EQ(expectation("ok, unblocks perhaps T2 (timeout), T3"),
            (Expectation{.unblocks = {{"T2", {.kind = Kind::timeout}, true}, {"T3"}}, .said = true}));
  EXPECT_EQ(expectation("deadlock, T1 or T2, unblocks T3 (rows none)"),
            (Expectation{.step = {.kind = Kind::deadlock, .sessions = {"T1", "T2"}},
                         .unblocks = {{"T3", {.kind = Kind::rows}}},
                         .said = true}));
  EXPECT_EQ(expectation("rows 'x, unblocks T2', unblocks T3").unblocks, (std::vector<Expectation::Freed>{{"T3"}}));
}

TEST(Scenario, what_is_written_for_an_expectation_is_read_back_as_it_was) {
  const std::vector<Expected> all{
      {.kind = Kind::ok},
      {.kind = Kind::rows},
      {.kind = Kind::rows, .rows = {{"1"}}},
      {.kind = Kind::rows, .rows = {{"1", std::nullopt}, {"", "null"}}},
      {.kind = Kind::rows, .rows = {{"NONE"}, {" x"}, {"x "}, {"a,b"}, {"a;b"}, {"it's"}, {"\"x\""}, {"`x`"}}},
      {.kind = Kind::rows, .rows = {{"1"}, {"mysql: 2"}, {"else:"}, {": x"}, {"mysql", "mariadb: 3"}, {"10:00"}}},
      {.kind = Kind::rows, .rows = {{"a => b"}, {"# no"}, {"x # y"}, {"x, unblocks T2"}, {"a unblocks b"}, {"(("}}},
      {.kind = Kind::rows, .rows = {{"back\\slash"}, {"\\"}, {"\\n"}, {"\n\r\t"}, {"\t"}, {"a\tb"}}},
      {.kind = Kind::rows, .rows = {{std::string("\0\x01\x1B[31m\x7F", 8)}, {"\xFF\xC3(\xED\xA0\x80"}, {"é\xC3"}}},
      {.kind = Kind::affected, .affected = 7},
      {.kind = Kind::blocked, .sessions = {"T2", "T3"}},
      {.kind = Kind::deadlock},
      {.kind = Kind::deadlock, .sessions = {"T1", "T2"}},
      {.kind = Kind::timeout},
      {.kind = Kind::busy},
      {.kind = Kind::conflict},
      {.kind = Kind::serialization},
      {.kind = Kind::error, .code = "1213"},
      {.kind = Kind::error},
      {.kind = Kind::error, .message = "it's; \n or ok, then ok, unblocks T2"},
      {.kind = Kind::cancelled},
      {.kind = Kind::blocked},
      {.kind = Kind::blocked, .sessions = {"T2", "T3"}, .one_of = true},
      {.kind = Kind::blocked, .then = {{.kind = Kind::timeout, .alternatives = {{.kind = Kind::ok}}}}},
      {.kind = Kind::rows, .rows = {{"in any order: 1"}, {"a or ok"}, {"a and rows 1"}, {"$$"}}, .any_order = true},
      {.kind = Kind::rows,
       .rows = {{"1"}},
       .more = {{.kind = Kind::affected, .affected = 1}},
       .notices = {"a, 'b'", ""}},
      {.notifications = {{"ch", "x, unblocks T2"}}, .alternatives = {{.kind = Kind::busy, .notices = {"n"}}}},
  };
  for (const Expected& one : all) {
    EXPECT_EQ(outcome(one.str()), one) << one.str();
    Expectation freeing{.step = one, .unblocks = {{"T2"}}, .said = true};
    for (const Expected& end : all) {
      if (end.kind != Kind::blocked) freeing.unblocks = {{"T2", end}, {"T3", one.kind == Kind::blocked ? end : one}};
      EXPECT_EQ(expectation(freeing.str()), freeing) << freeing.str();
    }
  }
}

TEST(Scenario, what_an_engine_returns_is_written_without_control_characters) {
  const Expected rows{.kind = Kind::rows, .rows = {{std::string("\x1B]0;x\x07\0", 7)}, {"\xC3"}, {"é"}}};
  EXPECT_EQ(rows.str(), R"(rows '\x1b]0;x\x07\x00'; '\xc3'; é)");
}

// --- engines ------------------------------------------------------------------------------------------------------

TEST(Scenario, an_expectation_may_differ_from_engine_to_engine) {
  const Script script = read(R"(
scenario s
engines mysql mariadb postgres sqlite
T2 z: begin
T1 a: x => mysql: blocked by T2; mariadb: blocked by T2; postgres: ok; sqlite: busy
T1 b: x => mysql mariadb: rows 1; 2; postgres,sqlite: rows 3, 4; 5,6
T1 c: x => mysql: rows 'a; postgres: b'; else: ok, unblocks T2 (rows 1; 2)
T1 d: x => rows 1; 2; postgres: rows 3
T1 e: x => else: busy; mysql:timeout
)");
  const auto of = [&](std::size_t line, const std::string& engine) {
    return script.lines.at(line).expected_of(engine).str();
  };
  EXPECT_EQ(of(1, "mysql"), "blocked by T2");
  EXPECT_EQ(of(1, "mariadb"), "blocked by T2");
  EXPECT_EQ(of(1, "postgres"), "ok");
  EXPECT_EQ(of(1, "sqlite"), "busy");
  EXPECT_EQ(of(2, "mysql"), "rows 1; 2");
  EXPECT_EQ(of(2, "mariadb"), "rows 1; 2");
  EXPECT_EQ(of(2, "sqlite"), "rows 3,4; 5,6");
  EXPECT_EQ(of(3, "mysql"), "rows 'a; postgres: b'");
  EXPECT_EQ(of(3, "postgres"), "ok, unblocks T2 (rows 1; 2)");
  EXPECT_EQ(of(4, "postgres"), "rows 3");
  EXPECT_EQ(of(4, "mysql"), "rows 1; 2");  // what comes first without a name is for all others
  EXPECT_EQ(of(5, "mysql"), "timeout");
  EXPECT_EQ(of(5, "postgres"), "busy");
  EXPECT_EQ(script.lines[2].expectation(),
            "mariadb: rows 1; 2; mysql: rows 1; 2; postgres: rows 3,4; 5,6; "
            "sqlite: rows 3,4; 5,6");
}

TEST(Scenario, a_line_may_be_for_some_engines_only) {
  const Script script = read(R"(
scenario s
setup mysql, mariadb: create table t(id int) engine=innodb
setup postgres sqlite: create table t(id int)
T1 a: postgres: select 'mysql: x' => ok
T1 b: mysql mariadb: acquire u1/a1 => mysql: ok; mariadb: busy
check sqlite: select 1
)");
  ASSERT_EQ(script.lines.size(), 5u);
  EXPECT_EQ(script.lines[0].only, (Strings{"mysql", "mariadb"}));
  EXPECT_EQ(script.lines[0].text, "create table t(id int) engine=innodb");
  EXPECT_TRUE(script.lines[0].is_for("mariadb"));
  EXPECT_FALSE(script.lines[0].is_for("sqlite"));
  EXPECT_EQ(script.lines[2].text, "select 'mysql: x'");
  EXPECT_TRUE(script.lines[3].lock.has_value());
  EXPECT_EQ(script.lines[4].only, Strings{"sqlite"});
  EXPECT_TRUE(script.has_locks("mariadb"));
  EXPECT_FALSE(script.has_locks("sqlite"));
  EXPECT_TRUE(script.has_sql("sqlite"));
  EXPECT_FALSE(script.has_sql("memory"));
}

TEST(Scenario, facts_and_sentences_about_it_are_kept_and_their_quotes_mean_nothing) {
  const Script script = read(R"(
scenario it's a test
about    It's said that "T1
about    goes on".
proves   X1, X2
proves   X3
fact dirty_read mysql mariadb: doesn't happen; postgres: can't be had; else: ?
fact p99 5 ms; sqlite: none
fact split mysql: yes
fact split else: no
T1 a: begin
)");
  EXPECT_EQ(script.name, "it's a test");
  EXPECT_EQ(script.about, (Strings{"It's said that \"T1", "goes on\"."}));
  EXPECT_EQ(script.proves, (Strings{"X1", "X2", "X3"}));
  ASSERT_EQ(script.facts.size(), 4u);
  EXPECT_EQ(script.facts[0].name, "dirty_read");
  EXPECT_EQ(script.facts[0].by_engine.at("mariadb"), "doesn't happen");
  EXPECT_EQ(script.facts[0].by_engine.at("postgres"), "can't be had");
  EXPECT_EQ(script.facts[0].everywhere, "?");
  EXPECT_EQ(script.facts[1].name, "p99");
  EXPECT_EQ(script.facts[1].everywhere, "5 ms");
  EXPECT_EQ(script.facts[1].by_engine.at("sqlite"), "none");
  EXPECT_EQ(script.facts[3].everywhere, "no");
}

// --- text ---------------------------------------------------------------------------------------------------------

// Without the expectation before it, the comment would be part of the statement.
TEST(Scenario, a_comment_stays_one_when_its_expectation_is_removed) {
  const Scenario scenario = parse("scenario s\nT1 a: select 1 => rows 1  # it's so\nT1 b: select 2\n", "f");
  const std::string bare = rewritten(scenario.script(), {{2, ""}});
  EXPECT_EQ(bare, "scenario s\nT1 a: select 1\n# it's so\nT1 b: select 2\n");
  EXPECT_EQ(parse(bare, "f").script().lines.size(), 2u);
}

TEST(Scenario, a_hash_in_sql_belongs_to_the_statement) {
  const Script script = read(R"(# at the top
scenario s   # its name
	# alone
T1 a: select 5 # 3 => rows 999
T1 b: select '{"a": 1}'::json #>> '{a}'   => rows 1 # its rows, it's one
T1 c: select c#d
T1 d: select 5 # 3
T1 e: acquire u1 # it's no SQL
T1 f: acquire u1#2   => ok
#T1 d: begin
check select 5 # 3
)");
  EXPECT_EQ(script.name, "s");
  ASSERT_EQ(script.lines.size(), 7u);
  EXPECT_EQ(script.lines[0].text, "select 5 # 3");
  EXPECT_EQ(script.lines[0].expectation(), "rows 999");
  EXPECT_EQ(script.lines[1].text, R"(select '{"a": 1}'::json #>> '{a}')");
  EXPECT_EQ(script.lines[1].expectation(), "rows 1");
  EXPECT_EQ(script.lines[2].text, "select c#d");
  EXPECT_EQ(script.lines[3].text, "select 5 # 3");
  EXPECT_EQ(script.lines[4].text, "acquire u1");
  EXPECT_EQ(script.lines[5].text, "acquire u1#2");
  EXPECT_EQ(script.lines[6].text, "select 5 # 3");
}

TEST(Scenario, sql_is_quoted_as_postgres_quotes_it) {
  for (const std::string text :
       {"select $$it's$$", "select $${1,2}$$::int[]", "select $q$a $$ => ok $q$", "select E'it\\'s => ok'",
        "select e'\\\\'", "select 'it''s'", "select $1", "select a$b$c"}) {
    EXPECT_EQ(step(text + " => rows 1").text, text);
    EXPECT_EQ(step(text + " => rows 1").expectation(), "rows 1") << text;
  }
  EXPECT_EQ(in_dialect("postgres", "select $${share}$$ {share}"), Strings{"select $${share}$$ for share"});
}

TEST(Scenario, a_quoted_text_may_go_on_over_several_lines) {
  const Script script = read("scenario s\nT1 a: select 'x\n # y\n\nz' => rows 'x\n # y\n\nz'\nT2 b: select 1\n");
  ASSERT_EQ(script.lines.size(), 2u);
  EXPECT_EQ(script.lines[0].text, "select 'x\n # y\n\nz'");
  EXPECT_EQ(script.lines[0].everywhere->step.rows, (std::vector<Row>{{"x\n # y\n\nz"}}));
  EXPECT_EQ(script.lines[1].number, 9u);
}

TEST(Scenario, a_bar_at_its_beginning_continues_the_line_before) {
  const Script script = read(
      "scenario s\n"
      "setup create function f() returns int as $$\n"
      "    | begin\n"
      "    |   return 1;  -- one\n"
      "    | end $$ language plpgsql\n"
      "T1 a: select f()\n"
      "    | # 3\n"
      "    |   => rows 1;\n"
      "    |      2\n"
      "T1 b: acquire u1,\n"
      "    | u2\n");
  ASSERT_EQ(script.lines.size(), 3u);
  EXPECT_EQ(
      script.lines[0].text,
      "create function f() returns int as $$\n      begin\n        return 1;  -- one\n      end $$ language plpgsql");
  EXPECT_EQ(script.lines[1].text, "select f()\n      # 3");
  EXPECT_EQ(script.lines[1].expectation(), "rows 1; 2");
  EXPECT_EQ(script.lines[1].number, 6u);
  EXPECT_EQ(script.lines[2].number, 10u);
  EXPECT_EQ(script.lines[2].lock->targets.size(), 2u);
}

TEST(Scenario, a_step_may_be_empty) {
  EXPECT_EQ(step("").text, "");
  EXPECT_EQ(step("=> ok").expectation(), "ok");
  EXPECT_TRUE(in_dialect("mysql", "").empty());
}

TEST(Scenario, a_backslash_at_its_end_continues_a_line) {
  const Script script =
      read("scenario a \\\n  long one\nT1 a: select 1, \\  \n      2  \\\n  => rows 1,2\nT1 b: select '\\'\n");
  EXPECT_EQ(script.name, "a     long one");
  ASSERT_EQ(script.lines.size(), 2u);
  EXPECT_EQ(script.lines[0].text, "select 1,           2");
  EXPECT_EQ(script.lines[0].number, 3u);
  EXPECT_EQ(script.lines[0].expectation(), "rows 1,2");
  EXPECT_EQ(script.lines[1].number, 6u);
  EXPECT_EQ(script.lines[1].text, "select '\\'");
  EXPECT_EQ(read("scenario s\nT1 a: x \\").lines.at(0).text, "x");  // also at the end of the file
}

TEST(Scenario, line_feeds_may_come_with_carriage_returns) {
  std::string windows;
  for (const char c : std::string(example) + "about a \\\nb\n")
    windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  const Script a = read(example), b = read(windows);
  ASSERT_EQ(a.lines.size(), b.lines.size());
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.engines, b.engines);
  for (std::size_t i = 0; i < a.lines.size(); ++i) {
    EXPECT_EQ(a.lines[i].text, b.lines[i].text);
    EXPECT_EQ(a.lines[i].number, b.lines[i].number);
    EXPECT_EQ(a.lines[i].expectation(), b.lines[i].expectation());
  }
  EXPECT_EQ(complaint("scenario s\r\n\r\nT1 a begin\r\n"), "f:3:6: a colon after the step's name expected");
}

TEST(Scenario, blanks_do_not_matter_nor_does_a_missing_line_feed_at_the_end) {
  const Script script = read("\t scenario\ts\n\n  T1\ta :\tselect 1\t=>\trows\t1");
  EXPECT_EQ(script.name, "s");
  EXPECT_EQ(script.lines.at(0).text, "select 1");
  EXPECT_EQ(script.lines.at(0).expectation(), "rows 1");
}

TEST(Scenario, an_arrow_of_sql_is_no_expectation) {
  EXPECT_EQ(step("select f(a => 1)").text, "select f(a => 1)");
  EXPECT_FALSE(step("select f(a => 1)").everywhere.has_value());
  EXPECT_EQ(step("select f(a => 1, b => (2)) => rows 3").text, "select f(a => 1, b => (2))");
  EXPECT_EQ(step("select ' => ok'").text, "select ' => ok'");
  EXPECT_EQ(step("select 'a)' || f(a => ')') => ok").text, "select 'a)' || f(a => ')')");
  EXPECT_EQ(step("select 'a' => 'b' => rows x").text, "select 'a' => 'b'");  // the last one counts
  EXPECT_EQ(step("select a=>b").text, "select a=>b");
  EXPECT_EQ(step("select 1) => ok").text, "select 1)");  // to be refused by the engine
}

TEST(Scenario, a_session_may_be_spoken_of_before_its_first_step) {
  const Script script = read("scenario s\nLater_2 a: x => blocked by T9\nT9 b: x\n");
  EXPECT_EQ(script.sessions(), (Strings{"Later_2", "T9"}));
}

TEST(Scenario, names_may_begin_as_keywords_do) {
  const Script script = read("scenario s\nsetup1 check2: begin\nscenario_b fact: begin\nT1 setup: begin\n");
  EXPECT_EQ(script.sessions(), (Strings{"setup1", "scenario_b", "T1"}));
  EXPECT_EQ(script.lines[2].name, "setup");
}

// --- lock steps ---------------------------------------------------------------------------------------------------

TEST(Scenario, lock_steps_are_read_in_all_forms) {
  EXPECT_EQ(lock("acquire u1/a1/r1"), (LockStep{.targets = {"u1/a1/r1"}}));
  EXPECT_EQ(lock("acquire shared u1/a1"), (LockStep{.targets = {shared("u1/a1")}}));
  EXPECT_EQ(lock("extend u1/a1/r2"), (LockStep{.kind = LockStep::Kind::extend, .targets = {"u1/a1/r2"}}));
  EXPECT_EQ(lock("named \"x\" timeout 100ms"), (LockStep{.targets = {named("x")}, .timeout = milliseconds(100)}));
  EXPECT_EQ(lock("slots \"import\" 3"), (LockStep{.targets = {slots("import", 3)}}));
  EXPECT_EQ(lock("release"), (LockStep{.kind = LockStep::Kind::release}));
  EXPECT_EQ(lock("release u1/a1/r1"), (LockStep{.kind = LockStep::Kind::release, .targets = {"u1/a1/r1"}}));
  EXPECT_EQ(lock("release named x, slots y 2"),
            (LockStep{.kind = LockStep::Kind::release, .targets = {named("x"), slots("y", 2)}}));
  EXPECT_EQ(lock("acquire u1 nowait"), (LockStep{.targets = {"u1"}, .timeout = milliseconds(0)}));
  EXPECT_EQ(lock("extend u1 timeout 1.5s").timeout, milliseconds(1500));
  EXPECT_EQ(lock("acquire u1 timeout 2m").timeout, std::chrono::minutes(2));
  EXPECT_EQ(lock("acquire u1 timeout 0s").timeout, milliseconds(0));
  EXPECT_EQ(lock("acquire u1 timeout 24s").timeout, std::chrono::seconds(24));
}

TEST(Scenario, one_step_may_ask_for_several_things_of_any_kind) {
  const std::vector<Target> mixed{"u1/a1", shared("u2"), named("n"), shared(named("m")), slots("s", 2), "u3"};
  EXPECT_EQ(targets("acquire u1/a1 shared u2 named n shared named \"m\" slots 's' 2 u3"), mixed);
  EXPECT_EQ(targets("acquire u1/a1,shared u2, named n , shared named 'm', slots s 2, u3"), mixed);
  EXPECT_EQ(targets("named n, u1"), (std::vector<Target>{named("n"), "u1"}));
  EXPECT_EQ(lock("acquire u1, u2 nowait").targets, (std::vector<Target>{"u1", "u2"}));
}

TEST(Scenario, paths_and_names_may_be_quoted_and_odd) {
  EXPECT_EQ(targets("acquire \"u 1/a,1\""), (std::vector<Target>{"u 1/a,1"}));
  EXPECT_EQ(targets("acquire 'nowait' \"shared\""), (std::vector<Target>{"nowait", "shared"}));
  EXPECT_EQ(targets("acquire nowait/a timeout1 shared/x named_ slots/named"),
            (std::vector<Target>{"nowait/a", "timeout1", "shared/x", "named_", "slots/named"}));
  EXPECT_EQ(targets("named \"say \"\"x\"\" # => '\""), (std::vector<Target>{named("say \"x\" # => '")}));
  EXPECT_EQ(targets("named 'a\\nb'"), (std::vector<Target>{named("a\nb")}));
  EXPECT_EQ(targets("acquire u1/a%2Fb/größe"), (std::vector<Target>{Target::path({"u1", "a/b", "größe"})}));
  EXPECT_EQ(targets("release timeout"), (std::vector<Target>{"timeout"}));  // a release does not wait
}

TEST(Scenario, what_only_looks_like_a_lock_step_is_sql) {
  for (const std::string text : {"release savepoint s", "release  SAVEPOINT s", "RELEASE u1", "acquired", "extend;",
                                 "select named x", "release;"}) {
    EXPECT_FALSE(step(text).lock.has_value()) << text;
  }
  const Script saved = read("scenario s\nT1 a: savepoint s\nT1 b: release s\nT2 c: release s\nT1 d: release u1\n");
  EXPECT_FALSE(saved.lines[1].lock.has_value()) << "the savepoint that this session has set";
  EXPECT_TRUE(saved.lines[2].lock.has_value());
  EXPECT_TRUE(saved.lines[3].lock.has_value());
  const Script script = read("scenario s\nsetup acquire u1\ncheck release\n");  // these are never lock steps
  EXPECT_FALSE(script.has_locks("mysql"));
}

// --- row steps ----------------------------------------------------------------------------------------------------

const std::string described = "scenario s\nsetup rows stock key item columns quantity note version v fence f\n";

RowStep row(const std::string& text) {
  const Script script = read(described + "T1 a: " + text + "\n");
  EXPECT_TRUE(script.lines.back().rows.has_value()) << text;
  EXPECT_FALSE(script.lines.back().lock.has_value()) << text;
  return script.lines.back().rows.value_or(RowStep{});
}

TEST(Scenario, row_steps_are_read_in_all_forms) {  // X3, X4, X7, X11
  using What = RowStep::Kind;
  EXPECT_EQ(row("rows begin").kind, What::begin);
  EXPECT_EQ(row("rows begin").how, rows::Begin::write);
  EXPECT_EQ(row("rows begin read").how, rows::Begin::read);
  EXPECT_EQ(row("rows commit").kind, What::commit);
  EXPECT_EQ(row("rows fetch stock tea").key(), rows::Key{"tea"});
  EXPECT_EQ(row("rows fetch stock 17").key(), rows::Key{17});
  EXPECT_EQ(row("rows fetch stock '17 it''s, so'").key(), rows::Key{"17 it's, so"});
  EXPECT_EQ(row("rows check stock tea 3").number, 3);
  const RowStep update = row("rows update stock tea quantity += -5, note = null");
  ASSERT_EQ(update.changes.size(), 2u);
  EXPECT_TRUE(update.changes[0].relative && update.changes[0].value == rows::Value(-5));
  EXPECT_TRUE(!update.changes[1].relative && update.changes[1].value.is_null());
  const RowStep guarded = row("rows guarded stock tea quantity = 1 if quantity >= 5 and note <> x");
  ASSERT_EQ(guarded.guards.size(), 2u);
  EXPECT_EQ(guarded.guards[0].test, rows::Guard::Test::at_least);
  EXPECT_EQ(guarded.guards[1].value, rows::Value("x"));
  EXPECT_EQ(row("rows fenced stock tea 12 quantity = 1").number, 12);
  const RowStep lock = row("rows lock stock tea milk, stock salt increment timeout 1.5s");
  ASSERT_EQ(lock.of.size(), 2u);
  EXPECT_EQ(lock.of[0].keys, (std::vector<rows::Key>{{"tea"}, {"milk"}}));
  EXPECT_EQ(lock.lock.strength, rows::Strength::force_increment);
  EXPECT_EQ(lock.lock.wait->time(), milliseconds(1500));
  EXPECT_EQ(row("rows lock stock tea read nowait").lock.wait->kind(), rows::Wait::Kind::no_wait);
  EXPECT_EQ(row("rows lock stock tea skip").lock.wait->kind(), rows::Wait::Kind::skip_locked);
}

TEST(Scenario, row_steps_that_make_no_sense_are_told_with_their_place) {
  const auto wrong = [](const std::string& line) -> std::string {
    try {
      read(described + line + "\n");
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_NE(wrong("T1 a: rows fetch orders 1").find(":3:7: a table that `setup rows orders"), std::string::npos)
      << wrong("T1 a: rows fetch orders 1");
  for (const std::string line :
       {"T1 a: rows dance", "T1 a: rows fetch stock", "T1 a: rows update stock tea", "T1 a: rows update stock tea x 5",
        "T1 a: rows guarded stock tea quantity = 1 if quantity ! 5", "T1 a: rows lock stock", "T1 a: rows commit now",
        "T1 a: rows lock stock tea timeout soon", "T1 a: rows check stock tea x", "check rows fetch stock tea",
        "setup rows t", "setup rows t key", "setup rows t key a columns b oops' version",
        "setup rows t key a version a", "setup rows a`b key c"}) {
    EXPECT_NE(wrong(line), "nothing") << line;
  }
}

// --- what is wrong ------------------------------------------------------------------------------------------------

TEST(Scenario, what_is_wrong_is_told_with_its_place_and_what_was_expected) {
  const std::string steps =
      "scenario, proves, engines, about, fact, setup, check, teardown, order, or a step such as `T1 a: begin` expected";
  const std::string outcomes =
      "ok, rows, affected, blocked, deadlock, timeout, busy, conflict, serialization, cancelled or error expected";
  const std::string words = "{share}, {update}, {level NAME} or {timeout TIME} expected";
  const std::string levels =
      "{level read uncommitted}, {level read committed}, {level repeatable read} or {level serializable} expected";
  const std::string time = "a time expected, such as 100ms, 2s or 1m";
  const std::string value = "a value expected ('' is the empty one, none is no row at all)";
  const std::string end = "the end of the expectation, or `, unblocks` expected";
  const std::string engines = "an engine expected: memory shm mysql mariadb postgres sqlite valkey redis etcd";
  struct Case {
    std::string text, expected;
  };
  std::vector<Case> cases{
      // the whole
      {"", "1:1: `scenario` and its name expected"},
      {"T1 a: begin\n", "1:1: `scenario` and its name expected"},
      {"scenario s", "1:11: a step expected, such as `T1 a: begin`"},
      {"scenario s\n", "2:1: a step expected, such as `T1 a: begin`"},
      {"scenario s\nsetup x\n# T1 a: begin\n", "4:1: a step expected, such as `T1 a: begin`"},
      {"scenario", "1:9: the name of the scenario expected"},
      {"scenario   # none\n", "1:12: the name of the scenario expected"},
      {"scenario s\n  scenario t", "2:3: one `scenario` in a file, and this is the second"},
      {"about", "1:6: a sentence about the scenario expected"},
      {"proves ", "1:8: a requirement, such as H13 expected"},
      {"proves X1,,X2", "1:11: a requirement, such as H13 expected"},
      {"engines", "1:8: " + engines},
      {"engines mysql, oracle", "1:16: " + engines},
      {"engines MySQL", "1:9: " + engines},
      {"engines mysql mysql", "1:15: mysql is named twice"},
      {"engines mysql\nengines sqlite", "2:1: one `engines` in a file, and this is the second"},
      {"fact", "1:5: the name of the fact expected"},
      {"fact 1", "1:6: the name of the fact expected"},
      {"fact x", "1:7: a blank and what the fact is expected"},
      {"fact x: y", "1:7: a blank and what the fact is expected"},
      {"fact x mysql:", "1:14: what the fact is expected"},
      {"fact x mysql: ; sqlite: a", "1:15: what the fact is expected"},
      {"fact x mysql: 1; mysql: 2", "1:25: what the fact x is of mysql is said twice"},
      {"fact x 1\nfact x 2", "2:8: what the fact x is of the other engines is said twice"},
      {"scenario s\nT1 a: begin\nsetup x", "3:1: setup comes before the first step"},
      {"setup", "1:6: a statement expected"},
      {"setup mysql:", "1:13: a statement expected"},
      {"setup else: x", "1:7: the names of engines expected; `else:` is for expectations"},
      {"setup x => ok", "1:9: no `=>` expected: it must succeed"},
      {"check => rows 1", "1:7: a statement expected"},
      // steps
      {"T1", "1:3: the step's name and a colon expected after the session: `T1 a: …`"},
      {"T1: begin", "1:3: the step's name and a colon expected after the session: `T1 a: …`"},
      {"T1 1: begin", "1:4: the step's name and a colon expected after the session: `T1 a: …`"},
      {"T1 a", "1:5: a colon after the step's name expected"},
      {"T1 a begin", "1:6: a colon after the step's name expected"},
      {"Setup x", "1:8: a colon after the step's name expected"},
      {"T1 a: x\nT2 a: x", "2:4: there is a step `a` already"},
      {"mysql a: x", "1:1: `mysql` has a meaning of its own in expectations: call the session otherwise"},
      {"else a: x", "1:1: `else` has a meaning of its own in expectations: call the session otherwise"},
      {"unblocks a: x", "1:1: `unblocks` has a meaning of its own in expectations: call the session otherwise"},
      {"1 a: x", "1:1: " + steps},
      {"  - x", "1:3: " + steps},
      {"=> ok", "1:1: " + steps},
      {"größe a: x", "1:3: the step's name and a colon expected after the session: `gr a: …`"},
      // quotes, parentheses, braces
      {"T1 a: select 'x", "1:14: the end of what is quoted from here expected"},
      {"T1 a: select \"x'", "1:14: the end of what is quoted from here expected"},
      {"T1 a: x `", "1:9: the end of what is quoted from here expected"},
      {"T1 a: x => rows 'a''", "1:17: the end of what is quoted from here expected"},
      {"T1 a: x => rows 'a\\''", "1:17: the end of what is quoted from here expected"},
      {"T1 a: x => rows 'a\\'b''", "1:17: a value in quotes expected, and this has no end"},
      {"T1 a: select f(1 => ok", "1:15: a `)` expected for this one"},
      {"T1 a: select (f(1) => ok", "1:14: a `)` expected for this one"},
      {"T1 a: x {share", "1:9: a `}` expected for this one"},
      {"T1 a: x {}", "1:9: " + words},
      {"T1 a: x {shared}", "1:9: " + words},
      {"T1 a: x {share} {SHARE}", "1:17: " + words},
      {"T1 a: {level}", "1:7: " + levels},
      {"T1 a: {level snapshot}", "1:7: " + levels},
      {"T1 a: {timeout}", "1:7: " + time},
      {"T1 a: {timeout 5}", "1:7: " + time},
      {"setup {what}", "1:7: " + words},
      // expectations
      {"T1 a: x =>", "1:11: " + outcomes},
      {"T1 a: x => fine", "1:12: " + outcomes},
      {"T1 a: x => OK", "1:12: " + outcomes},
      {"T1 a: x => ok fine", "1:15: " + end},
      {"T1 a: x => ok, T2", "1:14: " + end},
      {"T1 a: x => rows", "1:16: " + value},
      {"T1 a: x => rows 1,", "1:19: " + value},
      {"T1 a: x => rows 1;; 2", "1:19: " + value},
      {"T1 a: x => rows 'a' b", "1:21: " + end},
      {"T1 a: x => affected", "1:20: how many rows expected, a number"},
      {"T1 a: x => affected some", "1:21: how many rows expected, a number"},
      {"T1 a: x => affected -1", "1:21: how many rows expected, a number"},
      {"T1 a: x => affected 99999999999999999999", "1:21: how many rows expected, a number"},
      {"T1 a: x => affected 1 row", "1:23: " + end},
      {"T1 a: x => blocked T1", "1:21: `by` and the names of sessions, or the end expected"},
      {"T1 a: x => blocked by T1 or", "1:28: the name of a session expected"},
      {"T1 a: x => blocked by T1 or T2, T3", "1:31: `or` and another session, or the end expected"},
      {"T1 a: x => blocked by T1 then ok", "1:26: a comma expected before `then`"},
      {"T1 a: x => blocked, then blocked", "1:21: how the wait ends by itself expected after `then`"},
      {"T1 a: x => ok, then timeout", "1:14: " + end},
      {"T1 a: x => ok or", "1:15: " + end},
      {"T1 a: x => ok or fine", "1:15: " + end},
      {"T1 a: x => ok and rows 1", "1:18: `and` only after rows or affected expected"},
      {"T1 a: x => ok, notice", "1:14: " + end},
      {"T1 a: x => ok, notify 'x'", "1:14: " + end},
      {"prepared a: x", "1:1: `prepared` has a meaning of its own in expectations: call the session otherwise"},
      {"scenario s\nsetup T2: x\nT1 a: x", "2:7: there is no session T2"},
      {"teardown x => ok", "1:12: no `=>` expected: it must succeed"},
      // orders
      {"order", "1:6: the name of the order expected"},
      {"scenario s\nT1 a: x => ok\norder o\na",
       "2:9: no `=>` expected: what is expected of a step stands below `order`"},
      {"scenario s\nT1 a: x\ncheck x\norder o\na", "3:8: no check expected here: it stands below `order`"},
      {"scenario s\nT1 a: x\norder o\nb",
       "4:1: the name of a step from above the first `order`, or `check`, `order` or `teardown` expected"},
      {"scenario s\nT1 a: x\norder o\na x", "4:3: `=>`, or the end of the line expected"},
      {"scenario s\nT1 a: x\norder o", "3:8: a step expected in the order o"},
      {"scenario s\nengines mysql sqlite\nT1 a: x\norder o\na => mysql: ok", "5:3: `sqlite: …` or `else: …` expected"},
      {"T1 a: x => blocked by", "1:22: the name of a session expected"},
      {"T1 a: x => blocked by T1,", "1:26: the name of a session expected"},
      {"T1 a: x => blocked by T1 T2", "1:26: " + end},
      {"T1 a: x => blocked by T1, T1", "1:27: another session expected: T1 is named twice"},
      {"scenario s\nT1 a: x => blocked by T2, T1", "2:23: there is no session T2"},
      {"T1 a: x => deadlock T1", "1:21: " + end},
      {"T1 a: x => deadlock,", "1:21: the name of a session expected"},
      {"T1 a: x => deadlock, T1 T2", "1:25: `or` and another session that may be the victim, or the end expected"},
      {"T1 a: x => deadlock, T1, T2", "1:24: `or` and another session that may be the victim, or the end expected"},
      {"T1 a: x => deadlock, T1 or T1", "1:28: another session expected: T1 is named twice"},
      {"T1 a: x => error#1", "1:17: " + end},
      {"T1 a: x => error 1 2", "1:20: " + end},
      {"T1 a: x => error '1' 2", "1:22: " + end},
      {"T1 a: x => error 1\\2", "1:19: " + end},
      {"T1 a: x => ok unblocks T2", "1:15: a comma expected before `unblocks`"},
      {"T1 a: x => ok, unblocks", "1:24: the name of a session expected"},
      {"T1 a: x => ok, unblocks T2 T3", "1:28: a comma and another session, or the end expected"},
      {"T1 a: x => ok, unblocks T2, T2", "1:29: another session expected: T2 is named twice"},
      {"T1 a: x => ok, unblocks T1", "1:25: another session expected: a step does not unblock itself"},
      {"T1 a: x => ok, unblocks T2 (rows 1", "1:28: a `)` expected for this one"},
      {"T1 a: x => ok, unblocks T2 (fine)", "1:29: " + outcomes},
      {"T1 a: x => ok, unblocks T2 (blocked by T1)",
       "1:29: how the step ended expected; whoever is blocked again was not unblocked"},
      {"T1 a: x => mysql: ok; mysql: busy", "1:30: what is expected of mysql is said twice"},
      {"T1 a: x => mysql mysql: ok", "1:25: what is expected of mysql is said twice"},
      {"T1 a: x => ok; else: busy", "1:22: what is expected of the other engines is said twice"},
      {"T1 a: x => mysql: ok; oracle: busy", "1:21: " + end},
      {"T1 a: x => mysql: ; sqlite: ok", "1:19: " + outcomes},
      {"T1 a: x => mysql: else: ok", "1:19: " + outcomes},
      {"scenario s\nT1 a: x => mysql: ok", "2:9: `else:` expected: without `engines` the scenario runs anywhere"},
      {"scenario s\nengines mysql sqlite\nT1 a: x => mysql: ok", "3:9: `sqlite: …` or `else: …` expected"},
      {"scenario s\nT1 a: mysql sqlite: x => sqlite: ok", "2:23: `mysql: …` or `else: …` expected"},
      // lock steps
      {"T1 a: acquire", "1:14: a target, such as u1/a1/r1 expected"},
      {"T1 a: extend nowait", "1:20: a target, such as u1/a1/r1 expected"},
      {"T1 a: acquire , u1", "1:15: a path, such as u1/a1/r1 expected"},
      {"T1 a: acquire u1,", "1:18: another target expected"},
      {"T1 a: acquire shared", "1:21: a path, such as u1/a1/r1 expected"},
      {"T1 a: acquire u1 timeout", "1:25: " + time},
      {"T1 a: acquire u1 timeout soon", "1:26: " + time},
      {"T1 a: acquire u1 timeout 5", "1:26: " + time},
      {"T1 a: acquire u1 timeout 1.2.3s", "1:26: " + time},
      {"T1 a: acquire u1 timeout .s", "1:26: " + time},
      {"T1 a: acquire u1 timeout -1s", "1:26: " + time},
      {"T1 a: acquire u1 timeout 1441m", "1:26: " + time},
      {"T1 a: acquire u1 timeout 99999999999999999s", "1:26: " + time},
      {"T1 a: acquire u1 nowait u2", "1:25: the end of the step expected"},
      {"T1 a: acquire u1 nowait, u2", "1:24: the end of the step expected"},
      {"T1 a: named", "1:12: the name of the lock expected"},
      {"T1 a: named \"\"", "1:7: the name is empty; give it 1 to 4096 bytes"},
      {"T1 a: slots x", "1:14: how many may hold it at once expected, a number"},
      {"T1 a: slots x many", "1:15: how many may hold it at once expected, a number"},
      {"T1 a: slots x 0", "1:7: the number of slots is 0; use 1 to 1000000"},
      {"T1 a: slots x 1000001", "1:7: the number of slots is 1000001; use 1 to 1000000"},
      {"T1 a: acquire u1 shared slots x 2",
       "1:18: slots cannot be shared: \"slots \\\"x\\\" 2\"; use slots with a larger number, or a name"},
      {"T1 a: acquire u1 a//b",
       "1:18: segment 2 is empty: \"a//b\"; remove the extra \"/\" (one that belongs to an id is %2F)"},
      {"T1 a: acquire u1 '\\x00'", "1:18: NUL (byte 0x00) at offset 0 cannot be in an id: \"\\x00\"; remove it"},
      {"T1 a: acquire 'u1\\'", "1:15: a path, such as u1/a1/r1 in quotes expected, and this has no end"},
      // bytes
      {std::string("scenario a\0b", 12), "1:11: text expected, not a control character"},
      {"scenario a\x1B[31m", "1:11: text expected, not a control character"},
      {"scenario a\rT1 a: x", "1:11: text expected, not a control character"},
      {"scenario é\xFF", "1:11: UTF-8 expected"},
      {"scenario \xC3", "1:10: UTF-8 expected"},
      {"scenario \xED\xA0\x80", "1:10: UTF-8 expected"},
      {"scenario \xC0\x80", "1:10: UTF-8 expected"},
      {"\xEF\xBB\xBFscenario s", "1:1: text without a byte order mark expected"},
      {"scenario ééé\nT1 a: é 'é", "2:9: the end of what is quoted from here expected"},
      // places in continued lines are those of the file
      {"scenario s\nT1 a: x \\\n   => fine", "3:7: " + outcomes},
      {"scenario \\\n s\n\nT1 \\\n a x", "5:4: a colon after the step's name expected"},
      {"# a comment \\\nscenario s", "1:1: a comment that ends with its line expected, and this one is continued"},
      {"T1 a: x => ok # y \\\nT1 b: y", "1:15: a comment that ends with its line expected, and this one is continued"},
      {"T1 a: x => ok # y\n  | z", "1:15: a comment that ends with its line expected, and this one is continued"},
      {"# x\n| y", "2:1: " + steps},
      {"T1 a: acquire u1 # why => ok",
       "1:24: no `=>` expected in a comment: write the comment behind the expectation, or on a line of its own"},
      {"T1 a: x => ok # 3 => busy",
       "1:19: no `=>` expected in a comment: write the comment behind the expectation, or on a line of its own"},
  };
  for (const Case& one : cases) EXPECT_EQ(complaint(one.text), "f:" + one.expected) << one.text;
}

TEST(Scenario, sessions_are_threads_and_there_are_not_too_many_of_them) {
  std::string text = "scenario s\n";
  for (int i = 0; i < 100; ++i) text += "T" + std::to_string(i) + " a" + std::to_string(i) + ": begin\n";
  EXPECT_EQ(read(text).sessions().size(), 100u);
  EXPECT_EQ(complaint(text + "T0 b: begin\nT100 c: begin"), "f:103:1: at most 100 sessions expected");
}

// Each would take minutes if any of it took time that grows with the square of the file.
TEST(Scenario, a_megabyte_of_anything_is_read_in_no_time) {
  const auto times = [](const std::string& text) {
    std::string all;
    while (all.size() < 1'000'000) all += text;
    return all;
  };
  EXPECT_EQ(complaint(times("(")),
            "f:1:1: scenario, proves, engines, about, fact, setup, check, teardown, order, or a step such as "
            "`T1 a: begin` expected");
  EXPECT_EQ(read("scenario s\nT1 a: select " + times("(")).lines.size(), 1u);
  EXPECT_EQ(read("scenario s\nT1 a: select " + times("(") + times(")") + " => ok").lines[0].expectation(), "ok");
  EXPECT_EQ(complaint("scenario s\nT1 a: select " + times("(") + " => ok"), "f:2:14: a `)` expected for this one");
  EXPECT_EQ(read("scenario s\nT1 a: x => rows " + times("1,") + "1; 2").lines[0].everywhere->step.rows.size(), 2u);
  EXPECT_EQ(read("scenario s\nT1 a: x => rows " + times("mysql;") + "2").lines.size(), 1u);
  EXPECT_EQ(read("scenario s\nT1 a: x => rows " + times("; mysql mariadb ").substr(1)).lines.size(), 1u);
  EXPECT_EQ(read("scenario " + times("\\\n ") + "s\nT1 a: x").lines.size(), 1u);
  EXPECT_EQ(read("scenario s\nT1 a: x " + times("\\ ")).lines.size(), 1u);
  EXPECT_EQ(read("scenario s\n" + times("setup x\n") + "T1 a: x").lines.size(), 125'001u);
  EXPECT_EQ(read(times("\n") + "scenario s\n" + times("# é\n") + "T1 a: x").lines.size(), 1u);
  EXPECT_EQ(read("scenario s\nT1 a: x" + times(" {share}")).lines.size(), 1u);
  EXPECT_EQ(lock("acquire" + times(" u1")).targets.size(), 333'334u);
  EXPECT_EQ(read("scenario s\nT1 a: '" + times("''") + "'").lines.size(), 1u);
  const Script many = read("scenario s\n" + times("check x => ok\n"));
  std::map<std::size_t, std::string> expectations;
  for (const Line& line : many.lines) expectations[line.number] = "busy";
  EXPECT_EQ(read(rewritten(many, expectations)).lines.back().expectation(), "busy");
}

// --- files --------------------------------------------------------------------------------------------------------

TEST(Scenario, a_file_that_cannot_be_read_is_unavailable_and_one_that_is_too_large_is_refused) {
  const auto kind_of = [](const std::string& path) {
    try {
      load(path);
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with(path + ": ")) << error.what();
      return error.kind();
    }
    return ErrorKind::cancelled;
  };
  const std::string path =
      (std::filesystem::temp_directory_path() / ("hierlock-lab-test." + std::to_string(getpid()))).string();
  EXPECT_EQ(kind_of(path), ErrorKind::unavailable);
  EXPECT_EQ(kind_of(std::filesystem::temp_directory_path().string()), ErrorKind::unavailable);
  std::ofstream(path) << example;
  EXPECT_EQ(load(path).name(), "two rows in opposite order");
  EXPECT_EQ(load(path).file(), path);
  std::ofstream(path) << std::string(1'000'001, '\n');
  EXPECT_EQ(kind_of(path), ErrorKind::invalid_argument);
  std::filesystem::remove(path);
}

// --- dialects -----------------------------------------------------------------------------------------------------

TEST(Dialect, words_in_braces_are_what_each_engine_calls_them) {
  const auto one = [](std::string_view engine, std::string_view text) {
    const Strings all = in_dialect(engine, text);
    EXPECT_EQ(all.size(), 1u);
    return all.at(0);
  };
  EXPECT_EQ(one("mysql", "select 1 {share}"), "select 1 for share");
  EXPECT_EQ(one("mariadb", "select 1 {share}"), "select 1 lock in share mode");
  EXPECT_EQ(one("postgres", "select 1 { share } nowait"), "select 1 for share nowait");
  for (const std::string_view engine : {"mysql", "mariadb", "postgres"}) {
    EXPECT_EQ(one(engine, "select 1 {update};"), "select 1 for update;");
  }
  EXPECT_EQ(one("mysql", "{level read committed}"), "set session transaction isolation level read committed");
  EXPECT_EQ(one("mariadb", "{level Serializable}"), "set session transaction isolation level Serializable");
  EXPECT_EQ(one("postgres", "{level repeatable read}"),
            "set session characteristics as transaction isolation level repeatable read");
  EXPECT_EQ(one("sqlite", "{level read uncommitted}"), "pragma read_uncommitted = 1");
  EXPECT_EQ(one("sqlite", "{level serializable}"), "pragma read_uncommitted = 0");
  EXPECT_EQ(one("mysql", "{timeout 100ms}"), "set session innodb_lock_wait_timeout = 1");
  EXPECT_EQ(one("mysql", "{timeout 2001ms}"), "set session innodb_lock_wait_timeout = 3");
  EXPECT_EQ(one("mariadb", "{timeout 0s}"), "set session innodb_lock_wait_timeout = 0");
  EXPECT_EQ(one("postgres", "{timeout 100ms}"), "set lock_timeout = '100ms'");
  EXPECT_EQ(one("sqlite", "{timeout 1.5s}"), "pragma busy_timeout = 1500");
  EXPECT_EQ(one("sqlite", "{timeout 0ms}"), "pragma busy_timeout = 0");
  EXPECT_EQ(one("mysql", "select '{share}', \"{share}\", `{share}` {share}"),
            "select '{share}', \"{share}\", `{share}` for share");
}

TEST(Dialect, begin_with_a_level_is_spelled_each_engines_way) {
  for (const std::string level : {"read uncommitted", "read committed", "repeatable read", "serializable"}) {
    const std::string text = "begin " + level;
    const Strings mysql{"set transaction isolation level " + level, "begin"};
    EXPECT_EQ(in_dialect("mysql", text), mysql);
    EXPECT_EQ(in_dialect("mariadb", text), mysql);
    EXPECT_EQ(in_dialect("postgres", text), Strings{"begin transaction isolation level " + level});
  }
  EXPECT_EQ(in_dialect("sqlite", "begin serializable"), (Strings{"pragma read_uncommitted = 0", "begin"}));
  EXPECT_EQ(in_dialect("sqlite", "BEGIN  Read Uncommitted"), (Strings{"pragma read_uncommitted = 1", "begin"}));
  for (const std::string_view engine : {"mysql", "mariadb", "postgres", "sqlite"}) {
    for (const std::string text : {"begin", "begin immediate", "begin work", "beginning read committed"}) {
      EXPECT_EQ(in_dialect(engine, text), Strings{text});
    }
  }
}

TEST(Dialect, what_an_engine_does_not_have_is_unsupported) {
  const auto complaint_of = [](std::string_view engine, std::string_view text) -> std::string {
    try {
      in_dialect(engine, text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(complaint_of("sqlite", "select 1 {share}"), "sqlite has no shared locking read");
  EXPECT_EQ(complaint_of("sqlite", "select 1 {update}"), "sqlite has no exclusive locking read");
  EXPECT_EQ(complaint_of("sqlite", "{level read committed}"), "sqlite has no read committed");
  EXPECT_EQ(complaint_of("sqlite", "begin repeatable read"), "sqlite has no repeatable read");
  EXPECT_EQ(complaint_of("mysql", "{timeout 0ms}"), "mysql has no time limit of zero: say nowait in the statement");
  EXPECT_EQ(complaint_of("postgres", "{timeout 0ms}"),
            "postgres has no time limit of zero: say nowait in the statement");
}

// --- back to text -------------------------------------------------------------------------------------------------

TEST(Rewriting, the_same_expectations_give_the_same_text_byte_for_byte) {
  std::string windows;
  for (const char c : std::string(example)) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  const std::string odd =
      "scenario s   # name\n\nT1 a:  x\t =>   mysql :ok ;  else:  rows 1 ,2  # why \r\nT2 b: x   \\\n  => ok   \n"
      "T2 c: x\n  | # no\nT2 d: x  \\\n\n  check y=>1 => rows 'a'  , b";
  for (const std::string& text : {std::string(example), windows, odd}) {
    const Script script = read(text);
    EXPECT_EQ(rewritten(script, {}), text);
    std::map<std::size_t, std::string> same;
    for (const Line& line : script.lines) same[line.number] = line.expectation();
    EXPECT_EQ(rewritten(script, same), text);
  }
  // Also where it is really replaced.
  EXPECT_EQ(rewritten(read("scenario s\nT1 a: x  => mysql: ok; else: busy # why\r\n"), {{2, "mysql: ok; else: busy"}}),
            "scenario s\nT1 a: x  => mysql: ok; else: busy # why\r\n");
}

TEST(Rewriting, changed_expectations_leave_the_rest_of_the_file_as_it_is) {
  const std::string text =
      "# top\n"
      "  scenario  s   # a name = b\n"
      "\n"
      "  setup  create table t(a int)\n"
      "  T1 a:  select 1 where a=1      => rows 1      # why\n"
      "  T2 b:  select 2\n"
      "       | from t                  => ok  # why\n"
      "  T2 c:  select 3 \\\n"
      "         => mysql: ok; \\\n"
      "            else: busy\n"
      "  T1 d:  commit                  => ok\r\n"
      "  check  select 4=4              => rows 4";
  const std::string after = rewritten(
      read(text),
      {{5, "rows 1; 2"}, {6, "blocked by T1"}, {8, "mysql: busy; else: ok"}, {11, ""}, {12, "rows 5"}, {99, "ok"}});
  EXPECT_EQ(after,
            "# top\n"
            "  scenario  s   # a name = b\n"
            "\n"
            "  setup  create table t(a int)\n"
            "  T1 a:  select 1 where a=1      => rows 1; 2      # why\n"
            "  T2 b:  select 2\n"
            "       | from t                  => blocked by T1  # why\n"
            "  T2 c:  select 3 \\\n"
            "         => mysql: busy; else: ok\n"
            "  T1 d:  commit\r\n"
            "  check  select 4=4              => rows 5");
  const Script again = read(after);
  const Strings expectations{"", "rows 1; 2", "blocked by T1", "mysql: busy; else: ok", "", "rows 5"};
  ASSERT_EQ(again.lines.size(), expectations.size());
  for (std::size_t i = 0; i < expectations.size(); ++i) EXPECT_EQ(again.lines[i].expectation(), expectations[i]);
}

}  // namespace
}  // namespace hierlock::lab
