// Quiet: how long it takes until the next waiter of a killed holder runs (B5), with few processes and nothing else.
#pragma once

#include <string>

#include "supervisor.h"
#include "witness.h"

namespace storm {

void measure_deaths(const Witness& witness, const Options& options, const std::string& table);

}  // namespace storm
