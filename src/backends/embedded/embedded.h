// Embedded: the stores that need no server. memory: lives in this process, shm: in a file that processes share.
#pragma once

#include <functional>
#include <memory>

#include <hierlock/options.h>
#include <hierlock/spi/backend.h>
#include <hierlock/spi/url.h>

namespace hierlock::embedded {

// memory:, memory:?max_locks=N. Throws Error(invalid_argument).
std::unique_ptr<spi::Backend> open_memory(const spi::Url& url, Owners owners);

// What a store that needs a server puts before it: memory:, with extends that count only if that server grants them,
// too.
class Queue : public spi::Backend {
 public:
  // `confirm` is asked when all of the addition is held here, and may take its time. False, or an exception: the grant
  // is as it was.
  virtual std::optional<spi::Grant> extend_if(const spi::Grant& grant, const spi::Request& request,
                                              const std::function<bool()>& confirm) = 0;
};
std::unique_ptr<Queue> open_queue(Owners owners);

// shm:, shm:NAME, shm:///folder/file, ?mode=0660, ?max_locks=N. Throws Error; without `create`, not_provisioned for a
// table that is not there.
std::unique_ptr<spi::Backend> open_shm(const spi::Url& url, Owners owners, bool create);

}  // namespace hierlock::embedded
