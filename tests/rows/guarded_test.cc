// Guarded updates: the check and the change in one statement.
#include "rows.h"

namespace hierlock::tests {
namespace {

class Guarded : public Rows {};
HIERLOCK_ON_EVERY_ENGINE(Guarded);

TEST_P(Guarded, takes_from_stock_only_if_there_is_enough) {  // X3
  const Table table = stock();
  EXPECT_TRUE(admin()->guarded_update(table, {"tea"}, {add("quantity", -60)}, {at_least("quantity", 60)}));
  EXPECT_FALSE(admin()->guarded_update(table, {"tea"}, {add("quantity", -60)}, {at_least("quantity", 60)}));
  EXPECT_EQ(quantity(table, "tea"), 40);
  EXPECT_EQ(quantity(table, "milk"), 100);
}

TEST_P(Guarded, is_false_for_a_row_that_is_not_there) {  // X3
  EXPECT_FALSE(admin()->guarded_update(stock(), {"rum"}, {add("quantity", -1)}, {at_least("quantity", 1)}));
}

TEST_P(Guarded, counts_a_row_that_matched_but_did_not_change) {  // X3
  const std::string name = table_name();
  admin().sql("CREATE TABLE " + name + " (id BIGINT NOT NULL PRIMARY KEY, state VARCHAR(10))");
  const Table table(name, {.key = {"id"}, .columns = {"state"}});
  admin()->insert(table, {1}, {"new"});
  EXPECT_TRUE(admin()->guarded_update(table, {1}, {set("state", "new")}, {equal("state", "new")}));
}

TEST_P(Guarded, every_test_of_a_guard_decides_as_it_says) {  // X3
  const std::string name = table_name();
  admin().sql("CREATE TABLE " + name + " (id BIGINT NOT NULL PRIMARY KEY, n BIGINT, hits BIGINT NOT NULL)");
  const Table table(name, {.key = {"id"}, .columns = {"n", "hits"}});
  admin()->insert(table, {1}, {5, 0});
  admin()->insert(table, {2}, {nullptr, 0});
  const auto holds = [&](int id, Guard guard) {
    return admin()->guarded_update(table, {id}, {add("hits", 1)}, {std::move(guard)});
  };
  EXPECT_TRUE(holds(1, equal("n", 5)) && !holds(1, equal("n", 6)));
  EXPECT_TRUE(holds(1, not_equal("n", 6)) && !holds(1, not_equal("n", 5)));
  EXPECT_TRUE(holds(1, less("n", 6)) && !holds(1, less("n", 5)));
  EXPECT_TRUE(holds(1, at_most("n", 5)) && !holds(1, at_most("n", 4)));
  EXPECT_TRUE(holds(1, greater("n", 4)) && !holds(1, greater("n", 5)));
  EXPECT_TRUE(holds(1, at_least("n", 5)) && !holds(1, at_least("n", 6)));
  EXPECT_TRUE(holds(1, is_not_null("n")) && !holds(1, is_null("n")));
  EXPECT_TRUE(holds(2, is_null("n")) && !holds(2, is_not_null("n")) && !holds(2, equal("n", 5)));
  EXPECT_EQ(admin()->fetch(table, {1})->get<int>("hits"), 7);
}

TEST_P(Guarded, an_optimistic_writer_conflicts_with_a_guarded_one) {  // X6
  const Table table = stock();
  const auto online = user(), batch = user();
  std::optional<Row> read = (*online)->fetch(table, {"tea"});
  ASSERT_TRUE((*batch)->guarded_update(table, {"tea"}, {add("quantity", -5)}, {at_least("quantity", 5)}));
  read->set("quantity", 120);
  EXPECT_EQ((*online)->try_update(*read), Outcome::conflict);
  EXPECT_EQ(quantity(table, "tea"), 95);
}

TEST_P(Guarded, eight_buyers_never_oversell) {  // X1, X3
  const Table table = stock();
  std::atomic<int> sold = 0;
  std::vector<std::jthread> buyers;
  for (int i = 0; i < 8; ++i) {
    buyers.emplace_back([&] {
      const auto buyer = user();
      if (is_sqlite()) buyer->sql("PRAGMA busy_timeout = 60000", 1);
      for (int order = 0; order < 5; ++order) {
        sold += (*buyer)->guarded_update(table, {"tea"}, {add("quantity", -3)}, {at_least("quantity", 3)}) ? 1 : 0;
      }
    });
  }
  buyers.clear();
  EXPECT_EQ(sold, 33);
  EXPECT_EQ(quantity(table, "tea"), 1);
}

}  // namespace
}  // namespace hierlock::tests
