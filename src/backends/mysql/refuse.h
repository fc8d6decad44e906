// Refuse: what cannot be said in rows, before anything is sent or shown (H7, B10).
#pragma once

#include <hierlock/spi/plan.h>

namespace hierlock::mysql {

// Throws unsupported for names, slots and what is shared above the deepest level, invalid_argument for what is deeper
// than a table of so many levels.
void refuse_what_rows_cannot_say(const spi::Plan& plan, unsigned levels);

}  // namespace hierlock::mysql
