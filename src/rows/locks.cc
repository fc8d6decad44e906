// Locking fetches: each engine's own SQL, and how a time to wait is kept where the engine has no such clause (X7).
#include <algorithm>
#include <map>
#include <thread>

#include <hierlock/rows.h>

#include "rows/asked.h"
#include "rows/error_codes.h"
#include "rows/error_kind.h"
#include "rows/statement.h"

namespace hierlock::rows {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

const char* lock_clause(Engine engine, Strength strength) {
  if (strength != Strength::read) return " FOR UPDATE";
  return engine == Engine::mariadb ? " LOCK IN SHARE MODE" : " FOR SHARE";
}

const char* wait_clause(Wait::Kind kind) {
  switch (kind) {
    case Wait::Kind::no_wait:
      return " NOWAIT";
    case Wait::Kind::skip_locked:
      return " SKIP LOCKED";
    default:
      return "";
  }
}

Error unsupported_by_sqlite(const char* what, const char* instead) {
  return Error(ErrorKind::unsupported, std::string("SQLite has no row locks, so it cannot ") + what + ": " + instead);
}

}  // namespace

std::optional<Row> Session::fetch_for_update(const Table& table, const Key& key, const LockOptions& options) {
  std::vector<Row> rows = lock_rows(table, {&key, 1}, options.strength, options.wait.value_or(options_.wait));
  if (rows.empty()) return std::nullopt;
  return std::move(rows.front());
}

std::vector<Row> Session::lock_in_order(std::vector<RowsOf> wanted, const LockOptions& options) {
  std::map<std::string, RowsOf> by_table;  // in the order of their names
  for (RowsOf& rows : wanted) {
    const auto [place, is_new] = by_table.try_emplace(rows.table.name(), rows);
    std::vector<Key>& keys = place->second.keys;
    if (!is_new) keys.insert(keys.end(), rows.keys.begin(), rows.keys.end());
  }
  const Wait wait = options.wait.value_or(options_.wait);
  const Clock::time_point began = Clock::now();
  std::vector<Row> all;
  for (const auto& [name, rows] : by_table) {
    if (rows.keys.empty()) continue;
    const bool limited = wait.kind() == Wait::Kind::at_most;
    // What is left of the time; a lock that is free is still granted when nothing is left.
    const Wait rest =
        limited ? Wait::at_most(std::max<Clock::duration>(1ms, began + wait.time() - Clock::now())) : wait;
    std::vector<Row> locked = lock_rows(rows.table, rows.keys, options.strength, rest);
    std::ranges::move(locked, std::back_inserter(all));
  }
  return all;
}

std::vector<Row> Session::lock_rows(const Table& table, std::span<const Key> keys, Strength strength,
                                    const Wait& wait) {
  if (strength == Strength::force_increment && table.columns().version.empty()) {
    throw Error(ErrorKind::invalid_argument, "the table " + table.name() + " has no version column to increment");
  }
  const Engine engine = adapter_.engine();
  const Asked asked{"lock a row of", table.name(), wait};
  const Statement rows = select(table, keys);
  std::vector<Row> locked;
  if (engine == Engine::sqlite) {
    if (strength == Strength::read) throw unsupported_by_sqlite("lock for reading", "use Strength::write");
    if (wait.kind() == Wait::Kind::skip_locked) throw unsupported_by_sqlite("skip a locked row", "use Wait::no_wait()");
    if (!immediate_) {
      // A write that changes nothing takes the one lock there is, also in a transaction that began by an ordinary
      // BEGIN.
      const std::string& column = table.columns().key.front();
      Statement write = statement();
      write.text("UPDATE ").name(table.name()).text(" SET ").name(column).text(" = ").name(column).text(" WHERE 0");
      lock_sqlite(write, asked);
    }
    locked = rows_of(table, run(rows, asked));
  } else if (engine == Engine::postgres) {
    const char* const lock = lock_clause(engine, strength);
    if (wait.kind() == Wait::Kind::for_ever) {
      locked = rows_of(table, lock_postgres_for_ever(rows, lock, keys.size() == 1, asked));
    } else {
      locked = rows_of(table, lock_postgres(rows, lock, asked));
    }
  } else {
    locked = rows_of(table, lock_innodb(rows, lock_clause(engine, strength), asked));
  }
  if (strength == Strength::force_increment) {
    for (Row& row : locked) {
      Statement update = statement();
      update.text("UPDATE ").name(table.name()).text(" SET ").changes(table, {});
      run(update.text(" WHERE ").key(table, row.key()), {"increment the version of", table.name(), wait});
      ++*row.version_;
    }
  }
  return locked;
}

