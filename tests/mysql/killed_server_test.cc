// A server that is killed under load, with writers that are told apart by their fences alone (B3, B4). Locks are lost
// here, so the storm's witness, which counts on them, has nothing to judge: what is left to hold is that fences rise.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "on_own_server.h"

namespace hierlock::mysql_tests {
namespace {

constexpr std::size_t workers = 8;

unsigned long long seed() {
  static const unsigned long long seed = [] {
    const char* const given = std::getenv("HIERLOCK_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  }();
  return seed;
}

// A child that does `work` and ends with its parent at the latest.
pid_t start(const std::function<void()>& work) {
  std::fflush(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  int status = 0;
  try {
    work();
  } catch (...) {
    status = 3;
  }
  _exit(status);
}

// What everybody writes to, in memory that all processes share: it takes a write only from the highest fence so far.
struct Register {
  std::atomic<bool> busy;
  std::int64_t highest;  // guarded by busy

  enum class Answer { taken, stale, twice };
  // `first`: a lock that is new here, whose fence nobody else may have had.
  Answer write(std::int64_t fence, bool first) {
    while (busy.exchange(true)) std::this_thread::yield();
    const Answer answer = fence < highest ? Answer::stale : fence == highest && first ? Answer::twice : Answer::taken;
    if (answer == Answer::taken) highest = fence;
    busy = false;
    return answer;
  }
};

// Paths are row locks, names are GET_LOCK: other sessions keep them.
enum class Kind : std::uint8_t { paths, names };
constexpr std::array kinds{Kind::paths, Kind::names};

struct Board {
  std::atomic<bool> stop;
  std::array<std::array<Register, 2>, 2> registers;  // by kind
  std::array<std::atomic<std::uint64_t>, 2> grants;  // by kind
  std::atomic<std::uint64_t> writes, losses, refusals, stale, stale_while_held, twice;
};

class KilledServer : public OnOwnServer {
 protected:
  // One of two resources, or what locks both: their account, or both names at once.
  static std::vector<Target> targets(Kind kind, unsigned which) {
    if (kind == Kind::paths) return {which == 2 ? "u1/a1" : "u1/a1/r" + std::to_string(which)};
    if (which == 2) return {named("n0"), named("n1")};
    return {named("n" + std::to_string(which))};
  }
  static void work(const std::string& url, Board& board, unsigned number) {
    std::mt19937_64 random(seed() + number);
    Locker locker = hierlock::open(url);
    while (!board.stop) {
      const Kind kind = kinds[random() % 2];
      const auto of_kind = static_cast<std::size_t>(kind);
      const unsigned which = static_cast<unsigned>(random() % 3);
      try {
        Lock lock = locker.acquire(targets(kind, which), {.timeout = 5s});
        const std::int64_t fence = lock.fence();
        ++board.grants[of_kind];
        for (int turn = 0; turn < 3; ++turn) {
          for (unsigned i = 0; i < 2; ++i) {
            if ((which != 2 && which != i) || !lock.held()) continue;
            const Register::Answer answer = board.registers[of_kind][i].write(fence, turn == 0);
            if (answer == Register::Answer::taken) ++board.writes;
            if (answer == Register::Answer::twice) ++board.twice;
            if (answer != Register::Answer::stale) continue;
            // Somebody was granted it after us: so it is not ours any more, and we know, or learn it as soon as we run
            // (B4).
            const bool known = eventually([&] { return !lock.held(); }, 2s + stall);
            ++(known ? board.stale : board.stale_while_held);
          }
          std::this_thread::sleep_for(std::chrono::microseconds(random() % (random() % 8 == 0 ? 40'000 : 3000)));
        }
        if (!lock.held()) ++board.losses;
      } catch (const Error& error) {
        ++board.refusals;
        if (!error.retryable() && error.kind() != ErrorKind::lost) throw;
        std::this_thread::sleep_for(10ms);
      }
    }
  }
};

TEST_P(KilledServer, under_load_breaks_nothing) {  // B3, B4
  const std::string url = url_of("server_storm");
  void* const memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Board& board = *new (memory) Board{};
  (void)hierlock::open(url);
  std::vector<pid_t> pids;
  for (unsigned i = 0; i < workers; ++i) {
    pids.push_back(start([&] {
      try {
        work(url, board, i);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "worker %u: %s\n", i, error.what());
        throw;
      }
    }));
  }
  const auto more_grants = [&] {
    const std::array<std::uint64_t, 2> before{board.grants[0], board.grants[1]};
    const auto more = [&](std::size_t kind) { return board.grants[kind] > before[kind] + 40; };
    return eventually([&] { return more(0) && more(1); }, 30s);
  };
  EXPECT_TRUE(more_grants());
  for (int kills = 0; kills < 2; ++kills) {
    // Some of them sleep over it, and wake up with locks that others have by then.
    for (std::size_t i = 0; i < workers / 2; ++i) kill(pids[i], SIGSTOP);
    EXPECT_TRUE(own().control("kill"));
    EXPECT_TRUE(own().control("start"));
    EXPECT_TRUE(more_grants()) << "after the server was killed";
    for (std::size_t i = 0; i < workers / 2; ++i) kill(pids[i], SIGCONT);
    EXPECT_TRUE(more_grants());
  }
  board.stop = true;
  for (const pid_t pid : pids) {
    int status = -1;
    if (!eventually([&] { return waitpid(pid, &status, WNOHANG) != 0; })) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
    }
    EXPECT_EQ(status, 0);
  }
  std::printf(
      "%s: %llu grants of paths and %llu of names, %llu writes; %llu locks were lost, %llu requests refused, "
      "%llu stale writes refused\n",
      GetParam().c_str(), static_cast<unsigned long long>(board.grants[0]),
      static_cast<unsigned long long>(board.grants[1]), static_cast<unsigned long long>(board.writes),
      static_cast<unsigned long long>(board.losses), static_cast<unsigned long long>(board.refusals),
      static_cast<unsigned long long>(board.stale));
  EXPECT_EQ(board.twice, 0u) << "one fence for two locks";
  EXPECT_EQ(board.stale_while_held, 0u) << "who says to hold it was overtaken";
  munmap(memory, sizeof(Board));
}

HIERLOCK_ON_OWN_SERVERS(KilledServer);

}  // namespace
}  // namespace hierlock::mysql_tests
