// A replica takes the place of its primary, which still answers: the worst case of a failover (B3, B4, H17).
#include "on_valkey.h"
#include "support/own_server.h"

namespace hierlock::valkey_tests {
namespace {

class Failover : public testing::Test {
 protected:
  void SetUp() override {
    HIERLOCK_NEEDS_SERVER("VALKEY");
    valkey::enable();
    own_ = OwnServer::get("valkey", "--replica");
    ASSERT_NE(own_, nullptr) << "tools/servers cannot start a valkey with a replica";
    const std::string env = servers("env " + replica());
    const std::size_t at = env.find("valkey://app:");
    ASSERT_NE(at, env.npos) << env;
    replica_url_ = env.substr(at, env.find('\'', at) - at);
    const std::string& url = own_->url();
    const std::size_t colon = url.rfind(':');
    ask(replica(), "REPLICAOF 127.0.0.1 " + url.substr(colon + 1, url.rfind('/') - colon - 1));
    ASSERT_TRUE(eventually([&] { return ask(own_->name(), "INFO replication").find("state=online") != env.npos; }));
  }
  static std::string ask(const std::string& server, const std::string& command) {
    return servers("client " + server + " --operator " + command);
  }
  std::string replica() const { return own_->name() + "2"; }
  // From now on it does not see what its primary does, and is a primary itself.
  void promote_replica() {
    ASSERT_NE(ask(replica(), "REPLICAOF NO ONE").find("OK"), std::string::npos);
    ASSERT_TRUE(
        eventually([&] { return ask(own_->name(), "INFO replication").find("state=online") == std::string::npos; }));
  }
  Locker at_primary(const std::string& more = "") const { return at(own_->url(), more); }
  Locker at_replica() const { return at(replica_url_, ""); }
  Locker at(const std::string& url, const std::string& more) const {
    return hierlock::open(with(url, "table=" + table_ + "&lease=2000" + more));
  }

  const OwnServer* own_ = nullptr;
  const std::string table_ = new_table();

 private:
  std::string replica_url_;
};

const char* const confirmed = "&wait_replicas=1";

// docs/valkey.md and doctor say so. The fence tells the two apart.
TEST_F(Failover, without_wait_replicas_one_lock_may_have_two_holders) {
  Locker before = at_primary();
  promote_replica();
  const Lock first = before.acquire("u1", {.timeout = 30s});
  const std::int64_t fence = first.fence();
  const Lock second = at_replica().acquire("u1", {.timeout = 30s});
  EXPECT_TRUE(first.held() && second.held()) << "the new primary has not seen the first lock";
  EXPECT_GT(second.fence(), fence);
}

TEST_F(Failover, with_wait_replicas_the_new_primary_knows_every_lock) {
  Locker before = at_primary(confirmed);
  const Lock first = before.acquire("u1", {.timeout = 30s});
  const std::int64_t fence = first.fence();
  promote_replica();
  // The old primary goes on to renew the lock, but no replica confirms that.
  const Lock second = at_replica().acquire("u1", {.timeout = 30s});
  EXPECT_FALSE(first.held()) << "two hold one lock";
  EXPECT_GT(second.fence(), fence);
}

TEST_F(Failover, an_acquire_that_no_replica_confirms_fails) {
  Locker locker = at_primary(confirmed), other = at_primary();
  { const Lock once = locker.acquire("u1", {.timeout = 30s}); }
  promote_replica();
  EXPECT_TRUE(fails_with(
      ErrorKind::unavailable, [&] { static_cast<void>(locker.acquire("u1")); },
      "wait_replicas=1, and fewer replicas have confirmed"));
  EXPECT_TRUE(other.try_acquire("u1").has_value()) << "it was given back";
}

TEST_F(Failover, an_extend_that_no_replica_confirms_adds_nothing) {
  Locker locker = at_primary(confirmed), other = at_primary();
  Lock lock = locker.acquire("u1/a1", {.timeout = 30s});
  promote_replica();
  try {
    lock.extend("u1/a2");
    ADD_FAILURE() << "it is extended";
  } catch (const Error& error) {  // lost: no replica has confirmed a renewal for a lease
    EXPECT_TRUE(error.kind() == ErrorKind::unavailable || error.kind() == ErrorKind::lost) << error.what();
  }
  EXPECT_TRUE(other.try_acquire("u1/a2").has_value());
}

// The release of another process grants it, and a message tells of that. Only a replica makes it certain.
TEST_F(Failover, a_waiter_does_not_rely_on_a_grant_that_no_replica_has) {
  Locker holder = at_primary(), waiter = at_primary(confirmed + std::string("&publish_after=0"));
  std::optional<Lock> lock = holder.acquire("u1", {.timeout = 30s});
  testing::AssertionResult failed = testing::AssertionFailure();
  std::thread waiting([&] {
    failed = fails_with(
        ErrorKind::unavailable, [&] { static_cast<void>(waiter.acquire("u1")); }, "replicas");
  });
  EXPECT_TRUE(eventually([&] { return waiter.snapshot().anybody_waits("u1"); }));
  promote_replica();
  lock.reset();
  waiting.join();
  EXPECT_TRUE(failed);
  EXPECT_TRUE(holder.try_acquire("u1").has_value()) << "it was given back";
}

// Inside a process a lock is handed over without a question to the server.
TEST_F(Failover, locks_go_round_between_threads_and_lockers_with_wait_replicas) {
  Locker one = at_primary(confirmed), two = at_primary(confirmed);
  { const Lock once = one.acquire("u1", {.timeout = 30s}); }
  std::atomic<int> inside{0}, most{0};
  std::vector<std::thread> threads;
  for (Locker* locker : {&one, &one, &two, &two}) {
    threads.emplace_back([&, locker] {
      for (int i = 0; i < 50; ++i) {
        const Lock lock = locker->acquire("u1", {.timeout = 30s});
        most = std::max(most.load(), ++inside);
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
}

}  // namespace
}  // namespace hierlock::valkey_tests
