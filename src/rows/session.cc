// What is read and written without asking for locks first; transactions; what a failure means.

#include <hierlock/rows.h>

#include "rows/asked.h"
#include "rows/error_codes.h"
#include "rows/error_kind.h"
#include "rows/statement.h"

namespace hierlock::rows {
namespace {

using Clock = std::chrono::steady_clock;

std::string_view advice(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::timeout:
    case ErrorKind::busy:
    case ErrorKind::deadlock:
    case ErrorKind::serialization:
      return ". Roll back and run the transaction again";
    case ErrorKind::not_provisioned:
      return ". Create it, or correct the name";
    default:
      return "";
  }
}

const std::string& needed(const Table& table, const std::string& column, const char* what) {
  if (column.empty()) {
    throw Error(ErrorKind::invalid_argument, "the table " + table.name() + " has no " + what +
                                                 " column: name it in TableColumns, or use guarded_update()");
  }
  return column;
}

Error only_rollback() {
  return Error(ErrorKind::invalid_argument,
               "a statement of this transaction has failed, and a part of it may be undone: roll it back");
}

}  // namespace

Session::Statement Session::statement() const { return Statement(adapter_.engine(), adapter_.placeholder()); }

Reply Session::run(const Statement& statement) {
  // MySQL and SQLite have rolled back by themselves after some errors: what comes next would be committed at once.
  if (begun_ && failed_) throw only_rollback();
  return adapter_.run(statement.sql(), statement.values(), statement.columns());
}

Reply Session::run(const Statement& statement, const Asked& asked) {
  const Clock::time_point began = Clock::now();
  Reply reply = run(statement);
  if (reply.failed()) fail(reply, asked, Clock::now() - began);
  return reply;
}

Reply Session::run(const std::string& sql, const Asked& asked, std::size_t columns) {
  return run(statement().text(sql).columns(columns), asked);
}

void Session::fail(const Reply& reply, const Asked& asked, std::chrono::nanoseconds took) {
  const Engine engine = adapter_.engine();
  ErrorKind kind = kind_of(engine, reply);
  if (engine == Engine::sqlite && is_sqlite_busy(reply)) {
    kind = kind_of_busy(asked, took);
  } else if (kind == ErrorKind::timeout && asked.wait && asked.wait->kind() == Wait::Kind::no_wait) {
    kind = ErrorKind::busy;  // MariaDB and PostgreSQL have one code for both
  } else if (kind == ErrorKind::cancelled && asked.wait && asked.wait->kind() == Wait::Kind::at_most &&
             took >= asked.wait->time()) {
    kind = ErrorKind::timeout;  // by the statement_timeout of lock_postgres()
  }
  const std::int64_t code = engine == Engine::postgres ? sqlstate_number(reply.state) : reply.code;
  std::string text = std::string("cannot ") + asked.doing + (asked.what.empty() ? "" : " ");
  text.append(asked.what).append(": ");
  text += reply.message + " (" + (engine == Engine::postgres ? reply.state : std::to_string(code)) + ")";
  failed_ = true;
  immediate_ = false;  // some errors end a transaction of SQLite
  throw Error(kind, text.append(advice(kind)), code);
}

// SQLite says BUSY in three cases. With a time to wait, its handler waits that long; if it would never end because the
// other one waits for us, the handler is not even called.
ErrorKind Session::kind_of_busy(const Asked& asked, std::chrono::nanoseconds took) {
  std::chrono::milliseconds limit{0};
  if (!asked.wait) {
    const Reply now = run(statement().text("PRAGMA busy_timeout").columns(1));
    if (!now.rows.empty()) limit = std::chrono::milliseconds(now.rows[0][0].get<std::int64_t>());
  } else if (asked.wait->kind() == Wait::Kind::at_most) {
    limit = asked.wait->time();
  } else if (asked.wait->kind() == Wait::Kind::for_ever) {
    return ErrorKind::deadlock;
  }
  if (limit == std::chrono::milliseconds::zero()) return ErrorKind::busy;
  return took >= limit ? ErrorKind::timeout : ErrorKind::deadlock;
}

void Session::begin(Begin how) {
  if (begun_) {
    throw Error(ErrorKind::invalid_argument,
                "a transaction of this session is open already: commit it, or roll it back, before the next one");
  }
  const Asked asked{"begin", "", options_.wait};
  failed_ = false;
  if (adapter_.engine() == Engine::sqlite && how == Begin::write) {
    lock_sqlite(statement().text("BEGIN IMMEDIATE"), asked);
    immediate_ = true;
  } else {
    run(adapter_.engine() == Engine::mysql || adapter_.engine() == Engine::mariadb ? "START TRANSACTION" : "BEGIN",
        asked);
  }
  begun_ = true;
}

