// Arguments: the command line, read and checked. Knows the options; does nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include <hierlock/target.h>

namespace hierlock::cli {

// Something to print and be done: --help, --version.
struct PrintCommand {
  std::string text;
};

struct ExplainCommand {
  std::vector<Target> targets;
  std::uint32_t buckets = 0;
  bool json = false;
};

struct CollisionsCommand {
  std::vector<std::uint64_t> ids;  // of each level, from the root
  std::uint32_t buckets = 0;
  std::uint64_t at_once = 0;
  bool json = false;
};

using Command = std::variant<PrintCommand, ExplainCommand, CollisionsCommand>;

// One line that says what is wrong with the command line and how to put it right.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// `arguments` without the program's name; `url` is HIERLOCK_URL, or null. Throws UsageError, or Error for a bad target.
Command read_arguments(std::span<const char* const> arguments, const char* url);

// Every option of a command (of the tool itself, if empty), to compare with what the help tells.
std::vector<std::string> option_names(const std::string& command);

// The text of --help.
std::string help(const std::string& command);

}  // namespace hierlock::cli
