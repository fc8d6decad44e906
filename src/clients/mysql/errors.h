// Errors: what the numbers of error_codes.h mean to the caller of hierlock.
#pragma once

#include <string>
#include <string_view>

#include <hierlock/error.h>

namespace hierlock::mysql {

// The Error for a number of the server or of its client library. The message is "cannot `doing`: `message`", with
// advice.
Error error_of(unsigned code, const std::string& message, const std::string& doing);

// The connection has ended and can only be closed.
bool is_disconnect(unsigned code) noexcept;
// The account lacks a right that GRANT gives.
bool lacks_right(unsigned code) noexcept;

// Advice for a server that does not answer.
inline constexpr const char* check_place = ". Does the server run, and are the host and the port of the URL right?";
// Advice for a server that logs statements (codes::statement_log).
inline constexpr std::string_view log_rows_fix =
    "SET GLOBAL binlog_format='ROW' or 'MIXED', or let this account set it for its sessions (GRANT "
    "SESSION_VARIABLES_ADMIN, on MariaDB BINLOG ADMIN)";

}  // namespace hierlock::mysql
