// What doctor sees on a server that is set up badly: what it asks the server, not only how it judges the answers.
#include <hierlock/operate.h>

#include "node.h"
#include "on_valkey.h"
#include "support/own_server.h"

namespace hierlock::valkey_tests {
namespace {

using Verdict = Finding::Verdict;

class Doctor : public testing::Test {
 protected:
  void SetUp() override {
    HIERLOCK_NEEDS_SERVER("VALKEY");
    valkey::enable();
    own_ = OwnServer::get("valkey");
    ASSERT_NE(own_, nullptr) << "tools/servers cannot start another valkey";
    server_.emplace(own_->name(), own_->operator_url());
  }
  // Others use this server, too.
  void TearDown() override {
    if (!server_) return;
    set("maxmemory-policy", "noeviction");
    set("maxmemory", "0");
    set("appendonly", "yes");
  }
  void set(const std::string& setting, const std::string& value) {
    EXPECT_EQ(server_->ask({"CONFIG", "SET", setting, value}), "OK") << setting;
  }
  Finding finding(const std::string& check) const {
    for (const Finding& one : doctor(own_->url())) {
      if (one.check == check) return one;
    }
    return {};
  }

 private:
  const OwnServer* own_ = nullptr;
  std::optional<Node> server_;
};

TEST_F(Doctor, sees_that_the_server_may_remove_locks) {
  EXPECT_EQ(finding("eviction").verdict, Verdict::good);
  set("maxmemory-policy", "volatile-ttl");
  EXPECT_EQ(finding("eviction").verdict, Verdict::unknown) << "it has no bound yet";
  set("maxmemory", "100mb");
  EXPECT_EQ(finding("eviction").verdict, Verdict::unsafe);
  EXPECT_NE(finding("eviction").text.find("volatile-ttl"), std::string::npos);
}

TEST_F(Doctor, sees_that_a_restart_ends_all_locks) {
  EXPECT_EQ(finding("persistence").verdict, Verdict::good);
  set("appendonly", "no");
  EXPECT_EQ(finding("persistence").verdict, Verdict::slow);
}

}  // namespace
}  // namespace hierlock::valkey_tests
