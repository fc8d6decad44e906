// Sql: what the clients of all SQL servers share: the rows of an answer, and pieces of statements.
#pragma once

#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hierlock::endpoint {

using Field = std::optional<std::string>;  // none: NULL
using Row = std::vector<Field>;

// A whole number; 0 for NULL and for a text that begins with none.
template <class T = std::uint64_t>
T number(std::string_view text) {
  T value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}
template <class T = std::uint64_t>
T number(const Field& field) {
  return field ? number<T>(std::string_view(*field)) : T{};
}

inline std::string text(const Field& field) { return field.value_or(""); }

// `1, 2, 3`
template <class Numbers>
std::string listed(const Numbers& numbers) {
  std::string list;
  for (const auto value : numbers) list += (list.empty() ? "" : ", ") + std::to_string(value);
  return list;
}

// The statement with a number in the place of each `?`.
template <class Numbers>
std::string filled_in(std::string_view sql, const Numbers& numbers) {
  std::string filled;
  auto next = numbers.begin();
  for (const char c : sql) c == '?' ? filled += std::to_string(*next++) : filled += c;
  return filled;
}

// The text as bytes in hexadecimal digits. Every session reads these alike, whatever its settings for escapes are.
// Bytes that are not valid UTF-8 become `?`, because servers refuse them.
std::string hexadecimal(std::string_view text);

}  // namespace hierlock::endpoint
