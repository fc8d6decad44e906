// Schema: what the database knows about itself: how many buckets and levels. (For the fence floor see fences.h.)
#pragma once

#include <cstdint>

#include "mysql/address.h"
#include "mysql/connection.h"
#include "mysql/fences.h"
#include "mysql/statements.h"

namespace hierlock::mysql {

inline constexpr int layout_format = 1;
inline constexpr unsigned default_levels = 3;

struct Recorded {
  std::uint32_t buckets = 0;
  unsigned levels = 0;
};

// A session that is ready to lock. Throws unsafe_topology where row locks do not exclude (Galera, several primaries, a
// read-only server), or where the server's numbers are not above `given`.
std::unique_ptr<Connection> connect(const Options& options, std::uint64_t given, Vigil& vigil);
std::unique_ptr<Connection> connect(const Options& options, std::uint64_t given, Clock::duration time);

// Reads what is recorded and compares it with what the URL asks for (incompatible); with ?provision=lazy makes what is
// missing, otherwise throws not_provisioned.
Recorded read_or_make(Connection& connection, const Options& options, Vigil& vigil);

// Records the settings if nobody has yet, and makes the tables.
void make_tables(Connection& connection, const Layout& layout, Vigil& vigil);

inline Dialect dialect_of(const Connection& connection) {
  return connection.mariadb() ? Dialect::mariadb : Dialect::mysql;
}

}  // namespace hierlock::mysql
