// Schema: the tables, and what the database knows about itself: how many buckets and levels. (For the fence floor see
// fences.h.)
#pragma once

#include <cstdint>

#include "mysql/fences.h"
#include "mysql/options.h"
#include "mysql/statements.h"
#include "mysql_client/connection.h"

namespace hierlock::mysql {

inline constexpr int layout_format = 1;
inline constexpr unsigned default_levels = 3;

// A session that is ready to lock, with one round trip after the login. Throws unsafe_topology where row locks do not
// exclude (Galera, several primaries, a read-only server). `floor`: floor_question() is asked along, too, and that is
// the answer.
std::unique_ptr<Connection> connect(const Options& options, WaitLimit& limit, Reply* floor = nullptr);
std::unique_ptr<Connection> connect(const Options& options, Clock::duration time);

// Reads what is recorded and compares it with what the URL asks for and with what the table of rows was made for
// (incompatible); with ?provision=lazy makes what is missing, otherwise throws not_provisioned. Of rows, and of their
// table, one may still be missing: that is for those who lock to find.
BucketTable read_or_make(Connection& connection, const Options& options, WaitLimit& limit);

inline Dialect dialect_of(const Connection& connection) {
  return connection.mariadb() ? Dialect::mariadb : Dialect::mysql;
}

}  // namespace hierlock::mysql
