// Look: a store for those who only look at it, and what to tell others who want to.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include <hierlock/locker.h>

#include "cli/store.h"

namespace hierlock::cli {

// None, with `why` set, if there is no table yet: it is not made. Otherwise as open_store(). `cancel` ends it with
// `cancelled`.
std::optional<Locker> open_to_look(const StoreUrl& url, std::string& why, std::stop_token cancel = {});

// The command that shows this store, for hints: `hierlock status`, with --on if it was given.
std::string status_command(const StoreUrl& url);

}  // namespace hierlock::cli
