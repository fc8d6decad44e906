// Many waiters, many locks (B12).
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>
#include <vector>

#include "node.h"
#include "on_valkey.h"

namespace hierlock::valkey_tests {
namespace {

class Size : public OnValkey {
 protected:
  // So many requests want one path for themselves, and stand in the server's queue. Each is told that it is granted,
  // and gives its lock back. Returns the microseconds that a script takes in this time, by the server's clock.
  double cost_of_serving(int many) {
    const std::string place = "hl:" + table() + ":{p" + std::to_string(many) + "}";
    const std::string script = server_.ask({"SCRIPT", "LOAD", script_});
    const auto run = [&](const std::vector<std::string>& arguments) {
      std::vector<std::string> words{"EVALSHA", script, "3", place, place + ":l", place + ":q"};
      words.insert(words.end(), arguments.begin(), arguments.end());
      return server_.ask(words);
    };
    const auto take = [&](int i) {
      return run({"take", "a" + std::to_string(i), "60000", "0", "0", "1", "0 1 7 hl:x", "u1\n2\n0\nu1/a\n4\n0\n"});
    };
    for (int i = 0; i < many; ++i) EXPECT_TRUE(take(i).starts_with(i == 0 ? "granted" : "waiting"));
    EXPECT_EQ(server_.ask({"ZCARD", place + ":q"}), std::to_string(many)) << "all but the first, and one that is none";
    server_.ask({"CONFIG", "RESETSTAT"});
    for (int i = 0; i < many; ++i) {
      EXPECT_TRUE(take(i).starts_with("granted")) << i << " is next";
      EXPECT_EQ(run({"drop", "a" + std::to_string(i), "0", "0"}), "busy\n");
    }
    const std::string stats = server_.ask({"INFO", "commandstats"}), name = "usec_per_call=";
    const double cost = std::stod(stats.substr(stats.find(name, stats.find("cmdstat_evalsha:")) + name.size()));
    std::cout << many << " in a queue: " << cost << " us for a script" << std::endl;
    return cost;
  }

 private:
  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const std::string script_ = text_of(HIERLOCK_LOCKS_LUA);
  Node server_{"server", server_variable(GetParam() + "_OPERATOR").value_or("")};
};

// If a script looked at all who wait, one of 3,000 would take up to twelve times as long as one of 250.
TEST_P(Size, thousands_in_a_queue_cost_no_more_each_than_250) {  // B12
  for (int attempt = 0; attempt < 5 && !HasFailure(); ++attempt) {
    const double few = cost_of_serving(250), many = cost_of_serving(3000);
    if (many < 1.5 * few) return;
  }
  ADD_FAILURE() << "a script takes the longer the more wait";
}

// In twenty processes, as it were. In each of them fifty wait.
TEST_P(Size, a_thousand_waiters_for_one_path_are_served_by_default) {  // B12
  Locker holder = hierlock::open(url());
  std::vector<Locker> lockers;
  for (int i = 0; i < 20; ++i) lockers.push_back(hierlock::open(url()));
  std::optional<Lock> lock = holder.acquire("u1/a", {.timeout = 30s});
  constexpr int many = 1'000;
  std::atomic<int> asked{0}, inside{0}, most{0}, granted{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < many; ++i) {
    threads.emplace_back([&, i] {
      ++asked;
      const Lock got = lockers[static_cast<std::size_t>(i) % lockers.size()].acquire("u1/a", {.timeout = 120s});
      most = std::max(most.load(), ++inside);
      ++granted;
      --inside;
    });
  }
  const auto queued = [&] { return std::stoul("0" + ask("ZCARD '" + place_of(url(), "u1") + ":q'")); };
  EXPECT_TRUE(eventually([&] { return asked == many && queued() > lockers.size(); }, 60s));
  EXPECT_EQ(granted, 0);
  const auto begin = Clock::now();
  lock.reset();
  for (std::thread& thread : threads) thread.join();
  const auto took = std::chrono::ceil<std::chrono::milliseconds>(Clock::now() - begin);
  std::cout << "1,000 waiters in 20 Lockers: " << took.count() << " ms" << std::endl;
  EXPECT_EQ(granted, many);
  EXPECT_EQ(most, 1) << "several had it at once";
  EXPECT_LT(took, 5s);
}

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
