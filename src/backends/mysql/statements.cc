#include "mysql/statements.h"

namespace hierlock::mysql {

namespace {

std::string marked(const BucketTable& table, std::string_view of) {
  return std::string(of) + table.mark() + " IS NOT NULL";
}

std::string where(std::span<const plan::Row> rows, std::size_t first) {
  std::string sql = " WHERE ";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string name = "r" + std::to_string(first + i);
    if (i > 0) sql += " AND ";
    sql += name + ".level=" + std::to_string(rows[i].level) + " AND " + name + ".bucket=?";
  }
  return sql;
}

// `t` AS r0 STRAIGHT_JOIN `t` AS r1 …
std::string joined(const BucketTable& table, std::size_t first, std::size_t count) {
  std::string sql;
  for (std::size_t i = first; i < first + count; ++i) {
    if (i > first) sql += " STRAIGHT_JOIN ";
    sql += table.quoted() + " AS r" + std::to_string(i);
  }
  return sql;
}

constexpr std::string_view minted = "UUID_SHORT(), CONNECTION_ID()";

// MySQL says for each table of a join how it is to be locked.
std::string join_of_mysql(const BucketTable& table, std::span<const plan::Row> rows, std::string_view no_wait) {
  std::string shared, exclusive;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string& names = rows[i].mode == Mode::X ? exclusive : shared;
    names += (names.empty() ? " OF r" : ", r") + std::to_string(i);
  }
  std::string sql = "SELECT " + std::string(minted) + " FROM " + joined(table, 0, rows.size()) + where(rows, 0) +
                    " AND " + marked(table, "r" + std::to_string(rows.size() - 1) + ".");
  if (!shared.empty()) sql += " FOR SHARE" + shared + std::string(no_wait);
  if (!exclusive.empty()) sql += " FOR UPDATE" + exclusive + std::string(no_wait);
  return sql;
}

// MariaDB locks all of a SELECT alike. So rows of one mode that follow each other are a SELECT of their own, which the
// server merges into the outer one (derived_merge, see prepare_session) and which keeps its mode there.
std::string join_of_mariadb(const BucketTable& table, std::span<const plan::Row> rows, std::string_view no_wait) {
  std::string sql = "SELECT " + std::string(minted) + " FROM ";
  for (std::size_t first = 0; first < rows.size();) {
    std::size_t end = first;
    while (end < rows.size() && rows[end].mode == rows[first].mode) ++end;
    const bool last = end == rows.size();
    const std::string select = joined(table, first, end - first) + where(rows.subspan(first, end - first), first) +
                               (last ? " AND " + marked(table, "r" + std::to_string(end - 1) + ".") : "") +
                               (rows[first].mode == Mode::X ? " FOR UPDATE" : " LOCK IN SHARE MODE") +
                               std::string(no_wait);
    if (first > 0) sql += " STRAIGHT_JOIN ";
    sql += last ? select : "(SELECT 1 FROM " + select + ") AS s" + std::to_string(first);
    first = end;
  }
  return sql;
}

std::string union_of(Dialect dialect, const BucketTable& table, std::span<const plan::Row> rows,
                     std::string_view no_wait) {
  const std::string shared = dialect == Dialect::mysql ? " FOR SHARE" : " LOCK IN SHARE MODE";
  std::string sql;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) sql += " UNION ALL ";
    const bool last = i + 1 == rows.size();
    sql += "(SELECT " + std::string(last ? minted : "0, 0");
    sql += " FROM " + table.quoted() + " WHERE level=" + std::to_string(rows[i].level) + " AND bucket=?";
    if (last) sql += " AND " + marked(table, "");
    sql += rows[i].mode == Mode::X ? " FOR UPDATE" : shared;
    sql += no_wait;
    sql += ")";
  }
  return sql;
}

}  // namespace

