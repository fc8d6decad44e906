#include <algorithm>

#include <hierlock/spi/url.h>

#include "lab/play.h"

namespace hierlock::lab {

bool knows(std::string_view url) {
  const std::string scheme = spi::Url::parse(url).scheme;
  if (scheme == "memory" || scheme == "shm") return true;
#ifdef HIERLOCK_LAB_MYSQL
  if (scheme == "mysql") return true;
#endif
#ifdef HIERLOCK_LAB_POSTGRES
  if (scheme == "postgres" || scheme == "postgresql") return true;
#endif
#ifdef HIERLOCK_LAB_SQLITE
  if (scheme == "sqlite") return true;
#endif
  return false;
}

Result run(const Scenario& scenario, std::string_view url, const RunOptions& options) {
  const Script& script = scenario.script();
  if (!knows(url)) {
    throw Error(ErrorKind::unsupported,
                "this build of the lab cannot play anything at " + spi::Url::parse(url).scheme + ":");
  }
  Play play(script, url, options);
  if (options.schedule.empty()) return play.as_written();
  std::map<std::string, std::string> session_of;
  for (const Line& line : script.lines) {
    if (line.kind == Event::Kind::step) session_of.emplace(line.name, line.session);
  }
  for (const std::string& name : options.schedule) {
    if (!session_of.contains(name)) throw Error(ErrorKind::invalid_argument, "schedule: there is no step " + name);
  }
  auto next = options.schedule.begin();
  return play.in_order_of([&](const std::vector<std::string>& choices) {
    while (next != options.schedule.end()) {
      const std::string& session = session_of.at(*next++);
      // One that is over, since a step of its failed, is left out.
      if (std::find(choices.begin(), choices.end(), session) != choices.end()) return session;
    }
    return choices.front();
  });
}

}  // namespace hierlock::lab
