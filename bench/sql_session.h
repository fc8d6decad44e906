// A session of a peer with MySQL or MariaDB. hierlock's own sessions are not used: peers must not profit from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

#include "keys.h"

namespace bench {

// Empty if this build can talk to MySQL; otherwise why not.
std::string why_no_mysql();
// Makes hierlock::open() know mysql://.
void enable_mysql();

struct SqlError : std::runtime_error {
  SqlError(const std::string& what, unsigned native) : std::runtime_error(what), code(native) {}
  // Somebody else holds the row, and it was asked for without waiting. (MariaDB says "timed out".)
  bool busy() const noexcept { return code == 3572 || code == 1205; }
  bool deadlock() const noexcept { return code == 1213; }

  unsigned code;
};

using SqlValue = std::variant<std::uint32_t, std::string_view>;

// At READ COMMITTED, as hierlock's are. Every member that talks to the server throws SqlError.
class SqlSession {
 public:
  // `url` as `tools/servers env` prints it.
  explicit SqlSession(const std::string& url);
  ~SqlSession();
  SqlSession(const SqlSession&) = delete;
  SqlSession& operator=(const SqlSession&) = delete;

  bool mariadb() const noexcept;
  std::string for_share() const { return mariadb() ? " LOCK IN SHARE MODE" : " FOR SHARE"; }

  // The first value of the answer, if there is any.
  std::string ask(const std::string& sql);
  double number(const std::string& sql) { return std::stod(ask(sql)); }

  // Prepared by the constructor, closed by the destructor.
  class Statement {
   public:
    Statement(SqlSession& session, const std::string& sql);
    ~Statement();
    Statement(const Statement&) = delete;
    Statement& operator=(const Statement&) = delete;

    // How many rows came back; they are fetched.
    std::size_t execute(std::span<const SqlValue> values);

   private:
    struct Handle;
    const std::unique_ptr<Handle> handle_;
  };

 private:
  struct Handle;
  const std::unique_ptr<Handle> handle_;
};

// The row of a node of the path, as docs/format.md has it. `level` counts from 0.
std::uint32_t bucket_of(const Path& path, std::size_t level, std::uint32_t buckets);

// Tables with this in their names are nobody else's.
std::string scratch_table(std::string_view purpose);
// What hierlock makes for ?table=NAME.
void drop_hierlock_tables(SqlSession& session, const std::string& table);

}  // namespace bench
