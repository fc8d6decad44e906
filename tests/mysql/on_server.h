// OnServer: a test against MySQL and against MariaDB, with a table of its own.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <hierlock/hierlock.h>
#include <hierlock/mysql.h>

#include "plain.h"
#include "support/needs_server.h"
#include "support/timing.h"

namespace hierlock::mysql_tests {

using namespace std::chrono_literals;
using namespace tests;
using Clock = std::chrono::steady_clock;

// Whether it comes to be true, looked at until the deadline.
inline bool eventually(const std::function<bool()>& fact, std::chrono::seconds limit = 20s) {
  for (const auto end = Clock::now() + limit; Clock::now() < end; std::this_thread::sleep_for(2ms)) {
    if (fact()) return true;
  }
  return fact();
}

// What an action throws, or none.
inline std::optional<Error> error_of(const std::function<void()>& action) {
  try {
    action();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

inline testing::AssertionResult fails_with(ErrorKind kind, const std::function<void()>& action,
                                           const std::string& saying = "") {
  const std::optional<Error> error = error_of(action);
  if (!error) return testing::AssertionFailure() << "it succeeds";
  if (error->kind() != kind) return testing::AssertionFailure() << to_string(error->kind()) << ": " << error->what();
  if (std::string(error->what()).find(saying) == std::string::npos) {
    return testing::AssertionFailure() << "does not say \"" << saying << "\": " << error->what();
  }
  return testing::AssertionSuccess();
}

class OnServer : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    HIERLOCK_NEEDS_SERVER(GetParam());
    HIERLOCK_NEEDS_SERVER(GetParam() + "_OPERATOR");
    mysql::enable();
    server_ = std::make_unique<Server>(server_url(GetParam()));
    operator_ = std::make_unique<Server>(server_url(GetParam() + "_OPERATOR"));
    plain_ = std::make_unique<Plain>(*operator_);
  }
  void TearDown() override {
    if (plain_ == nullptr) return;
    if (!max_connections_.empty()) plain_->ask("SET GLOBAL max_connections=" + max_connections_);
    plain_->ask("SET SESSION lock_wait_timeout=5");
    for (const std::string& table : tables_) {
      plain_->ask("DROP TABLE IF EXISTS `" + table + "`, `" + table + "_settings`, `" + table + "_notices`");
    }
    for (const std::string& user : users_) plain_->ask("DROP USER '" + user + "'@'%'");
  }

  bool mariadb() const { return GetParam().starts_with("MARIADB"); }
  const Server& server() const { return *server_; }             // as the application's user
  const Server& operator_server() const { return *operator_; }  // who may do anything
  const std::string& table() const { return table_; }
  Plain& plain() { return *plain_; }  // of the operator

  // This test's table, made when it is first opened.
  std::string url(const std::string& more = "") const { return url(*server_, more); }
  std::string url(const Server& server, const std::string& more = "") const { return url_of(table_, server, more); }
  static std::string url_of(const std::string& table, const Server& server, const std::string& more = "") {
    return server.url("provision=lazy&table=" + table + (more.empty() ? "" : "&" + more));
  }
  // Another one, for what is done at the same time.
  const std::string& another_table() { return tables_.emplace_back(name_of_a_table()); }
  Locker open(const std::string& more = "", OpenOptions options = {}) const {
    return hierlock::open(url(more), std::move(options));
  }
  // Somebody who may do just that, until the test is over. `how`: IDENTIFIED … BY, if it matters.
  Server make_user(const std::string& rights, const std::string& on, const std::string& how = "") {
    Server user = *server_;
    static std::atomic<int> last{0};
    user.user = "suite_" + std::to_string(getpid()) + "_" + std::to_string(++last);
    user.password = "secret-of-the-test";
    plain_->ask("CREATE USER '" + user.user + "'@'%' IDENTIFIED " + (how.empty() ? "" : "WITH " + how + " ") + "BY '" +
                user.password + "'");
    users_.push_back(user.user);
    if (!rights.empty()) plain_->ask("GRANT " + rights + " ON " + on + " TO '" + user.user + "'@'%'");
    return user;
  }
  // The server takes so many connections, and some more, until the test is over.
  void make_room_for(int connections) {
    constexpr int some_more = 50;
    const std::string before = plain_->one("SELECT @@GLOBAL.max_connections");
    if (std::stoi(before) >= connections + some_more) return;
    max_connections_ = before;
    plain_->ask("SET GLOBAL max_connections=" + std::to_string(connections + some_more));
  }
  std::map<std::pair<int, long>, char> locked() { return locked_rows(plain(), table_); }
  // A release does not wait for the server: the rows it gives back are free a moment later.
  bool only_stay_locked(std::size_t rows) {
    return eventually([&] { return locked().size() == rows; });
  }
  bool all_free() { return only_stay_locked(0); }
  // How many sessions wait for a row of this table.
  int how_many_wait() { return how_many_wait(plain(), table_); }
  static int how_many_wait(Plain& plain, const std::string& table) {
    return std::stoi(plain.one("SELECT COUNT(*) FROM information_schema.processlist WHERE INFO LIKE '%" + table +
                               "%' AND INFO LIKE '%UUID_SHORT(), CONNECTION_ID()%' AND COMMAND='Execute'"));
  }
  bool somebody_waits() { return how_many_wait() != 0; }

 private:
  static std::string name_of_a_table() {
    static std::atomic<int> last{0};
    return "mysql_suite_" + std::to_string(getpid()) + "_" + std::to_string(++last) + "t";  // none begins another
  }
  std::deque<std::string> tables_{name_of_a_table()};
  const std::string& table_ = tables_.front();
  std::unique_ptr<Server> server_, operator_;
  std::unique_ptr<Plain> plain_;
  std::vector<std::string> users_;
  std::string max_connections_;  // what make_room_for() has raised
};

#define HIERLOCK_ON_BOTH_SERVERS(suite)                                  \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::Values("MYSQL", "MARIADB"), \
                           [](const auto& server) { return server.param; })

}  // namespace hierlock::mysql_tests
