#include "mysql_client/errors.h"

#include "mysql_client/error_codes.h"

namespace hierlock::mysql {

bool is_disconnect(unsigned code) noexcept {
  switch (code) {
    case codes::server_gone:
    case codes::server_lost:
    case codes::server_lost_extended:
    case codes::out_of_sync:
    case codes::malformed_packet:
    case codes::server_shutdown:
    case codes::connection_killed:
    case codes::client_idle:
      return true;
    default:
      return false;
  }
}

bool lacks_right(unsigned code) noexcept {
  return code == codes::database_denied || code == codes::table_denied || code == codes::column_denied ||
         code == codes::privilege_denied;
}

Error error_of(unsigned code, const std::string& message, const std::string& doing) {
  constexpr char only_innodb[] = ". Only InnoDB has row locks: let tables be made in it";
  const auto error = [&](ErrorKind kind, const std::string& advice) {
    return Error(kind, "cannot " + doing + ": " + message + " (" + std::to_string(code) + ")" + advice, code);
  };
  switch (code) {
    case codes::deadlock:
    case codes::user_level_deadlock:
      return error(ErrorKind::deadlock, ". Release what you hold and start over");
    case codes::lock_wait_timeout:
      return error(ErrorKind::timeout, ". Try again, or wait longer");
    case codes::lock_no_wait:
      return error(ErrorKind::busy, "");
    case codes::access_denied:
    case codes::no_password:
      return error(
          ErrorKind::denied,
          ". Check the user and the password (in a URL with %HH for special characters, or by password_file= or "
          "password_env=), and tls= if the account demands it");
    case codes::host_denied:
      return error(ErrorKind::denied, ". The server has no account for anybody on this machine");
    case codes::account_locked:
    case codes::account_locked_mariadb:
      return error(ErrorKind::denied, ". Have it unlocked: ALTER USER … ACCOUNT UNLOCK");
    case codes::require_tls:
      return error(ErrorKind::denied, ". Write tls=verify or tls=on");
    case codes::password_to_change:
    case codes::password_expired:
      return error(ErrorKind::denied, ". Set a new password: ALTER USER … IDENTIFIED BY …");
    case codes::database_denied:
    case codes::table_denied:
    case codes::column_denied:
    case codes::privilege_denied:
      return error(ErrorKind::denied, ". docs/mysql.md lists the rights that are needed");
    case codes::tls_failed:
      return error(ErrorKind::denied, ". See tls= and ca= in docs/mysql.md");
    case codes::old_login:
    case codes::plugin_missing:
    case codes::plugin_failed:
      return error(ErrorKind::denied, ". The client library lacks the plugin for the way this account logs in");
    case codes::no_such_database:
      return error(ErrorKind::not_provisioned, ". Create the database, or correct the URL");
    case codes::no_such_table:
      return error(ErrorKind::not_provisioned, ". `hierlock provision` makes it, or open with ?provision=lazy");
    case codes::no_such_column:
      return error(ErrorKind::incompatible,
                   ". The tables were made for other numbers of buckets or levels since this store was opened, or by "
                   "another version of hierlock: open it anew");
    case codes::too_many_connections:
    case codes::too_many_of_user:
    case codes::user_limit:
      return error(ErrorKind::exhausted, ". Raise max_connections, or lower connections= in the URLs");
    case codes::option_prevents:  // which, only the message says
      if (message.find("session-mem-used") != message.npos) {
        return error(ErrorKind::exhausted, ". Raise max_session_mem_used");
      }
      if (message.find("NO_ENGINE_SUBSTITUTION") != message.npos) return error(ErrorKind::unsafe_topology, only_innodb);
      if (message.find("read-only") == message.npos && message.find("read_only") == message.npos) {
        return error(ErrorKind::denied, ". Start the server without that option");
      }
      [[fallthrough]];
    case codes::read_only_mode:
      return error(ErrorKind::unsafe_topology, ". Locks must be taken on the primary: connect to that");
    case codes::no_socket:
    case codes::no_ip_socket:
      return error(ErrorKind::exhausted, ". This process has no more file descriptors: raise its limit (ulimit -n)");
    case codes::no_server_at_socket:
    case codes::no_server_at_host:
      return error(ErrorKind::unavailable, check_place);
    case codes::unknown_storage_engine:
      return error(ErrorKind::unsafe_topology, only_innodb);
    case codes::statement_log:
      return error(ErrorKind::denied, ". " + std::string(log_rows_fix));
    case codes::query_interrupted:
      return error(ErrorKind::unavailable, ". Somebody ended the statement with KILL: try again");
    default:
      return error(ErrorKind::unavailable, "");
  }
}

}  // namespace hierlock::mysql
