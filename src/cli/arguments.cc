// The only file that knows CLI11.
#include "cli/arguments.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <string_view>

#include <hierlock/error.h>
#include <hierlock/spi/plan.h>

#include "cli/version.h"
#include "plan/buckets.h"
#include "plan/path.h"
#include "plan/text.h"

namespace hierlock::cli {
namespace {

constexpr std::uint64_t max_ids = 1'000'000'000'000;
constexpr std::uint32_t max_buckets = 2'147'483'647;  // H3: the column is a signed INT

[[noreturn]] void refuse(const std::string& message) { throw UsageError(message); }

// A number from 1 to `limit`, which may end in k, M, G or T.
std::uint64_t read_number(std::string_view text, const std::string& option, std::uint64_t limit,
                          const std::string& like = "1000000 or 1M") {
  const auto bad = [&] {
    refuse(option + " " + plan::excerpt(text, 30) + " is not a number from 1 to " + std::to_string(limit) +
           "; write it like " + like);
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

int read_exit_code(const std::string& text) {
  const bool digits = !text.empty() && text.size() <= 3 && text.find_first_not_of("0123456789") == text.npos;
  if (!digits || std::stoi(text) > 255) {
    refuse("--conflict-exit-code " + plan::excerpt(text, 30) + " is no exit code; write a number from 0 to 255");
  }
  return std::stoi(text);
}

// `5s`, `250ms`, `1.5m`, `2h`, `1d`; a plain number counts seconds.
std::chrono::nanoseconds read_duration(std::string_view text, const std::string& option) {
  const auto bad = [&] {
    refuse(option + " " + plan::excerpt(text, 30) +
           " is not a duration of at most 3650d; write it like 5s, 250ms or 1m");
  };
  using namespace std::chrono_literals;
  constexpr std::pair<std::string_view, std::chrono::nanoseconds> units[] = {
      {"ms", 1ms}, {"s", 1s}, {"m", 1min}, {"h", 1h}, {"d", 24h}};
  std::string_view digits = text;
  std::chrono::nanoseconds unit = 1s;
  for (const auto& [suffix, value] : units) {
    if (!digits.ends_with(suffix)) continue;
    unit = value;
    digits.remove_suffix(suffix.size());
    break;
  }
  const std::string_view whole = digits.substr(0, digits.find('.'));
  const std::string_view part = whole.size() < digits.size() ? digits.substr(whole.size() + 1) : "0";
  if (whole.empty() || whole.size() > 12 || part.empty() || part.size() > 9) bad();
  for (const std::string_view number : {whole, part}) {
    if (number.find_first_not_of("0123456789") != number.npos) bad();
  }
  std::int64_t units_given = 0;
  for (const char digit : whole) units_given = units_given * 10 + (digit - '0');
  constexpr std::chrono::nanoseconds most = 3650 * 24h;
  if (units_given > most / unit) bad();
  std::chrono::nanoseconds sum = units_given * unit;
  std::chrono::nanoseconds place = unit;
  for (const char digit : part) {
    place /= 10;
    sum += (digit - '0') * place;
  }
  return sum;
}

// The command on the command line, or nothing. Only --on has a value that could be taken for one.
std::string_view command_word(std::span<const char* const> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--on") {
      ++i;
    } else if (!argument.starts_with('-')) {
      return argument;
    }
  }
  return {};
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

constexpr const char* commands[] = {"exec",      "status", "break", "explain", "collisions",
                                    "provision", "doctor", "lab",   "help"};
constexpr const char* command_list = "exec, status, break, explain, collisions, provision, doctor, lab or help";

// Knows the options of one command only: those of the others would take their time in every `exec`.
struct Options {
  CLI::App app{"", "hierlock"};
  CLI::App* command = nullptr;  // null: none of ours was asked for

  std::string on{};
  bool version = false;
  bool json = false;
  std::string buckets{};

  std::vector<std::string> targets{};
  bool shared = false;
  bool named = false;
  std::string slots{};

  std::string timeout{};
  bool no_wait = false;
  std::string conflict_exit_code{};
  std::string note{};

  bool dot = false;
  bool all = false;
  bool watch = false;
  std::string interval{};
  std::string count{};

  bool yes = false;
  std::string reason{};

  std::string ids{};
  std::string at_once{};

  std::string levels{};
  std::string chunk{};
  std::string throttle{};

  std::vector<std::string> stores{};
  std::vector<std::string> words{};
  std::string report{};
  std::string junit{};
  std::string expected{};
  std::string side_by_side{};
  bool rewrite = false;
  bool verbose = false;
  std::string patience{};
  std::string schedule{};
  bool pin = false;
  std::string preemptions{};
  std::string random{};
  std::string most{};
  std::string seed{};

  std::string topic{};

  explicit Options(std::string_view wanted) {
    if (wanted == "lab") {
      app.add_option("--on", stores)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    } else {
      app.add_option("--on", on);
    }
    flag(app, "--version", version);
    app.fallthrough();
    app.require_subcommand(0, 1);  // what follows a command is never another one, but may be an id of that name
    for (const char* name : commands) {
      if (wanted == name) command = app.add_subcommand(name);
    }
    if (command == nullptr) return;
    if (wanted == "exec") {
      add_targets("-s,--shared");  // the letters are those of flock(1)
      command->add_option("-w,--timeout", timeout);
      flag(*command, "-n,--no-wait", no_wait);
      command->add_option("-E,--conflict-exit-code", conflict_exit_code);
      command->add_option("--note", note);
    } else if (wanted == "status") {
      command->add_option("TARGET", targets);
      flag(*command, "--all", all);
      flag(*command, "--json", json);
      flag(*command, "--dot", dot);
      flag(*command, "--watch", watch);
      command->add_option("--interval", interval);
      command->add_option("--count", count);
    } else if (wanted == "break") {
      add_targets();
      flag(*command, "--yes", yes);
      command->add_option("--reason", reason);
      flag(*command, "--json", json);
    } else if (wanted == "explain") {
      add_targets();
      command->add_option("--buckets", buckets);
      flag(*command, "--json", json);
    } else if (wanted == "collisions") {
      command->add_option("--ids", ids);
      command->add_option("--buckets", buckets);
      command->add_option("--at-once", at_once);
      flag(*command, "--json", json);
    } else if (wanted == "provision") {
      command->add_option("--buckets", buckets);
      command->add_option("--levels", levels);
      command->add_option("--chunk", chunk);
      command->add_option("--throttle", throttle);
    } else if (wanted == "doctor") {
      flag(*command, "--json", json);
    } else if (wanted == "lab") {
      command->add_option("FILE", words);
      command->add_option("--report", report);
      command->add_option("--junit", junit);
      command->add_option("--expected", expected);
      flag(*command, "--json", json);
      flag(*command, "--rewrite", rewrite);
      flag(*command, "--verbose", verbose);
      command->add_option("--patience", patience);
      command->add_option("--schedule", schedule);
      command->add_option("--side-by-side", side_by_side);
      flag(*command, "--pin", pin);
      command->add_option("--preemptions", preemptions);
      command->add_option("--random", random);
      command->add_option("--most", most);
      command->add_option("--seed", seed);
    } else {
      command->add_option("COMMAND", topic);
    }
  }

  // Whether the command was given the option.
  bool given(const char* option) const { return command->count(option) > 0; }

  void unmark() {
    for (std::string* value : {&on,      &buckets,  &slots,    &timeout,  &conflict_exit_code,
                               &note,    &interval, &count,    &reason,   &ids,
                               &at_once, &levels,   &chunk,    &throttle, &topic,
                               &report,  &junit,    &patience, &schedule, &preemptions,
                               &random,  &most,     &seed,     &expected, &side_by_side}) {
      *value = unmarked(*value);
    }
    for (auto* values : {&targets, &stores, &words}) {
      for (std::string& value : *values) value = unmarked(value);
    }
  }

 private:
  static void flag(CLI::App& of, const char* name, bool& value) { of.add_flag(name, value)->disable_flag_override(); }
  void add_targets(const char* shared_names = "--shared") {
    command->add_option("TARGET", targets);
    flag(*command, shared_names, shared);
    flag(*command, "--named", named);
    command->add_option("--slots", slots);
  }
};

std::uint32_t read_buckets(const Options& options) {
  if (!options.given("--buckets")) return plan::default_buckets;
  return static_cast<std::uint32_t>(read_number(options.buckets, "--buckets", max_buckets));
}

// What was probably meant by the text of a path that is none for a person. `id` is what stands for it as one.
[[noreturn]] void refuse_lookalike(const std::string& text, const std::string& id) {
  const std::string what = plan::excerpt(text);
  constexpr std::size_t most_repeated = 100;
  if (text.size() > most_repeated) refuse(what + " is not a path; write %20 for a space in an id");
  std::string_view rest = text;
  const auto trim = [&] {
    const std::size_t begin = std::min(rest.find_first_not_of(plan::blanks), rest.size());
    rest = rest.substr(begin, rest.find_last_not_of(plan::blanks) + 1 - begin);
  };
  const auto cut = [&](std::string_view keyword) {
    if (!rest.starts_with(keyword) || rest.size() == keyword.size()) return false;
    if (plan::blanks.find(rest[keyword.size()]) == plan::blanks.npos) return false;
    rest.remove_prefix(keyword.size());
    trim();
    return true;
  };
  trim();
  const bool shared = cut("shared");
  const std::string mode = shared ? "shared " : "";
  const std::string or_id = ", or " + mode + id + " if it is an id";
  if (cut("named")) refuse(what + " is not a name; write '" + mode + "named " + plan::quote(rest) + "'" + or_id);
  if (cut("slots")) {
    const std::size_t last = rest.find_last_of(plan::blanks);
    const std::string_view end = last == rest.npos ? "" : rest.substr(last + 1);
    const bool number = !end.empty() && end.find_first_not_of("0123456789") == end.npos;
    if (number) rest = rest.substr(0, rest.find_last_not_of(plan::blanks, last) + 1);
    refuse(what + " is not a slots target; write 'slots " + plan::quote(rest) + " " +
           (number ? std::string(end) : "N") + "'" + or_id);
  }
  if (cut("exclusive"))
    refuse(what + ": a path is always exclusive without \"shared\"; write " + std::string(rest) + or_id);
  const std::string plain = mode + std::string(rest);
  refuse(what + " begins or ends with white space; write " + (shared ? "'" + plain + "'" : plain) + or_id);
}

// The text of a target. Blanks are part of an id, but one that looks like something else is more likely a mistake, and
// a lock on something that nobody else locks.
Target read_target(const std::string& text) {
  if (text.starts_with('/')) {
    refuse("a target is no file, so " + plan::excerpt(text) + " does not begin with \"/\"; write " +
           plan::excerpt(text.substr(1)) + " for a path of ids, or --named " + plan::excerpt(text) + " for a name");
  }
  Target target = Target::parse(text);
  if (target.space() != Space::path) return target;
  constexpr std::string_view shared = "shared ";
  const std::string path = text.substr(target.is_shared() ? shared.size() : 0);
  for (const std::string_view id : {".", ".."}) {
    if (("/" + path + "/").find("/" + std::string(id) + "/") == std::string::npos) continue;
    refuse("a target is no file, so " + plan::excerpt(path) + " has no place for \"" + std::string(id) +
           "\"; write the ids from the root, as in u1/a1/r1, or --named for a name");
  }
  std::string id = path;
  plan::escape_lookalike(id);
  if (id != path) refuse_lookalike(text, id);
  return target;
}

// `named "x"` without quotes around all of it arrives as two arguments, and would be two paths.
void refuse_split_target(const std::vector<std::string>& texts) {
  for (std::size_t i = 0; i + 1 < texts.size(); ++i) {
    const std::string& word = texts[i];
    if (word != "named" && word != "slots" && word != "shared" && word != "exclusive") continue;
    refuse(plan::excerpt(word) + " and " + plan::excerpt(texts[i + 1]) + " are two targets; write " +
           (word == "named"    ? "'named " + plan::quote(texts[i + 1]) + "'"
            : word == "slots"  ? "'slots " + plan::quote(texts[i + 1]) + " N'"
            : word == "shared" ? "'shared " + texts[i + 1] + "'"
                               : texts[i + 1]) +
           " for one, or put " + plan::excerpt(word) + " last if it is an id");
  }
}

// The targets as the flags say they are to be read, which can be locked together.
std::vector<Target> read_targets(const Options& options) {
  const std::string name = options.command->get_name();
  const bool with_slots = options.given("--slots");
  if (options.targets.empty()) {
    refuse(name + ": no target; write hierlock " + name + " u1/a1/r1" + (name == "exec" ? " -- COMMAND" : ""));
  }
  if (options.named && with_slots) refuse(name + ": --named and --slots exclude each other; remove one");
  std::uint32_t slots = 0;
  if (with_slots) slots = static_cast<std::uint32_t>(read_number(options.slots, "--slots", max_slots, "3"));
  if (!options.named && !with_slots) refuse_split_target(options.targets);
  std::vector<Target> targets;
  for (const std::string& text : options.targets) {
    Target target = options.named ? hierlock::named(text)
                    : with_slots  ? hierlock::slots(text, slots)
                                  : read_target(text);
    targets.push_back(options.shared ? hierlock::shared(std::move(target)) : std::move(target));
  }
  try {
    const spi::Plan together(targets);
  } catch (const Error& error) {
    refuse(error.what());
  }
  return targets;
}

// For commands that know what to do with one target at most.
void refuse_second_target(const Options& options) {
  if (options.targets.size() < 2) return;
  const std::string name = options.command->get_name();
  refuse(name + ": more than one target; remove " + plan::excerpt(options.targets[1]) + ", or run hierlock " + name +
         " once for each");
}

ExecCommand read_exec(const Options& options, const StoreUrl& store,
                      std::optional<std::span<const char* const>> command_line) {
  if (!command_line || command_line->empty()) {
    refuse("exec: no command; write hierlock exec TARGET -- COMMAND, with the -- before the command");
  }
  ExecCommand command;
  command.store = store;
  command.targets = read_targets(options);
  if (options.no_wait && options.given("--timeout")) {
    refuse("exec: --no-wait and --timeout exclude each other; remove one");
  }
  if (options.no_wait) command.timeout = std::chrono::nanoseconds::zero();
  if (options.given("--timeout")) command.timeout = read_duration(options.timeout, "--timeout");
  if (options.given("--conflict-exit-code")) {
    command.conflict_exit_code = read_exit_code(options.conflict_exit_code);
  }
  command.note = options.note;
  command.command.assign(command_line->begin(), command_line->end());
  return command;
}

StatusCommand read_status(const Options& options, const StoreUrl& store) {
  refuse_second_target(options);
  if (options.json + options.dot + options.watch > 1) {
    refuse("status: --json, --dot and --watch exclude each other; keep one");
  }
  if (!options.watch && (options.given("--interval") || options.given("--count"))) {
    refuse("status: --interval and --count are for --watch; add it");
  }
  StatusCommand command;
  command.store = store;
  if (!options.targets.empty()) command.target = read_target(options.targets.front());
  command.form = options.json  ? StatusCommand::Form::json
                 : options.dot ? StatusCommand::Form::dot
                               : StatusCommand::Form::text;
  command.all = options.all;
  command.watch = options.watch;
  if (options.given("--interval")) {
    command.interval = read_duration(options.interval, "--interval");
    if (command.interval < std::chrono::milliseconds(50)) refuse("--interval is too short; use 50ms or more");
  }
  if (options.given("--count")) command.count = read_number(options.count, "--count", max_ids);
  return command;
}

BreakCommand read_break(const Options& options, const StoreUrl& store) {
  std::vector<Target> targets = read_targets(options);
  refuse_second_target(options);
  return {.store = store,
          .target = std::move(targets.front()),
          .reason = options.reason,
          .yes = options.yes,
          .json = options.json};
}

ExplainCommand read_explain(const Options& options, const StoreUrl& store) {
  ExplainCommand command;
  command.store = store;
  command.targets = read_targets(options);
  command.buckets = read_buckets(options);
  command.json = options.json;
  return command;
}

CollisionsCommand read_collisions(const Options& options) {
  if (!options.given("--ids")) refuse("collisions: --ids is missing; write hierlock collisions --ids 1M");
  CollisionsCommand command;
  command.ids = read_ids(options.ids);
  command.buckets = read_buckets(options);
  command.at_once = options.given("--at-once") ? read_number(options.at_once, "--at-once", max_ids) : 100;
  command.json = options.json;
  return command;
}

ProvisionCommand read_provision(const Options& options, const StoreUrl& store) {
  ProvisionCommand command{.store = store, .options = {}};
  if (options.given("--buckets")) command.options.buckets = read_buckets(options);
  if (options.given("--levels")) {
    command.options.levels = static_cast<unsigned>(read_number(options.levels, "--levels", max_depth, "3"));
  }
  if (options.given("--chunk")) {
    command.options.chunk = static_cast<std::uint32_t>(read_number(options.chunk, "--chunk", 1'000'000, "50k"));
  }
  if (options.given("--throttle")) {
    command.options.throttle = read_number(options.throttle, "--throttle", max_ids, "100k");
  }
  return command;
}

// An empty one is most often a variable that somebody forgot to set: shm: would then exclude nobody on other machines.
const char* given_url(const char* url) {
  if (*url == '\0') refuse("HIERLOCK_URL is empty: name a store, or unset it to use shm: of this machine");
  return url;
}

LabCommand read_lab(const Options& options, const char* url) {
  LabCommand command;
  const std::string action = options.words.empty() ? "" : options.words.front();
  if (action == "list") {
    command.action = LabCommand::Action::list;
  } else if (action == "permute") {
    command.action = LabCommand::Action::permute;
  } else if (action == "import") {
    command.action = LabCommand::Action::import;
  } else if (action != "run") {
    refuse((action.empty() ? "lab: no command" : "unknown lab command " + plan::excerpt(action)) +
           "; use run, list, permute or import");
  }
  command.files.assign(options.words.begin() + 1, options.words.end());
  const bool permutes = command.action == LabCommand::Action::permute;
  const bool runs = command.action == LabCommand::Action::run;
  for (const char* option : {"--report", "--junit", "--rewrite", "--verbose", "--schedule", "--side-by-side"}) {
    if (!runs && options.given(option)) refuse("lab " + action + ": " + option + " is for lab run; remove it");
  }
  for (const char* option : {"--pin", "--preemptions", "--random", "--most", "--seed"}) {
    if (!permutes && options.given(option)) refuse("lab " + action + ": " + option + " is for lab permute; remove it");
  }
  if (permutes && command.files.size() != 1) refuse("lab permute: one file; write lab permute FILE");
  const bool imports = command.action == LabCommand::Action::import;
  if (!imports && options.given("--expected")) {
    refuse("lab " + action + ": --expected is for lab import; remove it");
  }
  if (imports && command.files.size() != 1) refuse("lab import: one file; write lab import FILE.spec");
  if (imports && options.given("--json")) refuse("lab import: --json is for the other commands; remove it");
  command.stores = options.stores;
  if (imports && command.stores.size() > 1) refuse("lab import: more than one --on; use one PostgreSQL server");
  if (!imports && command.stores.empty() && url != nullptr) command.stores.emplace_back(given_url(url));
  if (permutes && command.stores.size() > 1) refuse("lab permute: more than one --on; run it once for each");
  command.report = options.report;
  command.junit = options.junit;
  command.expected = options.expected;
  command.json = options.json;
  command.rewrite = options.rewrite;
  command.verbose = options.verbose;
  if (options.given("--patience")) command.patience = read_duration(options.patience, "--patience");
  for (std::string_view rest = options.schedule; !rest.empty();) {
    const std::size_t end = std::min(rest.find_first_of(" ,"), rest.size());
    if (end > 0) command.schedule.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (!command.schedule.empty() && (command.files.size() != 1 || command.rewrite)) {
    refuse("lab run: --schedule is for one file, and without --rewrite");
  }
  if (options.given("--side-by-side")) {
    command.side_by_side = static_cast<unsigned>(read_number(options.side_by_side, "--side-by-side", 64, "8"));
  }
  command.pin = options.pin;
  if (options.given("--preemptions")) {
    command.preemptions = options.preemptions == "0"
                              ? 0u
                              : static_cast<unsigned>(read_number(options.preemptions, "--preemptions", 1000, "2"));
  }
  if (options.given("--random")) command.random = read_number(options.random, "--random", max_ids, "1000");
  if (options.given("--most")) command.most = read_number(options.most, "--most", max_ids, "1000");
  if (options.given("--seed")) command.seed = read_number(options.seed, "--seed", max_ids, "17");
  return command;
}

PrintCommand read_help(const Options& options) {
  const std::string& topic = options.topic;
  if (!topic.empty() && std::find(std::begin(commands), std::end(commands), topic) == std::end(commands)) {
    refuse("help: unknown command " + plan::excerpt(topic) + "; use " + command_list);
  }
  return {help(topic)};
}

// CLI11's words for the commonest mistakes do not tell the fix.
std::string retell(const Options& options, const CLI::ParseError& error) {
  const CLI::App* command = options.command;
  const std::string see =
      command != nullptr ? "; see hierlock " + command->get_name() + " --help" : "; see hierlock --help";
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    std::vector<std::string> extras = options.app.remaining(true);
    for (const std::string& extra : extras) {
      if (extra.starts_with('-')) return "unknown option " + plan::excerpt(extra) + see;
    }
    const std::string first = extras.empty() ? "" : unmarked(extras.front());
    if (command == nullptr) return "unknown command " + plan::excerpt(first) + "; use " + command_list;
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
  const std::string_view wanted = command_word(arguments);
  std::optional<std::span<const char* const>> command_line;
  if (wanted == "exec") {
    const auto separator =
        std::find_if(arguments.begin(), arguments.end(), [](std::string_view argument) { return argument == "--"; });
    const auto own = static_cast<std::size_t>(separator - arguments.begin());
    if (own < arguments.size()) command_line = arguments.subspan(own + 1);
    arguments = arguments.first(own);
  }
  Options options(wanted);
  std::vector<std::string> texts = marked(arguments);
  std::reverse(texts.begin(), texts.end());  // CLI11 reads them from the back
  try {
    options.app.parse(texts);
  } catch (const CLI::CallForHelp&) {
    return PrintCommand{help(options.command == nullptr ? "" : options.command->get_name())};
  } catch (const CLI::ParseError& error) {
    refuse(retell(options, error));
  }
  options.unmark();
  if (options.version) return PrintCommand{version_text()};
  if (wanted == "help") return read_help(options);
  if (wanted == "lab") return read_lab(options, url);

  StoreUrl store;
  if (options.app.count("--on") > 0) {
    store = {options.on, "--on"};
  } else if (url != nullptr) {
    store = {given_url(url), "HIERLOCK_URL"};
  }
  check_store(store);
  if (wanted == "exec") return read_exec(options, store, command_line);
  if (wanted == "status") return read_status(options, store);
  if (wanted == "break") return read_break(options, store);
  if (wanted == "explain") return read_explain(options, store);
  if (wanted == "collisions") return read_collisions(options);
  if (wanted == "provision") return read_provision(options, store);
  if (wanted == "doctor") return DoctorCommand{.store = store, .json = options.json};
  refuse(std::string("no command; use ") + command_list + ", or see hierlock --help");
}

std::span<const char* const> command_names() { return commands; }

std::vector<std::string> option_names(const std::string& command) {
  const Options options(command);
  std::vector<std::string> names;
  const CLI::App& app = options.command != nullptr ? *options.command : options.app;
  for (const CLI::Option* option : app.get_options()) names.push_back(option->get_name(false, false));
  return names;
}

}  // namespace hierlock::cli
