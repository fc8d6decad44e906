#include "mysql/schema.h"

#include <algorithm>
#include <string>
#include <thread>

#include "mysql/fitness.h"
#include "mysql/notice_sql.h"
#include "mysql_client/error_codes.h"
#include "plan/buckets.h"

namespace hierlock::mysql {

namespace {

using codes::no_such_table, codes::no_such_column, codes::duplicate_column;
using endpoint::number;

void refuse_unless_good(const remote::Judgement& judgement, ErrorKind kind) {
  if (judgement.verdict != Finding::Verdict::good) throw remote::refusal(kind, judgement);
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
  connection.ask(
      "CREATE TABLE IF NOT EXISTS `" + layout.settings_table() +
          "` (id TINYINT NOT NULL PRIMARY KEY, format INT NOT NULL, buckets INT NOT NULL, levels TINYINT NOT "
          "NULL, fence_floor BIGINT UNSIGNED NOT NULL, mint_server INT UNSIGNED NOT NULL, mint_offset BIGINT "
          "UNSIGNED NOT NULL) ENGINE=InnoDB",
      limit);
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
                settings + " was made by an earlier version of hierlock: " + how_to_provision(options) +
                    ", which adds what is missing and keeps the rest. Use the same version everywhere from then on",
                no_such_column);
  }
  // The column gets another name, so that a build that knows no offsets of fences finds it missing with its next
  // connection, and gives out no lower fences.
  const Reply reply = connection.query("ALTER TABLE `" + settings +
                                           "` CHANGE COLUMN fence_server mint_server INT UNSIGNED NOT NULL, ADD COLUMN "
                                           "mint_offset BIGINT UNSIGNED NOT NULL DEFAULT 0",
                                       limit);
  // If the column to be changed is not there, another process has done it meanwhile, or it is older still.
  if (!reply.well() && reply.code != no_such_column && reply.code != duplicate_column) {
    throw error_of(reply, "add what an earlier version of hierlock has left out of " + settings);
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
          " levels: processes with different numbers would lock different rows. Provision with the numbers that it was made for; or, when nobody "
          "locks here, drop it and its settings, and provision anew"};
}

// Where tables are made, the table of rows is made from what is recorded; and one that does not say what it was made
// for, by other means than this library's, is marked.
void make_rows_table(Connection& connection, const BucketTable& table, WaitLimit& limit) {
  const std::string mark = table.mark() + " TINYINT AS (level) VIRTUAL";
  // CREATE needs the right to create even if the table is there.
  if (connection.query(look_at_mark(table), limit).code == no_such_table) {
    connection.ask("CREATE TABLE IF NOT EXISTS " + table.quoted() + " (level TINYINT NOT NULL, bucket INT NOT NULL, " +
                       mark + ", PRIMARY KEY (level, bucket)) ENGINE=InnoDB",
                   limit);
  } else if (made_for_else(connection, table, limit) == "") {
    const Reply reply = connection.query("ALTER TABLE " + table.quoted() + " ADD COLUMN " + mark, limit);
    if (!reply.well() && reply.code != duplicate_column) {
      throw error_of(reply, "write down in " + table.name + " what it is for");
    }
  }
}

}  // namespace

remote::Judgement judge_recorded(const endpoint::Row& row, const Layout& layout) {
  const std::uint64_t format = number(row.at(0)), buckets = number(row.at(1)), levels = number(row.at(2));
  const std::string text = std::to_string(buckets) + " buckets, " + std::to_string(levels) + " levels";
  if (format != layout_format) {
    return remote::unsafe(layout.settings_table() + " is of format " + std::to_string(format) +
                              ", this library knows " + std::to_string(layout_format),
                          "use the same version of hierlock everywhere");
  }
  if (buckets == 0 || levels == 0 || levels > max_depth) {
    return remote::unsafe(layout.settings_table() + " is damaged: " + text, "restore it");
  }
  const auto disagree = [&](const std::string& what, std::uint64_t asked, std::uint64_t there) {
    return remote::unsafe(what + "=" + std::to_string(asked) + " was asked for, the database has recorded " +
                              std::to_string(there) + ": processes with different numbers would lock different rows",
                          "leave it out, or write the same; another table= may have others");
  };
  if (layout.buckets.value_or(buckets) != buckets) return disagree("buckets", *layout.buckets, buckets);
  if (layout.levels.value_or(levels) != levels) return disagree("levels", *layout.levels, levels);
  return remote::good(text);
}

