// The numbers against the names that libmariadb's headers have. The compiler compares them.
#include "mysql_client/error_codes.h"

#include <errmsg.h>
#include <gtest/gtest.h>
#include <mysqld_error.h>

#include "mysql_client/errors.h"

namespace hierlock::mysql {
namespace codes {

static_assert(lock_wait_timeout == ER_LOCK_WAIT_TIMEOUT && deadlock == ER_LOCK_DEADLOCK &&
              user_level_deadlock == ER_USER_LOCK_DEADLOCK && record_changed == ER_CHECKREAD);
static_assert(duplicate_key == ER_DUP_ENTRY && duplicate_column == ER_DUP_FIELDNAME);
static_assert(no_database_chosen == ER_NO_DB_ERROR && no_such_database == ER_BAD_DB_ERROR &&
              no_such_table == ER_NO_SUCH_TABLE && no_such_column == ER_BAD_FIELD_ERROR &&
              unknown_storage_engine == ER_UNKNOWN_STORAGE_ENGINE);
static_assert(query_interrupted == ER_QUERY_INTERRUPTED && out_of_time_mariadb == ER_STATEMENT_TIMEOUT &&
              too_many_statements == ER_MAX_PREPARED_STMT_COUNT_REACHED &&
              statement_log == ER_BINLOG_STMT_MODE_AND_ROW_ENGINE && option_prevents == ER_OPTION_PREVENTS_STATEMENT &&
              read_only_mode == ER_READ_ONLY_MODE && read_only_transaction == ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION);
static_assert(access_denied == ER_ACCESS_DENIED_ERROR && database_denied == ER_DBACCESS_DENIED_ERROR &&
              table_denied == ER_TABLEACCESS_DENIED_ERROR && column_denied == ER_COLUMNACCESS_DENIED_ERROR &&
              privilege_denied == ER_SPECIFIC_ACCESS_DENIED_ERROR && host_denied == ER_HOST_NOT_PRIVILEGED);
static_assert(no_password == ER_ACCESS_DENIED_NO_PASSWORD_ERROR && old_login == ER_NOT_SUPPORTED_AUTH_MODE &&
              password_to_change == ER_MUST_CHANGE_PASSWORD && password_expired == ER_MUST_CHANGE_PASSWORD_LOGIN);
static_assert(no_such_session == ER_NO_SUCH_THREAD && too_many_connections == ER_CON_COUNT_ERROR &&
              too_many_of_user == ER_TOO_MANY_USER_CONNECTIONS && user_limit == ER_USER_LIMIT_REACHED &&
              server_shutdown == ER_SERVER_SHUTDOWN && connection_killed == ER_CONNECTION_KILLED);
static_assert(no_socket == CR_SOCKET_CREATE_ERROR && no_ip_socket == CR_IPSOCK_ERROR &&
              no_server_at_socket == CR_CONNECTION_ERROR && no_server_at_host == CR_CONN_HOST_ERROR &&
              server_gone == CR_SERVER_GONE_ERROR && server_lost == CR_SERVER_LOST &&
              server_lost_extended == CR_SERVER_LOST_EXTENDED && out_of_sync == CR_COMMANDS_OUT_OF_SYNC &&
              malformed_packet == CR_MALFORMED_PACKET && tls_failed == CR_SSL_CONNECTION_ERROR &&
              plugin_missing == CR_AUTH_PLUGIN_CANNOT_LOAD && plugin_failed == CR_AUTH_PLUGIN_ERR &&
              plugin_not_allowed == CR_PLUGIN_NOT_ALLOWED);

}  // namespace codes

namespace {

TEST(Errors, tell_the_kind_the_number_and_what_to_do) {
  const Error error = error_of(codes::no_such_table, "Table 'shop.t' doesn't exist", "lock");
  EXPECT_EQ(error.kind(), ErrorKind::not_provisioned);
  EXPECT_EQ(error.native_code(), 1146);
  EXPECT_EQ(std::string(error.what()),
            "cannot lock: Table 'shop.t' doesn't exist (1146). `hierlock provision` makes it, or open with "
            "?provision=lazy");
  EXPECT_EQ(error_of(4242, "odd", "lock").kind(), ErrorKind::unavailable);
}

// MySQL has a number of its own for names, MariaDB has one number for rows and names.
TEST(Errors, that_are_deadlocks_of_rows_or_of_names_are_told_alike) {  // H9, N1
  for (const unsigned code : {codes::deadlock, codes::user_level_deadlock}) {
    const Error error = error_of(code, "Deadlock found when trying to get user-level lock", "lock");
    EXPECT_EQ(error.kind(), ErrorKind::deadlock) << code;
    EXPECT_TRUE(error.retryable()) << code;
    EXPECT_EQ(error.native_code(), code);
  }
}

TEST(Errors, of_an_option_are_told_apart_by_their_message) {
  const auto kind = [](const char* message) { return error_of(codes::option_prevents, message, "lock").kind(); };
  EXPECT_EQ(kind("running with the --read-only option"), ErrorKind::unsafe_topology);
  EXPECT_EQ(kind("running with the --super_read_only option"), ErrorKind::unsafe_topology);
  EXPECT_EQ(kind("running with the --max-session-mem-used option"), ErrorKind::exhausted);
  EXPECT_EQ(kind("running with the --skip-grant-tables option"), ErrorKind::denied);
}

TEST(Errors, that_end_the_connection_are_known) {
  EXPECT_TRUE(is_disconnect(codes::server_lost) && is_disconnect(codes::client_idle));
  EXPECT_FALSE(is_disconnect(codes::deadlock) || is_disconnect(codes::user_level_deadlock) || is_disconnect(0));
}

}  // namespace
}  // namespace hierlock::mysql
