#include "lab/judge.h"

#include <utility>

#include "lab/reader.h"

namespace hierlock::lab {

namespace {

using Kind = Expected::Kind;

Expected as_outcome(ResultSet set) {
  Expected outcome;
  if (set.has_rows) {
    outcome.kind = Kind::rows;
    outcome.rows = std::move(set.rows);
  } else if (set.affected) {
    outcome.kind = Kind::affected;
    outcome.affected = *set.affected;
  }
  return outcome;
}

std::vector<ResultSet> result_sets(const Answer& answer) {
  std::vector<ResultSet> all = answer.earlier;
  all.push_back({answer.has_rows, answer.rows, answer.affected});
  return all;
}

bool as_expected(const Expected& expected, const ResultSet& set) {
  if (expected.kind == Kind::affected) return set.affected == expected.affected;
  if (!set.has_rows) return false;
  if (!expected.any_order) return set.rows == expected.rows;
  std::vector<Row> want = expected.rows, got = set.rows;
  std::sort(want.begin(), want.end());
  std::sort(got.begin(), got.end());
  return want == got;
}

}  // namespace

Expected as_outcome(const Answer& answer) {
  Expected outcome;
  switch (answer.kind) {
    case Answer::Kind::ok: {
      std::vector<ResultSet> sets = result_sets(answer);
      outcome = as_outcome(std::move(sets.front()));
      for (std::size_t i = 1; i < sets.size(); ++i) outcome.more.push_back(as_outcome(std::move(sets[i])));
      break;
    }
    case Answer::Kind::deadlock:
      outcome.kind = Kind::deadlock;
      break;
    case Answer::Kind::timeout:
      outcome.kind = Kind::timeout;
      break;
    case Answer::Kind::busy:
      outcome.kind = Kind::busy;
      break;
    case Answer::Kind::serialization:
      outcome.kind = Kind::serialization;
      break;
    case Answer::Kind::cancelled:
      outcome.kind = Kind::cancelled;
      break;
    case Answer::Kind::error:
      outcome.kind = Kind::error;
      outcome.code = answer.code;
      break;
  }
  return outcome;
}

bool messages_as_expected(const Expected& expected, const Answer& answer) {
  if (!expected.notifications.empty() && expected.notifications != answer.notifications) return false;
  if (expected.notices.empty()) return true;
  return std::equal(
      expected.notices.begin(), expected.notices.end(), answer.notices.begin(), answer.notices.end(),
      [](const std::string& part, const std::string& notice) { return notice.find(part) != std::string::npos; });
}

bool single_as_expected(const Expected& expected, const Answer& answer) {
  if (!messages_as_expected(expected, answer)) return false;
  switch (expected.kind) {
    case Kind::ok:
      return answer.well();
    case Kind::rows:
    case Kind::affected: {
      std::vector<ResultSet> sets = result_sets(answer);
      // If no count is named, none is looked at.
      const auto counts = [](const Expected& one) { return one.kind == Kind::affected; };
      if (!counts(expected) && std::none_of(expected.more.begin(), expected.more.end(), counts)) {
        std::erase_if(sets, [](const ResultSet& set) { return !set.has_rows; });
        if (sets.empty()) return false;
      }
      if (!answer.well() || sets.size() != expected.more.size() + 1 || !as_expected(expected, sets.front()))
        return false;
      return std::equal(expected.more.begin(), expected.more.end(), sets.begin() + 1,
                        [](const Expected& one, const ResultSet& set) { return as_expected(one, set); });
    }
    case Kind::conflict:
      return answer.well() && answer.affected == 0u;
    case Kind::deadlock:
      return answer.kind == Answer::Kind::deadlock;
    case Kind::timeout:
      return answer.kind == Answer::Kind::timeout;
    case Kind::busy:
      return answer.kind == Answer::Kind::busy;
    case Kind::serialization:
      return answer.kind == Answer::Kind::serialization;
    case Kind::cancelled:
      return answer.kind == Answer::Kind::cancelled;
    case Kind::error:
      return !answer.well() && (expected.code.empty() || answer.code == expected.code) &&
             answer.message.find(expected.message) != std::string::npos;
    case Kind::blocked:
      return false;
  }
  return false;
}

bool as_expected(const Expected& expected, const Answer& answer) {
  return any_of(expected, [&](const Expected& one) { return single_as_expected(one, answer); });
}

bool ends_by_itself(const Expected& expected) {
  const auto waits = [](const Expected& one) { return one.kind == Kind::blocked || one.kind == Kind::deadlock; };
  return !any_of(expected, waits) && any_of(expected, [](const Expected& one) {
    return one.kind == Kind::timeout || one.kind == Kind::busy || one.kind == Kind::serialization ||
           one.kind == Kind::cancelled || one.kind == Kind::error;
  });
}

bool blocked_as_expected(const Expected& want, const std::vector<std::string>& blockers) {
  if (want.sessions.empty()) return true;
  if (want.one_of) return blockers.size() == 1 && contains(want.sessions, blockers.front());
  std::vector<std::string> by = want.sessions;
  std::sort(by.begin(), by.end());
  return by == blockers;
}

}  // namespace hierlock::lab
