// Bucket rows of MySQL and MariaDB, locked the plain way: a transaction, one SELECT a row, each prepared, executed,
// fetched and closed, as a database library does it that is given a statement with parameters; then ROLLBACK.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "keys.h"
#include "sql_session.h"

namespace bench {

// A table of hierlock's, with all its rows, that is gone with this.
class BucketTable {
 public:
  // Throws if the server cannot be used.
  BucketTable(const std::string& server, std::uint32_t buckets);
  ~BucketTable();
  BucketTable(const BucketTable&) = delete;
  BucketTable& operator=(const BucketTable&) = delete;

  const std::string& server() const noexcept { return server_; }
  const std::string& name() const noexcept { return name_; }
  std::uint32_t buckets() const noexcept { return buckets_; }
  // For hierlock::open(). The second: through a relay.
  std::string url() const { return url(server_); }
  std::string url(const std::string& server) const { return server + "?table=" + name_; }

 private:
  const std::string server_, name_;
  const std::uint32_t buckets_;
};

class SelectByRow {
 public:
  explicit SelectByRow(const BucketTable& table) : table_(table) {}

  // A session each.
  class Worker {
   public:
    Worker(SelectByRow& store, const std::vector<Path>& keys);

    std::size_t size() const noexcept { return keys_.size(); }
    void pair(std::size_t i) {
      hold(keys_[i], "");
      drop();
    }

    bool try_hold(const Path& path, std::size_t depth);
    void drop() { session_.ask("ROLLBACK"); }

   private:
    struct Rows {
      std::array<std::uint32_t, 3> buckets{};
      std::size_t depth = 3;
    };
    Rows rows_of(const Path& path, std::size_t depth) const;
    void hold(const Rows& rows, const std::string& waiting);
    void lock(std::size_t level, std::uint32_t bucket, const std::string& how);

    const BucketTable& table_;
    SqlSession session_;
    const std::string select_;
    std::vector<Rows> keys_;
  };

 private:
  const BucketTable& table_;
};

}  // namespace bench
