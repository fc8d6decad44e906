// Views: what the server itself shows of the locks in our table: who has which row, who waits, and for whom.
//
// MySQL shows every lock (performance_schema.data_locks, data_lock_waits). MariaDB shows only waits and the locks in
// their way (information_schema.INNODB_LOCKS, INNODB_LOCK_WAITS). It shows a copy, which it makes anew only when nobody
// has read it for 100 ms. Neither server knows paths: those come from the processes (notice_sql.h). Reading takes no
// lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "mysql/options.h"
#include "mysql_client/connection.h"
#include "remote/looker.h"

namespace hierlock::mysql {

using remote::Cell;
using remote::Locked;
using remote::SessionFacts;
using remote::View;

// For people, look() also reads whose sessions these are, and shows the current state. On MariaDB it waits some 100 ms
// if the views were read just before. The search for deadlocks cannot wait so long.
enum class For : std::uint8_t { people, deadlocks };
// Ends within the limit, and takes at most 1.5 s of the server's time. `note` reports errors. On MariaDB it must be in
// a transaction.
View look(Connection& connection, const Options& options, For purpose, WaitLimit& limit);

// A session on which a remote::Looker reads both notices and views. `options` must outlive it.
std::unique_ptr<remote::LookSession> connect_to_look(const Options& options, Deadline& limit);

// The account that the server takes a session for, as GRANT wants it: `'app'@'10.0.0.%'`.
std::string account_of(Connection& connection, const Options& options, WaitLimit& limit);

// `SELECT `, which the server ends after so long.
std::string limited_select(bool mariadb, std::chrono::milliseconds time);

// The right that is needed, as a statement.
std::string grant_views(bool mariadb, const std::string& account);

// --- without a server -------------------------------------------------------------------------------------------

// The same for an account as CURRENT_USER() returns it: `app@10.0.0.%`.
std::string quoted_account(const std::string& current_user);

// `2, 8675750`: a row of our table. None for anything else, such as `supremum pseudo-record`.
std::optional<Cell> read_row(std::string_view lock_data, Mode mode);

// So many rows of each part of a view are asked for.
struct Most {
  std::size_t locks = 20'000, waits = 100'000;
};

// The answers, in the order of the columns asked for in views.cc.
View read_mysql(const Reply& locks, const Reply& waits, const Most& most = {});
void read_attributes(const Reply& attributes, View& view);
View read_mariadb(const Reply& transactions, const Reply& locks, const Reply& waits, const Most& most = {});

}  // namespace hierlock::mysql
