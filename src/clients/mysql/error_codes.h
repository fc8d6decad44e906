// Error codes: the numbers of MySQL, MariaDB and their client library that hierlock knows. Only src/rows/, which is
// built without a client, and tests repeat a few of them.
//
// Where libmariadb's headers have a name for a number, error_codes_test.cc compares the two. The others are in the
// servers' documentation: https://dev.mysql.com/doc/mysql-errors/en/ and
// https://mariadb.com/kb/en/mariadb-error-codes/.
#pragma once

namespace hierlock::mysql::codes {

// Locks.
inline constexpr unsigned lock_wait_timeout = 1205;    // innodb_lock_wait_timeout has passed; MariaDB: NOWAIT, too
inline constexpr unsigned deadlock = 1213;             // the server has rolled back the whole transaction
inline constexpr unsigned user_level_deadlock = 3058;  // GET_LOCK
inline constexpr unsigned lock_no_wait = 3572;         // MySQL: NOWAIT
inline constexpr unsigned record_changed = 1020;       // MariaDB: the row has changed since the transaction's snapshot

// Statements.
inline constexpr unsigned duplicate_key = 1062, duplicate_column = 1060;
inline constexpr unsigned no_database_chosen = 1046, no_such_database = 1049, no_such_table = 1146,
                          no_such_column = 1054, unknown_storage_engine = 1286;
inline constexpr unsigned query_interrupted = 1317;  // KILL QUERY
inline constexpr unsigned out_of_time_mysql = 3024,
                          out_of_time_mariadb = 1969;  // max_execution_time, max_statement_time
inline constexpr unsigned too_many_statements = 1461;  // max_prepared_stmt_count is reached
inline constexpr unsigned statement_log = 1665;        // binlog_format=STATEMENT does not go with READ COMMITTED
inline constexpr unsigned option_prevents = 1290;      // an option of the server; only the message says which
inline constexpr unsigned read_only_mode = 1836, read_only_transaction = 1792;

// Rights and logins.
inline constexpr unsigned access_denied = 1045, database_denied = 1044, table_denied = 1142, column_denied = 1143,
                          privilege_denied = 1227, host_denied = 1130;
inline constexpr unsigned no_password = 1698;  // the account does not log in by password
inline constexpr unsigned old_login = 1251;    // the server asks for a login that the client does not know
inline constexpr unsigned require_tls = 3159, account_locked = 3118, account_locked_mariadb = 4151;
inline constexpr unsigned password_to_change = 1820, password_expired = 1862;

// Sessions.
inline constexpr unsigned no_such_session = 1094;  // KILL of a session that has ended
inline constexpr unsigned too_many_connections = 1040, too_many_of_user = 1203, user_limit = 1226;
inline constexpr unsigned server_shutdown = 1053, connection_killed = 1927, client_idle = 4031;

// The client library's own.
inline constexpr unsigned no_socket = 2001, no_ip_socket = 2004;  // this process has no more file descriptors
inline constexpr unsigned no_server_at_socket = 2002, no_server_at_host = 2003;
inline constexpr unsigned server_gone = 2006, server_lost = 2013, server_lost_extended = 2055;
inline constexpr unsigned out_of_sync = 2014, malformed_packet = 2027;
inline constexpr unsigned tls_failed = 2026, plugin_missing = 2059, plugin_failed = 2061;
inline constexpr unsigned plugin_not_allowed = 5010;  // the login is not one of those that hierlock allows

}  // namespace hierlock::mysql::codes
