#include "plan/path.h"

#include <bit>
#include <cstdint>

#include <hierlock/error.h>
#include <hierlock/spi/plan.h>

#include "plan/node_hash.h"
#include "plan/text.h"

namespace hierlock::plan {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

std::string number(std::size_t n) { return std::to_string(n); }

// Bytes 0x80 in every byte of `word` that is zero; above the first such byte there may be false ones.
constexpr std::uint64_t zero_bytes(std::uint64_t word) noexcept {
  return (word - 0x0101010101010101) & ~word & 0x8080808080808080;
}

constexpr std::uint64_t every_byte(char byte) noexcept {
  return std::uint64_t{0x0101010101010101} * static_cast<unsigned char>(byte);
}

// The offset in `text`, which starts at a segment, of the byte that became byte number `unescaped` of the segment.
std::size_t escaped_offset(std::string_view text, std::size_t unescaped) noexcept {
  std::size_t at = 0;
  for (; unescaped > 0 && at < text.size(); --unescaped) at += text[at] == '%' ? 3u : 1u;
  return at;
}

void store_length(char* out, std::size_t size) noexcept {
  out[0] = 0;
  out[1] = 0;
  out[2] = static_cast<char>(size >> 8);
  out[3] = static_cast<char>(size);
}

}  // namespace

void refuse_path(std::string_view text, Flaw flaw, std::size_t segment, std::size_t at) {
  const std::string which = "segment " + number(segment + 1);
  switch (flaw) {
    case Flaw::empty_path:
      refuse("the path is empty; write 1 to 8 ids separated by \"/\", like u1/a1/r1");
    case Flaw::empty_segment:
      refuse(which + " is empty: " + excerpt(text) + "; remove the extra \"/\" (one that belongs to an id is %2F)");
    case Flaw::too_deep:
      refuse("the path has more than " + number(max_depth) + " segments: " + excerpt(text) +
             "; join ids, or write a \"/\" that belongs to an id as %2F");
    case Flaw::segment_too_long:
      refuse(which + " has more than " + number(max_segment_bytes) + " bytes: " + excerpt(text) +
             "; shorten the id, or use its digest");
    case Flaw::bad_escape:
      refuse("\"%\" at offset " + number(at) + " is not followed by two hexadecimal digits: " + excerpt(text) +
             "; write a \"%\" that belongs to an id as %25");
    case Flaw::nul:
      refuse("NUL (byte 0x00) at offset " + number(at) + " cannot be in an id: " + excerpt(text) + "; remove it");
    case Flaw::not_utf8: {
      char byte = text[at];
      if (byte == '%') byte = static_cast<char>(hex_digit(text[at + 1]) * 16 + hex_digit(text[at + 2]));
      refuse("byte " + hex_byte(byte) + " at offset " + number(at) + " is not valid UTF-8: " + excerpt(text) +
             "; encode ids as UTF-8 (binary ones as hexadecimal digits)");
    }
  }
  refuse("malformed path: " + excerpt(text));
}

void check_segment(std::string_view bytes, std::size_t segment) {
  const std::string which = "segment " + number(segment + 1);
  if (bytes.empty()) refuse(which + " is empty; give every level an id");
  if (bytes.size() > max_segment_bytes) {
    refuse(which + " has " + number(bytes.size()) + " bytes, more than " + number(max_segment_bytes) + ": " +
           excerpt(bytes) + "; shorten the id, or use its digest");
  }
  if (const auto at = bytes.find('\0'); at != bytes.npos) {
    refuse(which + ": NUL (byte 0x00) at offset " + number(at) + " cannot be in an id: " + excerpt(bytes) +
           "; remove it");
  }
  if (const auto at = find_invalid_utf8(bytes); at != bytes.npos) {
    refuse(which + ": byte " + hex_byte(bytes[at]) + " at offset " + number(at) +
           " is not valid UTF-8: " + excerpt(bytes) + "; encode ids as UTF-8 (binary ones as hexadecimal digits)");
  }
}

void check_name(std::string_view bytes) {
  if (bytes.empty()) refuse("the name is empty; give it 1 to " + number(max_name_bytes) + " bytes");
  if (bytes.size() > max_name_bytes) {
    refuse("the name has " + number(bytes.size()) + " bytes, more than " + number(max_name_bytes) + ": " +
           excerpt(bytes) + "; shorten it, or use its digest");
  }
  if (const auto at = bytes.find('\0'); at != bytes.npos) {
    refuse("NUL (byte 0x00) at offset " + number(at) + " cannot be in a name: " + excerpt(bytes) + "; remove it");
  }
  if (const auto at = find_invalid_utf8(bytes); at != bytes.npos) {
    refuse("byte " + hex_byte(bytes[at]) + " at offset " + number(at) + " is not valid UTF-8: " + excerpt(bytes) +
           "; encode names as UTF-8 (binary ones as hexadecimal digits)");
  }
}

void append_to_key(std::string& key, std::string_view segment) {
  char length[4];
  store_length(length, segment.size());
  key.append(length, sizeof length);
  key += segment;
}

