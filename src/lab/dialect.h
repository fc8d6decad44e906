// Dialect: words in braces that each engine spells its way, and `begin LEVEL`.
#pragma once

#include <chrono>
#include <string_view>

#include "lab/reader.h"

namespace hierlock::lab {

// Fails at the first word in braces that there is not. `begin` is where `text` is in the file.
void check_words(const Reader& reader, std::size_t begin, std::string_view text);

// `100ms`, `2s`, `1.5s`, `1m`.
std::chrono::nanoseconds duration(const Reader& reader, std::size_t at, std::string_view text);

}  // namespace hierlock::lab
