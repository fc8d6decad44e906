// Resolve: waits for a host's name to be resolved, in bounded time. getaddrinfo() knows no deadline, and the client
// libraries call it on the thread that connects.
#pragma once

#include <string>

#include "timed/wait_limit.h"

namespace hierlock::endpoint {

// Returns when the name is resolved, or needs no resolving. Throws Error(unavailable) when the limit gives up first.
// `place` is for the message. Afterwards the client library resolves the name once more. A name that was resolved a
// moment ago is usually resolved at once.
void await_name(const std::string& host, const std::string& place, timed::WaitLimit& limit);

}  // namespace hierlock::endpoint