std::string ask_for_engine(const std::string& table) {
  return "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME=" +
         stored_name(table);
}

// Other engines lock whole tables for the time of a statement.
remote::Judgement judge_engine(const Reply& reply, const std::string& table) {
  const std::string name = reply.rows.empty() ? "InnoDB" : reply.rows[0].at(0).value_or("a view");
  if (name == "InnoDB") return remote::good(name);
  return remote::unsafe(table + " is " + name + ", which has no row locks, so two could hold one lock",
                        "ALTER TABLE `" + table + "` ENGINE=InnoDB");
}

Ready connect(const Options& options, WaitLimit& limit, Floor floor) {
  Ready ready{std::make_unique<Connection>(options.address, limit)};
  Connection& connection = *ready.connection;
  std::vector<std::string> questions{
      prepare_session(dialect_of(connection)), fitness_settings,
      "SELECT CONNECTION_ID(), UUID_SHORT(), UNIX_TIMESTAMP(), " + server_name(connection.mariadb())};
  const std::size_t all_but_floor = questions.size();
  if (floor == Floor::asked) questions.push_back(floor_question(options.layout, connection.mariadb()));
  questions.emplace_back("COMMIT");
  const std::vector<Reply> replies = connection.query_all(questions, limit);
  const bool only_floor_failed = floor == Floor::asked && replies.size() == all_but_floor + 1;
  if (!replies.back().well() && !only_floor_failed) {
    throw error_of(replies.back(), "use the database");
  }
  const remote::Settings is = settings_in(replies.at(1));
  ready.in_group = in_group(is);
  refuse_unfit(is, ready.in_group ? connection.query(group_members, limit) : Reply{});
  if (is.is_on("log_bin") && is.value("binlog_format") == "STATEMENT" && !connection.query(log_rows, limit).well()) {
    throw Error(ErrorKind::denied, "this server logs statements, and takes no locks of rows at READ COMMITTED then. " +
                                       std::string(log_rows_fix));
  }
  const auto& now = replies.at(2).rows.at(0);
  outlast_first_second(connection, number(now.at(1)), number(now.at(2)), limit);
  if (number(now.at(0)) != connection.id()) {
    throw Error(ErrorKind::unsafe_topology,
                "the server's number for this session is not the one it logged in with: a proxy is in between that "
                "mixes sessions. Connect to the server itself");
  }
  ready.server = endpoint::text(now.at(3));
  if (floor == Floor::asked) ready.floor = replies.at(all_but_floor);
  return ready;
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
    const std::string way_out = layout.lazy ? "whoever locks first makes it" : how_to_provision(options);
    throw Error(ErrorKind::not_provisioned, missing + way_out, reply.code);
  }
  if (reply.code == no_such_column) {
    throw Error(ErrorKind::incompatible,
                layout.settings_table() +
                    " lacks columns that every version of hierlock makes: when nobody locks here, "
                    "drop it and provision with the same numbers again",
                reply.code);
  }
  if (!reply.well()) throw error_of(reply, "read the settings of " + layout.table);
  const auto& row = reply.rows.front();
  refuse_unless_good(judge_recorded(row, layout), ErrorKind::incompatible);
  const BucketTable recorded{layout.table, number<std::uint32_t>(row.at(1)), number<unsigned>(row.at(2))};
  if (layout.lazy && !options.only_look) make_rows_table(connection, recorded, limit);
  if (const auto else_for = made_for_else(connection, recorded, limit)) throw made_for_others(recorded, *else_for);
  refuse_unless_good(judge_engine(connection.ask(ask_for_engine(layout.table), limit), layout.table),
                     ErrorKind::unsafe_topology);
  connection.ask("COMMIT", limit);
  return recorded;
}

}  // namespace hierlock::mysql
