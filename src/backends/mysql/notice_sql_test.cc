#include "mysql/notice_sql.h"

#include <gtest/gtest.h>

namespace hierlock::mysql {
namespace {

using remote::Notice;

const NoticeStatements statements("t");

std::string published(const std::string& note, const std::string& owner = "p:1") {
  Notice notice;
  notice.session = 1;
  notice.owner = owner;
  notice.note = note;
  notice.nodes = {{{0, 3, Mode::X}, true, "r3"}};
  notice.behind = {7, 18'446'744'073'709'551'615u};
  return statements.publish(std::span(&notice, 1));
}

TEST(NoticeSql, what_a_wait_is_behind_is_published_with_it) {                                     // B11
  EXPECT_NE(published("").find("X'626568696e642037203138"), std::string::npos) << published("");  // behind 7 18…
}

TEST(NoticeSql, what_is_no_utf8_is_published_as_far_as_it_is) {
  EXPECT_NE(published("caf\xe9!").find("X'6361663f21'"), std::string::npos) << published("caf\xe9!");
  EXPECT_NE(published(std::string(254, 'x') + "\xc3\xa9").find("7878' USING"), std::string::npos)
      << "not cut in a character";
}

TEST(NoticeSql, a_row_that_is_written_again_has_another_stamp) { EXPECT_NE(published("n"), published("n")); }

TEST(NoticeSql, columns_are_read_in_the_order_that_the_remote_room_expects) {
  std::size_t at = 0;
  for (const char* column : remote::notice_columns) {
    const std::size_t found = statements.read_all().find(column, at);
    ASSERT_NE(found, std::string::npos) << column;
    at = found + std::string_view(column).size();
  }
  EXPECT_LE(at, statements.read_all().find(" FROM "));
}

TEST(NoticeSql, notices_are_read_by_their_lockers_and_ids) {  // B12
  const std::vector<std::uint64_t> lockers{7, 8}, ids{9}, none;
  EXPECT_TRUE(statements.read_some(lockers, none).ends_with(" AND (locker IN (7, 8))"))
      << statements.read_some(lockers, none);
  EXPECT_TRUE(statements.read_some(none, ids).ends_with(" AND (id IN (9))"));
  EXPECT_TRUE(statements.read_some(lockers, ids).ends_with(" AND (locker IN (7, 8) OR id IN (9))"));
}

}  // namespace
}  // namespace hierlock::mysql
