// View: the store's own list of its locks: who has which cell, who waits, and for whom.
//
// A store knows sessions and cells, but no paths. Paths come from the processes (notice.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "remote/cell.h"

namespace hierlock::remote {

// A cell that a session holds, or waits for.
struct Locked {
  std::uint64_t session = 0;  // 0: the store does not tell whose it is
  std::string transaction;    // the store's name for who it is, for comparing
  std::optional<Cell> cell;   // none: the store does not tell which
  Mode mode = Mode::X;
  bool waits = false;
  std::vector<std::size_t> blocked_by{};  // indexes of others in the same View
};

// What the store knows about a session, of this library or not.
struct SessionFacts {
  std::string user, host;        // as the store sees them
  std::string machine, program;  // as it has introduced itself, if it has
  std::int64_t process = 0;
  std::chrono::microseconds age{};  // of what it does, or of its doing nothing
};

struct View {
  bool seen = false;         // otherwise `note` says why not
  bool denied = false;       // not seen because a right is missing
  bool all_holders = false;  // `locks` also has those that nobody waits for
  // Without all_holders, and if the store tells: the sessions that hold anything at all. Other sessions hold nothing.
  std::optional<std::set<std::uint64_t>> with_locks;
  std::string unseen_note;  // with it, what to say of those whose locks are not shown: "rows locked that …"
  std::vector<Locked> locks;
  std::map<std::uint64_t, SessionFacts> sessions;  // of the locks
  // Sessions that have published a wait and have ended since. A live session may wait for something that is no lock
  // here, or may be asking again just now. So a wait that `locks` does not show may still go on.
  std::set<std::uint64_t> ended;
  // For each wait of this Locker for a name, or for one of several slots that are all held: the sessions that hold the
  // name or the slots. The key is the number of the wait.
  std::map<std::uint64_t, std::vector<std::uint64_t>> name_holders;
  std::string note;                  // for people
  std::chrono::milliseconds next{};  // another read within this time, by any process, returns the same view
};

}  // namespace hierlock::remote
