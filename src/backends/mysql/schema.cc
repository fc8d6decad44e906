#include "mysql/schema.h"

#include <algorithm>
#include <map>
#include <string>
#include <thread>

#include "mysql/notice_sql.h"
#include "mysql_client/error_codes.h"
#include "plan/buckets.h"
#include "plan/text.h"

namespace hierlock::mysql {

namespace {

using codes::no_such_table, codes::no_such_column, codes::duplicate_column;
using endpoint::number;

bool is_on(const std::string& value) { return value == "ON" || value == "1" || value == "YES"; }

constexpr const char* unsafe_if =
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'read_only', 'super_read_only', 'innodb_read_only', "
    "'group_replication_group_name', 'group_replication_single_primary_mode', 'log_bin', 'binlog_format')";

// Row locks exclude on one server only. What is refused otherwise can be set in the session, by some.
void refuse_unsafe(const Reply& variables, Connection& connection, WaitLimit& limit) {
  std::map<std::string, std::string> is;
  for (const auto& row : variables.rows) is[row.at(0).value_or("")] = row.at(1).value_or("");
  if (is_on(is["wsrep_on"])) {
    throw Error(ErrorKind::unsafe_topology,
                "this is a Galera cluster: row locks are not carried to its other nodes, so two could hold one lock. "
                "Use a server of its own for locks, or shm:, postgres: or another store");
  }
  if (!is["group_replication_group_name"].empty() && !is_on(is["group_replication_single_primary_mode"])) {
    throw Error(ErrorKind::unsafe_topology,
                "group replication with several primaries does not carry row locks between them, so two could hold one "
                "lock. Switch it to single-primary mode, or use a server of its own for locks");
  }
  if (is_on(is["read_only"]) || is_on(is["super_read_only"]) || is_on(is["innodb_read_only"])) {
    throw Error(ErrorKind::unsafe_topology,
                "this server is read-only, most likely a replica: its row locks exclude nobody on the primary. Connect "
                "to the primary");
  }
  if (is_on(is["log_bin"]) && is["binlog_format"] == "STATEMENT" && !connection.query(log_rows, limit).well()) {
    throw Error(ErrorKind::denied, "this server logs statements, and takes no locks of rows at READ COMMITTED then. " +
                                       std::string(log_rows_fix));
  }
}

// UUID_SHORT() counts from the second that the server was started in. One that is started again within that second
// would count anew from the same number: so nothing is minted before it is over.
void outlast_first_second(Connection& connection, std::uint64_t minted, std::uint64_t now, WaitLimit& limit) {
  const std::uint64_t started = (minted & fence_mask) >> 24;
  while (started == now) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    now = number(connection.ask("SELECT UNIX_TIMESTAMP()", limit).rows.at(0).at(0));
  }
}

// Whoever comes first records the numbers; the table of rows is made from what is recorded.
void make_settings(Connection& connection, const Layout& layout, const BucketTable& wanted, WaitLimit& limit) {
  connection.ask(make_settings_table(layout.settings_table()), limit);
  connection.ask(NoticeStatements(layout.notices_table()).make_table(), limit);
  connection.ask("INSERT IGNORE INTO `" + layout.settings_table() +
                     "` (id, format, buckets, levels, fence_floor, mint_server, mint_offset) VALUES (1, " +
                     std::to_string(layout_format) + ", " + std::to_string(wanted.buckets) + ", " +
                     std::to_string(wanted.levels) + ", 0, 0, 0)",
                 limit);
  connection.ask("COMMIT", limit);
}

// Settings that an earlier build has made get what is missing where tables are made.
void upgrade_settings(Connection& connection, const Options& options, WaitLimit& limit) {
  const std::string settings = options.layout.settings_table();
  if (!options.layout.lazy || options.only_look) {
    throw Error(ErrorKind::incompatible,
                settings + " was made by an earlier version of hierlock: run `hierlock provision --on " +
                    plan::shell_word(options.url) +
                    "`, or open with ?provision=lazy, which adds what is missing and keeps the rest. Use the same "
                    "version everywhere from then on",
                no_such_column);
  }
  const Reply reply = connection.query(upgrade_settings_table(settings), limit);
  // If the column to be changed is not there, another process has done it meanwhile, or it is older still.
  if (!reply.well() && reply.code != no_such_column && reply.code != duplicate_column) {
    throw error_of(reply.code, reply.message, "add what an earlier version of hierlock has left out of " + settings);
  }
}

// What the table of rows was made for, if not for these numbers; empty: it does not say. None: for these, or it is not
// there.
std::optional<std::string> made_for_else(Connection& connection, const BucketTable& table, WaitLimit& limit) {
  if (connection.query(look_at_mark(table), limit).code != no_such_column) return std::nullopt;
  const Reply reply = connection.ask(
      "SHOW COLUMNS FROM " + table.quoted() + " LIKE '" + std::string(BucketTable::mark_prefix) + "%'", limit);
  return reply.rows.empty() ? "" : reply.rows[0].at(0);
}

Error made_for_others(const BucketTable& table, const std::string& made_for) {
  return {
      ErrorKind::incompatible,
      table.name + " was " + (made_for.empty() ? "not made by `hierlock provision`" : made_for) + ", and not for " +
          std::to_string(table.buckets) + " buckets and " + std::to_string(table.levels) +
          " levels: two would lock different rows. Provision with the numbers that it was made for; or, when nobody "
          "locks here, drop it and its settings, and provision anew"};
}

// Other engines lock whole tables for the time of a statement, so two would hold one lock.
void refuse_other_engine(Connection& connection, const BucketTable& table, WaitLimit& limit) {
  const std::string name = "'" + table.name + "'";
  const Reply reply = connection.ask(
      "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME=IF("
      "@@lower_case_table_names=0, " +
          name + ", LOWER(" + name + "))",
      limit);
  if (reply.rows.empty() || reply.rows[0].at(0) == "InnoDB") return;
  throw Error(ErrorKind::unsafe_topology, table.name + " is " + reply.rows[0].at(0).value_or("a view") +
                                              ", which has no row locks, so two could hold one lock. ALTER TABLE `" +
                                              table.name + "` ENGINE=InnoDB");
}

// Where tables are made, the table of rows is made from what is recorded; and one that does not say what it was made
// for, by other means than this library's, is marked.
void make_rows_table(Connection& connection, const BucketTable& table, WaitLimit& limit) {
  // CREATE needs the right to create even if the table is there.
  if (connection.query(look_at_mark(table), limit).code == no_such_table) {
    connection.ask(make_bucket_table(table), limit);
  } else if (made_for_else(connection, table, limit) == "") {
    const Reply reply = connection.query(mark_bucket_table(table), limit);
    if (!reply.well() && reply.code != duplicate_column) {
      throw error_of(reply.code, reply.message, "write down in " + table.name + " what it is for");
    }
  }
}

}  // namespace

