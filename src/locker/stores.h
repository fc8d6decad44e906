// The stores that this program has: those of the core, and those that were enabled.
#pragma once

#include <string>

#include <hierlock/spi/store.h>

namespace hierlock {

// Throws unsupported, and says what to do about it.
spi::Store find_store(const std::string& scheme);

}  // namespace hierlock
