// Path: the rules for ids (H7), shared by everything that reads one: PathText, Target, names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <hierlock/target.h>

namespace hierlock::plan {

enum class Flaw : unsigned char {
  empty_path,
  empty_segment,
  too_deep,
  segment_too_long,
  bad_escape,
  nul,
  not_utf8,
};

// Throws Error(invalid_argument) for a flaw in the path `text`, in its segment `segment` (from 0). `at` is an offset
// into `text`, for the flaws that have one.
[[noreturn]] void refuse_path(std::string_view text, Flaw flaw, std::size_t segment, std::size_t at);

// Throws Error(invalid_argument) unless `bytes` may be segment number `segment` (from 0) of a path.
void check_segment(std::string_view bytes, std::size_t segment);

// Throws Error(invalid_argument) unless `bytes` may be a name.
void check_name(std::string_view bytes);

// Appends a segment's part of the canonical key: its length as 32 bits big-endian, then its bytes.
void append_to_key(std::string& key, std::string_view segment);

// Appends a segment to the text of a path: `/`, `%` and what cannot be shown as %HH.
void append_to_text(std::string& text, std::string_view segment);

inline constexpr std::string_view blanks = " \t\n\v\f\r";

// Escapes what in the text of a path would not be taken for a part of it: a blank at its beginning or its end, and the
// one after `shared`, `named`, `slots` or `exclusive` at its beginning. Texts without any are left as they are.
void escape_lookalike(std::string& text);

}  // namespace hierlock::plan
