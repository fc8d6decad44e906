// mysql: on MySQL and on MariaDB: between the threads of this process, with hand-over inside it and without (gate=off),
// and between processes. The environment names the servers (H10).
#include <unistd.h>

#include <cstdlib>

#include <hierlock/mysql.h>

#include "support/backend.h"
#include "support/process_party.h"
#include "support/server.h"

namespace hierlock::conformance {
namespace {

// The server of this name, or the one that is there for this suite alone (HIERLOCK_TEST_SECOND_SERVERS of CMake).
std::string variable_of(const char* server) {
  return std::string(server) + (std::getenv("HIERLOCK_TEST_SECOND") != nullptr ? "_SECOND" : "");
}

enum class Parties { threads, processes };

// Rows are made when they are first used, in a table of this process's own.
class MysqlTable final : public Table {
 public:
  MysqlTable(const char* server, Parties parties, const std::string& more) : parties_(parties) {
    mysql::enable();
    url_ = tests::server_url(variable_of(server)) + "?provision=lazy&connections=" + std::to_string(connections) +
           "&publish_after=" + (parties == Parties::processes ? "0" : "1000") + "&table=conformance_" +
           std::to_string(getpid()) + more;
    // MariaDB renews its views ten times a second, and these tests look for what they wait for more often than that.
    if (std::string_view(server) == "MARIADB") url_ += "&views=off";
  }
  Locker open(OpenOptions options) override { return hierlock::open(url_, std::move(options)); }
  bool one_for_all_lockers() const override { return true; }
  std::size_t levels() const override { return 3; }
  std::size_t locks_at_once() const override { return connections - 1; }
  // What is written down for others is taken out as far as there is time (docs/mysql.md, status); otherwise soon after.
  bool forgets_at_once() const override { return false; }  // a busy server may take a moment
  std::unique_ptr<Party> make_party(std::string name, Locker& locker) override {
    if (parties_ == Parties::threads) return Table::make_party(std::move(name), locker);
    return std::make_unique<ProcessParty>(std::move(name), url_);
  }

 private:
  static constexpr std::size_t connections = 64;  // of at most 300 at the server
  const Parties parties_;
  std::string url_;
};

bool add(const char* name, const char* server, Parties parties, const std::string& more = "") {
  return add_backend({.name = name,
                      .make_table = [=] { return std::make_unique<MysqlTable>(server, parties, more); },
                      .column = "`mysql://`",
                      .missing = [server]() -> std::string {
                        if (!tests::server_url(variable_of(server)).empty()) return {};
                        return "HIERLOCK_TEST_" + variable_of(server) +
                               " names no server: eval \"$(tools/servers env)\"";
                      }});
}

[[maybe_unused]] const bool mysql = add("mysql", "MYSQL", Parties::threads);
[[maybe_unused]] const bool mariadb = add("mariadb", "MARIADB", Parties::threads);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they would see what they see above, at length
[[maybe_unused]] const bool mysql_processes = add("mysql_processes", "MYSQL", Parties::processes);
[[maybe_unused]] const bool mariadb_processes = add("mariadb_processes", "MARIADB", Parties::processes);
[[maybe_unused]] const bool mysql_gate_off = add("mysql_gate_off", "MYSQL", Parties::threads, "&gate=off");
[[maybe_unused]] const bool mariadb_gate_off = add("mariadb_gate_off", "MARIADB", Parties::threads, "&gate=off");
#endif

}  // namespace
}  // namespace hierlock::conformance