std::unique_ptr<Connection> connect(const Options& options, Clock::duration time) {
  Deadline limit(time);
  return connect(options, limit);
}

std::unique_ptr<Connection> connect(const Options& options, WaitLimit& limit, Reply* floor) {
  auto connection = std::make_unique<Connection>(options.address, limit);
  std::vector<std::string> questions{
      prepare_session(dialect_of(*connection)), unsafe_if,
      "SELECT CONNECTION_ID(), UUID_SHORT(), UNIX_TIMESTAMP(), " + server_name(connection->mariadb())};
  const std::size_t all_but_floor = questions.size();
  if (floor != nullptr) questions.push_back(floor_question(options.layout, connection->mariadb()));
  questions.emplace_back("COMMIT");
  const std::vector<Reply> replies = connection->query_all(questions, limit);
  const bool only_floor_failed = floor != nullptr && replies.size() == all_but_floor + 1;
  if (!replies.back().well() && !only_floor_failed) {
    throw error_of(replies.back().code, replies.back().message, "use the database");
  }
  refuse_unsafe(replies.at(1), *connection, limit);
  const auto& now = replies.at(2).rows.at(0);
  outlast_first_second(*connection, number(now.at(1)), number(now.at(2)), limit);
  if (number(now.at(0)) != connection->id()) {
    throw Error(ErrorKind::unsafe_topology,
                "the server's number for this session is not the one it logged in with: a proxy is in between that "
                "mixes sessions. Connect to the server itself");
  }
  connection->set_identity(now.at(3).value_or(""));
  if (floor != nullptr) *floor = replies.at(all_but_floor);
  return connection;
}

