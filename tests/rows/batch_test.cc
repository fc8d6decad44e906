// A batch and an online request, with the times of a real one. The servers have the same as a scenario:
// rows-module/online-waits-five-seconds. SQLite cannot sleep in a statement.
#include "rows.h"

namespace hierlock::tests {
namespace {

TEST(BatchOnSqlite, online_waits_up_to_ten_seconds_for_five) {  // X10
  const auto play = [](bool bare) {
    const SqliteFile file;
    const auto batch = file.user(bare), online = file.user(bare);
    batch->sql("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)");
    const Table account("account", {.key = {"id"}, .columns = {"balance"}});
    for (const int id : {1, 2}) (*batch)->insert(account, {id}, {100 * id});

    Transaction holding(batch->session());
    EXPECT_EQ((*batch)->lock_in_order({{account, {{1}, {2}}}}).size(), 2u);
    for (const int id : {1, 2}) EXPECT_TRUE((*batch)->guarded_update(account, {id}, {add("balance", 7)}, {}));
    const auto began = std::chrono::steady_clock::now();
    std::future<long long> seen = std::async(std::launch::async, [&] {
      Transaction transaction(online->session(), Begin::read);
      const std::optional<Row> row = (*online)->fetch_for_update(account, {1}, {.wait = Wait::at_most(10s)});
      EXPECT_TRUE((*online)->guarded_update(account, {1}, {add("balance", -10)}, {at_least("balance", 10)}));
      transaction.commit();
      return row->get<long long>("balance");
    });
    EXPECT_EQ(seen.wait_until(began + 5s), std::future_status::timeout) << "the batch holds its rows";
    holding.commit();
    EXPECT_EQ(seen.get(), 107) << "it reads what the batch has written";
    EXPECT_EQ(online->ask<int>("SELECT balance FROM account WHERE id = 1"), 97);
    EXPECT_EQ(online->ask<int>("SELECT balance FROM account WHERE id = 2"), 207);
  };
  std::future<void> other = std::async(std::launch::async, play, true);
  play(false);
  other.get();
}

}  // namespace
}  // namespace hierlock::tests
