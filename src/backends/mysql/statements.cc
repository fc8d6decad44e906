#include "mysql/statements.h"

namespace hierlock::mysql {

std::string lock_rows(Dialect dialect, std::string_view table, std::span<const plan::Row> rows, bool no_wait) {
  const std::string shared = dialect == Dialect::mysql ? " FOR SHARE" : " LOCK IN SHARE MODE";
  std::string sql;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) sql += " UNION ALL ";
    sql += "(SELECT " + std::to_string(i);
    sql += i + 1 == rows.size() ? ", UUID_SHORT(), CONNECTION_ID()" : ", 0, 0";
    sql += " FROM `" + std::string(table) + "` WHERE level=" + std::to_string(rows[i].level) + " AND bucket=?";
    sql += rows[i].mode == Mode::X ? " FOR UPDATE" : shared;
    if (no_wait) sql += " NOWAIT";
    sql += ")";
  }
  return sql;
}

std::string prepare_session(Dialect dialect) {
  return std::string("SET SESSION ") +
         (dialect == Dialect::mysql ? "transaction_isolation='READ-COMMITTED'" : "tx_isolation='READ-COMMITTED'") +
         ", autocommit=0, wait_timeout=12, interactive_timeout=12, innodb_lock_wait_timeout=2, lock_wait_timeout=10" +
         (dialect == Dialect::mysql ? ", max_execution_time=0" : ", max_statement_time=0");
}

std::string make_row(std::string_view table, unsigned level, std::uint32_t bucket) {
  const std::string at = std::to_string(level), row = std::to_string(bucket), name = "`" + std::string(table) + "`";
  return "INSERT INTO " + name + " (level, bucket) SELECT " + at + ", " + row +
         " FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM " + name + " WHERE level=" + at + " AND bucket=" + row + ")";
}

std::string make_bucket_table(std::string_view table) {
  return "CREATE TABLE IF NOT EXISTS `" + std::string(table) +
         "` (level TINYINT NOT NULL, bucket INT NOT NULL, PRIMARY KEY (level, bucket)) ENGINE=InnoDB";
}

std::string make_settings_table(std::string_view settings_table) {
  return "CREATE TABLE IF NOT EXISTS `" + std::string(settings_table) +
         "` (id TINYINT NOT NULL PRIMARY KEY, format INT NOT NULL, buckets INT NOT NULL, levels TINYINT NOT NULL, "
         "fence_floor BIGINT UNSIGNED NOT NULL, fence_server INT UNSIGNED NOT NULL) ENGINE=InnoDB";
}

}  // namespace hierlock::mysql
