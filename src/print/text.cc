#include "print/text.h"

#include <algorithm>

#include "plan/text.h"

namespace hierlock::print {
namespace {

std::uint32_t code_point(std::string_view character) noexcept {
  const unsigned lead = static_cast<unsigned char>(character[0]);
  std::uint32_t point = character.size() == 1 ? lead : lead & (0x7fu >> character.size());
  for (const char byte : character.substr(1)) point = point << 6 | (static_cast<unsigned char>(byte) & 0x3fu);
  return point;
}

// East Asian Wide and Fullwidth in blocks (Unicode UAX #11), and marks that take no place of their own.
std::size_t columns_of(std::uint32_t point) noexcept {
  if ((point >= 0x0300 && point <= 0x036F) || (point >= 0x200B && point <= 0x200D) ||
      (point >= 0xFE00 && point <= 0xFE0F)) {
    return 0;
  }
  const bool wide = (point >= 0x1100 && point <= 0x115F) || (point >= 0x2E80 && point <= 0xA4CF && point != 0x303F) ||
                    (point >= 0xAC00 && point <= 0xD7A3) || (point >= 0xF900 && point <= 0xFAFF) ||
                    (point >= 0xFE30 && point <= 0xFE6F) || (point >= 0xFF00 && point <= 0xFF60) ||
                    (point >= 0xFFE0 && point <= 0xFFE6) || (point >= 0x1F300 && point <= 0x1F64F) ||
                    (point >= 0x1F900 && point <= 0x1F9FF) || (point >= 0x20000 && point <= 0x3FFFD);
  return wide ? 2 : 1;
}

}  // namespace

std::size_t columns(std::string_view text) noexcept {
  std::size_t sum = 0;
  while (!text.empty()) {
    const std::size_t size = std::max<std::size_t>(plan::utf8_character(text), 1);
    sum += columns_of(code_point(text.substr(0, size)));
    text.remove_prefix(size);
  }
  return sum;
}

std::string fit_end(std::string_view text, std::size_t width) {
  if (columns(text) <= width) return std::string(text);
  while (!text.empty() && columns(text) + 1 > width) {
    text.remove_prefix(std::max<std::size_t>(plan::utf8_character(text), 1));
  }
  return "…" + std::string(text);
}

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  indent = std::min(indent, width / 2);
  std::string out;
  while (!text.empty()) {
    const std::string margin(out.empty() ? 0 : indent, ' ');
    std::size_t fits = 0;
    std::size_t blank = 0;  // the last one that fits, or that the line may end before
    std::size_t used = margin.size();
    while (fits < text.size()) {
      const std::size_t size = std::max<std::size_t>(plan::utf8_character(text.substr(fits)), 1);
      if (text[fits] == ' ') blank = fits;
      used += columns(text.substr(fits, size));
      if (used > width && fits > 0) break;
      fits += size;
    }
    const std::size_t end = fits < text.size() && blank > 0 ? blank : fits;
    out += margin + std::string(text.substr(0, end)) + "\n";
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  return out;
}

std::string fit_begin(std::string_view text, std::size_t width) {
  if (columns(text) <= width) return std::string(text);
  std::size_t kept = 0;
  std::size_t used = 1;
  while (kept < text.size()) {
    const std::size_t size = std::max<std::size_t>(plan::utf8_character(text.substr(kept)), 1);
    used += columns(text.substr(kept, size));
    if (used > width) break;
    kept += size;
  }
  return std::string(text.substr(0, kept)) + "…";
}

std::string Table::str() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(columns(column.title));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  std::string out;
  const auto line = [&](auto cell_of) {
    std::string text;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string gap(widths[i] - columns(cell), ' ');
      if (i > 0) text += "  ";
      text += columns_[i].align == Align::right ? gap + cell : cell + gap;
    }
    text.resize(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([&](std::size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) line([&](std::size_t i) -> const std::string& { return row[i]; });
  return out;
}

std::string grouped(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string brief_time(std::chrono::nanoseconds time) {
  const auto ms = std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count(), 0);
  const std::int64_t s = ms / 1000;
  const std::int64_t m = s / 60;
  const std::int64_t h = m / 60;
  const auto text = [](std::int64_t number, const char* unit) { return std::to_string(number) + unit; };
  const auto two = [](std::int64_t number, const char* unit) {
    return (number < 10 ? "0" : "") + std::to_string(number) + unit;
  };
  if (ms < 1'000) return text(ms, "ms");
  if (s < 10 && ms % 1'000 >= 100) return text(s, ".") + text(ms % 1'000 / 100, "s");
  if (m == 0) return text(s, "s");
  if (h == 0) return text(m, "m") + (s % 60 == 0 ? "" : two(s % 60, "s"));
  if (h < 48) return text(h, "h") + (m % 60 == 0 ? "" : two(m % 60, "m"));
  return text(h / 24, "d") + two(h % 24, "h");
}

std::string valid(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t size = plan::utf8_character(bytes);
    if (size == 0) {
      out += "\\x" + plan::hex_byte(bytes[0]).substr(2);
    } else {
      out += bytes.substr(0, size);
    }
    bytes.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

}  // namespace hierlock::print