std::string lock_rows(Dialect dialect, const BucketTable& table, std::span<const plan::Row> rows, bool no_wait,
                      Form form) {
  const std::string_view how = no_wait ? " NOWAIT" : "";
  if (form == Form::one_by_one) return union_of(dialect, table, rows, how);
  return dialect == Dialect::mysql ? join_of_mysql(table, rows, how) : join_of_mariadb(table, rows, how);
}

std::string lock_rows_name(std::span<const plan::Row> rows, bool no_wait, Form form) {
  std::string name(1, static_cast<char>((no_wait ? 2 : 0) + (form == Form::together ? 1 : 0)));
  for (const plan::Row& row : rows) name += static_cast<char>(row.level * 2 + (row.mode == Mode::X ? 1 : 0));
  return name;
}

// Each row by itself: both servers then use the primary key, however many rows the table has.
std::string find_rows(const BucketTable& table, std::span<const plan::Row> rows) {
  std::string sql;
  for (const plan::Row& row : rows) {
    sql += (sql.empty() ? "SELECT level, bucket FROM " + table.quoted() + " WHERE " + marked(table, "") + " AND ("
                        : std::string(" OR ")) +
           "(level=" + std::to_string(row.level) + " AND bucket=" + std::to_string(row.bucket) + ")";
  }
  return sql + ")";
}

std::vector<SessionSetting> session_settings(Dialect dialect) {
  const bool mysql = dialect == Dialect::mysql;
  std::vector<SessionSetting> settings{
      {"sql_mode", "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'", "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION"},
      {"sql_select_limit", "18446744073709551615", "18446744073709551615"},
      {"sql_safe_updates", "0", "OFF"},
      {"sql_big_selects", "1", "ON"},
      {mysql ? "transaction_isolation" : "tx_isolation", "'READ-COMMITTED'", "READ-COMMITTED"},
      {mysql ? "transaction_read_only" : "tx_read_only", "0", "OFF"},
      {"autocommit", "0", "OFF"},
      {"completion_type", "0", "NO_CHAIN"},
      {"wait_timeout", "12", "12"},
      {"interactive_timeout", "12", "12"},
      {"net_read_timeout", "30", "30"},
      {"net_write_timeout", "60", "60"},
      {"innodb_lock_wait_timeout", "2", "2"},
      {"lock_wait_timeout", "10", "10"},
  };
  if (mysql) {
    settings.push_back({"max_execution_time", "0", "0"});
    // Where the version knows it; if not, another one is set to what it is. (Of its whole value, with a part
    // replaced, MySQL 9.7 sometimes reads more than is there: 1231.)
    settings.push_back(
        {"optimizer_switch",
         "IF(@@optimizer_switch LIKE '%hypergraph_optimizer=%', 'hypergraph_optimizer=off', 'derived_merge=on')",
         "hypergraph_optimizer=off"});
    return settings;
  }
  for (const char* name :
       {"idle_transaction_timeout", "idle_readonly_transaction_timeout", "idle_write_transaction_timeout"}) {
    settings.push_back({name, "0", "0"});
  }
  settings.push_back({"max_statement_time", "0", "0.000000"});
  settings.push_back({"optimizer_switch", "'derived_merge=on'", "derived_merge=on"});
  return settings;
}

std::string prepare_session(Dialect dialect) {
  std::string sql = "SET SESSION ";
  for (const SessionSetting& setting : session_settings(dialect)) {
    sql += std::string(setting.name) + "=" + setting.value + ", ";
  }
  sql.resize(sql.size() - 2);
  return sql;
}

std::string make_row(const BucketTable& table, unsigned level, std::uint32_t bucket) {
  const std::string at = std::to_string(level), row = std::to_string(bucket), name = table.quoted();
  return "INSERT INTO " + name + " (level, bucket) SELECT " + at + ", " + row +
         " FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM " + name + " WHERE level=" + at + " AND bucket=" + row + " AND " +
         marked(table, "") + ")";
}

std::string look_at_mark(const BucketTable& table) {
  return "SELECT " + table.mark() + " FROM " + table.quoted() + " WHERE 1=0";
}

}  // namespace hierlock::mysql
