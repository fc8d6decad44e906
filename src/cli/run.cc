#include "cli/run.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include <hierlock/error.h>

#include "cli/arguments.h"
#include "cli/break.h"
#include "cli/collisions.h"
#include "cli/doctor.h"
#include "cli/exec.h"
#include "cli/exit_codes.h"
#include "cli/explain.h"
#include "cli/output.h"
#include "cli/programs.h"
#include "cli/provision.h"
#include "cli/status.h"
#include "cli/store.h"
#include "plan/text.h"

namespace hierlock::cli {
namespace {

int exit_code(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::timeout:
    case ErrorKind::busy:
    case ErrorKind::deadlock:
    case ErrorKind::cancelled:
    case ErrorKind::conflict:
    case ErrorKind::serialization:
      return exit_not_acquired;
    case ErrorKind::exhausted:
    case ErrorKind::unavailable:
      return exit_unavailable;
    case ErrorKind::lost:
      return exit_lost;
    case ErrorKind::denied:
      return exit_denied;
    case ErrorKind::not_provisioned:
    case ErrorKind::unsafe_topology:
    case ErrorKind::incompatible:
      return exit_setup;
    case ErrorKind::unsupported:
    case ErrorKind::invalid_argument:
      return exit_usage;
  }
  return exit_lost;
}

int fail(int code, const std::string& message) {
  complain(message);
  return code;
}

// Whoever starts the tool without stdin, stdout or stderr leaves their numbers free for the next file that is opened.
// Were that the lock table, a command could print into it. So the numbers are taken, by something that can neither be
// read nor written and is closed for a command as it was for us.
void fill_standard_files() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(file, F_GETFD) < 0) static_cast<void>(::open("/", O_PATH | O_CLOEXEC));  // the lowest number that is free
  }
}

struct Do {
  int (*lab)(const LabCommand&);

  int operator()(const PrintCommand& command) const { return print(command.text); }
  int operator()(const ExecCommand& command) const { return exec(command); }
  int operator()(const StatusCommand& command) const { return status(command); }
  int operator()(const BreakCommand& command) const { return break_locks(command); }
  int operator()(const ExplainCommand& command) const { return print(explain(command)); }
  int operator()(const CollisionsCommand& command) const { return print(collisions(command)); }
  int operator()(const ProvisionCommand& command) const { return provision(command); }
  int operator()(const DoctorCommand& command) const { return doctor(command); }
  int operator()(const LabCommand& command) const {
    if (lab == nullptr) throw AnotherProgram{"lab", "lab", built_with_lab, "configure it with -DHIERLOCK_LAB=ON"};
    return lab(command);
  }
};

int run_or_throw(int argc, const char* const* argv, int (*lab)(const LabCommand&)) {
  fill_standard_files();
  const std::span<const char* const> all(argv, static_cast<std::size_t>(argc));
  return std::visit(Do{lab}, read_arguments(all.subspan(all.empty() ? 0 : 1), std::getenv("HIERLOCK_URL")));
}

// The program that has what this one lacks, see programs.h.
int take_over(const AnotherProgram& other, const char* const* argv) {
  for (const std::string& program : places_of_program(other.scheme)) {
    execv(program.c_str(), const_cast<char* const*>(argv));
    if (errno != ENOENT && errno != ENOTDIR) {
      return fail(exit_usage, "cannot run " + plan::showable(program) + ": " + std::strerror(errno));
    }
  }
  return fail(exit_usage, missing_program(other, own_folder()));
}

}  // namespace

int run(int argc, const char* const* argv, int (*lab)(const LabCommand&)) noexcept {
  try {
    try {
      return run_or_throw(argc, argv, lab);
    } catch (const AnotherProgram& other) {
      return take_over(other, argv);
    } catch (const UsageError& error) {
      return fail(exit_usage, error.what());
    } catch (const Error& error) {
      return fail(exit_code(error.kind()), error.what());
    } catch (const std::exception& error) {
      return fail(exit_lost, std::string("internal error: ") + error.what());
    }
  } catch (...) {
    std::fputs("hierlock: out of memory\n", stderr);
    return exit_lost;
  }
}

}  // namespace hierlock::cli
