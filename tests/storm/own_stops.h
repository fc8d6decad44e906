// OwnStops: a worker stops itself now and then inside the engine, between any two of its shared stores, and so often
// while it has a latch. A signal from outside hardly ever comes at such a moment. The supervisor lets it go on.
#pragma once

#include <cstdint>

#include "witness.h"

namespace storm {

// From here on this process does so, once in about `stores` shared stores, until the witness says stop.
void stop_oneself_now_and_then(const Witness& witness, Row& row, std::uint64_t seed, std::uint32_t stores);

}  // namespace storm
