// Deadlines, cancellation and the pool: a wait ends when it was asked to, and nothing is lost or left on the way.
#include <algorithm>
#include <atomic>
#include <future>
#include <latch>
#include <random>

#include <hierlock/operate.h>

#include "on_server.h"
#include "relay.h"

namespace hierlock::mysql_tests {
namespace {

class Deadline : public OnServer {};

Clock::duration median(std::vector<Clock::duration> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

TEST_P(Deadline, a_timeout_is_kept_to_the_millisecond_though_the_server_counts_in_seconds) {  // H2
  Locker holder = open(), waiter = open();
  const Lock held = holder.acquire("u1/a1/r1");
  (void)waiter.try_acquire("u1/a1/r1", 10ms);  // connects what it will need
  EXPECT_TRUE(once_within(150ms, [&] {
    std::vector<Clock::duration> times;
    for (int i = 0; i < 9; ++i) {
      times.push_back(time_of([&] { EXPECT_FALSE(waiter.try_acquire("u1/a1/r1", 50ms)); }));
      EXPECT_GE(times.back(), 50ms);
      EXPECT_LT(times.back(), 50ms + stall);
    }
    return median(times);
  }));
}

TEST_P(Deadline, a_cancelled_wait_ends_at_once) {  // H2
  Locker holder = open(), waiter = open();
  const Lock held = holder.acquire("u1/a1/r1");
  EXPECT_TRUE(once_within(100ms, [&] {
    std::vector<Clock::duration> times;
    for (int i = 0; i < 5; ++i) {
      std::stop_source stop;
      auto asks = std::async(std::launch::async, [&] {
        return error_of([&] { (void)waiter.acquire("u1/a1/r1", {.cancel = stop.get_token()}); });
      });
      EXPECT_TRUE(eventually([&] { return somebody_waits(); }));
      const auto begin = Clock::now();
      stop.request_stop();
      const std::optional<Error> error = asks.get();
      times.push_back(Clock::now() - begin);
      EXPECT_TRUE(error && error->kind() == ErrorKind::cancelled) << (error ? error->what() : "granted");
      EXPECT_LT(times.back(), stall);
    }
    return median(times);
  }));
  EXPECT_EQ(locked().size(), 3u) << "what the holder has, and nothing else";
}

TEST_P(Deadline, cancelled_before_it_begins_is_cancelled) {
  Locker locker = open();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(fails_with(ErrorKind::cancelled, [&] { (void)locker.acquire("u1", {.cancel = stop.get_token()}); }));
  EXPECT_TRUE(all_free());
}

TEST_P(Deadline, cancelled_while_a_connection_is_made_is_cancelled_at_once) {  // H2
  for (const char* const tls : {"tls=off", "tls=on"}) {
    SCOPED_TRACE(tls);
    Relay relay(server().host, server().port);
    Server behind = server();
    behind.port = relay.port();
    const auto attempt = [&](std::chrono::milliseconds time, const std::function<void()>& distance) {
      Locker locker = hierlock::open(url(behind, tls));
      const Lock held = locker.acquire("u1");  // on the connection that there is
      distance();
      const std::size_t before = relay.connections();
      std::stop_source stop;
      auto asks = std::async(std::launch::async, [&] {
        return error_of([&] { (void)locker.acquire("u2", {.cancel = stop.get_token()}); });
      });
      EXPECT_TRUE(eventually([&] { return relay.connections() > before; }));
      std::this_thread::sleep_for(time);
      const auto begin = Clock::now();
      stop.request_stop();
      const std::optional<Error> error = asks.get();
      const auto took = Clock::now() - begin;
      EXPECT_TRUE(!error || error->kind() == ErrorKind::cancelled) << error->what();
      relay.delay(0ms);
      relay.resume();
      return error ? std::chrono::nanoseconds(took) : 1h;  // the cancellation came when all was done
    };
    const auto cancelled_after = [&](std::chrono::milliseconds time, const std::function<void()>& distance) {
      EXPECT_TRUE(once_within(500ms, [&] { return attempt(time, distance); })) << "cancelled after " << time / 1ms;
    };
    cancelled_after(50ms, [&] { relay.pause(); });
    // Wherever it is by then: at the greeting, the handshake, the login, the first questions.
    for (int moment = 0; moment < 6; ++moment) cancelled_after(moment * 150ms, [&] { relay.delay(150ms); });
  }
}

TEST_P(Deadline, a_timed_out_extend_keeps_the_lock) {
  Locker holder = open(), waiter = open();
  const Lock held = holder.acquire("u1/a1/r1");
  Lock lock = waiter.acquire("u2/a1/r1");
  const std::int64_t fence = lock.fence();
  EXPECT_TRUE(fails_with(ErrorKind::timeout, [&] { lock.extend("u1/a1/r1", {.timeout = 50ms}); }));
  EXPECT_TRUE(fails_with(ErrorKind::busy, [&] { lock.extend("u1/a1/r1", {.timeout = 0ms}); }));
  std::stop_source stop;
  auto asks = std::async(std::launch::async,
                         [&] { return error_of([&] { lock.extend("u1/a1/r1", {.cancel = stop.get_token()}); }); });
  ASSERT_TRUE(eventually([&] { return somebody_waits(); }));
  stop.request_stop();
  const std::optional<Error> error = asks.get();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::cancelled) << error->what();
  EXPECT_TRUE(lock.held());
  EXPECT_EQ(lock.fence(), fence);
  const auto rows = locked();
  EXPECT_EQ(std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.second == 'X'; }), 2);
}

