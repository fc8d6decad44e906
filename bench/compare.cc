// bench/compare: hierlock beside its peers, in the same run. docs/bench.md says how to read it.
//
// Exit codes: 0 what is enforced is met, 1 a bar is missed or its case was skipped, 64 bad usage, 70 a contender failed
// or does not exclude.

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cases.h"
#include "designs.h"
#include "report.h"

namespace {

using bench::Case;
using bench::Enforce;

constexpr int exit_missed = 1, exit_usage = 64, exit_broken = 70;

constexpr const char* help_text =
    "usage: compare [--quick | --full] [--json] [--list] [--rounds N] [--enforce=full|half|off] [CASE...]\n"
    "       compare [--quick] [--json] designs\n"
    "\n"
    "Compares hierlock with its peers, in turns, in this run. CASE is a case (pair/berkeley) or a group of\n"
    "cases (pair); without any, all are run. `designs` compares three ways to lock by rows of a database, in a\n"
    "table of its own; it takes minutes and is run only by that name.\n"
    "\n"
    "  --quick     short rounds; enforces half of each bar unless told otherwise\n"
    "  --full      databases are filled with 10^7 rows instead of 10^6, once: minutes\n"
    "  --json      one JSON document instead of the table\n"
    "  --list      the cases, their bars and what they measure\n"
    "  --rounds N  rounds of each case, 1 to 1000; 15, or 9 with --quick\n"
    "  --enforce   full: a missed bar is exit code 1, and so is a skipped case that has one; half: only missing\n"
    "              half of it is; off: never\n";

struct Usage {
  bool quick = false, full = false, json = false, list = false, help = false, designs = false;
  std::optional<std::size_t> rounds;
  std::optional<Enforce> enforce;
  std::vector<const Case*> cases;
};

struct BadUsage {
  std::string message;
  bool show_cases = false;
};

std::size_t parse_rounds(std::string_view text) {
  std::size_t rounds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rounds);
  if (error != std::errc() || end != text.data() + text.size() || rounds < 1 || rounds > 1000) {
    throw BadUsage{"--rounds wants a number from 1 to 1000, not '" + std::string(text) + "'"};
  }
  return rounds;
}

Enforce parse_enforce(std::string_view text) {
  for (const Enforce enforce : {Enforce::full, Enforce::half, Enforce::off}) {
    if (text == to_string(enforce)) return enforce;
  }
  throw BadUsage{"--enforce wants full, half or off, not '" + std::string(text) + "'"};
}

Usage parse(int argc, char** argv) {
  Usage usage;
  std::vector<std::string_view> names;
  bool options = true;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto equals = word.find('=');
    const std::string_view option = word.substr(0, equals);
    const auto value = [&]() -> std::string_view {
      if (equals != word.npos) return word.substr(equals + 1);
      if (i + 1 >= argc) throw BadUsage{std::string(option) + " wants a value"};
      return argv[++i];
    };
    if (!options || !word.starts_with("-"))
      names.push_back(word);
    else if (word == "--")
      options = false;
    else if (word == "--quick")
      usage.quick = true;
    else if (word == "--full")
      usage.full = true;
    else if (word == "--json")
      usage.json = true;
    else if (word == "--list")
      usage.list = true;
    else if (word == "--help" || word == "-h")
      usage.help = true;
    else if (option == "--rounds")
      usage.rounds = parse_rounds(value());
    else if (option == "--enforce")
      usage.enforce = parse_enforce(value());
    else
      throw BadUsage{"unknown option '" + std::string(word) + "'; see --help"};
  }
  if (usage.quick && usage.full) throw BadUsage{"--quick and --full exclude each other"};
  if (std::find(names.begin(), names.end(), "designs") != names.end()) {
    if (names.size() > 1) throw BadUsage{"designs has a table of its own: it is run alone"};
    usage.designs = true;
    return usage;
  }
  for (const std::string_view name : names) {
    bool found = false;
    for (const Case& c : bench::all_cases()) found = found || name == c.group || name == c.name();
    if (!found) throw BadUsage{"unknown case '" + std::string(name) + "'; there are:", true};
  }
  for (const Case& c : bench::all_cases()) {
    bool wanted = names.empty();
    for (const std::string_view name : names) wanted = wanted || name == c.group || name == c.name();
    if (wanted) usage.cases.push_back(&c);
  }
  return usage;
}

