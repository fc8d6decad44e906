// A server that is stopped, killed and started again, with its data and without (B3, B4).
#include <csignal>
#include <future>

#include "on_valkey.h"
#include "support/own_server.h"

namespace hierlock::valkey_tests {
namespace {

class Restart : public testing::Test {
 protected:
  void SetUp() override {
    HIERLOCK_NEEDS_SERVER("VALKEY");
    valkey::enable();
    own_ = OwnServer::get("valkey");
    ASSERT_NE(own_, nullptr) << "tools/servers cannot start another valkey";
  }
  std::string url(const std::string& more) const { return with(own_->url(), "table=" + table_ + "&" + more); }
  std::string control(const std::string& verb) const { return servers(verb + " " + own_->name()); }
  std::string ask(const std::string& command) const {
    return servers("client " + own_->name() + " --operator " + command);
  }
  // Its process is another one after each start.
  pid_t pid() const {
    const std::string env = servers("env " + own_->name());
    const std::size_t at = env.find("_PID='");
    return at == env.npos ? -1 : std::stoi(env.substr(at + 6));
  }

  const OwnServer* own_ = nullptr;
  const std::string table_ = new_table();
};

// A start on a busy machine does not outlast the holder's lease. The other's lease is short: the server grants it
// nothing for that long after a start, whether it has the lock or not.
TEST_F(Restart, a_server_with_its_data_has_its_locks) {
  Locker holder = hierlock::open(url("lease=10000")), other = hierlock::open(url("lease=1000"));
  const Lock lock = holder.acquire("u1", {.timeout = 30s});
  control("kill");
  control("start");
  { const Lock free = other.acquire("u2", {.timeout = 30s}); }  // from now on the server grants what is free
  EXPECT_FALSE(other.try_acquire("u1").has_value());
  const auto leases = [&] { return ask("ZRANGE '" + place_of(url("gate=on"), "u1") + ":l' 0 -1 WITHSCORES"); };
  EXPECT_TRUE(eventually([&, before = leases()] { return leases() != before; })) << "it is not renewed";
  EXPECT_FALSE(other.try_acquire("u1").has_value());
  EXPECT_TRUE(lock.held());
  EXPECT_FALSE(lock.lost().stop_requested());
}

// The holder cannot know yet that its lock is gone. So nobody gets it before its lease has ended.
TEST_F(Restart, a_server_without_its_data_grants_nothing_for_a_lease) {
  Locker holder = hierlock::open(url("lease=4000")), other = hierlock::open(url("lease=4000"));
  const Lock lock = holder.acquire("u1", {.timeout = 30s});
  const std::int64_t fence = lock.fence();
  ASSERT_NE(ask("FLUSHALL").find("OK"), std::string::npos);
  control("kill");
  control("start");
  EXPECT_TRUE(fails_with(
      ErrorKind::unavailable, [&] { static_cast<void>(other.acquire("u1", {.timeout = 0s})); },
      "started a moment ago"));
  const Lock next = other.acquire("u1", {.timeout = 30s});
  EXPECT_FALSE(lock.held()) << "two hold one lock";
  EXPECT_GT(next.fence(), fence);
}

TEST_F(Restart, a_lock_is_uncertain_once_a_silent_server_could_have_ended_it) {
  Locker locker = hierlock::open(url("lease=1500"));
  const Lock lock = locker.acquire("u1", {.timeout = 30s});
  const pid_t server = pid();
  ASSERT_GT(server, 0);
  kill(server, SIGSTOP);
  const auto begin = Clock::now();
  Clock::time_point held = begin;  // the last moment before which it certainly said so
  EXPECT_TRUE(eventually([&] {
    const auto now = Clock::now();
    if (!lock.held()) return true;
    held = now;
    return false;
  }));
  EXPECT_LT(held - begin, 1500ms) << "held() is false before the lease has ended";
  EXPECT_TRUE(eventually([&] { return lock.lost().stop_requested(); }));
  EXPECT_TRUE(fails_with(ErrorKind::lost, [&] { static_cast<void>(lock.fence()); }));
  EXPECT_TRUE(fails_with(ErrorKind::unavailable, [&] { static_cast<void>(locker.acquire("u2")); }));
  kill(server, SIGCONT);
}

// It may be granted by the server at once, which may have lost the lock of somebody else.
TEST_F(Restart, a_waiter_waits_on_after_a_restart_and_for_one_lease) {  // B4
  Locker holder = hierlock::open(url("lease=8000")), other = hierlock::open(url("lease=8000"));
  std::optional<Lock> lock = holder.acquire("u1", {.timeout = 30s});
  auto waiter = std::async(std::launch::async, [&] {
    const Lock got = other.acquire("u1");
    return Clock::now();
  });
  ASSERT_TRUE(eventually([&] { return !other.snapshot().waiters.empty(); }));
  const auto begin = Clock::now();
  control("restart");
  lock.reset();
  EXPECT_GE(waiter.get() - begin, 8s);
}

}  // namespace
}  // namespace hierlock::valkey_tests
