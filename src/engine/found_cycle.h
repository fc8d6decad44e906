// FoundCycle: a deadlock that was found, in words and as data.
#pragma once

#include <string>
#include <vector>

#include <hierlock/error.h>

namespace hierlock::engine {

struct FoundCycle {
  std::string words;               // empty: there is none
  std::vector<Error::Wait> waits;  // as Error::cycle() says

  bool empty() const noexcept { return words.empty(); }
};

}  // namespace hierlock::engine
