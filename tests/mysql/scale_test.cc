// Many threads, locks and waits on few connections (B12).
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <latch>
#include <thread>
#include <vector>

#include "on_server.h"
#include "relay.h"

namespace hierlock::mysql_tests {
namespace {

class Scale : public OnServer {
 protected:
  // Pairs of acquire and release a second, each thread on a path of its own; and how often a thread of this process
  // went to sleep for each pair.
  struct Rate {
    double pairs_a_second, sleeps_a_pair;
  };
  Rate rate_of(Locker& locker, int threads) {
    std::atomic<bool> over = false;
    std::atomic<long> pairs = 0;
    std::latch ready(threads);
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i) {
      all.emplace_back([&, i] {
        const Target target = Target::parse("t" + std::to_string(i));
        locker.acquire(target).release();  // its row is there now
        ready.count_down();
        while (!over) {
          locker.acquire(target).release();
          ++pairs;
        }
      });
    }
    const auto sleeps = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return usage.ru_nvcsw;
    };
    ready.wait();
    const long before = pairs, slept = sleeps();
    const auto begin = Clock::now();
    EXPECT_TRUE(eventually([&] { return Clock::now() - begin >= 1500ms; }));
    const auto done = static_cast<double>(std::max(1L, pairs - before));
    const Rate rate{done / std::chrono::duration<double>(Clock::now() - begin).count(),
                    static_cast<double>(sleeps() - slept) / done};
    over = true;
    for (std::thread& thread : all) thread.join();
    return rate;
  }
};

// A release that woke all who stand in line made a thousand sleeps a pair, and 1,000 threads a tenth of what 16 did.
// How fast they are depends on the machine; how often they sleep does not.
TEST_P(Scale, a_thousand_threads_in_line_are_woken_one_by_one) {
  Locker locker = open();
  const Rate few = rate_of(locker, 16), many = rate_of(locker, 1000);
  std::printf(
      "%s: %.0f pairs/s with 16 threads, %.0f with 1,000: %.2f (bar 0.7 on a quiet machine); %.1f and %.1f sleeps "
      "a pair\n",
      GetParam().c_str(), few.pairs_a_second, many.pairs_a_second, many.pairs_a_second / few.pairs_a_second,
      few.sleeps_a_pair, many.sleeps_a_pair);
  EXPECT_LT(many.sleeps_a_pair, few.sleeps_a_pair + 20);
}

TEST_P(Scale, waits_leave_connections_for_a_free_path) {
  Locker others = open("connections=40"), locker = open();
  std::vector<Owner> owners;
  std::vector<Lock> held;
  constexpr int many = 32;
  for (int i = 0; i < many; ++i) {
    owners.push_back(others.owner("holder " + std::to_string(i)));
    held.push_back(others.acquire("busy" + std::to_string(i), {.owner = &owners.back()}));
  }
  std::vector<std::future<void>> waits;
  for (int i = 0; i < many; ++i) {
    waits.push_back(std::async(std::launch::async, [&, i] { locker.acquire("busy" + std::to_string(i)).release(); }));
  }
  EXPECT_TRUE(eventually([&] { return how_many_wait() == 12; })) << "three quarters of 16";
  EXPECT_TRUE(locker.try_acquire("free1", 10s).has_value());
  EXPECT_TRUE(locker.try_acquire("free2").has_value());
  held.clear();
  for (std::future<void>& wait : waits) wait.get();
}

TEST_P(Scale, notices_are_read_again_only_when_they_have_changed) {
  Relay relay(server().host, server().port);
  Server behind = server();
  behind.port = relay.port();
  Locker other = open(), mine = hierlock::open(url(behind, "tls=off"));
  std::optional<Lock> theirs = other.acquire("theirs");
  std::thread waits([&] {  // holds one and waits for another, so it looks for deadlocks
    const Lock own = mine.acquire("own");
    mine.acquire("theirs").release();
  });
  const auto asked = [&](const std::string& what) {
    int times = 0;
    for (const Relay::Command& command : relay.commands()) times += command.text.starts_with(what) ? 1 : 0;
    return times;
  };
  EXPECT_TRUE(eventually([&] { return asked("SELECT session, owner") > 0; }));
  EXPECT_TRUE(eventually([&] {  // what this test itself has caused has been read
    relay.forget();
    return eventually([&] { return asked("SELECT COUNT(*), COALESCE(BIT_XOR") >= 4; }) &&
           asked("SELECT session, owner") == 0;
  }));
  EXPECT_EQ(asked("SELECT locker, COUNT(*)"), 0);
  theirs.reset();
  waits.join();
}

