// The only file that knows CLI11.
#include "cli/arguments.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <string_view>

#include <hierlock/error.h>
#include <hierlock/locker.h>
#include <hierlock/spi/plan.h>
#include <hierlock/spi/url.h>
#include <hierlock/version.h>

#include "plan/buckets.h"
#include "plan/text.h"

namespace hierlock::cli {
namespace {

constexpr std::uint64_t max_ids = 1'000'000'000'000;
constexpr std::uint32_t max_buckets = 2'147'483'647;  // H3: the column is a signed INT

[[noreturn]] void refuse(const std::string& message) { throw UsageError(message); }

// A number from 1 to `limit`, which may end in k, M, G or T.
std::uint64_t read_number(std::string_view text, const std::string& option, std::uint64_t limit) {
  const auto bad = [&] {
    refuse(option + " " + plan::excerpt(text, 30) + " is not a number from 1 to " + std::to_string(limit) +
           "; write it like 1000000 or 1M");
  };
  std::string_view digits = text;
  std::uint64_t unit = 1;
  for (const auto& [suffix, value] :
       {std::pair{'k', std::uint64_t{1'000}}, std::pair{'M', std::uint64_t{1'000'000}},
        std::pair{'G', std::uint64_t{1'000'000'000}}, std::pair{'T', std::uint64_t{1'000'000'000'000}}}) {
    if (digits.ends_with(suffix)) {
      unit = value;
      digits.remove_suffix(1);
      break;
    }
  }
  if (digits.empty() || digits.size() > 13) bad();
  std::uint64_t number = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') bad();
    number = number * 10 + static_cast<std::uint64_t>(digit - '0');
  }
  if (number == 0 || number > limit / unit) bad();
  return number * unit;
}

std::vector<std::uint64_t> read_ids(std::string_view text) {
  std::vector<std::uint64_t> ids;
  for (;;) {
    const std::size_t comma = text.find(',');
    ids.push_back(read_number(text.substr(0, comma), "--ids", max_ids));
    if (comma == text.npos) break;
    text.remove_prefix(comma + 1);
  }
  if (ids.size() > max_depth) {
    refuse("--ids has " + std::to_string(ids.size()) + " numbers; give one for each level, at most " +
           std::to_string(max_depth));
  }
  return ids;
}

// Throws UsageError unless `text` names a store of this build; `from` says where it was given.
void check_url(const std::string& text, const std::string& from) {
  const spi::Url url = [&] {
    try {
      return spi::Url::parse(text);
    } catch (const std::exception& error) {
      refuse(from + ": " + error.what());
    }
  }();
  if (url.scheme == "memory") {
    if (url.rest.empty() && url.options.empty()) return;
    try {
      open(text);  // the store knows its own options
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::invalid_argument) throw;
      refuse(from + ": " + error.what());
    }
    return;
  }
  constexpr std::string_view others[] = {"shm", "mysql", "postgres", "valkey", "etcd"};
  if (std::find(std::begin(others), std::end(others), url.scheme) != std::end(others)) {
    refuse(from + ": this build has no " + url.scheme + " store; use memory:");
  }
  refuse(from + ": there is no store " + plan::excerpt(url.scheme) + "; use memory:");
}

// CLI11 takes "[a,b]" in a list apart, drops an empty argument, and does not take what follows "--" for more of a list
// that has begun. Ids may be any of this, so they travel behind a mark.
constexpr char mark = '\x01';
std::vector<std::string> marked(std::span<const char* const> arguments) {
  std::vector<std::string> out;
  bool only_ids = false;
  for (const std::string_view argument : arguments) {
    if (!only_ids && argument == "--") {
      only_ids = true;
      continue;
    }
    const bool needed = only_ids || argument.empty() || argument.front() == '[' || argument.front() == mark;
    out.push_back(needed ? mark + std::string(argument) : std::string(argument));
  }
  return out;
}
std::string unmarked(std::string_view argument) {
  if (argument.starts_with(mark)) argument.remove_prefix(1);
  return std::string(argument);
}

struct Options {
  CLI::App app{"", "hierlock"};
  CLI::App* explain = nullptr;
  CLI::App* collisions = nullptr;

  std::string on{};
  bool version = false;
  bool json = false;
  std::string buckets{};

  std::vector<std::string> targets{};
  bool shared = false;
  bool named = false;
  std::string slots{};

  std::string ids{};
  std::string at_once{};

  Options() {
    app.add_option("--on", on);
    app.add_flag("--version", version)->disable_flag_override();
    app.fallthrough();
    app.require_subcommand(0, 1);  // what follows a command is never another one, but may be an id of that name

    explain = app.add_subcommand("explain");
    explain->add_option("TARGET", targets);
    explain->add_flag("--shared", shared)->disable_flag_override();
    explain->add_flag("--named", named)->disable_flag_override();
    explain->add_option("--slots", slots);
    explain->add_option("--buckets", buckets);
    explain->add_flag("--json", json)->disable_flag_override();

    collisions = app.add_subcommand("collisions");
    collisions->add_option("--ids", ids);
    collisions->add_option("--buckets", buckets);
    collisions->add_option("--at-once", at_once);
    collisions->add_flag("--json", json)->disable_flag_override();
  }

  // The subcommand on the command line; null if there is none.
  const CLI::App* command() const {
    const auto given = app.get_subcommands();
    return given.empty() ? nullptr : given.front();
  }
};

std::uint32_t read_buckets(const CLI::App& command, const std::string& text) {
  if (command.count("--buckets") == 0) return plan::default_buckets;
  return static_cast<std::uint32_t>(read_number(text, "--buckets", max_buckets));
}

ExplainCommand read_explain(const Options& options) {
  const bool with_slots = options.explain->count("--slots") > 0;
  if (options.targets.empty()) refuse("explain: no target; write hierlock explain u1/a1/r1");
  if (options.named && with_slots) refuse("explain: --named and --slots exclude each other; remove one");
  ExplainCommand command;
  command.buckets = read_buckets(*options.explain, options.buckets);
  command.json = options.json;
  std::uint32_t slots = 0;
  if (with_slots) slots = static_cast<std::uint32_t>(read_number(options.slots, "--slots", max_slots));
  for (const std::string& text : options.targets) {
    Target target = options.named ? hierlock::named(text)
                    : with_slots  ? hierlock::slots(text, slots)
                                  : Target::parse(text);
    command.targets.push_back(options.shared ? hierlock::shared(std::move(target)) : std::move(target));
  }
  try {
    const spi::Plan together(command.targets);
  } catch (const Error& error) {
    refuse(error.what());
  }
  return command;
}

CollisionsCommand read_collisions(const Options& options) {
  if (options.collisions->count("--ids") == 0)
    refuse("collisions: --ids is missing; write hierlock collisions --ids 1M");
  CollisionsCommand command;
  command.ids = read_ids(options.ids);
  command.buckets = read_buckets(*options.collisions, options.buckets);
  command.at_once =
      options.collisions->count("--at-once") == 0 ? 100 : read_number(options.at_once, "--at-once", max_ids);
  command.json = options.json;
  return command;
}

// CLI11's words for the commonest mistakes do not tell the fix.
std::string retell(const Options& options, const CLI::ParseError& error) {
  const CLI::App* command = options.command();
  const std::string see =
      command != nullptr ? "; see hierlock " + command->get_name() + " --help" : "; see hierlock --help";
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    std::vector<std::string> extras = options.app.remaining(true);
    for (const std::string& extra : extras) {
      if (extra.starts_with('-')) return "unknown option " + plan::excerpt(extra) + see;
    }
    const std::string first = extras.empty() ? "" : unmarked(extras.front());
    if (command == nullptr) return "unknown command " + plan::excerpt(first) + "; use explain or collisions";
    return "unexpected argument " + plan::excerpt(first) + see;
  }
  std::string message = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    if (const auto at = message.find(" was given a disallowed flag override"); at != message.npos) {
      return "--" + message.substr(0, at) + " takes no value" + see;
    }
    const std::string option = message.substr(0, message.find(':'));
    return option +
           (message.ends_with("missing") ? " has no value" : " is there more than once, or has too many values") + see;
  }
  std::erase(message, mark);
  for (std::size_t at; (at = message.find('\n')) != message.npos;) message.replace(at, 1, " ");
  if (message.size() > 200) message = message.substr(0, 200) + "…";
  return message + see;
}

}  // namespace

Command read_arguments(std::span<const char* const> arguments, const char* url) {
  Options options;
  std::vector<std::string> texts = marked(arguments);
  std::reverse(texts.begin(), texts.end());  // CLI11 reads them from the back
  try {
    options.app.parse(texts);
  } catch (const CLI::CallForHelp&) {
    const CLI::App* command = options.command();
    return PrintCommand{help(command == nullptr ? "" : command->get_name())};
  } catch (const CLI::ParseError& error) {
    refuse(retell(options, error));
  }
  for (std::string* value : {&options.on, &options.buckets, &options.slots, &options.ids, &options.at_once}) {
    *value = unmarked(*value);
  }
  for (std::string& target : options.targets) target = unmarked(target);
  if (options.version) return PrintCommand{"hierlock " HIERLOCK_VERSION "\n"};

  if (options.app.count("--on") > 0) {
    check_url(options.on, "--on");
  } else if (url != nullptr && *url != '\0') {
    check_url(url, "HIERLOCK_URL");
  }
  if (options.command() == options.explain) return read_explain(options);
  if (options.command() == options.collisions) return read_collisions(options);
  refuse("no command; use explain or collisions, or see hierlock --help");
}

std::vector<std::string> option_names(const std::string& command) {
  const Options options;
  const CLI::App* app = command == "explain"      ? options.explain
                        : command == "collisions" ? options.collisions
                                                  : &options.app;
  std::vector<std::string> names;
  for (const CLI::Option* option : app->get_options()) names.push_back(option->get_name(false, false));
  return names;
}

}  // namespace hierlock::cli
