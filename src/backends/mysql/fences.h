// Fences: why the numbers that become fences only rise, across servers too.
//
// The server mints them: UUID_SHORT() without its top byte (the server's id) is the second the server was started in,
// times 2^24, plus a count. On one server that rises, also over restarts: it would have to mint 2^24 numbers a second
// for as long as it runs to come out below itself, or its clock be set back. On another server it may be anything, so
// the settings remember a floor, and which server it came from.
//
// INVARIANT: a number that is given out is at most the recorded floor + fence_slack, at the moment it is given out.
//
// So a server that is not the one of the floor may mint for us only from floor + fence_slack on: that is above every
// number that anybody was given before. For the server of the floor the floor itself is enough, which then only notices
// a clock that was set back. Besides, no connection is used whose server mints below what this Locker was given
// already, whatever the settings say: a replica may not have received them.
//
// The floor is raised on a connection that holds no lock: by the watch when half of the slack is used up, and only if
// that comes too late (2^24 numbers since then) by the acquire that would break the invariant, before it returns.
#pragma once

#include <atomic>
#include <cstdint>

#include "mysql/options.h"
#include "mysql_client/connection.h"

namespace hierlock::mysql {

// UUID_SHORT() without its top byte, which is the server's id.
inline constexpr std::uint64_t fence_mask = (std::uint64_t{1} << 56) - 1;
// A lock is handed over inside of a process fewer than 128 times, so the store's numbers are 128 apart.
inline constexpr std::int64_t fence_step = 128;
inline constexpr std::uint64_t fence_slack = std::uint64_t{1} << 24;

// Of one Locker.
class Fences {
 public:
  explicit Fences(const Layout& layout) : layout_(layout) {}

  // For each new connection, before it is used: its server's numbers are above all that were given out. Throws
  // unsafe_topology. Raises the floor where that is due.
  void check(Connection& connection, WaitLimit& limit);
  // The same, where floor_question() was asked along with something else, when highest() was `given`.
  void check(Connection& connection, std::uint64_t given, const Reply& answer, WaitLimit& limit);
  // A number was minted for a lock. False: the floor has to be raised before it is given out.
  bool minted(std::uint64_t number) noexcept;
  // The highest so far.
  std::uint64_t highest() const noexcept { return highest_.load(); }
  // Raising it soon is better than having to.
  bool due() const noexcept { return highest_.load() + fence_slack / 2 > limit_.load(); }
  // Raises it to the server's present number, and commits; or what the server said instead.
  Reply raise(Connection& connection, WaitLimit& limit);

 private:
  const Layout& layout_;
  std::atomic<std::uint64_t> highest_{0}, limit_{0};
};

// SQL for a text by which a server is told from others, and which stays the same as long as it runs; and for a number
// of it.
std::string server_name(bool mariadb);
std::string server_number(bool mariadb);
// What the settings and the server say about numbers, for check().
std::string floor_question(const Layout& layout, bool mariadb);
// Whether a server may mint for us, as above.
inline bool above_floor(std::uint64_t minted, std::uint64_t floor, bool same_server) noexcept {
  return same_server ? minted >= floor : minted > floor + fence_slack;
}

}  // namespace hierlock::mysql
