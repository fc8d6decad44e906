#include "lab/sql_text.h"

#include <algorithm>
#include <cctype>

namespace hierlock::lab {

namespace {

bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80); }
bool is_word(char c) noexcept { return is_letter(c) || (c >= '0' && c <= '9'); }

// An E that is a word of its own stands before the quote.
bool has_escapes(std::string_view text, std::size_t at) noexcept {
  if (text[at] != '\'' || at == 0 || (text[at - 1] != 'E' && text[at - 1] != 'e')) return false;
  return at == 1 || !is_word(text[at - 2]);
}

std::size_t dollar_quoted_end(std::string_view text, std::size_t at) noexcept {
  if (at > 0 && (is_word(text[at - 1]) || text[at - 1] == '$')) return at;
  std::size_t close = at + 1;
  if (close < text.size() && is_letter(text[close])) {
    while (close < text.size() && is_word(text[close])) ++close;
  }
  if (close >= text.size() || text[close] != '$') return at;
  const std::string_view tag = text.substr(at, close + 1 - at);
  const std::size_t end = text.find(tag, close + 1);
  return end == std::string_view::npos ? end : end + tag.size();
}

}  // namespace

std::size_t quoted_end(std::string_view text, std::size_t at) noexcept {
  const char quote = text[at];
  if (quote == '$') return dollar_quoted_end(text, at);
  if (quote != '\'' && quote != '"' && quote != '`') return at;
  const bool escapes = has_escapes(text, at);
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (escapes && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (i + 1 == text.size() || text[i + 1] != quote) return i + 1;
      ++i;
    }
  }
  return std::string_view::npos;
}

std::string lowered(std::string_view sql) {
  std::string text(sql);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::isspace(c) != 0 ? ' ' : std::tolower(c)); });
  return text;
}

std::vector<std::string> tokens_of(std::string_view lower) {
  const auto is_of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::vector<std::string> tokens;
  bool in_word = false;
  for (const char c : lower) {
    const bool word = is_of_word(c);
    if (c != ' ') {
      if (word && in_word) {
        tokens.back() += c;
      } else {
        tokens.emplace_back(1, c);
      }
    }
    in_word = word;
  }
  return tokens;
}

}  // namespace hierlock::lab
