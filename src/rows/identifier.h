// Identifiers: which names of tables and columns are allowed, and how each engine quotes them.
#pragma once

#include <string>
#include <string_view>

#include <hierlock/rows.h>

namespace hierlock::rows {

// Throws invalid_argument unless `name` is 1 to 63 ASCII letters, digits and _, not beginning with a digit. Quotes,
// colons and bytes above 127 are out: clients that look for placeholders in the text, and servers whose character set
// joins such a byte with the closing quote, would read them differently.
void check_identifier(std::string_view name, std::string_view what);

// Appends `name`, an identifier or two with a dot between them.
void append_quoted(std::string& to, Engine engine, std::string_view name);

}  // namespace hierlock::rows
