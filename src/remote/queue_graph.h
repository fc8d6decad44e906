// QueueGraph: finds which owners wait for which in the local queue, directly or through others. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "embedded/embedded.h"
#include "remote/components.h"

namespace hierlock::remote {

class QueueGraph {
 public:
  // One pass over the queue. A waiter leads to the holders of its node and to the waiters before it. These form a
  // chain, each leading to the next, so each needs only one edge.
  explicit QueueGraph(const embedded::Queue::Waits& queue);

  // For each owner of `from`, by index: which owners of `to` it waits for, as indices in rising order. An owner does
  // not wait for itself. Time and memory grow with the size of the graph, times the number of `to` divided by 64.
  std::vector<std::vector<std::size_t>> reached(std::span<const std::uint64_t> from,
                                                std::span<const std::uint64_t> to) const;
  // By index: whether any owner of `from` waits for this one of `to`. Linear.
  std::vector<bool> waited_for(std::span<const std::uint64_t> from, std::span<const std::uint64_t> to) const;

 private:
  Vertex new_vertex();
  Vertex vertex_of(std::uint64_t owner);

  std::vector<std::vector<Vertex>> edges_;
  std::unordered_map<std::uint64_t, Vertex> vertices_;  // by owner
};

}  // namespace hierlock::remote
