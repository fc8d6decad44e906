// SlotMap: which node of a cluster has which key, as far as the cluster has said. Any thread may call anything here.
//
// It may be out of date at any time. That costs only a round trip, because a node refuses the keys that it does not
// have, and names the node that has them.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "valkey_client/connection.h"

namespace hierlock::valkey {

constexpr unsigned slot_count = 16'384;
unsigned slot_of(std::string_view key);

// `MOVED 7 HOST:PORT`: the slot was given to that node. `ASK 7 HOST:PORT`: it is being moved there, and this key is
// there already, if it is anywhere.
struct Redirection {
  unsigned slot = 0;
  std::string node;
  bool once = false;  // ASK
};
// `from`: the node that said so; it may leave out its own host.
std::optional<Redirection> redirection_in(const Reply& reply, const std::string& from);

class SlotMap {
 public:
  bool known() const;  // false: it is no cluster, as far as is known
  // As HOST:PORT; empty: not known.
  std::string node_of(std::string_view key) const;
  void set(unsigned slot, const std::string& node);
  // The reply to CLUSTER SLOTS of the node `from`.
  void read(const Reply& slots, const std::string& from);

  struct Shape {
    unsigned covered = 0;  // slots that have a node
    std::vector<std::string> primaries{};
    std::size_t fewest_replicas = 0;  // of a primary
  };
  Shape shape() const;

 private:
  std::uint16_t number_of(const std::string& node);

  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::string> nodes_{""};
  std::vector<std::uint16_t> by_slot_{};
  Shape shape_{};
};

}  // namespace hierlock::valkey
