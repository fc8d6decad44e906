// Url: the parsed address of a store, `scheme:rest?option=value&option=value`.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hierlock::spi {

struct Url {
  std::string scheme;                                        // lower case: `memory`, `mysql`
  std::string rest;                                          // between the colon and the question mark, as written
  std::vector<std::pair<std::string, std::string>> options;  // in the order written, %HH decoded

  // Throws Error(invalid_argument) for a missing scheme, a control character, an option without a name or a repeated
  // option.
  static Url parse(std::string_view text);

  // Decodes %HH, for the parts of `rest`. Throws Error(invalid_argument).
  static std::string decode(std::string_view text);

  // The URL for people: a password in `user:password@` becomes `***`.
  std::string safe_text() const;
};

}  // namespace hierlock::spi
