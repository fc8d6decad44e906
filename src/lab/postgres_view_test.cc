// What PostgreSQL's views say, and what the lab makes of it.
#include "lab/postgres_view.h"

#include <gtest/gtest.h>

namespace hierlock::lab {
namespace {

const Backends sessions{{"11", "T1"}, {"12", "T2"}};

Row lock(const std::string& pid, const std::string& granted) {
  return {pid,          granted,      "relation",   "AccessExclusiveLock", "t",          std::nullopt,
          std::nullopt, std::nullopt, std::nullopt, std::nullopt,          std::nullopt, std::nullopt};
}
Row blocker(const std::string& waiter, const std::string& holder, bool of_the_server) {
  return {waiter, holder, "f", of_the_server ? "t" : "f"};
}

TEST(PostgresView, a_wait_for_another_session_is_told) {
  const View view = view_of(sessions, {blocker("12", "11", false)}, {lock("11", "t"), lock("12", "f")});
  ASSERT_EQ(view.waits.size(), 1u);
  EXPECT_EQ(view.waits[0].session, "T2");
  EXPECT_EQ(view.waits[0].blockers, std::vector<std::string>{"T1"});
  EXPECT_EQ(view.waits[0].object, "t");
}

TEST(PostgresView, a_wait_for_autovacuum_is_waited_out) {
  EXPECT_TRUE(view_of(sessions, {blocker("12", "99", true)}, {lock("12", "f")}).waits.empty());
  // Also if somebody else is in the way, too: the wait is told when only that is left.
  EXPECT_TRUE(
      view_of(sessions, {blocker("12", "11", false), blocker("12", "99", true)}, {lock("12", "f")}).waits.empty());
  EXPECT_EQ(view_of(sessions, {blocker("12", "99", false)}, {lock("12", "f")}).waits.at(0).blockers,
            std::vector<std::string>{"outsider 99"});
}

TEST(PostgresView, a_prepared_transaction_has_no_process) {
  EXPECT_EQ(view_of(sessions, {blocker("12", "0", false)}, {lock("12", "f")}).waits.at(0).blockers,
            std::vector<std::string>{"prepared"});
}

}  // namespace
}  // namespace hierlock::lab
