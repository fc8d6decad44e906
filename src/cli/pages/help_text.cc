#include "help_text.h"

#include <sstream>
#include <stdexcept>

#include "cli/arguments.h"

namespace hierlock::cli {
namespace {

void append_words(std::string& text, const std::string& more) { text += (text.empty() ? "" : " ") + more; }

std::size_t indent(const std::string& line) { return std::min(line.find_first_not_of(' '), line.size()); }

// `Options:` and the like; `Exit codes: 0 done` begins one, too.
bool is_heading(const std::string& line) {
  if (line.starts_with("Exit codes: ")) return true;
  return indent(line) == 0 && line.ends_with(':') && line.find(' ') == line.npos;
}

}  // namespace

HelpText HelpText::parse(const std::string& text) {
  HelpText help;
  help.sections.emplace_back();
  std::istringstream lines(text);
  bool paragraph = false;  // the last line was text, and this one may go on with it
  bool in_usage = false;
  for (std::string line; std::getline(lines, line);) {
    const bool examples = help.sections.back().heading == "Examples";
    if (line.empty()) {
      paragraph = in_usage = false;
    } else if (line.starts_with("Usage: ") || (in_usage && indent(line) > 0)) {
      in_usage = true;
      help.usage.push_back(line.substr(7));
    } else if (is_heading(line)) {
      const std::size_t colon = line.find(':');
      help.sections.push_back({line.substr(0, colon)});
      paragraph = colon + 1 < line.size();
      if (paragraph) help.sections.back().parts.push_back({line.substr(colon + 2)});
    } else if (indent(line) == 0) {
      auto& parts = help.sections.back().parts;
      if (!paragraph) parts.emplace_back();
      append_words(parts.back().text, line);
      paragraph = true;
    } else {
      auto& parts = help.sections.back().parts;
      if (parts.empty() || !parts.back().text.empty()) parts.emplace_back();
      auto& items = parts.back().items;
      const std::string words = line.substr(indent(line));
      if (indent(line) > 2) {
        if (items.empty()) throw std::runtime_error("help: no item begins before " + line);
        append_words(items.back().description, words);
      } else if (const std::size_t gap = words.find("  "); gap != words.npos && !examples) {
        items.push_back({words.substr(0, gap), words.substr(words.find_first_not_of(' ', gap))});
      } else {
        items.push_back({words, ""});
      }
    }
  }
  return help;
}

const HelpSection& HelpText::section(const std::string& heading) const {
  for (const HelpSection& one : sections) {
    if (one.heading == heading) return one;
  }
  throw std::runtime_error("help: there is no section " + heading);
}

std::vector<HelpOption> options_of(const HelpText& help) {
  std::vector<HelpOption> options;
  for (const HelpSection::Part& part : help.section("Options").parts) {
    for (const HelpItem& item : part.items) {
      HelpOption option{{}, {}, item.description};
      std::istringstream words(item.term);
      for (std::string word; words >> word;) {
        if (word.ends_with(',') && word.starts_with('-')) word.pop_back();
        (word.starts_with('-') ? option.names.emplace_back() : option.value) = word;
      }
      options.push_back(option);
    }
  }
  return options;
}

std::vector<HelpCommand> all_commands() {
  const HelpText tool = HelpText::parse(help(""));
  std::vector<HelpCommand> commands;
  for (const std::string name : command_names()) {
    std::string description;
    for (const HelpSection::Part& part : tool.section("Commands").parts) {
      for (const HelpItem& item : part.items) {
        if (item.term == name || item.term.starts_with(name + " ")) description = item.description;
      }
    }
    if (description.empty()) throw std::runtime_error("help: the list of commands does not tell " + name);
    commands.push_back({name, description, HelpText::parse(help(name))});
  }
  return commands;
}

}  // namespace hierlock::cli
