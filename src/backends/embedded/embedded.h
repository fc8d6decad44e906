// Embedded: the stores that need no server. memory: lives in this process, shm: in a file that processes share.
#pragma once

#include <memory>

#include <hierlock/options.h>
#include <hierlock/spi/backend.h>
#include <hierlock/spi/url.h>

namespace hierlock::embedded {

// memory:, memory:?max_locks=N. Throws Error(invalid_argument).
std::unique_ptr<spi::Backend> open_memory(const spi::Url& url, Owners owners);
// shm:, shm:NAME, shm:///folder/file, ?mode=0660, ?max_locks=N. Throws Error; without `create`, not_provisioned for a
// table that is not there.
std::unique_ptr<spi::Backend> open_shm(const spi::Url& url, Owners owners, bool create);

}  // namespace hierlock::embedded
