// PostgresView: who waits for whom, from what PostgreSQL's own views say.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lab/database.h"
#include "lab/expectation.h"

namespace hierlock::lab {

// Sessions by the process ids of their backends.
using Backends = std::map<std::string, std::string>;

// The questions to ask, in this order: a lock that is granted in between is no longer asked for in the second answer,
// and is not told as a wait. In both, $1 is the list of the sessions' backends.
std::string blockers_question();
// In them: whether a row `a` of pg_stat_activity, if there is one, is of a process of the server itself. Such a process
// has no user. An account without more rights sees no more of it.
inline constexpr std::string_view of_the_server = "a.pid IS NOT NULL AND a.usesysid IS NULL";
std::string locks_question();
std::string list_of(const Backends& sessions);

// A wait for the server's own processes, such as an autovacuum worker, is not told: it ends by itself.
View view_of(const Backends& sessions, const std::vector<Row>& blockers, const std::vector<Row>& locks);

}  // namespace hierlock::lab
