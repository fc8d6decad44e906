// Views: what the server itself shows of the locks in our table: who has which row, who waits, and for whom.
//
// MySQL shows every lock (performance_schema.data_locks, data_lock_waits). MariaDB shows waits and those who are in
// their way, and nothing else (information_schema.INNODB_LOCKS, INNODB_LOCK_WAITS), from a copy that it makes anew only
// when nobody has read it for 100 ms. Neither knows paths: those come from the processes (who.h). Reading takes no
// lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "mysql/options.h"
#include "mysql_client/connection.h"
#include "plan/buckets.h"

namespace hierlock::mysql {

// A row that somebody has, or waits for.
struct Locked {
  std::uint64_t session = 0;  // 0: the server does not tell whose it is
  std::string transaction;    // the server's name for who it is, for comparing
  std::optional<plan::Row> row;
  Mode mode = Mode::X;
  bool waits = false;
  std::vector<std::size_t> blocked_by{};  // others of the same View
};

// What the server knows about a session, whoever it is.
struct Session {
  std::string user, host;        // as the server sees them
  std::string machine, program;  // as it has introduced itself, if it has
  std::int64_t process = 0;
  std::chrono::microseconds age{};  // of what it does, or of its doing nothing
};

struct View {
  bool seen = false;         // otherwise `note` says why not
  bool denied = false;       // for want of a right
  bool all_holders = false;  // `locks` has also those whom nobody waits for
  // Otherwise, where that is known: the sessions that have rows of any table. Others hold nothing.
  std::optional<std::set<std::uint64_t>> with_rows;
  std::vector<Locked> locks;
  std::map<std::uint64_t, Session> sessions;  // of the locks
  std::string note;                           // for people
};

// Within the limit's time and a second and a half of the server's; errors are told by `note`. On MariaDB it must be in
// a transaction, and waits some 100 ms if the views were read just before.
View look(Connection& connection, const Options& options, WaitLimit& limit);

// The account that the server takes a session for, as GRANT wants it: `'app'@'10.0.0.%'`.
std::string account_of(Connection& connection, const Options& options, WaitLimit& limit);

// The right that is needed, as a statement.
std::string grant_views(bool mariadb, const std::string& account);

// --- without a server -------------------------------------------------------------------------------------------

// The same of what CURRENT_USER() says: `app@10.0.0.%`.
std::string quoted_account(const std::string& current_user);

// `2, 8675750`: a row of our table. None for anything else, such as `supremum pseudo-record`.
std::optional<plan::Row> read_row(std::string_view lock_data, Mode mode);

// The answers, in the order of the columns asked for in views.cc.
View read_mysql(const Reply& locks, const Reply& waits);
void read_attributes(const Reply& attributes, View& view);
View read_mariadb(const Reply& transactions, const Reply& locks, const Reply& waits);

}  // namespace hierlock::mysql
