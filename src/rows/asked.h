// Asked: what a statement is for, and how long it may wait. It decides what an engine's error means.
#pragma once

#include <string_view>

#include <hierlock/rows.h>

namespace hierlock::rows {

struct Session::Asked {
  const char* doing;         // "update", "lock", …
  std::string_view what;     // the table; empty: of the transaction
  std::optional<Wait> wait;  // none: the client's and the server's own settings decide
};

}  // namespace hierlock::rows
