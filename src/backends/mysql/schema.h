// Schema: what the database knows about itself: how many buckets and levels, and the fence floor.
#pragma once

#include <cstdint>

#include "mysql/address.h"
#include "mysql/connection.h"
#include "mysql/statements.h"

namespace hierlock::mysql {

inline constexpr int layout_format = 1;
inline constexpr unsigned default_levels = 3;

// UUID_SHORT() without its top byte, which is the server's id: what is left only rises on one server.
inline constexpr std::uint64_t fence_mask = (std::uint64_t{1} << 56) - 1;
// A lock is handed over inside of a process fewer than 128 times, so the store's numbers are 128 apart.
inline constexpr std::int64_t fence_step = 128;

struct Recorded {
  std::uint32_t buckets = 0;
  unsigned levels = 0;
  std::uint64_t fence_floor = 0;  // no number below this may be minted any more
};

// A session that is ready to lock. Throws unsafe_topology where row locks do not exclude (Galera, several primaries, a
// read-only server), or where the server's numbers are below the floor.
std::unique_ptr<Connection> connect(const Options& options, std::uint64_t fence_floor, Vigil& vigil);
std::unique_ptr<Connection> connect(const Options& options, std::uint64_t fence_floor, Clock::duration time);

// Reads what is recorded and compares it with what the URL asks for (incompatible); with ?provision=lazy makes what is
// missing, otherwise throws not_provisioned. Raises the floor.
Recorded read_or_make(Connection& connection, const Options& options, Vigil& vigil);

// Records the settings if nobody has yet, and makes the tables.
void make_tables(Connection& connection, const Layout& layout, Vigil& vigil);

inline Dialect dialect_of(const Connection& connection) {
  return connection.mariadb() ? Dialect::mariadb : Dialect::mysql;
}

}  // namespace hierlock::mysql
