// Scenarios that are played at the same time end as they do one after another.
#include "lab/side_by_side.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <string>
#include <vector>

#include "lab/shared_look.h"

namespace hierlock::lab {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Verdict = Result::Verdict;

// --- without a server
// -------------------------------------------------------------------------------------------------

bool alone(const std::string& lines) { return must_play_alone(parse("scenario x\n" + lines).script(), "mariadb"); }

TEST(SideBySide, a_scenario_that_reaches_beyond_its_schema_is_played_alone) {
  for (const std::string sql : {"select get_lock('a', 1)",
                                "do RELEASE_ALL_LOCKS()",
                                "set global innodb_lock_wait_timeout = 1",
                                "set @@global.wait_timeout = 1",
                                "flush tables with read lock",
                                "kill query 5",
                                "create user u",
                                "drop role r",
                                "grant all on x to y",
                                "create database d",
                                "use test",
                                "select * from test.t",
                                "select * from `test`.`t`",
                                "select schema_name from information_schema.schemata",
                                "xa start 'a'",
                                "backup stage start",
                                "select database()",
                                "prepare s from 'select 1'",
                                "execute immediate concat('fl', 'ush tables')",
                                "show processlist",
                                "select * from t into outfile 'x'",
                                "create table hierlock_lab.t(a int)",
                                "create event e on schedule every 1 second do select 1",
                                "set password = 'x'",
                                "/*! flush */ tables"}) {
    EXPECT_TRUE(alone("T1 a: " + sql)) << sql;
    EXPECT_TRUE(alone("setup " + sql + "\nT1 a: select 1")) << sql;
  }
  EXPECT_TRUE(alone("T1 a: acquire u1"));
  EXPECT_TRUE(alone("T1 a: select 1\nteardown drop user u"));
  std::string many;
  for (int i = 1; i <= 9; ++i) many += "T" + std::to_string(i) + " s" + std::to_string(i) + ": select 1\n";
  EXPECT_TRUE(alone(many));
}

TEST(SideBySide, a_scenario_that_stays_in_its_schema_has_neighbours) {
  for (const std::string sql :
       {"update t set v = 1.5 where id = 1", "select * from t lock in share mode", "begin serializable", "{timeout 1s}",
        "lock tables t write", "insert into users values ('x')", "alter table t add c int", "savepoint a",
        "set session transaction isolation level read committed", "{level read committed}"}) {
    EXPECT_FALSE(alone("T1 a: " + sql)) << sql;
  }
  EXPECT_FALSE(alone("T1 a: postgres: select pg_catalog.now()")) << "a line for another engine";
}

TEST(SharedLook, those_who_wait_for_the_same_read_share_it) {
  SharedLook<int> look(50ms);
  std::atomic<int> reads{0};
  const Clock::time_point since = Clock::now();
  std::vector<std::future<int>> all;
  for (int i = 0; i < 6; ++i) {
    all.push_back(std::async(std::launch::async, [&] { return *look.after(since, [&] { return ++reads; }); }));
  }
  for (auto& one : all) EXPECT_EQ(one.get(), 1);
  EXPECT_EQ(reads, 1);
}

TEST(SharedLook, a_read_is_never_too_close_to_the_one_before) {
  SharedLook<int> look(40ms);
  Clock::time_point last = Clock::now();
  for (int i = 0; i < 4; ++i) {
    look.after(Clock::now(), [&] {
      EXPECT_GE(Clock::now() - last, i == 0 ? 0ms : 40ms);
      std::this_thread::sleep_for(5ms);
      last = Clock::now();
      return i;
    });
  }
}

TEST(SharedLook, a_read_that_began_too_early_is_not_used) {
  SharedLook<int> look(10ms);
  std::atomic<bool> reading{false};
  std::promise<void> go;
  auto early = std::async(std::launch::async, [&] {
    return *look.after(Clock::now(), [&] {
      reading = true;
      go.get_future().wait();
      return 1;
    });
  });
  while (!reading) std::this_thread::yield();
  auto late = std::async(std::launch::async, [&] { return *look.after(Clock::now(), [] { return 2; }); });
  EXPECT_EQ(late.wait_for(20ms), std::future_status::timeout);
  go.set_value();
  EXPECT_EQ(early.get(), 1);
  EXPECT_EQ(late.get(), 2);
  EXPECT_EQ(*look.after({}, [] { return 3; }), 2) << "an old one will do";
  EXPECT_LT(look.due({}), Clock::now());
  EXPECT_GT(look.due(Clock::now()), Clock::now() - 10ms);
}

TEST(SharedLook, a_read_that_fails_is_told_to_its_own_caller_only) {
  SharedLook<int> look(1ms);
  EXPECT_THROW(look.after(Clock::now(), []() -> int { throw Error(ErrorKind::denied, "no"); }), Error);
  EXPECT_EQ(*look.after(Clock::now(), [] { return 5; }), 5);
}

// --- on MariaDB
// -------------------------------------------------------------------------------------------------------

class SideBySideOnMariadb : public testing::Test {
 protected:
  void SetUp() override {
    if (url().empty()) GTEST_SKIP() << "HIERLOCK_TEST_MARIADB names no server: eval \"$(tools/servers env)\"";
  }
  static std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  }
  static std::string url() { return variable("HIERLOCK_TEST_MARIADB"); }
  static std::string operator_url() {
    const std::string named = variable("HIERLOCK_TEST_MARIADB_OPERATOR");
    return named.empty() ? url() : named;
  }

