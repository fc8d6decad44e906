// doctor: what is unsafe or slow about a store, and the fix (H17).
#pragma once

#include <span>
#include <string>

#include <hierlock/operate.h>

#include "cli/arguments.h"

namespace hierlock::cli {

// Returns the exit code: 78 if anything is unsafe. Throws UsageError and Error as run() tells them.
int doctor(const DoctorCommand& command);

// What it prints, of a store with that name.
std::string doctor_of(const std::string& store, std::span<const Finding> findings, bool json);

}  // namespace hierlock::cli
