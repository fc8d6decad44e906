#include "mysql/store.h"

#include <memory>
#include <string>

#include <hierlock/error.h>

#include "mysql/options.h"
#include "mysql/schema.h"
#include "mysql/statements.h"
#include "mysql_client/connection.h"
#include "mysql_client/error_codes.h"
#include "remote/provisioner.h"

namespace hierlock::mysql {

namespace {

using namespace std::chrono_literals;
using remote::RowRange;

// Measured in primary-key order on MySQL 9.7 and MariaDB 10.11: 23 bytes are the row itself (5 header, 1 level, 4
// bucket, 6 transaction, 7 roll pointer), and InnoDB leaves a sixteenth of each page free.
constexpr double row_bytes = 23, usual_row_bytes = 25.5;

Options read_options(const spi::Url& url, const ProvisionOptions& wanted) {
  Options options = read_url(url);
  remote::agree(options.layout.buckets, wanted.buckets, most_buckets, "buckets");
  remote::agree(options.layout.levels, wanted.levels, max_depth, "levels");
  options.layout.lazy = true;  // the tables are made if they are missing
  return options;
}

std::string where(const RowRange& range) {
  return "level=" + std::to_string(range.level) + " AND bucket BETWEEN " + std::to_string(range.first) + " AND " +
         std::to_string(range.last());
}

// Makes rows in the order of the primary key: each page is filled once and not split. In the order that cross-joined
// digits have on MySQL, the table becomes three times as large (docs/bench.md).
//
// One INSERT is one transaction: nothing is left open if this process dies, and a chunk is there or it is not.
class Maker final : public remote::RowMaker {
 public:
  Maker(const Options& options, std::uint32_t chunk) : table_("`" + options.layout.table + "`") {
    Deadline to_connect(10s);
    connection_ = connect(options, to_connect).connection;
    Deadline limit(1min);
    recorded_ = read_or_make(*connection_, options, limit);
    prepare(chunk, limit);
  }

  const BucketTable& recorded() const { return recorded_; }

  std::uint64_t count(const RowRange& range) override {
    return one("SELECT COUNT(*) FROM " + table_ + " WHERE " + where(range));
  }
  // Rows that are held are there, and are not touched. So nothing waits for their holders.
  void begin(const RowRange& range, bool nothing_there) override {
    range_ = range;
    connection_->begin(nothing_there ? insert(range) : insert_missing(range));
  }
  std::uint64_t end() override {
    // Another session that inserts the same rows is waited for no longer than a second each time.
    constexpr int most_tries = 60;
    for (int tries = 1;; ++tries) {
      Deadline limit(patience);
      const Reply reply = connection_->end(limit);
      if (reply.well()) return reply.changed;
      const bool in_the_way =
          reply.code == codes::duplicate_key || reply.code == codes::lock_wait_timeout || reply.code == codes::deadlock;
      if (!in_the_way || tries == most_tries) throw error_of(reply, "make rows of " + table_);
      begin(range_, false);
    }
  }
  std::uint64_t bytes() override {
    try {
      return one("SELECT DATA_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME='" +
                 table_.substr(1, table_.size() - 2) + "'");
    } catch (const Error&) {
      return 0;
    }
  }

 private:
  static constexpr auto patience = 10min;  // for one chunk

  // The number that a query answers; 0: none.
  std::uint64_t one(const std::string& sql) {
    Deadline limit(patience);
    const Reply reply = connection_->ask(sql, limit);
    return reply.rows.empty() ? 0 : endpoint::number(reply.rows[0].at(0));
  }

  void prepare(std::uint32_t chunk, WaitLimit& limit) {
    const bool mariadb = connection_->mariadb();
    const std::string depth = std::to_string(std::uint64_t{chunk} + 1);
    connection_->ask(std::string("SET SESSION autocommit=1, innodb_lock_wait_timeout=1, wait_timeout=600, "
                                 "interactive_timeout=600, ") +
                         (mariadb ? "max_recursive_iterations=" + depth
                                  : "cte_max_recursion_depth=" + depth + ", information_schema_stats_expiry=0"),
                     limit);
    sequences_ =
        mariadb && one("SELECT COUNT(*) FROM information_schema.ENGINES WHERE ENGINE='SEQUENCE' AND SUPPORT IN "
                       "('YES', 'DEFAULT')") > 0;
  }

  // The numbers of a range as `n.bucket`, in order. Measured with 10^6 rows, these were the fastest of what was tried:
  // digits joined in order, two larger tables joined, JSON_TABLE (close behind), and sending the rows as VALUES.
  std::string numbers(const RowRange& range) const {
    const std::string first = std::to_string(range.first), last = std::to_string(range.last());
    if (sequences_) return "(SELECT seq AS bucket FROM seq_" + first + "_to_" + last + ") AS n";
    return "(WITH RECURSIVE counted (bucket) AS (SELECT " + first +
           " UNION ALL SELECT bucket + 1 FROM counted WHERE bucket < " + last + ") SELECT bucket FROM counted) AS n";
  }

  std::string insert(const RowRange& range) const {
    return "INSERT INTO " + table_ + " (level, bucket) SELECT " + std::to_string(range.level) + ", n.bucket FROM " +
           numbers(range);
  }
  // At READ COMMITTED the rows that are there are read without a lock.
  std::string insert_missing(const RowRange& range) const {
    return insert(range) + " LEFT JOIN " + table_ + " AS there ON there.level=" + std::to_string(range.level) +
           " AND there.bucket=n.bucket WHERE there.bucket IS NULL";
  }

  const std::string table_;
  std::unique_ptr<Connection> connection_;
  BucketTable recorded_;
  bool sequences_ = false;
  RowRange range_;
};

}  // namespace

void provision(const spi::Url& url, const ProvisionOptions& wanted) {
  const Options options = read_options(url, wanted);
  try {
    const std::uint32_t chunk = remote::chunk_rows(wanted);
    Maker maker(options, chunk);
    const remote::RowTable table{maker.recorded().buckets, maker.recorded().levels, row_bytes, usual_row_bytes};
    remote::provision(table, wanted, maker, [&] { return std::make_unique<Maker>(options, chunk); });
  } catch (const Error& error) {
    if (!lacks_right(static_cast<unsigned>(error.native_code()))) throw;
    throw Error(ErrorKind::denied,
                std::string(error.what()) + "; provisioning needs CREATE, SELECT, INSERT and UPDATE on " +
                    options.layout.table + ", " + options.layout.settings_table() + " and " +
                    options.layout.notices_table(),
                error.native_code());
  }
}

}  // namespace hierlock::mysql
