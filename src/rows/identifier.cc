#include "rows/identifier.h"

#include <algorithm>

namespace hierlock::rows {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

void check_identifier(std::string_view name, std::string_view what) {
  constexpr std::size_t longest = 63;  // PostgreSQL's; MySQL takes 64
  const bool fine = !name.empty() && name.size() <= longest && is_letter(name.front()) &&
                    std::ranges::all_of(name, [](char c) { return is_letter(c) || is_digit(c); });
  if (fine) return;
  std::string shown;
  for (const char c : name.substr(0, longest)) shown += c >= ' ' && c <= '~' ? c : '?';
  throw Error(ErrorKind::invalid_argument, std::string(what) + " cannot be called \"" + shown +
                                               "\": use 1 to 63 letters (a to z), digits and _, a letter first");
}

void append_quoted(std::string& to, Engine engine, std::string_view name) {
  // SQLite knows both, but takes "name" for a text if no such column exists: https://www.sqlite.org/quirks.html
  const char quote = engine == Engine::postgres ? '"' : '`';
  to += quote;
  if (const std::size_t dot = name.find('.'); dot != name.npos) {
    to.append(name.substr(0, dot)) += quote;
    (to += '.') += quote;
    name.remove_prefix(dot + 1);
  }
  to.append(name) += quote;
}

}  // namespace hierlock::rows
