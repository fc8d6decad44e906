// explain: what locking targets means, as text or JSON.
#pragma once

#include <string>

#include "cli/arguments.h"

namespace hierlock::cli {

std::string explain(const ExplainCommand& command);

}  // namespace hierlock::cli
