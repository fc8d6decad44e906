// Loss and death: what a holder is told when its session is gone, and what becomes of those who die (B3 to B6).
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <future>
#include <latch>
#include <optional>

#include <hierlock/operate.h>

#include "on_own_server.h"
#include "program.h"
#include "relay.h"
#include "support/machines.h"
#include "support/rights.h"

namespace hierlock::mysql_tests {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int slowness = 4;
#else
constexpr int slowness = 1;
#endif

constexpr auto at_once = 1000ms * slowness;
constexpr auto vanished = 15s + stall;  // B5: by then the server has freed what nobody can release any more
constexpr auto released = 1000ms + 300ms * slowness;  // B6, and what a busy machine adds

// The moment of a fact, as others may see it.
class Moment {
 public:
  void now() {
    Clock::rep unset = 0;
    at_.compare_exchange_strong(unset, Clock::now().time_since_epoch().count());
  }
  bool come() const { return at_.load() != 0; }
  Clock::duration since(Clock::time_point begin) const {
    return Clock::time_point(Clock::duration(at_.load())) - begin;
  }

 private:
  std::atomic<Clock::rep> at_{0};
};

// Hears of the loss of a lock.
class Told {
 public:
  explicit Told(Lock& lock) : callback_(lock.lost(), [this] { moment_.now(); }) {}
  const Moment& moment() const { return moment_; }

