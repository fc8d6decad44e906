// Checkup: the frame of `doctor`.
//
// A store first asks its server all questions, and keeps every answer in its own struct, errors too. Then a table of
// checks judges the answers without I/O. So a unit test can judge servers that are not available for testing.
//
//   constexpr Check<Seen> checks[] = {{"server", server}, {"tls", tls}};
//   std::vector<Finding> findings = judge_all(checks, seen);
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hierlock/error.h>
#include <hierlock/operate.h>

namespace hierlock::remote {

// The result of a check. If it is not good, it has a fix. If the check names no fix, the fix is to ask the server's
// operator.
struct Judgement {
  Finding::Verdict verdict = Finding::Verdict::good;
  std::string text, fix;
};
inline Judgement good(std::string text) { return {Finding::Verdict::good, std::move(text), ""}; }
inline Judgement slow(std::string text, std::string fix) {
  return {Finding::Verdict::slow, std::move(text), std::move(fix)};
}
inline Judgement unsafe(std::string text, std::string fix) {
  return {Finding::Verdict::unsafe, std::move(text), std::move(fix)};
}
inline Judgement unknown(std::string text, std::string fix = "") {
  return {Finding::Verdict::unknown, std::move(text), std::move(fix)};
}
inline constexpr const char* changes_statements =
    "connect to the server itself: something in between changes statements";
inline Judgement not_said() { return unknown("the server does not say"); }

// For open(), which refuses what a check calls unsafe.
Error refusal(ErrorKind kind, const Judgement& judgement);

template <class... Answers>
struct Check {
  const char* name;  // short, and always the same: scripts compare it
  Judgement (*judge)(const Answers&...);
};

Finding finding(const char* check, Judgement judgement);

// One Finding for each check, in the order of the checks. If a check throws because it did not expect an answer, its
// finding is `unknown`, and the other checks still run.
template <class Checks, class... Answers>
std::vector<Finding> judge_all(const Checks& checks, const Answers&... answers) {
  std::vector<Finding> findings;
  for (const auto& check : checks) {
    Judgement judgement;
    try {
      judgement = check.judge(answers...);
    } catch (const std::exception& error) {
      judgement = unknown(std::string("the server's answer cannot be read: ") + error.what());
    }
    findings.push_back(finding(check.name, std::move(judgement)));
  }
  return findings;
}

// Settings of a server by their names, as it shows them.
class Settings : public std::map<std::string, std::string> {
 public:
  using map::map;
  std::string value(const std::string& name) const;  // empty: the server does not say
  bool is_on(const std::string& name) const;
  std::uint64_t number(const std::string& name) const;
};

// --- judgements that the stores share --------------------------------------------------------------------

// How the connection is protected. `cipher` is empty without TLS.
struct Protection {
  std::string cipher;
  bool verified = false, local = false;
  std::string place;
};
Judgement judge_tls(const Protection& way);

// The session number that the server tells us, asked several times.
struct Sessions {
  std::uint64_t logged_in_as = 0;
  std::vector<std::uint64_t> asked;
  std::string greeted_as, version;  // the server's version by its greeting and by an answer; empty: not asked
};
Judgement judge_proxy(const Sessions& sessions);

// A setting that must be on or off.
Judgement judge_switch(const Settings& settings, const std::string& name, bool wanted, const std::string& otherwise,
                       const std::string& fix);

// Whether a server has room for the connections of a process.
struct Room {
  std::uint64_t need = 0, most = 0, used = 0;
  std::string of_which{};        // of `need`, in words that follow the number
  std::uint64_t of_account = 0;  // what this account may have; 0: there is no such limit
};
Judgement judge_connections(const Room& room, const std::string& fix);

// A right that was tried.
struct Attempt {
  enum class End : std::uint8_t { done, no_table, read_only, refused } end = End::done;
  std::string words;  // the server's
};
Judgement judge_attempt(const Attempt& attempt, const std::string& may, const std::string& may_not,
                        const std::string& fix);

// The right to keep notices. Locks do not depend on it. `missing`: there is no table, although locks can be taken.
Judgement judge_notices(const Attempt& attempt, const std::string& missing, const std::string& fix_missing,
                        const std::string& grant);

// Whether a wait can be ended from outside: by a second session, which then interrupts the first.
Judgement judge_interrupting(const Attempt& second, const Attempt& interrupt);

// Replication that may make another server the primary; empty: there is none. A client cannot see whether a replica
// would be promoted, so this is never certain (H17).
Judgement judge_failover(const std::string& replication);

// A session's setting that the store has set.
struct Setting {
  std::string name, is, wanted;
  bool part = false;  // `wanted` is one of several words in it. A server that does not know the word is good, too
};
Judgement judge_session(const std::vector<Setting>& settings);

// The server's clock less ours.
Judgement judge_clock(std::chrono::milliseconds ahead, const std::string& why_it_matters);

}  // namespace hierlock::remote
