// Fences: makes sure that the numbers that become fences only rise, even across servers.
//
// The server mints them. UUID_SHORT() without its top byte (the server's id) is the second in which the server was
// started, times 2^24, plus a count. On one server these numbers rise, even across restarts, unless its clock is set
// back or it mints more than 2^24 numbers a second. A replica that was started before its primary mints lower numbers
// than the primary. So a fence's number is what the server minted plus an OFFSET. One row of the settings records the
// floor, the server that mints now, and the offset of that server.
//
// INVARIANT 1: when a number is given out, it is at most the recorded floor + fence_slack.
// INVARIANT 2: the row's server and offset change only under the row's lock, in one transaction with the floor. The
// first number by the new offset is above the old floor + fence_slack, and becomes the new floor.
//
// By 1, all numbers before such a change are at most the old floor + fence_slack. By 2, all numbers after it are above
// that. Between two changes one server mints with one offset, and its numbers rise. So fences rise.
//
// - A new connection reads the row in the round trip that it needs anyway. If the row names another server, or if this
//   server mints below the floor, the connection settles. It locks the row, reads it again and records the least offset
//   that will do. If two connections settle at once, the second one finds and uses what the first one has recorded.
// - A connection keeps its offset. A primary that was demoted and promoted again within seconds may keep its
//   connections, although its offset has changed. The housekeeping compares the row every 3 s. If the offset has
//   changed, the locks on these connections are lost. One new connection has the same effect, because the offset is
//   part of Session::server(). Until then, an old connection gives out only numbers below all numbers of the new
//   offset, because it cannot raise the floor. It could do so only if the row still named its server and offset.
// - A replica may be promoted before it has received the last floor. A Locker that settles there also puts the offset
//   above the highest number that it has received itself. But another process may have settled before, without knowing
//   that number. Then the offset is in use and must not change, so the Locker refuses the server (unsafe_topology).
// - A former primary that is still written to, and does not receive the row, can raise its own floor beyond the slack.
//   Nothing here can see that; see docs/mysql.md.
//
// The housekeeping raises the floor on a connection that holds no lock, when half of the slack is used up. If that
// comes too late, the acquire that would break invariant 1 raises it before it returns.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "mysql/options.h"
#include "mysql_client/connection.h"

namespace hierlock::mysql {

// UUID_SHORT() without its top byte, which is the server's id. It is also the highest number of all: times fence_step
// it still is a positive 64-bit number.
inline constexpr std::uint64_t fence_mask = (std::uint64_t{1} << 56) - 1;
// A lock is handed over inside of a process fewer than 128 times, so the store's numbers are 128 apart.
inline constexpr std::int64_t fence_step = 128;
inline constexpr std::uint64_t fence_slack = std::uint64_t{1} << 24;

// What the row of the settings says. A server is known by server_number(); 0: none has minted yet.
struct FenceRow {
  std::uint64_t floor = 0, server = 0, offset = 0;
  bool operator==(const FenceRow&) const = default;
};

// True if a server that has just minted `minted` may continue with the recorded offset.
inline bool may_mint(const FenceRow& row, std::uint64_t server, std::uint64_t minted) noexcept {
  return row.server == server && minted <= fence_mask && row.offset <= fence_mask - minted &&
         minted + row.offset >= row.floor;
}

// The row to record before a server that has just minted `minted` may mint for us. It is the same row with a higher
// floor, or a row with a new offset. The offset puts the server's numbers above all that were given out, and above
// `given`. None: fences would not fit into 63 bits.
inline std::optional<FenceRow> settled(const FenceRow& row, std::uint64_t server, std::uint64_t minted,
                                       std::uint64_t given) noexcept {
  if (row.floor > fence_mask || minted > fence_mask || given > fence_mask) return std::nullopt;
  FenceRow next{0, server, row.offset};
  if (!may_mint(row, server, minted)) {
    const std::uint64_t lowest = (row.floor + fence_slack > given ? row.floor + fence_slack : given) + 1;
    next.offset = minted < lowest ? lowest - minted : 0;
  }
  next.floor = minted + next.offset;
  if (next.floor > fence_mask - fence_slack) return std::nullopt;
  return next;
}

// A server and what is added to its numbers, for the sessions of a Locker that use both.
struct Mint {
  Mint(std::string of, std::uint64_t plus) : name(std::move(of)), offset(plus) {}

  const std::string name;  // which server and which offset, for comparing
  const std::uint64_t offset;
  std::atomic<std::uint64_t> limit{0};  // the highest number that may be given out
};

// What floor_question() is answered.
struct FenceAnswer {
  FenceRow row;
  std::uint64_t server = 0, minted = 0;  // of the server that answered
};

// Of one Locker.
class Fences {
 public:
  explicit Fences(const Layout& layout) : layout_(layout) {}

  // Call it for each new connection before its use. Returns the Mint of its numbers, which are above all that were
  // given out. Records an offset and raises the floor if needed. Throws unsafe_topology, incompatible if the settings
  // are not as they should be, unavailable.
  std::shared_ptr<Mint> check(Connection& connection, const std::string& server, WaitLimit& limit);
  // The same, if floor_question() was already asked together with another question, when highest() was `given`.
  std::shared_ptr<Mint> check(Connection& connection, const std::string& server, std::uint64_t given,
                              const Reply& reply, WaitLimit& limit);
  // A server minted this for a lock. Returns the number of the fence. If it is above mint.limit, the caller must raise
  // the floor before it gives the number out.
  std::uint64_t minted(const Mint& mint, std::uint64_t uuid_short) noexcept;
  // The highest so far.
  std::uint64_t highest() const noexcept { return highest_.load(); }
  // True if the floor should be raised soon, before an acquire has to do it.
  bool due() const;
  // Raises the floor to the server's present number, and commits. False: the server said no, which is in `why`, or
  // `mint` is not what is recorded any more.
  bool raise(Connection& connection, Mint& mint, WaitLimit& limit, std::optional<Error>* why = nullptr);

 private:
  struct Locked;
  Locked settle(Connection& connection, std::uint64_t given, const Mint* only, WaitLimit& limit) const;
  std::shared_ptr<Mint> mint(const std::string& server, const FenceRow& row);

  const Layout& layout_;
  std::atomic<std::uint64_t> highest_{0};
  mutable std::mutex mutex_;      // guards what follows
  std::shared_ptr<Mint> newest_;  // that a connection was made for
};

// SQL for a text that identifies a server and stays the same as long as the server runs; and SQL for that text as a
// number.
std::string server_name(bool mariadb);
std::string server_number(bool mariadb);
// What the settings and the server say about numbers, for check().
std::string floor_question(const Layout& layout, bool mariadb);
// None: it is no answer.
std::optional<FenceAnswer> read_floor(const Reply& reply);

}  // namespace hierlock::mysql
