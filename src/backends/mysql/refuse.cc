#include "mysql/refuse.h"

#include <string>

#include <hierlock/error.h>

namespace hierlock::mysql {

void refuse_what_rows_cannot_say(const spi::Plan& plan, unsigned levels) {
  for (const spi::Step& step : plan.steps()) {
    const auto node = [&] { return spi::describe_key(step.space, step.key); };
    if (step.space == Space::name) {
      throw Error(ErrorKind::unsupported, node() +
                                              ": mysql: has no names yet, only paths; lock a path in its place, such "
                                              "as names/token-refresh");
    }
    if (step.space != Space::path) {
      throw Error(ErrorKind::unsupported, node() + ": mysql: has no slots yet, only paths");
    }
    if (step.level >= levels) {
      throw Error(ErrorKind::invalid_argument,
                  node() + " has more levels than the " + std::to_string(levels) +
                      " that this table was made for: shorten it, or provision another table= with more --levels, for "
                      "everybody");
    }
    if (step.mode == Mode::S && step.asked && step.level + 1u != levels) {
      throw Error(ErrorKind::unsupported,
                  "shared " + node() +
                      ": rows have no intention modes, so mysql: can share at the deepest level only (level " +
                      std::to_string(levels - 1) + ")");
    }
  }
}

}  // namespace hierlock::mysql
