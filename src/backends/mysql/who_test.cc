// Who waits for whom, from what processes have written down: no server needed.
#include "mysql/who.h"

#include <gtest/gtest.h>

namespace hierlock::mysql {
namespace {

using std::chrono::microseconds;

Node node(unsigned level, std::uint32_t bucket, Mode mode, const std::string& text = "x") {
  return {{static_cast<std::uint8_t>(level), bucket, mode}, true, text};
}

Entry entry(std::uint64_t session, const std::string& owner, bool waits, int age, std::vector<Node> nodes) {
  Entry e;
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

TEST(Who, rows_conflict_by_level_bucket_and_mode) {
  const Entry reader = entry(1, "a", holds, 0, {node(0, 5, Mode::S)});
  EXPECT_NE(conflict(entry(2, "b", waits, 0, {node(0, 5, Mode::X)}), reader), nullptr);
  EXPECT_EQ(conflict(entry(2, "b", waits, 0, {node(0, 5, Mode::S)}), reader), nullptr);
  EXPECT_EQ(conflict(entry(2, "b", waits, 0, {node(1, 5, Mode::X)}), reader), nullptr);
  EXPECT_EQ(conflict(entry(2, "b", waits, 0, {node(0, 6, Mode::X)}), reader), nullptr);
}

TEST(Who, whoever_is_in_conflict_with_holders_waits_for_them_and_not_for_waiters) {
  const std::vector<Entry> all = {entry(1, "a", holds, 9, {node(0, 1, Mode::X)}),
                                  entry(2, "b", waits, 5, {node(0, 1, Mode::X)}),
                                  entry(3, "c", waits, 3, {node(0, 1, Mode::X)})};
  ASSERT_EQ(in_the_way(all[2], all).size(), 1u);
  EXPECT_EQ(in_the_way(all[2], all)[0]->owner, "a");
}

TEST(Who, whoever_is_in_conflict_with_no_holder_stands_behind_an_earlier_waiter) {
  const std::vector<Entry> all = {
      entry(1, "a", holds, 9, {node(0, 1, Mode::S)}), entry(2, "b", waits, 5, {node(0, 1, Mode::X)}),
      entry(3, "c", waits, 3, {node(0, 1, Mode::S)}), entry(4, "d", waits, 1, {node(0, 1, Mode::X)})};
  ASSERT_EQ(in_the_way(all[2], all).size(), 1u);
  EXPECT_EQ(in_the_way(all[2], all)[0]->owner, "b") << "not d, who came later";
}

TEST(Who, two_owners_with_two_sessions_each_are_a_cycle_and_the_youngest_wait_is_its_victim) {  // B11
  const std::vector<Entry> all = {
      entry(1, "a", holds, 9, {node(0, 1, Mode::X, "u1")}), entry(2, "b", holds, 9, {node(0, 2, Mode::X, "u2")}),
      entry(3, "a", waits, 5, {node(0, 2, Mode::X, "u2")}), entry(4, "b", waits, 2, {node(0, 1, Mode::X, "u1")})};
  for (const std::size_t from : {2u, 3u}) {
    const auto cycle = find_cycle(all[from], all);
    ASSERT_TRUE(cycle.has_value());
    EXPECT_EQ(cycle->victim->session, 4u) << "all members choose the same";
    EXPECT_NE(cycle->text().find("a of process 0 on h waits for u2"), std::string::npos) << cycle->text();
  }
}

TEST(Who, a_wait_that_leads_into_a_cycle_without_being_part_of_it_is_left_alone) {
  const std::vector<Entry> all = {
      entry(1, "a", holds, 9, {node(0, 1, Mode::X)}), entry(2, "b", holds, 9, {node(0, 2, Mode::X)}),
      entry(3, "a", waits, 5, {node(0, 2, Mode::X)}), entry(4, "b", waits, 4, {node(0, 1, Mode::X)}),
      entry(5, "c", waits, 1, {node(0, 1, Mode::X)})};
  EXPECT_FALSE(find_cycle(all[4], all).has_value());
}

TEST(Who, a_reader_behind_a_writer_who_waits_for_it_is_a_cycle) {  // seen by no server: two sessions of one owner
  const std::vector<Entry> all = {entry(1, "a", holds, 9, {node(0, 1, Mode::S)}),
                                  entry(2, "b", waits, 5, {node(0, 1, Mode::X)}),
                                  entry(3, "a", waits, 3, {node(0, 1, Mode::S)})};
  const auto cycle = find_cycle(all[2], all);
  ASSERT_TRUE(cycle.has_value());
  EXPECT_EQ(cycle->victim->session, 3u);
}

TEST(Who, a_chain_is_no_cycle) {
  const std::vector<Entry> all = {
      entry(1, "a", holds, 9, {node(0, 1, Mode::X)}), entry(2, "b", holds, 9, {node(0, 2, Mode::X)}),
      entry(3, "b", waits, 5, {node(0, 1, Mode::X)}), entry(4, "c", waits, 2, {node(0, 2, Mode::X)})};
  for (const Entry& one : all) {
    if (one.waits) {
      EXPECT_FALSE(find_cycle(one, all).has_value());
    }
  }
}

TEST(Who, rows_that_cannot_be_read_are_left_out) {
  const auto row = [](const std::string& nodes) {
    return std::vector<std::optional<std::string>>{"7", "o", "name", "h", "c", "n", "1", "2", "3", "1", nodes};
  };
  Reply reply;
  for (const char* bad : {"", "nonsense", "0", "0 1", "0 1 Q 1 x", "0 1 X", "0 1 X y z", "-1 1 X 1 x", "0 1 X 1"}) {
    reply.rows.push_back(row(bad));
  }
  reply.rows.push_back({"7"});
  EXPECT_TRUE(read_entries(reply).empty());
  reply.rows.push_back(row("0 12 S 0 u 1\n1 13 X 1 u 1/a\n"));
  const std::vector<Entry> read = read_entries(reply);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].session, 7u);
  ASSERT_EQ(read[0].nodes.size(), 2u);
  EXPECT_EQ(read[0].nodes[0].text, "u 1");
  EXPECT_FALSE(read[0].nodes[0].asked);
  EXPECT_EQ(read[0].nodes[1].row, (plan::Row{1, 13, Mode::X}));
}

}  // namespace
}  // namespace hierlock::mysql
