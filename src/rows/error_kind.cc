#include "rows/error_kind.h"

#include "rows/error_codes.h"

namespace hierlock::rows {
namespace {

ErrorKind innodb(std::int64_t code) noexcept {
  switch (code) {
    case codes::innodb_deadlock:
      return ErrorKind::deadlock;
    case codes::lock_wait_timeout:
    case codes::out_of_time_mysql:
    case codes::out_of_time_mariadb:
      return ErrorKind::timeout;
    case codes::lock_no_wait:
      return ErrorKind::busy;
    case codes::record_changed:
    case 3101:  // a group of servers found a conflict at COMMIT
      return ErrorKind::serialization;
    case codes::query_interrupted:
      return ErrorKind::cancelled;
    case 1044:  // access denied: to the database,
    case 1045:  // of the user,
    case 1142:  // to the table,
    case 1143:  // to the column,
    case 1227:  // for want of a privilege,
    case 1698:  // or of a password;
    case 1290:  // an option of the server prevents it,
    case 1792:  // the transaction is read-only,
    case 1836:  // the server is read-only
      return ErrorKind::denied;
    case 1046:  // no database chosen,
    case 1049:  // no such database,
    case 1054:  // column,
    case 1146:  // table
      return ErrorKind::not_provisioned;
    case 1040:  // too many connections,
    case 1114:  // the table is full,
    case 1203:  // too many connections of the user,
    case 1206:  // the lock table is full,
    case 1226:  // a limit of the user,
    case 1637:  // too many transactions
      return ErrorKind::exhausted;
    case 1053:  // the server shuts down,
    case 1158:  // the network failed,
    case 1159:
    case 1160:
    case 1161:
    case 1927:  // the connection was killed,
    case 3169:
    case 4031:  // or idle for too long;
    case 2002:  // the client library: no server there,
    case 2003:
    case 2006:  // it is gone,
    case 2013:  // the connection is lost,
    case 2014:  // out of step,
    case 2027:  // or sends nonsense
    case 2055:
      return ErrorKind::unavailable;
    default:
      return ErrorKind::invalid_argument;
  }
}

ErrorKind postgres(std::string_view state) noexcept {
  if (state == codes::deadlock_detected) return ErrorKind::deadlock;
  if (state == codes::serialization_failure) return ErrorKind::serialization;
  if (state == codes::lock_not_available) return ErrorKind::timeout;
  if (state == codes::query_canceled) return ErrorKind::cancelled;
  // No right; read-only; 28: no login.
  if (state == "42501" || state == "25006" || state.starts_with("28")) return ErrorKind::denied;
  if (state == "42P01" || state == "42703" || state == "3F000" || state == "3D000") return ErrorKind::not_provisioned;
  if (state.starts_with("53")) return ErrorKind::exhausted;
  // 08: connection; 57P: shut down by the operator; 25P03, 25P04: the session was ended because its transaction idled
  // or took too long. No state at all: the client lost the connection.
  if (state.starts_with("08") || state.starts_with("57P") || state == "25P03" || state == "25P04" || state.empty() ||
      state.front() == ' ') {
    return ErrorKind::unavailable;
  }
  return ErrorKind::invalid_argument;
}

ErrorKind sqlite(const Reply& reply) noexcept {
  if (reply.code == codes::sqlite_busy_snapshot) return ErrorKind::serialization;
  switch (reply.code & 0xff) {
    case codes::sqlite_busy:
    case codes::sqlite_locked:
      return ErrorKind::timeout;
    case 3:   // SQLITE_PERM
    case 8:   // SQLITE_READONLY
    case 23:  // SQLITE_AUTH
      return ErrorKind::denied;
    case 7:   // SQLITE_NOMEM
    case 13:  // SQLITE_FULL
      return ErrorKind::exhausted;
    case 9:  // SQLITE_INTERRUPT
      return ErrorKind::cancelled;
    case 10:  // SQLITE_IOERR
    case 11:  // SQLITE_CORRUPT
    case 14:  // SQLITE_CANTOPEN
    case 26:  // SQLITE_NOTADB
      return ErrorKind::unavailable;
    case codes::sqlite_error:  // everything else; only the message tells
      return reply.message.find("no such table") != std::string::npos ||
                     reply.message.find("no such column") != std::string::npos
                 ? ErrorKind::not_provisioned
                 : ErrorKind::invalid_argument;
    default:
      return ErrorKind::invalid_argument;
  }
}

}  // namespace

ErrorKind kind_of(Engine engine, const Reply& reply) noexcept {
  switch (engine) {
    case Engine::mysql:
    case Engine::mariadb:
      return innodb(reply.code);
    case Engine::postgres:
      return postgres(reply.state);
    case Engine::sqlite:
      return sqlite(reply);
  }
  return ErrorKind::invalid_argument;
}

bool is_sqlite_busy(const Reply& reply) noexcept {
  return (reply.code & 0xff) == codes::sqlite_busy && reply.code != codes::sqlite_busy_snapshot;
}

}  // namespace hierlock::rows
