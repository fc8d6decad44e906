#include "mysql/doctor.h"

#include <cstdlib>
#include <string_view>

#include "mysql/fences.h"
#include "mysql/fitness.h"
#include "mysql/names.h"
#include "mysql/schema.h"
#include "mysql/session.h"
#include "mysql/statements.h"
#include "mysql/store.h"
#include "mysql/views.h"
#include "mysql_client/error_codes.h"
#include "plan/buckets.h"

namespace hierlock::mysql {

namespace {

using codes::no_database_chosen, codes::no_such_database, codes::no_such_table, codes::no_such_column,
    codes::no_such_session, codes::database_denied, codes::out_of_time_mysql, codes::out_of_time_mariadb;
using endpoint::number;
using remote::good, remote::slow, remote::unknown, remote::unsafe;
using remote::Judgement, remote::Settings;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds patience{5};
constexpr seconds counting{30};  // 3 x 10^7 rows take a few seconds

bool has_rows(const Reply& reply) { return reply.well() && !reply.rows.empty(); }
bool no_table(const Reply& reply) { return reply.code == no_such_table || reply.code == no_database_chosen; }

remote::Attempt attempt(const Reply& reply) {
  using End = remote::Attempt::End;
  // The server refuses writes from everybody. No right would help.
  const bool read_only = reply.code == codes::option_prevents || reply.code == codes::read_only_mode ||
                         reply.code == codes::read_only_transaction;
  return {reply.well()      ? End::done
          : no_table(reply) ? End::no_table
          : read_only       ? End::read_only
                            : End::refused,
          reply.words()};
}

std::string grant(const Seen& seen, const Options& options, const std::string& rights, const std::string& table) {
  return "GRANT " + rights + " ON `" + options.address.database + "`.`" + table + "` TO " + seen.account;
}

// --- who answers -------------------------------------------------------------------------------------------

Judgement server(const Seen& seen, const Options&) {
  const std::string name = (seen.mariadb ? "MariaDB " : "MySQL ") + seen.version;
  if (seen.version.starts_with(seen.mariadb ? "10.11." : "9.7.")) return good(name);
  if (!seen.mariadb && number(std::string_view(seen.version)) < 8) {
    return unsafe(name + ": it has no FOR SHARE, so no lock can be taken", "use MySQL 8 or later, or MariaDB");
  }
  return unknown(name + ": hierlock was tested with MySQL 9.7 and MariaDB 10.11 only",
                 "run the tests of hierlock against this version before you rely on it");
}

Judgement proxy(const Seen& seen, const Options&) {
  return remote::judge_proxy({.logged_in_as = seen.logged_in_as,
                              .asked = seen.sessions,
                              .greeted_as = seen.version,
                              .version = seen.global.value("version")});
}

Judgement tls(const Seen& seen, const Options& options) {
  const Address& address = options.address;
  return remote::judge_tls({.cipher = seen.cipher,
                            .verified = address.tls == Tls::verify,
                            .local = is_local(address),
                            .place = address.place()});
}

// --- what it does with locks ---------------------------------------------------------------------------------

Judgement galera(const Seen& seen, const Options&) { return judge_galera(seen.global); }
Judgement group_replication(const Seen& seen, const Options&) { return judge_group(seen.global, seen.members); }
Judgement read_only(const Seen& seen, const Options&) { return judge_read_only(seen.global); }

Judgement failover(const Seen& seen, const Options&) {
  const Settings &is = seen.global, &now = seen.status;
  const std::uint64_t acknowledging =
      now.number("Rpl_semi_sync_source_clients") + now.number("Rpl_semi_sync_master_clients");
  const bool semi_sync = is.is_on("rpl_semi_sync_source_enabled") || is.is_on("rpl_semi_sync_master_enabled");
  return remote::judge_failover(in_group(is)           ? "it is the primary of a group"
                                : is.is_on("wsrep_on") ? "it is a node of a cluster"
                                : acknowledging > 0
                                    ? std::to_string(acknowledging) + " semi-synchronous replicas follow it"
                                : semi_sync           ? "semi-synchronous replication is enabled"
                                : is.is_on("log_bin") ? "it writes a binary log, which replicas may follow"
                                                      : "");
}

Judgement isolation(const Seen& seen, const Options&) {
  if (!seen.prepared.well()) {
    return unsafe("the session cannot be set for locking: " + seen.prepared.words(),
                  "let this account set its own session's variables");
  }
  std::string level = seen.session.value("transaction_isolation");
  if (level.empty()) level = seen.session.value("tx_isolation");
  if (level == "READ-COMMITTED") return good("READ-COMMITTED, in sessions that lock");
  return unsafe("the session was set to READ-COMMITTED and is " + (level.empty() ? "unknown" : level) +
                    ": locking reads would lock gaps as well",
                remote::changes_statements);
}

Judgement autocommit(const Seen& seen, const Options&) {
  if (!seen.prepared.well() || seen.session.value("autocommit").empty()) {
    return unknown("the session could not be set for locking", "see isolation");
  }
  if (!seen.session.is_on("autocommit")) return good("off, in sessions that lock");
  return unsafe("stays on although it was set to 0: each lock would end with its statement",
                remote::changes_statements);
}

Judgement wait_timeout(const Seen& seen, const Options&) {
  const std::string own = seen.session.value("wait_timeout");
  const std::string usual = seen.global.value("wait_timeout") + " s for others, " +
                            seen.global.value("interactive_timeout") + " s for interactive ones";
  if (own == "12") return good("12 s in sessions that lock (" + usual + ")");
  return unsafe("the session was set to 12 s and has " + (own.empty() ? "?" : own) + " s (" + usual +
                    "): a holder whose machine vanishes would keep its locks so long",
                remote::changes_statements);
}

// All other settings of a session. The server's own defaults may be anything.
Judgement session(const Seen& seen, const Options&) {
  if (!seen.prepared.well() || seen.session.empty()) {
    return unknown("the session could not be set for locking", "see isolation");
  }
  std::vector<remote::Setting> settings;
  for (const SessionSetting& set : session_settings(seen.mariadb ? Dialect::mariadb : Dialect::mysql)) {
    const bool is_switch = std::string_view(set.name) == "optimizer_switch";
    settings.push_back({set.name, seen.session.value(set.name), set.shown, is_switch});
  }
  return remote::judge_session(settings);
}

Judgement binary_log(const Seen& seen, const Options&) {
  const std::string format = seen.global.value("binlog_format");
  if (!seen.global.is_on("log_bin")) return good("none");
  if (format != "STATEMENT") return good(format);
  if (seen.log_rows.well()) return good("STATEMENT, and ROW in sessions that lock");
  return unsafe("STATEMENT: no lock of rows can be taken at READ COMMITTED then, and this account may not set it: " +
                    seen.log_rows.words(),
                std::string(log_rows_fix));
}

Judgement deadlock_detection(const Seen& seen, const Options&) {
  return remote::judge_switch(seen.global, "innodb_deadlock_detect", true,
                              "the server does not see requests that wait for each other",
                              "SET GLOBAL innodb_deadlock_detect=ON");
}

Judgement rollback_on_timeout(const Seen& seen, const Options&) {
  return remote::judge_switch(seen.global, "innodb_rollback_on_timeout", false,
                              "a lock that waits while it is extended is lost",
                              "start the server with innodb_rollback_on_timeout=OFF, or do not use extend()");
}

Judgement connections(const Seen& seen, const Options& options) {
  return remote::judge_connections(
      {.need = options.connections + sessions_beyond + sessions_of_names,
       .most = seen.global.number("max_connections"),
       .used = seen.status.number("Threads_connected"),
       .of_which = ", " + std::to_string(sessions_of_names) + " of them for names and slots",
       .of_account = seen.session.number("max_user_connections")},
      "raise max_connections (or the account's MAX_USER_CONNECTIONS), or lower connections= in the URL");
}

Judgement prepared_statements(const Seen& seen, const Options& options) {
  const std::string value = seen.global.value("max_prepared_stmt_count");
  if (value.empty()) return remote::not_said();
  const std::uint64_t used = seen.status.number("Prepared_stmt_count");
  const std::uint64_t need = options.connections * (Connection::most_statements + 1) +
                             remote::NameDriver::most_keepers * GetLockSession::most_prepared;
  const std::string text = "a process with this URL prepares up to " + std::to_string(need) + "; the server takes " +
                           value + ", " + std::to_string(used) + " are there";
  if (seen.global.number("max_prepared_stmt_count") >= used + need) return good(text);
  return slow(text + ": statements beyond that are sent as text, which is slower",
              "raise max_prepared_stmt_count, or lower connections= in the URL");
}

// --- rights ----------------------------------------------------------------------------------------------------

Judgement lock_rows_right(const Seen& seen, const Options& options) {
  return judge_attempt(attempt(seen.lock), "this account may lock rows", "this account may not lock rows",
                       grant(seen, options, "SELECT, UPDATE", options.layout.table));
}

Judgement read_settings(const Seen& seen, const Options& options) {
  const std::string fix = grant(seen, options, "SELECT, UPDATE", options.layout.settings_table());
  if (seen.settings.code == no_such_column) {
    return unsafe(
        "the settings were made by another version of hierlock",
        how_to_provision(options) + ", which adds what is missing, with the newest version, and use that everywhere");
  }
  if (!seen.settings.well()) {
    return judge_attempt(attempt(seen.settings), "", "this account may not read the settings", fix);
  }
  return judge_attempt(attempt(seen.raise_floor), "this account may read the settings, and raise the fence floor",
                       "the fence floor cannot be raised", fix);
}

Judgement make_rows(const Seen& seen, const Options& options) {
  if (!options.layout.lazy) return good("not needed: rows are made by `hierlock provision`");
  return judge_attempt(attempt(seen.make_row), "this account may make missing rows",
                       "?provision=lazy makes missing rows, and this account may not",
                       grant(seen, options, "INSERT", options.layout.table));
}

// Deadlocks between sessions are found by notices alone (B11).
Judgement publish_right(const Seen& seen, const Options& options) {
  const bool provisioned = has_rows(seen.settings);
  if (no_table(seen.who) && !provisioned && options.layout.lazy)
    return good("no table yet: it is made with the others");
  return judge_notices(attempt(seen.who), provisioned ? "there is no " + options.layout.notices_table() : "",
                       how_to_provision(options),
                       grant(seen, options, "SELECT, INSERT, UPDATE, DELETE", options.layout.notices_table()));
}

Judgement kill(const Seen& seen, const Options&) {
  const bool gone = seen.kill.code == no_such_session;  // it had ended by itself
  return judge_interrupting(attempt(seen.second), gone ? remote::Attempt{} : attempt(seen.kill));
}

Judgement wait_views(const Seen& seen, const Options&) {
  if (seen.wait_view.well()) return good("this account may see who waits for whom");
  return unknown("this account may not see who waits for whom: " + seen.wait_view.words(),
                 grant_views(seen.mariadb, seen.account));
}

// --- the tables ------------------------------------------------------------------------------------------------

Judgement tables(const Seen& seen, const Options& options) {
  const std::string& name = options.layout.table;
  if (!seen.database) {
    return unsafe("the database cannot be used: " + seen.no_database,
                  "create it, or correct the URL, or GRANT this account rights in it");
  }
  if (has_rows(seen.settings)) return good(name + " and its settings are there");
  if (!seen.settings.well() && !no_table(seen.settings)) {
    return unknown("the settings cannot be read", "see read_settings");
  }
  if (options.layout.lazy) return good("not there yet: made by the first who locks (provision=lazy)");
  return unsafe("there is no " + name + " with its settings", how_to_provision(options));
}

Judgement settings(const Seen& seen, const Options& options) {
  if (!has_rows(seen.settings)) {
    if (options.layout.lazy && (seen.settings.well() || no_table(seen.settings))) return good("none recorded yet");
    return unknown("none can be read", "see tables");
  }
  const auto& row = seen.settings.rows.front();
  const Judgement judgement = judge_recorded(row, options.layout);
  if (judgement.verdict != Finding::Verdict::good) return judgement;
  const Layout& layout = options.layout;
  if (seen.marked.code == no_such_column) {
    return unsafe(layout.table + " was not made for the recorded " + judgement.text,
                  "restore " + layout.settings_table() + "; or, when nobody locks here, drop both and provision anew");
  }
  return judgement;
}

Judgement engine(const Seen& seen, const Options& options) {
  if (!has_rows(seen.engine)) {
    if (options.layout.lazy) return good("no table yet: it will be InnoDB");
    return unknown("no table is to be seen", "see tables");
  }
  return judge_engine(seen.engine, options.layout.table);
}

Judgement rows(const Seen& seen, const Options& options) {
  if (options.layout.lazy) return good("missing ones are made when they are first needed (provision=lazy)");
  if (!has_rows(seen.settings) || no_table(seen.rows)) return unknown("there is nothing to count", "see tables");
  if (seen.rows.code == out_of_time_mysql || seen.rows.code == out_of_time_mariadb) {
    return unknown("counting them took longer than " + std::to_string(counting.count()) + " s",
                   how_to_provision(options) + ", which counts them and makes what is missing");
  }
  if (!seen.rows.well()) return unknown("cannot be counted: " + seen.rows.words(), "see lock_rows");
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
  if (missing.empty()) return good("all " + std::to_string(buckets * levels) + " are there");
  return unsafe(missing + " are missing: locks that need one fail with `not_provisioned`", how_to_provision(options));
}

// --- fences ------------------------------------------------------------------------------------------------------

Judgement fence_floor(const Seen& seen, const Options&) {
  const std::uint64_t now = seen.minted[0] & fence_mask;
  if (now == 0) return unknown("the server mints no numbers", "see server");
  if ((seen.minted[1] & fence_mask) <= now) {
    return unsafe("UUID_SHORT() does not rise: fences would repeat", "connect to the server itself");
  }
  if (!has_rows(seen.settings)) return good("none recorded yet");
  const auto& recorded = seen.settings.rows.front();
  const FenceRow row{number(recorded.at(3)), number(recorded.at(4)), number(recorded.at(5))};
  const std::uint64_t server = number(recorded.at(6)), then = number(recorded.at(7)) & fence_mask;
  const std::optional<FenceRow> next = settled(row, server, then, 0);
  if (!next) {
    return unsafe("above the recorded floor there is no room for fences below 2^63", "restore the settings");
  }
  const std::string numbers =
      "this server's numbers" + (next->offset == 0 ? "" : ", with " + std::to_string(next->offset) + " added to them,");
  if (may_mint(row, server, then)) return good(numbers + " are above it");
  if (row.floor == 0) return good("none recorded yet");
  return good("recorded by another server, or before this one's clock was set back; " + numbers +
              " will be above it when somebody locks");
}

Judgement clock(const Seen& seen, const Options&) {
  if (!seen.ahead || !seen.server_time) return unknown("the server does not tell the time");
  if ((seen.minted[0] & fence_mask) >> 24 > *seen.server_time + 1) {
    return unknown(
        "the server's clock was set back since it was started: only an offset keeps fences rising over a restart",
        "set its clock right before it is restarted");
  }
  return remote::judge_clock(*seen.ahead, "A server that is started with its clock behind mints lower fences");
}

// --- looking -----------------------------------------------------------------------------------------------------

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
  seen.engine = ask(connection, ask_for_engine(options.layout.table));
  if (has_rows(seen.settings) && !options.layout.lazy) {
    const auto& row = seen.settings.rows.front();
    const std::string count = "level, COUNT(*) FROM " + table + " WHERE level < " + std::to_string(number(row.at(2))) +
                              " AND bucket >= 0 AND bucket < " + std::to_string(number(row.at(1))) + " GROUP BY level";
    Deadline long_enough(counting + patience);
    seen.rows = connection.query(limited_select(seen.mariadb, counting) + count, long_enough);
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
  seen.global = settings_in(ask(connection, "SHOW GLOBAL VARIABLES"));
  if (in_group(seen.global)) seen.members = ask(connection, group_members);
  if (seen.global.value("binlog_format") == "STATEMENT") seen.log_rows = ask(connection, std::string(log_rows));
  seen.status = settings_in(ask(connection, "SHOW GLOBAL STATUS"));
  seen.session = settings_in(ask(connection, "SHOW SESSION VARIABLES"));
  seen.cipher = settings_in(ask(connection, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")).value("Ssl_cipher");
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

constexpr remote::Check<Seen, Options> checks[] = {
    {"server", server},
    {"proxy", proxy},
    {"tls", tls},
    {"galera", galera},
    {"group_replication", group_replication},
    {"read_only", read_only},
    {"failover", failover},
    {"isolation", isolation},
    {"autocommit", autocommit},
    {"wait_timeout", wait_timeout},
    {"session", session},
    {"deadlock_detection", deadlock_detection},
    {"rollback_on_timeout", rollback_on_timeout},
    {"connections", connections},
    {"prepared_statements", prepared_statements},
    {"binary_log", binary_log},
    {"lock_rows", lock_rows_right},
    {"read_settings", read_settings},
    {"make_rows", make_rows},
    {"publish", publish_right},
    {"kill", kill},
    {"wait_views", wait_views},
    {"tables", tables},
    {"settings", settings},
    {"engine", engine},
    {"rows", rows},
    {"fence_floor", fence_floor},
    {"clock", clock},
};

}  // namespace

std::vector<Finding> judge(const Seen& seen, const Options& options) {
  return remote::judge_all(checks, seen, options);
}

std::vector<Finding> doctor(const spi::Url& url) {
  const Options options = read_url(url);
  return judge(look(options), options);
}

}  // namespace hierlock::mysql
