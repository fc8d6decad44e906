// SqlText: where the quoted parts of a statement are, as SQL engines quote.
#pragma once

#include <cstddef>
#include <string_view>

namespace hierlock::lab {

// If a quoted part begins at `at`: the place behind its end, or npos if it is not closed. Otherwise `at`.
//
// Quoted are '…', "…" and `…` with the quote doubled inside, PostgreSQL's E'…', where \' is a quote too, and
// PostgreSQL's $$…$$ and $tag$…$tag$.
std::size_t quoted_end(std::string_view text, std::size_t at) noexcept;

}  // namespace hierlock::lab
