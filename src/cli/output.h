// Output: what the commands print with. Tables that fit 80 columns, JSON, and a stdout whose errors are noticed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hierlock::cli {

inline constexpr std::size_t line_width = 80;

// How many columns a terminal needs for valid UTF-8 without control characters; wide characters need two.
std::size_t columns(std::string_view text) noexcept;

// The text, or as much of its end as fits, after a `…`: the ends of paths are what tells them apart.
std::string fit_end(std::string_view text, std::size_t width);

// The text, or as much of its beginning as fits, before a `…`.
std::string fit_begin(std::string_view text, std::size_t width);

// The text in lines of at most `width` columns, broken at blanks where there are any; all but the first begin with
// `indent` blanks. Each ends with a line feed.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent = 0);

// Rows of cells, each column as wide as it needs to be. Cells of one column all begin, or all end, at one place.
class Table {
 public:
  enum class Align : std::uint8_t { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };

  explicit Table(std::vector<Column> columns_of_table) : columns_(std::move(columns_of_table)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string str() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

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

// `10,000,000`
std::string grouped(std::uint64_t number);

// `250ms`, `1.5s`, `12s`, `2m03s`, `3h05m`, `5d04h`: two places at most, to compare ages at a glance.
std::string brief_time(std::chrono::nanoseconds time);

// One line on stderr, after `hierlock: `. Nothing in it can break the line or speak to the terminal.
void complain(const std::string& message);

// Writes all of `text` to stdout. False, with errno set, if it did not get there.
bool write_out(std::string_view text);

// The same as an exit code, with a complaint.
int print(std::string_view text);

// The complaint about an output that could not be written, and its exit code.
int cannot_write(int error);

}  // namespace hierlock::cli
