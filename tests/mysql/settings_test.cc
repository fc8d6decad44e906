// What the database has recorded about its locks, fences over restarts, and set-ups that cannot exclude.
#include <cstdlib>

#include <hierlock/operate.h>

#include "forger.h"
#include "on_own_server.h"

namespace hierlock::mysql_tests {
namespace {

class Settings : public OnServer {
 protected:
  std::string settings() const { return "`" + table() + "_settings`"; }
};

TEST_P(Settings, who_asks_for_other_buckets_or_levels_is_told_both_numbers) {  // H3, M7
  (void)open("buckets=1000&levels=4");
  const auto both = [&](const std::string& asks, const std::string& one, const std::string& other) {
    EXPECT_TRUE(fails_with(
        ErrorKind::incompatible, [&] { (void)open(asks); }, one))
        << asks;
    EXPECT_TRUE(fails_with(
        ErrorKind::incompatible, [&] { (void)open(asks); }, other))
        << asks;
  };
  both("buckets=1001", "1001", "1000");
  both("levels=3", "levels=3", "4");
  EXPECT_FALSE(error_of([&] { (void)open("buckets=1000&levels=4"); }));
}

TEST_P(Settings, who_asks_for_nothing_gets_what_is_recorded) {  // H3
  (void)open("buckets=1&levels=4");
  Locker locker = open();
  const Lock lock = locker.acquire("a/b/c/d");
  const auto rows = locked();
  EXPECT_EQ(rows.size(), 4u);
  for (const auto& [row, mode] : rows) EXPECT_EQ(row.second, 0) << "there is only one bucket";
  Locker other = open();
  EXPECT_FALSE(other.try_acquire("x/b/c/d")) << "which they share all";  // H15
}

// What is compared when a store is opened may change while it is open.
TEST_P(Settings, a_locker_notices_that_the_tables_were_made_anew_with_other_numbers) {  // H3
  for (const char* others : {"buckets=997&levels=3", "buckets=1000&levels=4"}) {
    plain().ask("DROP TABLE IF EXISTS `" + table() + "`, " + settings());
    Locker before = open("buckets=1000&levels=3");
    before.acquire("u1/a1/r1").release();
    plain().ask("DROP TABLE `" + table() + "`, " + settings());
    EXPECT_TRUE(fails_with(ErrorKind::not_provisioned, [&] { (void)before.acquire("u1/a1/r1"); })) << others;
    Locker after = open(others);
    const Lock held = after.acquire("u1/a1/r1");
    const auto rows = locked();
    for (const char* path : {"u1/a1/r1", "u1", "u7/a7/r7"}) {
      EXPECT_TRUE(fails_with(
          ErrorKind::incompatible, [&] { (void)before.acquire(path, {.timeout = 0s}); }, "open it anew"))
          << path << ", " << others;
    }
    EXPECT_TRUE(fails_with(ErrorKind::incompatible,
                           [&] {
                             (void)before.acquire({"u1/a1/r1", "u2/a2/r2", "u3/a3/r3", "u4/a4/r4"}, {.timeout = 0s});
                           }))
        << "of more rows than are joined, " << others;
    EXPECT_TRUE(eventually([&] { return locked() == rows; })) << "nothing was locked or made";
  }
}

TEST_P(Settings, a_table_for_other_numbers_than_the_recorded_is_incompatible) {  // H3
  (void)open("buckets=1000");
  plain().ask("UPDATE " + settings() + " SET buckets=500");
  EXPECT_TRUE(fails_with(
      ErrorKind::incompatible, [&] { (void)open(); }, "made_for_1000_buckets_3_levels"));
  plain().ask("DROP TABLE " + settings());
  EXPECT_TRUE(fails_with(
      ErrorKind::incompatible, [&] { (void)open("buckets=500"); }, "drop it and its settings"));
  EXPECT_FALSE(error_of([&] { (void)open("buckets=1000"); })) << "nothing else was recorded";
}

TEST_P(Settings, a_table_that_somebody_else_made_is_marked_where_tables_are_made) {  // H3
  plain().ask("CREATE TABLE `" + table() +
              "` (level TINYINT NOT NULL, bucket INT NOT NULL, PRIMARY KEY (level, bucket)) ENGINE=InnoDB");
  Locker locker = open("buckets=1000");
  EXPECT_TRUE(locker.acquire("u1/a1/r1").held());
  EXPECT_EQ(plain().one("SELECT COUNT(made_for_1000_buckets_3_levels) FROM `" + table() + "`"), "3");
}

TEST_P(Settings, a_format_that_is_not_known_or_damaged_is_incompatible) {
  (void)open();
  for (const char* change : {"format=2", "buckets=0", "levels=0", "levels=9"}) {
    plain().ask("UPDATE " + settings() + " SET format=1, buckets=10, levels=3");
    plain().ask("UPDATE " + settings() + " SET " + change);
    EXPECT_TRUE(fails_with(
        ErrorKind::incompatible, [&] { (void)open(); }, table()))
        << change;
  }
}

// As after a restart with the clock set back.
TEST_P(Settings, a_server_that_mints_below_its_own_floor_gets_an_offset) {  // B3
  open().acquire("u1").release();
  const std::string mine = plain().one("SELECT mint_server FROM " + settings());
  plain().ask("UPDATE " + settings() + " SET fence_floor=(UUID_SHORT() & ((1 << 56) - 1)) + (1 << 30)");
  const std::int64_t floor = std::stoll(plain().one("SELECT fence_floor FROM " + settings()));
  EXPECT_GT(open().acquire("u1").fence() / 128, floor + (1 << 24));
  EXPECT_EQ(plain().one("SELECT mint_server FROM " + settings()), mine);
}

TEST_P(Settings, a_floor_that_leaves_no_room_for_fences_is_incompatible) {  // B3
  open().acquire("u1").release();
  for (const char* damage : {"fence_floor=(1 << 56) - 1", "fence_floor=~0", "fence_floor=(1 << 56) - (1 << 25)"}) {
    plain().ask("UPDATE " + settings() + " SET mint_server=12345, " + damage);
    EXPECT_TRUE(fails_with(
        ErrorKind::incompatible, [&] { (void)open(); }, "no room"))
        << damage;
  }
}

TEST_P(Settings, the_floor_rises_to_the_server_and_never_falls) {  // B3
  (void)open();
  const auto floor = [&] { return std::stoull(plain().one("SELECT fence_floor FROM " + settings())); };
  const unsigned long long first = floor();
  EXPECT_GT(first, 0u);
  (void)open();
  EXPECT_GE(floor(), first);
}

// What a failover brings: the floor was recorded by one server, and is read on another.
TEST_P(Settings, on_another_server_what_may_have_been_given_out_above_the_floor_counts) {  // B3, H17
  (void)open();
  const std::string now = "(UUID_SHORT() & ((1 << 56) - 1))", slack = "(1 << 24)";
  const std::string mine = plain().one("SELECT mint_server FROM " + settings());
  const auto record = [&](const std::string& floor, const std::string& server) {
    plain().ask("UPDATE " + settings() + " SET fence_floor=" + floor + ", mint_server=" + server);
  };
  const auto recorded = [&](const std::string& what) { return plain().one("SELECT " + what + " FROM " + settings()); };
  record(now + " - (1 << 20)", mine);
  (void)open();
  EXPECT_EQ(recorded("mint_offset"), "0") << "its own floor is exact";
  record(now + " - " + slack + " - 100", "12345");
  (void)open();
  EXPECT_EQ(recorded("mint_offset"), "0") << "far enough above it";
  EXPECT_EQ(recorded("mint_server"), mine) << "and now it is this one's";
  EXPECT_EQ(recorded("fence_floor > " + now + " - (1 << 20)"), "1");
  record(now + " - (1 << 20)", "12345");
  const std::int64_t floor = std::stoll(recorded("fence_floor"));
  EXPECT_GT(open().acquire("u1").fence() / 128, floor + (1 << 24));
  EXPECT_EQ(recorded("mint_server"), mine);
  EXPECT_EQ(recorded("mint_offset > 0"), "1");
  EXPECT_GT(std::stoll(recorded("fence_floor")), floor + (1 << 24)) << "from where the next server counts";
}

TEST_P(Settings, the_floor_follows_the_numbers_of_a_locker_that_stays_open) {  // B3
  Locker locker = open();
  const auto floor = [&] { return std::stoll(plain().one("SELECT fence_floor FROM " + settings())); };
  const std::int64_t first = floor();
  constexpr std::int64_t slack = 1 << 24;
  plain().ask("DO BENCHMARK(10000000, UUID_SHORT())");  // others on the server use it, too
  const std::int64_t second = locker.acquire("u1").fence() / 128;
  EXPECT_GT(second, first + slack / 2);
  EXPECT_TRUE(eventually([&] { return floor() > first + slack / 2; })) << "the watch has raised it";
  plain().ask("DO BENCHMARK(18000000, UUID_SHORT())");
  Lock lock = locker.acquire("u1");
  EXPECT_LE(lock.fence() / 128, floor() + slack) << "at no moment farther ahead";
  const std::int64_t third = floor();
  plain().ask("DO BENCHMARK(18000000, UUID_SHORT())");
  lock.extend("u2", {.timeout = 5s});
  EXPECT_LE(lock.fence() / 128, floor() + slack);
  EXPECT_GT(floor(), third);
}

TEST_P(Settings, a_new_connection_of_a_locker_is_held_against_the_newest_floor) {  // B3, H17
  const Server mine = make_user("ALL", server().database + ".*");
  Locker locker = hierlock::open(url(mine));
  locker.acquire("u1").release();
  plain().ask("UPDATE " + settings() + " SET fence_floor=(UUID_SHORT() & ((1 << 56) - 1)), mint_server=12345");
  const std::int64_t floor = std::stoll(plain().one("SELECT fence_floor FROM " + settings()));
  for (const auto& row : plain().ask("SELECT ID FROM information_schema.processlist WHERE USER='" + mine.user + "'")) {
    (void)plain().code_of("KILL " + row.at(0));
  }
  std::optional<Lock> lock;
  EXPECT_TRUE(eventually([&] { return !error_of([&] { lock = locker.acquire("u1", {.timeout = 5s}); }); }));
  ASSERT_TRUE(lock.has_value());
  EXPECT_GT(lock->fence() / 128, floor + (1 << 24));
}

// The server was demoted and promoted again, and connections have survived that.
TEST_P(Settings, a_locker_with_an_offset_of_before_notices_and_goes_on) {  // B3, B4
  std::optional<Locker> opened;
  std::optional<Lock> held;
  Locker after = open();
  std::int64_t fence = 0;
  Clock::time_point begin;
  // A Locker looks every few seconds. If this thread was stopped for as long, nothing is tested.
  ASSERT_TRUE(eventually([&] {
    held.reset();
    opened.emplace(open());
    held = opened->acquire("u2");
    opened->acquire("u1").release();
    plain().ask("UPDATE " + settings() + " SET fence_floor=(UUID_SHORT() & ((1 << 56) - 1)), mint_server=12345");
    begin = Clock::now();
    after = open();
    fence = after.acquire("u1").fence();
    return opened->acquire("u1").fence() < fence;
  }));
  Locker& before = *opened;
  EXPECT_TRUE(eventually([&] { return !held->held(); })) << "its server was another one's replica";
  EXPECT_LT(Clock::now() - begin, 6s + stall);
  EXPECT_GT(before.acquire("u1").fence(), fence);
  const std::int64_t next = after.acquire("u1").fence();
  EXPECT_GT(before.acquire("u1").fence(), next) << "and nobody has changed the offset once more";
  EXPECT_TRUE(after.acquire("u2", {.timeout = 15s}).held());
}

TEST_P(Settings, of_an_earlier_version_are_upgraded_where_tables_are_made) {  // B3
  const std::int64_t first = open("buckets=100").acquire("u1").fence();
  const std::string floor = plain().one("SELECT fence_floor FROM " + settings());
  const auto downgrade = [&] {
    plain().ask("ALTER TABLE " + settings() +
                " CHANGE COLUMN mint_server fence_server INT UNSIGNED NOT NULL, DROP COLUMN mint_offset");
  };
  const std::string ahead = server().url("table=" + table());
  downgrade();
  EXPECT_TRUE(fails_with(
      ErrorKind::incompatible, [&] { (void)hierlock::open(ahead); }, "run `hierlock provision --on "));
  EXPECT_GT(open().acquire("u1").fence(), first);
  EXPECT_EQ(plain().one("SELECT mint_offset FROM " + settings()), "0");
  EXPECT_GE(std::stoull(plain().one("SELECT fence_floor FROM " + settings())), std::stoull(floor)) << "it is kept";
  downgrade();
  hierlock::provision(ahead);
  EXPECT_TRUE(hierlock::open(ahead).acquire("u1").held());
}

TEST_P(Settings, a_floor_that_cannot_be_raised_is_told) {  // B3
  (void)open();
  open().acquire("u1").release();
  const std::string on = server().database + ".`" + table();
  const Server reader = make_user("SELECT, UPDATE", on + "`");
  plain().ask("GRANT SELECT ON " + on + "_settings` TO '" + reader.user + "'@'%'");
  Locker locker = hierlock::open(reader.url("table=" + table()));
  EXPECT_TRUE(locker.acquire("u1").held());
  plain().ask("DO BENCHMARK(18000000, UUID_SHORT())");
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { (void)locker.acquire("u1"); }, "raise the fence floor"));
  EXPECT_TRUE(all_free());
}

