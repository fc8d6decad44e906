// Completions for shells, made of the text of --help.
#pragma once

#include <string>

namespace hierlock::cli {

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace hierlock::cli