// A KILL that ends a wait must hit that wait: neither a grant that crossed it, nor the next statement of the session.
TEST_P(Deadline, what_is_granted_is_held_and_what_is_ended_leaves_nothing_however_the_two_cross) {  // H8, B3
  Locker churner = open(), waiter = open("connections=2");
  std::atomic<bool> over = false;
  std::thread churns([&] {
    std::minstd_rand random(7);
    while (!over) {
      Lock lock = churner.acquire("u1/a1/r1");
      const auto end = Clock::now() + std::chrono::microseconds(random() % 3000);
      while (Clock::now() < end) std::this_thread::yield();
      lock.release();
      std::this_thread::yield();
    }
  });
  Plain probe(operator_server());
  probe.ask("SET autocommit=0");
  const std::string target = "SELECT bucket FROM `" + table() + "` WHERE level=2 FOR UPDATE NOWAIT";
  std::minstd_rand random(11);
  int granted = 0, ended = 0;
  std::int64_t last = 0;
  for (int i = 0; i < 300; ++i) {
    const std::optional<Error> error = error_of([&] {
      std::optional<Lock> lock = waiter.try_acquire("u1/a1/r1", std::chrono::microseconds(random() % 4000));
      if (!lock) {
        ++ended;
        return;
      }
      ++granted;
      EXPECT_GT(lock->fence(), last);
      last = lock->fence();
      const unsigned code = probe.code_of(target);
      EXPECT_TRUE(code == 3572 || code == 1205) << "granted, but somebody else could take it: " << code;
      probe.ask("ROLLBACK");
      EXPECT_TRUE(lock->held());
    });
    EXPECT_FALSE(error) << "try " << i << ": " << error->what();  // a KILL that came late is 1317
  }
  over = true;
  churns.join();
  EXPECT_GT(granted, 0);
  EXPECT_GT(ended, 0);
  EXPECT_TRUE(all_free());
}

TEST_P(Deadline, many_waits_at_a_server_that_falls_silent_end_together) {  // H2, B6
  constexpr int many = 12;
  constexpr auto timeout = 3000ms;
  Relay relay(server().host, server().port);
  Server behind = server();
  behind.port = relay.port();
  Locker holder = open("connections=40"), waiter = hierlock::open(url(behind, "tls=off&connections=40"));
  std::vector<Lock> held;
  for (int i = 0; i < many; ++i) held.push_back(holder.acquire("u" + std::to_string(i)));
  {  // connects as often as it will need
    std::vector<Lock> others;
    for (int i = 0; i < many; ++i) others.push_back(waiter.acquire("v" + std::to_string(i)));
  }
  std::vector<std::future<Clock::duration>> waits;
  for (int i = 0; i < many; ++i) {
    waits.push_back(std::async(std::launch::async, [&, i] {
      const auto begin = Clock::now();
      EXPECT_FALSE(waiter.try_acquire("u" + std::to_string(i), timeout));
      return Clock::now() - begin;
    }));
  }
  (void)eventually([&] { return how_many_wait() == many; }, 2s);  // a stalled machine may not get so far
  relay.pause();
  for (auto& wait : waits) {
    const auto took = wait.get();
    EXPECT_GE(took, timeout);
    EXPECT_LT(took, timeout + 4s + stall) << took / 1ms << " ms";
  }
  relay.cut();
}