BucketTable read_or_make(Connection& connection, const Options& options, WaitLimit& limit) {
  const Layout& layout = options.layout;
  const std::string read =
      "SELECT format, buckets, levels, mint_offset FROM `" + layout.settings_table() + "` WHERE id=1";
  Reply reply = connection.query(read, limit);
  if (reply.code == no_such_column) {
    upgrade_settings(connection, options, limit);
    reply = connection.query(read, limit);
  }
  if ((reply.code == no_such_table || (reply.well() && reply.rows.empty())) && layout.lazy && !options.only_look) {
    const BucketTable wanted{layout.table, layout.buckets.value_or(plan::default_buckets),
                             layout.levels.value_or(default_levels)};
    const std::optional<std::string> else_for = made_for_else(connection, wanted, limit);
    if (else_for && !else_for->empty()) throw made_for_others(wanted, *else_for);
    make_settings(connection, layout, wanted, limit);
    reply = connection.query(read, limit);
  }
  if (reply.code == no_such_table || (reply.well() && reply.rows.empty())) {
    const std::string missing = "the database has no table " + layout.table + " with its settings yet: ";
    const std::string way_out = layout.lazy ? "whoever locks first makes it"
                                            : "run `hierlock provision --on " + plan::shell_word(options.url) +
                                                  "`, or open with ?provision=lazy";
    throw Error(ErrorKind::not_provisioned, missing + way_out, reply.code);
  }
  if (reply.code == no_such_column) {
    throw Error(ErrorKind::incompatible,
                layout.settings_table() +
                    " lacks columns that every version of hierlock makes: when nobody locks here, "
                    "drop it and provision with the same numbers again",
                reply.code);
  }
  if (!reply.well()) throw error_of(reply.code, reply.message, "read the settings of " + layout.table);
  const auto& row = reply.rows.front();
  if (number(row.at(0)) != layout_format) {
    throw Error(ErrorKind::incompatible, layout.settings_table() + " is of format " + row.at(0).value_or("?") +
                                             ", this library knows " + std::to_string(layout_format) +
                                             ": use the same version everywhere");
  }
  const BucketTable recorded{layout.table, static_cast<std::uint32_t>(number(row.at(1))),
                             static_cast<unsigned>(number(row.at(2)))};
  const auto disagree = [&](const std::string& what, std::uint64_t asked, std::uint64_t there) {
    throw Error(ErrorKind::incompatible, what + "=" + std::to_string(asked) +
                                             " was asked for, the database has recorded " + std::to_string(there) +
                                             ": with different numbers two would lock different rows. Leave it "
                                             "out, or write the same; another table= may have others");
  };
  if (recorded.buckets == 0 || recorded.levels == 0 || recorded.levels > max_depth) {
    throw Error(ErrorKind::incompatible, layout.settings_table() + " is damaged: buckets " +
                                             std::to_string(recorded.buckets) + ", levels " +
                                             std::to_string(recorded.levels));
  }
  if (layout.buckets && *layout.buckets != recorded.buckets) disagree("buckets", *layout.buckets, recorded.buckets);
  if (layout.levels && *layout.levels != recorded.levels) disagree("levels", *layout.levels, recorded.levels);
  if (layout.lazy && !options.only_look) make_rows_table(connection, recorded, limit);
  if (const auto else_for = made_for_else(connection, recorded, limit)) throw made_for_others(recorded, *else_for);
  refuse_other_engine(connection, recorded, limit);
  connection.ask("COMMIT", limit);
  return recorded;
}

}  // namespace hierlock::mysql