void Session::commit() {
  if (failed_) throw only_rollback();
  immediate_ = false;
  const Statement commit = statement().text("COMMIT");
  const auto unknown = [this](const std::string& why, std::int64_t code) {
    begun_ = false;
    return Error(ErrorKind::lost, "COMMIT was not answered: " + why + ". Look whether it took effect", code);
  };
  if (adapter_.engine() == Engine::sqlite) {
    try {
      lock_sqlite(commit, {"commit", "", options_.wait});  // readers may hold it up
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unavailable) throw;
      throw unknown(error.what(), error.native_code());
    }
  } else {
    const Clock::time_point began = Clock::now();
    const Reply reply = run(commit);
    if (reply.failed()) {
      if (kind_of(adapter_.engine(), reply) == ErrorKind::unavailable) throw unknown(reply.message, reply.code);
      fail(reply, {"commit", "", std::nullopt}, Clock::now() - began);
    }
  }
  begun_ = false;
}

void Session::rollback() {
  immediate_ = begun_ = failed_ = false;
  const Engine engine = adapter_.engine();
  Reply reply = run(statement().text("ROLLBACK"));
  // Somebody wanted to stop the statement before this one, and came too late.
  if (reply.failed() && kind_of(engine, reply) == ErrorKind::cancelled) reply = run(statement().text("ROLLBACK"));
  // Elsewhere a ROLLBACK without a transaction is no error.
  const bool ended_before = engine == Engine::sqlite && reply.code == codes::sqlite_error &&
                            reply.message.find("no transaction is active") != std::string::npos;
  if (!reply.failed() || ended_before) return;
  begun_ = kind_of(engine, reply) != ErrorKind::unavailable;  // still open: the next begin() would commit it on MySQL
  fail(reply, {"roll back", "", std::nullopt}, {});
}

Transaction::~Transaction() {
  if (!open_) return;
  try {
    session_.rollback();
  } catch (...) {
    // The session is gone: the database rolls back.
  }
}

void Transaction::commit() {
  session_.commit();
  open_ = false;
}

void Session::insert(const Table& table, const Key& key, const std::vector<Value>& values) {
  const TableColumns& columns = table.columns();
  if (key.size() != columns.key.size() || values.size() != columns.columns.size()) {
    throw Error(ErrorKind::invalid_argument, "a row of " + table.name() + " has " + std::to_string(columns.key.size()) +
                                                 " key column(s) and " + std::to_string(columns.columns.size()) +
                                                 " other(s)");
  }
  Statement insert = statement();
  insert.text("INSERT INTO ").name(table.name()).text(" (").names(columns.key);
  if (!columns.columns.empty()) insert.text(", ").names(columns.columns);
  if (!columns.version.empty()) insert.text(", ").name(columns.version);
  insert.text(") VALUES (");
  const char* comma = "";
  for (const std::vector<Value>* part : {static_cast<const std::vector<Value>*>(&key), &values}) {
    for (const Value& value : *part) {
      insert.text(comma).bind(value);
      comma = ", ";
    }
  }
  if (!columns.version.empty()) insert.text(", 0");
  run(insert.text(")"), {"insert into", table.name(), std::nullopt});
}

Session::Statement Session::select(const Table& table, std::span<const Key> keys) const {
  const TableColumns& columns = table.columns();
  Statement select = statement();
  select.text("SELECT ").names(columns.key);
  if (!columns.columns.empty()) select.text(", ").names(columns.columns);
  if (!columns.version.empty()) select.text(", ").name(columns.version);
  select.text(" FROM ").name(table.name());
  const bool innodb = adapter_.engine() == Engine::mysql || adapter_.engine() == Engine::mariadb;
  // Rows are locked as they are read. Without this a small table is read as a whole, and all of it is locked.
  if (innodb && keys.size() > 1) select.text(" FORCE INDEX (PRIMARY)");
  select.text(" WHERE ").keys(table, keys);
  if (keys.size() > 1) select.text(" ORDER BY ").names(columns.key);
  return select.columns(columns.key.size() + columns.columns.size() + (columns.version.empty() ? 0 : 1));
}

Row Session::row_of(const Table& table, std::vector<Value> cells) const {
  const TableColumns& columns = table.columns();
  const std::size_t keys = columns.key.size(), others = columns.columns.size();
  if (cells.size() != keys + others + (columns.version.empty() ? 0 : 1)) {
    throw Error(ErrorKind::invalid_argument, "the adapter returned " + std::to_string(cells.size()) + " columns of " +
                                                 table.name() + ", which is not what was asked for");
  }
  std::optional<std::int64_t> version;
  if (!columns.version.empty()) {
    version = cells.back().get<std::int64_t>();
    cells.pop_back();
  }
  const auto values = cells.begin() + static_cast<std::ptrdiff_t>(keys);
  Key key(std::make_move_iterator(cells.begin()), std::make_move_iterator(values));
  cells.erase(cells.begin(), values);
  return Row(table, std::move(key), std::move(cells), version);
}

std::vector<Row> Session::rows_of(const Table& table, Reply reply) const {
  std::vector<Row> rows;
  rows.reserve(reply.rows.size());
  for (std::vector<Value>& cells : reply.rows) rows.push_back(row_of(table, std::move(cells)));
  return rows;
}

std::optional<Row> Session::fetch(const Table& table, const Key& key) {
  Reply reply = run(select(table, {&key, 1}), {"read", table.name(), std::nullopt});
  if (reply.rows.empty()) return std::nullopt;
  return row_of(table, std::move(reply.rows.front()));
}

