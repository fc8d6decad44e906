// OnOwnServer: a test on a MySQL and on a MariaDB of its own, which it may set up badly, stop, kill and start again.
#pragma once

#include "on_server.h"
#include "support/own_server.h"

namespace hierlock::mysql_tests {

class OnOwnServer : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    HIERLOCK_NEEDS_SERVER(GetParam() == "mysql" ? "MYSQL" : "MARIADB");  // then there are packages of it, too
    mysql::enable();
    own_ = OwnServer::get(GetParam());
    ASSERT_NE(own_, nullptr) << "tools/servers cannot start another " << GetParam();
  }

  bool mariadb() const { return GetParam() == "mariadb"; }
  bool has_server() const { return own_ != nullptr; }
  const OwnServer& own() const { return *own_; }
  std::string url_of(const std::string& table, const std::string& more = "") const {
    return own_->url() + "?provision=lazy&table=" + table + (more.empty() ? "" : "&" + more);
  }
  // Of the operator, connected on first use.
  Plain& plain() {
    if (plain_ == nullptr) plain_ = std::make_unique<Plain>(own_->operator_url());
    return *plain_;
  }
  void drop(const std::string& table) {
    plain().ask("DROP TABLE IF EXISTS " + table + ", " + table + "_settings, " + table + "_notices");
  }

 private:
  const OwnServer* own_ = nullptr;
  std::unique_ptr<Plain> plain_;
};

#define HIERLOCK_ON_OWN_SERVERS(suite)                                   \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::Values("mysql", "mariadb"), \
                           [](const auto& engine) { return engine.param; })

}  // namespace hierlock::mysql_tests