TEST_P(Scale, a_cycle_through_one_new_notice_of_many_is_found) {  // B11, B12
  Relay relay(server().host, server().port);
  Server behind = server();
  behind.port = relay.port();
  Locker many = open("publish_after=0"), mine = hierlock::open(url(behind, "tls=off"));
  const Owner theirs = many.owner("theirs"), looks = mine.owner("looks"), last = mine.owner("last");
  std::vector<Lock> held;
  for (int i = 0; i < 8; ++i) held.push_back(many.acquire("held" + std::to_string(i), {.owner = &theirs}));
  std::optional<Lock> own = mine.acquire("own", {.owner = &last});
  const auto read = [&](const std::string& which) {
    const auto commands = relay.commands();
    return std::any_of(commands.begin(), commands.end(), [&](const Relay::Command& command) {
      return command.text.starts_with("SELECT session, owner") && command.text.find(which) != std::string::npos;
    });
  };
  auto looking = std::async(std::launch::async, [&] {  // so it knows all notices before there is a cycle
    const Lock one = mine.acquire("one", {.owner = &looks});
    mine.acquire("held7", {.owner = &looks}).release();
  });
  EXPECT_TRUE(eventually([&] { return read("AND (locker IN ("); }));
  auto waiting = std::async(std::launch::async, [&] { many.acquire("own", {.owner = &theirs}).release(); });
  EXPECT_TRUE(eventually([&] { return read("AND (id IN ("); })) << "the new notice is not read alone";
  const auto victim = error_of([&] { mine.acquire("held0", {.timeout = 20s, .owner = &last}).release(); });
  ASSERT_TRUE(victim);
  EXPECT_EQ(victim->kind(), ErrorKind::deadlock) << victim->what();
  own.reset();
  waiting.get();
  held.clear();
  looking.get();
}

// InnoDB ends the lighter transaction. That is the one that only asks, not the one that holds and extends.
TEST_P(Scale, an_ordered_acquire_is_no_victim) {  // B11
  Locker one = open(), two = open();
  for (int turn = 0; turn < 6; ++turn) {
    const std::string p = turn % 2 == 0 ? "p" : "q", q = turn % 2 == 0 ? "q" : "p";  // one of them comes first
    std::optional<Lock> extender = one.acquire(q);
    auto ordered = std::async(std::launch::async, [&] {
      return error_of([&] { two.acquire({p, q}, {.timeout = 20s}).release(); });
    });
    EXPECT_TRUE(eventually([&] { return how_many_wait() == 1; }));
    const std::optional<Error> victim = error_of([&] { extender->extend(p, {.timeout = 10s}); });
    EXPECT_TRUE(!victim || victim->kind() == ErrorKind::deadlock) << victim->what();
    extender.reset();
    const std::optional<Error> error = ordered.get();
    EXPECT_FALSE(error.has_value()) << error->what();
  }
}

HIERLOCK_ON_BOTH_SERVERS(Scale);

// It mostly waits, so both servers' cases run at the same time (tests/CMakeLists.txt).
class HeartbeatsAtScale : public OnServer {};

TEST_P(HeartbeatsAtScale, are_in_time_while_hundreds_hold_and_a_thousand_wait) {  // B4, B12
  constexpr int holders = 200, others = 1000, connections = holders + 20;
  make_room_for(connections);
  Locker locker = open("connections=" + std::to_string(connections));
  std::optional<Lock> hot = locker.acquire("hot");
  std::atomic<int> lost = 0, holding = 0, waiting = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < holders; ++i) {
    threads.emplace_back([&, i] {
      const Lock own = locker.acquire("own" + std::to_string(i));
      ++holding;
      const Lock more = locker.acquire("hot");
      if (!own.held()) ++lost;
    });
  }
  EXPECT_TRUE(eventually([&] { return holding == holders; }, 60s));
  for (int i = 0; i < others; ++i) {
    threads.emplace_back([&] {
      ++waiting;
      locker.acquire("hot").release();
    });
  }
  EXPECT_TRUE(eventually([&] { return waiting == others; }, 60s));
  const auto begin = Clock::now();  // longer than a lease: without heartbeats they would be lost
  EXPECT_TRUE(eventually([&] { return Clock::now() - begin > 16s; }));
  EXPECT_TRUE(hot->held());
  hot.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lost, 0) << "of a server that is well";
}

HIERLOCK_ON_BOTH_SERVERS(HeartbeatsAtScale);

}  // namespace
}  // namespace hierlock::mysql_tests