  // The same table in each, so that they meet if anything of one is seen in another.
  static Scenario scenario(const std::string& name, const std::string& lines) {
    return parse("scenario " + name + "\nsetup create table t(id int primary key, v int)\n" +
                 "setup insert into t values (1,0),(2,0),(3,0)\n" + lines);
  }
  inline static const std::string waits = R"(
T1 a: begin
T1 b: update t set v = v + 1 where id = 1     => affected 1
T2 c: update t set v = v * 10 where id = 1    => blocked by T1
T1 d: commit                                  => ok, unblocks T2 (affected 1)
check select v from t where id = 1            => rows 10
)";
  inline static const std::string deadlocks = R"(
T1 a: begin
T2 b: begin
T1 c: update t set v = 1 where id = 1         => affected 1
T2 d: update t set v = 2 where id = 2         => affected 1
T1 e: update t set v = 1 where id = 2         => blocked by T2
T2 f: update t set v = 2 where id = 1         => deadlock, T1 or T2
)";
  // Two who only share have the same number in the server's view, and so have those of other scenarios.
  inline static const std::string shares = R"(
T1 a: begin
T2 b: begin
T1 c: select v from t where id = 3 {share}    => rows 0
T2 d: select v from t where id = 3 {share}    => rows 0
T3 e: update t set v = 3 where id = 3         => blocked by T1, T2
T1 f: commit                                  => ok
T2 g: commit                                  => ok, unblocks T3 (affected 1)
)";
  inline static const std::string times_out = R"(
T1 a: begin
T1 b: update t set v = 1 where id = 1
T2 c: {timeout 1s}
T2 d: update t set v = 2 where id = 1         => blocked by T1, then timeout
T3 e: select v from t where id = 1 for update nowait => busy
)";
  inline static const std::string names = R"(
T1 a: select get_lock('lab side', 0)          => rows 1
T2 b: select get_lock('lab side', 5)          => blocked by T1
T1 c: select release_lock('lab side')         => rows 1, unblocks T2 (rows 1)
)";
  inline static const std::string fails = R"(
T1 a: begin
T1 b: update t set v = 1 where id = 1         => affected 1
T2 c: update t set v = 2 where id = 1         => affected 1
)";
  inline static const std::string cannot = "setup insert into missing values (1)\nT1 a: select 1\n";

  static std::vector<Scenario> mixed() {
    std::vector<Scenario> all;
    for (int i = 0; i < 2; ++i) {
      const std::string number = std::to_string(i);
      for (const auto& [name, lines] : std::initializer_list<std::pair<std::string, std::string>>{
               {"waits", waits}, {"fails", fails}, {"shares", shares}, {"deadlocks", deadlocks}}) {
        all.push_back(scenario(name + " " + number, lines));
      }
    }
    all.insert(all.begin() + 4, scenario("names", names));
    all.insert(all.begin() + 7, scenario("cannot", cannot));
    all.insert(all.begin() + 3, scenario("times out", times_out));
    all.insert(all.begin() + 2, parse("scenario other\nengines postgres\nT1 a: select 1"));
    return all;
  }

  // All that is told of a result, but for times and the victim of a deadlock, which the server chooses.
  static std::string told(const Result& result) {
    std::string text = result.scenario + ": " + std::string(to_string(result.verdict)) + " " + result.message + "\n";
    for (const Event& event : result.events) {
      text += event.session + " " + event.name + ": " +
              (event.actual.starts_with("deadlock") ? "deadlock" : event.actual) + "\n";
    }
    return text;
  }
  // As one who may do anything. Answers the last one.
  static Answer as_operator(const std::vector<std::string>& statements) {
    const auto database = open_database(operator_url());
    database->make_room(20s);
    const auto session = database->connect("operator");
    Answer answer;
    for (const std::string& sql : statements) {
      answer = session->execute(sql);
      EXPECT_TRUE(answer.well()) << sql << ": " << answer.message;
    }
    return answer;
  }
  static std::string schemas() {
    std::string found;
    for (const Row& row : as_operator({"show databases like 'hierlock%lab%'"}).rows) {
      found += row.front().value_or("") + " ";
    }
    return found;
  }
};

