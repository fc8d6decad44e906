// Who holds, who waits, and whether without need, from three sources: no server needed.
#include "remote/status_builder.h"

#include "plan/buckets.h"

#include <gtest/gtest.h>

namespace hierlock::remote {
namespace {

using Contention = Snapshot::Contention;
using Nodes = std::vector<Node>;
using Spans = std::vector<std::span<const Node>>;

Node node(unsigned level, std::uint32_t bucket, Mode mode, const std::string& text) {
  return {{static_cast<std::uint8_t>(level), bucket, mode}, true, text};
}
Notice notice(std::uint64_t session, const std::string& owner, bool waits, Nodes nodes) {
  Notice e;
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
          .cell = Cell{static_cast<std::uint8_t>(level), bucket, mode},
          .mode = mode,
          .waits = waits,
          .blocked_by = std::move(blocked_by)};
}
constexpr bool holds = false, waits = true;

// As MySQL shows it; session 1 is this process's.
Sources seen(std::vector<Locked> locks) {
  Sources sources;
  sources.rows.of_target = [](const std::string& text) -> std::optional<Snapshot::Row> {
    const Target target = Target::parse(text);
    const std::size_t level = target.depth() - 1;
    return Snapshot::Row{static_cast<unsigned>(level), plan::bucket_of(target.key(level), 10)};
  };
  sources.rows.of_cell = [](const Cell& cell) -> std::optional<Snapshot::Row> {
    return Snapshot::Row{cell.level, static_cast<std::uint32_t>(cell.key)};
  };
  sources.is_own = [](std::uint64_t session) { return session == 1; };
  sources.view.seen = sources.view.all_holders = true;
  sources.view.locks = std::move(locks);
  return sources;
}
Snapshot built(const Sources& sources) {
  Snapshot snapshot;
  build_status(sources, snapshot);
  return snapshot;
}

TEST(Contention, is_false_when_all_in_the_way_have_other_paths_of_the_row) {  // H15
  const Cell cell{0, 5, Mode::X};
  const Nodes u1{node(0, 5, Mode::X, "u1")}, reads_u1{node(0, 5, Mode::S, "u1")}, u2{node(0, 5, Mode::X, "u2")},
      stranger{node(0, 5, Mode::X, "")}, elsewhere{node(0, 6, Mode::X, "u1")};
  EXPECT_EQ(judge(cell, u1, Spans{u1}, true), Contention::own_target);
  EXPECT_EQ(judge(cell, u1, Spans{reads_u1}, true), Contention::own_target);
  EXPECT_EQ(judge(cell, u1, Spans{u2}, true), Contention::shared_bucket);
  EXPECT_EQ(judge(cell, u1, Spans{u2}, false), Contention::unknown) << "there may be others";
  EXPECT_EQ(judge(cell, u1, Spans{u2, u1}, false), Contention::own_target);
  EXPECT_EQ(judge(cell, u1, Spans{u2, stranger}, true), Contention::unknown);
  EXPECT_EQ(judge(cell, u1, Spans{stranger, u1}, true), Contention::own_target);
  EXPECT_EQ(judge(cell, stranger, Spans{u2}, true), Contention::unknown);
  EXPECT_EQ(judge(cell, u1, Spans{elsewhere}, true), Contention::unknown) << "it is in the way, and nobody knows why";
  EXPECT_EQ(judge(cell, u1, Spans{}, true), Contention::unknown);
}

TEST(Contention, between_readers_of_one_path_is_not_what_a_row_is_waited_for) {  // H15
  // Wants to read u1 and to write u5, which share a row; another reads u1.
  const Cell cell{0, 5, Mode::X};
  const Nodes wanted{node(0, 5, Mode::S, "u1"), node(0, 5, Mode::X, "u5")}, reads{node(0, 5, Mode::S, "u1")};
  EXPECT_EQ(judge(cell, wanted, Spans{reads}, true), Contention::shared_bucket);
}

TEST(StatusBuilder, shows_a_session_that_nobody_has_told_of_by_its_rows) {  // B7
  Sources sources = seen({locked(7, 0, 5, Mode::S), locked(7, 1, 6, Mode::X)});
  sources.view.sessions[7] = {"app", "10.0.0.7", "web3", "mysql", 4711, std::chrono::seconds(2)};
  const Snapshot now = built(sources);
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

TEST(StatusBuilder, joins_what_is_told_with_what_is_seen_by_the_session) {  // B7
  Sources sources = seen({locked(7, 0, 5, Mode::X), locked(8, 0, 5, Mode::X, waits, {0})});
  sources.others = {notice(7, "a", holds, {node(0, 5, Mode::X, "u1")}),
                    notice(8, "b", waits, {node(0, 5, Mode::X, "u2")})};
  const Snapshot now = built(sources);
  ASSERT_EQ(now.holders.size(), 1u);
  EXPECT_EQ(now.holders[0].target, "u1");
  EXPECT_EQ(now.holders[0].fence, 128);
  EXPECT_EQ(now.holders[0].who.note, "note of a");
  ASSERT_EQ(now.waiters.size(), 1u);
  EXPECT_EQ(now.waiters[0].target, "u2");
  EXPECT_EQ(now.waiters[0].blocked_by, std::vector{now.holders[0].who.owner});
  EXPECT_EQ(now.waiters[0].contention, Contention::shared_bucket);
}

TEST(StatusBuilder, leaves_out_what_is_told_and_not_so_any_more) {  // B7
  Sources sources = seen({locked(7, 0, 6, Mode::X), locked(8, 0, 7, Mode::S)});
  sources.others = {notice(7, "a", holds, {node(0, 5, Mode::X, "u1")}),
                    notice(8, "b", holds, {node(0, 7, Mode::X, "u2")}),
                    notice(9, "c", holds, {node(0, 8, Mode::X, "u3")})};
  for (const Snapshot::Holder& holder : built(sources).holders) {
    EXPECT_EQ(holder.target, "") << "its session holds another row, or shares it, or is gone";
  }
  sources.view.all_holders = false;
  sources.view.with_locks = std::set<std::uint64_t>{7, 8};
  std::vector<std::string> targets;
  for (const Snapshot::Holder& holder : built(sources).holders) {
    if (!holder.target.empty()) targets.push_back(holder.target);
  }
  EXPECT_EQ(targets, (std::vector<std::string>{"u1", "u2"})) << "the third holds nothing";
}

std::vector<std::string> wanted(const Snapshot& snapshot) {
  std::vector<std::string> all;
  for (const Snapshot::Waiter& waiter : snapshot.waiters) all.push_back(waiter.wanted);
  return all;
}

TEST(StatusBuilder, leaves_out_a_wait_whose_session_has_ended) {  // B7
  Sources sources = seen({locked(7, 0, 5, Mode::X), locked(8, 0, 5, Mode::X, waits, {0})});
  sources.others = {notice(8, "b", waits, {node(0, 5, Mode::X, "u2")}),
                    notice(9, "c", waits, {node(0, 5, Mode::X, "u3")}),
                    notice(10, "d", waits, {node(0, 5, Mode::X, "u4")})};
  EXPECT_EQ(wanted(built(sources)), (std::vector<std::string>{"u2", "u3", "u4"})) << "they may ask anew just now";
  sources.view.ended = {9};
  EXPECT_EQ(wanted(built(sources)), (std::vector<std::string>{"u2", "u4"}));
}

TEST(StatusBuilder, leaves_out_a_queued_wait_whose_owner_lost_all_locks) {  // B7
  Sources sources = seen({locked(7, 0, 5, Mode::X), locked(20, 0, 9, Mode::X)});
  const std::uint64_t queue = in_queue | without_session;
  sources.others = {notice(7, "a", holds, {node(0, 5, Mode::X, "u1")}),
                    notice(8, "a", holds, {node(0, 6, Mode::X, "u2")}),
                    notice(queue | 1, "a", waits, {node(0, 9, Mode::X, "u3")}),
                    notice(9, "b", holds, {node(0, 7, Mode::X, "u4")}),
                    notice(in_queue | 9, "b", waits, {node(0, 9, Mode::X, "u5")}),
                    notice(queue | 2, "c", waits, {node(0, 9, Mode::X, "u6")})};
  EXPECT_EQ(wanted(built(sources)), (std::vector<std::string>{"u3", "u6"}))
      << "a still holds u1, and of what c holds nobody has told";
  sources.view.all_holders = false;
  sources.view.with_locks = std::set<std::uint64_t>{7, 20};
  EXPECT_EQ(wanted(built(sources)), (std::vector<std::string>{"u3", "u6"}));
  sources.view.with_locks.reset();
  EXPECT_EQ(wanted(built(sources)), (std::vector<std::string>{"u3", "u5", "u6"})) << "the store does not show holders";
}

TEST(StatusBuilder, says_that_somebody_may_hold_what_is_not_shown) {  // B7: MariaDB, before anybody waits or tells
  Sources sources = seen({locked(7, 0, 5, Mode::X)});
  sources.view.all_holders = false;
  sources.others = {notice(8, "a", holds, {node(0, 6, Mode::X, "u1")})};
  sources.view.unseen_note = "rows locked that are not shown";
  sources.view.with_locks = std::set<std::uint64_t>{1, 7, 8};
  EXPECT_TRUE(built(sources).notes.empty()) << "all of them are shown";
  sources.view.with_locks = std::set<std::uint64_t>{1, 7, 8, 9};
  ASSERT_EQ(built(sources).notes.size(), 1u);
  EXPECT_TRUE(built(sources).notes[0].starts_with("1 session has rows locked that are not shown"));
  sources.view.with_locks.reset();
  EXPECT_TRUE(built(sources).notes.empty()) << "it is not known";
}

TEST(StatusBuilder, keeps_what_is_told_where_the_server_does_not_say_which_row) {
  Sources sources = seen({locked(7, 0, 5, Mode::X)});
  sources.view.locks[0].cell.reset();
  sources.others = {notice(7, "a", holds, {node(0, 5, Mode::X, "u1")})};
  const Snapshot now = built(sources);
  ASSERT_EQ(now.holders.size(), 1u);
  EXPECT_EQ(now.holders[0].target, "u1");
}

TEST(StatusBuilder, shows_what_a_waiter_has_got_already_without_a_fence) {  // B7
  Sources sources = seen({locked(7, 0, 5, Mode::S), locked(7, 1, 6, Mode::X, waits, {2}), locked(8, 1, 6, Mode::X),
                          locked(9, 0, 5, Mode::X, waits, {0})});
  sources.others = {notice(7, "a", waits, {node(0, 5, Mode::S, "u1"), node(1, 6, Mode::X, "u1/a1")}),
                    notice(9, "b", waits, {node(0, 5, Mode::X, "u1")})};
  const Snapshot now = built(sources);
  ASSERT_EQ(now.holders.size(), 2u);
  EXPECT_EQ(now.holders[1].target, "u1");
  EXPECT_EQ(now.holders[1].fence, 0);
  ASSERT_EQ(now.waiters.size(), 2u);
  EXPECT_EQ(now.waiters[0].target, "u1/a1");
  EXPECT_EQ(now.waiters[0].contention, Contention::unknown);
  EXPECT_EQ(now.waiters[1].blocked_by, std::vector{now.waiters[0].who.owner});
  EXPECT_EQ(now.waiters[1].contention, Contention::own_target);
}

TEST(StatusBuilder, of_the_own_process_is_as_it_says_itself) {
  Sources sources = seen({locked(1, 0, 5, Mode::X), locked(8, 0, 5, Mode::X, waits, {0})});
  const Snapshot asking = built(sources);
  EXPECT_TRUE(asking.holders.empty()) << "asked for or released just now";
  ASSERT_EQ(asking.waiters.size(), 1u);
  EXPECT_EQ(asking.waiters[0].blocked_by.size(), 1u);
  sources.own = {notice(1, "me", holds, {node(0, 5, Mode::X, "u1")})};
  sources.numbers["me"] = 42;
  const Snapshot now = built(sources);
  EXPECT_TRUE(now.holders.empty()) << "the local queue has shown it";
  EXPECT_EQ(now.waiters[0].blocked_by, std::vector<std::uint64_t>{42});
}

TEST(StatusBuilder, finds_those_in_the_way_whom_the_server_does_not_name_among_those_who_tell) {
  Sources sources = seen({locked(9, 0, 5, Mode::X, waits, {1}), locked(0, 0, 5, Mode::S)});
  sources.view.all_holders = false;
  sources.others = {notice(7, "a", holds, {node(0, 5, Mode::S, "u1")}),
                    notice(8, "b", holds, {node(0, 5, Mode::S, "u1")}),
                    notice(9, "c", waits, {node(0, 5, Mode::X, "u1")})};
  const Snapshot now = built(sources);
  ASSERT_EQ(now.waiters.size(), 1u);
  EXPECT_EQ(now.waiters[0].blocked_by.size(), 2u);
  EXPECT_EQ(now.waiters[0].contention, Contention::own_target);
}

TEST(StatusBuilder, without_the_views_is_what_was_told) {  // B7
  Sources sources = seen({});
  sources.view = {};
  sources.view.note = "GRANT it";
  sources.others = {notice(7, "a", holds, {node(0, 5, Mode::X, "u1"), node(1, 3, Mode::X, "u4/a1")}),
                    notice(8, "b", waits, {node(1, 3, Mode::X, "u3/a1"), node(0, 5, Mode::X, "u2")}),
                    notice(9, "c", waits, {node(0, 9, Mode::X, "u9")})};
  const Snapshot now = built(sources);
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
}  // namespace hierlock::remote
