// Judge: what an answer is in the words of a scenario, and whether it is as expected.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "lab/database.h"
#include "lab/expectation.h"

namespace hierlock::lab {

Expected as_outcome(const Answer& answer);

// The outcome, or one of its alternatives, has come about.
bool as_expected(const Expected& expected, const Answer& answer);
// The same, but its alternatives do not count.
bool single_as_expected(const Expected& expected, const Answer& answer);
// Notices and notifications, where any are named.
bool messages_as_expected(const Expected& expected, const Answer& answer);
// `blockers` are sorted.
bool blocked_as_expected(const Expected& want, const std::vector<std::string>& blockers);

// Outcomes that a session shown to wait may still come to by itself. A wait, or the circle of a deadlock, is not waited
// out.
bool ends_by_itself(const Expected& expected);

// The outcome itself, or one of its alternatives, is such.
template <class Is>
bool any_of(const Expected& expected, const Is& is) {
  return is(expected) || std::any_of(expected.alternatives.begin(), expected.alternatives.end(), is);
}

}  // namespace hierlock::lab