TEST_P(Settings, fences_rise_over_lockers_and_levels) {  // B3
  Locker one = open(), two = open();
  std::int64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    for (Locker* locker : {&one, &two}) {
      for (const char* path : {"u1/a1/r1", "u1/a1", "u1", "u1/a1/r2"}) {
        const Lock lock = locker->acquire(path);
        EXPECT_GT(lock.fence(), last);
        EXPECT_EQ(lock.fence() % 128, 0) << "the numbers between are for hand-overs";
        last = lock.fence();
      }
    }
  }
}

// On servers of their own, which are set up badly or restarted.
class Broken : public OnOwnServer {
 protected:
  std::string url(const std::string& more = "") const { return url_of("broken", more); }
};

TEST_P(Broken, a_read_only_server_is_unsafe) {  // H17
  (void)hierlock::open(url());
  plain().ask("SET GLOBAL read_only=1");
  const std::optional<Error> error = error_of([&] { (void)hierlock::open(url()); });
  plain().ask("SET GLOBAL read_only=0");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::unsafe_topology) << error->what();
  EXPECT_FALSE(error->retryable());
  EXPECT_NE(std::string(error->what()).find("primary"), std::string::npos) << error->what();
  EXPECT_FALSE(error_of([&] { (void)hierlock::open(url()); }));
}