// The one who writes down who holds and waits has the side connection for seconds then.
TEST_P(Deadline, a_timeout_is_kept_while_nobody_can_write_down_who_waits) {  // H2
  Locker holder = open(), waiter = open();
  const Lock held = holder.acquire("u1"), lasts = waiter.acquire("u2");
  Plain maintenance(operator_server());
  maintenance.ask("LOCK TABLES `" + table() + "_notices` WRITE");
  int tries = 0, late = 0;
  for (const auto begin = Clock::now(); Clock::now() - begin < 5s; ++tries) {
    const auto asked = Clock::now();
    EXPECT_FALSE(waiter.try_acquire("u1", 300ms));
    const auto took = Clock::now() - asked;
    EXPECT_LT(took, 300ms + stall) << took / 1ms << " ms";
    late += took > 800ms ? 1 : 0;
  }
  EXPECT_LE(late, 1 + tries / 5) << "of " << tries;
  maintenance.ask("UNLOCK TABLES");
}

TEST_P(Deadline, an_extend_whose_wait_cannot_be_ended_without_its_session_says_that_the_lock_is_lost) {  // B4
  const Server poor = make_user("ALL", server().database + ".*");
  plain().ask("ALTER USER '" + poor.user + "'@'%' WITH MAX_USER_CONNECTIONS 1");
  Locker holder = open(), waiter = hierlock::open(url(poor, "connections=1"));
  const Lock held = holder.acquire("u1");
  Lock lock = waiter.acquire("u2");
  EXPECT_TRUE(fails_with(ErrorKind::lost, [&] { lock.extend("u1", {.timeout = 300ms}); }));
  EXPECT_FALSE(lock.held());
  lock.release();
  std::stop_source stop;
  EXPECT_TRUE(eventually([&] { return !error_of([&] { lock = waiter.acquire("u2", {.timeout = 5s}); }); }));
  auto asks = std::async(std::launch::async,
                         [&] { return error_of([&] { lock.extend("u1", {.cancel = stop.get_token()}); }); });
  EXPECT_TRUE(eventually([&] { return somebody_waits(); }));
  stop.request_stop();
  const std::optional<Error> error = asks.get();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::lost) << error->what();
  EXPECT_FALSE(lock.held());
}

// MySQL refuses at once a row that somebody has, but not a table.
TEST_P(Deadline, a_try_behind_an_alter_table_that_waits_is_busy) {  // H2
  Locker holder = open(), other = open();
  other.acquire("u2").release();  // a row that is there
  Lock held = holder.acquire("u1");
  auto alters = std::async(std::launch::async, [&] {
    Plain maintenance(operator_server());
    maintenance.ask("SET SESSION lock_wait_timeout=60");
    maintenance.ask("ALTER TABLE `" + table() + "` COMMENT='while it is used'");
  });
  EXPECT_TRUE(eventually([&] {
    return plain().one("SELECT COUNT(*) FROM information_schema.processlist WHERE INFO LIKE 'ALTER TABLE%" + table() +
                       "%' AND STATE LIKE 'Waiting for table metadata lock'") == "1";
  }));
  const auto begin = Clock::now();
  const std::optional<Error> error = error_of([&] { EXPECT_FALSE(other.try_acquire("u2")); });
  EXPECT_FALSE(error) << error->what();
  EXPECT_LT(Clock::now() - begin, 4s + stall);
  EXPECT_TRUE(held.held());
  held.release();
  alters.get();
  EXPECT_TRUE(other.try_acquire("u2"));
}

HIERLOCK_ON_BOTH_SERVERS(Deadline);

class Connections : public OnServer {};

