// Leftovers: what a table must look like when everybody is gone.
#pragma once

#include <string>

#include "supervisor.h"
#include "witness.h"

namespace storm {

// Nobody holds or waits, everything can be locked at once, and there is as much room for processes, owners and locks
// as in a table that was never used.
void look_for_leftovers(const Witness& witness, const Options& options, const std::string& table);

}  // namespace storm
