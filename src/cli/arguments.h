// Arguments: the command line, read and checked. Knows the options; does nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include <hierlock/operate.h>
#include <hierlock/target.h>

#include "cli/exit_codes.h"
#include "cli/store.h"

namespace hierlock::cli {

// Something to print and be done: --help, --version.
struct PrintCommand {
  std::string text;
};

struct ExecCommand {
  StoreUrl store;
  std::vector<Target> targets;
  std::optional<std::chrono::nanoseconds> timeout;  // none: for ever; zero: not at all
  int conflict_exit_code = exit_not_acquired;
  std::string note;
  std::vector<std::string> command;  // the program and its arguments
};

struct StatusCommand {
  enum class Form : std::uint8_t { text, json, dot };
  StoreUrl store;
  std::optional<Target> target;  // only what has to do with it
  Form form = Form::text;
  bool all = false;  // also what is held only because of something below it
  bool watch = false;
  std::chrono::nanoseconds interval = std::chrono::seconds(1);
  std::uint64_t count = 0;  // how many frames; 0: no end
};

struct BreakCommand {
  StoreUrl store;
  Target target;
  std::string reason;
  bool yes = false;
  bool json = false;
};

struct DoctorCommand {
  StoreUrl store;
  bool json = false;
};

struct ExplainCommand {
  StoreUrl store;
  std::vector<Target> targets;
  std::uint32_t buckets = 0;
  bool json = false;
};

struct ProvisionCommand {
  StoreUrl store;
  ProvisionOptions options;
};

struct CollisionsCommand {
  std::vector<std::uint64_t> ids;  // of each level, from the root
  std::uint32_t buckets = 0;
  std::uint64_t at_once = 0;
  bool json = false;
};

struct LabCommand {
  enum class Action : std::uint8_t { run, list, permute, import };
  Action action = Action::run;
  std::vector<std::string> files;   // scenarios, and folders of them; none: those that come with hierlock
  std::vector<std::string> stores;  // URLs; none: those that need no server
  std::string report, junit;        // files to write; empty: none
  std::string expected;             // isolationtester's output of the spec; empty: none
  bool json = false;
  bool rewrite = false;
  bool verbose = false;                                // lanes of every scenario, not of failed ones only
  std::optional<std::chrono::nanoseconds> patience{};  // default: lab.h's
  std::vector<std::string> schedule;                   // names of steps
  std::optional<unsigned> side_by_side{};              // default: lab.h's

  bool pin = false;
  std::optional<unsigned> preemptions{};
  std::optional<std::uint64_t> random{}, most{};
  std::uint64_t seed = 1;
};

using Command = std::variant<PrintCommand, ExecCommand, StatusCommand, BreakCommand, ExplainCommand, CollisionsCommand,
                             DoctorCommand, ProvisionCommand, LabCommand>;

// One line that says what is wrong with the command line and how to put it right.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// `arguments` without the program's name; `url` is HIERLOCK_URL, or null. Throws UsageError, or Error for a bad target.
Command read_arguments(std::span<const char* const> arguments, const char* url);

// The commands, in the order the help tells them in.
std::span<const char* const> command_names();

// Every option of a command (of the tool itself, if empty), to compare with what the help tells.
std::vector<std::string> option_names(const std::string& command);

// The text of --help.
std::string help(const std::string& command);

}  // namespace hierlock::cli
