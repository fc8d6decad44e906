// HelpText: the text of --help, taken apart. Man pages and completions are made of it, so that they cannot differ.
#pragma once

#include <string>
#include <vector>

namespace hierlock::cli {

// A line of a list in the help: `  -w, --timeout T   wait no longer than T`.
struct HelpItem {
  std::string term;         // `-w, --timeout T`
  std::string description;  // in one line; of an example empty, or what it shows
};

// Text, a list, or both, under a heading: `Options:`. The text that comes before all headings has an empty one.
struct HelpSection {
  std::string heading;
  struct Part {
    std::string text;  // a paragraph; empty: it is a list
    std::vector<HelpItem> items{};
  };
  std::vector<Part> parts{};
};

struct HelpText {
  std::vector<std::string> usage;  // lines, without `Usage: `
  std::vector<HelpSection> sections;

  static HelpText parse(const std::string& text);
  // Throws if there is none.
  const HelpSection& section(const std::string& heading) const;
};

// An option as its line in the help tells it.
struct HelpOption {
  std::vector<std::string> names;  // `-w`, `--timeout`
  std::string value;               // `T`; empty for a flag
  std::string description;
};
std::vector<HelpOption> options_of(const HelpText& help);

// A command of the tool, with what the help of the tool says of it.
struct HelpCommand {
  std::string name;
  std::string description;
  HelpText help;
};
std::vector<HelpCommand> all_commands();

}  // namespace hierlock::cli
