// Log: what happened to the table, for people. A ring of the last 64 entries.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/parts.h"

namespace hierlock::engine {

class Log : Parts {
 public:
  explicit Log(const Parts& parts) : Parts(parts) {}

  struct LogCopy {
    std::int64_t when;
    std::string text;
  };
  void write_log(std::string_view text) noexcept;
  std::vector<LogCopy> read_log() const;
};

}  // namespace hierlock::engine
