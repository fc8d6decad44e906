// mysql: on MySQL and on MariaDB, between the threads of this process. The servers are named by the environment (H10).
#include <unistd.h>

#include <cstdlib>

#include <hierlock/mysql.h>

#include "backend.h"

namespace hierlock::conformance {
namespace {

// Rows are made when they are first used, in a table of this process's own.
class MysqlTable final : public Table {
 public:
  explicit MysqlTable(const char* variable) {
    mysql::enable();
    url_ = std::string(std::getenv(variable)) + "?provision=lazy&connections=" + std::to_string(connections) +
           "&table=conformance_" + std::to_string(getpid());
  }
  Locker open(OpenOptions options) override { return hierlock::open(url_, std::move(options)); }
  bool one_for_all_lockers() const override { return true; }
  std::size_t levels() const override { return 3; }
  std::size_t locks_at_once() const override { return connections - 1; }

 private:
  static constexpr std::size_t connections = 64;  // of at most 300 at the server
  std::string url_;
};

bool add(const char* name, const char* variable) {
  return add_backend({.name = name,
                      .make_table = [variable] { return std::make_unique<MysqlTable>(variable); },
                      .names = false,
                      .slots = false,
                      .missing = [variable]() -> std::string {
                        if (std::getenv(variable) != nullptr) return {};
                        return std::string(variable) + " names no server: eval \"$(tools/servers env)\"";
                      }});
}

[[maybe_unused]] const bool mysql = add("mysql", "HIERLOCK_TEST_MYSQL");
[[maybe_unused]] const bool mariadb = add("mariadb", "HIERLOCK_TEST_MARIADB");

}  // namespace
}  // namespace hierlock::conformance
