#include "valkey/options.h"

#include <hierlock/error.h>

#include "plan/option.h"

namespace hierlock::valkey {

Options read_url(const spi::Url& url) {
  Options options;
  options.seeds = read_addresses(url);
  options.address = options.seeds.front();
  options.url = url.safe_text();
  if (!options.address.database.empty()) plan::read_number("the database", options.address.database, 0, 1'000'000);
  for (const auto& [name, value] : url.options) {
    if (name == "table") {
      options.table = plan::read_table_name(name, value, 50);
    } else if (name == "lease") {
      options.lease = plan::read_milliseconds(name, value, 1'000, 600'000);
    } else if (name == "connections") {
      options.connections = plan::read_number(name, value, 1, 1000);
    } else if (name == "wait_replicas") {
      options.wait_replicas = plan::read_number(name, value, 0, 100);
    } else if (name == "gate") {
      options.gate = plan::read_choice(name, value, "on", "off");
    } else if (name == "publish_after") {
      options.publish_after = plan::read_milliseconds(name, value, 0, 60'000);
    } else if (!endpoint::is_option(name)) {
      throw Error(ErrorKind::invalid_argument,
                  url.scheme + ": has no option \"" + name +
                      "\": it knows table, lease, connections, wait_replicas, gate, publish_after, tls, ca, socket, "
                      "password_file and password_env");
    }
  }
  return options;
}

}  // namespace hierlock::valkey
