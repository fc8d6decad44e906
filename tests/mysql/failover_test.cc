// Fences over a failover: two servers of one dataset, of which the one that takes over was started earlier.
#include <future>

#include "on_server.h"
#include "relay.h"
#include "support/own_server.h"

namespace hierlock::mysql_tests {
namespace {

// A server of the pair, with an account that both have.
struct Node {
  Node(const std::string& engine, const std::string& called)
      : own(engine, "", called), plain(own.operator_url()), app(own.url()) {
    app.user = "both";
    app.password = "secret-of-both";
    plain.ask("CREATE USER 'both' IDENTIFIED BY 'secret-of-both'");
    plain.ask("GRANT ALL ON " + app.database + ".* TO 'both'");
    plain.ask("USE " + app.database);
  }
  std::uint64_t mints() { return std::stoull(plain.one("SELECT UUID_SHORT() & ((1 << 56) - 1)")); }

  OwnServer own;
  Plain plain;
  Server app;
};

class Failover : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    HIERLOCK_NEEDS_SERVER(GetParam() == "mysql" ? "MYSQL" : "MARIADB");  // then there are packages of it, too
    mysql::enable();
    static std::map<std::string, std::pair<std::unique_ptr<Node>, std::unique_ptr<Node>>> all;
    auto& [earlier, later] = all[GetParam()];
    if (earlier == nullptr) {
      earlier = std::make_unique<Node>(GetParam(), "earlier");
      const std::uint64_t second = earlier->mints() >> 24;
      ASSERT_TRUE(eventually([&] { return std::stoull(earlier->plain.one("SELECT UNIX_TIMESTAMP()")) > second + 2; }));
      later = std::make_unique<Node>(GetParam(), "later");
    }
    earlier_ = earlier.get();
    later_ = later.get();
    for (Node* const node : {earlier_, later_}) drop(*node);
    ASSERT_LT(earlier_->mints() + (1 << 24), later_->mints()) << "else nothing is tested";
  }

  static void drop(Node& node) { node.plain.ask("DROP TABLE IF EXISTS failover, failover_settings, failover_notices"); }
  // What replication does, at the moment that it is asked for. Rows to lock are made where they are missing.
  static void replicate(Node& from, Node& to) {
    drop(to);
    for (const char* table : {"failover", "failover_settings", "failover_notices"}) {
      to.plain.ask(from.plain.ask(std::string("SHOW CREATE TABLE ") + table).at(0).at(1));
    }
    std::string values;
    const Plain::Rows settings = from.plain.ask("SELECT * FROM failover_settings");
    for (const std::string& value : settings.at(0)) {
      values += (values.empty() ? "" : ", ") + value;
    }
    to.plain.ask("INSERT INTO failover_settings VALUES (" + values + ")");
  }
  static std::string url(Server server, unsigned port = 0) {
    if (port != 0) server.port = port;
    return server.url("provision=lazy&tls=off&buckets=100&table=failover");
  }
  static Locker open(const Node& node) { return hierlock::open(url(node.app)); }
  static std::string offset(Node& node) { return node.plain.one("SELECT mint_offset FROM failover_settings"); }

  Node *earlier_ = nullptr, *later_ = nullptr;
};

TEST_P(Failover, fences_rise_on_a_primary_that_was_started_earlier) {  // B3, H17
  std::int64_t last = open(*later_).acquire("u1").fence();
  for (int i = 0; i < 3; ++i) {
    for (const auto& [from, to] : {std::pair(later_, earlier_), {earlier_, later_}}) {
      replicate(*from, *to);
      Locker locker = open(*to);
      const std::int64_t fence = locker.acquire("u1").fence();
      EXPECT_GT(fence, last);
      EXPECT_EQ(fence % 128, 0);
      last = open(*to).acquire("u1").fence();
      EXPECT_GT(last, fence) << "of another who comes later";
      EXPECT_GT(locker.acquire("u1").fence(), last);
      last = locker.acquire("u1").fence();
    }
  }
}

