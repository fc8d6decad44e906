// What the tool's exit codes mean; the numbers of sysexits.h where it has one.
#pragma once

namespace hierlock::cli {

enum ExitCode : int {
  exit_ok = 0,
  exit_usage = 64,        // an unknown option, a malformed target or URL
  exit_unavailable = 69,  // the store cannot be reached
  exit_lost = 70,         // a lock was lost, or the tool itself failed
  exit_io = 74,           // the output could not be written
  exit_not_acquired = 75,
  exit_denied = 77,
  exit_setup = 78,  // not provisioned, unsafe or incompatible
};

}  // namespace hierlock::cli
