// Notice: what a process publishes about one of its locks or waits, for other processes that use the same store.
//
// A process publishes locks and waits that last, in a place that all processes can read (NoticeStore). `status` uses
// notices to show the owner behind a session. The DeadlockFinder uses them to find cycles that no server can see,
// because their members hold and wait on different sessions (B11). An acquire that is granted at once costs nothing
// here.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/spi/plan.h>

#include "remote/cell.h"

namespace hierlock::remote {

struct Node {
  Cell cell;
  bool asked = false;
  std::string text;  // `u1/a1`; empty: only the cell is known
  // A failed extend may have locked this cell. The store gives it back only with the rest of the lock.
  bool leftover = false;
  // If several locks may hold this cell at a time: how many. Otherwise 0.
  std::uint32_t slots = 0;
};

// A request that waits in the queue of its own process has no session yet. Its notice has a number that no store gives
// out. An extend has the number of its lock, with the bit `in_queue`. Any other request has a number with the bits
// `in_queue` and `without_session`.
inline constexpr std::uint64_t in_queue = std::uint64_t{1} << 62, without_session = std::uint64_t{1} << 61;
// This bit is added if the owner holds no lock. No request waits for such an owner, so its wait is published only for
// `status`.
inline constexpr std::uint64_t for_status = std::uint64_t{1} << 59;

// A lock of names, or a wait for one, shares its session with others. Its number consists of this bit, the session's
// number and a count.
inline constexpr std::uint64_t of_names = std::uint64_t{1} << 60;
constexpr bool is_of_names(std::uint64_t session) noexcept { return (session & (in_queue | of_names)) == of_names; }
constexpr int name_count_bits = 27;
constexpr std::uint64_t number_of_names(std::uint64_t session, std::uint64_t count) noexcept {
  return of_names | (session & 0xFFFF'FFFF) << name_count_bits | (count & ((1u << name_count_bits) - 1));
}
// The store's own number, for people.
constexpr std::uint64_t shown_session(std::uint64_t session) noexcept {
  return is_of_names(session) ? session >> name_count_bits & 0xFFFF'FFFF : session;
}

struct Notice {
  std::uint64_t session = 0;  // the store's number. While it is extended, a session both holds and waits
  std::string owner;          // the same for all that one owner holds and waits for; unique in the store
  std::string owner_name, host, program, note;
  std::int64_t process = 0, fence = 0;
  std::chrono::microseconds age{};
  std::int64_t since = 0;  // microseconds by the store's clock, the same for all who read it; 0: not published
  bool waits = false;      // it waits for all of the nodes; otherwise it holds them
  std::vector<Node> nodes;
  // Of a wait in the queue of its process: the sessions of the requests that it stands behind, directly or through
  // others, and that ask the store. The process knows its own queue exactly.
  std::vector<std::uint64_t> behind{};
  // Not published. `began` tells two waits of one session apart. `may_block` is Pending::may_block. `publish_after` is
  // the age at which the notice is published.
  std::int64_t began = 0;
  bool may_block = false;
  std::chrono::milliseconds publish_after{};

  std::uint64_t id() const noexcept { return session * 2 + (waits ? 1 : 0); }  // unique in the store
  bool queued() const noexcept { return (session & in_queue) != 0; }
  bool only_for_status() const noexcept {
    constexpr std::uint64_t all = in_queue | without_session | for_status;
    return (session & all) == all;
  }
  bool same_session(const Notice& other) const noexcept { return ((session ^ other.session) & ~in_queue) == 0; }
  std::string_view locker() const noexcept { return std::string_view(owner).substr(0, owner.rfind(':')); }
  bool same_process(const Notice& other) const noexcept { return locker() == other.locker(); }  // of one Locker
};

// Which cell a node of a plan becomes.
using CellOf = std::function<Cell(Space space, std::uint8_t level, std::string_view key, Mode mode)>;

// If there are several slots, their holders have the cell in a mode that they can share. If there is only one, it is
// like a name.
constexpr Mode cell_mode(Mode mode, std::uint32_t slots) noexcept { return slots > 1 ? Mode::S : mode; }
constexpr std::uint32_t several(std::uint32_t slots) noexcept { return slots > 1 ? slots : 0; }

std::vector<Node> nodes_of(const spi::Plan& plan, const CellOf& cell_of);

// The nodes of a lock that is held. Their names are made when they are first read, which is rare. Making them takes
// longer than anything else that an acquire does in this process.
class HeldNodes {
 public:
  void keep(const spi::Plan& plan);
  bool are(const spi::Plan& plan) const noexcept;  // of keep()
  std::vector<Node>& read(const CellOf& cell_of);

 private:
  struct Kept {
    std::size_t end = 0;  // of its key, which begins where the one before it ends
    std::uint8_t level = 0;
    Space space = Space::path;
    Mode mode = Mode::X;
    bool asked = false;
    std::uint32_t slots = 0;
  };
  std::string keys_;
  std::vector<Kept> kept_;
  bool made_ = false;  // nodes_, from the former
  std::vector<Node> nodes_;
};

// Whether `waiter` may wait for `other` at a name, or at slots. No view shows such waits.
bool meet_at_name(const Notice& waiter, const Notice& other) noexcept;

// The first node of `waiter` that conflicts with one of `other`, or none.
const Node* conflict(const Notice& waiter, const Notice& other) noexcept;
// The same by in_the_way().
const Node* meeting(const Notice& waiter, const Notice& other) noexcept;

// Guesses, for people, which notices are in the way of a wait. These are all holders that conflict with it, even its
// own owner on another session. If there is none, they are the conflicting waiters before it. Those are the earlier
// ones and, for a wait in the queue of its process, all that wait at the store already.
std::vector<const Notice*> in_the_way(const Notice& waiter, const std::vector<Notice>& all);
// True when `other`, which waits too, stands before `waiter` in a queue that both are in.
bool stands_before(const Notice& other, const Notice& waiter) noexcept;

}  // namespace hierlock::remote
