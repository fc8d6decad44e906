// Transactions, and running them again.
#include "rows.h"

namespace hierlock::tests {
namespace {

class Transactions : public Rows {};
HIERLOCK_ON_EVERY_ENGINE(Transactions);

TEST_P(Transactions, are_rolled_back_unless_committed) {  // X9
  const Table table = stock();
  const auto user = this->user();
  {
    Transaction transaction(user->session());
    ASSERT_TRUE((*user)->guarded_update(table, {"tea"}, {add("quantity", -5)}, {}));
  }
  EXPECT_EQ(quantity(table, "tea"), 100);
  {
    Transaction transaction(user->session());
    ASSERT_TRUE((*user)->guarded_update(table, {"tea"}, {add("quantity", -5)}, {}));
    transaction.commit();
  }
  EXPECT_EQ(quantity(table, "tea"), 95);
}

TEST_P(Transactions, do_not_commit_after_a_statement_failed) {  // X9
  const Table table = stock();
  const auto user = this->user();
  {
    Transaction transaction(user->session());
    ASSERT_TRUE((*user)->guarded_update(table, {"tea"}, {add("quantity", -5)}, {}));
    EXPECT_EQ(kind_of([&] { (*user)->insert(table, {"tea"}, {1}); }), ErrorKind::invalid_argument);
    EXPECT_EQ(kind_of([&] { transaction.commit(); }), ErrorKind::invalid_argument);
  }
  EXPECT_EQ(quantity(table, "tea"), 100);
  Transaction next(user->session());
  ASSERT_TRUE((*user)->guarded_update(table, {"tea"}, {add("quantity", -1)}, {}));
  next.commit();
  EXPECT_EQ(quantity(table, "tea"), 99);
}

// MySQL would commit the first one, PostgreSQL would take them for one.
TEST_P(Transactions, do_not_begin_inside_another_one) {  // X9
  const Table table = stock();
  const auto user = this->user();
  {
    Transaction outer(user->session());
    ASSERT_TRUE((*user)->guarded_update(table, {"tea"}, {add("quantity", -5)}, {}));
    EXPECT_EQ(kind_of([&] { Transaction inner(user->session()); }), ErrorKind::invalid_argument);
  }
  EXPECT_EQ(quantity(table, "tea"), 100);
  Transaction next(user->session());
  ASSERT_TRUE((*user)->guarded_update(table, {"tea"}, {add("quantity", -1)}, {}));
  next.commit();
  EXPECT_EQ(quantity(table, "tea"), 99);
}

// An engine that has rolled back by itself would commit each further statement at once.
TEST_P(Transactions, that_the_engine_has_ended_take_no_further_statement) {  // X9
  const Table table = stock();
  const auto user = this->user(), other = this->user();
  const auto carry_on = [&] {
    EXPECT_EQ(kind_of([&] { (void)(*user)->guarded_update(table, {"salt"}, {add("quantity", -5)}, {}); }),
              ErrorKind::invalid_argument);
    EXPECT_EQ(kind_of([&] { (void)(*user)->fetch(table, {"salt"}); }), ErrorKind::invalid_argument);
    EXPECT_EQ(kind_of([&] { (void)(*user)->fetch_for_update(table, {"salt"}); }), ErrorKind::invalid_argument);
    EXPECT_EQ(kind_of([&] { (*user)->commit(); }), ErrorKind::invalid_argument);
    EXPECT_EQ(kind_of([&] { (*user)->rollback(); }), std::nullopt);
  };
  if (is_sqlite()) {
    admin().sql("CREATE TRIGGER no_milk_" + table.name() + " BEFORE UPDATE ON " + table.name() +
                " WHEN new.item = 'milk' BEGIN SELECT RAISE(ROLLBACK, 'no milk'); END");
    (*user)->begin();
    ASSERT_TRUE((*user)->guarded_update(table, {"tea"}, {add("quantity", -5)}, {}));
    EXPECT_EQ(kind_of([&] { (void)(*user)->guarded_update(table, {"milk"}, {add("quantity", -5)}, {}); }),
              ErrorKind::invalid_argument);
  } else {
    (*user)->begin();
    (*other)->begin();
    ASSERT_TRUE((*user)->fetch_for_update(table, {"tea"}));
    ASSERT_TRUE((*other)->guarded_update(table, {"milk"}, {add("quantity", -1)}, {}));
    std::future<std::optional<ErrorKind>> rival = std::async(std::launch::async, [&] {
      const std::optional<ErrorKind> kind = kind_of([&] { (void)(*other)->fetch_for_update(table, {"tea"}); });
      (*other)->rollback();
      return kind;
    });
    other->spy().wait_for("FOR UPDATE");
    const std::optional<ErrorKind> kind = kind_of([&] { (void)(*user)->fetch_for_update(table, {"milk"}); });
    // PostgreSQL's victim is whoever looks first, and then this one goes on.
    const std::optional<ErrorKind> rivals = rival.get();
    ASSERT_TRUE(kind == ErrorKind::deadlock || rivals == ErrorKind::deadlock);
    if (!kind) {
      EXPECT_EQ(kind_of([&] { (*user)->insert(table, {"tea"}, {1}); }), ErrorKind::invalid_argument);
    }
  }
  carry_on();
  EXPECT_EQ(quantity(table, "tea") + quantity(table, "milk") + quantity(table, "salt"), 300);
}

// PostgreSQL answers such a COMMIT without an error, by rolling back.
TEST_P(Transactions, are_not_reported_as_committed_if_a_statement_of_the_application_spoilt_them) {  // X9
  if (engine() != Engine::postgres) HIERLOCK_NOT_APPLICABLE() << "elsewhere a failed statement is undone alone";
  const Table table = stock();
  const auto user = this->user();
  {
    Transaction transaction(user->session());
    ASSERT_TRUE((*user)->guarded_update(table, {"tea"}, {add("quantity", -5)}, {}));
    ASSERT_TRUE(user->attempt("INSERT INTO " + table.name() + " (item) VALUES ('tea')").failed());
    EXPECT_EQ(kind_of([&] { transaction.commit(); }), ErrorKind::invalid_argument);
  }
  EXPECT_EQ(quantity(table, "tea"), 100);
}

TEST_P(Transactions, with_savepoints_of_the_application_go_on) {  // X9
  const Table table = stock();
  const auto user = this->user();
  user->sql("BEGIN");
  ASSERT_TRUE((*user)->guarded_update(table, {"tea"}, {add("quantity", -5)}, {}));
  user->sql("SAVEPOINT here");
  EXPECT_EQ(kind_of([&] { (*user)->insert(table, {"tea"}, {1}); }), ErrorKind::invalid_argument);
  user->sql("ROLLBACK TO SAVEPOINT here");
  ASSERT_TRUE((*user)->guarded_update(table, {"milk"}, {add("quantity", -5)}, {}));
  user->sql("COMMIT");
  EXPECT_EQ(quantity(table, "tea"), 95);
  EXPECT_EQ(quantity(table, "milk"), 95);
}

TEST_P(Transactions, no_effect_of_a_failed_try_survives) {  // X9
  const Table table = stock();
  const auto user = this->user();
  std::vector<ErrorKind> retried;
  const int tries =
      retry({.initial_delay = 0s, .on_retry = [&](const Retried& failed) { retried.push_back(failed.error.kind()); }},
            [&, tries = 0]() mutable {
              Transaction transaction(user->session());
              EXPECT_TRUE((*user)->guarded_update(table, {"tea"}, {add("quantity", -5)}, {}));
              if (++tries < 3) throw Error(ErrorKind::deadlock, "a made-up one");
              transaction.commit();
              return tries;
            });
  EXPECT_EQ(tries, 3);
  EXPECT_EQ(retried, (std::vector<ErrorKind>{ErrorKind::deadlock, ErrorKind::deadlock}));
  EXPECT_EQ(quantity(table, "tea"), 95);
}

TEST_P(Transactions, optimists_who_retry_lose_no_update) {  // X1, X4, X9
  const Table table = stock();
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto user = this->user();
      for (int round = 0; round < 10; ++round) {
        retry({.tries = 1000, .timeout = patience, .initial_delay = 1ms, .max_delay = 20ms, .conflicts = true}, [&] {
          Transaction transaction(user->session());
          std::optional<Row> row = (*user)->fetch(table, {"tea"});
          row->set("quantity", row->get<int>("quantity") + 1);
          (*user)->update(*row);
          transaction.commit();
        });
      }
    });
  }
  threads.clear();
  EXPECT_EQ(quantity(table, "tea"), 140);
}

TEST_P(Transactions, of_the_application_itself_work_as_well) {  // X7
  const Table table = stock();
  const auto user = this->user(), other = this->user();
  user->sql("BEGIN");
  ASSERT_TRUE((*user)->fetch_for_update(table, {"tea"}));
  EXPECT_EQ(kind_of([&] {
              Transaction transaction(other->session(), Begin::read);
              (void)(*other)->fetch_for_update(table, {"tea"}, {.wait = Wait::no_wait()});
            }),
            ErrorKind::busy);
  user->sql("COMMIT");
}

}  // namespace
}  // namespace hierlock::tests
