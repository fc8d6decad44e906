#include "mysql/doctor.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "mysql/schema.h"
#include "mysql/session.h"
#include "mysql/statements.h"
#include "mysql/views.h"
#include "mysql_client/error_codes.h"
#include "plan/buckets.h"
#include "plan/text.h"

namespace hierlock::mysql {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = Finding::Verdict;

constexpr seconds patience{5};
constexpr seconds counting{30};  // 3 x 10^7 rows take a few seconds
using codes::no_database_chosen, codes::no_such_database, codes::no_such_table, codes::no_such_column,
    codes::no_such_session, codes::database_denied, codes::out_of_time_mysql, codes::out_of_time_mariadb;
constexpr milliseconds clocks_agree{5'000};

std::uint64_t number(const std::string& text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}
std::uint64_t number(const std::optional<std::string>& text) { return text ? number(*text) : 0; }

std::string value_of(const std::map<std::string, std::string>& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}
bool is_on(const std::map<std::string, std::string>& variables, const char* name) {
  const std::string value = value_of(variables, name);
  return value == "ON" || value == "1" || value == "YES";
}
bool has_rows(const Reply& reply) { return reply.well() && !reply.rows.empty(); }
// Whoever may write elsewhere may not here; no right would help.
bool is_read_only(const Reply& reply) {
  return reply.code == codes::option_prevents || reply.code == codes::read_only_mode ||
         reply.code == codes::read_only_transaction;
}
bool no_table(const Reply& reply) { return reply.code == no_such_table || reply.code == no_database_chosen; }
std::string words(const Reply& reply) { return reply.message + " (" + std::to_string(reply.code) + ")"; }

Finding good(const char* check, std::string text) { return {check, Verdict::good, std::move(text), ""}; }
Finding bad(const char* check, Verdict verdict, std::string text, std::string fix) {
  return {check, verdict, std::move(text), std::move(fix)};
}

std::string provision(const Options& options) {
  return "run `hierlock provision --on " + plan::shell_word(options.url) + "`, or use ?provision=lazy";
}
std::string grant(const Seen& seen, const Options& options, const std::string& rights, const std::string& table) {
  return "GRANT " + rights + " ON `" + options.address.database + "`.`" + table + "` TO " + seen.account;
}

// --- who answers -------------------------------------------------------------------------------------------

Finding server(const Seen& seen) {
  const std::string name = (seen.mariadb ? "MariaDB " : "MySQL ") + seen.version;
  if (seen.version.starts_with(seen.mariadb ? "10.11." : "9.7.")) return good("server", name);
  if (!seen.mariadb && number(seen.version) < 8) {
    return bad("server", Verdict::unsafe, name + ": it has no FOR SHARE, so no lock can be taken",
               "use MySQL 8 or later, or MariaDB");
  }
  return bad("server", Verdict::unknown, name + ": hierlock was tested with MySQL 9.7 and MariaDB 10.11 only",
             "run the tests of hierlock against this version before you rely on it");
}

std::string proxy_named_in(std::string version) {
  std::transform(version.begin(), version.end(), version.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* name : {"proxysql", "maxscale", "router", "vitess", "proxy"}) {
    if (version.find(name) != std::string::npos) return name;
  }
  return "";
}

Finding proxy(const Seen& seen) {
  const std::string fix = "connect to the server itself";
  for (const std::uint64_t session : seen.sessions) {
    if (session == seen.logged_in_as) continue;
    return bad("proxy", Verdict::unsafe,
               "the session logged in as number " + std::to_string(seen.logged_in_as) + ", and the server calls it " +
                   std::to_string(session) + ": a proxy is in between that mixes sessions",
               fix);
  }
  if (const std::string name = proxy_named_in(seen.version); !name.empty()) {
    return bad("proxy", Verdict::unsafe, "\"" + seen.version + "\" is a proxy (" + name + "), and may mix sessions",
               fix);
  }
  const std::string inside = value_of(seen.global, "version");
  if (!inside.empty() && inside != seen.version) {
    return bad(
        "proxy", Verdict::unknown,
        "the greeting came from version " + seen.version + ", the answers from " + inside + ": something is in between",
        fix);
  }
  return good("proxy", "none seen: the session keeps its number, " + std::to_string(seen.logged_in_as));
}

Finding tls(const Seen& seen, const Options& options) {
  const Address& address = options.address;
  if (!seen.cipher.empty()) {
    if (address.tls == Tls::verify) return good("tls", seen.cipher + ", the server's certificate is verified");
    if (is_local(address)) return good("tls", seen.cipher + ", on this machine");
    return bad("tls", Verdict::unknown, seen.cipher + ", but nobody has checked who answers at " + address.place(),
               "tls=verify, with ca=FILE if the certificate is your own");
  }
  if (is_local(address)) return good("tls", "none, and none needed: " + address.place() + " is on this machine");
  return bad("tls", Verdict::unsafe,
             "none, and " + address.place() +
                 " is another machine: whoever is in between can "
                 "read, and lock and release as you",
             "tls=verify, with ca=FILE if the certificate is your own");
}

// --- what it does with locks ---------------------------------------------------------------------------------

Finding galera(const Seen& seen) {
  if (!is_on(seen.global, "wsrep_on")) return good("galera", "no");
  return bad("galera", Verdict::unsafe,
             "this is a node of a Galera cluster: row locks are not carried to the other nodes, so two could hold one "
             "lock",
             "use a server of its own for locks, or another store");
}

Finding group_replication(const Seen& seen) {
  if (value_of(seen.global, "group_replication_group_name").empty()) return good("group_replication", "no");
  if (is_on(seen.global, "group_replication_single_primary_mode")) {
    return good("group_replication", "with a single primary");
  }
  return bad("group_replication", Verdict::unsafe,
             "several primaries: row locks are not carried between them, so two could hold one lock",
             "SELECT group_replication_switch_to_single_primary_mode(), or use a server of its own for locks");
}

Finding read_only(const Seen& seen) {
  for (const char* name : {"super_read_only", "read_only", "innodb_read_only"}) {
    // MariaDB 12 has more words for it than ON.
    const std::string value = value_of(seen.global, name);
    if (value.empty() || value == "OFF" || value == "0" || value == "NO") continue;
    return bad(
        "read_only", Verdict::unsafe,
        std::string(name) + " is " + value + ": most likely a replica, whose row locks exclude nobody on the primary",
        "connect to the primary");
  }
  return good("read_only", "no");
}

// Nobody can see from here whether somebody would be promoted, so this is never certain (H17).
Finding failover(const Seen& seen) {
  const std::uint64_t acknowledging = number(value_of(seen.status, "Rpl_semi_sync_source_clients")) +
                                      number(value_of(seen.status, "Rpl_semi_sync_master_clients"));
  std::string why;
  if (!value_of(seen.global, "group_replication_group_name").empty()) {
    why = "it is the primary of a group";
  } else if (is_on(seen.global, "wsrep_on")) {
    why = "it is a node of a cluster";
  } else if (acknowledging > 0) {
    why = std::to_string(acknowledging) + " semi-synchronous replicas follow it";
  } else if (is_on(seen.global, "rpl_semi_sync_source_enabled") || is_on(seen.global, "rpl_semi_sync_master_enabled")) {
    why = "semi-synchronous replication is enabled";
  } else if (is_on(seen.global, "log_bin")) {
    why = "it writes a binary log, which replicas may follow";
  } else {
    return good("failover", "nothing can follow this server: it writes no binary log");
  }
  return bad(
      "failover", Verdict::unknown,
      why + ". Locks are not replicated: after a failover the new primary knows of none, and two could hold one",
      "pass lock.fence() with what you write and refuse what is lower, or do not fail over while locks are held");
}

Finding isolation(const Seen& seen) {
  if (!seen.prepared.well()) {
    return bad("isolation", Verdict::unsafe, "the session cannot be set for locking: " + words(seen.prepared),
               "let this account set its own session's variables");
  }
  std::string level = value_of(seen.session, "transaction_isolation");
  if (level.empty()) level = value_of(seen.session, "tx_isolation");
  if (level == "READ-COMMITTED") return good("isolation", "READ-COMMITTED, in sessions that lock");
  return bad("isolation", Verdict::unsafe,
             "the session was set to READ-COMMITTED and is " + (level.empty() ? "unknown" : level) +
                 ": locking reads would lock gaps as well",
             "connect to the server itself: something in between changes statements");
}

Finding autocommit(const Seen& seen) {
  if (!seen.prepared.well() || value_of(seen.session, "autocommit").empty()) {
    return bad("autocommit", Verdict::unknown, "the session could not be set for locking", "see isolation");
  }
  if (!is_on(seen.session, "autocommit")) return good("autocommit", "off, in sessions that lock");
  return bad("autocommit", Verdict::unsafe, "stays on although it was set to 0: each lock would end with its statement",
             "connect to the server itself: something in between changes statements");
}

Finding wait_timeout(const Seen& seen) {
  const std::string own = value_of(seen.session, "wait_timeout");
  const std::string usual = value_of(seen.global, "wait_timeout") + " s for others, " +
                            value_of(seen.global, "interactive_timeout") + " s for interactive ones";
  if (own == "12") return good("wait_timeout", "12 s in sessions that lock (" + usual + ")");
  return bad("wait_timeout", Verdict::unsafe,
             "the session was set to 12 s and has " + (own.empty() ? "?" : own) + " s (" + usual +
                 "): a holder whose machine vanishes would keep its locks so long",
             "connect to the server itself: something in between changes statements");
}

// All else that is set in a session. The server's own defaults may be anything.
Finding session(const Seen& seen) {
  if (!seen.prepared.well() || seen.session.empty()) {
    return bad("session", Verdict::unknown, "the session could not be set for locking", "see isolation");
  }
  std::string wrong;
  const auto settings = session_settings(seen.mariadb ? Dialect::mariadb : Dialect::mysql);
  for (const SessionSetting& setting : settings) {
    const std::string value = value_of(seen.session, setting.name), shown = setting.shown;
    const bool is_switch = std::string_view(setting.name) == "optimizer_switch";
    // A switch that this version does not have is not on.
    const bool absent = is_switch && !value.empty() && value.find(shown.substr(0, shown.find('='))) == value.npos;
    if (absent || (is_switch ? value.find(shown) != value.npos : value == shown)) continue;
    wrong += (wrong.empty() ? "" : ", ") + std::string(setting.name);
    wrong += is_switch ? " lacks " + shown : " is " + (value.empty() ? "?" : value) + " in place of " + shown;
  }
  if (wrong.empty())
    return good("session", "its " + std::to_string(settings.size()) + " settings are as they should be");
  return bad("session", Verdict::unsafe, "what was set in the session is not so: " + wrong,
             "connect to the server itself: something in between changes statements");
}

Finding binary_log(const Seen& seen) {
  const std::string format = value_of(seen.global, "binlog_format");
  if (!is_on(seen.global, "log_bin")) return good("binary_log", "none");
  if (format != "STATEMENT") return good("binary_log", format);
  if (seen.log_rows.well()) return good("binary_log", "STATEMENT, and ROW in sessions that lock");
  return bad("binary_log", Verdict::unsafe,
             "STATEMENT: no lock of rows can be taken at READ COMMITTED then, and this account may not set it: " +
                 words(seen.log_rows),
             std::string(log_rows_fix));
}

Finding deadlock_detection(const Seen& seen) {
  const std::string value = value_of(seen.global, "innodb_deadlock_detect");
  if (value.empty()) return bad("deadlock_detection", Verdict::unknown, "the server does not say", "ask its operator");
  if (is_on(seen.global, "innodb_deadlock_detect")) return good("deadlock_detection", "on");
  return bad("deadlock_detection", Verdict::unsafe,
             "innodb_deadlock_detect is off: the server does not see requests that wait for each other",
             "SET GLOBAL innodb_deadlock_detect=ON");
}

Finding rollback_on_timeout(const Seen& seen) {
  const std::string value = value_of(seen.global, "innodb_rollback_on_timeout");
  if (value.empty()) return bad("rollback_on_timeout", Verdict::unknown, "the server does not say", "ask its operator");
  if (!is_on(seen.global, "innodb_rollback_on_timeout")) return good("rollback_on_timeout", "off");
  return bad("rollback_on_timeout", Verdict::unsafe,
             "innodb_rollback_on_timeout is on: a lock that waits while it is extended is lost",
             "start the server with innodb_rollback_on_timeout=OFF, or do not use extend()");
}

Finding connections(const Seen& seen, const Options& options) {
  const std::uint64_t most = number(value_of(seen.global, "max_connections"));
  const std::uint64_t own = number(value_of(seen.session, "max_user_connections"));
  const std::uint64_t used = number(value_of(seen.status, "Threads_connected"));
  const std::uint64_t need = options.connections + sessions_beyond;
  if (most == 0) return bad("connections", Verdict::unknown, "the server does not say", "ask its operator");
  const std::uint64_t limit = own > 0 ? std::min(own, most) : most;
  const std::uint64_t room = most > used ? most - used : 0;
  std::string text = "a process with this URL opens up to " + std::to_string(need) + "; the server takes " +
                     std::to_string(most) + ", " + std::to_string(used) + " are in use";
  if (own > 0) text += "; this account may have " + std::to_string(own);
  if (need > limit || need > room) {
    return bad("connections", Verdict::slow, text + ": some locks would fail with `exhausted`",
               "raise max_connections (or the account's MAX_USER_CONNECTIONS), or lower connections= in the URL");
  }
  return good("connections", text + ": room for " + std::to_string(std::min(room, limit) / need) + " such processes");
}

Finding prepared_statements(const Seen& seen, const Options& options) {
  const std::string value = value_of(seen.global, "max_prepared_stmt_count");
  if (value.empty()) return bad("prepared_statements", Verdict::unknown, "the server does not say", "ask its operator");
  const std::uint64_t most = number(value), used = number(value_of(seen.status, "Prepared_stmt_count"));
  const std::uint64_t need = options.connections * (Connection::most_statements + 1);
  const std::string text = "a process with this URL prepares up to " + std::to_string(need) + "; the server takes " +
                           value + ", " + std::to_string(used) + " are there";
  if (most >= used + need) return good("prepared_statements", text);
  return bad("prepared_statements", Verdict::slow, text + ": statements beyond that are sent as text, which is slower",
             "raise max_prepared_stmt_count, or lower connections= in the URL");
}

// --- rights ----------------------------------------------------------------------------------------------------

Finding tried(const char* check, const Reply& reply, const std::string& may, const std::string& cannot,
              const std::string& fix) {
  if (reply.well()) return good(check, may);
  if (no_table(reply)) return bad(check, Verdict::unknown, "there is no table to try it on", "see tables");
  if (is_read_only(reply)) return bad(check, Verdict::unknown, "cannot be tried: " + words(reply), "see read_only");
  return bad(check, Verdict::unsafe, cannot + ": " + words(reply), fix);
}

Finding lock_rows_right(const Seen& seen, const Options& options) {
  return tried("lock_rows", seen.lock, "this account may lock rows", "this account may not lock rows",
               grant(seen, options, "SELECT, UPDATE", options.layout.table));
}

Finding read_settings(const Seen& seen, const Options& options) {
  const std::string fix = grant(seen, options, "SELECT, UPDATE", options.layout.settings_table());
  if (seen.settings.code == no_such_column) {
    return bad("read_settings", Verdict::unsafe, "the settings were made by another version of hierlock",
               provision(options) + ", which adds what is missing, with the newest version, and use that everywhere");
  }
  if (!seen.settings.well()) {
    return tried("read_settings", seen.settings, "", "this account may not read the settings", fix);
  }
  return tried("read_settings", seen.raise_floor, "this account may read the settings, and raise the fence floor",
               "the fence floor cannot be raised", fix);
}

Finding make_rows(const Seen& seen, const Options& options) {
  if (!options.layout.lazy) return good("make_rows", "not needed: rows are made by `hierlock provision`");
  return tried("make_rows", seen.make_row, "this account may make missing rows",
               "?provision=lazy makes missing rows, and this account may not",
               grant(seen, options, "INSERT", options.layout.table));
}

// Locks do not depend on it, but deadlocks between sessions are found by it alone (B11).
Finding publish_right(const Seen& seen, const Options& options) {
  if (seen.who.well()) return good("publish", "this account may tell other processes who holds and waits");
  const std::string so =
      ": other processes cannot see who holds and waits, and a deadlock between several sessions is "
      "ended by timeouts only";
  if (no_table(seen.who) && !has_rows(seen.settings)) {
    if (options.layout.lazy) return good("publish", "no table yet: it is made with the others");
    return bad("publish", Verdict::unknown, "there is no table to try it on", "see tables");
  }
  if (no_table(seen.who)) {
    return bad("publish", Verdict::slow, "there is no " + options.layout.notices_table() + so, provision(options));
  }
  if (is_read_only(seen.who)) {
    return bad("publish", Verdict::unknown, "cannot be tried: " + words(seen.who), "see read_only");
  }
  return bad("publish", Verdict::slow, words(seen.who) + so,
             grant(seen, options, "SELECT, INSERT, UPDATE, DELETE", options.layout.notices_table()));
}

Finding kill(const Seen& seen) {
  if (!seen.second.well()) {
    return bad("kill", Verdict::unsafe,
               "no second session can be opened, so that no wait can be ended: timeouts and cancellation close the "
               "connection instead: " +
                   words(seen.second),
               "let this account have more connections");
  }
  if (seen.kill.well() || seen.kill.code == no_such_session) {
    return good("kill", "this account can end the waits of its own sessions");
  }
  return bad("kill", Verdict::unsafe,
             "this account cannot end the waits of its own sessions, so timeouts and cancellation close the connection "
             "instead: " +
                 words(seen.kill),
             "use one account for all sessions of a URL");
}

Finding wait_views(const Seen& seen) {
  if (seen.wait_view.well()) return good("wait_views", "this account may see who waits for whom");
  return bad("wait_views", Verdict::unknown, "this account may not see who waits for whom: " + words(seen.wait_view),
             grant_views(seen.mariadb, seen.account));
}

// --- the tables ------------------------------------------------------------------------------------------------

Finding tables(const Seen& seen, const Options& options) {
  const std::string& name = options.layout.table;
  if (!seen.database) {
    return bad("tables", Verdict::unsafe, "the database cannot be used: " + seen.no_database,
               "create it, or correct the URL, or GRANT this account rights in it");
  }
  if (has_rows(seen.settings)) return good("tables", name + " and its settings are there");
  if (!seen.settings.well() && !no_table(seen.settings)) {
    return bad("tables", Verdict::unknown, "the settings cannot be read", "see read_settings");
  }
  if (options.layout.lazy) return good("tables", "not there yet: made by the first who locks (provision=lazy)");
  return bad("tables", Verdict::unsafe, "there is no " + name + " with its settings", provision(options));
}

Finding settings(const Seen& seen, const Options& options) {
  if (!has_rows(seen.settings)) {
    if (options.layout.lazy && (seen.settings.well() || no_table(seen.settings))) {
      return good("settings", "none recorded yet");
    }
    return bad("settings", Verdict::unknown, "none can be read", "see tables");
  }
  const auto& row = seen.settings.rows.front();
  const std::uint64_t format = number(row.at(0)), buckets = number(row.at(1)), levels = number(row.at(2));
  const std::string text = std::to_string(buckets) + " buckets, " + std::to_string(levels) + " levels";
  if (format != layout_format) {
    return bad("settings", Verdict::unsafe,
               "of format " + std::to_string(format) + "; this library knows " + std::to_string(layout_format),
               "use the same version of hierlock everywhere");
  }
  if (buckets == 0 || levels == 0 || levels > max_depth) {
    return bad("settings", Verdict::unsafe, "damaged: " + text, "restore " + options.layout.settings_table());
  }
  const Layout& layout = options.layout;
  if ((layout.buckets && *layout.buckets != buckets) || (layout.levels && *layout.levels != levels)) {
    return bad("settings", Verdict::unsafe,
               "the URL asks for " + std::to_string(layout.buckets.value_or(static_cast<std::uint32_t>(buckets))) +
                   " buckets and " + std::to_string(layout.levels.value_or(static_cast<unsigned>(levels))) +
                   " levels; recorded are " + text,
               "leave buckets= and levels= out of the URL");
  }
  if (seen.marked.code == no_such_column) {
    return bad("settings", Verdict::unsafe, layout.table + " was not made for the recorded " + text,
               "restore " + layout.settings_table() + "; or, when nobody locks here, drop both and provision anew");
  }
  return good("settings", text);
}

Finding engine(const Seen& seen, const Options& options) {
  if (!has_rows(seen.engine)) {
    if (options.layout.lazy) return good("engine", "no table yet: it will be InnoDB");
    return bad("engine", Verdict::unknown, "no table is to be seen", "see tables");
  }
  const std::string name = seen.engine.rows.front().at(0).value_or("?");
  if (name == "InnoDB") return good("engine", name);
  return bad("engine", Verdict::unsafe, options.layout.table + " is " + name + ", which has no row locks",
             "ALTER TABLE `" + options.layout.table + "` ENGINE=InnoDB");
}

Finding rows(const Seen& seen, const Options& options) {
  if (options.layout.lazy) return good("rows", "missing ones are made when they are first needed (provision=lazy)");
  if (!has_rows(seen.settings) || no_table(seen.rows)) {
    return bad("rows", Verdict::unknown, "there is nothing to count", "see tables");
  }
  if (seen.rows.code == out_of_time_mysql || seen.rows.code == out_of_time_mariadb) {
    return bad("rows", Verdict::unknown, "counting them took longer than " + std::to_string(counting.count()) + " s",
               provision(options) + ", which counts them and makes what is missing");
  }
  if (!seen.rows.well())
    return bad("rows", Verdict::unknown, "cannot be counted: " + words(seen.rows), "see lock_rows");
  const std::uint64_t buckets = number(seen.settings.rows.front().at(1));
  const std::uint64_t levels = number(seen.settings.rows.front().at(2));
  std::map<std::uint64_t, std::uint64_t> there;
  for (const auto& row : seen.rows.rows) there[number(row.at(0))] = number(row.at(1));
  std::string missing;
  for (std::uint64_t level = 0; level < levels; ++level) {
    if (there[level] >= buckets) continue;
    missing +=
        (missing.empty() ? "" : ", ") + std::to_string(buckets - there[level]) + " of level " + std::to_string(level);
  }
  if (missing.empty()) return good("rows", "all " + std::to_string(buckets * levels) + " are there");
  return bad("rows", Verdict::unsafe, missing + " are missing: locks that need one fail with `not_provisioned`",
             provision(options));
}

// --- fences ------------------------------------------------------------------------------------------------------

Finding fence_floor(const Seen& seen) {
  const std::uint64_t now = seen.minted[0] & fence_mask;
  if (now == 0) return bad("fence_floor", Verdict::unknown, "the server mints no numbers", "see server");
  if ((seen.minted[1] & fence_mask) <= now) {
    return bad("fence_floor", Verdict::unsafe, "UUID_SHORT() does not rise: fences would repeat",
               "connect to the server itself");
  }
  if (!has_rows(seen.settings)) return good("fence_floor", "none recorded yet");
  const auto& recorded = seen.settings.rows.front();
  if (recorded.size() < 8) return bad("fence_floor", Verdict::unknown, "cannot be read", "see read_settings");
  const FenceRow row{number(recorded.at(3)), number(recorded.at(4)), number(recorded.at(5))};
  const std::uint64_t server = number(recorded.at(6)), then = number(recorded.at(7)) & fence_mask;
  const std::optional<FenceRow> next = settled(row, server, then, 0);
  if (!next) {
    return bad("fence_floor", Verdict::unsafe, "above the recorded floor there is no room for fences below 2^63",
               "restore the settings");
  }
  const std::string offset = next->offset == 0 ? "" : ", with " + std::to_string(next->offset) + " added to them,";
  if (may_mint(row, server, then)) return good("fence_floor", "this server's numbers" + offset + " are above it");
  return good("fence_floor", row.floor == 0 ? "none recorded yet"
                                            : "recorded by another server, or before this one's clock was set back; "
                                              "this server's numbers" +
                                                  offset + " will be above it when somebody locks");
}

Finding clock(const Seen& seen) {
  if (!seen.ahead || !seen.server_time) return bad("clock", Verdict::unknown, "the server does not tell the time", "");
  const std::uint64_t started = (seen.minted[0] & fence_mask) >> 24;
  if (started > *seen.server_time + 1) {
    return bad(
        "clock", Verdict::unknown,
        "the server's clock was set back since it was started: only an offset keeps fences rising over a restart",
        "set its clock right before it is restarted");
  }
  const std::int64_t off = seen.ahead->count();
  const std::string text = "the server's is " + std::to_string(std::abs(off)) + " ms " +
                           (off < 0 ? "behind" : "ahead of") + " this machine's";
  if (std::chrono::abs(*seen.ahead) <= clocks_agree) return good("clock", text);
  return bad("clock", Verdict::unknown,
             text +
                 ": one of the two is wrong. A server that is started with its clock behind mints lower fences, and "
                 "is refused",
             "keep both in step with NTP");
}

// --- looking -----------------------------------------------------------------------------------------------------

std::map<std::string, std::string> variables(Connection& connection, const std::string& sql) {
  Deadline soon(patience);
  std::map<std::string, std::string> result;
  for (const auto& row : connection.query(sql, soon).rows) result[row.at(0).value_or("")] = row.at(1).value_or("");
  return result;
}

Reply ask(Connection& connection, const std::string& sql) {
  Deadline soon(patience);
  return connection.query(sql, soon);
}

std::unique_ptr<Connection> log_in(const Address& address) {
  Deadline soon(patience);
  return std::make_unique<Connection>(address, soon);
}

// Without the database, if that is what is wrong: all else can still be looked at.
std::unique_ptr<Connection> log_in(Address address, Seen& seen) {
  try {
    return log_in(address);
  } catch (const Error& error) {
    if (error.native_code() != no_such_database && error.native_code() != database_denied) throw;
    seen.database = false;
    seen.no_database = error.what();
    address.database.clear();
    return log_in(address);
  }
}

void look_at_sessions(Connection& connection, Address address, Seen& seen) {
  const auto note_session = [&] {
    const Reply reply = ask(connection, "SELECT CONNECTION_ID()");
    if (has_rows(reply)) seen.sessions.push_back(number(reply.rows.front().at(0)));
  };
  seen.logged_in_as = connection.id();
  note_session();
  try {
    // A pooler that lends sessions shows only when somebody else wants one: it asks, another begins, it asks again.
    if (!seen.database) address.database.clear();
    const std::unique_ptr<Connection> second = log_in(address);
    ask(*second, "START TRANSACTION");
    ask(*second, "SELECT 1");
    note_session();
    seen.kill = ask(connection, "KILL QUERY " + std::to_string(second->id()));
  } catch (const Error& error) {
    seen.second = {static_cast<unsigned>(error.native_code()), error.what(), {}};
    if (seen.second.code == 0) seen.second.code = 1;
  }
}

void look_at_clock(Connection& connection, Seen& seen) {
  const auto before = std::chrono::system_clock::now();
  const Reply reply = ask(connection, "SELECT UNIX_TIMESTAMP(SYSDATE(6))");
  const auto after = std::chrono::system_clock::now();
  if (!has_rows(reply)) return;
  const double there = std::strtod(reply.rows.front().at(0).value_or("0").c_str(), nullptr);
  const auto here = std::chrono::duration_cast<milliseconds>((before + (after - before) / 2).time_since_epoch());
  seen.server_time = static_cast<std::uint64_t>(there);
  seen.ahead = milliseconds(static_cast<std::int64_t>(there * 1000)) - here;
}

// Each asks in a form that finds no row, and so locks and changes none.
void look_at_tables(Connection& connection, const Options& options, Seen& seen) {
  const std::string table = "`" + options.layout.table + "`", recorded = "`" + options.layout.settings_table() + "`";
  seen.settings =
      ask(connection, "SELECT format, buckets, levels, fence_floor, mint_server, mint_offset, " +
                          server_number(connection.mariadb()) + ", UUID_SHORT() FROM " + recorded + " WHERE id=1");
  seen.raise_floor = ask(connection, "UPDATE " + recorded +
                                         " SET fence_floor=fence_floor, mint_server=mint_server, "
                                         "mint_offset=mint_offset WHERE id=-1");
  if (has_rows(seen.settings)) {
    const auto& row = seen.settings.rows.front();
    seen.marked = ask(connection, look_at_mark({options.layout.table, static_cast<std::uint32_t>(number(row.at(1))),
                                                static_cast<unsigned>(number(row.at(2)))}));
  }
  seen.lock = ask(connection, "SELECT level FROM " + table + " WHERE level=0 AND bucket=-1 FOR UPDATE");
  seen.make_row = ask(connection, "INSERT INTO " + table + " (level, bucket) SELECT 0, 0 FROM DUAL WHERE 1=0");
  const std::string who = "`" + options.layout.notices_table() + "`";
  for (const std::string& sql :
       {"SELECT session FROM " + who + " WHERE session=0",
        "INSERT INTO " + who + " SELECT * FROM " + who + " WHERE session=0",
        "UPDATE " + who + " SET seen=seen WHERE session=0", "DELETE FROM " + who + " WHERE session=0"}) {
    seen.who = ask(connection, sql);
    if (!seen.who.well()) break;
  }
  seen.engine = ask(connection,
                    "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND "
                    "TABLE_NAME='" +
                        options.layout.table + "'");
  if (has_rows(seen.settings) && !options.layout.lazy) {
    const auto& row = seen.settings.rows.front();
    const std::string count = " level, COUNT(*) FROM " + table + " WHERE level < " + std::to_string(number(row.at(2))) +
                              " AND bucket >= 0 AND bucket < " + std::to_string(number(row.at(1))) + " GROUP BY level";
    const std::string limit = std::to_string(counting.count());
    Deadline long_enough(counting + patience);
    seen.rows = connection.query(seen.mariadb ? "SET STATEMENT max_statement_time=" + limit + " FOR SELECT" + count
                                              : "SELECT /*+ MAX_EXECUTION_TIME(" + limit + "000) */" + count,
                                 long_enough);
  }
}

Seen look(const Options& options) {
  Seen seen;
  const std::unique_ptr<Connection> opened = log_in(options.address, seen);
  Connection& connection = *opened;
  seen.version = connection.version();
  seen.mariadb = connection.mariadb();
  seen.prepared = ask(connection, prepare_session(dialect_of(connection)));  // first: the default may cut all answers
  Deadline soon(patience);
  seen.account = account_of(connection, options, soon);
  seen.global = variables(connection, "SHOW GLOBAL VARIABLES");
  if (value_of(seen.global, "binlog_format") == "STATEMENT") seen.log_rows = ask(connection, std::string(log_rows));
  seen.status = variables(connection, "SHOW GLOBAL STATUS");
  seen.session = variables(connection, "SHOW SESSION VARIABLES");
  seen.cipher = variables(connection, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")["Ssl_cipher"];
  look_at_sessions(connection, options.address, seen);
  seen.wait_view = ask(connection, seen.mariadb ? "SELECT COUNT(*) FROM information_schema.INNODB_LOCK_WAITS"
                                                : "SELECT COUNT(*) FROM performance_schema.data_lock_waits");
  for (std::uint64_t& minted : seen.minted) {
    const Reply reply = ask(connection, "SELECT UUID_SHORT()");
    if (has_rows(reply)) minted = number(reply.rows.front().at(0));
  }
  look_at_clock(connection, seen);
  look_at_tables(connection, options, seen);
  ask(connection, "ROLLBACK");
  return seen;
}

}  // namespace

std::vector<Finding> judge(const Seen& seen, const Options& options) {
  return {server(seen),
          proxy(seen),
          tls(seen, options),
          galera(seen),
          group_replication(seen),
          read_only(seen),
          failover(seen),
          isolation(seen),
          autocommit(seen),
          wait_timeout(seen),
          session(seen),
          deadlock_detection(seen),
          rollback_on_timeout(seen),
          connections(seen, options),
          prepared_statements(seen, options),
          binary_log(seen),
          lock_rows_right(seen, options),
          read_settings(seen, options),
          make_rows(seen, options),
          publish_right(seen, options),
          kill(seen),
          wait_views(seen),
          tables(seen, options),
          settings(seen, options),
          engine(seen, options),
          rows(seen, options),
          fence_floor(seen),
          clock(seen)};
}

std::vector<Finding> doctor(const spi::Url& url) {
  const Options options = read_url(url);
  return judge(look(options), options);
}

}  // namespace hierlock::mysql
