#include "plan/text.h"

#include <cstdint>

namespace hierlock::plan {
namespace {

unsigned byte_at(std::string_view bytes, std::size_t i) { return static_cast<unsigned char>(bytes[i]); }

std::uint32_t code_point(std::string_view character) noexcept {
  const unsigned lead = byte_at(character, 0);
  std::uint32_t point = character.size() == 1 ? lead : lead & (0x7fu >> character.size());
  for (std::size_t i = 1; i < character.size(); ++i) point = point << 6 | (byte_at(character, i) & 0x3f);
  return point;
}

void append_escaped(std::string& out, std::string_view bytes, std::string_view after_backslash) {
  while (!bytes.empty()) {
    const std::size_t size = utf8_character(bytes);
    if (size == 0 || unshowable(bytes.substr(0, size))) {
      for (const char byte : bytes.substr(0, size == 0 ? 1 : size)) {
        out += "\\x";
        out += hex_digits[static_cast<unsigned char>(byte) >> 4];
        out += hex_digits[static_cast<unsigned char>(byte) & 15];
      }
    } else {
      if (after_backslash.find(bytes[0]) != after_backslash.npos) out += '\\';
      out += bytes.substr(0, size);
    }
    bytes.remove_prefix(size == 0 ? 1 : size);
  }
}

}  // namespace

std::size_t utf8_character(std::string_view bytes) noexcept {
  if (bytes.empty()) return 0;
  const unsigned lead = byte_at(bytes, 0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (bytes.size() < size) return 0;
  // Only the second byte has a range that depends on the lead: that is where overlong forms, surrogates and too large
  // code points show.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte_at(bytes, 1) < low || byte_at(bytes, 1) > high) return 0;
  for (std::size_t i = 2; i < size; ++i) {
    if ((byte_at(bytes, i) & 0xC0) != 0x80) return 0;
  }
  return size;
}

std::size_t find_invalid_utf8(std::string_view bytes) noexcept {
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = utf8_character(bytes.substr(at));
    if (size == 0) return at;
    at += size;
  }
  return std::string_view::npos;
}

bool unshowable(std::string_view character) noexcept {
  const std::uint32_t point = code_point(character);
  return point < 0x20 || (point >= 0x7F && point < 0xA0) ||        // C0, DEL, C1
         point == 0x061C || point == 0x200E || point == 0x200F ||  // direction marks
         (point >= 0x2028 && point <= 0x202E) ||                   // separators, direction embeddings
         (point >= 0x2066 && point <= 0x2069) || point == 0xFEFF;  // direction isolates, byte order mark
}

std::string quote(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + 2);
  out += '"';
  append_escaped(out, bytes, "\"\\");
  out += '"';
  return out;
}

std::string showable(std::string_view bytes) {
  std::string out;
  append_escaped(out, bytes, {});
  return out;
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/:._-@,+%";
  const std::string shown = showable(text);
  if (!shown.empty() && shown.find_first_not_of(harmless) == shown.npos) return shown;
  std::string word = "'";
  for (const char c : shown) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

std::string excerpt(std::string_view bytes, std::size_t limit) {
  if (bytes.size() <= limit) return quote(bytes);
  std::size_t cut = limit;
  // Not in the middle of a character; a valid one has at most 3 bytes after its first.
  for (int back = 0; back < 3 && cut > 0 && (byte_at(bytes, cut) & 0xC0) == 0x80; ++back) --cut;
  return quote(bytes.substr(0, cut)) + "… (" + std::to_string(bytes.size()) + " bytes)";
}

std::optional<std::string> read_quoted(std::string_view& text, std::string& why) {
  std::string out;
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '"') {
      text.remove_prefix(at + 1);
      return out;
    }
    if (text[at] != '\\') {
      out += text[at];
      continue;
    }
    const std::string_view escape = text.substr(at + 1, 3);
    if (!escape.empty() && (escape[0] == '"' || escape[0] == '\\')) {
      out += escape[0];
      at += 1;
    } else if (escape.size() == 3 && escape[0] == 'x' && hex_digit(escape[1]) >= 0 && hex_digit(escape[2]) >= 0) {
      out += static_cast<char>(hex_digit(escape[1]) * 16 + hex_digit(escape[2]));
      at += 3;
    } else {
      why = "a backslash must be followed by \\, \" or xHH with two hexadecimal digits";
      return std::nullopt;
    }
  }
  why = "the closing \" is missing";
  return std::nullopt;
}

std::string hex_byte(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return {'0', 'x', hex_digits[value >> 4], hex_digits[value & 15]};
}

std::string_view cut_short(std::string_view text, std::size_t limit) noexcept {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  return text.substr(0, limit);
}

}  // namespace hierlock::plan