TEST_P(Failover, a_locker_that_stays_open_goes_on_there_and_back) {  // B3, H17
  Relay relay(later_->app.host, later_->app.port);
  Locker stays = hierlock::open(url(later_->app, relay.port()));
  std::int64_t last = stays.acquire("u1").fence();
  for (const auto& [from, to] :
       {std::pair(later_, earlier_), {earlier_, later_}, {later_, earlier_}, {earlier_, later_}}) {
    replicate(*from, *to);
    relay.lead_to(to->app.port);
    relay.cut();
    const std::optional<Error> error = error_of([&] {
      const Lock lock = stays.acquire("u1", {.timeout = 10s});
      EXPECT_GT(lock.fence(), last);
      last = lock.fence();
    });
    EXPECT_FALSE(error) << error->what();
    const std::int64_t others = open(*to).acquire("u1").fence();
    EXPECT_GT(others, last);
    last = stays.acquire("u1", {.timeout = 10s}).fence();
    EXPECT_GT(last, others);
  }
}

TEST_P(Failover, who_comes_at_once_gets_one_offset) {  // B3, H17
  std::int64_t last = open(*later_).acquire("u1").fence();
  replicate(*later_, *earlier_);
  std::vector<std::future<Locker>> comes;
  for (int i = 0; i < 8; ++i) comes.push_back(std::async(std::launch::async, [&] { return open(*earlier_); }));
  std::vector<Locker> lockers;
  for (auto& locker : comes) lockers.push_back(locker.get());
  const std::string recorded = offset(*earlier_);
  EXPECT_NE(recorded, "0");
  for (int i = 0; i < 2; ++i) {
    for (Locker& locker : lockers) {
      const std::int64_t fence = locker.acquire("u1").fence();
      EXPECT_GT(fence, last);
      last = fence;
    }
  }
  EXPECT_EQ(offset(*earlier_), recorded);
}

// The last floor had not arrived when the replica was promoted.
TEST_P(Failover, who_was_given_more_than_the_replica_knows_starts_above_that) {  // B3, H17
  open(*later_).acquire("u1").release();
  replicate(*later_, *earlier_);
  later_->plain.ask("UPDATE failover_settings SET fence_floor=fence_floor + (1 << 40), mint_server=12345");
  Relay relay(later_->app.host, later_->app.port);
  Locker stays = hierlock::open(url(later_->app, relay.port()));
  const std::int64_t last = stays.acquire("u1").fence();
  relay.lead_to(earlier_->app.port);
  relay.cut();
  EXPECT_GT(stays.acquire("u1", {.timeout = 10s}).fence(), last);
}

// Then the offset is in use, and must not change under those who have it.
TEST_P(Failover, but_not_if_others_have_locked_there_already) {  // B3, H17
  open(*later_).acquire("u1").release();
  replicate(*later_, *earlier_);
  later_->plain.ask("UPDATE failover_settings SET fence_floor=fence_floor + (1 << 40), mint_server=12345");
  Relay relay(later_->app.host, later_->app.port);
  Locker stays = hierlock::open(url(later_->app, relay.port()));
  stays.acquire("u1").release();
  open(*earlier_).acquire("u1").release();
  const std::string recorded = offset(*earlier_);
  relay.lead_to(earlier_->app.port);
  relay.cut();
  EXPECT_TRUE(fails_with(
      ErrorKind::unsafe_topology, [&] { (void)stays.acquire("u1", {.timeout = 10s}); }, "higher fences"));
  EXPECT_EQ(offset(*earlier_), recorded);
}

INSTANTIATE_TEST_SUITE_P(, Failover, testing::Values("mysql", "mariadb"),
                         [](const auto& engine) { return engine.param; });

}  // namespace
}  // namespace hierlock::mysql_tests
