#include "endpoint/sql.h"

#include <algorithm>

#include "plan/text.h"

namespace hierlock::endpoint {

std::string hexadecimal(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  const auto add = [&](char byte) {
    hex += digits[static_cast<unsigned char>(byte) >> 4];
    hex += digits[static_cast<unsigned char>(byte) & 15];
  };
  while (!text.empty()) {
    const std::size_t size = plan::utf8_character(text);
    if (size == 0) add('?');
    for (const char byte : text.substr(0, size)) add(byte);
    text.remove_prefix(std::max<std::size_t>(1, size));
  }
  return hex;
}

}  // namespace hierlock::endpoint
