#include "lab/reader.h"

#include <algorithm>

#include <hierlock/error.h>

#include "lab/sql_text.h"

namespace hierlock::lab {

namespace {

constexpr char soft = '\x01';  // a line end that is part of a statement; no file has this byte

bool is_blank(char c) noexcept { return c == ' ' || c == '\t' || c == soft; }
bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The value of a hexadecimal digit; -1 if it is none.
int hex_digit(char c) noexcept {
  if (is_digit(c)) return c - '0';
  const char small = lower(c);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

}  // namespace

std::size_t character_size(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) || (first == 0xF0 && byte(1) < 0x90) ||
      (first == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return size;
}

bool same_word(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

bool contains(const std::vector<std::string>& words, std::string_view word) noexcept {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

Reader::Reader(std::string_view text, std::string_view file) : file_(file), original_(text), text_(text) {
  if (text_.starts_with("\xEF\xBB\xBF")) fail(0, "text without a byte order mark expected");
  for (std::size_t i = 0; i < text_.size();) {
    const std::size_t size = character_size(std::string_view(text_).substr(i));
    if (size == 0) fail(i, "UTF-8 expected");
    const bool ends_line = text_[i] == '\n' || text_.compare(i, 2, "\r\n") == 0;
    if (static_cast<unsigned char>(text_[i]) < ' ' && text_[i] != '\t' && !ends_line) {
      fail(i, "text expected, not a control character");
    }
    if (text_[i] == '\r') text_[i] = ' ';
    i += size;
  }
  join_lines();
}

// A backslash at its end continues a line. A line that begins with `|` continues the one before, and its line end is
// part of the statement.
void Reader::join_lines() {
  for (std::size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] != '\\') continue;
    const std::size_t after = text_.find_first_not_of(" \t", i + 1);
    if (after != std::string::npos && text_[after] != '\n') continue;
    text_[i] = ' ';
    if (after == std::string::npos) break;
    text_[after] = ' ';
  }
  bool continuable = false;  // the line before has something that is no comment
  for (std::size_t begin = 0; begin < text_.size();) {
    const std::size_t end = std::min(text_.find('\n', begin), text_.size());
    const std::size_t first = std::min(text_.find_first_not_of(" \t", begin), end);
    if (continuable && first < end && text_[first] == '|') {
      text_[first] = ' ';
      text_[begin - 1] = soft;
    } else {
      continuable = first < end && text_[first] != '#';
    }
    begin = end + 1;
  }
}

void Reader::fail(std::size_t at, const std::string& what) const {
  const std::string_view before = std::string_view(original_).substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_begins = before.rfind('\n') + 1;  // npos + 1 is 0
  // Columns are characters, not bytes.
  const auto column = 1 + std::count_if(before.begin() + static_cast<std::ptrdiff_t>(line_begins), before.end(),
                                        [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  throw Error(ErrorKind::invalid_argument,
              file_ + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + what);
}

std::string Reader::restored(std::string text) {
  std::replace(text.begin(), text.end(), soft, '\n');
  return text;
}

void Reader::blank_line_ends(std::size_t begin) {
  scan(begin, end_, [&](std::size_t i, int) {
    if (text_[i] == soft) text_[i] = ' ';
    return false;
  });
}

std::string Reader::rest() const { return restored(text_.substr(at_, trimmed_size(at_, end_))); }

std::string Reader::between(std::size_t begin, std::size_t end) const {
  while (begin < end && is_blank(text_[begin])) ++begin;
  return restored(text_.substr(begin, trimmed_size(begin, end)));
}

std::size_t Reader::trimmed_size(std::size_t begin, std::size_t end) const {
  while (end > begin && is_blank(text_[end - 1])) --end;
  return end - begin;
}

bool Reader::next_line() {
  while (next_ < text_.size()) {
    line_ += static_cast<std::size_t>(std::count(original_.begin() + static_cast<std::ptrdiff_t>(begin_),
                                                 original_.begin() + static_cast<std::ptrdiff_t>(next_), '\n'));
    begin_ = next_;
    extend_line(begin_);
    at_ = begin_;
    quotes_count_ = false;
    skip_blanks();
    if (ended()) continue;
    if (peek() != '#') return true;
    check_comment(at_);
  }
  at_ = end_ = text_.size();
  return false;
}

// The current line ends with the first line end from `to` on.
void Reader::extend_line(std::size_t to) {
  end_ = whole_end_ = std::min(text_.find('\n', to), text_.size());
  next_ = std::min(whole_end_ + 1, text_.size());
}

// Otherwise the next line would be lost without a word.
void Reader::check_comment(std::size_t at) const {
  if (std::min(original_.find('\n', at), original_.size()) < whole_end_) {
    fail(at, "a comment that ends with its line expected, and this one is continued");
  }
}

bool Reader::comment_at(std::size_t at) const noexcept {
  return text_[at] == '#' && (at == begin_ || is_blank(text_[at - 1]));
}

bool Reader::arrow_at(std::size_t at, std::size_t end) const noexcept {
  return text_.compare(at, 2, "=>") == 0 && at + 2 <= end && (at == begin_ || is_blank(text_[at - 1])) &&
         (at + 2 == end || is_blank(text_[at + 2]));
}

void Reader::prose_line() {
  blank_line_ends(begin_);
  for (std::size_t i = begin_; i < whole_end_; ++i) {
    if (comment_at(i)) return end_at_comment(i);
  }
}

void Reader::statement_line(Statement statement) {
  quotes_count_ = true;
  bool comments = statement == Statement::other;
  for (std::size_t i = at_; i < whole_end_; ++i) {
    const std::size_t after = quoted_end(text_, i);
    if (after == std::string::npos) fail(i, "the end of what is quoted from here expected");
    if (after != i) {
      if (after > whole_end_) {
        std::replace(text_.begin() + static_cast<std::ptrdiff_t>(i), text_.begin() + static_cast<std::ptrdiff_t>(after),
                     '\n', soft);
        extend_line(after);
      }
      i = after - 1;
    } else if (arrow_at(i, whole_end_)) {
      comments = true;
    } else if (comments && comment_at(i)) {
      for (std::size_t j = i; j < whole_end_; ++j) {
        if (arrow_at(j, whole_end_)) {
          fail(j, "no `=>` expected in a comment: write the comment behind the expectation, or on a line of its own");
        }
      }
      return end_at_comment(i);
    }
  }
}

void Reader::end_at_comment(std::size_t at) {
  check_comment(at);
  end_ = at;
}

void Reader::skip_blanks() noexcept {
  while (at_ < end_ && is_blank(text_[at_])) ++at_;
}

bool Reader::take(char c) noexcept {
  if (peek() != c || ended()) return false;
  ++at_;
  return true;
}

std::string_view Reader::peek_word(std::string_view ends) const {
  std::size_t after = at_;
  while (after < end_ && is_letter(text_[after])) ++after;
  if (after < end_ && ends.find(text_[after]) == std::string_view::npos) return {};
  return std::string_view(text_).substr(at_, after - at_);
}

std::string_view Reader::word() {
  const std::size_t begin = at_;
  while (at_ < end_ && is_letter(text_[at_])) ++at_;
  return std::string_view(text_).substr(begin, at_ - begin);
}

std::string_view Reader::name() {
  const std::size_t begin = at_;
  if (!is_letter(peek())) return {};
  while (at_ < end_ && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
  return std::string_view(text_).substr(begin, at_ - begin);
}

std::string_view Reader::until(std::string_view stops) {
  const std::size_t begin = at_;
  while (at_ < end_ && stops.find(text_[at_]) == std::string_view::npos) ++at_;
  return std::string_view(text_).substr(begin, at_ - begin);
}

std::uint64_t Reader::number(const std::string& what) {
  const std::size_t at = at_;
  const std::string_view digits = until(" \t,;()");
  std::uint64_t value = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9' || value > 1'000'000'000'000) fail(at, what + " expected, a number");
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  if (digits.empty()) fail(at, what + " expected, a number");
  return value;
}

std::string Reader::quoted(const std::string& what) {
  const std::size_t begin = at_;
  const char quote = text_[at_++];
  std::string value;
  while (at_ < end_) {
    const char c = text_[at_++];
    if (c == quote) {
      if (!take(quote)) return value;
      value += quote;
    } else if (c == '\\' && !ended()) {
      const char escaped = text_[at_++];
      const int high = at_ + 1 < end_ ? hex_digit(text_[at_]) : -1, low = high < 0 ? -1 : hex_digit(text_[at_ + 1]);
      if (escaped == 'x' && low >= 0) {
        value += static_cast<char>(high * 16 + low);
        at_ += 2;
      } else {
        value += escaped == 'n' ? '\n' : escaped == 'r' ? '\r' : escaped;
      }
    } else {
      value += c == soft ? '\n' : c;
    }
  }
  fail(begin, what + " in quotes expected, and this has no end");
}

bool Reader::names_follow(std::size_t at, IsEngine is_engine, std::vector<std::string>& names,
                          std::size_t& after) const {
  names.clear();
  for (;;) {
    while (at < end_ && (is_blank(text_[at]) || (!names.empty() && text_[at] == ','))) ++at;
    if (!names.empty() && at < end_ && text_[at] == ':') {
      after = at + 1;
      return true;
    }
    const std::size_t begin = at;
    while (at < end_ && is_letter(text_[at])) ++at;
    const std::string_view word = std::string_view(text_).substr(begin, at - begin);
    if (!is_engine(word) && word != "else") return false;
    names.emplace_back(word);
  }
}

std::vector<std::string> Reader::engine_names(IsEngine is_engine) {
  std::vector<std::string> names;
  std::size_t after = 0;
  if (!names_follow(at_, is_engine, names, after)) return {};
  at_ = after;
  return names;
}

std::size_t Reader::scan(std::size_t begin, std::size_t end, const std::function<bool(std::size_t, int)>& see) const {
  int depth = 0;
  const std::string_view text = std::string_view(text_).substr(0, end);
  for (std::size_t i = begin; i < end; ++i) {
    if (const std::size_t after = quotes_count_ ? quoted_end(text, i) : i; after != i) {
      if (after == std::string::npos) return end;
      i = after - 1;
      continue;
    }
    if (see(i, depth)) return i;
    if (text[i] == '(') ++depth;
    if (text[i] == ')') --depth;
  }
  return end;
}

std::size_t Reader::find_arrow() const {
  std::size_t last = end_, opened = end_;
  bool hidden = false;  // there is one behind the `(` at `opened`
  scan(at_, end_, [&](std::size_t i, int depth) {
    if (depth <= 0 && text_[i] == '(') {
      opened = i;
      hidden = false;
    } else if (arrow_at(i, end_)) {
      if (depth <= 0) last = i;
      hidden = depth > 0;
    } else if (depth == 1 && text_[i] == ')') {
      hidden = false;
    }
    return false;
  });
  if (hidden && last == end_) fail(opened, "a `)` expected for this one");
  return last;
}

std::size_t Reader::find_next_engine(IsEngine is_engine) const {
  return scan(at_, end_, [&](std::size_t i, int) {
    std::vector<std::string> names;
    std::size_t after = 0;
    return text_[i] == ';' && names_follow(i + 1, is_engine, names, after);
  });
}

std::size_t Reader::find_word(std::string_view word, std::size_t begin, std::size_t end) const {
  return scan(begin, end, [&](std::size_t i, int depth) {
    return depth == 0 && text_.compare(i, word.size(), word) == 0 && i + word.size() <= end &&
           (i == begin || is_blank(text_[i - 1]) || text_[i - 1] == ',') &&
           (i + word.size() == end || is_blank(text_[i + word.size()]));
  });
}

std::size_t Reader::find_closing() const {
  const std::size_t found = scan(at_, end_, [&](std::size_t i, int depth) { return depth == 0 && text_[i] == ')'; });
  if (found == end_) fail(at_ - 1, "a `)` expected for this one");
  return found;
}

}  // namespace hierlock::lab
