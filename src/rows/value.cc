#include <cmath>

#include <hierlock/rows.h>

namespace hierlock::rows {
namespace {

[[noreturn]] void wrong(const std::string& what) { throw Error(ErrorKind::invalid_argument, what); }

// The number that the whole text is.
template <class Number>
Number parsed(const std::string& text, const char* what) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) wrong("\"" + text + "\" is not " + what);
  return number;
}

}  // namespace

void Value::too_large() { wrong("an integer above 9223372036854775807 cannot be bound: give it as text"); }

void Value::out_of_range(std::int64_t value) { wrong(std::to_string(value) + " does not fit the type asked for"); }

std::int64_t Value::integer() const {
  if (const auto* number = std::get_if<std::int64_t>(&held_)) return *number;
  if (const auto* text = std::get_if<std::string>(&held_)) return parsed<std::int64_t>(*text, "an integer of 64 bits");
  if (const auto* number = std::get_if<double>(&held_)) {
    constexpr double limit = 9007199254740992.0;  // 2^53: above it a double skips integers
    if (std::trunc(*number) == *number && std::abs(*number) <= limit) return static_cast<std::int64_t>(*number);
    wrong(std::to_string(*number) + " is not an integer");
  }
  wrong("NULL is not an integer: ask for std::optional");
}

double Value::number() const {
  if (const auto* number = std::get_if<double>(&held_)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(&held_)) return static_cast<double>(*number);
  if (const auto* text = std::get_if<std::string>(&held_)) return parsed<double>(*text, "a number");
  wrong("NULL is not a number: ask for std::optional");
}

std::string Value::text() const {
  if (const auto* text = std::get_if<std::string>(&held_)) return *text;
  if (const auto* number = std::get_if<std::int64_t>(&held_)) return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&held_)) {
    char shortest[32];
    return std::string(shortest, std::to_chars(shortest, shortest + sizeof shortest, *number).ptr);
  }
  wrong("NULL is not a text: ask for std::optional");
}

std::string_view to_string(Engine engine) noexcept {
  switch (engine) {
    case Engine::mysql:
      return "mysql";
    case Engine::mariadb:
      return "mariadb";
    case Engine::postgres:
      return "postgres";
    case Engine::sqlite:
      return "sqlite";
  }
  return "unknown";
}

std::int64_t sqlstate_number(std::string_view state) noexcept {
  std::int64_t number = 0;
  for (const char c : state) {
    if (c >= '0' && c <= '9') {
      number = number * 36 + (c - '0');
    } else if (c >= 'A' && c <= 'Z') {
      number = number * 36 + (c - 'A' + 10);
    }
  }
  return number;
}

}  // namespace hierlock::rows
