// Text: what may be in an id, and how hostile bytes are shown to a person.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace hierlock::plan {

// The length of the valid UTF-8 character at the start of `bytes` (1 to 4); 0 if there is none. Overlong forms,
// surrogates and what lies above U+10FFFF are not valid (Unicode 15, table 3-7).
std::size_t utf8_character(std::string_view bytes) noexcept;

// The offset of the first byte that is not valid UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view bytes) noexcept;

// True if a terminal would obey or misplace the character instead of showing it: control characters, line and
// paragraph separators, marks that turn the direction of writing. `character` is one valid UTF-8 character.
bool unshowable(std::string_view character) noexcept;

// In double quotes, `"` and `\` after a backslash, what cannot be shown as `\xHH`. Inverse: read_quoted.
std::string quote(std::string_view bytes);

// Without the quotes and the backslashes before `"` and `\`: for a line that is only to be shown.
std::string showable(std::string_view bytes);

// The first `limit` bytes, or fewer so as not to cut a character.
std::string_view cut_short(std::string_view text, std::size_t limit) noexcept;

// The quoted form for messages: cut after `limit` bytes, with the whole length told.
std::string excerpt(std::string_view bytes, std::size_t limit = 60);

// One word of a command line, to be pasted into a shell: in single quotes if it needs them. What cannot be shown is as
// showable() has it.
std::string shell_word(std::string_view text);

// Reads what quote() prints from the start of `text`, which begins with `"`, and cuts it off. None, with `why` set, if
// it is malformed.
std::optional<std::string> read_quoted(std::string_view& text, std::string& why);

// `0xC3`
std::string hex_byte(char byte);

// The value of a hexadecimal digit, or -1.
constexpr int hex_digit(char digit) noexcept {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

inline constexpr char hex_digits[] = "0123456789ABCDEF";

}  // namespace hierlock::plan
