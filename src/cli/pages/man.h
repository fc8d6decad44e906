// Man pages, made of the text of --help.
#pragma once

#include <string>

#include "help_text.h"

namespace hierlock::cli {

// hierlock(1), and hierlock-exec(1) and the like, in the macros of man(7).
std::string man_page_of_tool();
std::string man_page_of(const HelpCommand& command);

}  // namespace hierlock::cli
