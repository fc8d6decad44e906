#include "mysql/notice_sql.h"

#include <gtest/gtest.h>

namespace hierlock::mysql {
namespace {

using remote::in_queue;

Node row(std::uint32_t bucket) { return {{0, bucket, Mode::X}, true, "r" + std::to_string(bucket)}; }

Notice notice(std::uint64_t session, const std::string& owner, bool waits, int age, std::vector<Node> nodes) {
  Notice n;
  n.session = session;
  n.owner = n.owner_name = owner;
  n.host = "h";
  n.waits = waits;
  n.age = std::chrono::microseconds(age);
  n.nodes = std::move(nodes);
  return n;
}
constexpr bool holds = false, waits = true;

TEST(NoticeSql, what_a_wait_is_behind_is_published_with_it) {  // B11
  Notice one = notice(1 | in_queue, "p:1", waits, 5, {row(3)});
  one.behind = {7, 18'446'744'073'709'551'615u};
  const std::string sql = publish("t", std::span(&one, 1));
  EXPECT_NE(sql.find("X'626568696e642037203138"), std::string::npos) << sql;  // behind 7 18…
  const std::string nodes = "behind 7 18446744073709551615 \n0 3 X 1 r3\n";
  Reply reply;
  reply.rows = {{"1", "p:1", "p:1", "h", "", "", "1", "0", "5", "1", nodes, "7", "8"}};
  ASSERT_EQ(read_notices(reply).size(), 1u);
  EXPECT_EQ(read_notices(reply)[0].behind, one.behind);
  EXPECT_EQ(read_notices(reply)[0].nodes.size(), 1u);
}

TEST(NoticeSql, what_is_no_utf8_is_published_as_far_as_it_is) {
  Notice one = notice(1, "a", holds, 0, {row(1)});
  one.note = "caf\xe9!";
  EXPECT_NE(publish("t", std::span(&one, 1)).find("X'6361663f21'"), std::string::npos)
      << publish("t", std::span(&one, 1));
  one.note.assign(254, 'x').append("\xc3\xa9");
  EXPECT_NE(publish("t", std::span(&one, 1)).find("7878' USING"), std::string::npos) << "not cut in a character";
}

TEST(NoticeSql, rows_that_cannot_be_read_are_left_out) {
  const auto row = [](const std::string& nodes) {
    return std::vector<std::optional<std::string>>{"7", "o", "name", "h",   "c", "n", "1",
                                                   "2", "3", "1",    nodes, "7", "8"};
  };
  Reply reply;
  for (const char* bad : {"", "nonsense", "0", "0 1", "0 1 Q 1 x", "0 1 X", "0 1 X y z", "-1 1 X 1 x", "0 1 X 1"}) {
    reply.rows.push_back(row(bad));
  }
  reply.rows.push_back({"7"});
  EXPECT_TRUE(read_notices(reply).empty());
  reply.rows.push_back(row("0 12 S 0 u 1\n1 13 X 1 u 1/a\n"));
  const std::vector<Notice> read = read_notices(reply);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].session, 7u);
  ASSERT_EQ(read[0].nodes.size(), 2u);
  EXPECT_EQ(read[0].nodes[0].text, "u 1");
  EXPECT_FALSE(read[0].nodes[0].asked);
  EXPECT_EQ(read[0].nodes[1].cell, (remote::Cell{1, 13, Mode::X}));
}

TEST(NoticeSql, a_row_that_is_written_again_has_another_stamp) {
  const Notice one = notice(1, "p:1", holds, 0, {row(1)});
  EXPECT_NE(publish("t", std::span(&one, 1)), publish("t", std::span(&one, 1)));
}

TEST(NoticeSql, the_rows_of_a_locker_are_summed_up_as_the_server_does) {  // B12
  const auto row_of = [](const char* locker, const char* stamp, const std::string& nodes = "0 1 X 1 x\n") {
    return std::vector<std::optional<std::string>>{"7", "p:1", "n", "h",   "c",    "n",  "1",
                                                   "2", "3",   "1", nodes, locker, stamp};
  };
  Reply reply;
  reply.rows = {row_of("5", "12"), row_of("5", "10"), row_of("6", "3", "nonsense")};
  const auto read = read_by_locker(reply);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read.at(5).signature, (Signature{2, 12 ^ 10}));
  EXPECT_EQ(read.at(5).notices.size(), 2u);
  EXPECT_EQ(read.at(6).signature, (Signature{1, 3})) << "one that cannot be read counts, or it would be read for ever";
  EXPECT_TRUE(read.at(6).notices.empty());
}

}  // namespace
}  // namespace hierlock::mysql
