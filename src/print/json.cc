#include "print/json.h"

#include <charconv>
#include <cmath>

namespace hierlock::print {

void Json::begin(std::string_view name) {
  if (!closers_.empty()) {
    out_ += first_ ? "\n" : ",\n";
    out_.append(2 * closers_.size(), ' ');
  }
  if (!name.empty()) {
    string(name);
    out_ += ": ";
  }
  first_ = false;
}

// Text is UTF-8 already; what JSON or a terminal would not take as it is becomes \u00HH.
void Json::string(std::string_view value) {
  out_ += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      constexpr char digits[] = "0123456789abcdef";
      out_ += "\\u00";
      out_ += digits[static_cast<unsigned char>(c) >> 4];
      out_ += digits[static_cast<unsigned char>(c) & 15];
    } else {
      out_ += c;
    }
  }
  out_ += '"';
}

Json& Json::open(std::string_view name, char bracket) {
  begin(name);
  out_ += bracket;
  closers_ += bracket == '{' ? '}' : ']';
  first_ = true;
  return *this;
}

Json& Json::close() {
  const char closer = closers_.back();
  closers_.pop_back();
  if (!first_) {
    out_ += '\n';
    out_.append(2 * closers_.size(), ' ');
  }
  out_ += closer;
  first_ = false;
  return *this;
}

Json& Json::text(std::string_view name, std::string_view value) {
  begin(name);
  string(value);
  return *this;
}

Json& Json::number(std::string_view name, std::uint64_t value) {
  begin(name);
  out_ += std::to_string(value);
  return *this;
}

Json& Json::number(std::string_view name, double value) {
  begin(name);
  char text[32];
  // Not by printf, which writes a comma where the locale has one.
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6).ptr;
  out_ += std::isfinite(value) ? std::string_view(text, end) : "null";
  return *this;
}

Json& Json::boolean(std::string_view name, bool value) {
  begin(name);
  out_ += value ? "true" : "false";
  return *this;
}

Json& Json::null(std::string_view name) {
  begin(name);
  out_ += "null";
  return *this;
}

}  // namespace hierlock::print
