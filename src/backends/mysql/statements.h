// Statements: the SQL of the striped hierarchy, for both dialects. Text only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/buckets.h"

namespace hierlock::mysql {

enum class Dialect : std::uint8_t { mysql, mariadb };

// The table of rows (H3), and the numbers that it was made for. With other numbers, a path becomes other rows. The
// numbers are compared when a store is opened, but the tables may be dropped and made anew later. So the numbers are
// also the name of a virtual column, which takes no room, and every locking statement mentions it. A statement for
// other numbers is an error of the server. (Reading the settings in the statement takes a sixth longer:
// docs/architecture.md.)
struct BucketTable {
  std::string name;
  std::uint32_t buckets = 0;
  unsigned levels = 0;

  std::string quoted() const { return "`" + name + "`"; }
  std::string mark() const {
    return std::string(mark_prefix) + std::to_string(buckets) + "_buckets_" + std::to_string(levels) + "_levels";
  }
  static constexpr std::string_view mark_prefix = "made_for_";
};

// The name as a value, as the server stores it.
inline std::string stored_name(const std::string& table) {
  return "IF(@@lower_case_table_names=0, '" + table + "', LOWER('" + table + "'))";
}

// The statement that locks these rows (H4). Each row is read by its whole primary key, so it takes record locks and no
// gaps, in their order. The buckets are parameters: all plans of one shape share one prepared statement.
//
// `together`: a join. It returns UUID_SHORT(), read when all rows are locked, and CONNECTION_ID(). It returns no row if
// one is missing. `one_by_one`: one SELECT for each row. The last SELECT returns the same as the join, and each other
// one returns two zeros, so that a missing row is noticed (H6). This form takes the server a fifth longer
// (docs/bench.md). Both forms pass a missing row and lock those after it.
enum class Form : std::uint8_t { together, one_by_one };
std::string lock_rows(Dialect dialect, const BucketTable& table, std::span<const plan::Row> rows, bool no_wait,
                      Form form);
// The form to try first. A join has a limit of rows; one path of any depth is within it.
inline constexpr std::size_t most_joined = max_depth;
inline Form usual_form(std::span<const plan::Row> rows) {
  return rows.size() <= most_joined ? Form::together : Form::one_by_one;
}
// A name for the statement, with one byte for each row. It is shorter than the statement and faster to make. Statements
// on one table with the same name are the same.
std::string lock_rows_name(std::span<const plan::Row> rows, bool no_wait, Form form);

// Which of the rows are there: their levels and buckets. Locks nothing.
std::string find_rows(const BucketTable& table, std::span<const plan::Row> rows);

// The settings that a session needs, whatever the server's own defaults are. docs/mysql.md says why each is needed.
struct SessionSetting {
  const char* name;
  const char* value;  // as SQL
  const char* shown;  // what SHOW SESSION VARIABLES then says, or a part of it
};
std::vector<SessionSetting> session_settings(Dialect dialect);
// Sets all of them in one statement, which is the first of each session.
std::string prepare_session(Dialect dialect);
// A server that logs statements refuses writes and locks at READ COMMITTED (1665).
inline constexpr std::string_view log_rows = "SET SESSION binlog_format='ROW'";

// If a waiter's machine vanishes, the waiter stays in the queue until its wait times out. If it gets a row at the last
// moment, it holds the row for wait_timeout: 2 + 12 s, together at most 15 s (B5).
inline constexpr std::string_view wait_usually = "SET SESSION innodb_lock_wait_timeout=2";
inline constexpr std::string_view wait_shortly = "SET SESSION innodb_lock_wait_timeout=1";

// A waiter for a name whose machine vanishes: its wait ends after 10 s, and its session 4 s later (B5).
inline constexpr std::string_view usher_timeout = "SET SESSION wait_timeout=4, interactive_timeout=4";

// Makes a missing row, without waiting for the holder of another row. Does nothing if the row exists.
std::string make_row(const BucketTable& table, unsigned level, std::uint32_t bucket);

// A statement that fails if the table was made for other numbers, or does not say for which.
std::string look_at_mark(const BucketTable& table);

}  // namespace hierlock::mysql
