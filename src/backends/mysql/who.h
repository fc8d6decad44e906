// Who: what the processes that lock in one database tell each other about it, in a small table beside the buckets.
//
// A lock that has been held, or waited for, for a second is written down there by its process, on a connection that
// holds no lock; it goes when the lock does. From it status shows who is behind a session, and from it a cycle of waits
// is seen that no server can see, because its members hold and wait on different sessions (B11). Nothing of this is on
// the path of an acquire that is granted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/spi/plan.h>

#include "mysql_client/connection.h"
#include "plan/buckets.h"

namespace hierlock::mysql {

// What the text of a node begins with whose row was reached by an extend that was given up: the server gives it back
// with all the rest only.
inline constexpr std::string_view left_of_extend = "left of an extend: ";

struct Node {
  plan::Row row;
  bool asked = false;
  std::string text;  // `u1/a1`
};

// A request that waits in the queue of its own process has no session yet: it goes under a number that no server gives
// out. An extend there: its session's with `in_queue`; an acquire: with `without_session`, too, and otherwise any.
inline constexpr std::uint64_t in_queue = std::uint64_t{1} << 62, without_session = std::uint64_t{1} << 61;

// The nodes of a lock that is held. They are made when somebody wants to read them, which is rare, and until then only
// the keys are kept: every acquire has nodes, and their names take longer to make than all else that it does here.
class HeldNodes {
 public:
  void keep(const spi::Plan& plan, std::uint32_t buckets);
  std::vector<Node>& read();

 private:
  struct Kept {
    std::size_t end = 0;  // of its key, which begins where the one before it ends
    std::uint8_t level = 0;
    Space space = Space::path;
    Mode mode = Mode::X;
    bool asked = false;
  };
  std::string keys_;
  std::vector<Kept> kept_;
  std::uint32_t buckets_ = 1;
  std::vector<Node> nodes_;
};

struct Entry {
  std::uint64_t session = 0;  // the server's number. While it is extended, a session both holds and waits
  std::string owner;          // the same for all that one owner holds and waits for; unique in the database
  std::string owner_name, host, command, note;
  std::int64_t process = 0, fence = 0;
  std::chrono::microseconds age{};
  bool waits = false;  // for all of the nodes; otherwise it holds them
  std::vector<Node> nodes;
  // In the queue of its process: the sessions of those who ask the server and whom it is behind there, be it through
  // others who stand between them. The process knows its queue exactly.
  std::vector<std::uint64_t> behind{};

  std::uint64_t id() const noexcept { return session * 2 + (waits ? 1 : 0); }  // its row in the table
  bool queued() const noexcept { return (session & in_queue) != 0; }
  bool same_session(const Entry& other) const noexcept { return ((session ^ other.session) & ~in_queue) == 0; }
  // Of one Locker.
  bool same_process(const Entry& other) const noexcept {
    return std::string_view(owner).substr(0, owner.rfind(':')) ==
           std::string_view(other.owner).substr(0, other.owner.rfind(':'));
  }
};

// The SQL. Rows are named by Entry::id().
std::string make_who_table(std::string_view table);
std::string publish(std::string_view table, const Entry& entry);
std::string forget(std::string_view table, std::span<const std::uint64_t> ids);
std::string still_alive(std::string_view table, std::span<const std::uint64_t> ids);
std::string find_old(std::string_view table);  // those whose process has not said for long that it lives
std::string read_all(std::string_view table);
// The answer to read_all(); rows that cannot be read are left out.
std::vector<Entry> read_entries(const Reply& reply);

// --- who waits for whom -------------------------------------------------------------------------------------------

// Whether holding the one keeps the other from being held by another owner, and where.
const Node* conflict(const Entry& waiter, const Entry& other) noexcept;
// The entries in the way of one that waits, as a guess for people: every holder it is in conflict with, and that may be
// its own owner on another session; if there is none, the waiters before it that it is in conflict with. Before it are
// those who came earlier; and, if it still waits in the queue of its process, all who wait at the server already.
std::vector<const Entry*> in_the_way(const Entry& waiter, std::span<const Entry> all);

// For cycles a guess is not enough: nobody may be a victim without need, and no cycle may be missed.
//
// A request takes its rows in one order, by level and bucket. So one that waits at the server is stuck at one of them:
// it has those before, and none after. Which one it is nobody has written down, but it is not after the first that
// somebody is known to hold against it: its limit. Then
// - a wait is surely in need of whatever a holder has against it, wherever it is stuck now, because it needs all of
//   its rows (but for what is left of an extend: that may be held);
// - another wait may be in its way at a row only if neither's limit is before that row: the other has passed the row,
//   or, where the row is its limit, stands in its queue. (Not the latter if a holder is in the way there: then that is
//   whom both wait for.) Whether it is so only the server knows.
// - A wait in the queue of a process surely waits for those it stands behind.
// Everybody who is in somebody's way for good is among these, so every cycle is a cycle of these. And since requests in
// one order do not close a cycle, somebody in it holds a lock and waits for another: one of those is its victim.
struct InTheWay {
  const Entry* entry = nullptr;
  bool surely = false;
  std::optional<plan::Row> row{};  // where a wait is in the way that has passed it or stands there
};
struct View;
// With what the server shows, read after `all` was: of a wait there only those are in the way whom it waits for now.
// (Whoever waits for good is stuck at a row, and the server shows who has it or stands before: no cycle is missed.)
std::vector<InTheWay> may_be_in_the_way(const Entry& waiter, std::span<const Entry> all, const View* view = nullptr);

struct Cycle {
  bool surely = false;                // otherwise it may be one
  const Entry* victim = nullptr;      // the youngest wait of an owner that holds a lock
  std::vector<const Entry*> members;  // waits, each for the next one's owner
  std::vector<const Entry*> between;  // what is in the way of each
  std::string text() const;
  // The same cycle has the same key, and none of it is younger than it was when it was first seen.
  std::string key() const;
  std::chrono::microseconds age() const;
};
// A cycle that the waiter is part of: one that surely is, if there is one.
std::optional<Cycle> find_cycle(const Entry& waiter, std::span<const Entry> all, const View* view = nullptr);

}  // namespace hierlock::mysql
