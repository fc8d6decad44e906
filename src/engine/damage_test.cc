// Damage: bits of a table that others have changed at random. Whatever it says then, nothing crashes, nothing is
// touched that is not the table's, and every call comes back (rule 6 of the design). A changed description is noticed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <hierlock/error.h>

#include "engine/engine.h"

namespace hierlock::engine {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::uint64_t seed() {
  const char* const text = std::getenv("HIERLOCK_SEED");
  const std::uint64_t value = text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
  std::printf("HIERLOCK_SEED=%llu\n", static_cast<unsigned long long>(value));
  return value;
}

// Ends the program, with what it was doing, if it does not come back.
class Watchdog {
 public:
  ~Watchdog() {
    end_ = true;
    thread_.join();
  }
  void did(std::uint64_t what) { last_ = what; }

 private:
  void run() {
    std::uint64_t seen = 0;
    Clock::time_point since = Clock::now();
    while (!end_) {
      if (last_ != seen) {
        seen = last_;
        since = Clock::now();
      }
      if (Clock::now() - since > 60s) {
        std::fprintf(stderr, "a call does not come back, after flip %llu\n", static_cast<unsigned long long>(seen));
        std::abort();
      }
      std::this_thread::sleep_for(50ms);
    }
  }
  std::atomic<std::uint64_t> last_{0};
  std::atomic<bool> end_{false};
  std::thread thread_{[this] { run(); }};
};

class Damage : public testing::Test {
 protected:
  void SetUp() override {
    options_.path = "/dev/shm/hierlock-damage." + std::to_string(getpid());
    options_.capacity = Capacity::for_locks(50, 4);
    options_.capacity.waiters_per_stripe = 64;
    options_.capacity.idle_nodes = 20;
    options_.capacity.idle_pages = 2;
    unlink(options_.path.c_str());
  }
  void TearDown() override { unlink(options_.path.c_str()); }

  static std::optional<spi::Grant> ask(Engine& engine, const std::vector<Target>& targets,
                                       std::chrono::nanoseconds timeout) {
    const spi::Plan plan{std::span<const Target>(targets)};
    spi::Request request{.plan = plan, .no_wait = timeout <= timeout.zero(), .note = "somebody"};
    if (!request.no_wait) request.deadline = Clock::now() + timeout;
    return engine.acquire(request);
  }

  // Everything there is to do. What becomes of it does not matter.
  static void use(Engine& engine, std::mt19937_64& random) {
    std::vector<spi::Grant> held;
    const auto attempt = [&](auto f) {
      try {
        f();
      } catch (const Error&) {
      }
    };
    const std::string some = "u" + std::to_string(random() % 3);
    const std::vector<std::vector<Target>> wishes{
        {Target(some + "/a1/r1")},
        {hierlock::shared(some)},
        {Target(some), Target("u9/a" + std::to_string(random() % 30)), named(std::string(100, 'x'))},
        {hierlock::slots("s", 2)},
        {Target("new" + std::to_string(random() % 50) + std::string(random() % 80, 'y') + "/z")},
    };
    // Some of it each time: there are many times.
    const auto now_and_then = [&](unsigned one_in) { return random() % one_in == 0; };
    for (const auto& wish : wishes) {
      if (!now_and_then(2)) continue;
      attempt([&] {
        if (const auto grant = ask(engine, wish, std::chrono::microseconds(random() % 16 == 0 ? 300 : 0)))
          held.push_back(*grant);
      });
    }
    attempt([&] {
      const Target more_target("e1/a1");
      const spi::Plan more(more_target);
      if (!held.empty() && now_and_then(4)) {
        if (const auto grant = engine.extend(held.front(), {.plan = more, .no_wait = true})) held.front() = *grant;
      }
    });
    attempt([&] {
      if (!held.empty() && now_and_then(4)) {
        const spi::OwnerId owner = engine.make_owner("another");
        held.back() = engine.give(held.back(), owner);
        engine.drop_owner(owner);
      }
    });
    if (now_and_then(8)) attempt([&] { engine.break_locks(spi::Plan(Target(some)), "why not"); });
    if (now_and_then(8)) {
      const Look::Copy copy = engine.table().look().copy();
      for (const auto& waiter : copy.waiters) engine.table().look().blockers(copy, waiter);
      engine.table().log().read_log();
    }
    engine.table().recovery().recover();
    for (const spi::Grant& grant : held) engine.release(grant);
  }

  // The file, as another process may change it.
  class Mapping {
   public:
    explicit Mapping(const std::string& path) {
      const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
      struct stat status {};
      fstat(file, &status);
      size_ = static_cast<std::size_t>(status.st_size);
      bytes_ = static_cast<unsigned char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
      // What is there of the sparse file.
      for (off_t at = 0; (at = lseek(file, at, SEEK_DATA)) >= 0;) {
        const off_t end = lseek(file, at, SEEK_HOLE);
        parts_.push_back({static_cast<std::size_t>(at), {bytes_ + at, bytes_ + end}});
        at = end;
      }
      close(file);
      for (const Part& part : parts_) {
        for (std::size_t i = 0; i < part.bytes.size(); ++i) {
          if (part.bytes[i] != 0 && part.offset + i >= Description::bytes) used_.push_back(part.offset + i);
        }
      }
    }
    ~Mapping() { munmap(bytes_, size_); }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    void restore() {
      for (const Part& part : parts_) std::memcpy(bytes_ + part.offset, part.bytes.data(), part.bytes.size());
    }
    // A byte that is not zero, or near one, or anywhere.
    void flip(std::mt19937_64& random) {
      std::size_t at = used_[random() % used_.size()];
      if (random() % 4 == 0) at += random() % 64;
      if (random() % 16 == 0) {
        const Part& part = parts_[random() % parts_.size()];
        at = part.offset + random() % part.bytes.size();
      }
      if (at < Description::bytes || at >= size_) return;
      bytes_[at] = static_cast<unsigned char>(bytes_[at] ^ 1u << random() % 8);
    }

