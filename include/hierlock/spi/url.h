// Url: a store's address, taken apart. `scheme:rest?option=value&option=value`.
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

  // Throws Error(invalid_argument): no scheme, a control character, an option without a name, an option twice.
  static Url parse(std::string_view text);

  // %HH decoded, for the parts of `rest`. Throws Error(invalid_argument).
  static std::string decode(std::string_view text);

  // For people: the text with any `user:password@` password replaced by `***`.
  std::string safe_text() const;
};

}  // namespace hierlock::spi
