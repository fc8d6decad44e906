// Many waiters, many locks (B12).
#include <thread>
#include <vector>

#include "on_valkey.h"

namespace hierlock::valkey_tests {
namespace {

class Size : public OnValkey {};

TEST_P(Size, a_thousand_waiters_at_the_server_are_all_served) {  // B12
  Locker holder = hierlock::open(url()), waiting = hierlock::open(url("gate=off"), {.owners = Owners::per_handle});
  std::optional<Lock> lock = holder.acquire("u1");
  constexpr int many = 1'000;
  std::atomic<int> granted{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < many; ++i) {
    threads.emplace_back([&, i] {
      const Lock got = waiting.acquire("u1/a" + std::to_string(i), {.timeout = 120s});
      ++granted;
    });
  }
  const std::string place = [&] {
    const std::string keys = ask("KEYS 'hl:" + table() + ":{p[0-9a-f]*'");  // not {probe}, which open() leaves
    return keys.substr(0, keys.find('}') + 1);
  }();
  const auto fields = [&] { return std::stoi("0" + ask("HLEN '" + place + "'")); };
  EXPECT_TRUE(eventually([&] { return fields() > many; }, 60s)) << "each has a record there";
  EXPECT_EQ(granted, 0);
  lock.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(granted, many);
}

TEST_P(Size, ten_thousand_locks_are_held_for_longer_than_their_leases) {  // B12
  Locker locker = hierlock::open(url("lease=8000"));
  std::vector<Lock> locks;
  const auto begin = Clock::now();
  for (int i = 0; i < 10'000; ++i) locks.push_back(locker.acquire(named("n" + std::to_string(i))));
  const auto end = std::max(begin + 9s, Clock::now());
  EXPECT_TRUE(eventually([&] { return Clock::now() > end; }));
  Locker other = hierlock::open(url("lease=8000"));
  int lost = 0;
  for (const Lock& lock : locks) lost += lock.held() ? 0 : 1;
  EXPECT_EQ(lost, 0);
  for (int i = 0; i < 10'000; i += 100) EXPECT_FALSE(other.try_acquire(named("n" + std::to_string(i)))) << i;
}

INSTANTIATE_TEST_SUITE_P(, Size, testing::Values("VALKEY"), [](const auto& server) { return server.param; });

}  // namespace
}  // namespace hierlock::valkey_tests
