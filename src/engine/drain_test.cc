// Drain: thousands that wait for one name get it one after the other, or all at once, in a time that grows with their
// number and not with its square.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <hierlock/error.h>

#include "engine/engine.h"

namespace hierlock::engine {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int most_waiters = 200;
constexpr int slowness = 10;
#else
constexpr int most_waiters = 4000;
constexpr int slowness = 1;
#endif

// Counts those who have come to wait.
class Arrivals final : public spi::WaitObserver {
 public:
  explicit Arrivals(std::atomic<int>& arrived) : arrived_(arrived) {}
  nanoseconds waits(const spi::Waiting&) noexcept override {
    ++arrived_;
    return std::chrono::hours(1);
  }

 private:
  std::atomic<int>& arrived_;
};

struct Waiters {
  Engine& engine;
  const Target& target;
  std::atomic<int> arrived{0}, granted{0}, late{0};
  Clock::time_point deadline = Clock::now() + std::chrono::seconds(20) * slowness;
};

void* wait_and_release(void* argument) {
  Waiters& all = *static_cast<Waiters*>(argument);
  const spi::Plan plan(all.target);
  Arrivals arrivals(all.arrived);
  const auto grant = all.engine.acquire({.plan = plan, .deadline = all.deadline, .observer = &arrivals});
  if (grant) {
    ++all.granted;
    all.engine.release(*grant);
  } else {
    ++all.late;
  }
  return nullptr;
}

nanoseconds used_by_this_process() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto of = [](const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return of(use.ru_utime) + of(use.ru_stime);
}

// What it takes from the release of what they wait for until the last of them is done.
struct Took {
  nanoseconds time, used;
};
Took drain(Engine& engine, const Target& held, const Target& asked, int count) {
  const spi::Plan plan(held);
  const auto first = engine.acquire({.plan = plan, .no_wait = true});
  EXPECT_TRUE(first.has_value());
  Waiters all{engine, asked};
  pthread_attr_t small{};
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 * 1024);
  std::vector<pthread_t> threads(static_cast<std::size_t>(count));
  for (pthread_t& thread : threads) {
    if (pthread_create(&thread, &small, wait_and_release, &all) != 0) std::abort();
  }
  pthread_attr_destroy(&small);
  while (all.arrived < count && Clock::now() < all.deadline) usleep(1000);
  EXPECT_EQ(all.arrived, count);
  const Clock::time_point begin = Clock::now();
  const nanoseconds used = used_by_this_process();
  engine.release(*first);
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  const Took took{Clock::now() - begin, used_by_this_process() - used};
  EXPECT_EQ(all.granted, count) << all.late << " gave up";
  return took;
}

struct Case {
  friend void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }
  const char* name;
  bool in_file;
  Target held, asked;
};

class Drain : public testing::TestWithParam<Case> {
 protected:
  ~Drain() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  std::unique_ptr<Engine> open() {
    if (!GetParam().in_file) return std::make_unique<Engine>(Capacity::for_locks(100'000), Owners::per_thread);
    char name[] = "/dev/shm/hierlock-drain-XXXXXX";
    if (mkdtemp(name) == nullptr) std::abort();
    folder_ = name;
    FileOptions options;
    options.path = folder_ + "/table";
    options.capacity = Capacity::for_locks(100'000, 2048);
    return std::make_unique<Engine>(options, Owners::per_thread);
  }

 private:
  std::string folder_;
};

TEST_P(Drain, of_thousands_takes_less_than_a_second) {  // B12
  const std::unique_ptr<Engine> engine = open();
  const Took fewer = drain(*engine, GetParam().held, GetParam().asked, most_waiters / 4);
  const Took many = drain(*engine, GetParam().held, GetParam().asked, most_waiters);
  const auto ms = [](nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); };
  std::printf("%s: %d in %.0f ms (%.0f ms of a core), %d in %.0f ms (%.0f ms)\n", GetParam().name, most_waiters / 4,
              ms(fewer.time), ms(fewer.used), most_waiters, ms(many.time), ms(many.used));
  // Of a core: each handing over waits for the scheduler, and on a busy machine that takes as long as it takes.
  EXPECT_LT(many.used, std::chrono::seconds(1) * slowness);
  // Four times as many take four times as much, and twice that for what a busy machine adds. The square would be
  // sixteen times.
  EXPECT_LT(many.used, 8 * std::max<nanoseconds>(fewer.used, milliseconds(60)));
  EXPECT_EQ(engine->table().look().check(), "");
}

INSTANTIATE_TEST_SUITE_P(, Drain,
                         testing::Values(Case{"exclusive_in_memory", false, named("n"), named("n")},
                                         Case{"shared_in_memory", false, named("n"), shared(named("n"))},
                                         Case{"slots_in_memory", false, slots("s", 1), slots("s", 1)},
                                         Case{"exclusive_in_a_file", true, named("n"), named("n")},
                                         Case{"shared_in_a_file", true, named("n"), shared(named("n"))},
                                         Case{"slots_in_a_file", true, slots("s", 1), slots("s", 1)}),
                         [](const testing::TestParamInfo<Case>& one) { return one.param.name; });

}  // namespace
}  // namespace hierlock::engine