TEST_P(Broken, a_server_with_no_connection_left_is_exhausted) {
  Locker before = hierlock::open(url("connections=50"));
  const std::string most = plain().one("SELECT @@GLOBAL.max_connections");
  plain().ask("SET GLOBAL max_connections=10");
  std::vector<std::unique_ptr<Plain>> crowd;
  // Sessions of before may still be ending. What they leave is taken, too.
  const auto fails_when_full = [&](const std::function<void()>& asks) {
    std::optional<Error> error;
    (void)eventually([&] {
      try {
        for (int i = 0; i < 20; ++i) crowd.push_back(std::make_unique<Plain>(own().url()));
      } catch (const SqlError& refused) {
        EXPECT_EQ(refused.code(), 1040u) << refused.what();
      }
      error = error_of(asks);
      return error.has_value();
    });
    return error;
  };
  const std::optional<Error> full = fails_when_full([&] { (void)hierlock::open(url()); });
  EXPECT_TRUE(before.acquire("u1").held()) << "who has one goes on";
  Lock first = before.acquire("u1");
  const std::optional<Error> second = fails_when_full([&] { (void)before.acquire("u2"); });
  plain().ask("SET GLOBAL max_connections=" + most);
  for (const std::optional<Error>& error : {full, second}) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->kind(), ErrorKind::exhausted) << error->what();
    EXPECT_EQ(error->native_code(), 1040);
    EXPECT_TRUE(error->retryable());
  }
  EXPECT_TRUE(before.acquire("u2").held()) << "what was refused is not counted as open";
}

