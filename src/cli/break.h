// break: an operator's forced release.
#pragma once

#include "cli/arguments.h"

namespace hierlock::cli {

// Returns the exit code. Throws UsageError and Error as run() tells them.
int break_locks(const BreakCommand& command);

}  // namespace hierlock::cli
