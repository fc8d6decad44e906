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
    take += "EVALSHA locks.lua 3 " + keys + " take ID " + std::to_string(options.lease.count()) +
            " 0 0 QUESTION '0 1 SESSION CHANNEL' '" + words_of(group.nodes) + "'\n";
    drop += "EVALSHA locks.lua 3 " + keys + " drop ID 0 FENCE\n";
  }
  return "-- acquire: one script for each root, in this order; a line each for NODE, MODE and SLOTS (1 IS, 2 IX, 3 S, "
         "4 X)\n" +
         take + "-- release\n" + drop + "-- locks.lua\n" + std::string(locks_lua);
}

}  // namespace hierlock::valkey
