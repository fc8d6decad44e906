// Output: what the commands print with, and a stdout whose errors are noticed.
#pragma once

#include <string>
#include <string_view>

#include "print/json.h"
#include "print/text.h"

namespace hierlock::cli {

using namespace hierlock::print;  // every command prints with them

// One line on stderr, after `hierlock: `. Nothing in it can break the line or speak to the terminal.
void complain(const std::string& message);

// Writes all of `text` to stdout. False, with errno set, if it did not get there.
bool write_out(std::string_view text);

// The same as an exit code, with a complaint.
int print(std::string_view text);

// The complaint about an output that could not be written, and its exit code.
int cannot_write(int error);

}  // namespace hierlock::cli