TEST_P(Connections, one_more_lock_than_connections_waits_for_one) {
  Locker locker = open("connections=2");
  std::latch both(2), go(1);
  const auto holds = [&](const char* path) {
    const Lock lock = locker.acquire(path);
    both.count_down();
    go.wait();
  };
  std::thread first(holds, "u1"), second(holds, "u2");
  both.wait();
  EXPECT_FALSE(locker.try_acquire("u3", 30ms)) << "a deadline holds here, too";
  EXPECT_TRUE(fails_with(
      ErrorKind::exhausted, [&] { (void)locker.try_acquire("u3"); }, "connections="));
  std::stop_source stop;
  auto cancelled = std::async(
      std::launch::async, [&] { return error_of([&] { (void)locker.acquire("u4", {.cancel = stop.get_token()}); }); });
  auto third = std::async(std::launch::async, [&] { return locker.acquire("u3").held(); });
  EXPECT_EQ(third.wait_for(50ms), std::future_status::timeout);
  stop.request_stop();
  const std::optional<Error> error = cancelled.get();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::cancelled);
  go.count_down();
  EXPECT_TRUE(third.get());
  first.join();
  second.join();
}

// The one on the side is busy, so that the KILL needs another; and somebody takes snapshots.
TEST_P(Connections, are_as_many_as_doctor_counts) {
  Relay relay(server().host, server().port);
  Server behind = server();
  behind.port = relay.port();
  const std::string where = url(behind, "tls=off&connections=1&publish_after=50");
  Locker holder = open(), waiter = hierlock::open(where);
  const Lock held = holder.acquire("u1");
  (void)waiter.snapshot();
  Plain maintenance(operator_server());
  maintenance.ask("LOCK TABLES `" + table() + "_notices` WRITE");
  EXPECT_TRUE(eventually([&] {  // a try may end before the wait is to be written down, if that thread is late
    EXPECT_FALSE(waiter.try_acquire("u1", 600ms));
    EXPECT_LE(relay.open(), 1u + 3u);
    return relay.open() == 1u + 3u;
  })) << relay.open();
  maintenance.ask("UNLOCK TABLES");
  for (const Finding& finding : doctor(where)) {
    if (finding.check != "connections") continue;
    EXPECT_NE(finding.text.find("opens up to 12,"), std::string::npos) << finding.text;
  }
}

// One that is begun is made to the end, for whoever comes next.
TEST_P(Connections, are_made_at_a_server_that_is_far_away_though_nobody_has_the_time_for_one) {  // H2
  Relay relay(server().host, server().port);
  Server behind = server();
  behind.port = relay.port();
  Locker locker = hierlock::open(url(behind, "tls=off"));
  locker.acquire("u2").release();
  const Lock held = locker.acquire("u1");
  relay.delay(60ms);
  int tries = 0;
  for (std::optional<Error> error; tries < 40; ++tries) {
    const auto begin = Clock::now();
    error = error_of([&] { (void)locker.acquire("u2", {.timeout = 300ms}); });
    const auto took = Clock::now() - begin;
    EXPECT_LT(took, 2s + stall) << took / 1ms << " ms: a KILL has to connect, too, the first time";
    if (!error) break;
    EXPECT_EQ(error->kind(), ErrorKind::timeout) << error->what();
    if (tries > 0) continue;
    EXPECT_NE(std::string(error->what()).find("no connection"), std::string::npos) << error->what();
  }
  EXPECT_GE(tries, 1) << "it was not far away";
  EXPECT_LT(tries, 40);
  EXPECT_LE(relay.connections(), 4u) << "the one that was there, the one that was begun, and perhaps two for a KILL";
}

TEST_P(Connections, are_begun_only_as_many_as_there_may_be_and_a_deadline_holds_meanwhile) {  // H2
  Relay relay(server().host, server().port);
  Server behind = server();
  behind.port = relay.port();
  Locker locker = hierlock::open(url(behind, "tls=off&connections=4"));
  std::vector<std::string> paths;
  for (int i = 0; i < 12; ++i) locker.acquire(paths.emplace_back("u" + std::to_string(i))).release();
  const Lock held = locker.acquire("other");
  relay.pause();
  std::vector<Clock::duration> times;
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<std::future<Clock::duration>> asks;
    for (const std::string& path : paths) {
      asks.push_back(std::async(std::launch::async, [&]() -> Clock::duration {
        return time_of([&] { EXPECT_FALSE(locker.try_acquire(path, 100ms)); });
      }));
    }
    for (auto& ask : asks) {
      times.push_back(ask.get());
      EXPECT_LT(times.back(), 100ms + stall) << times.back() / 1ms << " ms";
    }
    EXPECT_EQ(relay.connections(), 4u);
  }
  EXPECT_LT(median(times), 600ms) << median(times) / 1ms << " ms";
  relay.resume();
  std::vector<Lock> locks;
  for (int i = 0; i < 3; ++i) locks.push_back(locker.acquire(paths[static_cast<std::size_t>(i)], {.timeout = 20s}));
  EXPECT_EQ(relay.connections(), 4u) << "those that were begun are used";
}

