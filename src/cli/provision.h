// provision: makes the tables and rows of a store, and tells how far it is.
#pragma once

#include "cli/arguments.h"

namespace hierlock::cli {

int provision(const ProvisionCommand& command);

}  // namespace hierlock::cli
