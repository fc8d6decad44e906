#include "mysql/options.h"

#include <hierlock/error.h>
#include <hierlock/target.h>

#include "plan/option.h"
#include "plan/text.h"

namespace hierlock::mysql {

std::string how_to_provision(const Options& options) {
  return "run `hierlock provision --on " + plan::shell_word(options.url) + "`, or use ?provision=lazy";
}

Options read_url(const spi::Url& url) {
  Options options;
  options.address = read_address(url, endpoint::Database::needed);
  options.url = url.safe_text();
  for (const auto& [name, value] : url.options) {
    if (name == "buckets") {
      options.layout.buckets = static_cast<std::uint32_t>(plan::read_count(name, value, 1, most_buckets));
    } else if (name == "levels") {
      options.layout.levels = static_cast<unsigned>(plan::read_number(name, value, 1, max_depth));
    } else if (name == "table") {
      options.layout.table = plan::read_table_name(name, value, 50);
    } else if (name == "provision") {
      options.layout.lazy = plan::read_choice(name, value, "lazy", "ahead");
    } else if (name == "connections") {
      options.connections = plan::read_number(name, value, 1, 1000);
    } else if (name == "views") {
      options.views = plan::read_choice(name, value, "on", "off");
    } else if (name == "gate") {
      options.gate = plan::read_choice(name, value, "on", "off");
    } else if (name == "publish_after") {
      options.publish_after = std::chrono::milliseconds(plan::read_number(name, value, 0, 60'000));
    } else if (!endpoint::is_option(name)) {
      throw Error(ErrorKind::invalid_argument,
                  "mysql: has no option \"" + name +
                      "\": it knows buckets, levels, table, provision, connections, gate, publish_after, views, "
                      "tls, ca, socket, password_file and password_env");
    }
  }
  return options;
}

}  // namespace hierlock::mysql
