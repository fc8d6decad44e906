// What the tool's exit codes mean; the numbers of sysexits.h where it has one, and a shell's for what a command does.
#pragma once

namespace hierlock::cli {

enum ExitCode : int {
  exit_ok = 0,
  exit_nothing_broken = 1,  // break: nobody held it, or the answer was no
  exit_usage = 64,          // an unknown option, a malformed target or URL
  exit_unavailable = 69,    // the store cannot be reached, or has no room
  exit_lost = 70,           // a lock was lost, or the tool itself failed
  exit_io = 74,             // the output could not be written
  exit_not_acquired = 75,
  exit_denied = 77,
  exit_setup = 78,        // not provisioned, unsafe or incompatible
  exit_cannot_run = 126,  // exec: the command is there but cannot be run
  exit_not_found = 127,   // exec: there is no such command
  exit_by_signal = 128,   // and the signal's number
};

}  // namespace hierlock::cli
