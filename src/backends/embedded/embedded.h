// Embedded: the stores that need no server. memory: lives in this process, shm: in a file that processes share.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <hierlock/options.h>
#include <hierlock/spi/backend.h>
#include <hierlock/spi/url.h>

namespace hierlock::embedded {

// memory:, memory:NAME, ?max_locks=N. Throws Error(invalid_argument).
std::unique_ptr<spi::Backend> open_memory(const spi::Url& url, Owners owners);

// The local queue of a store that needs a server. It is a memory: table with extends in two halves: the store asks its
// server between them. Requests of owners that hold a lock stand before those of owners that hold none, because other
// processes may wait for them.
class Queue : public spi::Backend {
 public:
  // The first half of an extend: the addition is held here, and commit(), by the same thread, makes it part of the
  // grant. Null: not in time. The plan of the request must outlive it.
  class Extension {
   public:
    virtual ~Extension() = default;  // without commit(): the grant is as it was
    virtual spi::Grant commit() = 0;
  };
  virtual std::unique_ptr<Extension> begin_extend(const spi::Grant& grant, const spi::Request& request) = 0;

  // The holders and waiters, without names, for a search that has to be quick. Linear.
  struct Waits {
    struct Hold {
      std::uint64_t owner;  // as Snapshot::Party::owner
      std::uint32_t node;
      Mode mode;
    };
    struct Wait {
      std::uint64_t owner;
      std::uint32_t node;
      Mode mode;
    };
    std::vector<Hold> holds;
    std::vector<Wait> waits;  // those for one node stand together, in the order of its queue
  };
  virtual Waits waits() const = 0;
  // snapshot() without those who wait. Linear.
  virtual Snapshot holders() const = 0;
};
std::unique_ptr<Queue> open_queue(Owners owners);

// shm:, shm:NAME, shm:///folder/file, ?mode=0660, ?max_locks=N. Throws Error; without `create`, not_provisioned for a
// table that is not there.
std::unique_ptr<spi::Backend> open_shm(const spi::Url& url, Owners owners, bool create);

}  // namespace hierlock::embedded
