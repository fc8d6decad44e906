// What needs no database: names, values, and each engine's SQL, word for word.
#include <gtest/gtest.h>

#include <deque>

#include <hierlock/rows.h>

namespace hierlock::rows {
namespace {

using namespace std::chrono_literals;

std::optional<ErrorKind> kind_thrown(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.kind();
  }
  return std::nullopt;
}

// Writes down what it is asked, and answers what it was told to.
class Scripted final : public Adapter {
 public:
  explicit Scripted(Engine engine, Placeholder placeholder = Placeholder::question)
      : engine_(engine), placeholder_(placeholder) {}
  Engine engine() const override { return engine_; }
  Placeholder placeholder() const override { return placeholder_; }
  Reply run(const std::string& sql, std::span<const Value>, std::size_t) override {
    sent.push_back(sql);
    if (answers.empty()) return Reply{.affected = 1};
    Reply reply = answers.front();
    answers.pop_front();
    return reply;
  }
  std::vector<std::string> sent;
  std::deque<Reply> answers;

 private:
  Engine engine_;
  Placeholder placeholder_;
};

Table stock() {
  return Table("shop.stock", {.key = {"item"}, .columns = {"quantity", "note"}, .version = "v", .fence = "f"});
}

TEST(Identifiers, what_could_be_read_as_more_than_a_name_is_refused) {
  const std::string too_long(64, 'a');
  for (const std::string& name :
       {std::string(),        std::string("a b"),     std::string("a`b"),  std::string("a\"b"),
        std::string("a'b"),   std::string("a;b"),     std::string("a:b"),  std::string("a?b"),
        std::string("a$1"),   std::string("a--b"),    std::string("a/*b"), std::string("a\\b"),
        std::string("1a"),    std::string("a\0b", 3), std::string("a\nb"), std::string("t\xc3\xa9"),
        std::string("a\xbf"), std::string("a.b"),     std::string("*"),    too_long}) {
    EXPECT_EQ(kind_thrown([&] { Table("t", {.key = {name}}); }), ErrorKind::invalid_argument) << name;
    EXPECT_EQ(kind_thrown([&] { Table("t", {.key = {"k"}, .columns = {name}}); }), ErrorKind::invalid_argument) << name;
    if (name.empty()) continue;
    EXPECT_EQ(kind_thrown([&] { Table("t", {.key = {"k"}, .version = name}); }), ErrorKind::invalid_argument) << name;
    if (name == "a.b") continue;
    EXPECT_EQ(kind_thrown([&] { Table(name, {.key = {"k"}}); }), ErrorKind::invalid_argument) << name;
  }
  for (const char* name : {"a.b.c", ".b", "a.", "a..b"}) {
    EXPECT_EQ(kind_thrown([&] { Table(name, {.key = {"k"}}); }), ErrorKind::invalid_argument) << name;
  }
  EXPECT_EQ(kind_thrown([] { Table("t", {}); }), ErrorKind::invalid_argument) << "no key";
  EXPECT_EQ(kind_thrown([] { Table("t", {.key = {"k"}, .columns = {"v"}, .version = "V"}); }),
            ErrorKind::invalid_argument)
      << "the version cannot be written as a column";
  EXPECT_EQ(kind_thrown([&] { Table(too_long.substr(1), {.key = {"_k9"}}); }), std::nullopt);
}

TEST(Values, are_read_as_what_they_are_or_refused) {
  EXPECT_EQ(Value("17").get<int>(), 17);
  EXPECT_EQ(Value(17).get<std::string>(), "17");
  EXPECT_EQ(Value("-9223372036854775808").get<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(Value(2.0).get<int>(), 2);
  EXPECT_EQ(Value("2.5").get<double>(), 2.5);
  EXPECT_EQ(Value(0.1).get<std::string>(), "0.1");
  EXPECT_EQ(Value("t").get<bool>(), true);
  EXPECT_EQ(Value("0").get<bool>(), false);
  EXPECT_EQ(Value().get<std::optional<int>>(), std::nullopt);
  EXPECT_EQ(Value(std::optional<int>()).is_null(), true);
  EXPECT_EQ(Value(std::optional<int>(3)).get<std::optional<int>>(), 3);
  EXPECT_EQ(kind_thrown([] { (void)Value().get<int>(); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown([] { (void)Value().get<std::string>(); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown([] { (void)Value("17 ").get<int>(); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown([] { (void)Value("x").get<double>(); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown([] { (void)Value(300).get<std::int8_t>(); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown([] { (void)Value(-1).get<unsigned>(); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown([] { (void)Value(2.5).get<int>(); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown([] { (void)Value(std::numeric_limits<std::uint64_t>::max()); }), ErrorKind::invalid_argument);
}

TEST(Sql, of_writes_is_the_same_but_for_quotes_and_placeholders) {  // X3, X4, X6, X11
  Scripted mysql(Engine::mysql), postgres(Engine::postgres, Placeholder::dollar),
      soci(Engine::sqlite, Placeholder::colon);
  for (Scripted* adapter : {&mysql, &postgres, &soci}) {
    Session session(*adapter);
    EXPECT_TRUE(session.guarded_update(stock(), {"tea"}, {add("quantity", -5), set("note", "x")},
                                       {at_least("quantity", 5), is_null("note")}));
    session.fenced_update(stock(), {"tea"}, 7, {set("quantity", 1)});
  }
  EXPECT_EQ(mysql.sent[0],
            "UPDATE `shop`.`stock` SET `quantity` = `quantity` + ?, `note` = ?, `v` = `v` + 1 WHERE `item` = ? AND "
            "`quantity` >= ? AND `note` IS NULL");
  EXPECT_EQ(postgres.sent[0],
            "UPDATE \"shop\".\"stock\" SET \"quantity\" = \"quantity\" + $1, \"note\" = $2, \"v\" = \"v\" + 1 WHERE "
            "\"item\" = $3 AND \"quantity\" >= $4 AND \"note\" IS NULL");
  EXPECT_EQ(soci.sent[1],
            "UPDATE `shop`.`stock` SET `f` = :p1, `quantity` = :p2, `v` = `v` + 1 WHERE `item` = :p3 AND "
            "(`f` IS NULL OR `f` <= :p4)");
}

TEST(Sql, of_locks_is_each_engines_own) {  // X7
  const auto sent = [](Engine engine, Strength strength, const Wait& wait, std::vector<Key> keys) {
    Scripted adapter(engine);
    Session session(adapter);
    const Table table("t", {.key = {"k"}});
    (void)session.lock_in_order({{table, std::move(keys)}}, {.strength = strength, .wait = wait});
    return adapter.sent.back();
  };
  const std::vector<Key> one = {{1}}, two = {{1}, {2}};
  const auto for_ever = Wait::for_ever(), no_wait = Wait::no_wait(), skip = Wait::skip_locked();
  EXPECT_EQ(sent(Engine::mysql, Strength::read, for_ever, one), "SELECT `k` FROM `t` WHERE `k` = ? FOR SHARE");
  EXPECT_EQ(sent(Engine::mysql, Strength::write, no_wait, one), "SELECT `k` FROM `t` WHERE `k` = ? FOR UPDATE NOWAIT");
  EXPECT_EQ(sent(Engine::mysql, Strength::write, skip, two),
            "SELECT `k` FROM `t` FORCE INDEX (PRIMARY) WHERE `k` IN (?, ?) ORDER BY `k` FOR UPDATE SKIP LOCKED");
  EXPECT_EQ(sent(Engine::mysql, Strength::write, Wait::at_most(5ms), one),
            "SELECT `k` FROM `t` WHERE `k` = ? FOR UPDATE NOWAIT");
  EXPECT_EQ(sent(Engine::mariadb, Strength::read, no_wait, one),
            "SELECT `k` FROM `t` WHERE `k` = ? LOCK IN SHARE MODE NOWAIT");
  EXPECT_EQ(sent(Engine::postgres, Strength::read, skip, two),
            "SELECT \"k\" FROM \"t\" WHERE \"k\" IN (?, ?) ORDER BY \"k\" FOR SHARE SKIP LOCKED");
  EXPECT_EQ(sent(Engine::sqlite, Strength::write, for_ever, one), "SELECT `k` FROM `t` WHERE `k` = ?");
}

TEST(Sql, mariadb_waits_by_the_time_of_the_statement) {  // X7
  Scripted adapter(Engine::mariadb);
  Session session(adapter);
  (void)session.fetch_for_update(Table("t", {.key = {"k"}}), {1}, {.wait = Wait::at_most(10h)});
  ASSERT_EQ(adapter.sent.size(), 1u);
  EXPECT_EQ(adapter.sent[0].find("SET STATEMENT max_statement_time="), 0u) << adapter.sent[0];
  EXPECT_TRUE(adapter.sent[0].ends_with(" FOR SELECT `k` FROM `t` WHERE `k` = ? FOR UPDATE")) << adapter.sent[0];
}

// MySQL's answers: innodb_lock_wait_timeout and innodb_rollback_on_timeout; a row that is held; a deadlock.
Reply settings(const char* seconds, const char* roll_back) {
  return Reply{.rows = {{Value(seconds), Value(roll_back)}}};
}
const Reply held{.code = 3572, .message = "Statement aborted because lock(s) could not be acquired immediately"};
const Reply deadlock{.code = 1213, .message = "Deadlock found when trying to get lock"};

TEST(Sql, mysql_waits_in_its_queue_for_the_whole_seconds_of_a_long_wait) {  // X7
  const Table table("t", {.key = {"k"}});
  const std::string select = "SELECT `k` FROM `t` WHERE `k` = ? FOR UPDATE";
  const std::string ask = "SELECT @@innodb_lock_wait_timeout, @@innodb_rollback_on_timeout";
  const auto set = [](const char* seconds) { return std::string("SET SESSION innodb_lock_wait_timeout = ") + seconds; };
  for (const bool granted : {true, false}) {
    Scripted adapter(Engine::mysql);
    adapter.answers = {held, settings("50", "0"), Reply{}, granted ? Reply{.rows = {{Value("1")}}} : deadlock, Reply{}};
    Session session(adapter);
    const auto kind = kind_thrown([&] { (void)session.fetch_for_update(table, {1}, {.wait = Wait::at_most(10s)}); });
    EXPECT_EQ(kind, granted ? std::nullopt : std::optional(ErrorKind::deadlock));
    EXPECT_EQ(adapter.sent, (std::vector<std::string>{select + " NOWAIT", ask, set("8"), select, set("50")}));
  }
  // A timeout of the session that is shorter need not be changed.
  Scripted shorter(Engine::mysql);
  shorter.answers = {held, settings("5", "0"), Reply{.rows = {{Value("1")}}}};
  Session session(shorter);
  EXPECT_TRUE(session.fetch_for_update(table, {1}, {.wait = Wait::at_most(10s)}));
  EXPECT_EQ(shorter.sent, (std::vector<std::string>{select + " NOWAIT", ask, select}));
  // A timeout would end the transaction: only attempts are left.
  Scripted ending(Engine::mysql);
  ending.answers = {held, settings("50", "1"), held, Reply{.rows = {{Value("1")}}}};
  Session other(ending);
  EXPECT_TRUE(other.fetch_for_update(table, {1}, {.wait = Wait::at_most(10s)}));
  EXPECT_EQ(ending.sent, (std::vector<std::string>{select + " NOWAIT", ask, select + " NOWAIT", select + " NOWAIT"}));
}

TEST(Sql, a_timeout_that_ended_the_transaction_is_not_waited_through) {  // X7
  Scripted adapter(Engine::mysql);
  adapter.answers = {Reply{.code = 1205, .message = "Lock wait timeout exceeded"}, settings("50", "1")};
  Session session(adapter);
  EXPECT_EQ(kind_thrown([&] { (void)session.fetch_for_update(Table("t", {.key = {"k"}}), {1}); }), ErrorKind::timeout);
  EXPECT_EQ(adapter.sent.size(), 2u) << "the lock, and the question whether InnoDB rolls back on a timeout";
}

TEST(Sql, postgres_turns_its_lock_timeout_off_for_a_wait_for_ever) {  // X7
  const Table table("t", {.key = {"k"}});
  const std::string one = "SELECT \"k\" FROM \"t\" WHERE \"k\" = ? FOR UPDATE";
  const std::string two = "SELECT \"k\" FROM \"t\" WHERE \"k\" IN (?, ?) ORDER BY \"k\" FOR UPDATE";
  const std::string off = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', '0', true)";
  const std::string restore = "SELECT set_config('lock_timeout', ?, true)";
  const Reply row{.rows = {{Value("1")}}}, none{}, ended{.state = "55P03", .message = "canceling statement"};
  const auto was = [](const char* time) { return Reply{.rows = {{Value(time), Value("0")}}}; };
  const auto sent = [&](std::deque<Reply> answers, std::vector<Key> keys, std::optional<ErrorKind> end = {}) {
    Scripted adapter(Engine::postgres);
    adapter.answers = std::move(answers);
    Session session(adapter);
    EXPECT_EQ(kind_thrown([&] { (void)session.lock_in_order({{table, keys}}); }), end);
    return adapter.sent;
  };
  using Sent = std::vector<std::string>;
  EXPECT_EQ(sent({row}, {{1}}), (Sent{one + " SKIP LOCKED"})) << "one round trip if the row is free";
  EXPECT_EQ(sent({none, was("0"), row}, {{1}}), (Sent{one + " SKIP LOCKED", off, one}));
  EXPECT_EQ(sent({none, was("5s"), row, row}, {{1}}), (Sent{one + " SKIP LOCKED", off, one, restore}));
  EXPECT_EQ(sent({was("5s"), row, row}, {{1}, {2}}), (Sent{off, two, restore})) << "in order: nothing is skipped";
  // Without a transaction the wait begins again. In one, the first error counts.
  EXPECT_EQ(sent({was("5s"), ended, ended, row, row}, {{1}, {2}}), (Sent{off, two, two, two, restore}));
  const Reply spoilt{.state = "25P02", .message = "current transaction is aborted"};
  EXPECT_EQ(sent({was("5s"), ended, spoilt}, {{1}, {2}}, ErrorKind::timeout), (Sent{off, two, two}));
}

TEST(Kinds, of_what_a_test_cannot_provoke) {  // X9
  const auto kind = [](Engine engine, std::int64_t code, const char* state) {
    Scripted adapter(engine);
    adapter.answers = {Reply{.code = code, .state = state, .message = "refused"}};
    Session session(adapter);
    return kind_thrown([&] { (void)session.fetch(Table("t", {.key = {"k"}}), {1}); });
  };
  for (const Engine engine : {Engine::mysql, Engine::mariadb}) {
    EXPECT_EQ(kind(engine, 3101, ""), ErrorKind::serialization) << "a group of servers found a conflict";
    for (const int code : {1040, 1114, 1203, 1206, 1226, 1637}) EXPECT_EQ(kind(engine, code, ""), ErrorKind::exhausted);
    for (const int code : {1053, 1158, 1161, 1927, 2006, 2013, 3169, 4031}) {
      EXPECT_EQ(kind(engine, code, ""), ErrorKind::unavailable) << code;
    }
    for (const int code : {1044, 1045, 1142, 1290, 1698, 1836}) EXPECT_EQ(kind(engine, code, ""), ErrorKind::denied);
    EXPECT_EQ(kind(engine, 9999, ""), ErrorKind::invalid_argument);
  }
  for (const char* state : {"08006", "57P01", "57P05", "25P03", "25P04"}) {
    EXPECT_EQ(kind(Engine::postgres, 0, state), ErrorKind::unavailable) << state;
  }
  for (const char* state : {"53100", "53200", "53300"}) {
    EXPECT_EQ(kind(Engine::postgres, 0, state), ErrorKind::exhausted) << state;
  }
  for (const char* state : {"42501", "25006", "28P01"}) {
    EXPECT_EQ(kind(Engine::postgres, 0, state), ErrorKind::denied) << state;
  }
  EXPECT_EQ(kind(Engine::postgres, 0, "3D000"), ErrorKind::not_provisioned);
  EXPECT_EQ(kind(Engine::postgres, 0, "22003"), ErrorKind::invalid_argument);
  EXPECT_EQ(kind(Engine::sqlite, 7, ""), ErrorKind::exhausted);
  EXPECT_EQ(kind(Engine::sqlite, 9, ""), ErrorKind::cancelled);
  EXPECT_EQ(kind(Engine::sqlite, 13, ""), ErrorKind::exhausted);
  EXPECT_EQ(kind(Engine::sqlite, 11, ""), ErrorKind::unavailable);
}

// START TRANSACTION would commit on MySQL what was not rolled back.
TEST(Rollback, that_did_not_happen_is_repeated_or_keeps_the_next_transaction_from_beginning) {  // X9
  const Reply stopped{.code = 1317, .message = "Query execution was interrupted"};
  Scripted once(Engine::mysql), always(Engine::mysql), gone(Engine::mysql);
  once.answers = {Reply{}, stopped, Reply{}, Reply{}};
  always.answers = {Reply{}, stopped, stopped};
  gone.answers = {Reply{}, Reply{.code = 2006, .message = "the server has gone away"}, Reply{}};
  for (Scripted* adapter : {&once, &always, &gone}) {
    Session session(*adapter);
    { Transaction transaction(session); }
    EXPECT_EQ(kind_thrown([&] { session.begin(); }),
              adapter == &always ? std::optional(ErrorKind::invalid_argument) : std::nullopt);
  }
  const std::vector<std::string> repeated = {"START TRANSACTION", "ROLLBACK", "ROLLBACK", "START TRANSACTION"};
  EXPECT_EQ(once.sent, repeated);
  EXPECT_EQ(always.sent.size(), 3u);
  EXPECT_EQ(gone.sent.size(), 3u);
}

TEST(Sql, misuse_is_refused_before_anything_is_sent) {
  Scripted adapter(Engine::mysql);
  Session session(adapter);
  const Table plain("t", {.key = {"k"}, .columns = {"n"}});
  const std::vector<std::function<void()>> misuses = {
      [&] { (void)session.guarded_update(plain, {1}, {}, {}); },
      [&] { (void)session.guarded_update(plain, {1}, {set("k", 2)}, {}); },
      [&] {
        (void)session.guarded_update(plain, {1}, {set("n", 2), add("n", 2)}, {});
      },
      [&] { (void)session.guarded_update(plain, {1}, {set("n", 2)}, {equal("x", 2)}); },
      [&] { (void)session.guarded_update(plain, {1}, {set("n", 2)}, {equal("n", nullptr)}); },
      [&] { (void)session.guarded_update(plain, {}, {set("n", 2)}, {}); },
      [&] { session.insert(plain, {1}, {}); },
      [&] {
        (void)session.fetch(plain, {1, 2});
      },
      [&] { (void)session.fetch(plain, {nullptr}); },
      [&] { session.fenced_update(plain, {1}, 5, {set("n", 2)}); },
  };
  for (const auto& misuse : misuses) EXPECT_EQ(kind_thrown(misuse), ErrorKind::invalid_argument);
  EXPECT_TRUE(adapter.sent.empty());
}

TEST(SqlState, is_one_number_for_each_state) {
  EXPECT_EQ(sqlstate_number("00000"), 0);
  EXPECT_EQ(sqlstate_number("0000A"), 10);
  EXPECT_NE(sqlstate_number("40P01"), sqlstate_number("40001"));
}

}  // namespace
}  // namespace hierlock::rows