TEST_P(Connections, an_owner_that_has_one_does_not_wait_for_another) {
  Locker locker = open("connections=2");
  Lock first = locker.acquire("u1"), second = locker.acquire("u2");
  const std::optional<Error> error = error_of([&] { (void)locker.acquire("u3"); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::exhausted) << error->what();
  EXPECT_TRUE(error->retryable());
  EXPECT_EQ(locked().size(), 2u) << "and has lost nothing by asking";
  first.release();
  EXPECT_TRUE(locker.acquire("u3").held());
}

// Who waits for a connection has its place in the local queue already: it must not be waited for there by somebody
// whose connection it waits for.
TEST_P(Connections, who_waits_for_one_is_in_nobodys_way_for_long) {  // B11
  Locker locker = open("connections=2");
  locker.acquire("u3").release();  // making its row would take a connection, too
  Lock first = locker.acquire("u1"), second = locker.acquire("u2");
  auto third = std::async(std::launch::async, [&] { return error_of([&] { (void)locker.acquire("u3"); }); });
  // It is in the local queue.
  const auto queued = [&] {
    std::optional<Lock> lock;
    return !error_of([&] { lock = locker.try_acquire("u3"); }) && !lock;
  };
  ASSERT_TRUE(eventually(queued));
  auto begin = Clock::now();
  EXPECT_TRUE(fails_with(ErrorKind::exhausted, [&] { (void)locker.acquire("u3", {.timeout = 20s}); }));
  EXPECT_LT(Clock::now() - begin, 5s + stall);
  ASSERT_TRUE(eventually(queued));
  begin = Clock::now();
  std::optional<Error> error = error_of([&] { first.extend("u3", {.timeout = 20s}); });
  EXPECT_FALSE(error) << error->what();
  EXPECT_LT(Clock::now() - begin, 5s + stall);
  EXPECT_EQ(third.wait_for(0s), std::future_status::timeout);
  first.release();
  error = third.get();
  EXPECT_FALSE(error) << error->what();
  EXPECT_TRUE(second.held());
}

TEST_P(Connections, waits_for_one_are_told) {  // B7
  std::atomic<int> waits = 0;
  std::string blocked_by;
  std::mutex mutex;
  Locker locker = open("connections=1", {.on_event = [&](const Event& event) {
                         if (event.kind != Event::Kind::wait_begins) return;
                         const std::lock_guard guard(mutex);
                         blocked_by = event.blocked_by;
                         ++waits;
                       }});
  std::optional<Lock> first = locker.acquire("u1");
  auto second = std::async(std::launch::async, [&] { return error_of([&] { (void)locker.acquire("u2"); }); });
  EXPECT_TRUE(eventually([&] { return waits > 0; }));
  {
    const std::lock_guard guard(mutex);
    EXPECT_NE(blocked_by.find("connection"), std::string::npos) << blocked_by;
  }
  first.reset();
  EXPECT_FALSE(second.get());
  EXPECT_EQ(locker.stats().total().waits, 1u);
}

TEST_P(Connections, a_wait_at_the_server_tells_who_is_in_the_way_as_soon_as_that_is_known) {  // B7
  std::mutex mutex;
  std::string blocked_by;
  Locker locker = open("", {.on_event =
                                [&](const Event& event) {
                                  const std::lock_guard guard(mutex);
                                  if (event.kind == Event::Kind::wait_goes_on) blocked_by = event.blocked_by;
                                },
                            .long_wait = 500ms});
  Locker other = open();
  const Lock held = other.acquire("u1/a1", {.note = "nightly import"});
  std::stop_source enough;
  auto waits = std::async(std::launch::async, [&] {
    return error_of([&] { (void)locker.acquire("u1/a1/r1", {.timeout = 20s, .cancel = enough.get_token()}); });
  });
  const std::string process = "of process " + std::to_string(getpid()) + " on ";
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard guard(mutex);
    return blocked_by.find(process) != std::string::npos && blocked_by.find("nightly import") != std::string::npos &&
           blocked_by.ends_with("at u1/a1");
  })) << blocked_by;
  enough.request_stop();
  EXPECT_TRUE(waits.get());
}

