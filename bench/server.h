// The servers that the environment names.
#pragma once

#include <string_view>

#include "session.h"

namespace bench {

// The URL of the server that the variable names. Without one the group is skipped, and the result is null.
const char* server_for(Session& session, std::string_view group, const char* variable);

}  // namespace bench
