#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include <hierlock/error.h>
#include <hierlock/options.h>
#include <hierlock/snapshot.h>

namespace hierlock {
namespace {

TEST(Error, every_kind_has_a_name_of_its_own) {
  std::set<std::string_view> names;
  for (int kind = 0; kind < error_kind_count; ++kind) names.insert(to_string(static_cast<ErrorKind>(kind)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(error_kind_count));
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(to_string(static_cast<ErrorKind>(error_kind_count)), "unknown") << "error_kind_count counts all of them";
}

TEST(Error, copies_share_the_cycle_and_do_not_throw) {
  static_assert(std::is_nothrow_copy_constructible_v<Error> && std::is_nothrow_copy_assignable_v<Error>);
  EXPECT_TRUE(Error(ErrorKind::timeout, "late").cycle().empty());
  std::optional<Error> first(Error(ErrorKind::deadlock, "deadlock", 0,
                                   {{.owner = "a", .process = 7, .host = "h", .waits_for = "u2", .holds = "u1"}}));
  const Error copy = *first;
  first.reset();
  ASSERT_EQ(copy.cycle().size(), 1u);
  EXPECT_EQ(copy.cycle()[0].waits_for, "u2");
}

TEST(Error, only_what_may_succeed_unchanged_is_retryable) {  // H9, X9
  std::set<std::string_view> retryable;
  for (int kind = 0; kind < error_kind_count; ++kind) {
    const Error error(static_cast<ErrorKind>(kind), "message", 1213);
    if (error.retryable()) retryable.insert(to_string(error.kind()));
    EXPECT_EQ(error.native_code(), 1213);
    EXPECT_STREQ(error.what(), "message");
  }
  EXPECT_EQ(retryable,
            (std::set<std::string_view>{"timeout", "busy", "deadlock", "exhausted", "unavailable", "serialization"}));
}

TEST(Event, every_kind_has_a_name_of_its_own) {
  std::set<std::string_view> names;
  for (int kind = 0; kind <= static_cast<int>(Event::Kind::refused); ++kind) {
    names.insert(to_string(static_cast<Event::Kind>(kind)));
  }
  EXPECT_EQ(names,
            (std::set<std::string_view>{"wait_begins", "wait_goes_on", "wait_granted", "wait_failed", "refused"}));
}

TEST(Space, names) {
  EXPECT_EQ(to_string(Space::path), "path");
  EXPECT_EQ(to_string(Space::name), "name");
  EXPECT_EQ(to_string(Space::slots), "slots");
}

TEST(Stats, the_total_is_the_sum_of_the_spaces) {
  using std::chrono::nanoseconds;
  Stats stats;
  stats.by_space[0] = {.grants = 1, .waits = 2, .waited = nanoseconds(3), .deadlocks = 4};
  stats.by_space[1] = {.grants = 10, .waits = 20, .waited = nanoseconds(30), .deadlocks = 40};
  stats.by_space[2] = {.grants = 100, .waits = 200, .waited = nanoseconds(300), .deadlocks = 400};
  const Stats::Kind total = stats.total();
  EXPECT_EQ(total.grants, 111u);
  EXPECT_EQ(total.waits, 222u);
  EXPECT_EQ(total.waited, nanoseconds(333));
  EXPECT_EQ(total.deadlocks, 444u);
}

TEST(Snapshot, tells_whether_anybody_waits_and_where) {  // B7
  Snapshot snapshot;
  EXPECT_FALSE(snapshot.anybody_waits());
  EXPECT_FALSE(snapshot.anybody_waits("u1"));
  snapshot.waiters.push_back({.who = {}, .target = "u1/a1", .wanted = "u1/a1/r1"});
  EXPECT_TRUE(snapshot.anybody_waits());
  EXPECT_TRUE(snapshot.anybody_waits("u1/a1"));
  EXPECT_FALSE(snapshot.anybody_waits("u1"));
}

}  // namespace
}  // namespace hierlock
