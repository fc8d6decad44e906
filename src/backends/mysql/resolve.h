// Resolve: a host's name, in bounded time. getaddrinfo() knows no deadline, and the client library calls it on the
// thread that connects.
#pragma once

#include "mysql/address.h"
#include "mysql/connection.h"

namespace hierlock::mysql {

// Returns when the host's name was resolved, or need not be. Throws unavailable when the limit gives up first. The
// client library then resolves it once more, and has nothing better to go by than that it could be done a moment ago.
void await_name(const Address& address, WaitLimit& limit);

}  // namespace hierlock::mysql