// One line that is written over, on a terminal only.
class ProgressLine {
 public:
  void operator()(std::string_view group, std::string_view doing) const {
    if (!shown_) return;
    std::fprintf(stderr, "\r\033[K%.*s: %.*s", static_cast<int>(group.size()), group.data(),
                 static_cast<int>(doing.size()), doing.data());
    std::fflush(stderr);
  }
  void clear() const {
    if (shown_) std::fputs("\r\033[K", stderr);
  }

 private:
  bool shown_ = isatty(STDERR_FILENO) == 1;
};

int compare_designs(const Usage& usage) {
  const ProgressLine progress;
  bench::designs::Outcome outcome;
  try {
    outcome = bench::designs::run(usage.quick, progress);
  } catch (const std::exception& e) {
    progress.clear();
    std::fprintf(stderr, "compare: %s\n", e.what());
    return exit_broken;
  }
  progress.clear();
  const std::string text = usage.json ? json(outcome, usage.quick) : table(outcome);
  std::fputs(text.c_str(), stdout);
  for (const std::string& skipped : outcome.skipped) {
    std::fprintf(stderr, "compare: SKIPPED designs on %s\n", skipped.c_str());
  }
  return 0;
}

int compare(const Usage& usage) {
  bench::Report report;
  report.effort.quick = usage.quick;
  report.effort.full = usage.full;
  report.effort.rounds = usage.rounds.value_or(usage.quick ? 9 : 15);
  report.enforce = usage.enforce.value_or(usage.quick ? Enforce::half : Enforce::full);
  getloadavg(&report.load, 1);
  const ProgressLine progress;
  try {
    report.outcome = bench::run(usage.cases, report.effort, progress);
  } catch (const std::exception& e) {
    progress.clear();
    std::fprintf(stderr, "compare: %s\n", e.what());
    return exit_broken;
  }
  progress.clear();
  std::fputs((usage.json ? json(report) : table(report)).c_str(), stdout);
  std::fflush(stdout);
  for (const bench::Skipped& skipped : report.outcome.skipped) {
    std::fprintf(stderr, "compare: SKIPPED %s: %s\n", skipped.what->name().c_str(), skipped.why.c_str());
  }
  const auto missed = report.missed();
  for (const bench::Result* r : missed) {
    const bool rate = r->what->bar->kind == bench::Bar::Kind::at_least;
    const char* const half = report.enforce != Enforce::half ? "" : rate ? "half of " : "twice ";
    const std::string what = std::string(r->what->what) + "; " + std::string(r->what->against);
    std::fprintf(stderr, "compare: %s: %.3g is not at %s %s%g (%s)\n", r->what->name().c_str(), r->ratio.median,
                 rate ? "least" : "most", half, r->what->bar->value, what.c_str());
  }
  const auto unjudged = report.unjudged();
  for (const bench::Skipped* s : unjudged) {
    std::fprintf(stderr, "compare: %s: its bar was not judged, for the case was skipped\n", s->what->name().c_str());
  }
  return missed.empty() && unjudged.empty() ? 0 : exit_missed;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Usage usage = parse(argc, argv);
    if (usage.help) return std::fputs(help_text, stdout), 0;
    if (usage.list) return std::fputs(bench::list().c_str(), stdout), 0;
    return usage.designs ? compare_designs(usage) : compare(usage);
  } catch (const BadUsage& bad) {
    std::fprintf(stderr, "compare: %s\n", bad.message.c_str());
    if (bad.show_cases) std::fputs(bench::list().c_str(), stderr);
    return exit_usage;
  }
}