TEST_P(Broken, fences_rise_over_a_restart_of_the_server) {  // B3
  std::int64_t last = 0;
  Locker before = hierlock::open(url());
  for (int restarts = 0; restarts < 3; ++restarts) {  // MariaDB manages two of them within a second
    last = std::max(last, before.acquire("u1/a1/r1").fence());
    ASSERT_TRUE(own().control("restart"));
    EXPECT_GT(hierlock::open(url()).acquire("u1/a1/r1").fence(), last) << "of one who opens";
    std::optional<Lock> lock;
    EXPECT_TRUE(eventually([&] { return !error_of([&] { lock = before.acquire("u1/a1"); }); }));
    ASSERT_TRUE(lock.has_value());
    EXPECT_GT(lock->fence(), last) << "of one who was there all the time";
    last = lock->fence();
  }
}

HIERLOCK_ON_OWN_SERVERS(Broken);

// A group of several servers is not to be had here, so the server is made to say that it is in one: another variable,
// whose name is as long and whose value is not empty, goes by that name. Names are compared without case when they are
// asked for.
TEST_P(Settings, a_group_with_several_primaries_is_unsafe) {  // H17
  const Forger forger(server().url(), {{"group_replication_group_name", "OPTIMIZER_TRACE_MAX_MEM_SIZE"},
                                       {"optimizer_trace_max_mem_size", "group_replication_group_name"}});
  EXPECT_TRUE(fails_with(
      ErrorKind::unsafe_topology, [&] { (void)hierlock::open(forger.url() + "?provision=lazy&table=" + table()); },
      "primaries"));
}

TEST_P(Settings, a_proxy_that_numbers_sessions_itself_is_unsafe) {  // H17
  Forger forger(server().url(), {});
  forger.renumber_sessions();
  EXPECT_TRUE(fails_with(
      ErrorKind::unsafe_topology, [&] { (void)hierlock::open(forger.url() + "?provision=lazy&table=" + table()); },
      "proxy"));
}

HIERLOCK_ON_BOTH_SERVERS(Settings);

TEST(Galera, a_cluster_is_unsafe_even_with_one_node) {  // H17
  HIERLOCK_NEEDS_SERVER("MARIADB");
  mysql::enable();
  const OwnServer* const own = OwnServer::get("mariadb", "--galera");
  ASSERT_NE(own, nullptr) << "tools/servers cannot start a cluster";
  EXPECT_TRUE(fails_with(
      ErrorKind::unsafe_topology, [&] { (void)hierlock::open(own->url() + "?provision=lazy&table=broken"); },
      "Galera"));
}

}  // namespace
}  // namespace hierlock::mysql_tests
