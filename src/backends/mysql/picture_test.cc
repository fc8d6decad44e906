// Who holds, who waits, and whether without need, from three sources: no server needed.
#include "mysql/picture.h"

#include <gtest/gtest.h>

namespace hierlock::mysql {
namespace {

using Contention = Snapshot::Contention;
using Nodes = std::vector<Node>;
using Spans = std::vector<std::span<const Node>>;

Node node(unsigned level, std::uint32_t bucket, Mode mode, const std::string& text) {
  return {{static_cast<std::uint8_t>(level), bucket, mode}, true, text};
}
Entry entry(std::uint64_t session, const std::string& owner, bool waits, Nodes nodes) {
  Entry e;
  e.session = session;
  e.owner = e.owner_name = owner;
  e.host = "web3";
  e.note = "note of " + owner;
  e.process = 4711;
  e.fence = waits ? 0 : 128;
  e.waits = waits;
  e.nodes = std::move(nodes);
  return e;
}
Locked locked(std::uint64_t session, unsigned level, std::uint32_t bucket, Mode mode, bool waits = false,
              std::vector<std::size_t> blocked_by = {}) {
  return {.session = session,
          .transaction = std::to_string(session),
          .row = plan::Row{static_cast<std::uint8_t>(level), bucket, mode},
          .mode = mode,
          .waits = waits,
          .blocked_by = std::move(blocked_by)};
}
constexpr bool holds = false, waits = true;

// As MySQL shows it; session 1 is this process's.
Looked seen(std::vector<Locked> locks) {
  Looked looked;
  looked.buckets = 10;
  looked.is_own = [](std::uint64_t session) { return session == 1; };
  looked.view.seen = looked.view.all_holders = true;
  looked.view.locks = std::move(locks);
  return looked;
}
Snapshot drawn(const Looked& looked) {
  Snapshot snapshot;
  draw(looked, snapshot);
  return snapshot;
}

TEST(Contention, is_false_when_all_in_the_way_have_other_paths_of_the_row) {  // H15
  const plan::Row row{0, 5, Mode::X};
  const Nodes u1{node(0, 5, Mode::X, "u1")}, reads_u1{node(0, 5, Mode::S, "u1")}, u2{node(0, 5, Mode::X, "u2")},
      stranger{node(0, 5, Mode::X, "")}, elsewhere{node(0, 6, Mode::X, "u1")};
  EXPECT_EQ(judge(row, u1, Spans{u1}, true), Contention::own_target);
  EXPECT_EQ(judge(row, u1, Spans{reads_u1}, true), Contention::own_target);
  EXPECT_EQ(judge(row, u1, Spans{u2}, true), Contention::shared_bucket);
  EXPECT_EQ(judge(row, u1, Spans{u2}, false), Contention::unknown) << "there may be others";
  EXPECT_EQ(judge(row, u1, Spans{u2, u1}, false), Contention::own_target);
  EXPECT_EQ(judge(row, u1, Spans{u2, stranger}, true), Contention::unknown);
  EXPECT_EQ(judge(row, u1, Spans{stranger, u1}, true), Contention::own_target);
  EXPECT_EQ(judge(row, stranger, Spans{u2}, true), Contention::unknown);
  EXPECT_EQ(judge(row, u1, Spans{elsewhere}, true), Contention::unknown) << "it is in the way, and nobody knows why";
  EXPECT_EQ(judge(row, u1, Spans{}, true), Contention::unknown);
}

TEST(Contention, between_readers_of_one_path_is_not_what_a_row_is_waited_for) {  // H15
  // Wants to read u1 and to write u5, which share a row; another reads u1.
  const plan::Row row{0, 5, Mode::X};
  const Nodes wanted{node(0, 5, Mode::S, "u1"), node(0, 5, Mode::X, "u5")}, reads{node(0, 5, Mode::S, "u1")};
  EXPECT_EQ(judge(row, wanted, Spans{reads}, true), Contention::shared_bucket);
}

TEST(Picture, shows_a_session_that_nobody_has_told_of_by_its_rows) {  // B7
  Looked looked = seen({locked(7, 0, 5, Mode::S), locked(7, 1, 6, Mode::X)});
  looked.view.sessions[7] = {"app", "10.0.0.7", "web3", "mysql", 4711, std::chrono::seconds(2)};
  const Snapshot now = drawn(looked);
  ASSERT_EQ(now.holders.size(), 2u);
  EXPECT_EQ(now.holders[0].target, "");
  EXPECT_EQ(now.holders[0].row, (Snapshot::Row{0, 5}));
  EXPECT_FALSE(now.holders[0].asked);
  EXPECT_TRUE(now.holders[1].asked);
  EXPECT_EQ(now.holders[0].who.owner, now.holders[1].who.owner);
  EXPECT_EQ(now.holders[1].who.owner_name, "session 7 of app@10.0.0.7, program mysql");
  EXPECT_EQ(now.holders[1].who.process, 4711);
  EXPECT_EQ(now.holders[1].who.host, "web3");
  EXPECT_EQ(now.holders[1].who.session, 7u);
  EXPECT_EQ(now.holders[1].age, std::chrono::seconds(2));
}

TEST(Picture, joins_what_is_told_with_what_is_seen_by_the_session) {  // B7
  Looked looked = seen({locked(7, 0, 5, Mode::X), locked(8, 0, 5, Mode::X, waits, {0})});
  looked.told = {entry(7, "a", holds, {node(0, 5, Mode::X, "u1")}), entry(8, "b", waits, {node(0, 5, Mode::X, "u2")})};
  const Snapshot now = drawn(looked);
  ASSERT_EQ(now.holders.size(), 1u);
  EXPECT_EQ(now.holders[0].target, "u1");
  EXPECT_EQ(now.holders[0].fence, 128);
  EXPECT_EQ(now.holders[0].who.note, "note of a");
  ASSERT_EQ(now.waiters.size(), 1u);
  EXPECT_EQ(now.waiters[0].target, "u2");
  EXPECT_EQ(now.waiters[0].blocked_by, std::vector{now.holders[0].who.owner});
  EXPECT_EQ(now.waiters[0].contention, Contention::shared_bucket);
}

TEST(Picture, leaves_out_what_is_told_and_not_so_any_more) {  // B7
  Looked looked = seen({locked(7, 0, 6, Mode::X), locked(8, 0, 7, Mode::S)});
  looked.told = {entry(7, "a", holds, {node(0, 5, Mode::X, "u1")}), entry(8, "b", holds, {node(0, 7, Mode::X, "u2")}),
                 entry(9, "c", holds, {node(0, 8, Mode::X, "u3")})};
  for (const Snapshot::Holder& holder : drawn(looked).holders) {
    EXPECT_EQ(holder.target, "") << "its session holds another row, or shares it, or is gone";
  }
  looked.view.all_holders = false;
  looked.view.with_rows = std::set<std::uint64_t>{7, 8};
  std::vector<std::string> targets;
  for (const Snapshot::Holder& holder : drawn(looked).holders) {
    if (!holder.target.empty()) targets.push_back(holder.target);
  }
  EXPECT_EQ(targets, (std::vector<std::string>{"u1", "u2"})) << "the third holds nothing";
}

TEST(Picture, says_that_somebody_may_hold_what_is_not_shown) {  // B7: MariaDB, before anybody waits or tells
  Looked looked = seen({locked(7, 0, 5, Mode::X)});
  looked.view.all_holders = false;
  looked.told = {entry(8, "a", holds, {node(0, 6, Mode::X, "u1")})};
  looked.view.with_rows = std::set<std::uint64_t>{1, 7, 8};
  EXPECT_TRUE(drawn(looked).notes.empty()) << "all of them are shown";
  looked.view.with_rows = std::set<std::uint64_t>{1, 7, 8, 9};
  ASSERT_EQ(drawn(looked).notes.size(), 1u);
  EXPECT_TRUE(drawn(looked).notes[0].starts_with("1 session has rows locked that are not shown"));
  looked.view.with_rows.reset();
  EXPECT_TRUE(drawn(looked).notes.empty()) << "it is not known";
}

TEST(Picture, keeps_what_is_told_where_the_server_does_not_say_which_row) {
  Looked looked = seen({locked(7, 0, 5, Mode::X)});
  looked.view.locks[0].row.reset();
  looked.told = {entry(7, "a", holds, {node(0, 5, Mode::X, "u1")})};
  const Snapshot now = drawn(looked);
  ASSERT_EQ(now.holders.size(), 1u);
  EXPECT_EQ(now.holders[0].target, "u1");
}

TEST(Picture, shows_what_a_waiter_has_got_already_without_a_fence) {  // B7
  Looked looked = seen({locked(7, 0, 5, Mode::S), locked(7, 1, 6, Mode::X, waits, {2}), locked(8, 1, 6, Mode::X),
                        locked(9, 0, 5, Mode::X, waits, {0})});
  looked.told = {entry(7, "a", waits, {node(0, 5, Mode::S, "u1"), node(1, 6, Mode::X, "u1/a1")}),
                 entry(9, "b", waits, {node(0, 5, Mode::X, "u1")})};
  const Snapshot now = drawn(looked);
  ASSERT_EQ(now.holders.size(), 2u);
  EXPECT_EQ(now.holders[1].target, "u1");
  EXPECT_EQ(now.holders[1].fence, 0);
  ASSERT_EQ(now.waiters.size(), 2u);
  EXPECT_EQ(now.waiters[0].target, "u1/a1");
  EXPECT_EQ(now.waiters[0].contention, Contention::unknown);
  EXPECT_EQ(now.waiters[1].blocked_by, std::vector{now.waiters[0].who.owner});
  EXPECT_EQ(now.waiters[1].contention, Contention::own_target);
}

TEST(Picture, of_the_own_process_is_as_it_says_itself) {
  Looked looked = seen({locked(1, 0, 5, Mode::X), locked(8, 0, 5, Mode::X, waits, {0})});
  const Snapshot asking = drawn(looked);
  EXPECT_TRUE(asking.holders.empty()) << "asked for or released just now";
  ASSERT_EQ(asking.waiters.size(), 1u);
  EXPECT_EQ(asking.waiters[0].blocked_by.size(), 1u);
  looked.own = {entry(1, "me", holds, {node(0, 5, Mode::X, "u1")})};
  looked.numbers["me"] = 42;
  const Snapshot now = drawn(looked);
  EXPECT_TRUE(now.holders.empty()) << "the local queue has shown it";
  EXPECT_EQ(now.waiters[0].blocked_by, std::vector<std::uint64_t>{42});
}

TEST(Picture, finds_those_in_the_way_whom_the_server_does_not_name_among_those_who_tell) {
  Looked looked = seen({locked(9, 0, 5, Mode::X, waits, {1}), locked(0, 0, 5, Mode::S)});
  looked.view.all_holders = false;
  looked.told = {entry(7, "a", holds, {node(0, 5, Mode::S, "u1")}), entry(8, "b", holds, {node(0, 5, Mode::S, "u1")}),
                 entry(9, "c", waits, {node(0, 5, Mode::X, "u1")})};
  const Snapshot now = drawn(looked);
  ASSERT_EQ(now.waiters.size(), 1u);
  EXPECT_EQ(now.waiters[0].blocked_by.size(), 2u);
  EXPECT_EQ(now.waiters[0].contention, Contention::own_target);
}

TEST(Picture, without_the_views_is_what_was_told) {  // B7
  Looked looked = seen({});
  looked.view = {};
  looked.view.note = "GRANT it";
  looked.told = {entry(7, "a", holds, {node(0, 5, Mode::X, "u1"), node(1, 3, Mode::X, "u4/a1")}),
                 entry(8, "b", waits, {node(1, 3, Mode::X, "u3/a1"), node(0, 5, Mode::X, "u2")}),
                 entry(9, "c", waits, {node(0, 9, Mode::X, "u9")})};
  const Snapshot now = drawn(looked);
  EXPECT_EQ(now.notes, std::vector<std::string>{"GRANT it"});
  ASSERT_EQ(now.waiters.size(), 2u);
  EXPECT_EQ(now.waiters[0].target, "u2") << "the first of its rows that somebody has";
  EXPECT_EQ(now.waiters[0].contention, Contention::shared_bucket) << "the other has the row alone";
  EXPECT_EQ(now.waiters[1].target, "u9");
  EXPECT_FALSE(now.waiters[1].row) << "nobody knows where it is stuck";
  EXPECT_EQ(now.waiters[1].contention, Contention::unknown);
  ASSERT_EQ(now.buckets.size(), 1u);
  EXPECT_EQ(now.buckets[0].row, (Snapshot::Row{0, 5}));
}

TEST(Buckets, are_listed_with_the_most_waited_for_first) {  // H15
  Snapshot snapshot;
  const auto wait = [&](unsigned level, std::uint32_t bucket, const std::string& target, Contention contention) {
    Snapshot::Waiter waiter;
    waiter.target = target;
    waiter.row = Snapshot::Row{level, bucket};
    waiter.contention = contention;
    snapshot.waiters.push_back(waiter);
  };
  wait(0, 9, "u1", Contention::own_target);
  wait(1, 2, "u1/a1", Contention::shared_bucket);
  wait(1, 2, "u2/a1", Contention::unknown);
  wait(0, 3, "", Contention::unknown);
  for (const std::uint64_t lock : {1u, 1u, 2u}) {
    Snapshot::Holder holder;
    holder.target = "u3/a1";
    holder.lock = lock;
    holder.row = Snapshot::Row{1, 2};
    snapshot.holders.push_back(holder);
  }
  const std::vector<Snapshot::Bucket> hot = hot_buckets(snapshot);
  ASSERT_EQ(hot.size(), 3u);
  EXPECT_EQ(hot[0].row, (Snapshot::Row{1, 2}));
  EXPECT_EQ(hot[0].waiters, 2u);
  EXPECT_EQ(hot[0].holders, 2u) << "two locks";
  EXPECT_EQ(hot[0].falsely, 1u);
  EXPECT_EQ(hot[0].unknown, 1u);
  EXPECT_EQ(hot[0].targets, (std::vector<std::string>{"u1/a1", "u2/a1", "u3/a1"}));
  EXPECT_EQ(hot[1].row, (Snapshot::Row{0, 3}));
  EXPECT_TRUE(hot[1].targets.empty());
}

}  // namespace
}  // namespace hierlock::mysql