TEST_P(Connections, many_threads_share_few_and_all_get_their_turn) {
  Locker locker = open("connections=2");
  std::atomic<int> inside = 0, done = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const Lock lock = locker.acquire(t % 2 == 0 ? "hot" : "u" + std::to_string(t) + "/a" + std::to_string(i));
        ++done;
        if (t % 2 != 0) continue;
        EXPECT_EQ(inside.fetch_add(1), 0);
        inside.fetch_sub(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 200);
  EXPECT_TRUE(all_free());
}

HIERLOCK_ON_BOTH_SERVERS(Connections);

class Lazy : public OnServer {
 protected:
  std::string rows() { return plain().one("SELECT COUNT(*) FROM `" + table() + "`"); }
  // Many threads of two Lockers that have just been opened, all at once.
  void race(const std::function<std::string(int)>& path) {
    std::vector<std::unique_ptr<Locker>> lockers;
    std::mutex mutex;
    std::latch ready(16);
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; ++t) {
      threads.emplace_back([&, t] {
        ready.arrive_and_wait();
        const std::optional<Error> error = error_of([&] {
          Locker* locker = nullptr;
          {
            const std::lock_guard guard(mutex);
            if (lockers.size() < 2) lockers.push_back(std::make_unique<Locker>(open()));
            locker = lockers[static_cast<std::size_t>(t) % lockers.size()].get();
          }
          EXPECT_TRUE(locker->acquire(path(t)).held());
        });
        EXPECT_FALSE(error) << path(t) << ": " << error->what();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_P(Lazy, a_race_for_the_first_use_of_one_row_makes_it_once) {  // H11
  race([](int) { return "u1/a1/r1"; });
  EXPECT_EQ(rows(), "3");
}

TEST_P(Lazy, a_race_for_the_first_use_of_many_rows_makes_each_once) {  // H11
  race([](int t) { return "u" + std::to_string(t % 2) + "/a" + std::to_string(t % 4) + "/r" + std::to_string(t); });
  EXPECT_EQ(rows(), std::to_string(2 + 4 + 16));
}

TEST_P(Lazy, an_extend_to_a_missing_row_needs_a_second_connection) {  // H11
  Locker locker = open("connections=1");
  Lock lock = locker.acquire("u1");
  EXPECT_TRUE(fails_with(
      ErrorKind::exhausted, [&] { lock.extend("u2"); }, "connections="));
  EXPECT_TRUE(lock.held());
  open().acquire("u2").release();
  lock.extend("u2");
  EXPECT_TRUE(lock.held());
}

TEST_P(Lazy, an_extend_that_is_cancelled_while_it_connects_to_make_a_missing_row_keeps_its_lock) {  // H11, H2
  Relay relay(server().host, server().port);
  Server behind = server();
  behind.port = relay.port();
  Locker locker = hierlock::open(url(behind, "tls=off"));
  Lock lock = locker.acquire("u1");
  relay.delay(100ms);
  relay.pause_at_connection(3);
  std::stop_source stop;
  auto asks = std::async(std::launch::async,
                         [&] { return error_of([&] { lock.extend("u2", {.cancel = stop.get_token()}); }); });
  // The lock's own, the one on the side that publishes a slow extend, and the one to make the row.
  EXPECT_TRUE(eventually([&] { return relay.connections() == 3; }));
  const auto begin = Clock::now();
  stop.request_stop();
  const std::optional<Error> error = asks.get();
  EXPECT_LT(Clock::now() - begin, stall);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::cancelled) << error->what();
  EXPECT_TRUE(lock.held());
}

// It falls silent when the first row is being made.
TEST_P(Lazy, a_deadline_and_a_cancel_hold_while_a_row_is_made_at_a_server_that_falls_silent) {  // H11, H2
  std::atomic<int> last{0};
  const auto in_silence = [&](const AcquireOptions& options, bool extends) {
    Relay relay(server().host, server().port);
    Server behind = server();
    behind.port = relay.port();
    Locker locker = hierlock::open(url(behind, "tls=off"));
    const std::string name = std::to_string(++last), path = "n" + name;
    Lock lock = locker.acquire("u" + name);
    locker.acquire("v" + name).release();  // the second connection
    relay.delay(20ms);
    relay.pause_at("innodb_lock_wait_timeout=1");
    const auto begin = Clock::now();
    const std::optional<Error> error =
        error_of([&] { extends ? lock.extend(path, options) : locker.acquire(path, options).release(); });
    const auto took = Clock::now() - begin;
    EXPECT_LT(took, 5s + stall) << "4 s late at most: " << took / 1ms << " ms";
    relay.cut();
    return error ? error->kind() : throw std::runtime_error("it was granted");
  };
  std::stop_source stop;
  struct Case {
    AcquireOptions options;
    ErrorKind expected;
  };
  const std::vector<Case> cases{{{.timeout = 300ms}, ErrorKind::timeout},
                                {{.timeout = 0s}, ErrorKind::unavailable},
                                {{.cancel = stop.get_token()}, ErrorKind::cancelled}};
  std::vector<std::future<void>> all;
  for (const bool extends : {false, true}) {
    for (const Case& one : cases) {
      all.push_back(std::async(std::launch::async, [&, extends] {
        SCOPED_TRACE(extends ? "an extend" : "an acquire");
        EXPECT_EQ(in_silence(one.options, extends), one.expected);
      }));
    }
  }
  std::this_thread::sleep_for(400ms);
  stop.request_stop();
  for (std::future<void>& one : all) one.get();
}

TEST_P(Lazy, lockers_that_open_at_once_make_one_table) {  // H11
  std::latch ready(8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      ready.arrive_and_wait();
      const std::optional<Error> error = error_of([&] { EXPECT_TRUE(open().acquire("u1/a1/r1").held()); });
      EXPECT_FALSE(error) << error->what();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rows(), "3");
  EXPECT_EQ(plain().one("SELECT COUNT(*) FROM `" + table() + "_settings`"), "1");
}

TEST_P(Lazy, a_row_is_made_beside_one_that_somebody_holds_without_waiting) {  // H11
  EXPECT_TRUE(once_within(900ms, [&] {  // an INSERT that waited gave up after a second
    const std::string& table = another_table();
    const std::string where = url_of(table, server(), "buckets=4");
    Locker one = hierlock::open(where), two = hierlock::open(where);
    // With so few buckets every level soon has all its rows, and each new one is next to one that is held.
    Lock held = one.acquire("u1/a1/r1");
    int met = 0;
    std::chrono::nanoseconds longest{};
    for (int i = 0; i < 40; ++i) {
      const std::string path = "x" + std::to_string(i) + "/a" + std::to_string(i) + "/r" + std::to_string(i);
      longest = std::max(longest, time_of([&] {
                           if (two.try_acquire(path)) ++met;
                         }));
    }
    EXPECT_GT(met, 0);
    EXPECT_TRUE(held.held());
    EXPECT_LE(std::stoi(plain().one("SELECT COUNT(*) FROM `" + table + "`")), 12);
    return longest;
  }));
}

TEST_P(Lazy, a_row_that_somebody_is_just_making_is_not_an_error) {  // H11
  Locker locker = open("buckets=1");
  plain().ask("START TRANSACTION");
  plain().ask("INSERT INTO `" + table() + "` (level, bucket) VALUES (0, 0)");
  auto asks =
      std::async(std::launch::async, [&] { return error_of([&] { (void)locker.acquire("u1", {.timeout = 30s}); }); });
  EXPECT_TRUE(eventually([&] { return somebody_waits(); })) << "the row counts, though it is not committed";
  plain().ask("COMMIT");
  const std::optional<Error> error = asks.get();
  EXPECT_FALSE(error) << error->what();
  EXPECT_EQ(rows(), "1");
}

HIERLOCK_ON_BOTH_SERVERS(Lazy);

}  // namespace
}  // namespace hierlock::mysql_tests
