// A holder whose session at the lock's server was killed while it slept (X11). Needs the store mysql:.
#include <hierlock/locker.h>
#include <hierlock/mysql.h>

#include "rows.h"

namespace hierlock::tests {
namespace {

class KilledHolder : public Rows {};
INSTANTIATE_TEST_SUITE_P(, KilledHolder,
                         testing::Values(Place{"mysql", Engine::mysql, "MYSQL", false},
                                         Place{"mariadb", Engine::mariadb, "MARIADB", false}),
                         [](const testing::TestParamInfo<Place>& place) { return place.param.name; });

TEST_P(KilledHolder, cannot_overwrite_its_successor) {  // X11
  const Table table = stock();
  const auto overseer = std::make_unique<User>(server_client(*server_variable(GetParam().server + "_OPERATOR")));
  mysql::enable();
  const std::string locks = table_name();
  const std::string url = *server_variable(GetParam().server) + "?provision=lazy&buckets=1000&table=" + locks;
  Locker sleeper = open(url), successor = open(url);

  // Sessions that hold a lock have a transaction; the two Lockers are the only ones on this table.
  Lock slept = sleeper.acquire("tea");
  const std::int64_t old_fence = slept.fence();
  const std::string holders =
      "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx t JOIN information_schema.processlist p ON p.id = "
      "t.trx_mysql_thread_id WHERE p.user = 'app'";
  const auto deadline = std::chrono::steady_clock::now() + patience;
  Reply found;
  while (found.rows.empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(150ms);  // InnoDB makes this view anew every 100 ms at most, and not while it is asked
    found = overseer->sql(holders, 1);
  }
  ASSERT_FALSE(found.rows.empty());
  for (const std::vector<Value>& row : found.rows) overseer->sql("KILL " + row.at(0).get<std::string>());

  Lock taken = successor.acquire("tea", {.timeout = patience});
  ASSERT_GT(taken.fence(), old_fence);
  admin()->fenced_update(table, {"tea"}, taken.fence(), {set("quantity", 42)});
  EXPECT_EQ(kind_of([&] { admin()->fenced_update(table, {"tea"}, old_fence, {set("quantity", 7)}); }), ErrorKind::lost);
  EXPECT_EQ(quantity(table, "tea"), 42);
}

}  // namespace
}  // namespace hierlock::tests