// --- MySQL and MariaDB ----------------------------------------------------------------------------------

Reply Session::lock_innodb(const Statement& select, const char* lock, const Asked& asked) {
  const Wait wait = *asked.wait;
  const bool limited = wait.kind() == Wait::Kind::at_most;
  if (limited && adapter_.engine() == Engine::mysql) return lock_mysql_in_time(select, lock, asked);
  const Clock::time_point began = Clock::now();
  const Clock::time_point deadline = began + wait.time();
  for (;;) {
    Statement attempt = select;
    if (limited) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      const std::string seconds = std::to_string(static_cast<double>(std::max(1ms, left).count()) / 1000.0);
      attempt = statement();
      attempt.text("SET STATEMENT max_statement_time=" + seconds + " FOR ").append(select).text(lock);
    } else {
      attempt.text(lock).text(wait_clause(wait.kind()));
    }
    const Reply reply = run(attempt);
    if (!reply.failed()) return reply;

    const Clock::time_point now = Clock::now();
    // innodb_lock_wait_timeout, 50 s by default, is not what the caller asked for. But it may have ended the
    // transaction.
    const bool goes_on = wait.kind() == Wait::Kind::for_ever || (limited && now < deadline);
    if (reply.code == codes::lock_wait_timeout && goes_on && !innodb_timeouts().roll_back) continue;
    fail(reply, asked, now - began);
  }
}

// MySQL counts its timeouts in whole seconds. So a long wait stands in the server's queue for those whole seconds that
// it surely has, where a deadlock is found, too. Before and after that it asks again and again without waiting.
Reply Session::lock_mysql_in_time(const Statement& select, const char* lock, const Asked& asked) {
  const Clock::time_point began = Clock::now();
  const Clock::time_point deadline = began + asked.wait->time();
  Statement attempt = select, queued = select;
  attempt.text(lock).text(" NOWAIT");
  queued.text(lock);
  std::chrono::microseconds pause = 500us;
  bool may_queue = true;
  for (;;) {
    Reply reply = run(attempt);
    if (may_queue && reply.code == codes::lock_no_wait) {
      std::optional<Reply> waited = wait_in_queue(queued, deadline - Clock::now(), asked);
      may_queue = waited.has_value();
      if (waited) reply = *std::move(waited);
    }
    if (!reply.failed()) return reply;

    const Clock::time_point now = Clock::now();
    const bool taken = reply.code == codes::lock_no_wait || reply.code == codes::lock_wait_timeout;
    if (taken && now >= deadline) {
      reply.code = codes::lock_wait_timeout;
      reply.message = "not granted in " + std::to_string(asked.wait->time().count()) + " ms: " + reply.message;
    }
    if (!taken || now >= deadline) fail(reply, asked, now - began);
    if (may_queue) continue;
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - now));
    pause = std::min<std::chrono::microseconds>(pause * 2, 8ms);
  }
}

// None: too little time is left for a wait of the server itself, or its end would roll back the transaction.
std::optional<Reply> Session::wait_in_queue(const Statement& queued, std::chrono::nanoseconds left,
                                            const Asked& asked) {
  // InnoDB looks once a second for waits that are over; a busy server is a little later still.
  const auto whole = std::chrono::floor<std::chrono::seconds>(left - 1200ms).count();
  if (whole < 1) return std::nullopt;
  const auto [own, roll_back] = innodb_timeouts();
  if (roll_back) return std::nullopt;
  if (own <= whole) return run(queued);
  const auto set = [](std::int64_t seconds) {
    return "SET SESSION innodb_lock_wait_timeout = " + std::to_string(seconds);
  };
  run(set(whole), asked);
  Reply reply = run(queued);
  Reply restored = run(statement().text(set(own)));
  // Somebody wanted to stop the wait, and came too late.
  if (restored.code == codes::query_interrupted) restored = run(statement().text(set(own)));
  return reply.failed() || !restored.failed() ? reply : restored;
}

Session::InnodbTimeouts Session::innodb_timeouts() {
  const Reply reply =
      run("SELECT @@innodb_lock_wait_timeout, @@innodb_rollback_on_timeout", {"read a setting", "", std::nullopt}, 2);
  return {reply.rows.at(0).at(0).get<std::int64_t>(), reply.rows.at(0).at(1).get<bool>()};
}

// --- PostgreSQL -----------------------------------------------------------------------------------------

