// A machine whose cable is cut: its locks and its places in queues end with their leases, and it knows before.
#include <future>

#include "on_valkey.h"
#include "support/machines.h"
#include "support/own_server.h"
#include "support/rights.h"

namespace hierlock::valkey_tests {
namespace {

TEST(CutOff, a_holder_knows_before_another_gets_its_lock) {  // B4, B5
  HIERLOCK_NEEDS_SERVER("VALKEY");
  if (std::system("ip -V >/dev/null 2>&1") != 0) {
    if (in_ci()) FAIL() << "there is no ip: install iproute2";
    GTEST_SKIP() << "there is no ip: install iproute2";
  }
  HIERLOCK_NEEDS_RIGHT(make_network);
  valkey::enable();
  std::optional<Machines> machines;
  try {
    machines.emplace();
  } catch (const std::runtime_error& error) {
    GTEST_SKIP() << error.what();
  }
  std::unique_ptr<OwnServer> own;
  machines->at_server([&] { own = std::make_unique<OwnServer>("valkey", "", "away"); });
  ASSERT_FALSE(own->url().empty()) << "tools/servers cannot start another valkey";
  const std::string url = own->url() + "?lease=2000&publish_after=0&table=cut_off";

  std::promise<void> held_there, waits_here;
  const auto there = [&](const Lock& lock, const std::stop_token& told) {
    machines->at_server([&] {
      Locker other = hierlock::open(url), third = hierlock::open(url);
      std::optional<Lock> kept = other.acquire("u2", {.timeout = 30s});
      held_there.set_value();
      waits_here.get_future().wait();
      EXPECT_TRUE(eventually([&] { return other.snapshot().anybody_waits("u2"); }));
      machines->cut();
      const Lock next = other.acquire("u1/a1", {.timeout = 30s});
      const bool held = lock.held();
      EXPECT_FALSE(held) << "two hold it";
      EXPECT_TRUE(eventually([&] { return told.stop_requested(); }));
      kept.reset();
      EXPECT_TRUE(third.try_acquire("u2", 20s).has_value()) << "a place in the queue ends with its lease, too";
    });
  };
  machines->at_client([&] {
    Locker locker = hierlock::open(url), second = hierlock::open(url);
    Lock lock = locker.acquire("u1/a1", {.timeout = 30s});
    const std::stop_token told = lock.lost();
    auto server_side = std::async(std::launch::async, [&] { there(lock, told); });
    held_there.get_future().wait();
    // Without a deadline: a server that is gone must not be waited for until it comes back.
    auto waits = std::async(std::launch::async, [&] {
      return fails_with(ErrorKind::unavailable, [&] { static_cast<void>(second.acquire("u2")); });
    });
    waits_here.set_value();
    server_side.get();
    EXPECT_TRUE(waits.get());
    EXPECT_TRUE(fails_with(ErrorKind::lost, [&] { static_cast<void>(lock.fence()); }));
    const auto begin = Clock::now();
    lock.release();
    EXPECT_LT(Clock::now() - begin, 3s);  // B6: 1 s, on a machine that does nothing else
  });
}

}  // namespace
}  // namespace hierlock::valkey_tests
