// exec: runs a command while holding locks.
#pragma once

#include "cli/arguments.h"

namespace hierlock::cli {

// Returns the exit code. Throws UsageError and Error as run() tells them.
int exec(const ExecCommand& command);

}  // namespace hierlock::cli
