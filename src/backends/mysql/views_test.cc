// What the server's views say, read: no server needed.
#include "mysql/views.h"

#include <gtest/gtest.h>

namespace hierlock::mysql {
namespace {

using Cells = std::vector<std::optional<std::string>>;

Reply rows(std::vector<Cells> all) {
  Reply reply;
  reply.rows = std::move(all);
  return reply;
}
// A row of data_locks, with its session's facts.
Cells lock(const char* id, const char* transaction, const char* session, const char* type, const char* mode,
           const char* status, std::optional<std::string> data) {
  return {id, transaction, session, type, mode, status, std::move(data), "app", "10.0.0.7", "3"};
}
Cells transaction(const char* id, const char* session, std::optional<std::string> asks, const char* rows_locked) {
  return {"mark", id, session, std::move(asks), rows_locked, "app", "10.0.0.7:4711", "1500.250", "0"};
}

TEST(Account, is_quoted_so_that_a_grant_can_be_pasted) {
  EXPECT_EQ(quoted_account("app@127.0.0.1"), "'app'@'127.0.0.1'");
  EXPECT_EQ(quoted_account("app@%"), "'app'@'%'");
  EXPECT_EQ(quoted_account("o'dd@%"), "'o''dd'@'%'");
  EXPECT_EQ(quoted_account("a@b\\@10.0.0.%"), "'a@b\\\\'@'10.0.0.%'");
  EXPECT_EQ(quoted_account("@localhost"), "''@'localhost'");
}

TEST(Views, a_row_is_read_from_the_data_of_a_lock_and_anything_else_is_none) {
  EXPECT_EQ(read_row("2, 8675750", Mode::S), (Cell{2, 8675750, Mode::S}));
  for (const char* other : {"", "2", "2,", "2, ", "2, x", "2, 3, 4", "-1, 3", "2, -3", "256, 1", "2, 4294967296",
                            "supremum pseudo-record", "2 , 3", "'2', 3"}) {
    EXPECT_FALSE(read_row(other, Mode::X)) << other;
  }
}

TEST(Views, of_mysql_tell_who_waits_for_whom) {  // B7
  const View view = read_mysql(rows({lock("a", "1", "11", "TABLE", "IX", "GRANTED", {}),
                                     lock("b", "1", "11", "RECORD", "X,REC_NOT_GAP", "GRANTED", "0, 5"),
                                     lock("c", "2", "12", "TABLE", "IS", "GRANTED", {}),
                                     lock("d", "2", "12", "RECORD", "S,REC_NOT_GAP", "WAITING", "0, 5")}),
                               rows({{"d", "b"}, {"d", "of another table"}, {"gone meanwhile", "b"}}));
  EXPECT_TRUE(view.seen);
  EXPECT_TRUE(view.all_holders);
  ASSERT_EQ(view.locks.size(), 2u);
  EXPECT_EQ(view.locks[0].session, 11u);
  EXPECT_EQ(view.locks[0].cell, (Cell{0, 5, Mode::X}));
  EXPECT_FALSE(view.locks[0].waits);
  EXPECT_EQ(view.locks[1].session, 12u);
  EXPECT_EQ(view.locks[1].mode, Mode::S);
  EXPECT_TRUE(view.locks[1].waits);
  EXPECT_EQ(view.locks[1].blocked_by, std::vector<std::size_t>{0});
  EXPECT_EQ(view.sessions.at(11).user, "app");
  EXPECT_EQ(view.sessions.at(11).age, std::chrono::seconds(3));
}

TEST(Views, of_mysql_name_the_session_of_a_row_by_its_lock_on_the_table) {  // the row's own names who wrote it down
  const View view = read_mysql(
      rows({lock("a", "1", "11", "TABLE", "IX", "GRANTED", {}), lock("b", "2", "12", "TABLE", "IX", "GRANTED", {}),
            lock("c", "1", "12", "RECORD", "X,REC_NOT_GAP", "GRANTED", "2, 55"),
            lock("d", "2", "12", "RECORD", "X,REC_NOT_GAP", "WAITING", "2, 55")}),
      rows({{"d", "c"}}));
  ASSERT_EQ(view.locks.size(), 2u);
  EXPECT_EQ(view.locks[0].session, 11u);
  EXPECT_EQ(view.locks[1].session, 12u);
}

TEST(Views, of_mysql_leave_out_gaps_which_keep_nobody_from_a_row) {
  const View view = read_mysql(rows({lock("a", "1", "11", "RECORD", "X,GAP", "GRANTED", "0, 5"),
                                     lock("b", "1", "11", "RECORD", "X", "GRANTED", "supremum pseudo-record"),
                                     lock("c", "2", "12", "RECORD", "X,GAP,INSERT_INTENTION", "WAITING", "0, 5"),
                                     lock("d", "3", "13", "RECORD", "S", "GRANTED", "0, 5"),
                                     lock("e", "3", "13", "RECORD", "S,REC_NOT_GAP", "GRANTED", {})}),
                               rows({}));
  ASSERT_EQ(view.locks.size(), 4u);
  EXPECT_FALSE(view.locks[0].cell) << "not one of ours";
  EXPECT_TRUE(view.locks[1].waits);
  EXPECT_FALSE(view.locks[1].cell) << "it waits for a place between rows";
  EXPECT_EQ(view.locks[2].cell, (Cell{0, 5, Mode::S}));
  EXPECT_FALSE(view.locks[3].cell) << "its page is not in memory";
}

TEST(Views, that_name_no_session_are_not_taken_for_all) {
  const View view = read_mysql(rows({{"b", "1", std::nullopt, "RECORD", "X,REC_NOT_GAP", "GRANTED", "0, 5",
                                      std::nullopt, std::nullopt, std::nullopt}}),
                               rows({}));
  ASSERT_EQ(view.locks.size(), 1u);
  EXPECT_EQ(view.locks[0].session, 0u);
  EXPECT_FALSE(view.all_holders);
}

TEST(Views, tell_how_a_session_has_introduced_itself) {
  View view = read_mysql(rows({lock("b", "1", "11", "RECORD", "X,REC_NOT_GAP", "GRANTED", "0, 5")}), rows({}));
  read_attributes(rows({{"11", "_pid", "4711"},
                        {"11", "program_name", "hierlock"},
                        {"11", "hierlock_host", "web3"},
                        {"12", "_pid", "1"},
                        {"11", "_pid"}}),
                  view);
  EXPECT_EQ(view.sessions.size(), 1u);
  const SessionFacts& session = view.sessions.at(11);
  EXPECT_EQ(session.process, 4711);
  EXPECT_EQ(session.program, "hierlock");
  EXPECT_EQ(session.machine, "web3");
  EXPECT_EQ(session.host, "10.0.0.7") << "where the server sees it";
}

TEST(Views, of_mariadb_tell_who_waits_for_whom) {  // B7
  const View view = read_mariadb(
      rows({transaction("23", "7", {}, "3"), transaction("25", "9", "25:5:3:6", "1"), transaction("26", "8", {}, "0")}),
      rows({{"25:5:3:6", "25", "X", "2, 55"}, {"23:5:3:6", "23", "X", "2, 55"}}),
      rows({{"25:5:3:6", "23:5:3:6", "23"}, {"99:1:1:1", "23:5:3:6", "23"}}));
  ASSERT_EQ(view.locks.size(), 2u);
  EXPECT_FALSE(view.all_holders);
  EXPECT_EQ(view.with_locks, (std::set<std::uint64_t>{7, 9}));
  EXPECT_EQ(view.locks[0].session, 9u);
  EXPECT_TRUE(view.locks[0].waits);
  ASSERT_EQ(view.locks[0].blocked_by, std::vector<std::size_t>{1});
  EXPECT_EQ(view.locks[1].session, 7u);
  EXPECT_EQ(view.locks[1].cell, (Cell{2, 55, Mode::X}));
  EXPECT_EQ(view.sessions.at(7).host, "10.0.0.7");
  EXPECT_EQ(view.sessions.at(7).age, std::chrono::milliseconds(1500));
}

TEST(Views, of_mariadb_name_a_reader_only_where_there_is_but_one) {  // all of them are transaction 0
  const Reply locks = rows({{"25:5:3:6", "25", "X", "2, 55"}, {"0:5:3:6", "0", "S", "2, 55"}});
  const Reply waits = rows({{"25:5:3:6", "0:5:3:6", "0"}});
  const View one = read_mariadb(
      rows({transaction("0", "7", {}, "3"), transaction("0", "3", {}, "0"), transaction("25", "9", "25:5:3:6", "1")}),
      locks, waits);
  ASSERT_EQ(one.locks.size(), 2u);
  EXPECT_EQ(one.locks[1].session, 7u);
  const View two = read_mariadb(
      rows({transaction("0", "7", {}, "3"), transaction("0", "3", {}, "1"), transaction("25", "9", "25:5:3:6", "1")}),
      locks, waits);
  ASSERT_EQ(two.locks.size(), 2u);
  EXPECT_EQ(two.locks[1].session, 0u);
}

TEST(Views, of_mariadb_show_a_waiter_in_the_way_of_another_as_a_waiter) {
  const View view = read_mariadb(
      rows({transaction("23", "7", {}, "3"), transaction("25", "9", "25:5:3:6", "1"),
            transaction("26", "8", "26:5:3:6", "1")}),
      rows({{"25:5:3:6", "25", "X", "2, 55"}, {"26:5:3:6", "26", "X", "2, 55"}, {"23:5:3:6", "23", "X", "2, 55"}}),
      rows({{"25:5:3:6", "23:5:3:6", "23"}, {"26:5:3:6", "23:5:3:6", "23"}, {"26:5:3:6", "25:5:3:6", "25"}}));
  ASSERT_EQ(view.locks.size(), 3u);
  EXPECT_EQ(std::count_if(view.locks.begin(), view.locks.end(), [](const Locked& one) { return one.waits; }), 2);
  EXPECT_EQ(view.locks[1].session, 8u);
  EXPECT_EQ(view.locks[1].blocked_by, (std::vector<std::size_t>{2, 0}));
}

// A wait that was cut off looks like none.
TEST(Views, of_which_not_all_was_read_have_a_note) {  // B11
  const Reply locks = rows({lock("b", "1", "11", "RECORD", "X,REC_NOT_GAP", "GRANTED", "0, 5"),
                            lock("d", "2", "12", "RECORD", "S,REC_NOT_GAP", "WAITING", "0, 5")});
  const Reply waits = rows({{"d", "b"}});
  EXPECT_EQ(read_mysql(locks, waits, {.locks = 3, .waits = 2}).note, "");
  EXPECT_NE(read_mysql(locks, waits, {.locks = 3, .waits = 1}).note, "");
  EXPECT_TRUE(read_mysql(locks, waits, {.locks = 3, .waits = 1}).all_holders);
  EXPECT_NE(read_mysql(locks, waits, {.locks = 2, .waits = 2}).note, "");
  EXPECT_FALSE(read_mysql(locks, waits, {.locks = 2, .waits = 2}).all_holders);

  const Reply transactions = rows({transaction("23", "7", {}, "3"), transaction("25", "9", "25:5:3:6", "1")});
  const Reply pair = rows({{"25:5:3:6", "25", "X", "2, 55"}, {"23:5:3:6", "23", "X", "2, 55"}});
  const Reply one = rows({{"25:5:3:6", "23:5:3:6", "23"}}), none = rows({});
  EXPECT_EQ(read_mariadb(transactions, pair, one, {.locks = 3, .waits = 2}).note, "");
  EXPECT_NE(read_mariadb(transactions, pair, one, {.locks = 3, .waits = 1}).note, "");
  EXPECT_NE(read_mariadb(transactions, none, none, {.locks = 2, .waits = 2}).note, "");
  EXPECT_NE(read_mariadb(none, pair, none, {.locks = 2, .waits = 2}).note, "");
}

TEST(Views, that_say_something_unexpected_say_nothing) {
  EXPECT_TRUE(read_mysql(rows({{"a"}, {}}), rows({{"a"}, {}})).locks.empty());
  EXPECT_TRUE(read_mariadb(rows({{"a"}, {}}), rows({{"a"}, {}}), rows({{"a"}, {}})).locks.empty());
}

}  // namespace
}  // namespace hierlock::mysql
