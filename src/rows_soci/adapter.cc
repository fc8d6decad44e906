#include <soci/soci-platform.h>
// Only templates for Boost's own types depend on it. Debian's libsoci-dev defines it, but does not bring Boost.
#undef SOCI_HAVE_BOOST

#include <soci/mysql/soci-mysql.h>
#include <soci/postgresql/soci-postgresql.h>
#include <soci/soci.h>
#include <soci/sqlite3/soci-sqlite3.h>

#include <hierlock/rows_soci.h>

namespace hierlock::rows {
namespace {

Engine engine_of(soci::session& session) {
  std::string name;
  try {
    name = session.get_backend_name();
    if (name == "sqlite3") return Engine::sqlite;
    if (name == "postgresql") return Engine::postgres;
    if (name == "mysql") {
      std::string version;
      session << "SELECT VERSION()", soci::into(version);
      return version.find("MariaDB") != version.npos ? Engine::mariadb : Engine::mysql;
    }
  } catch (const soci::soci_error& error) {
    throw Error(ErrorKind::unavailable, "the SOCI session cannot be used: " + error.get_error_message());
  }
  throw Error(ErrorKind::unsupported, "rows work on SOCI's backends mysql, postgresql and sqlite3, not on " + name);
}

// What SOCI keeps pointers to until the statement ends.
struct Bound {
  soci::indicator indicator = soci::i_ok;
  long long integer = 0;
  double number = 0;
  std::string text;
};

void bind(soci::statement& statement, const Value& value, Bound& bound) {
  if (const auto* integer = std::get_if<std::int64_t>(&value.held())) {
    bound.integer = *integer;
    statement.exchange(soci::use(bound.integer));
  } else if (const auto* number = std::get_if<double>(&value.held())) {
    bound.number = *number;
    statement.exchange(soci::use(bound.number));
  } else {
    if (const auto* text = std::get_if<std::string>(&value.held())) {
      // SOCI hands texts to MySQL and PostgreSQL as C strings. On MySQL with NO_BACKSLASH_ESCAPES the closing quote
      // would be cut off as well.
      if (text->find('\0') != text->npos) {
        throw Error(ErrorKind::unsupported, "a text with a NUL byte cannot be bound through SOCI");
      }
      bound.text = *text;
    } else {
      bound.indicator = soci::i_null;
    }
    statement.exchange(soci::use(bound.text, bound.indicator));
  }
}

Reply run_statement(soci::session& session, Engine engine, const std::string& sql, std::span<const Value> values,
                    std::size_t columns) {
  std::vector<Bound> bound(values.size()), read(columns);  // neither grows: SOCI points into them
  soci::statement statement(session);
  for (std::size_t i = 0; i < columns; ++i) statement.exchange(soci::into(read[i].text, read[i].indicator));
  for (std::size_t i = 0; i < values.size(); ++i) bind(statement, values[i], bound[i]);
  statement.alloc();
  statement.prepare(sql, soci::details::st_one_time_query);
  statement.define_and_bind();
  Reply reply;
  for (bool more = statement.execute(true); more && columns > 0; more = statement.fetch()) {
    std::vector<Value>& row = reply.rows.emplace_back();
    row.reserve(columns);
    for (Bound& column : read) {
      row.push_back(column.indicator == soci::i_null ? Value() : Value(std::move(column.text)));
      column.text.clear();
    }
  }
  if (columns == 0) reply.affected = statement.get_affected_rows();
  if (engine == Engine::postgres && sql == "COMMIT") {
    const auto* const backend = static_cast<soci::postgresql_statement_backend*>(statement.get_backend());
    if (PQcmdStatus(backend->result_.get_result()) == std::string_view("ROLLBACK")) {
      reply.state = "25P02";
      reply.message = "an earlier statement had failed, so PostgreSQL has rolled back the transaction";
    }
  }
  return reply;
}

Reply failure(std::int64_t code, std::string state, const soci::soci_error& error) {
  Reply reply;
  reply.code = code;
  reply.state = std::move(state);
  reply.message = error.get_error_message();
  if (reply.message.empty()) reply.message = "SOCI gives no reason";
  return reply;
}

}  // namespace

SociAdapter::SociAdapter(soci::session& session) : session_(session), engine_(engine_of(session)) {}

Reply SociAdapter::run(const std::string& sql, std::span<const Value> values, std::size_t columns) {
  try {
    return run_statement(session_, engine_, sql, values, columns);
  } catch (const soci::mysql_soci_error& error) {
    return failure(error.err_num_, "", error);
  } catch (const soci::postgresql_soci_error& error) {
    return failure(0, error.sqlstate(), error);
  } catch (const soci::sqlite3_soci_error& error) {
    auto* const backend = static_cast<soci::sqlite3_session_backend*>(session_.get_backend());
    const int extended = sqlite_api::sqlite3_extended_errcode(backend->conn_);
    // The extended code belongs to the last call of the connection: it counts only if it refines this one.
    return failure((extended & 0xff) == (error.result() & 0xff) ? extended : error.result(), "", error);
  } catch (const soci::soci_error& error) {
    return failure(-1, "XX000", error);
  }
}

}  // namespace hierlock::rows
