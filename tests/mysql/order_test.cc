// Rows are locked in one order, also while some of them are still made (H5, H11).
#include "on_server.h"
#include "support/not_applicable.h"
#include "user_rows.h"

namespace hierlock::mysql_tests {
namespace {

constexpr std::uint32_t buckets = 1009;

class Order : public OnServer {
 protected:
  Locker open() const { return OnServer::open("levels=1&buckets=" + std::to_string(buckets)); }
  void hold(Plain& by, const UserRow& user) {
    by.ask("SELECT bucket FROM " + table() + " WHERE level=0 AND bucket=" + std::to_string(user.bucket) +
           " FOR UPDATE");
  }

  // The statement passes the missing first row, locks the next ones and waits for the last. Meanwhile another session
  // makes the first row and locks it. If the request kept its rows while it waits for the first, that would be a
  // deadlock with a session that takes them in order.
  void starts_over(std::size_t rows) {
    const std::vector<UserRow> users = users_in_one_order(rows, buckets);
    std::vector<Target> all, all_but_the_first;
    for (const UserRow& user : users) all.emplace_back(user.path);
    all_but_the_first.assign(all.begin() + 1, all.end());
    Locker locker = open();
    locker.acquire(all_but_the_first).release();  // these rows are there
    ASSERT_TRUE(all_free());
    Plain last(operator_server()), first(operator_server());
    last.ask("BEGIN");
    hold(last, users.back());

    const std::jthread asking([&] { EXPECT_TRUE(locker.try_acquire(all, 30s)); });
    ASSERT_TRUE(eventually([&] { return somebody_waits() && locked().size() == rows - 1; })) << "it has those between";
    first.ask("INSERT INTO " + table() + " (level, bucket) VALUES (0, " + std::to_string(users[0].bucket) + ")");
    first.ask("BEGIN");
    hold(first, users[0]);

    const std::map<std::pair<int, long>, char> others{{{0, users[0].bucket}, 'X'}, {{0, users.back().bucket}, 'X'}};
    EXPECT_TRUE(eventually([&] { return somebody_waits() && locked() == others; }, 8s)) << "it keeps those between";
    first.ask("ROLLBACK");
    last.ask("ROLLBACK");
  }
};

// As a join does, and as a union does, which is used for more rows.
TEST_P(Order, a_join_that_has_passed_a_missing_row_starts_over) {  // H5, H11
  if (mariadb()) HIERLOCK_NOT_APPLICABLE() << "MariaDB ends a join at the first row that is missing";
  starts_over(3);
}

TEST_P(Order, a_union_that_has_passed_a_missing_row_starts_over) { starts_over(10); }  // H5, H11

HIERLOCK_ON_BOTH_SERVERS(Order);

}  // namespace
}  // namespace hierlock::mysql_tests
