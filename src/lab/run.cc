#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <hierlock/spi/store.h>
#include <hierlock/spi/url.h>

#include "lab/play.h"
#include "lab/side_by_side.h"

namespace hierlock::lab {

bool knows(std::string_view url) {
  const std::string scheme = spi::Url::parse(url).scheme;
  if (scheme == "memory" || scheme == "shm") return true;
  if (scheme == "valkey" || scheme == "redis") return spi::has_store(scheme);
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
  Venue venue(url, false);
  return run(scenario, venue, options);
}

Runner::Runner(std::string_view url) : venue_(std::make_unique<Venue>(url, true)) {}
Runner::~Runner() = default;
Runner::Runner(Runner&&) noexcept = default;
Runner& Runner::operator=(Runner&&) noexcept = default;
Result Runner::run(const Scenario& scenario, const RunOptions& options) { return lab::run(scenario, *venue_, options); }
std::vector<Result> Runner::run_all(std::span<const Scenario> scenarios, const RunAllOptions& options) {
  return lab::run_all(scenarios, *venue_, options);
}
Permuted Runner::permute(const Scenario& scenario, const PermuteOptions& options) {
  return lab::permute(scenario, *venue_, options);
}

Result run(const Scenario& scenario, Venue& venue, const RunOptions& options) {
  const Script& script = scenario.script();
  if (!knows(venue.url())) {
    throw Error(ErrorKind::unsupported,
                "this build of the lab cannot play anything at " + spi::Url::parse(venue.url()).scheme + ":");
  }
  Play play(script, venue, options);
  if (options.schedule.empty()) return play.as_written();
  // Of each session the steps named must be its first ones, in their order; those of a session that is over are left
  // out.
  std::map<std::string, std::string> session_of;
  std::map<std::string, std::vector<std::string>> steps_of;
  for (const Line& line : script.lines) {
    if (line.kind != Event::Kind::step) continue;
    session_of.emplace(line.name, line.session);
    steps_of[line.session].push_back(line.name);
  }
  std::map<std::string, std::size_t> done;
  for (const std::string& name : options.schedule) {
    const auto session = session_of.find(name);
    if (session == session_of.end()) throw Error(ErrorKind::invalid_argument, "schedule: there is no step " + name);
    const std::vector<std::string>& steps = steps_of.at(session->second);
    std::size_t& next = done[session->second];
    if (next == steps.size() || steps[next] != name) {
      throw Error(ErrorKind::invalid_argument, "schedule: " + name + " is not the next step of " + session->second +
                                                   (next == steps.size() ? "" : ", which is " + steps[next]));
    }
    ++next;
  }
  auto next = options.schedule.begin();
  return play.in_order_of([&](const std::vector<std::string>& choices) -> std::string {
    while (next != options.schedule.end()) {
      const std::string& name = *next++;
      const std::string& session = session_of.at(name);
      if (std::find(choices.begin(), choices.end(), session) != choices.end()) return session;
      if (play.waits(session)) {
        throw Error(ErrorKind::invalid_argument,
                    "schedule: " + session + " cannot take step " + name + " in its place: it waits");
      }
    }
    return {};
  });
}

}  // namespace hierlock::lab
