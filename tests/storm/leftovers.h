// Leftovers: what a table must look like when everybody is gone.
#pragma once

#include "supervisor.h"
#include "witness.h"

namespace storm {

// Nobody holds or waits, everything can be locked at once, and in a file there is as much room for processes, owners
// and locks as in one that was never used.
void look_for_leftovers(const Witness& witness, const Options& options, const Store& store);

}  // namespace storm
