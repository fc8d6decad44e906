// Who waits for whom, from notices and views: no store needed.
#include "remote/deadlock_finder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <random>
#include <set>

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

std::uint64_t seed_of_this_run() {
  const char* const given = std::getenv("HIERLOCK_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

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

TEST(DeadlockFinder, all_who_read_the_same_notices_choose_the_same_victim_although_they_see_other_ages) {  // B11
  std::vector<Notice> all = {
      notice(1, "a", holds, 9, {node(0, 1, Mode::X)}), notice(2, "b", holds, 9, {node(0, 2, Mode::X)}),
      notice(3, "a", waits, 5, {node(0, 2, Mode::X)}), notice(4, "b", waits, 4, {node(0, 1, Mode::X)})};
  all[2].since = 1001;  // the younger one, although it seems older
  all[3].since = 1000;
  EXPECT_EQ(find_cycle(all[2], all)->victim, &all[2]);
  all[3].age = microseconds(6);
  EXPECT_EQ(find_cycle(all[3], all)->victim, &all[2]);
  all[2].since = all[3].since;
  EXPECT_EQ(find_cycle(all[3], all)->victim, &all[3]) << "the larger number, if they began at the same time";
}

TEST(DeadlockFinder, the_victim_is_one_in_the_queue_of_its_process_if_there_is_one_that_holds) {  // B11
  std::vector<Notice> all = {
      notice(1, "a", holds, 9, {node(0, 1, Mode::X)}), notice(2, "b", holds, 9, {node(0, 2, Mode::X)}),
      notice(3 | in_queue, "a", waits, 5, {node(0, 2, Mode::X)}), notice(4, "b", waits, 4, {node(0, 1, Mode::X)})};
  for (const std::size_t member : {2u, 3u}) EXPECT_EQ(find_cycle(all[member], all)->victim, &all[2]);
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

  const View closed = view_of({{2, 3}, {3, 1}}), open = view_of({{2, 7}, {3, 1}});
  EXPECT_TRUE(find_cycle(all[1], all, &closed)->surely);
  EXPECT_EQ(find_cycle(all[1], all, &closed)->members, cycle->members);
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

// Requests of two processes overtake each other on the way, and each asks again when the store has ended its wait.
TEST(DeadlockFinder, an_older_wait_may_stand_behind_a_younger_one) {  // B11
  std::vector<Notice> all = {notice(1, "p:a", holds, 9, {row(0, Mode::S)}), notice(2, "q:b", waits, 4, {row(0)}),
                             notice(3, "p:c", waits, 5, {row(0, Mode::S), row(5)}),
                             notice(4 | in_queue | without_session, "p:a", waits, 3, {row(5)})};
  all[3].behind = {3};
  const std::optional<Cycle> cycle = find_cycle(all[3], all);
  ASSERT_TRUE(cycle.has_value()) << "the reader c may stand behind the writer b, who waits for a";
  EXPECT_FALSE(cycle->surely) << "it may also have the row";
  EXPECT_EQ(cycle->victim, &all[3]);
}

TEST(DeadlockFinder, who_waits_for_a_holder_at_an_earlier_row_is_not_behind_others_at_a_later_one) {
  const std::vector<Notice> all = {notice(1, "a", holds, 9, {row(4)}), notice(2, "a", waits, 8, {row(1), row(3)}),
                                   notice(3, "w", waits, 5, {row(3), row(4)}), notice(4, "h", holds, 9, {row(1)})};
  EXPECT_FALSE(find_cycle(all[1], all).has_value()) << "not before h releases";
}

TEST(DeadlockFinder, what_the_store_shows_counts_more_than_the_notice_of_a_dead_holder) {  // B11
  const std::vector<Notice> all = {notice(1, "a", holds, 9, {row(4)}), notice(2, "a", waits, 8, {row(1), row(3)}),
                                   notice(3, "w", waits, 5, {row(3), row(4)}), notice(4, "dead", holds, 9, {row(1)})};
  const View view = view_of({{2, 3}, {3, 1}});
  for (const std::size_t member : {1u, 2u}) {
    const std::optional<Cycle> cycle = find_cycle(all[member], all, &view);
    ASSERT_TRUE(cycle.has_value()) << member;
    EXPECT_TRUE(cycle->surely);
    EXPECT_EQ(cycle->victim, &all[1]);
  }
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

// --- slots ------------------------------------------------------------------------------------------------

Node slot(std::uint32_t key, std::uint32_t slots) {
  return {.cell = {slots_level, key, Mode::S}, .asked = true, .text = "slots", .slots = slots};
}

TEST(DeadlockFinder, a_wait_for_slots_is_in_a_cycle_if_no_holder_can_go_on) {  // B11
  std::vector<Notice> all = {notice(1, "p:a", holds, 9, {slot(1, 2)}), notice(2, "q:b", holds, 9, {slot(1, 2)}),
                             notice(3, "r:c", holds, 9, {row(1)}),     notice(4, "p:a", waits, 5, {row(1)}),
                             notice(5, "q:b", waits, 4, {row(1)}),     notice(6, "r:c", waits, 3, {slot(1, 2)})};
  for (const std::size_t member : {3u, 4u, 5u}) {
    const std::optional<Cycle> cycle = find_cycle(all[member], all);
    ASSERT_TRUE(cycle.has_value()) << member;
    EXPECT_TRUE(cycle->surely);
    EXPECT_EQ(cycle->victim->session, 6u);
  }
  all[5].age = microseconds(9);  // there are two cycles now, with another youngest wait each; one is enough
  for (const std::size_t member : {3u, 4u, 5u}) EXPECT_EQ(find_cycle(all[member], all)->victim->session, 5u) << member;
  for (const Error::Wait& wait : find_cycle(all[5], all)->waits()) {
    if (wait.owner == "r:c") {
      EXPECT_EQ(wait.waits_for, "slots");
    } else {
      EXPECT_EQ(wait.holds, "slots");
    }
  }
}

TEST(DeadlockFinder, a_wait_for_slots_is_in_no_cycle_if_one_will_be_free) {  // B11
  const std::vector<Notice> one_works = {notice(1, "p:a", holds, 9, {slot(1, 2)}),
                                         notice(2, "q:b", holds, 9, {slot(1, 2)}), notice(3, "r:c", holds, 9, {row(1)}),
                                         notice(4, "p:a", waits, 5, {row(1)}),
                                         notice(6, "r:c", waits, 3, {slot(1, 2)})};
  for (const std::size_t wait : {3u, 4u}) EXPECT_FALSE(find_cycle(one_works[wait], one_works).has_value());
  std::vector<Notice> one_is_not_seen = one_works;
  one_is_not_seen.erase(one_is_not_seen.begin() + 1);
  for (const std::size_t wait : {2u, 3u}) {
    EXPECT_FALSE(find_cycle(one_is_not_seen[wait], one_is_not_seen).has_value());
  }
}

TEST(DeadlockFinder, the_evidence_of_a_cycle_through_slots_has_every_holder_and_its_wait) {  // B11
  const std::vector<Notice> all = {notice(1, "p:a", holds, 9, {slot(1, 2)}), notice(2, "q:b", holds, 9, {slot(1, 2)}),
                                   notice(3, "r:c", holds, 9, {row(1)}),     notice(4, "p:a", waits, 5, {row(1)}),
                                   notice(5, "q:b", waits, 4, {row(1)}),     notice(6, "r:c", waits, 3, {slot(1, 2)})};
  const std::optional<Cycle> cycle = find_cycle(all[5], all);
  ASSERT_TRUE(cycle.has_value());
  for (const Notice& one : all) {
    EXPECT_NE(std::find(cycle->evidence.begin(), cycle->evidence.end(), &one), cycle->evidence.end()) << one.session;
  }
}

// The store's view shows that the first wait of "w" is for "q" only. "p" waits for "w", and is in no cycle.
TEST(DeadlockFinder, slots_elsewhere_do_not_change_the_victim) {  // B11
  const std::vector<Notice> all = {
      notice(1, "1:w", holds, 9, {row(7)}),     notice(2, "2:q", holds, 9, {row(1)}),
      notice(3, "3:p", holds, 9, {row(2)}),     notice(4, "1:w", waits, 6, {row(1), row(2)}),
      notice(5, "2:q", waits, 5, {row(7)}),     notice(6, "3:p", waits, 1, {row(7)}),
      notice(8, "4:x", holds, 9, {slot(1, 2)}), notice(9, "5:y", holds, 9, {slot(1, 2)})};
  View view;
  view.seen = true;
  view.all_holders = true;
  const auto locked = [&](std::uint64_t session, std::uint32_t key, bool waiting, std::vector<std::size_t> by) {
    view.locks.push_back({.session = session,
                          .cell = Cell{0, key, Mode::X},
                          .mode = Mode::X,
                          .waits = waiting,
                          .blocked_by = std::move(by)});
  };
  locked(1, 7, false, {});
  locked(2, 1, false, {});
  locked(3, 2, false, {});
  locked(4, 1, true, {1});
  locked(5, 7, true, {0});
  locked(6, 7, true, {0});
  DeadlockFinder finder(all, &view);
  for (const std::size_t member : {3u, 4u}) {
    const std::optional<Cycle> cycle = finder.find(all[member]);
    ASSERT_TRUE(cycle.has_value()) << member;
    EXPECT_EQ(cycle->victim->session, 5u) << member;
  }
  EXPECT_FALSE(finder.find(all[5]).has_value());
}

// The same rules, plain: a wait goes on if no row that it needs has a holder that is stuck, and of the slots that it
// needs one is free or has a holder that is not stuck.
std::set<std::uint64_t> naively_stuck(const std::vector<Notice>& all) {
  std::set<std::uint64_t> stuck;
  for (const Notice& one : all) {
    if (one.waits) stuck.insert(one.session);
  }
  const auto owner_is_stuck = [&](const std::string& owner) {
    return std::any_of(all.begin(), all.end(),
                       [&](const Notice& n) { return n.waits && n.owner == owner && stuck.contains(n.session); });
  };
  const auto needs_one_that_is_stuck = [&](const Node& wanted) {
    std::size_t holders = 0, stuck_holders = 0;
    for (const Notice& other : all) {
      for (const Node& node : other.nodes) {
        if (other.waits || !same_place(node.cell, wanted.cell)) continue;
        ++holders;
        stuck_holders += owner_is_stuck(other.owner) ? 1 : 0;
      }
    }
    return wanted.slots > 0 ? holders >= wanted.slots && stuck_holders == holders : stuck_holders > 0;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const Notice& one : all) {
      if (!one.waits || !stuck.contains(one.session)) continue;
      if (std::any_of(one.nodes.begin(), one.nodes.end(), needs_one_that_is_stuck)) continue;
      stuck.erase(one.session);
      changed = true;
    }
  }
  return stuck;
}

TEST(DeadlockFinder, agrees_with_a_naive_reduction_about_slots) {  // B11: none is missed, none is invented
  const std::uint64_t seed = seed_of_this_run();
  SCOPED_TRACE("HIERLOCK_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
  int deadlocks = 0, others = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    // Each owner holds a row or a slot, and most wait for a row or a slot that has a holder.
    std::vector<Notice> all;
    const std::uint32_t owners = 2 + below(5), slots = 2 + below(2);
    std::uint32_t rows = 0, slots_held = 0;
    for (std::uint32_t o = 0; o < owners; ++o) {
      const bool has_slot = slots_held < slots && below(2) == 0;
      all.push_back(notice(o + 1, "p" + std::to_string(o) + ":1", holds, 9, {has_slot ? slot(1, slots) : row(++rows)}));
      slots_held += has_slot ? 1 : 0;
    }
    for (std::uint32_t o = 0; o < owners; ++o) {
      const std::uint32_t wanted = below(rows + 2);
      const bool own = wanted == all[o].nodes[0].cell.key && all[o].nodes[0].slots == 0;
      if (below(5) == 0 || own) continue;
      all.push_back(notice(100 + o, all[o].owner, waits, static_cast<int>(o),
                           {wanted == 0 || wanted > rows ? slot(1, slots) : row(wanted)}));
    }
    const std::set<std::uint64_t> stuck = naively_stuck(all);
    bool any = false;
    for (const Notice& one : all) {
      if (!one.waits) continue;
      const std::optional<Cycle> found = find_cycle(one, all);
      if (!found) continue;
      any = true;
      ASSERT_TRUE(stuck.contains(one.session)) << "turn " << turn << ", session " << one.session;
      ASSERT_TRUE(found->surely);
      ASSERT_NE(found->victim, nullptr);
      ASSERT_TRUE(stuck.contains(found->victim->session));
    }
    ASSERT_EQ(any, !stuck.empty()) << "turn " << turn;
    ++(any ? deadlocks : others);
  }
  EXPECT_GT(deadlocks, 1000);
  EXPECT_GT(others, 1000);
}

// --- against a naive search -------------------------------------------------------------------------------

// The same rules, plain: each wait is compared with every other notice, and every way that passes each wait once is
// followed.
class Naive {
 public:
  explicit Naive(const std::vector<Notice>& all) : all_(all) {}

  bool in_a_cycle(const Notice& start) {
    start_ = &start;
    path_.clear();
    return leads_back(start, std::nullopt, false);
  }

 private:
  Place limit(const Notice& waiter, bool& held) const {
    Place at{};
    held = false;
    for (const Node& node : waiter.nodes) at = std::max(at, place(node.cell));
    for (const Notice& other : all_) {
      if (other.waits || other.same_session(waiter)) continue;
      for (const Node& wanted : waiter.nodes) {
        for (const Node& has : other.nodes) {
          if (has.leftover || !conflict(has.cell, wanted.cell) || place(wanted.cell) > at) continue;
          at = place(wanted.cell);
          held = true;
        }
      }
    }
    return at;
  }
  bool leads_back(const Notice& wait, const std::optional<Place>& reached, bool through_holder) {
    if (std::find(path_.begin(), path_.end(), &wait) != path_.end()) return false;
    path_.push_back(&wait);
    bool back = false;
    for (const Notice& other : all_) {
      if (!back && &other != &wait) back = follows(wait, other, reached, through_holder);
    }
    path_.pop_back();
    return back;
  }
  bool follows(const Notice& wait, const Notice& other, const std::optional<Place>& reached, bool through_holder) {
    if (wait.queued() && other.waits && other.same_process(wait)) {
      const bool behind = std::find(wait.behind.begin(), wait.behind.end(), other.session) != wait.behind.end();
      return behind && (&other == start_ ? through_holder : leads_back(other, std::nullopt, through_holder));
    }
    if (conflict(wait, other) == nullptr) return false;
    if (!other.waits) {
      if (other.same_session(wait)) return false;
      if (other.owner == start_->owner) return true;
      for (const Notice& more : all_) {
        if (more.waits && more.owner == other.owner && leads_back(more, std::nullopt, true)) return true;
      }
      return false;
    }
    if (other.owner == wait.owner || wait.queued() || other.queued()) return false;
    bool held = false, others_held = false;
    const Place mine = limit(wait, held), theirs = limit(other, others_held);
    for (const Node& wanted : wait.nodes) {
      for (const Node& asked : other.nodes) {
        const Place at = place(wanted.cell);
        if (!conflict(wanted.cell, asked.cell) || at > mine || at > theirs || (reached && at < *reached)) continue;
        const bool stands = !(held && at == mine);
        if (at >= theirs && !stands) continue;
        if (&other == start_ ? through_holder : leads_back(other, at, through_holder)) return true;
      }
    }
    return false;
  }

  const std::vector<Notice>& all_;
  const Notice* start_ = nullptr;
  std::vector<const Notice*> path_;
};

TEST(DeadlockFinder, finds_what_a_naive_search_finds) {  // B11: none is missed, none is invented
  const std::uint64_t seed = seed_of_this_run();
  SCOPED_TRACE("HIERLOCK_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
  int cycles = 0, waits_seen = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    std::vector<Notice> all;
    const std::uint32_t owners = 2 + below(3), rows = 2 + below(4);
    std::uint64_t session = 0;
    for (std::uint32_t o = 0; o < owners; ++o) {
      const std::string owner = "p" + std::to_string(below(2)) + ":" + std::to_string(o);
      const auto nodes = [&] {
        std::vector<Node> some;
        for (std::uint32_t r = 0; r < rows; ++r) {
          if (below(3) == 0) some.push_back(row(r, below(3) == 0 ? Mode::S : Mode::X));
        }
        if (some.empty()) some.push_back(row(below(rows)));
        return some;
      };
      if (below(3) != 0) {
        all.push_back(notice(++session, owner, holds, static_cast<int>(below(9)), nodes()));
        if (below(6) == 0) all.back().nodes.back().leftover = true;
      }
      if (below(4) != 0) {
        const bool extends = !all.empty() && all.back().owner == owner && below(3) == 0;
        all.push_back(notice(extends ? session : ++session, owner, waits, static_cast<int>(below(9)), nodes()));
        if (below(5) == 0) {
          all.back().session |= in_queue;
          for (std::uint64_t s = 1; s <= session; ++s) {
            if (below(3) == 0) all.back().behind.push_back(s);
          }
        }
      }
    }
    Naive naive(all);
    for (const Notice& one : all) {
      if (!one.waits) continue;
      ++waits_seen;
      const bool expected = naive.in_a_cycle(one);
      const std::optional<Cycle> found = find_cycle(one, all);
      cycles += expected ? 1 : 0;
      ASSERT_EQ(found.has_value(), expected) << "turn " << turn << ", session " << one.session;
      if (found) {
        ASSERT_NE(found->victim, nullptr);
        ASSERT_TRUE(DeadlockFinder(all).holds(*found->victim));
      }
    }
  }
  EXPECT_GT(cycles, 1000);
  EXPECT_GT(waits_seen, 2 * cycles) << "most are in none";
}

// Processes with 15 waits each, all for one row that nobody has published, and each owner holds a row of its own.
TEST(DeadlockFinder, is_linear_in_a_crowd) {  // B12
  const auto crowd = [](std::uint64_t processes) {
    std::vector<Notice> all;
    std::uint64_t session = 0;
    for (std::uint64_t p = 0; p < processes; ++p) {
      for (std::uint64_t o = 0; o < 15; ++o) {
        const std::string owner = "p" + std::to_string(p) + ":" + std::to_string(o);
        const std::uint32_t own = 10 + static_cast<std::uint32_t>(session);
        all.push_back(notice(++session, owner, holds, 9, {node(0, 1, Mode::S), node(1, own, Mode::X)}));
        ++session;
        all.push_back(
            notice(session, owner, waits, static_cast<int>(session), {node(0, 1, Mode::S), node(1, 2, Mode::X)}));
      }
    }
    return all;
  };
  // Of processor time, the least of three: the machine may be busy.
  const auto time_of = [&](std::uint64_t processes) {
    const auto now = [] {
      timespec time{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) * 1000 + static_cast<double>(time.tv_nsec) / 1e6;
    };
    const std::vector<Notice> all = crowd(processes);
    double least = 1e9;
    for (int turn = 0; turn < 3; ++turn) {
      const double begin = now();
      DeadlockFinder finder(all);
      for (const Notice& one : all) {
        if (one.waits) {
          EXPECT_FALSE(finder.find(one).has_value());
        }
      }
      least = std::min(least, now() - begin);
    }
    return least;
  };
  const double few = time_of(200), many = time_of(800);
  EXPECT_LT(many, 10 * few) << "four times as many; 16 times would be quadratic. " << few << " and " << many << " ms";
}

}  // namespace
}  // namespace hierlock::remote
