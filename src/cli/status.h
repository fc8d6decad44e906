// status: who holds what, who waits, and for whom; as text, JSON, a graph, or a screen that is drawn again and again.
#pragma once

#include <string>

#include <hierlock/snapshot.h>

#include "cli/arguments.h"

namespace hierlock::cli {

// Returns the exit code. Throws UsageError and Error as run() tells them.
int status(const StatusCommand& command);

// One picture of a snapshot, in the form that is asked for; text has no line wider than `width`.
std::string status_of(const Snapshot& snapshot, const StatusCommand& command, std::size_t width);

}  // namespace hierlock::cli
