// Text: how much room it takes on a terminal, and how it is made to fit. Tables that fit 80 columns, times at a glance.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hierlock::print {

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

// `10,000,000`
std::string grouped(std::uint64_t number);

// `250ms`, `1.5s`, `12s`, `2m03s`, `3h05m`, `5d04h`: two places at most, to compare ages at a glance.
std::string brief_time(std::chrono::nanoseconds time);

// The bytes, with what is not valid UTF-8 as `\xHH`: for documents, which escape the rest by their own rules.
std::string valid(std::string_view bytes);

}  // namespace hierlock::print
