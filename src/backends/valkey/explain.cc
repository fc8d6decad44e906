#include "valkey/explain.h"

#include "valkey/connections.h"
#include "valkey/options.h"
#include "valkey/places.h"

namespace hierlock::valkey {

std::string statements(const spi::Url& url, const spi::Plan& plan) {
  const Options options = read_url(url);
  std::string take, drop;
  for (const remote::LeaseGroup& group : groups_of(plan, options.table)) {
    const std::string keys = group.place + " " + group.place + ":l " + group.place + ":q";
    take += "EVALSHA locks.lua 3 " + keys + " take ID 0 1 " + std::to_string(options.lease.count()) +
            " CHANNEL SESSION 0 0 QUESTION";
    for (const remote::LeaseNode& node : group.nodes) {
      take +=
          " '" + node.name + "' " + std::to_string(static_cast<int>(node.mode) + 1) + " " + std::to_string(node.slots);
    }
    take += "\n";
    drop += "EVALSHA locks.lua 3 " + keys + " drop ID 0 FENCE 0 0\n";
  }
  return "-- acquire: one script for each root, in this order; NODE MODE SLOTS for each node (1 IS, 2 IX, 3 S, 4 X)\n" +
         take + "-- release\n" + drop + "-- locks.lua\n" + std::string(locks_lua);
}

}  // namespace hierlock::valkey