   private:
    struct Part {
      std::size_t offset;
      std::vector<unsigned char> bytes;
    };
    unsigned char* bytes_ = nullptr;
    std::size_t size_ = 0;
    std::vector<Part> parts_;
    std::vector<std::size_t> used_;
  };

  FileOptions options_;
};

TEST_F(Damage, of_a_table_in_use_is_survived) {
#if defined(__SANITIZE_THREAD__)
  constexpr std::uint64_t flips = 5'000;  // it looks for races, of which there are as many as one likes here
#else
  constexpr std::uint64_t flips = 100'000;
#endif
  constexpr std::uint64_t flips_each = 20;
  std::mt19937_64 random(seed());
  // Somebody else's locks are in it, and somebody waits.
  Engine other(options_, Owners::per_thread);
  static_cast<void>(ask(other, {Target("u0/a1/r1"), hierlock::shared("u1/a1"), named("n")}, 1s));
  static_cast<void>(ask(other, {hierlock::slots("s", 2)}, 1s));
  static_cast<void>(ask(other, {Target("u2/" + std::string(120, 'l') + "/r1")}, 1s));
  std::stop_source enough;
  const std::stop_token token = enough.get_token();
  std::thread waiter([&] {
    try {
      const Target plan_target("u0");
      const spi::Plan plan(plan_target);
      static_cast<void>(other.acquire({.plan = plan, .cancel = &token}));
    } catch (const Error&) {
    }
  });
  while (other.table().look().copy().waiters.empty()) std::this_thread::yield();
  {
    Mapping file(options_.path);
    Watchdog watchdog;
    std::uint64_t refused = 0;
    for (std::uint64_t flip = 0; flip < flips;) {
      file.restore();
      try {
        Engine engine(options_, Owners::per_thread);
        for (std::uint64_t i = 0; i < flips_each; ++i) {
          file.flip(random);
          watchdog.did(++flip);
          use(engine, random);
        }
        if (flip % (50 * flips_each) == 0) engine.table().look().check();
      } catch (const Error&) {
        ++refused;
        ++flip;
      }
    }
    file.restore();
    std::printf("%llu bits, %llu times the table was refused\n", static_cast<unsigned long long>(flips),
                static_cast<unsigned long long>(refused));
  }
  enough.request_stop();
  waiter.join();
}

TEST_F(Damage, of_the_description_is_noticed) {
  { Engine engine(options_, Owners::per_thread); }
  Mapping file(options_.path);
  const int direct = open(options_.path.c_str(), O_RDWR | O_CLOEXEC);
  for (std::size_t bit = 0; bit < Description::bytes * 8; ++bit) {
    unsigned char byte = 0;
    ASSERT_EQ(pread(direct, &byte, 1, static_cast<off_t>(bit / 8)), 1);
    const unsigned char wrong = static_cast<unsigned char>(byte ^ 1u << bit % 8);
    ASSERT_EQ(pwrite(direct, &wrong, 1, static_cast<off_t>(bit / 8)), 1);
    try {
      const Engine engine(options_, Owners::per_thread);
      FAIL() << "bit " << bit << " of the description was changed, and the table was used";
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::incompatible) << error.what();
    }
    ASSERT_EQ(pwrite(direct, &byte, 1, static_cast<off_t>(bit / 8)), 1);
  }
  close(direct);
  EXPECT_NO_THROW(Engine(options_, Owners::per_thread));
}

TEST_F(Damage, of_a_file_cut_short_means_lost_and_no_signal) {
  for (const off_t rest : {off_t{0}, off_t{5000}, off_t{70'000}}) {
    unlink(options_.path.c_str());
    Engine engine(options_, Owners::per_thread);
    const auto held = ask(engine, {Target("u1/a1")}, 1s);
    ASSERT_EQ(truncate(options_.path.c_str(), rest), 0);
    // Until it is noticed, and after.
    const Clock::time_point deadline = Clock::now() + 10s;
    for (bool lost = false; !lost;) {
      ASSERT_LT(Clock::now(), deadline) << "not noticed, with " << rest << " bytes left";
      try {
        const auto grant = ask(engine, {Target("u2/a" + std::to_string(std::rand() % 1000))}, 1ms);
        if (grant) engine.release(*grant);
      } catch (const Error& error) {
        lost = error.kind() == ErrorKind::lost;
      }
    }
    EXPECT_FALSE(engine.held(*held));
    engine.release(*held);
    engine.table().look().copy();
  }
}

}  // namespace
}  // namespace hierlock::engine