TEST_F(SideBySideOnMariadb, the_verdicts_are_those_of_one_after_another) {
  const std::vector<Scenario> all = mixed();
  Runner runner(url());
  const std::vector<Result> one_by_one = runner.run_all(all, {.side_by_side = 1});
  std::vector<std::size_t> order;
  RunAllOptions options{.side_by_side = 6};
  options.on_result = [&](std::size_t index, const Result& result) {
    EXPECT_EQ(result.scenario, all[index].name());
    order.push_back(index);
  };
  const std::vector<Result> at_once = runner.run_all(all, options);
  ASSERT_EQ(one_by_one.size(), all.size());
  ASSERT_EQ(at_once.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(told(at_once[i]), told(one_by_one[i])) << at_once[i].str();
    const std::string& name = all[i].name();
    const Verdict expected = name.starts_with("fails")    ? Verdict::failed
                             : name.starts_with("cannot") ? Verdict::error
                             : name == "other"            ? Verdict::skipped
                                                          : Verdict::passed;
    EXPECT_EQ(at_once[i].verdict, expected) << at_once[i].message;
    EXPECT_EQ(order.at(i), i);
  }
  EXPECT_EQ(schemas(), "hierlock_lab ") << "the others are gone";
}

TEST_F(SideBySideOnMariadb, they_are_really_played_at_the_same_time) {
  std::vector<Scenario> all;
  for (int i = 0; i < 6; ++i) all.push_back(scenario("times out " + std::to_string(i), times_out));
  Runner runner(url());
  const auto began = Clock::now();
  const std::vector<Result> results = runner.run_all(all, {.side_by_side = 6});
  std::chrono::nanoseconds sum{};
  for (const Result& result : results) {
    EXPECT_TRUE(result.passed()) << result.str();
    sum += result.took;
  }
  EXPECT_GT(sum, 6s) << "each waits for a second";
  EXPECT_LT(Clock::now() - began, sum * 2 / 3);
}

TEST_F(SideBySideOnMariadb, every_wrong_expectation_fails_at_its_line) {
  struct Flip {
    std::string from, to;
    std::size_t line;
  };
  const std::vector<Flip> flips{
      {"=> blocked by T1\n", "=> affected 1\n", 6},
      {"=> blocked by T1\n", "=> blocked by T2\n", 6},
      {"=> blocked by T1\n", "=> blocked by T1, T2\n", 6},
      {", unblocks T2 (affected 1)", "", 7},
      {"unblocks T2 (affected 1)", "unblocks T2 (affected 2)", 7},
      {"rows 10", "rows 11", 8},
      {"affected 1\nT2", "blocked\nT2", 5},
  };
  std::vector<Scenario> all;
  for (const Flip& flip : flips) {
    std::string text = waits.substr(1);
    const std::size_t at = text.find(flip.from);
    ASSERT_NE(at, text.npos) << flip.from;
    all.push_back(scenario("right", waits.substr(1)));
    all.push_back(scenario("wrong", text.replace(at, flip.from.size(), flip.to)));
  }
  Runner runner(url());
  const std::vector<Result> results = runner.run_all(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Result& result = results[i];
    if (i % 2 == 0) {
      EXPECT_TRUE(result.passed()) << result.str();
      continue;
    }
    EXPECT_EQ(result.verdict, Verdict::failed) << result.str();
    EXPECT_TRUE(result.message.starts_with("scenario:" + std::to_string(flips[i / 2].line) + ":")) << result.message;
  }
}

