// lab: plays scenarios, lists them, plays them in every order.
#pragma once

#include "cli/arguments.h"

namespace hierlock::cli {

int lab(const LabCommand& command);

}  // namespace hierlock::cli
