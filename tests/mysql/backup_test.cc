// A backup stops the writes of a whole server, so each test here runs on a server of its own: other tests that write
// would wait for as long.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "on_own_server.h"

namespace hierlock::mysql_tests {
namespace {

class Backup : public OnOwnServer {
 protected:
  void TearDown() override {
    if (has_server()) drop("backup_rows");
  }
  std::string url() const { return url_of("backup_rows"); }
};

TEST_P(Backup, a_try_while_all_tables_are_flushed_and_locked_is_busy) {  // H2
  Locker locker = hierlock::open(url());
  locker.acquire("u1").release();
  Plain maintenance(own().operator_url());
  maintenance.ask("FLUSH TABLES WITH READ LOCK");
  const std::optional<Error> error = error_of([&] { EXPECT_FALSE(locker.try_acquire("u1")); });
  maintenance.ask("UNLOCK TABLES");
  EXPECT_FALSE(error) << error->what();
  EXPECT_TRUE(locker.try_acquire("u1"));
}

TEST_P(Backup, a_row_that_cannot_be_committed_is_a_timeout_or_no_value) {  // H11, H2
  Locker locker = hierlock::open(url());
  Lock lock = locker.acquire("u1");
  locker.acquire("u2").release();
  Plain backup(own().operator_url());
  if (mariadb()) {
    for (const char* stage : {"START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"})
      backup.ask("BACKUP STAGE " + std::string(stage));
  } else {
    backup.ask("LOCK INSTANCE FOR BACKUP");
    backup.ask("FLUSH TABLES WITH READ LOCK");
  }
  const auto soon = [&](const std::function<void()>& ask) {
    const auto begin = Clock::now();
    const std::optional<Error> error = error_of(ask);
    const auto took = Clock::now() - begin;
    EXPECT_LT(took, 3s + stall) << took / 1ms << " ms";
    return error;
  };
  std::optional<Error> error = soon([&] { EXPECT_FALSE(locker.try_acquire("n1")); });
  EXPECT_FALSE(error) << error->what();
  error = soon([&] { EXPECT_FALSE(locker.try_acquire("n2", 200ms)); });
  EXPECT_FALSE(error) << error->what();
  EXPECT_TRUE(soon([&] {
                EXPECT_TRUE(fails_with(ErrorKind::timeout, [&] { lock.extend("n3", {.timeout = 200ms}); }));
              }) == std::nullopt);
  std::stop_source stop;
  std::thread cancels([&] {
    std::this_thread::sleep_for(200ms);
    stop.request_stop();
  });
  error = soon([&] { (void)locker.acquire("n4", {.cancel = stop.get_token()}); });
  cancels.join();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::cancelled) << error->what();
  EXPECT_TRUE(lock.held());
  // Longer than twice the server's own timeout, which is 2 s in these sessions.
  auto waits = std::async(std::launch::async, [&] { return error_of([&] { (void)locker.acquire("n5"); }); });
  EXPECT_FALSE(eventually([&] { return waits.wait_for(0s) == std::future_status::ready; }, 5s));
  backup.ask(mariadb() ? "BACKUP STAGE END" : "UNLOCK TABLES");
  error = waits.get();
  EXPECT_FALSE(error) << error->what();
}

// A backup stops all writes at a moment (FLUSH TABLES WITH READ LOCK), and waits for statements that run. A wait for a
// row is one, so it is asked for again every 2 s. Until then the writes of the whole server wait for the backup.
TEST_P(Backup, a_wait_does_not_hold_up_a_backup_nor_what_stands_behind_it) {  // B12
  plain().ask("CREATE TABLE IF NOT EXISTS backup_unrelated (n INT)");
  plain().ask("INSERT INTO backup_unrelated VALUES (0)");
  Locker one = hierlock::open(url()), two = hierlock::open(url());
  Lock held = one.acquire("u1/a1/r1");
  auto asks = std::async(std::launch::async, [&] { return two.acquire("u1/a1/r1", {.timeout = 100s}).fence(); });
  const auto waits = [&] {
    return plain().one(
               "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%backup_rows%' AND info "
               "NOT LIKE '%processlist%' AND time >= 1") != "0";
  };
  const auto backup_waits = [&] {
    return plain().one("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'FLUSH TABLES%'") != "0";
  };
  Plain backup(own().operator_url()), writer(own().operator_url());
  // With a wait that is asked for again every 10 s instead, each attempt takes 8 s.
  EXPECT_TRUE(once_within(
      4s,
      [&] {
        EXPECT_TRUE(eventually([&] { return !waits(); })) << "it asks again";
        EXPECT_TRUE(eventually(waits)) << "it waits, and not for long yet";
        const auto begin = Clock::now();
        std::atomic<bool> flushed = false;
        auto flushes = std::async(std::launch::async, [&] {
          backup.ask("FLUSH TABLES WITH READ LOCK");
          const auto took = Clock::now() - begin;
          flushed = true;
          backup.ask("UNLOCK TABLES");
          return took;
        });
        EXPECT_TRUE(eventually([&] { return flushed || backup_waits(); }));
        writer.ask("UPDATE backup_unrelated SET n=n+1");
        const auto written = Clock::now() - begin;
        return std::max(flushes.get(), written);
      },
      3));
  held.release();
  EXPECT_GT(asks.get(), 0);
  plain().ask("DROP TABLE backup_unrelated");
}

HIERLOCK_ON_OWN_SERVERS(Backup);

}  // namespace
}  // namespace hierlock::mysql_tests
