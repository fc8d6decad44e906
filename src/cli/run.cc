#include "cli/run.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include <hierlock/error.h>

#include "cli/arguments.h"
#include "cli/collisions.h"
#include "cli/exit_codes.h"
#include "cli/explain.h"
#include "cli/output.h"
#include "plan/text.h"

namespace hierlock::cli {
namespace {

int exit_code(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::timeout:
    case ErrorKind::busy:
    case ErrorKind::deadlock:
    case ErrorKind::cancelled:
    case ErrorKind::exhausted:
    case ErrorKind::conflict:
    case ErrorKind::serialization:
      return exit_not_acquired;
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

// Nothing that came from outside may break the line or speak to the terminal.
int fail(int code, const std::string& message) {
  std::fprintf(stderr, "hierlock: %s\n", plan::showable(message).c_str());
  return code;
}

struct Output {
  std::string operator()(const PrintCommand& command) const { return command.text; }
  std::string operator()(const ExplainCommand& command) const { return explain(command); }
  std::string operator()(const CollisionsCommand& command) const { return collisions(command); }
};

int run_or_throw(int argc, const char* const* argv) {
  const std::span<const char* const> all(argv, static_cast<std::size_t>(argc));
  const Command command = read_arguments(all.subspan(all.empty() ? 0 : 1), std::getenv("HIERLOCK_URL"));
  if (!write_out(std::visit(Output{}, command))) {
    return fail(exit_io, std::string("cannot write the output: ") + std::strerror(errno) +
                             "; send stdout somewhere that can take it");
  }
  return exit_ok;
}

}  // namespace

int run(int argc, const char* const* argv) noexcept {
  try {
    try {
      return run_or_throw(argc, argv);
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