// lock_timeout counts for each lock that a statement waits for; statement_timeout, set 1 ms later, for all of them.
// Both are local to the transaction, and put back as they were. If the statement fails, the transaction can only be
// rolled back, and takes them with it.
Reply Session::lock_postgres(const Statement& select, const char* lock, const Asked& asked) {
  Statement locking = select;
  locking.text(lock).text(wait_clause(asked.wait->kind()));
  if (asked.wait->kind() != Wait::Kind::at_most) return run(locking, asked);

  const std::string time = std::to_string(asked.wait->time().count());
  const std::string a_bit_more = std::to_string(asked.wait->time().count() + 1);
  const Reply before = run(
      "SELECT current_setting('lock_timeout'), current_setting('statement_timeout'), set_config('lock_timeout', '" +
          time + "', true), set_config('statement_timeout', CASE WHEN CAST(current_setting('statement_timeout') AS " +
          "interval) BETWEEN interval '1 microsecond' AND interval '" + a_bit_more +
          " milliseconds' THEN current_setting('statement_timeout') ELSE '" + a_bit_more + "' END, true)",
      asked, 4);
  Reply reply = run(locking, asked);
  Statement restore = statement();
  restore.text("SELECT current_setting('lock_timeout'), set_config('lock_timeout', ").bind(before.rows.at(0).at(0));
  restore.text(", true), set_config('statement_timeout', ").bind(before.rows.at(0).at(1)).text(", true)").columns(3);
  const Reply after = run(restore, asked);
  if (after.rows.at(0).at(0) != before.rows.at(0).at(2)) {
    throw Error(ErrorKind::invalid_argument,
                "PostgreSQL keeps a time to wait only in a transaction, and none was open: begin() first");
  }
  return reply;
}

// A lock_timeout of the session, role or database must not end the wait. If it did, the transaction would have failed,
// so it is turned off before the wait begins. A single row is usually free: SKIP LOCKED takes it in one round trip.
// Several rows must be locked in order, and SKIP LOCKED would go on to the next.
Reply Session::lock_postgres_for_ever(const Statement& select, const char* lock, bool one_row, const Asked& asked) {
  if (one_row) {
    Statement attempt = select;
    Reply reply = run(attempt.text(lock).text(wait_clause(Wait::Kind::skip_locked)), asked);
    if (!reply.rows.empty()) return reply;
  }
  Statement locking = select;
  locking.text(lock);
  const Reply before = run("SELECT current_setting('lock_timeout'), set_config('lock_timeout', '0', true)", asked, 2);
  const Clock::time_point began = Clock::now();
  Reply reply = run(locking);
  // Outside a transaction the local setting has ended with its statement, and nothing is spoilt: the lock is asked for
  // again. Inside one, another attempt would only be refused.
  while (reply.failed() && reply.state == codes::lock_not_available) {
    Reply again = run(locking);
    if (again.state == codes::in_failed_transaction) break;
    reply = std::move(again);
  }
  if (reply.failed()) fail(reply, asked, Clock::now() - began);
  const Value& time = before.rows.at(0).at(0);
  if (time.get<std::string>() != "0") {
    Statement restore = statement();
    run(restore.text("SELECT set_config('lock_timeout', ").bind(time).text(", true)").columns(1), asked);
  }
  return reply;
}

// --- SQLite ---------------------------------------------------------------------------------------------

std::string Session::set_busy_timeout(const std::string& milliseconds) {
  const Asked asked{"set a timeout", "", std::nullopt};
  const Reply before = run("PRAGMA busy_timeout", asked, 1);
  run("PRAGMA busy_timeout = " + milliseconds, asked, 1);
  return before.rows.at(0).at(0).get<std::string>();
}

// Runs a statement that takes SQLite's write lock, with its busy handler set for the wait that was asked.
void Session::lock_sqlite(const Statement& taking, const Asked& asked) {
  const Clock::time_point began = Clock::now();
  Reply reply;
  std::string time = "0";
  if (asked.wait->kind() == Wait::Kind::for_ever) {
    reply = run(taking);  // usually free: the handler is changed only if it is not
    if (!is_sqlite_busy(reply)) {
      if (reply.failed()) fail(reply, asked, Clock::now() - began);
      return;
    }
    time = "2147483647";
  } else if (asked.wait->kind() == Wait::Kind::at_most) {
    time = std::to_string(asked.wait->time().count());
  }
  const std::string before = set_busy_timeout(time);
  const Clock::time_point asked_at = Clock::now();
  reply = run(taking);
  const Clock::duration took = Clock::now() - asked_at;
  run("PRAGMA busy_timeout = " + before, {"set a timeout", "", std::nullopt}, 1);
  if (reply.failed()) fail(reply, asked, took);
}

}  // namespace hierlock::rows
