// Reader: the text of a scenario, line by line, with the place of everything for messages.
//
// Continued lines are joined in a copy of the same size, so that every offset is one of the file. A line end that is
// part of a statement is `soft` there: it is a blank to the reader, and a line end again in the text it returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hierlock::lab {

bool same_word(std::string_view a, std::string_view b) noexcept;  // whatever the case, in ASCII
bool contains(const std::vector<std::string>& words, std::string_view word) noexcept;
std::string joined(const std::vector<std::string>& words, std::string_view between);
// How many bytes the UTF-8 character at the beginning of this text has; 0 if it is none.
std::size_t character_size(std::string_view text) noexcept;

class Reader {
 public:
  Reader(std::string_view text, std::string_view file);

  // Throws Error(invalid_argument): `file:line:column: what`.
  [[noreturn]] void fail(std::size_t at, const std::string& what) const;

  const std::string& text() const noexcept { return text_; }
  std::size_t line() const noexcept { return line_; }  // the number of the current one, from 1
  std::size_t at() const noexcept { return at_; }
  std::size_t end() const noexcept { return end_; }  // of the current line, or of what Limit says
  bool ended() const noexcept { return at_ >= end_; }
  char peek() const noexcept { return ended() ? '\0' : text_[at_]; }
  std::string rest() const;  // without blanks at its end
  // Without blanks at both ends.
  std::string between(std::size_t begin, std::size_t end) const;
  // How many bytes remain of it without the blanks at its end.
  std::size_t trimmed_size(std::size_t begin, std::size_t end) const;

  // The next line that has more than a comment; at its first word. What kind of line it is must be said before reading
  // beyond its first words, because that decides where it ends.
  bool next_line();
  // It is prose: quotes mean nothing, and a `#` after a blank begins a comment.
  void prose_line();
  // It is a statement, and perhaps an expectation. Quotes count, and may go on over several lines. Fails if one is not
  // closed. A `#` after a blank and outside of quotes begins a comment: in SQL, which uses it as an operator, only
  // behind the arrow; in other statements anywhere. Fails if an arrow stands in the comment.
  enum class Statement : std::uint8_t { sql, other };
  void statement_line(Statement statement);

  // From here on line ends are mere blanks, outside of quotes.
  void blank_line_ends(std::size_t begin);

  void move_to(std::size_t at) noexcept { at_ = at; }
  void to_end() noexcept { at_ = end_; }
  void skip_blanks() noexcept;
  bool take(char c) noexcept;
  std::string_view word();  // letters and `_`; empty if there is none
  // The word here, if the line ends after it or one of `ends` follows; otherwise empty.
  std::string_view peek_word(std::string_view ends) const;
  std::string_view name();  // a letter, then letters, digits, `_`
  std::string_view until(std::string_view stops);
  std::uint64_t number(const std::string& what);
  std::string quoted(const std::string& what);  // '…' or "…"; inside, the quote doubled, and \n \r \\ \xHH

  // `mysql mariadb:`, commas allowed: taken if all of it is names of engines, or `else`. Otherwise empty, and nothing
  // is taken.
  using IsEngine = bool (*)(std::string_view);
  std::vector<std::string> engine_names(IsEngine is_engine);

  // Places in the current line, outside of quotes and parentheses; end() if there is none.
  std::size_t find_arrow() const;  // the last ` => `; fails if there is one only behind a `(` that is never closed
  std::size_t find_next_engine(IsEngine is_engine) const;  // the next `;` that names of engines and a colon follow
  std::size_t find_word(std::string_view word, std::size_t begin, std::size_t end) const;
  std::size_t find_closing() const;  // the `)` that belongs to the `(` just taken; fails if there is none

  // Reading goes on from `begin`, and not beyond `end`, as long as this lives.
  class Limit {
   public:
    Limit(Reader& reader, std::size_t begin, std::size_t end) : reader_(reader), at_(reader.at_), end_(reader.end_) {
      reader_.at_ = begin;
      reader_.end_ = end;
    }
    ~Limit() {
      reader_.at_ = at_;
      reader_.end_ = end_;
    }
    Limit(const Limit&) = delete;
    Limit& operator=(const Limit&) = delete;

   private:
    Reader& reader_;
    const std::size_t at_, end_;
  };

 private:
  // Calls `see` for each byte outside of quotes, with the depth of parentheses; ends where it returns true.
  std::size_t scan(std::size_t begin, std::size_t end, const std::function<bool(std::size_t, int)>& see) const;
  bool names_follow(std::size_t at, IsEngine is_engine, std::vector<std::string>& names, std::size_t& after) const;
  bool arrow_at(std::size_t at, std::size_t end) const noexcept;
  bool comment_at(std::size_t at) const noexcept;
  void join_lines();
  void extend_line(std::size_t to);
  void end_at_comment(std::size_t at);
  void check_comment(std::size_t at) const;
  static std::string restored(std::string text);

  const std::string file_;
  const std::string original_;  // the file's text
  std::string text_;            // with continued lines joined
  std::size_t at_ = 0, end_ = 0, next_ = 0, begin_ = 0;
  std::size_t whole_end_ = 0;  // of the current line, with its comment
  std::size_t line_ = 1;       // the number of the line at begin_
  bool quotes_count_ = false;
};

}  // namespace hierlock::lab
