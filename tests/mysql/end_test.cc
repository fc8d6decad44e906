// The end of a Locker: its thread and its connections go with it or, if a Lock outlives it, with the last of those,
// whoever else has used it and lives on.
#include <barrier>
#include <filesystem>
#include <latch>

#include "on_server.h"
#include "relay.h"

namespace hierlock::mysql_tests {
namespace {

// A thread that does something, and lives on.
class Bystander {
 public:
  explicit Bystander(const std::function<void()>& does)
      : thread_([this, does] {
          does();
          done_.count_down();
          end_.wait();
        }) {
    done_.wait();
  }
  ~Bystander() {
    end_.count_down();
    thread_.join();
  }
  Bystander(const Bystander&) = delete;
  Bystander& operator=(const Bystander&) = delete;

 private:
  std::latch done_{1}, end_{1};
  std::thread thread_;
};

class End : public OnServer {
 protected:
  void SetUp() override {
    OnServer::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    relay_ = std::make_unique<Relay>(server().host, server().port);
    behind_ = server();
    behind_->port = relay_->port();
    before_ = threads();
    for (int i = 0; i < 20; ++i) {  // those of the last test may still be ending
      std::this_thread::sleep_for(1ms);
      before_ = std::min(before_, threads());
    }
  }
  std::unique_ptr<Locker> open_behind(const std::string& more = "") const {
    return std::make_unique<Locker>(hierlock::open(url(*behind_, "tls=off" + (more.empty() ? "" : "&" + more))));
  }
  Relay& relay() { return *relay_; }
  // That there are no connections any more, and no threads but so many of the test's own.
  testing::AssertionResult all_gone(int own_threads) {
    if (eventually([&] { return relay_->open() == 0 && threads() <= before_ + own_threads; })) {
      return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << relay_->open() << " connections are open, " << threads() - before_
                                       << " threads run";
  }
  std::string written_down() { return plain().one("SELECT COUNT(*) FROM `" + table() + "_notices`"); }

 private:
  static int threads() {
    using std::filesystem::directory_iterator;
    return static_cast<int>(std::distance(directory_iterator("/proc/self/task"), directory_iterator()));
  }
  std::unique_ptr<Relay> relay_;
  std::optional<Server> behind_;
  int before_ = 0;
};

TEST_P(End, takes_thread_and_connections_though_a_thread_that_used_the_locker_lives_on) {  // B6
  std::unique_ptr<Locker> locker = open_behind();
  const Bystander bystander([&] {
    const Lock one = locker->acquire("u1"), two = locker->acquire("u2");
    (void)locker->snapshot();
  });
  EXPECT_GE(relay().open(), 3u);
  locker.reset();
  EXPECT_TRUE(all_gone(1));
}

TEST_P(End, of_a_locker_that_never_locked_closes_its_connection) {  // B6
  std::unique_ptr<Locker> locker = open_behind();
  const Bystander bystander([&] { (void)locker->stats(); });
  EXPECT_EQ(relay().open(), 1u);
  locker.reset();
  EXPECT_TRUE(all_gone(1));
}

TEST_P(End, leaves_a_lock_that_outlives_the_locker_as_it_was_until_its_release) {  // B4, B6
  std::unique_ptr<Locker> locker = open_behind("publish_after=100");
  Lock lock;
  const Bystander bystander([&] { lock = locker->acquire("u1"); });
  locker.reset();
  EXPECT_TRUE(eventually([&] { return written_down() == "1"; })) << "somebody looks after it";
  lock.extend("u2", {.timeout = 5s});
  EXPECT_TRUE(lock.held());
  EXPECT_EQ(locked().size(), 2u);
  lock.release();
  EXPECT_TRUE(eventually([&] { return written_down() == "0"; }));
  EXPECT_TRUE(all_gone(1));
  EXPECT_TRUE(all_free());
}

TEST_P(End, comes_with_the_last_of_several_locks) {  // B6
  std::unique_ptr<Locker> locker = open_behind();
  std::vector<Lock> locks;
  const Bystander bystander([&] {
    for (const char* const path : {"u1", "u2", "u3"}) locks.push_back(locker->acquire(path));
  });
  locker.reset();
  locks.pop_back();
  locks.pop_back();
  EXPECT_TRUE(locks.front().held());
  EXPECT_GE(relay().open(), 1u);
  locks.clear();
  EXPECT_TRUE(all_gone(1));
}

TEST_P(End, comes_once_whoever_is_the_last_of_those_who_release_and_the_locker_itself) {  // B6
  constexpr int rounds = 60, crew = 2;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    std::unique_ptr<Locker> locker = open_behind("publish_after=" + std::to_string(round % 3 == 0 ? 0 : 1000));
    std::barrier all(crew + 1);
    std::latch looked(1);
    std::vector<std::thread> threads;
    for (int t = 0; t < crew; ++t) {
      threads.emplace_back([&, t] {
        Lock lock = locker->acquire("u" + std::to_string(t));
        all.arrive_and_wait();
        lock.release();
        looked.wait();
      });
    }
    all.arrive_and_wait();
    locker.reset();
    EXPECT_TRUE(all_gone(crew));
    looked.count_down();
    for (std::thread& thread : threads) thread.join();
    if (HasFailure()) break;
  }
  EXPECT_TRUE(eventually([&] { return written_down() == "0"; }));
}

TEST_P(End, comes_when_the_last_lock_is_released_by_whoever_is_told_of_its_loss) {  // B4, B6
  std::unique_ptr<Locker> locker = open_behind();
  Lock lock;
  const Bystander bystander([&] { lock = locker->acquire("u1"); });
  locker.reset();
  {
    const std::stop_callback told(lock.lost(), [&] { lock.release(); });
    relay().cut();
    EXPECT_TRUE(all_gone(1));
  }
  EXPECT_FALSE(lock.held());
}

TEST_P(End, may_come_where_a_loss_is_told) {  // B4, B6
  std::unique_ptr<Locker> locker = open_behind();
  Lock lock;
  const Bystander bystander([&] { lock = locker->acquire("u1"); });
  {
    const std::stop_callback told(lock.lost(), [&] {
      lock.release();
      locker.reset();
    });
    relay().cut();
    EXPECT_TRUE(all_gone(1));
  }
  EXPECT_EQ(locker, nullptr);
}

TEST_P(End, comes_though_a_connection_is_still_being_made_that_nobody_waits_for) {  // B6
  EXPECT_TRUE(once_within(1300ms, [&] {
    std::unique_ptr<Locker> locker = open_behind();
    const std::size_t before = relay().connections();
    const Bystander bystander([&] {
      const Lock lock = locker->acquire("u1");
      relay().pause();
      EXPECT_FALSE(locker->try_acquire("u2", 100ms));
      EXPECT_TRUE(eventually([&] { return relay().connections() > before; }));
      relay().resume();
      relay().delay(200ms);
    });
    const auto took = time_of([&] { locker.reset(); });
    EXPECT_TRUE(all_gone(1));
    relay().delay(0ms);
    return took;
  }));
}

TEST_P(End, takes_a_second_at_most_where_the_server_does_not_answer) {  // B6
  for (const bool outlives : {false, true}) {
    SCOPED_TRACE(outlives);
    EXPECT_TRUE(once_within(1300ms, [&] {
      std::unique_ptr<Locker> locker = open_behind("publish_after=0");
      std::optional<Lock> lock;
      const Bystander bystander([&] { lock = locker->acquire("u1"); });
      if (outlives) locker.reset();
      relay().pause();
      const auto release = time_of([&] { lock.reset(); }), close = time_of([&] { locker.reset(); });
      relay().resume();  // until then it does not hear of what was closed
      EXPECT_TRUE(all_gone(1));
      relay().cut();
      return std::max(release, close);
    }));
  }
}

HIERLOCK_ON_BOTH_SERVERS(End);

}  // namespace
}  // namespace hierlock::mysql_tests
