#include "completion.h"

#include <algorithm>
#include <vector>

#include "cli/arguments.h"
#include "cli/version.h"
#include "help_text.h"

namespace hierlock::cli {
namespace {

constexpr const char* lab_actions = "run list permute import";

// What a value may be. Everything else has nothing to offer.
enum class Values { none, stores, files };
Values values_of(const HelpOption& option) {
  if (option.value == "URL") return Values::stores;
  if (option.value == "FILE") return Values::files;
  return Values::none;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

// Up to the first semicolon or sentence: a shell shows one line.
std::string brief(const std::string& description) {
  return description.substr(0, std::min(description.find(';'), description.find(". ")));
}

// Within single quotes.
std::string quoted(const std::string& text) { return "'" + replaced(text, "'", "'\\''") + "'"; }

std::string stores_joined() {
  std::string all;
  for (const std::string& url : store_beginnings()) all += (all.empty() ? "" : " ") + url;
  return all;
}

std::string names_joined(const std::vector<HelpCommand>& commands) {
  std::string all;
  for (const HelpCommand& command : commands) all += (all.empty() ? "" : " ") + command.name;
  return all;
}

// The names of all options, or of those with values of a kind.
template <class Which>
std::string option_names_joined(const HelpText& help, const char* between, Which which) {
  std::string all;
  for (const HelpOption& option : options_of(help)) {
    if (!which(option)) continue;
    for (const std::string& name : option.names) all += (all.empty() ? "" : between) + name;
  }
  return all;
}

}  // namespace

// --- bash ------------------------------------------------------------------------------------------------

std::string bash_completion() {
  const std::vector<HelpCommand> commands = all_commands();
  std::string cases;
  const auto add_case = [&](const std::string& name, const HelpText& help) {
    const auto of = [&](const char* between, auto which) { return option_names_joined(help, between, which); };
    cases += "    " + name + ")\n      options='" + of(" ", [](const HelpOption&) { return true; }) + "'\n";
    const std::string files = of("|", [](const HelpOption& o) { return values_of(o) == Values::files; });
    const std::string others =
        of("|", [](const HelpOption& o) { return !o.value.empty() && values_of(o) == Values::none; });
    if (!files.empty() || !others.empty()) cases += "      case $previous in\n";
    if (!files.empty()) cases += "        " + files + ") _hierlock_files; return ;;\n";
    if (!others.empty()) cases += "        " + others + ") return ;;\n";
    if (!files.empty() || !others.empty()) cases += "      esac\n";
    cases += "      ;;\n";
  };
  for (const HelpCommand& command : commands) add_case(command.name, command.help);
  add_case("*", HelpText::parse(help("")));
  return R"(# bash completion for hierlock, made of the text of --help.
_hierlock_files() {
  local IFS=$'\n'
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -f -- "$current"))
}

_hierlock() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local commands=')" +
         names_joined(commands) + R"('
  local stores=')" +
         stores_joined() + R"('
  local command='' options='' word at=0 i
  COMPREPLY=()
  # bash takes shm: for two words. A word after --on is no command.
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ -z $command && ${COMP_WORDS[i - 1]} != --on && " $commands " == *" $word "* ]]; then
      command=$word at=$i
    elif [[ $command == exec && $word == -- ]]; then
      if declare -F _command_offset >/dev/null; then
        _command_offset $((i + 1))
      elif ((i + 1 == COMP_CWORD)); then
        COMPREPLY=($(compgen -c -- "$current"))
      else
        _hierlock_files
      fi
      return
    fi
  done
  if [[ $previous == --on ]]; then
    COMPREPLY=($(compgen -W "$stores" -- "$current"))
    compopt -o nospace 2>/dev/null
    return
  fi
  case $command in
)" + cases +
         R"(  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  elif [[ -z $command || ($command == help && $at -eq $((COMP_CWORD - 1))) ]]; then
    COMPREPLY=($(compgen -W "$commands" -- "$current"))
  elif [[ $command == lab && $at -eq $((COMP_CWORD - 1)) ]]; then
    COMPREPLY=($(compgen -W ')" +
         lab_actions + R"(' -- "$current"))
  elif [[ $command == lab ]]; then
    _hierlock_files
  fi
}

complete -F _hierlock hierlock
)";
}

// --- zsh -------------------------------------------------------------------------------------------------

