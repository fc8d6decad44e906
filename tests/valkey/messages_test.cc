// A message wakes a waiter. Without it a wait takes longer, and nothing else.
#include "on_valkey.h"

namespace hierlock::valkey_tests {
namespace {

class Messages : public OnValkey {
 protected:
  void TearDown() override { ask("ACL SETUSER app +publish"); }

  // How long a waiter of another Locker waits after the release.
  std::chrono::nanoseconds time_to_wake() {
    Locker holder = hierlock::open(url()), other = hierlock::open(url("publish_after=0"));
    std::optional<Lock> lock = holder.acquire("u1");
    Clock::time_point granted;
    std::thread waiter([&] {
      const Lock got = other.acquire("u1");
      granted = Clock::now();
    });
    EXPECT_TRUE(eventually([&] { return holder.snapshot().anybody_waits("u1"); }));
    const Clock::time_point released = Clock::now();
    lock.reset();
    waiter.join();
    return granted - released;
  }
};

TEST_P(Messages, wake_a_waiter_long_before_it_would_ask) {
  std::vector<std::chrono::nanoseconds> times;
  for (int i = 0; i < 9; ++i) times.push_back(time_to_wake());
  std::sort(times.begin(), times.end());
  EXPECT_LT(times[4], 200ms) << "without a message a waiter asks about once a second";
}

TEST_P(Messages, that_are_all_lost_cost_time_only) {
  Locker first = hierlock::open(url());
  ask("ACL SETUSER app -publish");
  EXPECT_LT(time_to_wake(), 3s + stall);
}

// A listening connection that was cut is made again.
TEST_P(Messages, are_heard_again_after_the_connection_was_cut) {
  Locker holder = hierlock::open(url()), other = hierlock::open(url("publish_after=0"));
  { const Lock once = other.acquire("u2"); }
  ask("CLIENT KILL TYPE pubsub");
  for (int i = 0; i < 3; ++i) EXPECT_LT(time_to_wake(), 3s + stall);
}

INSTANTIATE_TEST_SUITE_P(, Messages, testing::Values("VALKEY"), [](const auto& server) { return server.param; });

}  // namespace
}  // namespace hierlock::valkey_tests
