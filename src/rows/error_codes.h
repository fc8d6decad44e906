// Error codes: the numbers of the engines that the rows module knows. It is built without any client library, so they
// stand here once more.
//   https://dev.mysql.com/doc/mysql-errors/en/              https://mariadb.com/kb/en/mariadb-error-codes/
//   https://www.postgresql.org/docs/current/errcodes-appendix.html       https://www.sqlite.org/rescode.html
#pragma once

#include <cstdint>
#include <string_view>

namespace hierlock::rows::codes {

// MySQL and MariaDB.
inline constexpr std::int64_t lock_wait_timeout = 1205;  // MariaDB: NOWAIT, too
inline constexpr std::int64_t innodb_deadlock = 1213;    // the server has rolled back the whole transaction
inline constexpr std::int64_t lock_no_wait = 3572;       // MySQL
inline constexpr std::int64_t record_changed = 1020;     // MariaDB: since the transaction's snapshot
inline constexpr std::int64_t out_of_time_mysql = 3024, out_of_time_mariadb = 1969;
inline constexpr std::int64_t query_interrupted = 1317;

// PostgreSQL.
inline constexpr std::string_view deadlock_detected = "40P01", serialization_failure = "40001",
                                  lock_not_available = "55P03", query_canceled = "57014",
                                  in_failed_transaction = "25P02";

// SQLite. The low byte of an extended code is the primary one.
inline constexpr std::int64_t sqlite_error = 1, sqlite_busy = 5, sqlite_locked = 6, sqlite_busy_snapshot = 517;

}  // namespace hierlock::rows::codes
