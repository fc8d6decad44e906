// SideBySide: plays independent scenarios at the same time, where an engine is mostly waited for.
//
// MariaDB renews its view of waits ten times a second. A scenario with a few waits takes a second there, and the server
// does nothing meanwhile. So several are played at once, each in a schema of its own, with sessions of its own. All of
// them share the reads of the view (shared_look.h). Sessions of one are nobody's blockers in another.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lab/scenario.h"
#include "lab/venue.h"

namespace hierlock::lab {

// Whether the scenario may reach beyond its schema on MariaDB: names of GET_LOCK, settings of the server, accounts,
// other schemas, locks of the library. The text decides, so a scenario that is not understood costs time and is never
// wrong.
bool must_play_alone(const Script& script, std::string_view engine);

// As Runner::run_all().
std::vector<Result> run_all(std::span<const Scenario> scenarios, Venue& venue, const RunAllOptions& options);

}  // namespace hierlock::lab
