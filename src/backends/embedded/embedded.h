// Embedded: the stores that need no server. memory: lives in this process.
#pragma once

#include <memory>

#include <hierlock/options.h>
#include <hierlock/spi/backend.h>
#include <hierlock/spi/url.h>

namespace hierlock::embedded {

// memory:, memory:?max_locks=N. Throws Error(invalid_argument).
std::unique_ptr<spi::Backend> open_memory(const spi::Url& url, Owners owners);
// shm: shared by the processes of this machine
std::unique_ptr<spi::Backend> open_shm(const spi::Url& url, Owners owners);

}  // namespace hierlock::embedded
