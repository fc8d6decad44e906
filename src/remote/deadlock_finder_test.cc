// Who waits for whom, from notices and views: no store needed.
#include "remote/deadlock_finder.h"

#include <gtest/gtest.h>

namespace hierlock::remote {
namespace {

using std::chrono::microseconds;

Node node(unsigned level, std::uint32_t bucket, Mode mode, const std::string& text = "x") {
  return {{static_cast<std::uint8_t>(level), bucket, mode}, true, text};
}

Notice notice(std::uint64_t session, const std::string& owner, bool waits, int age, std::vector<Node> nodes) {
  Notice e;
  e.session = session;
  e.owner = owner;
  e.owner_name = owner;
  e.host = "h";
  e.waits = waits;
  e.age = microseconds(age);
  e.nodes = std::move(nodes);
  return e;
}
constexpr bool holds = false, waits = true;

std::optional<Cycle> find_cycle(const Notice& waiter, const std::vector<Notice>& all, const View* view = nullptr) {
  return DeadlockFinder(all, view).find(waiter);
}

TEST(DeadlockFinder, rows_conflict_by_level_bucket_and_mode) {
  const Notice reader = notice(1, "a", holds, 0, {node(0, 5, Mode::S)});
  EXPECT_NE(conflict(notice(2, "b", waits, 0, {node(0, 5, Mode::X)}), reader), nullptr);
  EXPECT_EQ(conflict(notice(2, "b", waits, 0, {node(0, 5, Mode::S)}), reader), nullptr);
  EXPECT_EQ(conflict(notice(2, "b", waits, 0, {node(1, 5, Mode::X)}), reader), nullptr);
  EXPECT_EQ(conflict(notice(2, "b", waits, 0, {node(0, 6, Mode::X)}), reader), nullptr);
}

TEST(DeadlockFinder, whoever_is_in_conflict_with_holders_waits_for_them_and_not_for_waiters) {
  const std::vector<Notice> all = {notice(1, "a", holds, 9, {node(0, 1, Mode::X)}),
                                   notice(2, "b", waits, 5, {node(0, 1, Mode::X)}),
                                   notice(3, "c", waits, 3, {node(0, 1, Mode::X)})};
  ASSERT_EQ(in_the_way(all[2], all).size(), 1u);
  EXPECT_EQ(in_the_way(all[2], all)[0]->owner, "a");
}

TEST(DeadlockFinder, whoever_is_in_conflict_with_no_holder_stands_behind_an_earlier_waiter) {
  const std::vector<Notice> all = {
      notice(1, "a", holds, 9, {node(0, 1, Mode::S)}), notice(2, "b", waits, 5, {node(0, 1, Mode::X)}),
      notice(3, "c", waits, 3, {node(0, 1, Mode::S)}), notice(4, "d", waits, 1, {node(0, 1, Mode::X)})};
  ASSERT_EQ(in_the_way(all[2], all).size(), 1u);
  EXPECT_EQ(in_the_way(all[2], all)[0]->owner, "b") << "not d, who came later";
}

TEST(DeadlockFinder, two_owners_with_two_sessions_each_are_a_cycle_and_the_youngest_wait_is_its_victim) {  // B11
  const std::vector<Notice> all = {
      notice(1, "a", holds, 9, {node(0, 1, Mode::X, "u1")}), notice(2, "b", holds, 9, {node(0, 2, Mode::X, "u2")}),
      notice(3, "a", waits, 5, {node(0, 2, Mode::X, "u2")}), notice(4, "b", waits, 2, {node(0, 1, Mode::X, "u1")})};
  for (const std::size_t from : {2u, 3u}) {
    const auto cycle = find_cycle(all[from], all);
    ASSERT_TRUE(cycle.has_value());
    EXPECT_EQ(cycle->victim->session, 4u) << "all members choose the same";
    EXPECT_NE(cycle->text().find("a of process 0 on h waits for u2"), std::string::npos) << cycle->text();
    const std::vector<Error::Wait> told = cycle->waits();
    ASSERT_EQ(told.size(), 2u);
    for (const Error::Wait& wait : told) {
      EXPECT_EQ(wait.host, "h");
      EXPECT_EQ(wait.waits_for, wait.owner == "a" ? "u2" : "u1");
      EXPECT_EQ(wait.holds, wait.owner == "a" ? "u1" : "u2");
    }
    EXPECT_NE(told[0].owner, told[1].owner);
  }
}

TEST(DeadlockFinder, a_wait_that_leads_into_a_cycle_without_being_part_of_it_is_left_alone) {
  const std::vector<Notice> all = {
      notice(1, "a", holds, 9, {node(0, 1, Mode::X)}), notice(2, "b", holds, 9, {node(0, 2, Mode::X)}),
      notice(3, "a", waits, 5, {node(0, 2, Mode::X)}), notice(4, "b", waits, 4, {node(0, 1, Mode::X)}),
      notice(5, "c", waits, 1, {node(0, 1, Mode::X)})};
  EXPECT_FALSE(find_cycle(all[4], all).has_value());
}

TEST(DeadlockFinder,
     a_reader_behind_a_writer_who_waits_for_it_is_a_cycle) {  // seen by no server: two sessions of one owner
  const std::vector<Notice> all = {notice(1, "a", holds, 9, {node(0, 1, Mode::S)}),
                                   notice(2, "b", waits, 5, {node(0, 1, Mode::X)}),
                                   notice(3, "a", waits, 3, {node(0, 1, Mode::S)})};
  const auto cycle = find_cycle(all[2], all);
  ASSERT_TRUE(cycle.has_value());
  EXPECT_EQ(cycle->victim->session, 3u);
}

TEST(DeadlockFinder, a_chain_is_no_cycle) {
  const std::vector<Notice> all = {
      notice(1, "a", holds, 9, {node(0, 1, Mode::X)}), notice(2, "b", holds, 9, {node(0, 2, Mode::X)}),
      notice(3, "b", waits, 5, {node(0, 1, Mode::X)}), notice(4, "c", waits, 2, {node(0, 2, Mode::X)})};
  for (const Notice& one : all) {
    if (one.waits) {
      EXPECT_FALSE(find_cycle(one, all).has_value());
    }
  }
}

// Rows 1, 3, 4, 9 of one level, in the order in which they are locked.
Node row(std::uint32_t bucket, Mode mode = Mode::X) { return node(0, bucket, mode, "r" + std::to_string(bucket)); }

Node leftover(std::uint32_t bucket) {
  Node left = row(bucket);
  left.leftover = true;
  return left;
}

// What the server shows: session `waiter` waits for session `other`.
View view_of(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& waits_for) {
  View view;
  view.seen = true;
  for (const auto& [waiter, other] : waits_for) {
    Locked held, wanted;
    held.session = other;
    wanted.session = waiter;
    wanted.waits = true;
    wanted.blocked_by = {view.locks.size()};
    view.locks.push_back(held);
    view.locks.push_back(wanted);
  }
  return view;
}

TEST(DeadlockFinder, a_younger_wait_may_have_passed_a_row_and_be_in_the_way_there) {  // B11
  const std::vector<Notice> all = {notice(1, "a", holds, 9, {row(4)}), notice(2, "a", waits, 8, {row(1), row(3)}),
                                   notice(3, "w", waits, 5, {row(3), row(4)})};
  const auto cycle = find_cycle(all[1], all);
  ASSERT_TRUE(cycle.has_value());
  EXPECT_FALSE(cycle->surely) << "it may be stuck before";
  EXPECT_EQ(cycle->victim->owner, "a") << "the younger one holds no lock";
  EXPECT_EQ(cycle->age(), microseconds(5));

  const View closed = view_of({{2, 3}, {3, 1}}), open = view_of({{2, 7}, {3, 1}});
  EXPECT_TRUE(find_cycle(all[1], all, &closed)->surely);
  EXPECT_EQ(find_cycle(all[1], all, &closed)->key(), cycle->key());
  EXPECT_FALSE(find_cycle(all[1], all, &open).has_value()) << "it waits for somebody else";
  for (const bool seen : {false, true}) {
    View unknown = seen ? view_of({{2, 0}, {3, 1}}) : View{};
    ASSERT_TRUE(find_cycle(all[1], all, &unknown).has_value());
    EXPECT_FALSE(find_cycle(all[1], all, &unknown)->surely) << "the server does not tell whom it waits for";
  }
  View old = open;
  old.note = "not made anew";
  EXPECT_TRUE(find_cycle(all[1], all, &old).has_value());
}

TEST(DeadlockFinder, who_waits_for_a_holder_at_an_earlier_row_is_not_behind_others_at_a_later_one) {
  const std::vector<Notice> all = {notice(1, "a", holds, 9, {row(4)}), notice(2, "a", waits, 8, {row(1), row(3)}),
                                   notice(3, "w", waits, 5, {row(3), row(4)}), notice(4, "h", holds, 9, {row(1)})};
  EXPECT_FALSE(find_cycle(all[1], all).has_value()) << "not before h releases";
}

TEST(DeadlockFinder, a_wait_that_is_stuck_at_an_earlier_row_is_in_nobodys_way_at_a_later_one) {
  const std::vector<Notice> all = {notice(1, "a", holds, 9, {row(1)}), notice(2, "w", waits, 8, {row(1), row(9)}),
                                   notice(3, "a", waits, 5, {row(9)})};
  EXPECT_TRUE(DeadlockFinder(all).in_the_way(all[2]).empty());
  EXPECT_FALSE(find_cycle(all[2], all).has_value());
  // Nor if it is an extend.
  const std::vector<Notice> extends = {all[0], all[1], notice(1, "a", waits, 5, {row(9)})};
  EXPECT_FALSE(find_cycle(extends[2], extends).has_value());
}

TEST(DeadlockFinder, waits_for_the_same_rows_are_no_cycle_without_somebody_who_holds_a_lock) {
  const std::vector<Notice> all = {notice(1, "a", waits, 9, {row(1), row(3), row(4)}),
                                   notice(2, "b", waits, 8, {row(1), row(3), row(4)}),
                                   notice(3, "c", waits, 7, {row(3), row(4)})};
  for (const Notice& one : all) EXPECT_FALSE(find_cycle(one, all).has_value());
}

TEST(DeadlockFinder, who_waits_with_others_for_a_holder_does_not_wait_for_them) {
  // b wants what a holds, but both wait for h first; who of them comes first there is not known.
  const std::vector<Notice> all = {notice(1, "a", holds, 9, {row(9)}), notice(2, "h", holds, 9, {row(3)}),
                                   notice(3, "a", waits, 5, {row(1, Mode::S), row(3)}),
                                   notice(4, "b", waits, 4, {row(1, Mode::S), row(3), row(9)})};
  EXPECT_FALSE(find_cycle(all[2], all).has_value());
  EXPECT_FALSE(find_cycle(all[3], all).has_value());
}

TEST(DeadlockFinder, what_only_holders_are_in_the_way_of_is_surely_a_cycle_whatever_else_is_waited_for) {
  const std::vector<Notice> all = {notice(1, "a", holds, 9, {row(1)}), notice(2, "b", holds, 9, {row(9)}),
                                   notice(3, "a", waits, 5, {row(3), row(9)}), notice(4, "b", waits, 4, {row(1)}),
                                   notice(5, "c", waits, 8, {row(3), row(4)})};
  ASSERT_TRUE(find_cycle(all[3], all).has_value());
  EXPECT_TRUE(find_cycle(all[3], all)->surely);
  EXPECT_EQ(find_cycle(all[3], all)->victim, &all[3]);
}

TEST(DeadlockFinder, what_is_left_of_an_extend_may_be_held_or_not) {
  const Node left = leftover(3);
  const std::vector<Notice> crosswise = {notice(1, "a", holds, 9, {row(1), left}), notice(2, "b", holds, 9, {row(9)}),
                                         notice(3, "a", waits, 5, {row(9)}), notice(4, "b", waits, 4, {row(3)})};
  ASSERT_TRUE(find_cycle(crosswise[3], crosswise).has_value());
  EXPECT_FALSE(find_cycle(crosswise[3], crosswise)->surely);
  const View view = view_of({{3, 2}, {4, 1}});
  EXPECT_TRUE(find_cycle(crosswise[3], crosswise, &view)->surely);
  // And it may have been passed.
  const std::vector<Notice> passed = {notice(1, "c", holds, 9, {row(1), left}), notice(2, "a", holds, 9, {row(9)}),
                                      notice(3, "a", waits, 5, {row(4)}),
                                      notice(4, "b", waits, 4, {row(3), row(4), row(9)})};
  EXPECT_TRUE(find_cycle(passed[2], passed).has_value());
}

TEST(DeadlockFinder,
     a_wait_in_the_queue_of_a_process_surely_waits_for_those_it_stands_behind_and_for_no_other_wait) {  // B11
  std::vector<Notice> all = {notice(1, "p:1", holds, 9, {row(4)}), notice(2, "p:2", waits, 8, {row(3), row(4)}),
                             notice(1 | in_queue, "p:1", waits, 5, {row(3)})};
  EXPECT_FALSE(find_cycle(all[2], all).has_value()) << "the same row is no reason";
  all[2].behind = {7, 2};
  ASSERT_TRUE(find_cycle(all[2], all).has_value());
  EXPECT_TRUE(find_cycle(all[2], all)->surely);
  all[2].nodes = {row(7)};
  EXPECT_TRUE(find_cycle(all[2], all).has_value()) << "through others, who stand between them";
}

}  // namespace
}  // namespace hierlock::remote
