// SqlText: where the quoted parts of a statement are, as SQL engines quote.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hierlock::lab {

// If a quoted part begins at `at`: the place behind its end, or npos if it is not closed. Otherwise `at`.
//
// Quoted are '…', "…" and `…` with the quote doubled inside, PostgreSQL's E'…', where \' is a quote too, and
// PostgreSQL's $$…$$ and $tag$…$tag$.
std::size_t quoted_end(std::string_view text, std::size_t at) noexcept;

// In lower case, with every kind of white space as a blank.
std::string lowered(std::string_view sql);
// A token is a word or one other character. Text in quotes is split, too: it may be the body of a function.
std::vector<std::string> tokens_of(std::string_view lower);

}  // namespace hierlock::lab
