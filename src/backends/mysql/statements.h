// Statements: the SQL of the striped hierarchy, for both dialects. Text only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "plan/buckets.h"

namespace hierlock::mysql {

enum class Dialect : std::uint8_t { mysql, mariadb };

// The locking statement of so many rows (H4): one SELECT a row in their order, each by its primary key, so that it
// takes record locks and no gaps. Of each it answers its place (0, 1, …), so that a row that is missing is known by its
// place's absence (H6); the last also UUID_SHORT(), read when all rows are locked, and CONNECTION_ID(). The buckets are
// parameters: all plans of one shape share one prepared statement.
std::string lock_rows(Dialect dialect, std::string_view table, std::span<const plan::Row> rows, bool no_wait);

// How a session must be set for it: see docs/mysql.md for why each.
std::string prepare_session(Dialect dialect);
// A waiter whose machine vanishes is in the queue until its wait times out, or else holds for wait_timeout what it is
// given at the last moment: together at most 15 s (B5). As sessions are prepared that is 2 + 12, of which the second is
// good for holders. Who has waited that long turns to 10 + 4, to keep its place for longer, and back as soon as it
// holds.
inline constexpr std::string_view wait_patiently = "SET SESSION wait_timeout=4, innodb_lock_wait_timeout=10";
inline constexpr std::string_view waited = "SET SESSION wait_timeout=12, innodb_lock_wait_timeout=2";

// Makes a row that is missing, without waiting for anybody who holds another; harmless if it is there.
std::string make_row(std::string_view table, unsigned level, std::uint32_t bucket);

std::string make_bucket_table(std::string_view table);
std::string make_settings_table(std::string_view settings_table);

}  // namespace hierlock::mysql
