// Resolve: the addresses of a host's name, in bounded time. getaddrinfo() has no deadline, and client libraries call it
// on the thread that connects. So clients resolve the name here, once, and give their library an address.
#pragma once

#include <string>
#include <vector>

#include "timed/wait_limit.h"

namespace hierlock::endpoint {

// Returns at least one address, in the order in which to try them. If `host` is an address, returns that address.
// Throws Error(unavailable) if there is no such name, or if the limit gives up first. `place` is for the message.
std::vector<std::string> resolve(const std::string& host, const std::string& place, timed::WaitLimit& limit);

}  // namespace hierlock::endpoint
