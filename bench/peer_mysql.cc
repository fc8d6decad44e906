#include "peer_mysql.h"

#include <hierlock/operate.h>

namespace bench {

BucketTable::BucketTable(const std::string& server, std::uint32_t buckets)
    : server_(server), name_(scratch_table("pairs")), buckets_(buckets) {
  enable_mysql();
  hierlock::provision(url(), {.buckets = buckets_, .levels = 3});
}

BucketTable::~BucketTable() {
  try {
    SqlSession session(server_);
    drop_hierlock_tables(session, name_);
  } catch (const std::exception&) {
  }
}

SelectByRow::Worker::Worker(SelectByRow& store, const std::vector<Path>& keys)
    : table_(store.table_),
      session_(table_.server()),
      select_("SELECT bucket FROM " + table_.name() + " WHERE level = ? AND bucket = ?") {
  for (const Path& path : keys) keys_.push_back(rows_of(path, 3));
}

SelectByRow::Worker::Rows SelectByRow::Worker::rows_of(const Path& path, std::size_t depth) const {
  Rows rows;
  rows.depth = depth;
  for (std::size_t level = 0; level < depth; ++level) rows.buckets[level] = bucket_of(path, level, table_.buckets());
  return rows;
}

void SelectByRow::Worker::hold(const Rows& rows, const std::string& waiting) {
  session_.ask("START TRANSACTION");
  for (std::size_t level = 0; level < rows.depth; ++level) {
    lock(level, rows.buckets[level], (level + 1 < rows.depth ? session_.for_share() : " FOR UPDATE") + waiting);
  }
}

void SelectByRow::Worker::lock(std::size_t level, std::uint32_t bucket, const std::string& how) {
  SqlSession::Statement statement(session_, select_ + how);
  const SqlValue values[] = {static_cast<std::uint32_t>(level), bucket};
  if (statement.execute(values) != 1) throw std::runtime_error("database: a bucket row is missing");
}

bool SelectByRow::Worker::try_hold(const Path& path, std::size_t depth) {
  try {
    hold(rows_of(path, depth), " NOWAIT");
    return true;
  } catch (const SqlError& error) {
    if (!error.busy()) throw;
    drop();
    return false;
  }
}

}  // namespace bench
