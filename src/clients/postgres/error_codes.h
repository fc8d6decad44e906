// Error codes: the SQLSTATEs of PostgreSQL that hierlock knows. Only src/rows/, which is built without a client, and
// tests repeat a few of them.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
#pragma once

#include <string_view>

namespace hierlock::postgres::codes {

// Locks.
inline constexpr std::string_view deadlock = "40P01", serialization_failure = "40001";
inline constexpr std::string_view lock_not_available = "55P03";  // NOWAIT, or lock_timeout has passed
inline constexpr std::string_view query_canceled = "57014";      // statement_timeout has passed, or pg_cancel_backend()

// Rights, databases, sessions.
inline constexpr std::string_view insufficient_privilege = "42501", no_such_database = "3D000";
inline constexpr std::string_view too_many_connections = "53300", out_of_memory = "53200";  // also of the lock table
inline constexpr std::string_view connection_failure = "08006";                             // set by the client

}  // namespace hierlock::postgres::codes
