// Json: one document, written from its beginning to its end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hierlock::print {

// Writes one JSON document, indented by two. The caller opens and closes in pairs.
class Json {
 public:
  Json& open_object(std::string_view name = {}) { return open(name, '{'); }
  Json& open_array(std::string_view name = {}) { return open(name, '['); }
  Json& close();

  Json& text(std::string_view name, std::string_view value);
  Json& number(std::string_view name, std::uint64_t value);
  Json& number(std::string_view name, double value);
  Json& boolean(std::string_view name, bool value);
  Json& null(std::string_view name);

  // The document, with a line feed.
  std::string str() const { return out_ + "\n"; }

 private:
  Json& open(std::string_view name, char bracket);
  void begin(std::string_view name);
  void string(std::string_view value);

  std::string out_;
  std::string closers_;
  bool first_ = true;
};

}  // namespace hierlock::print
