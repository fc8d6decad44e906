// One node of a cluster is restarted, or hangs. The other nodes must not suffer from it.
#include <csignal>
#include <future>

#include <hierlock/operate.h>

#include "on_valkey.h"
#include "support/own_server.h"

namespace hierlock::valkey_tests {
namespace {

class OneNode : public testing::Test {
 protected:
  void SetUp() override {
    HIERLOCK_NEEDS_SERVER("VALKEY");
    valkey::enable();
    own_ = OwnServer::get("valkey", "--cluster");
    ASSERT_NE(own_, nullptr) << "tools/servers cannot start a cluster";
    for (int i = 1; i <= 6; ++i) names_.push_back(own_->name() + (i == 1 ? "" : std::to_string(i)));
  }
  std::string url(const std::string& more) const { return with(own_->url(), "table=" + table_ + "&" + more); }
  static std::string ask(const std::string& node, const std::string& command) {
    return servers("client " + node + " --operator " + command);
  }
  const std::vector<std::string>& names() const { return names_; }
  std::string key_of(const std::string& root) const {
    const std::string text = statements(url("lease=3000"), std::vector<Target>{Target(root)});
    const std::size_t at = text.find("hl:" + table_);
    return text.substr(at, text.find('}', at) + 1 - at);
  }
  // The primary that has this key: others name it.
  std::string owner_of(const std::string& key) const {
    std::string owner;
    eventually([&] {
      for (const std::string& name : names_) {
        const std::string said = ask(name, "EXISTS '" + key + "'");
        if (said == "0\n" || said == "1\n") owner = name;
      }
      return !owner.empty();
    });
    return owner;
  }
  // A root that is not at this node.
  std::string elsewhere(const std::string& node) const {
    for (int i = 2;; ++i) {
      const std::string root = "u" + std::to_string(i);
      if (owner_of(key_of(root)) != node) return root;
    }
  }

 private:
  const OwnServer* own_ = nullptr;
  const std::string table_ = new_table();
  std::vector<std::string> names_;
};

TEST_F(OneNode, that_was_restarted_does_not_hold_up_acquires_at_others) {  // B4
  Locker locker = hierlock::open(url("lease=10000"));
  const std::string node = owner_of(key_of("u1")), other = elsewhere(node);
  for (const std::string& root : {std::string("u1"), other}) {
    const Lock once = locker.acquire(root, {.timeout = 30s});
  }
  servers("restart " + node);
  EXPECT_TRUE(eventually([&] {  // until it has joined the cluster again, it says something else
    return fails_with(
               ErrorKind::unavailable, [&] { static_cast<void>(locker.acquire("u1", {.timeout = 0s})); },
               "started a moment ago")
        .
        operator bool();
  }));
  EXPECT_TRUE(locker.try_acquire(other, 1s).has_value());
}

// A message wakes a waiter within milliseconds. Without messages it asks twice a second.
TEST_F(OneNode, that_hangs_does_not_keep_messages_from_waiters_at_others) {  // M7
  Locker holder = hierlock::open(url("lease=3000")), waiter = hierlock::open(url("lease=3000"));
  const std::string slots = ask(names().front(), "CLUSTER SLOTS");
  std::string first;  // of the map, whose order a client follows
  std::size_t at = slots.size();
  for (const std::string& name : names()) {
    const std::string id = ask(name, "CLUSTER MYID"), role = ask(name, "ROLE");
    const std::size_t found = slots.find(id.substr(0, id.find('\n')));
    if (role.starts_with("master") && found < at) {
      first = name;
      at = found;
    }
  }
  ASSERT_FALSE(first.empty());
  const std::string root = elsewhere(first), key = key_of(root), owner = owner_of(key);
  { const Lock once = waiter.acquire(root, {.timeout = 30s}); }
  { const Lock once = holder.acquire(root, {.timeout = 30s}); }
  const std::string env = servers("env " + first);
  const pid_t process = std::stoi(env.substr(env.find("_PID='") + 6));
  ask(first, "CLIENT KILL TYPE pubsub");
  kill(process, SIGSTOP);
  for (const std::string& name : names()) {
    if (name != first) ask(name, "CLIENT KILL TYPE pubsub");
  }
  int quick = 0;  // one after the other
  EXPECT_TRUE(eventually(
      [&] {
        std::optional<Lock> lock = holder.acquire(root, {.timeout = 30s});
        auto waiting = std::async(std::launch::async, [&] {
          const Lock got = waiter.acquire(root, {.timeout = 30s});
          return Clock::now();
        });
        EXPECT_TRUE(eventually([&] { return ask(owner, "ZCARD '" + key + ":q'") == "2\n"; }));
        const Clock::time_point released = Clock::now();
        lock.reset();
        quick = waiting.get() - released < 100ms ? quick + 1 : 0;
        return quick == 5;
      },
      10s));
  kill(process, SIGCONT);
}

}  // namespace
}  // namespace hierlock::valkey_tests
