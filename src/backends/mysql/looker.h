// Looker: takes the snapshots of one Locker, on a connection of its own: a view of the server may take its time, and
// the side connection is for KILL, which must not.
#pragma once

#include <memory>

#include <hierlock/spi/backend.h>

#include "mysql/picture.h"
#include "mysql/sessions.h"
#include "mysql/watch.h"

namespace hierlock::mysql {

class Looker {
 public:
  // `roll` has the sessions of this Locker, `queue` its local queue.
  Looker(const Options& options, const Sessions& sessions, const Watch& watch, spi::Backend& queue, const Roll& roll)
      : options_(options), sessions_(sessions), watch_(watch), queue_(queue), roll_(roll) {}

  // Takes two seconds at most; what could not be seen by then is said in its notes. Never throws because of the server.
  Snapshot snapshot(std::uint32_t buckets);
  // Closes its connection, unless somebody still looks by then.
  void close(Clock::time_point by) noexcept;

 private:
  void look_at_server(Looked& looked);

  const Options& options_;
  const Sessions& sessions_;
  const Watch& watch_;
  spi::Backend& queue_;
  const Roll& roll_;

  TimedMutex looking_;  // guards what follows
  // Made when it is first needed; the server ends it when nobody looks for long.
  std::unique_ptr<Connection> connection_;
  // The last answer, if it was that, so as not to ask at every look. Rights may need a new session to be seen.
  View denied_;
  Clock::time_point ask_again_{};
};

}  // namespace hierlock::mysql
