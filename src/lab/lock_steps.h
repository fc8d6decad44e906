// Lock steps: locks of hierlock itself in a scenario.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <hierlock/target.h>

#include "lab/reader.h"

namespace hierlock::lab {

struct LockStep {
  enum class Kind : std::uint8_t { acquire, extend, release };
  Kind kind = Kind::acquire;
  std::vector<Target> targets{};                      // of a release: none means all
  std::optional<std::chrono::nanoseconds> timeout{};  // zero: no wait
  bool operator==(const LockStep&) const = default;
};

// Reads the step between two places of the current line. Fails at what it does not understand.
LockStep read_lock_step(Reader& reader, std::size_t begin, std::size_t end);

}  // namespace hierlock::lab