void append_to_text(std::string& text, std::string_view segment) {
  while (!segment.empty()) {
    std::size_t size = utf8_character(segment);
    const bool valid = size > 0;
    if (!valid) size = 1;
    const std::string_view character = segment.substr(0, size);
    if (!valid || character == "/" || character == "%" || unshowable(character)) {
      for (const char byte : character) {
        text += '%';
        text += hex_digits[static_cast<unsigned char>(byte) >> 4];
        text += hex_digits[static_cast<unsigned char>(byte) & 15];
      }
    } else {
      text += character;
    }
    segment.remove_prefix(size);
  }
}

void escape_lookalike(std::string& text) {
  const auto blank_at = [&](std::size_t at) { return at < text.size() && blanks.find(text[at]) != blanks.npos; };
  const auto escape = [&](std::size_t at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    text.replace(at, 1, {'%', hex_digits[byte >> 4], hex_digits[byte & 15]});
  };
  if (blank_at(text.size() - 1)) escape(text.size() - 1);
  if (blank_at(0)) escape(0);
  for (const std::string_view keyword : {"shared", "named", "slots", "exclusive"}) {
    if (text.starts_with(keyword) && blank_at(keyword.size())) return escape(keyword.size());
  }
}

}  // namespace hierlock::plan

namespace hierlock::spi {

using namespace plan;

// One pass, eight bytes at a time: a chunk is stored whole and then kept up to the first byte that needs a decision,
// which is why key_ has room for a chunk more than the longest key. UTF-8 is checked per segment, after %HH is undone,
// and only if a byte above 0x7F or an escape was seen.
PathText::PathText(std::string_view text) {
  if (text.empty()) refuse_path(text, Flaw::empty_path, 0, 0);
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto offset = [&text](const char* where) { return static_cast<std::size_t>(where - text.data()); };
  char* out = key_.data();
  NodeHash hash(Space::path);
  bool plain = true;

  for (std::size_t level = 0;; ++level) {
    if (level == max_depth) [[unlikely]]
      refuse_path(text, Flaw::too_deep, level, 0);
    const char* const from = at;
    char* const first = out + 4;
    char* next = first;
    std::uint64_t chunk = 0;  // the last one, cut to what was kept
    std::uint64_t seen = 0;   // all kept chunks or-ed
    bool escapes = false;
    for (;;) {
      const auto left = static_cast<std::size_t>(end - at);
      // Past the end of the text come zeros, which stop like NUL.
      chunk = left >= 8 ? load_word(at) : load_tail(at, left);
      const std::uint64_t stops =
          zero_bytes(chunk ^ every_byte('/')) | zero_bytes(chunk ^ every_byte('%')) | zero_bytes(chunk);
      store_word(next, chunk);
      const std::size_t kept = stops == 0 ? 8 : static_cast<std::size_t>(std::countr_zero(stops)) / 8;
      if (stops != 0) chunk &= (stops ^ (stops - 1)) >> 8;
      seen |= chunk;
      next += kept;
      at += kept;
      if (static_cast<std::size_t>(next - first) > max_segment_bytes) [[unlikely]] {
        refuse_path(text, Flaw::segment_too_long, level, 0);
      }
      if (kept == 8) continue;
      if (at == end || *at == '/') break;
      if (*at != '%') refuse_path(text, Flaw::nul, level, offset(at));
      const int high = end - at > 2 ? hex_digit(at[1]) : -1;
      const int low = end - at > 2 ? hex_digit(at[2]) : -1;
      if (high < 0 || low < 0) refuse_path(text, Flaw::bad_escape, level, offset(at));
      *next++ = static_cast<char>(high * 16 + low);
      at += 3;
      escapes = true;
      plain = false;
    }
    const auto size = static_cast<std::size_t>(next - first);
    if (size == 0) [[unlikely]]
      refuse_path(text, Flaw::empty_segment, level, offset(from));
    if (escapes || (seen & every_byte('\x80')) != 0) {
      const std::string_view bytes(first, size);
      const auto locate = [&](std::size_t i) { return offset(from) + escaped_offset({from, end}, i); };
      if (const auto i = bytes.find('\0'); i != bytes.npos) refuse_path(text, Flaw::nul, level, locate(i));
      if (const auto i = find_invalid_utf8(bytes); i != bytes.npos) refuse_path(text, Flaw::not_utf8, level, locate(i));
    }
    store_length(out, size);
    if (size <= 7 && !escapes) {  // one chunk
      hash.add_short(chunk, size);
    } else {
      hash.add({first, size});
    }
    hashes_[level] = hash.value();
    ends_[level] = static_cast<std::uint16_t>(next - key_.data());
    depth_ = level + 1;
    out = next;
    if (at == end) {
      if (plain) text_ = text;
      return;
    }
    ++at;
  }
}

std::string_view PathText::segment(std::size_t level) const noexcept {
  const std::size_t begin = level == 0 ? 4 : ends_[level - 1] + 4u;
  return {key_.data() + begin, ends_[level] - begin};
}

}  // namespace hierlock::spi