Row Session::fetch_checked(const Table& table, const Key& key, std::int64_t version) {
  needed(table, table.columns().version, "version");
  std::optional<Row> row = fetch(table, key);
  if (!row) {
    throw Error(ErrorKind::conflict, "the row of " + table.name() + " is gone: it had version " +
                                         std::to_string(version) + " when it was read. Show this to the user");
  }
  if (row->version() != version) {
    throw Error(ErrorKind::conflict, "the row of " + table.name() + " has changed: it had version " +
                                         std::to_string(version) + " when it was read, and has " +
                                         std::to_string(row->version()) + " now. Show the new one to the user");
  }
  return *std::move(row);
}

Outcome Session::try_update(Row& row) {
  const Table& table = row.table();
  const std::string& version = needed(table, table.columns().version, "version");
  if (row.version() == std::numeric_limits<std::int64_t>::max()) {
    throw Error(ErrorKind::invalid_argument, "the version of the row of " + table.name() + " is at its end");
  }
  Statement update = statement();
  update.text("UPDATE ").name(table.name()).text(" SET ");
  for (std::size_t i = 0; i < row.changed_.size(); ++i) {
    if (row.changed_[i] != 0) update.name(table.columns().columns[i]).text(" = ").bind(row.values_[i]).text(", ");
  }
  update.changes(table, {})
      .text(" WHERE ")
      .key(table, row.key())
      .text(" AND ")
      .name(version)
      .text(" = ")
      .bind(row.version());
  const Outcome result = outcome(row, run(update, {"update", table.name(), std::nullopt}));
  if (result == Outcome::done) {
    ++*row.version_;
    row.changed_.clear();
  }
  return result;
}

Outcome Session::try_remove(const Row& row) {
  const Table& table = row.table();
  const std::string& version = needed(table, table.columns().version, "version");
  Statement remove = statement();
  remove.text("DELETE FROM ").name(table.name()).text(" WHERE ").key(table, row.key());
  remove.text(" AND ").name(version).text(" = ").bind(row.version());
  return outcome(row, run(remove, {"delete from", table.name(), std::nullopt}));
}

// Zero rows: another transaction has changed the row, or it is gone (X4).
Outcome Session::outcome(const Row& row, const Reply& reply) {
  if (reply.affected > 0) return Outcome::done;
  const Table& table = row.table();
  Statement look = statement();
  look.text("SELECT 1 FROM ").name(table.name()).text(" WHERE ").key(table, row.key()).columns(1);
  look.newest();
  const bool there = !run(look, {"look for a row of", table.name(), std::nullopt}).rows.empty();
  return there ? Outcome::conflict : Outcome::vanished;
}

namespace {

void demand_done(Outcome outcome, const Row& row, const char* what) {
  if (outcome == Outcome::done) return;
  const bool gone = outcome == Outcome::vanished;
  throw Error(ErrorKind::conflict, std::string("cannot ") + what + " the row of " + row.table().name() + ": it " +
                                       (gone ? "is gone" : "has changed") + " since it was read with version " +
                                       std::to_string(row.version()) + ". Read it again, and decide again");
}

}  // namespace

void Session::update(Row& row) { demand_done(try_update(row), row, "update"); }

void Session::remove(const Row& row) { demand_done(try_remove(row), row, "delete"); }

bool Session::guarded_update(const Table& table, const Key& key, const std::vector<Change>& changes,
                             const std::vector<Guard>& guards) {
  Statement update = statement();
  update.text("UPDATE ").name(table.name()).text(" SET ").changes(table, changes);
  update.text(" WHERE ").key(table, key).guards(table, guards);
  return run(update, {"update", table.name(), std::nullopt}).affected > 0;
}

void Session::fenced_update(const Table& table, const Key& key, std::int64_t fence,
                            const std::vector<Change>& changes) {
  const std::string& column = needed(table, table.columns().fence, "fence");
  if (fence <= 0) throw Error(ErrorKind::invalid_argument, "a fence is a positive number: take it from Lock::fence()");
  Statement update = statement();
  update.text("UPDATE ").name(table.name()).text(" SET ").name(column).text(" = ").bind(fence);
  if (!changes.empty() || !table.columns().version.empty()) update.text(", ").changes(table, changes);
  update.text(" WHERE ").key(table, key);
  update.text(" AND (").name(column).text(" IS NULL OR ").name(column).text(" <= ").bind(fence).text(")");
  if (run(update, {"update", table.name(), std::nullopt}).affected > 0) return;

  Statement look = statement();
  look.text("SELECT ").name(column).text(" FROM ").name(table.name()).text(" WHERE ").key(table, key).columns(1);
  look.newest();
  const Reply seen = run(look, {"look for a row of", table.name(), std::nullopt});
  if (seen.rows.empty()) throw Error(ErrorKind::conflict, "the row of " + table.name() + " is gone");
  throw Error(ErrorKind::lost, "the row of " + table.name() + " refused fence " + std::to_string(fence) +
                                   ": a later holder of the lock has written it. Take the lock again, and start over");
}

}  // namespace hierlock::rows
