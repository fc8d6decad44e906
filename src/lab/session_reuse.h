// SessionReuse: which scenarios need connections that no other session has had, or will have.
//
// The lab resets a connection before another session gets it, and asks the server whether anything is left. A few
// things outlive a reset, and no view of the server shows them. A scenario whose text may do such a thing gets
// connections of its own. The text decides, so a scenario that is not understood costs time and is never wrong.
#pragma once

#include <string_view>

#include "lab/scenario.h"

namespace hierlock::lab {

bool needs_own_connections(const Script& script, std::string_view engine);
// The same of one text, which may be a statement, or the body of a function.
bool may_outlive_a_reset(std::string_view sql, std::string_view engine);
// A SET is among these statements, or in the body of a function.
bool may_change_settings(std::string_view sql);

}  // namespace hierlock::lab
