// Many rows in one order.
#include "rows.h"
#include "support/timing.h"

namespace hierlock::tests {
namespace {

class Order : public Rows {
 protected:
  // Two users lock `first` then `second`, and the other way round, one by one; each holds its first before it asks for
  // its second. Returns how many ended in a deadlock.
  int crossed(const std::pair<Table, Key>& first, const std::pair<Table, Key>& second) {
    std::atomic<int> deadlocks = 0, ready = 0;
    const auto play = [&](const std::pair<Table, Key>& one, const std::pair<Table, Key>& other) {
      const auto user = this->user();
      try {
        Transaction transaction(user->session());
        (void)(*user)->fetch_for_update(one.first, one.second);
        ++ready;
        const auto deadline = std::chrono::steady_clock::now() + patience;
        while (ready < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
        (void)(*user)->fetch_for_update(other.first, other.second, {.wait = Wait::for_ever()});
        transaction.commit();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::deadlock) << error.what();
        ++deadlocks;
      }
    };
    std::jthread there([&] { play(first, second); });
    play(second, first);
    there.join();
    return deadlocks;
  }

  // Threads that lock both, in opposite orders of asking, all at once, many times.
  void together(const std::vector<RowsOf>& forwards, const std::vector<RowsOf>& backwards, int rounds = 40) {
    std::vector<std::jthread> threads;
    std::atomic<int> done = 0;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        const auto user = this->user();
        for (int round = 0; round < rounds; ++round) {
          const auto kind = kind_of([&] {
            Transaction transaction(user->session());
            EXPECT_EQ((*user)->lock_in_order(i % 2 == 0 ? forwards : backwards).size(), 2u);
            transaction.commit();
          });
          EXPECT_EQ(kind, std::nullopt);
          ++done;
        }
      });
    }
    threads.clear();
    EXPECT_EQ(done, 4 * rounds);
  }
};
HIERLOCK_ON_EVERY_ENGINE(Order);

TEST_P(Order, rows_one_by_one_in_opposite_orders_deadlock) {  // X8
  if (is_sqlite()) HIERLOCK_NOT_APPLICABLE() << "SQLite has one lock, and no order to get wrong";
  const Table table = stock();
  EXPECT_EQ(crossed({table, {"tea"}}, {table, {"milk"}}), 1);
}

TEST_P(Order, tables_one_by_one_in_opposite_orders_deadlock) {  // X8
  if (is_sqlite()) HIERLOCK_NOT_APPLICABLE() << "SQLite has one lock, and no order to get wrong";
  const Table one = stock(), other = stock();
  EXPECT_EQ(crossed({one, {"tea"}}, {other, {"tea"}}), 1);
}

TEST_P(Order, rows_of_a_table_in_one_call_never_deadlock) {  // X8
  const Table table = stock();
  together({{table, {{"tea"}, {"milk"}}}}, {{table, {{"milk"}, {"tea"}}}});
}

TEST_P(Order, rows_of_two_tables_in_one_call_never_deadlock) {  // X8
  const Table one = stock(), other = stock();
  together({{one, {{"tea"}}}, {other, {{"milk"}}}}, {{other, {{"milk"}}}, {one, {{"tea"}}}});
}

TEST_P(Order, rows_come_in_the_order_of_table_and_key) {  // X8
  const Table one = stock(), other = stock();
  Transaction transaction(admin().session());
  const std::vector<Row> rows = admin()->lock_in_order(
      {{other, {{"tea"}, {"milk"}, {"tea"}}}, {one, {{"salt"}, {"rum"}}}, {other, {{"salt"}}}, {one, {}}});
  std::vector<std::string> order;
  for (const Row& row : rows) order.push_back(row.table().name() + " " + row.key().at(0).get<std::string>());
  EXPECT_EQ(order, (std::vector<std::string>{one.name() + " salt", other.name() + " milk", other.name() + " salt",
                                             other.name() + " tea"}));
}

