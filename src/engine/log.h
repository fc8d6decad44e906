// Log: what happened in the table, as words for people and as data. The last 32 deadlocks, and the last 32 of
// all else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <hierlock/error.h>

#include "engine/parts.h"

namespace hierlock::engine {

class Log : Parts {
 public:
  explicit Log(const Parts& parts) : Parts(parts) {}

  struct Entry {
    std::string text;                  // cut after 300 bytes
    std::vector<std::string> targets;  // the nodes that it is about
    std::vector<Error::Wait> cycle{};  // of a deadlock, as Error::cycle()
    std::int64_t when = 0;             // nanoseconds of the wall clock; write_log() sets it
  };
  // An entry has room for 1,000 bytes. What does not fit is left out: targets and members of a cycle, from the last.
  void write_log(const Entry& entry) noexcept;
  std::vector<Entry> read_log() const;
};

}  // namespace hierlock::engine