 private:
  Moment moment_;
  std::stop_callback<std::function<void()>> callback_;
};

testing::AssertionResult is_lost(Lock& lock) {
  if (lock.held()) return testing::AssertionFailure() << "held() is true";
  if (!lock.lost().stop_requested()) return testing::AssertionFailure() << "lost() is not triggered";
  return fails_with(ErrorKind::lost, [&] { (void)lock.fence(); });
}

// Locks the path and blows: its holder is told at once. A machine that stalls tells it late, so that is tried again.
testing::AssertionResult becomes_lost(Locker& locker, const std::string& path, Lock& lock,
                                      const std::function<void()>& blow) {
  return once_within(at_once, [&] {
    lock = locker.acquire(path, {.timeout = 20s});
    const Told told(lock);
    EXPECT_TRUE(lock.held());
    const auto begin = Clock::now();
    blow();
    EXPECT_TRUE(eventually([&] { return told.moment().come(); })) << "nobody was told";
    EXPECT_TRUE(is_lost(lock));
    return told.moment().since(begin);
  });
}

class Loss : public OnServer {
 protected:
  // The server as seen through a relay.
  Server behind(const Relay& relay) const {
    Server server = this->server();
    server.port = relay.port();
    return server;
  }
  std::string through(const Relay& relay, const std::string& more = "") const {
    return url(behind(relay), "tls=off" + (more.empty() ? "" : "&" + more));
  }
  static std::uint64_t session_of(const Locker& locker, const std::string& target) {
    for (const Snapshot::Holder& holder : locker.snapshot().holders) {
      if (holder.target == target) return holder.who.session;
    }
    return 0;
  }
};

TEST_P(Loss, a_lock_whose_session_is_killed_is_lost_at_once) {  // B4
  const Server mine = make_user("ALL", server().database + ".*");
  Locker locker = hierlock::open(url(mine)), other = open();
  Lock lock;
  std::int64_t fence = 0;
  EXPECT_TRUE(becomes_lost(locker, "u1/a1/r1", lock, [&] {
    fence = lock.fence();
    for (const auto& row :
         plain().ask("SELECT ID FROM information_schema.processlist WHERE USER='" + mine.user + "'")) {
      (void)plain().code_of("KILL " + row.at(0));
    }
  }));
  EXPECT_GT(other.acquire("u1/a1/r1", {.timeout = 20s}).fence(), fence);  // B3
  lock.release();
  lock.release();  // B6: harmless
  EXPECT_TRUE(locker.acquire("u1/a1/r1").held()) << "the next has a new session";
}

// Whether the extend finds out first, or the one who looks after locks.
TEST_P(Loss, an_extend_of_a_lock_whose_session_was_killed_says_that_it_is_lost) {  // B4
  for (const char* const tls : {"tls=off", "tls=on"}) {
    SCOPED_TRACE(tls);
    const Server as = make_user("ALL", server().database + ".*");
    Locker locker = hierlock::open(url(as, tls));
    for (int turn = 0; turn < 10; ++turn) {
      Lock lock = locker.acquire("u1");
      for (const auto& row :
           plain().ask("SELECT ID FROM information_schema.processlist WHERE USER='" + as.user + "'")) {
        plain().ask("KILL " + row[0]);
      }
      EXPECT_TRUE(fails_with(ErrorKind::lost, [&] { lock.extend("u2", {.timeout = 5s}); })) << turn;
      EXPECT_FALSE(lock.held());
    }
  }
}

TEST_P(Loss, a_lock_whose_connection_is_cut_is_lost_at_once) {  // B4
  Relay relay(server().host, server().port);
  Locker locker = hierlock::open(through(relay)), other = open();
  Lock lock;
  EXPECT_TRUE(becomes_lost(locker, "u1/a1/r1", lock, [&] { relay.cut(); }));
  EXPECT_TRUE(other.acquire("u1", {.timeout = 20s}).held()) << "and the server has freed it";  // B5
  EXPECT_TRUE(fails_with(ErrorKind::lost, [&] { lock.extend("u2"); }));
}

TEST_P(Loss, who_asks_again_with_the_lost_lock_in_hand_is_told_to_release_it) {  // B4
  Relay relay(server().host, server().port);
  Locker locker = hierlock::open(through(relay));
  Lock lock = locker.acquire("u1/a1");
  relay.cut();
  ASSERT_TRUE(eventually([&] { return !lock.held(); }));
  EXPECT_TRUE(fails_with(
      ErrorKind::deadlock, [&] { (void)locker.acquire("u1/a1"); }, "was lost: release() it"));
  lock.release();
  EXPECT_TRUE(locker.acquire("u1/a1").held());
}

TEST_P(Loss, a_callback_that_takes_long_keeps_nobody_from_looking_after_the_other_locks) {  // B4
  Relay relay(server().host, server().port);
  Locker locker = hierlock::open(through(relay));
  Lock goes = locker.acquire("u1"), stays = locker.acquire("u2");
  const std::uint64_t session = session_of(locker, "u1");
  std::latch called(1), over(1);
  const std::stop_callback slow(goes.lost(), [&] {
    called.count_down();
    over.wait();
  });
  plain().ask("KILL " + std::to_string(session));
  called.wait();
  relay.forget();
  EXPECT_TRUE(eventually([&] {
    const std::vector<Relay::Command> all = relay.commands();
    return std::any_of(all.begin(), all.end(), [](const Relay::Command& command) {
      return command.text.starts_with("SELECT CONNECTION_ID(), @@global.read_only");
    });
  })) << "a heartbeat of the other";
  EXPECT_TRUE(stays.held());
  over.count_down();
}

TEST_P(Loss, one_of_two_locks_may_be_lost_and_the_other_kept) {  // B4
  Relay relay(server().host, server().port);
  Locker behind_it = hierlock::open(through(relay)), locker = open();
  Lock goes, stays = locker.acquire("u2");
  EXPECT_TRUE(becomes_lost(behind_it, "u1", goes, [&] { relay.cut(); }));
  EXPECT_TRUE(stays.held());
  EXPECT_FALSE(stays.lost().stop_requested());
}

TEST_P(Loss, who_asks_for_lost_only_after_the_loss_is_told_at_once) {  // B4
  Relay relay(server().host, server().port);
  Locker locker = hierlock::open(through(relay));
  Lock lock = locker.acquire("u1");
  relay.cut();
  EXPECT_TRUE(eventually([&] { return !lock.held(); }));
  EXPECT_TRUE(lock.lost().stop_requested());
}

TEST_P(Loss, a_holder_that_is_killed_frees_at_once) {  // B5
  Process holder([&] {
    static Locker locker = open();
    static Lock lock = locker.acquire("u1/a1/r1");
  });
  ASSERT_TRUE(holder.ready());
  Locker locker = open();
  EXPECT_FALSE(locker.try_acquire("u1"));
  const auto begin = Clock::now();
  holder.kill();
  EXPECT_TRUE(locker.acquire("u1", {.timeout = 30s}).held());
  EXPECT_LT(Clock::now() - begin, at_once + stall);
}

TEST_P(Loss, a_child_that_destroys_its_copies_takes_nothing_from_its_parent) {  // B6
  const Server mine = make_user("ALL", server().database + ".*");
  std::optional<Locker> locker = hierlock::open(url(mine));
  locker->acquire("u2").release();  // one connection more, which nobody uses then
  std::optional<Lock> lock = locker->acquire("u1/a1/r1"), second = locker->acquire("u2");
  second->release();
  const auto sessions = [&] {
    return plain().ask("SELECT ID FROM information_schema.processlist WHERE USER='" + mine.user + "' ORDER BY ID");
  };
  const Plain::Rows before = sessions();
  const pid_t child = fork();
  if (child == 0) {
    const bool inert = !lock->held();
    lock.reset();
    second.reset();
    locker.reset();
    if constexpr (slowness > 1) _exit(inert ? 0 : 1);  // a sanitizer would call leaked what is left alone on purpose
    std::exit(inert ? 0 : 1);                          // with all that a program does at its end
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "it was held in the child";
  Locker other = open();
  EXPECT_FALSE(other.try_acquire("u1/a1/r1"));
  EXPECT_TRUE(lock->held());
  EXPECT_FALSE(lock->lost().stop_requested());
  // The parent may have made one on the side meanwhile.
  const Plain::Rows after = sessions();
  for (const auto& session : before) {
    EXPECT_NE(std::find(after.begin(), after.end(), session), after.end()) << "session " << session.at(0);
  }
  lock->extend("u3", {.timeout = 5s});  // its session still answers
  lock.reset();
  EXPECT_TRUE(eventually([&] { return other.try_acquire("u1/a1/r1").has_value(); }));
}

// The server finds the deadlock at the moment at which the time is up, or nearly.
TEST_P(Loss, an_extend_that_is_too_late_in_a_deadlock_keeps_its_lock_or_says_that_it_is_gone) {  // B4, H9
  Locker one = open(), two = open();
  for (int turn = 0; turn < 40; ++turn) {
    Lock a = one.acquire("a"), b = two.acquire("b");
    auto waits = std::async(std::launch::async, [&] { return error_of([&] { a.extend("b", {.timeout = 5s}); }); });
    ASSERT_TRUE(eventually([&] { return somebody_waits(); }));
    const std::optional<Error> error =
        error_of([&] { b.extend("a", {.timeout = std::chrono::microseconds(1 + turn * 20)}); });
    const bool ready = waits.wait_for(b.held() ? 30ms : 5s) == std::future_status::ready;
    const std::optional<Error> others = ready ? waits.get() : std::nullopt;
    EXPECT_FALSE(b.held() && ready && !others) << "both hold b: " << (error ? error->what() : "extended");
    b.release();
    if (!ready) (void)waits.get();
  }
}

TEST_P(Loss, heartbeats_are_not_on_the_way_of_a_lock) {  // B4
  Relay relay(server().host, server().port);
  Locker locker = hierlock::open(through(relay));
  int executes = 0, rollbacks = 0, others = 0;
  std::size_t known = 1;  // how many connections; if the server looks far away, another one is made on the way
  std::string which;
  // release() does not wait for its ROLLBACK, so the relay may see it later.
  const auto given_back = [&] {
    return eventually([&] {
      executes = rollbacks = others = 0;
      which.clear();
      bool all = false;  // of one connection
      for (const Relay::Command& command : relay.commands()) {
        if (locks(command)) {
          ++executes;
        } else if (rolls_back(command)) {
          ++rollbacks;
        } else if (command.connection < known) {
          ++others;
          which += std::to_string(command.connection) + ": " + std::to_string(command.code) + " " + command.text + "\n";
        }
        if (locks(command) || rolls_back(command)) all = rolls_back(command);
      }
      return all && rollbacks >= executes;  // there may have been one before the first lock
    });
  };
  locker.acquire("u1/a1/r1").release();
  ASSERT_TRUE(given_back());
  relay.forget();
  known = relay.connections();
  const auto begin = Clock::now();
  for (int i = 0; i < 100; ++i) locker.acquire("u1/a1/r1").release();
  const auto took = Clock::now() - begin;
  EXPECT_TRUE(given_back());
  EXPECT_EQ(executes, 100);
  EXPECT_EQ(rollbacks, 100) << which;
  if (took < 1s) {
    EXPECT_EQ(others, 0) << which;
  }
}

TEST_P(Loss, a_release_that_the_server_does_not_answer_takes_a_second_at_most) {  // B6
  for (const char* const more : {"", "publish_after=0"}) {
    SCOPED_TRACE(more);
    EXPECT_TRUE(once_within(released, [&] {
      Relay relay(server().host, server().port);
      Locker locker = hierlock::open(through(relay, more));
      Lock lock = locker.acquire("u1/a1/r1");
      relay.pause();
      const auto took = time_of([&] { lock.release(); });
      EXPECT_FALSE(lock.held());
      relay.cut();  // the server frees it now, for the next turn
      return took;
    }));
  }
}

TEST_P(Loss, a_locker_whose_server_does_not_answer_is_destroyed_within_a_second) {  // B6
  for (const char* const more : {"", "publish_after=0"}) {
    SCOPED_TRACE(more);
    EXPECT_TRUE(once_within(released, [&] {
      Relay relay(server().host, server().port);
      auto locker = std::make_unique<Locker>(hierlock::open(through(relay, more)));
      std::optional<Lock> lock = locker->acquire("u1/a1/r1");
      if (*more == '\0') {  // it has lasted long enough to be written down, on a connection of its own
        EXPECT_TRUE(eventually([&] { return relay.connections() > 1; }));
      }
      relay.pause();
      const auto release = time_of([&] { lock.reset(); }), close = time_of([&] { locker.reset(); });
      relay.cut();
      return std::max(release, close);
    }));
  }
}

TEST_P(Loss, releases_take_a_second_at_most_while_nobody_can_write_down_who_holds) {  // B6
  constexpr int many = 4;
  Locker locker = open("publish_after=0");
  Plain maintenance(operator_server());
  EXPECT_TRUE(once_within(released, [&] {
    std::vector<Lock> held;
    for (int i = 0; i < many; ++i) held.push_back(locker.acquire("u" + std::to_string(i)));
    maintenance.ask("LOCK TABLES `" + table() + "_notices` WRITE");
    std::vector<std::future<std::chrono::nanoseconds>> times;
    for (Lock& lock : held) {
      times.push_back(std::async(std::launch::async, [&lock] { return time_of([&] { lock.release(); }); }));
    }
    std::chrono::nanoseconds longest{};
    for (auto& time : times) longest = std::max(longest, time.get());
    maintenance.ask("UNLOCK TABLES");
    return longest;
  }));
  EXPECT_TRUE(eventually([&] { return plain().one("SELECT COUNT(*) FROM `" + table() + "_notices`") == "0"; }))
      << "it is done later";
}

TEST_P(Loss, a_lock_that_is_granted_is_not_kept_back_for_long_while_nobody_can_write_down_who_holds) {
  constexpr int many = 6;
  Locker locker = open("publish_after=0");
  for (int i = 0; i < many; ++i) locker.acquire("u" + std::to_string(i)).release();  // makes the rows
  Plain maintenance(operator_server());
  std::vector<Lock> held;
  EXPECT_TRUE(once_within(1s * slowness, [&] {
    held.clear();
    maintenance.ask("LOCK TABLES `" + table() + "_notices` WRITE");
    const auto took = time_of([&] {
      for (int i = 0; i < many; ++i) held.push_back(locker.acquire("u" + std::to_string(i)));
    });
    maintenance.ask("UNLOCK TABLES");
    return took;
  })) << "not everybody tries";
  EXPECT_TRUE(eventually([&] {
    return plain().one("SELECT COUNT(*) FROM `" + table() + "_notices`") == std::to_string(many);
  })) << "it is done later";
}

// The limit is on the user, and root has none: hence another user.
TEST_P(Loss, a_lock_that_nobody_could_look_after_is_not_given_and_leaves_nothing) {  // B4, H8
  if (geteuid() == 0) {
    HIERLOCK_NEEDS_RIGHT(become_another_user);
  }
  const std::string where = url("connections=1&tls=off");
  open().acquire("u1").release();
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit{};
    getrlimit(RLIMIT_NPROC, &limit);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 0;
    if (setrlimit(RLIMIT_NPROC, &limit) != 0 || (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)) _exit(2);
    try {
      Locker locker = hierlock::open(where);
      for (int i = 0; i < 3; ++i) {
        if (!fails_with(
                ErrorKind::exhausted, [&] { (void)locker.acquire("u1"); }, "thread"))
          _exit(3);
      }
      limit.rlim_cur = before;
      if (setrlimit(RLIMIT_NPROC, &limit) != 0) _exit(2);
      if (!locker.acquire("u1", {.timeout = 5s}).held()) _exit(4);
    } catch (...) {
      _exit(5);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

HIERLOCK_ON_BOTH_SERVERS(Loss);

// --- a server of the test's own --------------------------------------------------------------------------

class Dying : public OnOwnServer {
 protected:
  void TearDown() override {
    if (has_server()) own().control("start");
  }
  std::string url() const { return url_of("dying"); }
  // Blows, and looks that it is lost as soon as the server is gone, and that all is well when it is back.
  void lost_with_the_server(const std::string& what) {
    Locker locker = hierlock::open(url());
    Lock lock = locker.acquire("u1/a1/r1");
    std::int64_t fence = lock.fence();
    const Told told(lock);
    EXPECT_TRUE(own().control(what));  // returns when it is gone
    const auto gone = Clock::now();
    EXPECT_TRUE(eventually([&] { return told.moment().come(); }));
    EXPECT_LT(told.moment().since(gone), at_once + stall);
    EXPECT_TRUE(is_lost(lock));
    const auto begin = Clock::now();
    EXPECT_TRUE(fails_with(ErrorKind::unavailable, [&] { (void)locker.acquire("u2", {.timeout = 1s}); }));
    EXPECT_LT(Clock::now() - begin, 1s + at_once + stall);
    ASSERT_TRUE(own().control("start"));
    Locker other = hierlock::open(url());
    Lock below = other.acquire("u1/a1", {.timeout = 10s});
    EXPECT_GT(below.fence(), fence);  // B3
    EXPECT_TRUE(is_lost(lock)) << "what was lost stays so";
    lock.release();
    EXPECT_TRUE(below.held()) << "and the other's is another";
    fence = below.fence();
    below.release();
    Lock next = locker.acquire("u1/a1/r1", {.timeout = 10s});  // the same Locker goes on
    EXPECT_TRUE(next.held());
    EXPECT_GT(next.fence(), fence);  // B3
  }
};

TEST_P(Dying, a_lock_on_a_server_that_is_shut_down_is_lost_at_once) { lost_with_the_server("stop"); }  // B4

TEST_P(Dying, a_lock_on_a_server_that_is_killed_is_lost_at_once) { lost_with_the_server("kill"); }  // B4

TEST_P(Dying, who_waits_at_a_server_that_dies_is_told) {
  Locker one = hierlock::open(url()), two = hierlock::open(url());
  Lock lock = one.acquire("u1");
  Plain plain(own().operator_url());
  auto waits = std::async(std::launch::async, [&] { return error_of([&] { (void)two.acquire("u1"); }); });
  EXPECT_TRUE(eventually([&] {
    return plain.one(
               "SELECT COUNT(*) FROM information_schema.processlist WHERE INFO LIKE '%UUID_SHORT(), CONNECTION_ID()%' "
               "AND "
               "COMMAND='Execute'") != "0";
  }));
  EXPECT_TRUE(own().control("kill"));
  EXPECT_EQ(waits.wait_for(30s), std::future_status::ready);
  const std::optional<Error> error = waits.get();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::unavailable) << error->what();
  EXPECT_TRUE(error->retryable());
}

// A failover demotes the primary under those who use it. Its rows stay locked, but exclude nobody on the new primary.
TEST_P(Dying, a_lock_that_is_released_in_the_callback_of_its_loss_leaves_nothing) {  // B4, H8
  Plain plain(own().operator_url());
  Locker locker = hierlock::open(url() + "&connections=1");
  EXPECT_TRUE(once_within(900ms, [&] {
    Lock lock = locker.acquire("u1", {.timeout = 20s});
    std::latch told(1);
    std::chrono::nanoseconds took{};
    const std::stop_callback releases(lock.lost(), [&] {
      took = time_of([&] { lock.release(); });
      told.count_down();
    });
    plain.ask("SET GLOBAL read_only=1");
    told.wait();
    plain.ask("SET GLOBAL read_only=0");
    return took;
  }));
  const std::optional<Error> mine = error_of([&] { (void)locker.acquire("u1", {.timeout = 20s}); });
  EXPECT_FALSE(mine) << mine->what();
  auto other =
      std::async(std::launch::async, [&] { return error_of([&] { (void)locker.acquire("u1", {.timeout = 20s}); }); });
  const std::optional<Error> others = other.get();
  EXPECT_FALSE(others) << others->what();
}

TEST_P(Dying, a_lock_on_a_server_that_becomes_read_only_is_lost_and_the_next_is_refused) {  // B4, H17
  Plain plain(own().operator_url());
  Locker holds = hierlock::open(url()), busy = hierlock::open(url()), idle = hierlock::open(url());
  std::optional<Lock> lock = holds.acquire("u1");
  const Told told(*lock);
  idle.acquire("u3").release();
  std::atomic<bool> over = false;
  std::atomic<int> turns = 0;
  std::optional<Error> refused;
  std::thread uses([&] {  // never idle, and never for long
    refused = error_of([&] {
      for (; !over; ++turns) busy.acquire("u2").release();
    });
  });
  EXPECT_TRUE(eventually([&] { return turns > 100; }));
  const auto begin = Clock::now();
  plain.ask("SET GLOBAL read_only=1");
  EXPECT_TRUE(eventually([&] { return told.moment().come(); }));
  EXPECT_LT(told.moment().since(begin), 5s + stall);
  EXPECT_TRUE(is_lost(*lock));
  uses.join();
  EXPECT_LT(Clock::now() - begin, 6s + stall);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->kind(), ErrorKind::unsafe_topology) << refused->what();
  for (Locker* const locker : {&holds, &busy}) {
    EXPECT_TRUE(fails_with(ErrorKind::unsafe_topology, [&] { (void)locker->acquire("u4"); }));
  }
  EXPECT_TRUE(eventually([&] {  // as soon as its connection was looked at
    const std::optional<Error> error = error_of([&] { (void)idle.try_acquire("u4"); });
    return error && error->kind() == ErrorKind::unsafe_topology;
  }));
  plain.ask("SET GLOBAL read_only=0");
  lock.reset();
  for (Locker* const locker : {&holds, &busy, &idle}) EXPECT_TRUE(locker->acquire("u1", {.timeout = 10s}).held());
}

HIERLOCK_ON_OWN_SERVERS(Dying);

// --- a server that rolls back too much ---------------------------------------------------------------------

TEST(RollbackOnTimeout, takes_away_a_lock_whose_extend_waits_and_the_holder_is_told) {  // B4, H9
  HIERLOCK_NEEDS_SERVER("MYSQL");
  mysql::enable();
  static const OwnServer own("mysql", "--with=innodb_rollback_on_timeout=ON", "undo");
  ASSERT_FALSE(own.url().empty()) << "tools/servers cannot start another mysql";
  const std::string url = own.url() + "?provision=lazy&table=undone";
  Locker one = hierlock::open(url), two = hierlock::open(url);
  bool found = false;
  for (const Finding& finding : doctor(url)) {
    if (finding.check != "rollback_on_timeout") continue;
    found = true;
    EXPECT_EQ(finding.verdict, Finding::Verdict::unsafe) << finding.text;
  }
  EXPECT_TRUE(found);
  Lock held = one.acquire("u1"), mine = two.acquire("u2");
  const Told told(mine);
  // A deadline that passes before the server's own does not end the transaction.
  EXPECT_TRUE(fails_with(ErrorKind::timeout, [&] { mine.extend("u1", {.timeout = 200ms}); }));
  EXPECT_TRUE(mine.held());
  EXPECT_FALSE(one.try_acquire("u2"));
  const auto begin = Clock::now();
  EXPECT_TRUE(fails_with(
      ErrorKind::lost, [&] { mine.extend("u1", {.timeout = 20s}); }, "innodb_rollback_on_timeout"));
  EXPECT_LT(Clock::now() - begin, 8s + stall);
  EXPECT_TRUE(eventually([&] { return told.moment().come(); }));
  EXPECT_FALSE(mine.held());
  mine.release();
  EXPECT_TRUE(one.acquire("u2", {.timeout = 5s}).held());
  // Whoever only acquires asks again, with everything anew.
  auto waits = std::async(std::launch::async, [&] { return error_of([&] { (void)two.acquire("u1"); }); });
  EXPECT_EQ(waits.wait_for(4s), std::future_status::timeout);
  held.release();
  EXPECT_FALSE(waits.get());
}

// --- silence ---------------------------------------------------------------------------------------------

// One of the servers, for tests that take long and therefore run on both at once.
class Engine {
 public:
  explicit Engine(const std::string& name)
      : name_(name), server_(server_url(name)), plain_(server_url(name + "_OPERATOR")) {
    static std::atomic<int> last{0};
    table_ = "mysql_silence_" + std::to_string(getpid()) + "_" + std::to_string(++last);
  }
  ~Engine() {
    if (getpid() != made_by_) return;
    (void)plain_.code_of("SET SESSION lock_wait_timeout=5");
    (void)plain_.code_of("DROP TABLE IF EXISTS `" + table_ + "`, `" + table_ + "_settings`, `" + table_ + "_notices`");
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const std::string& name() const { return name_; }
  const Server& server() const { return server_; }
  const std::string& table() const { return table_; }
  Locker open() const { return hierlock::open(server_.url("provision=lazy&table=" + table_)); }
  Locker open(const Relay& relay, const std::string& more = "") const {
    Server behind = server_;
    behind.port = relay.port();
    return hierlock::open(behind.url("provision=lazy&tls=off&table=" + table_ + (more.empty() ? "" : "&" + more)));
  }
  bool somebody_waits() {
    return plain_.one("SELECT COUNT(*) FROM information_schema.processlist WHERE INFO LIKE '%" + table_ +
                      "%' AND INFO LIKE '%UUID_SHORT(), CONNECTION_ID()%' AND COMMAND='Execute'") != "0";
  }

 private:
  const pid_t made_by_ = getpid();
  const std::string name_;
  const Server server_;
  Plain plain_;
  std::string table_;
};

class Silence : public testing::Test {
 protected:
  void SetUp() override {
    for (const std::string name : {"MYSQL", "MARIADB"}) {
      HIERLOCK_NEEDS_SERVER(name);
      HIERLOCK_NEEDS_SERVER(name + "_OPERATOR");
      mysql::enable();
      // These tests run beside others and hold locks all the time. MariaDB tells whoever asks for the status of any
      // table that there are such locks, so they are on another server than tests that look at the status.
      const std::string second = name + "_SECOND";
      engines_.push_back(std::make_unique<Engine>(server_variable(second + "_OPERATOR") ? second : name));
    }
  }
  // The same on each, at once.
  void on_both(const std::function<void(Engine&)>& work) {
    std::vector<std::thread> threads;
    for (const auto& engine : engines_) {
      threads.emplace_back([&work, &engine = *engine] {
        SCOPED_TRACE(engine.name());
        const std::optional<Error> error = error_of([&] { work(engine); });
        EXPECT_FALSE(error) << error->what();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const std::vector<std::unique_ptr<Engine>>& engines() const { return engines_; }

 private:
  std::vector<std::unique_ptr<Engine>> engines_;
};

TEST_F(Silence, a_holder_knows_that_its_lock_is_lost_before_the_server_frees_it) {  // B4, B5
  on_both([](Engine& engine) {
    Relay relay(engine.server().host, engine.server().port);
    Locker locker = engine.open(relay), other = engine.open();
    Lock lock = locker.acquire("u1/a1/r1");
    const Told told(lock);
    relay.pause();
    const auto begin = Clock::now();
    const Lock next = other.acquire("u1/a1/r1", {.timeout = 30s});
    const bool held = lock.held(), knew = told.moment().come();
    EXPECT_FALSE(held) << "two hold it";
    EXPECT_TRUE(knew);
    EXPECT_LT(Clock::now() - begin, vanished);
    EXPECT_TRUE(is_lost(lock));
    EXPECT_GT(told.moment().since(begin), 5s) << "a short silence is no loss";
    relay.resume();
    EXPECT_TRUE(next.held());
    EXPECT_TRUE(is_lost(lock));
  });
}

TEST_F(Silence, a_lock_that_is_held_for_long_is_kept_by_heartbeats) {  // B4
  on_both([](Engine& engine) {
    Relay relay(engine.server().host, engine.server().port);
    Locker locker = engine.open(relay), other = engine.open();
    Lock lock = locker.acquire("u1/a1/r1");
    const Told told(lock);
    relay.forget();
    const auto heartbeats = [&] {
      const std::vector<Relay::Command> said = relay.commands();
      return std::count_if(said.begin(), said.end(),
                           [](const auto& command) { return command.text.starts_with("SELECT CONNECTION_ID()"); });
    };
    const auto begin = Clock::now();
    EXPECT_TRUE(eventually([&] { return heartbeats() > 0; }, 8s));
    // Longer than the server's limit of 12 s.
    EXPECT_TRUE(eventually([&] { return Clock::now() - begin > 14s || !lock.held(); }));
    EXPECT_TRUE(lock.held());
    EXPECT_FALSE(told.moment().come());
    EXPECT_FALSE(other.try_acquire("u1/a1/r1")) << "the server says so, too";
    EXPECT_LT(heartbeats(), 8) << "and it does not take many";
  });
}

TEST_F(Silence, a_lock_is_kept_while_nobody_can_write_down_who_holds_and_waits) {  // B4
  on_both([](Engine& engine) {
    Locker locker = engine.open(), other = engine.open();
    Lock lock = locker.acquire("u1"), others = other.acquire("u2");
    const Told told(lock), others_told(others);
    Plain maintenance(server_url(engine.name() + "_OPERATOR"));
    maintenance.ask("LOCK TABLES `" + engine.table() + "_notices` WRITE");
    std::stop_source stop;
    auto waits = std::async(std::launch::async, [&] {  // and so looks there for cycles
      return error_of([&] { (void)locker.acquire("u2", {.cancel = stop.get_token()}); });
    });
    const auto begin = Clock::now();
    EXPECT_TRUE(eventually([&] { return Clock::now() - begin > 14s || !lock.held() || !others.held(); }));
    EXPECT_TRUE(lock.held());
    EXPECT_TRUE(others.held());
    EXPECT_FALSE(told.moment().come() || others_told.moment().come());
    stop.request_stop();
    EXPECT_TRUE(waits.get());
    maintenance.ask("UNLOCK TABLES");
  });
}

TEST_F(Silence, a_lock_is_kept_beside_many_idle_connections_to_a_server_far_away) {  // B4
  on_both([](Engine& engine) {
    constexpr int many = 60;
    Relay relay(engine.server().host, engine.server().port);
    Locker locker = engine.open(relay, "connections=" + std::to_string(many + 1));
    std::vector<Lock> burst;
    for (int i = 0; i < many; ++i) burst.push_back(locker.acquire("b" + std::to_string(i)));
    Lock lock = locker.acquire("u1");
    const Told told(lock);
    relay.delay(100ms);
    std::vector<std::thread> threads;
    for (Lock& other : burst) threads.emplace_back([&other] { other.release(); });
    for (std::thread& thread : threads) thread.join();
    const auto begin = Clock::now();
    EXPECT_TRUE(eventually([&] { return Clock::now() - begin > 18s || !lock.held(); }, 25s));
    EXPECT_TRUE(lock.held()) << (Clock::now() - begin) / 1ms << " ms";
    EXPECT_FALSE(told.moment().come());
    EXPECT_GE(relay.open(), std::size_t{many} / 2) << "and they are kept, too, as far as they answer in time";
  });
}

TEST_F(Silence, a_release_in_the_middle_of_an_unanswered_heartbeat_takes_a_second_at_most) {  // B6
  const auto attempt = [](Engine& engine) {
    Relay relay(engine.server().host, engine.server().port);
    Locker locker = engine.open(relay);
    Lock lock = locker.acquire("u1/a1/r1", {.timeout = 30s});
    relay.pause();
    const auto begin = Clock::now();
    EXPECT_TRUE(eventually([&] { return Clock::now() - begin > 4s; }));  // one is sent after 3 s
    const auto took = time_of([&] { lock.release(); });
    EXPECT_TRUE(fails_with(ErrorKind::timeout, [&] { (void)locker.acquire("u1/a1/r1", {.timeout = 1s}); }));
    relay.cut();
    relay.resume();
    EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locker.acquire("u1/a1/r1", {.timeout = 1s}); }); }))
        << "its connection was closed and is free";
    return took;
  };
  on_both([&](Engine& engine) { EXPECT_TRUE(once_within(released, [&] { return attempt(engine); })); });
}

TEST_F(Silence,
       an_extend_in_the_middle_of_an_unanswered_heartbeat_ends_in_time_and_the_lock_is_what_it_was) {  // H2, B4
  const auto attempt = [](Engine& engine) {
    Relay relay(engine.server().host, engine.server().port);
    Locker locker = engine.open(relay);
    Lock lock = locker.acquire("u1/a1/r1", {.timeout = 30s});
    relay.pause();
    const auto begin = Clock::now();
    EXPECT_TRUE(eventually([&] { return Clock::now() - begin > 4s; }));  // one is sent after 3 s
    std::stop_source stop;
    stop.request_stop();
    std::optional<Error> late, cancelled;
    const auto took =
        std::max(time_of([&] { late = error_of([&] { lock.extend("u2", {.timeout = 100ms}); }); }),
                 time_of([&] { cancelled = error_of([&] { lock.extend("u2", {.cancel = stop.get_token()}); }); }));
    if (took >= at_once) return took;  // so late that the lock may be lost
    EXPECT_TRUE(late && late->kind() == ErrorKind::timeout) << (late ? late->what() : "granted");
    EXPECT_TRUE(cancelled && cancelled->kind() == ErrorKind::cancelled) << (cancelled ? cancelled->what() : "granted");
    EXPECT_TRUE(lock.held());
    relay.resume();
    lock.extend("u2", {.timeout = 5s});
    EXPECT_TRUE(lock.held());
    return took;
  };
  on_both([&](Engine& engine) { EXPECT_TRUE(once_within(at_once, [&] { return attempt(engine); })); });
}

TEST_F(Silence, a_waiter_that_is_killed_is_out_of_the_way_within_15_s) {  // B5
  std::vector<std::unique_ptr<Locker>> holders;
  std::vector<Lock> held;
  std::vector<std::unique_ptr<Process>> waiters;
  for (const auto& engine : engines()) {
    // Its exclusive request for u1 waits for a lock below u1; whoever asks for another below u1 waits behind it.
    waiters.push_back(std::make_unique<Process>([&] {
      Locker locker = engine->open();
      for (;; std::this_thread::sleep_for(5ms)) (void)locker.acquire("u1");  // until somebody holds below it
    }));
  }
  for (const auto& engine : engines()) {
    holders.push_back(std::make_unique<Locker>(engine->open()));
    held.push_back(holders.back()->acquire("u1/a1/r1"));
  }
  on_both([&](Engine& engine) {
    const std::size_t i = &engine == engines()[0].get() ? 0 : 1;
    ASSERT_TRUE(eventually([&] { return engine.somebody_waits(); }));
    Locker other = engine.open();
    EXPECT_FALSE(other.try_acquire("u1/a2/r2"));
    waiters[i]->kill();
    const auto begin = Clock::now();
    EXPECT_TRUE(other.acquire("u1/a2/r2", {.timeout = 30s}).held());
    EXPECT_LT(Clock::now() - begin, vanished);
    EXPECT_TRUE(held[i].held());
  });
}

TEST_F(Silence, a_child_does_not_keep_alive_what_its_killed_parent_held) {  // B5, B6
  std::vector<std::unique_ptr<Process>> parents;
  std::vector<int> children;
  for (const auto& engine : engines()) {
    int numbers[2];
    ASSERT_EQ(pipe(numbers), 0);
    parents.push_back(std::make_unique<Process>([&] {
      static Locker locker = engine->open();
      static Lock lock = locker.acquire("u1/a1/r1");
      const pid_t test = getppid(), child = fork();
      if (child == 0) {
        while (kill(test, 0) == 0) sleep(1);  // with the parent's sockets, as long as the test runs
        _exit(0);
      }
      (void)!write(numbers[1], &child, sizeof child);
    }));
    ASSERT_TRUE(parents.back()->ready());
    pid_t child = 0;
    ASSERT_EQ(read(numbers[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
    close(numbers[0]);
    close(numbers[1]);
    children.push_back(child);
  }
  on_both([&](Engine& engine) {
    const std::size_t i = &engine == engines()[0].get() ? 0 : 1;
    Locker other = engine.open();
    EXPECT_FALSE(other.try_acquire("u1/a1/r1"));
    parents[i]->kill();
    const auto begin = Clock::now();
    EXPECT_TRUE(other.acquire("u1/a1/r1", {.timeout = 30s}).held());
    EXPECT_LT(Clock::now() - begin, vanished);
    EXPECT_EQ(kill(children[i], 0), 0) << "the child lives";
    kill(children[i], SIGKILL);
  });
}

TEST_F(Silence, a_waiter_that_vanishes_is_out_of_the_way_within_15_s) {  // B5
  on_both([](Engine& engine) {
    Relay relay(engine.server().host, engine.server().port);
    Locker locker = engine.open(), vanishes = engine.open(relay), other = engine.open();
    const Lock lock = locker.acquire("u1/a1/r1");
    auto waits = std::async(std::launch::async,
                            [&] { return error_of([&] { (void)vanishes.acquire("u1", {.timeout = 14s}); }); });
    EXPECT_TRUE(eventually([&] { return engine.somebody_waits(); }));
    relay.pause();
    const auto begin = Clock::now();
    EXPECT_TRUE(other.acquire("u1/a2/r2", {.timeout = 30s}).held());
    EXPECT_LT(Clock::now() - begin, vanished);
    EXPECT_TRUE(lock.held());
    relay.cut();
    EXPECT_TRUE(waits.get());
  });
}

TEST_F(Silence, a_lock_that_is_granted_to_a_waiter_that_has_vanished_is_free_within_15_s) {  // B5
  // Once the vanished waiter is at its first question, once it has asked again.
  const auto scenario = [](Engine& engine, const std::string& path, int questions,
                           std::chrono::milliseconds until_release) {
    Relay relay(engine.server().host, engine.server().port);
    Locker locker = engine.open(), vanishes = engine.open(relay), other = engine.open();
    Lock lock = locker.acquire(path);
    (void)vanishes.try_acquire(path);  // the session is there
    relay.forget();
    auto waits = std::async(std::launch::async,
                            [&] { return error_of([&] { (void)vanishes.acquire(path, {.timeout = 20s}); }); });
    EXPECT_TRUE(eventually([&] {
      const std::vector<Relay::Command> said = relay.commands();
      return questions == std::count_if(said.begin(), said.end(), locks);
    }));
    EXPECT_TRUE(eventually([&] { return engine.somebody_waits(); }));
    relay.pause();
    const auto begin = Clock::now();
    EXPECT_TRUE(eventually([&] { return Clock::now() - begin > until_release; }));
    lock.release();
    EXPECT_TRUE(other.acquire(path, {.timeout = 30s}).held());
    EXPECT_LT(Clock::now() - begin, vanished);
    relay.cut();
    EXPECT_TRUE(waits.get());
  };
  on_both([&](Engine& engine) {
    auto first = std::async(std::launch::async, [&] { scenario(engine, "u1", 1, 1500ms); });
    Engine again(engine.name());  // sessions are not shared by threads
    scenario(again, "u2", 2, 9s);
    first.get();
  });
}

// --- machines that vanish --------------------------------------------------------------------------------

class Vanishing : public testing::Test {
 protected:
  static void vanish(const std::string& engine, const Machines& machines) {
    std::unique_ptr<OwnServer> own;
    machines.at_server([&] { own = std::make_unique<OwnServer>(engine, "", "away"); });
    ASSERT_FALSE(own->url().empty()) << "tools/servers cannot start another " << engine;
    const std::string url = own->url() + "?provision=lazy&table=vanishing";
    machines.at_client([&] {
      Locker locker = hierlock::open(url), second = hierlock::open(url);
      Lock lock = locker.acquire("u1/a1/r1");
      const Told told(lock);
      std::promise<void> busy, cut;
      auto there = std::async(std::launch::async, [&] {
        machines.at_server([&] {
          Locker other = hierlock::open(url);
          const Lock kept = other.acquire("u2");
          Plain plain(own->operator_url());
          busy.set_value();
          EXPECT_TRUE(eventually([&] {
            return plain.one(
                       "SELECT COUNT(*) FROM information_schema.processlist WHERE INFO LIKE '%UUID_SHORT(), "
                       "CONNECTION_ID()%' AND "
                       "COMMAND='Execute'") != "0";
          }));
          machines.cut();
          const auto begin = Clock::now();
          cut.set_value();
          const Lock next = other.acquire("u1/a1/r1", {.timeout = 30s});
          const bool held = lock.held(), knew = told.moment().come();
          EXPECT_FALSE(held) << "two hold it";  // B4
          EXPECT_TRUE(knew);
          EXPECT_LT(Clock::now() - begin, vanished);  // B5
          EXPECT_TRUE(kept.held());
        });
      });
      busy.get_future().wait();
      // Without a deadline: a server that is gone must not be waited for until it comes back.
      auto waits = std::async(std::launch::async, [&] { return error_of([&] { (void)second.acquire("u2"); }); });
      cut.get_future().wait();
      EXPECT_EQ(waits.wait_for(25s + stall), std::future_status::ready);
      there.get();
      EXPECT_TRUE(is_lost(lock));
      const auto begin = Clock::now();
      lock.release();
      EXPECT_LT(Clock::now() - begin, released + stall);  // B6
      if (waits.wait_for(0s) != std::future_status::ready) own.reset();
      const std::optional<Error> error = waits.get();
      EXPECT_TRUE(error && error->kind() == ErrorKind::unavailable) << (error ? error->what() : "granted");
    });
  }
};

TEST_F(Vanishing, a_holder_that_cannot_be_reached_knows_before_the_server_frees_its_lock) {  // B4, B5
  for (const char* const name : {"MYSQL", "MARIADB"}) HIERLOCK_NEEDS_SERVER(name);
  if (std::system("ip -V >/dev/null 2>&1") != 0) {
    if (in_ci()) FAIL() << "there is no ip: install iproute2";
    GTEST_SKIP() << "there is no ip: install iproute2";
  }
  HIERLOCK_NEEDS_RIGHT(make_network);
  mysql::enable();
  std::vector<std::unique_ptr<Machines>> machines;
  try {
    for (int i = 0; i < 2; ++i) machines.push_back(std::make_unique<Machines>());
  } catch (const std::runtime_error& error) {
    GTEST_SKIP() << error.what();
  }
  auto other = std::async(std::launch::async, [&] {
    SCOPED_TRACE("mysql");
    vanish("mysql", *machines[0]);
  });
  SCOPED_TRACE("mariadb");
  vanish("mariadb", *machines[1]);
  other.get();
}

}  // namespace
}  // namespace hierlock::mysql_tests
