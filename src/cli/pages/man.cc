#include "man.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include <hierlock/version.h>

#include "cli/arguments.h"

namespace hierlock::cli {
namespace {

// Text as man(7) reads it: nothing in it is a command, and a minus sign can be copied.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result.starts_with('.') || result.starts_with('\'') ? "\\&" + result : result;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string heading_of(const HelpSection& section) {
  if (section.heading.empty()) return "DESCRIPTION";
  if (section.heading == "Exit codes") return "EXIT STATUS";
  return upper(section.heading);
}

void add_section(std::string& page, const HelpSection& section) {
  if (section.parts.empty()) return;
  page += ".SH " + heading_of(section) + "\n";
  const bool examples = section.heading == "Examples";
  bool first = true;
  for (const HelpSection::Part& part : section.parts) {
    if (!part.text.empty()) page += (first ? "" : ".PP\n") + escaped(part.text) + "\n";
    for (const HelpItem& item : part.items) {
      if (examples) {
        page += ".PP\n.nf\n" + escaped(item.term) + "\n.fi\n";
        if (!item.description.empty()) page += ".RS\n" + escaped(item.description) + "\n.RE\n";
      } else {
        page += ".TP\n\\fB" + escaped(item.term) + "\\fR\n" + escaped(item.description) + "\n";
      }
    }
    first = false;
  }
}

std::string page_of(const std::string& name, const std::string& description, const HelpText& help) {
  std::string page = ".\\\" Made of the text of --help.\n.TH " + upper(name) +
                     " 1 \"\" \"hierlock " HIERLOCK_VERSION "\" \"hierlock\"\n.SH NAME\n" + name + " \\- " +
                     escaped(description) + "\n.SH SYNOPSIS\n.nf\n";
  for (const std::string& line : help.usage) page += escaped(line) + "\n";
  page += ".fi\n";
  for (const HelpSection& section : help.sections) add_section(page, section);
  std::vector<std::string> others{"hierlock"};
  for (const std::string command : command_names()) {
    if (command != "help") others.push_back("hierlock-" + command);
  }
  std::erase(others, name);
  page += ".SH SEE ALSO\n";
  for (const std::string& other : others) {
    page += ".BR " + escaped(other) + " (1)" + (other != others.back() ? "," : "") + "\n";
  }
  return page;
}

}  // namespace

std::string man_page_of_tool() {
  HelpText help = HelpText::parse(cli::help(""));
  // `hierlock: exclusion control you can prove.` is the name, not a part of the description.
  auto& parts = help.sections.front().parts;
  std::string description = parts.front().text;
  description = description.substr(description.find(": ") + 2);
  parts.erase(parts.begin());
  return page_of("hierlock", description.substr(0, description.find('.')), help);
}

std::string man_page_of(const HelpCommand& command) {
  return page_of("hierlock-" + command.name, command.description, command.help);
}

}  // namespace hierlock::cli
