// Looker: reads notices and the server's views for snapshots, on a connection of its own. A view may take its time, and
// the pool's side sessions are for KILL, which must not.
#pragma once

#include <memory>

#include "mysql/options.h"
#include "mysql/views.h"
#include "mysql_client/connection.h"
#include "remote/driver.h"

namespace hierlock::mysql {

class Looker {
 public:
  explicit Looker(const Options& options) : options_(options) {}

  // What could not be seen by then is told in its notes. Never throws because of the server.
  remote::Look look(Clock::time_point by);
  // Closes its connection, unless a thread still uses it by then.
  void close(Clock::time_point by) noexcept;

 private:
  const Options& options_;
  TimedMutex looking_;  // guards what follows
  // Made when it is first needed; the server ends it when nobody looks for long.
  std::unique_ptr<Connection> connection_;
  // The last answer, if it was that, so as not to ask at every look. Rights may need a new session to be seen.
  View denied_;
  Clock::time_point ask_again_{};
};

}  // namespace hierlock::mysql
