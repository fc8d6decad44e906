#include "remote/checkup.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace hierlock::remote {

namespace {

constexpr std::chrono::milliseconds clocks_agree{5'000};
constexpr const char* to_the_server = "connect to the server itself";

std::string proxy_named_in(std::string version) {
  std::transform(version.begin(), version.end(), version.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* name : {"proxysql", "maxscale", "router", "vitess", "pgbouncer", "proxy"}) {
    if (version.find(name) != std::string::npos) return name;
  }
  return "";
}

}  // namespace

Finding finding(const char* check, Judgement judgement) {
  const bool is_good = judgement.verdict == Finding::Verdict::good;
  if (!is_good && judgement.fix.empty()) judgement.fix = "ask its operator";
  return {check, judgement.verdict, std::move(judgement.text), std::move(judgement.fix)};
}

Error refusal(ErrorKind kind, const Judgement& judgement) {
  std::string fix = judgement.fix;
  if (!fix.empty()) fix[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(fix[0])));
  return {kind, judgement.text + ". " + fix};
}

std::string Settings::value(const std::string& name) const {
  const auto found = find(name);
  return found == end() ? "" : found->second;
}

bool Settings::is_on(const std::string& name) const {
  const std::string is = value(name);
  return is == "ON" || is == "on" || is == "1" || is == "YES" || is == "yes";
}

std::uint64_t Settings::number(const std::string& name) const {
  std::uint64_t result = 0;
  const std::string is = value(name);
  std::from_chars(is.data(), is.data() + is.size(), result);
  return result;
}

Judgement judge_tls(const Protection& way) {
  const std::string fix = "tls=verify, with ca=FILE if the certificate is your own";
  if (!way.cipher.empty()) {
    if (way.verified) return good(way.cipher + ", the server's certificate is verified");
    if (way.local) return good(way.cipher + ", on this machine");
    return unknown(way.cipher + ", but nobody has checked who answers at " + way.place, fix);
  }
  if (way.local) return good("none, and none needed: " + way.place + " is on this machine");
  return unsafe(
      "none, and " + way.place + " is another machine: whoever is in between can read, and lock and release as you",
      fix);
}

Judgement judge_proxy(const Sessions& sessions) {
  for (const std::uint64_t session : sessions.asked) {
    if (session == sessions.logged_in_as) continue;
    return unsafe("the session logged in as number " + std::to_string(sessions.logged_in_as) +
                      ", and the server calls it " + std::to_string(session) +
                      ": a proxy is in between that mixes sessions",
                  to_the_server);
  }
  if (const std::string name = proxy_named_in(sessions.greeted_as); !name.empty()) {
    return unsafe("\"" + sessions.greeted_as + "\" is a proxy (" + name + "), and may mix sessions", to_the_server);
  }
  if (!sessions.version.empty() && sessions.version != sessions.greeted_as) {
    return unknown("the greeting came from version " + sessions.greeted_as + ", the answers from " + sessions.version +
                       ": something is in between",
                   to_the_server);
  }
  return good("none seen: the session keeps its number, " + std::to_string(sessions.logged_in_as));
}

Judgement judge_switch(const Settings& settings, const std::string& name, bool wanted, const std::string& otherwise,
                       const std::string& fix) {
  if (settings.value(name).empty()) return not_said();
  const bool is = settings.is_on(name);
  if (is == wanted) return good(is ? "on" : "off");
  return unsafe(name + (is ? " is on: " : " is off: ") + otherwise, fix);
}

Judgement judge_connections(const Room& room, const std::string& fix) {
  if (room.most == 0) return not_said();
  const std::uint64_t limit = room.of_account > 0 ? std::min(room.of_account, room.most) : room.most;
  const std::uint64_t left = room.most > room.used ? room.most - room.used : 0;
  std::string text = "a process with this URL opens up to " + std::to_string(room.need) + room.of_which +
                     "; the server takes " + std::to_string(room.most) + ", " + std::to_string(room.used) +
                     " are in use";
  if (room.of_account > 0) text += "; this account may have " + std::to_string(room.of_account);
  if (room.need > limit || room.need > left) return slow(text + ": some locks would fail with `exhausted`", fix);
  return good(text + ": room for " + std::to_string(std::min(left, limit) / room.need) + " such processes");
}

Judgement judge_attempt(const Attempt& attempt, const std::string& may, const std::string& may_not,
                        const std::string& fix) {
  switch (attempt.end) {
    case Attempt::End::done:
      return good(may);
    case Attempt::End::no_table:
      return unknown("there is no table to try it on", "see tables");
    case Attempt::End::read_only:
      return unknown("cannot be tried: " + attempt.words, "see read_only");
    case Attempt::End::refused:
      break;
  }
  return unsafe(may_not + ": " + attempt.words, fix);
}

Judgement judge_notices(const Attempt& attempt, const std::string& missing, const std::string& fix_missing,
                        const std::string& grant) {
  const std::string so =
      ": other processes cannot see who holds and waits, and a deadlock between several sessions is ended by timeouts "
      "only";
  if (attempt.end == Attempt::End::no_table && !missing.empty()) return slow(missing + so, fix_missing);
  if (attempt.end == Attempt::End::refused) return slow(attempt.words + so, grant);
  return judge_attempt(attempt, "this account may tell other processes who holds and waits", "", grant);
}

Judgement judge_interrupting(const Attempt& second, const Attempt& interrupt) {
  const std::string so = "timeouts and cancellation close the connection instead: ";
  if (second.end != Attempt::End::done) {
    return unsafe("no second session can be opened, so that no wait can be ended: " + so + second.words,
                  "let this account have more connections");
  }
  if (interrupt.end == Attempt::End::done) return good("this account can end the waits of its own sessions");
  return unsafe("this account cannot end the waits of its own sessions, so " + so + interrupt.words,
                "use one account for all sessions of a URL");
}

Judgement judge_failover(const std::string& replication) {
  if (replication.empty()) return good("nothing can follow this server");
  return unknown(
      replication +
          ". Locks are not replicated: after a failover the new primary knows of none, and two could hold one",
      "pass lock.fence() with what you write and refuse what is lower, or do not fail over while locks are held");
}

Judgement judge_session(const std::vector<Setting>& settings) {
  std::string wrong;
  for (const Setting& setting : settings) {
    const bool known = setting.is.find(setting.wanted.substr(0, setting.wanted.find('='))) != std::string::npos;
    const bool has = setting.is.find(setting.wanted) != std::string::npos;
    if (setting.part ? has || (!known && !setting.is.empty()) : setting.is == setting.wanted) continue;
    wrong += (wrong.empty() ? "" : ", ") + setting.name;
    wrong += setting.part ? " lacks " + setting.wanted
                          : " is " + (setting.is.empty() ? "?" : setting.is) + " in place of " + setting.wanted;
  }
  if (wrong.empty()) return good("its " + std::to_string(settings.size()) + " settings are as they should be");
  return unsafe("what was set in the session is not so: " + wrong, changes_statements);
}

Judgement judge_clock(std::chrono::milliseconds ahead, const std::string& why_it_matters) {
  const std::string text = "the server's is " + std::to_string(std::chrono::abs(ahead).count()) + " ms " +
                           (ahead.count() < 0 ? "behind" : "ahead of") + " this machine's";
  if (std::chrono::abs(ahead) <= clocks_agree) return good(text);
  return unknown(text + ": one of the two is wrong. " + why_it_matters, "keep both in step with NTP");
}

}  // namespace hierlock::remote