TEST_F(SideBySideOnMariadb, another_run_gets_its_turn_in_between) {
  std::vector<Scenario> all;
  for (int i = 0; i < 4; ++i) all.push_back(scenario("times out " + std::to_string(i), times_out));
  std::atomic<bool> begun = false;
  RunAllOptions options{.side_by_side = 2};
  options.run.on_event = [&](const auto&...) { begun = true; };
  auto many = std::async(std::launch::async, [&] {
    Runner runner(url());
    const auto results = runner.run_all(all, options);
    return std::pair(results, Clock::now());
  });
  for (const auto end = Clock::now() + 20s; !begun && Clock::now() < end;) std::this_thread::sleep_for(1ms);
  ASSERT_TRUE(begun) << "the many have not begun";
  const Result other = run(scenario("waits", waits), url());
  const auto other_ended = Clock::now();
  const auto [results, many_ended] = many.get();
  EXPECT_TRUE(other.passed()) << other.message << other.str();
  for (const Result& result : results) EXPECT_TRUE(result.passed()) << result.str();
  EXPECT_LT(other_ended, many_ended);
}

TEST_F(SideBySideOnMariadb, an_account_with_one_schema_plays_one_after_another) {
  const std::string user = "lab_side_" + std::to_string(getpid());
  as_operator({"create user '" + user + "'@'%' identified by 'secret'",
               "grant all on `hierlock\\_lab`.* to '" + user + "'@'%'", "grant process on *.* to '" + user + "'@'%'"});
  const std::string place = url().substr(url().find('@'));
  {
    Runner runner("mysql://" + user + ":secret" + place);
    const std::vector<Scenario> all{scenario("waits", waits), scenario("fails", fails),
                                    scenario("deadlocks", deadlocks)};
    const std::vector<Result> results = runner.run_all(all);
    EXPECT_TRUE(results[0].passed()) << results[0].message;
    EXPECT_EQ(results[1].verdict, Verdict::failed) << results[1].message;
    EXPECT_TRUE(results[2].passed()) << results[2].message;
  }
  as_operator({"drop user '" + user + "'@'%'"});
}

TEST_F(SideBySideOnMariadb, a_schema_that_a_killed_run_left_goes_and_a_strangers_stays) {
  as_operator({"create database hierlock_lab_3", "create table hierlock_lab_3.made_by_hierlock_lab (made int)",
               "create database hierlock_lab_4", "create database hierlock_lab_x",
               "create table hierlock_lab_x.made_by_hierlock_lab (made int)"});
  EXPECT_EQ(schemas(), "hierlock_lab hierlock_lab_4 hierlock_lab_x ");
  std::vector<Scenario> all;
  for (int i = 0; i < 8; ++i) all.push_back(scenario("waits " + std::to_string(i), waits));
  for (const Result& result : Runner(url()).run_all(all)) EXPECT_TRUE(result.passed()) << result.message;
  EXPECT_EQ(schemas(), "hierlock_lab hierlock_lab_4 hierlock_lab_x ");
  as_operator({"drop database hierlock_lab_4", "drop database hierlock_lab_x"});
}

TEST_F(SideBySideOnMariadb, a_cancel_ends_all_of_them) {
  std::vector<Scenario> all;
  for (int i = 0; i < 20; ++i) all.push_back(scenario("times out " + std::to_string(i), times_out));
  std::stop_source stop;
  RunAllOptions options{.side_by_side = 4};
  options.run.cancel = stop.get_token();
  auto results = std::async(std::launch::async, [&] { return Runner(url()).run_all(all, options); });
  std::this_thread::sleep_for(300ms);
  const auto began = Clock::now();
  stop.request_stop();
  const std::vector<Result> ended = results.get();
  EXPECT_LT(Clock::now() - began, 5s);
  ASSERT_EQ(ended.size(), all.size());
  EXPECT_EQ(ended.back().verdict, Verdict::error);
  EXPECT_NE(ended.back().message.find("cancelled"), std::string::npos);
  EXPECT_EQ(schemas(), "hierlock_lab ");
}

}  // namespace
}  // namespace hierlock::lab
