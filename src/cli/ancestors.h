// Ancestors: commands that this process runs inside of, because an `exec` inside another may wait for itself.
#pragma once

#include <optional>
#include <span>

#include <hierlock/snapshot.h>
#include <hierlock/target.h>

namespace hierlock::cli {

// Of those who hold what the targets need, one that is an ancestor of this process. It costs a look at /proc, so it is
// for when somebody is in the way.
std::optional<Snapshot::Party> ancestor_in_the_way(const Snapshot& snapshot, std::span<const Target> targets);

}  // namespace hierlock::cli
