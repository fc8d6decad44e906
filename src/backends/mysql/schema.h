// Schema: the tables, and the numbers of buckets and levels that the database has recorded. (For the fence floor see
// fences.h.)
#pragma once

#include <cstdint>

#include "mysql/fences.h"
#include "mysql/options.h"
#include "mysql/statements.h"
#include "mysql_client/connection.h"
#include "remote/checkup.h"

namespace hierlock::mysql {

inline constexpr int layout_format = 1;
inline constexpr unsigned default_levels = 3;

// A session that is ready to lock, with one round trip after the login. Throws unsafe_topology where row locks do not
// exclude (fitness.h).
struct Ready {
  std::unique_ptr<Connection> connection;
  std::string server{};   // which it is, for comparing
  bool in_group = false;  // of group replication
  Reply floor{};          // the answer to floor_question(), if that was asked along
};
enum class Floor : bool { not_asked, asked };
Ready connect(const Options& options, WaitLimit& limit, Floor floor = Floor::not_asked);

// judge_recorded() compares what the settings record (format, buckets, levels) with what the URL asks for.
// judge_engine() judges the answer to ask_for_engine(): the engine of the table of rows.
remote::Judgement judge_recorded(const endpoint::Row& row, const Layout& layout);
std::string ask_for_engine(const std::string& table);
remote::Judgement judge_engine(const Reply& reply, const std::string& table);

// Reads what is recorded. Throws incompatible if the URL asks for other numbers, or if the table of rows was made for
// others. If something is missing, makes it with ?provision=lazy, otherwise throws not_provisioned. Rows, or the table
// of rows, may still be missing: an acquire finds that.
BucketTable read_or_make(Connection& connection, const Options& options, WaitLimit& limit);

inline Dialect dialect_of(const Connection& connection) {
  return connection.mariadb() ? Dialect::mariadb : Dialect::mysql;
}

}  // namespace hierlock::mysql