namespace {

// `'(-w --timeout)'{-w,--timeout}'[wait no longer than T]:T:'`
std::string zsh_option(const HelpOption& option) {
  const auto escaped = [](const std::string& text) {
    return replaced(replaced(replaced(text, "[", "\\["), "]", "\\]"), ":", "\\:");
  };
  std::string names, spec = "[" + escaped(brief(option.description)) + "]";
  for (const std::string& name : option.names) names += (names.empty() ? "" : ",") + name;
  if (!option.value.empty()) spec += ":" + escaped(option.value) + ":";
  if (values_of(option) == Values::files) spec += "_files";
  if (values_of(option) == Values::stores) spec += "(" + escaped(stores_joined()) + ")";
  if (option.names.size() == 1) return quoted(names + spec);
  return quoted("(" + replaced(names, ",", " ") + ")") + "{" + names + "}" + quoted(spec);
}

}  // namespace

std::string zsh_completion() {
  std::string text = R"(#compdef hierlock
# zsh completion for hierlock, made of the text of --help.
_hierlock() {
  local curcontext=$curcontext state line ret=1
  local -a commands=(
)";
  const std::vector<HelpCommand> commands = all_commands();
  for (const HelpCommand& command : commands) {
    text += "    " + quoted(command.name + ":" + replaced(brief(command.description), ":", "\\:")) + "\n";
  }
  text += "  )\n  _arguments -C \\\n";
  for (const HelpOption& option : options_of(HelpText::parse(help("")))) text += "    " + zsh_option(option) + " \\\n";
  text += R"(    '1:command:->command' '*::argument:->argument' && ret=0
  case $state in
    command) _describe -t commands command commands && ret=0 ;;
    argument)
      curcontext=${curcontext%:*:*}:hierlock-$words[1]:
      case $words[1] in
)";
  for (const HelpCommand& command : commands) {
    text += "        " + command.name + ")\n          _arguments \\\n";
    for (const HelpOption& option : options_of(command.help)) text += "            " + zsh_option(option) + " \\\n";
    if (command.name == "lab") {
      text += "            '1:action:(" + std::string(lab_actions) + ")' '*:file:_files' && ret=0\n";
    } else if (command.name == "help") {
      text += "            '1:command:(" + names_joined(commands) + ")' && ret=0\n";
    } else if (command.name == "exec") {
      text += "            '*::command:{ (( $words[(I)--] )) && _normal }' && ret=0\n";
    } else {
      text += "            '*:target:' && ret=0\n";
    }
    text += "          ;;\n";
  }
  return text + R"(      esac
      ;;
  esac
  return ret
}

_hierlock "$@"
)";
}

// --- fish ------------------------------------------------------------------------------------------------

namespace {

// In fish's single quotes \ and ' are escaped.
std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string fish_option(const HelpOption& option) {
  std::string text;
  for (const std::string& name : option.names) {
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (values_of(option) == Values::files) {
    text += " -r -F";
  } else if (values_of(option) == Values::stores) {
    text += " -x -a " + fish_quoted(stores_joined());
  } else if (!option.value.empty()) {
    text += " -x";
  }
  return text + " -d " + fish_quoted(brief(option.description)) + "\n";
}

}  // namespace

std::string fish_completion() {
  const std::vector<HelpCommand> commands = all_commands();
  const std::string names = names_joined(commands);
  std::string text = "# fish completion for hierlock, made of the text of --help.\ncomplete -c hierlock -f\n";
  const std::string none = "complete -c hierlock -n " + fish_quoted("not __fish_seen_subcommand_from " + names);
  for (const HelpOption& option : options_of(HelpText::parse(help("")))) text += none + fish_option(option);
  for (const HelpCommand& command : commands) {
    text += none + " -a " + command.name + " -d " + fish_quoted(brief(command.description)) + "\n";
  }
  for (const HelpCommand& command : commands) {
    const std::string after = "complete -c hierlock -n " + fish_quoted("__fish_seen_subcommand_from " + command.name);
    for (const HelpOption& option : options_of(command.help)) text += after + fish_option(option);
    if (command.name == "lab") {
      const std::string actions(lab_actions);
      text += "complete -c hierlock -n " +
              fish_quoted("__fish_seen_subcommand_from lab; and not __fish_seen_subcommand_from " + actions) + " -a " +
              fish_quoted(actions) + "\n";
      text += "complete -c hierlock -n " +
              fish_quoted("__fish_seen_subcommand_from lab; and __fish_seen_subcommand_from " + actions) + " -F\n";
    } else if (command.name == "help") {
      text += after + " -a " + fish_quoted(names) + "\n";
    } else if (command.name == "exec") {
      text += after + " -a '(__fish_complete_subcommand --fcs-skip=2)'\n";
    }
  }
  return text;
}

}  // namespace hierlock::cli