TEST_P(Order, rows_that_were_not_asked_for_stay_free) {  // X8
  if (is_sqlite()) HIERLOCK_NOT_APPLICABLE() << "SQLite locks the whole database";
  const std::string name = table_name();
  admin().sql("CREATE TABLE " + name + " (a BIGINT NOT NULL, b BIGINT NOT NULL, n BIGINT, PRIMARY KEY (a, b))");
  const Table pairs(name, {.key = {"a", "b"}, .columns = {"n"}});
  for (int a = 1; a <= 3; ++a) {
    for (int b = 1; b <= 3; ++b) admin()->insert(pairs, {a, b}, {0});
  }
  const Table table = stock();
  const auto holder = user(), other = user();
  Transaction holding(holder->session());
  ASSERT_EQ((*holder)->lock_in_order({{table, {{"milk"}, {"tea"}}}, {pairs, {{1, 3}, {3, 1}}}}).size(), 4u);
  Transaction trying(other->session());
  EXPECT_TRUE((*other)->fetch_for_update(table, {"salt"}, {.wait = Wait::no_wait()}));
  for (int a = 1; a <= 3; ++a) {
    for (int b = 1; b <= 3; ++b) {
      const bool held = (a == 1 && b == 3) || (a == 3 && b == 1);
      EXPECT_EQ((*other)->fetch_for_update(pairs, {a, b}, {.wait = Wait::skip_locked()}).has_value(), !held) << a << b;
    }
  }
}

TEST_P(Order, keys_that_differ_only_in_case_have_one_order) {  // X8
  if (!is_innodb()) HIERLOCK_NOT_APPLICABLE() << "keys are compared byte by byte";
  const Table table = stock();
  // MILK < TEA and milk < tea, but TEA < milk by their bytes.
  together({{table, {{"TEA"}, {"milk"}}}}, {{table, {{"tea"}, {"MILK"}}}});
}

// If each table or each row had the limit for itself, the wait would take 1.6 times the limit.
TEST_P(Order, one_time_to_wait_is_for_all_rows_together) {  // X7, X8
  constexpr std::chrono::milliseconds limit = 500ms;
  const Table one = stock(), other = stock();
  struct Case {
    std::pair<Table, Key> first, last;  // in the order in which they are locked
    std::vector<RowsOf> all;
  };
  std::vector<Case> cases = {{{one, {"tea"}}, {other, {"milk"}}, {{other, {{"milk"}}}, {one, {{"tea"}}}}}};
  if (!is_sqlite()) cases.push_back({{one, {"milk"}}, {one, {"tea"}}, {{one, {{"tea"}, {"milk"}}}}});
  for (const Case& rows : cases) {
    const auto attempt = [&]() -> std::chrono::nanoseconds {
      const auto first = user(), last = user(), waiter = user();
      (*last)->begin();
      EXPECT_TRUE((*last)->fetch_for_update(rows.last.first, rows.last.second));
      const bool both = !is_sqlite();  // there the last holder has the one lock
      if (both) {
        (*first)->begin();
        EXPECT_TRUE((*first)->fetch_for_update(rows.first.first, rows.first.second));
      }
      const auto began = std::chrono::steady_clock::now();
      std::future<std::optional<ErrorKind>> end = std::async(std::launch::async, [&] {
        return kind_of([&] {
          Transaction transaction(waiter->session(), Begin::read);
          (*waiter)->lock_in_order(rows.all, {.wait = Wait::at_most(limit)});
        });
      });
      std::this_thread::sleep_until(began + limit * 6 / 10);
      if (both) (*first)->rollback();
      const auto let_go = std::chrono::steady_clock::now();
      EXPECT_EQ(end.get(), ErrorKind::timeout);
      const auto took = std::chrono::steady_clock::now() - began;
      EXPECT_GE(took, limit);
      (*last)->rollback();
      return let_go < began + limit * 8 / 10 ? took : std::chrono::hours(1);  // too late to tell anything
    };
    EXPECT_TRUE(once_within(limit * 3 / 2, attempt));
  }
}

}  // namespace
}  // namespace hierlock::tests
