// A storm of kills on a server: processes that lock and count are killed at random moments, and the witness of
// tests/storm looks whether anybody was ever where another was, whether a count is lost, and whether fences only rise
// (B3, B5). Then the server itself is killed, with writers that are told apart by their fences alone.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>

#include "../storm/witness.h"
#include "on_server.h"
#include "support/own_server.h"

namespace hierlock::mysql_tests {
namespace {

using storm::Inside;
using storm::State;
using storm::Witness;

constexpr std::size_t workers = 8;
constexpr unsigned kills_of_each = storm::slowness == 1 ? 250 : 40;

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

// The file of a witness is of no use to anybody afterwards, and mapped until the program ends.
Witness make_witness() {
  static std::atomic<int> last{0};
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("hierlock-mysql-storm-" + std::to_string(getpid()) + "-" + std::to_string(++last));
  struct Remove {
    std::filesystem::path path;
    ~Remove() { std::filesystem::remove(path); }
  } remove{path};
  return Witness(path.string());
}

// One that locks, counts and unlocks at random.
class Worker {
 public:
  Worker(const Witness& witness, const std::string& url, std::size_t me)
      : witness_(witness),
        testimony_(witness, me, workers),
        random_(seed() * 0x9E3779B97F4A7C15u + me * 1'000'003 + witness.row(me).incarnation.load()) {
    locker_.emplace(hierlock::open(url));
  }

  void run() {
    while (witness_.all().stop.load() == 0) {
      testimony_.state(State::idle);
      std::vector<Ask> asks{any()};
      while (chance(25)) asks.push_back(any());
      std::optional<Held> held = acquire(asks);
      if (!held) continue;
      use(*held);
      if (chance(25) && !extend(*held)) continue;
      testimony_.leave(held->inside);
      testimony_.state(State::releasing);
      held->lock.release();
    }
    testimony_.state(State::idle);
  }

 private:
  struct Ask {
    Target target;
    int place;
  };
  struct Held {
    Lock lock;
    Inside inside;
  };

  unsigned below(unsigned end) { return static_cast<unsigned>(random_() % end); }
  bool chance(unsigned percent) { return below(100) < percent; }
  void dawdle() { std::this_thread::sleep_for(std::chrono::microseconds(chance(10) ? below(3000) : below(100))); }

  // A path; names and slots come after them in the list. Leaves may be shared.
  Ask any() {
    for (;;) {
      const auto place = static_cast<int>(below(static_cast<unsigned>(storm::places().size())));
      const storm::Place& p = storm::places()[static_cast<std::size_t>(place)];
      if (p.parent < 0 && (p.below.empty() || chance(60))) continue;
      return {p.above.size() == 2 && chance(35) ? shared(p.target) : p.target, place};
    }
  }
  AcquireOptions options() {
    AcquireOptions options;
    const unsigned how = below(100);
    if (how < 15) options.timeout = std::chrono::nanoseconds(0);
    if (how >= 15 && how < 50) options.timeout = std::chrono::microseconds(500 + below(30'000));
    return options;
  }
  static void add(Inside& inside, const Ask& ask) {
    const auto intent = storm::bit(ask.target.is_shared() ? Mode::IS : Mode::IX);
    inside.modes[static_cast<std::size_t>(ask.place)] |= storm::bit(ask.target.is_shared() ? Mode::S : Mode::X);
    for (const int above : storm::places()[static_cast<std::size_t>(ask.place)].above) {
      inside.modes[static_cast<std::size_t>(above)] |= intent;
    }
  }
  void failed(const Error& error) {
    switch (error.kind()) {
      case ErrorKind::timeout:
      case ErrorKind::busy:
        testimony_.row().timeouts.fetch_add(1);
        return;
      case ErrorKind::deadlock:
        testimony_.row().deadlocks.fetch_add(1);
        return;
      default:
        testimony_.violation("error: " + std::string(to_string(error.kind())) + ": " + error.what());
    }
  }

  std::optional<Held> acquire(const std::vector<Ask>& asks) {
    std::vector<Target> targets;
    for (const Ask& ask : asks) targets.push_back(ask.target);
    testimony_.state(State::acquiring);
    Held held;
    try {
      held.lock = locker_->acquire(targets, options());
      held.inside.granted_at = storm::now_ns();
      testimony_.state(State::holding);
      held.inside.fence = held.lock.fence();
    } catch (const Error& error) {
      failed(error);
      return std::nullopt;
    }
    testimony_.row().grants.fetch_add(1);
    for (const Ask& ask : asks) add(held.inside, ask);
    testimony_.enter(held.inside);
    return held;
  }

  void use(Held& held) {
    for (const auto& [place, seen] : std::vector(held.inside.values)) {
      const bool mine = (held.inside.modes[static_cast<std::size_t>(place)] & storm::bit(Mode::X)) != 0;
      if (mine) testimony_.count(place, &held.inside, [this] { dawdle(); });
    }
    testimony_.look_again(held.inside);
    if (!held.lock.held()) testimony_.violation("lost: nobody took away " + held.inside.text());
  }

  // False: the whole lock is gone.
  bool extend(Held& held) {
    const Ask ask = any();
    AcquireOptions how = options();
    testimony_.begin_extend();
    testimony_.state(State::extending);
    try {
      held.lock.extend(ask.target, how);
    } catch (const Error& error) {
      failed(error);
      if (error.kind() == ErrorKind::deadlock) {
        testimony_.lost_by_extend(held.inside);
        if (held.lock.held()) testimony_.violation("extend: deadlock, and still held");
        return false;
      }
      testimony_.not_extended();
      testimony_.state(State::holding);
      testimony_.look_again(held.inside);
      return true;
    }
    Inside more;
    more.granted_at = storm::now_ns();
    more.fence = held.lock.fence();
    add(more, ask);
    testimony_.row().grants.fetch_add(1);
    testimony_.extended(held.inside, more);
    testimony_.state(State::holding);
    use(held);
    return true;
  }

  const Witness& witness_;
  const storm::Testimony testimony_;
  std::mt19937_64 random_;
  std::optional<Locker> locker_;
};

class KillStorm : public OnServer {
 protected:
  // What a worker is doing. One that has been in a call for longer than an answer takes is waiting: it tells nobody so
  // early.
  static State doing(const storm::Row& row) {
    const State state = row.state.load();
    const bool long_since = storm::now_ns() - row.state_since.load() > 5'000'000 * storm::slowness;
    if (long_since && state == State::acquiring) return State::waiting;
    if (long_since && state == State::extending) return State::extending_waiting;
    return state;
  }
  void launch(const Witness& witness, std::size_t worker) {
    storm::Row& row = witness.row(worker);
    row.state.store(State::opening);
    row.state_since.store(storm::now_ns());
    row.incarnation.fetch_add(1);
    pids_[worker] = start([&] {
      row.pid.store(getpid());
      try {
        Worker(witness, url(), worker).run();
      } catch (const std::exception& error) {
        witness.violation("error: " + std::string(error.what()) + "\n  by " + witness.about(worker));
      }
    });
    row.pid.store(pids_[worker]);
  }
  void kill_one(const Witness& witness, std::size_t worker) {
    storm::Row& row = witness.row(worker);
    const std::uint32_t incarnation = row.incarnation.load();
    row.doomed_at[incarnation % 4].store(storm::now_ns());
    row.doomed.store(incarnation);
    ++by_state_[doing(row)];
    kill(pids_[worker], SIGKILL);
    int status = 0;
    waitpid(pids_[worker], &status, 0);
    if (!WIFSIGNALED(status)) witness.violation("died: " + witness.about(worker) + " ended by itself");
    // What it was about to count may have been counted or not.
    if (const std::uint32_t place = row.about_to.exchange(0); place != 0) ++unsure_[static_cast<int>(place - 1)];
    if (row.extend.load() % 2 != 0) {
      row.extend_lost.store(row.extend.load());
      row.extend.fetch_add(1);
    }
    for (auto& mark : row.inside) mark.store(0);
  }
  std::array<pid_t, workers> pids_{};
  std::map<State, unsigned> by_state_;
  std::map<int, std::uint64_t> unsure_;
};

TEST_P(KillStorm, clients_that_are_killed_at_any_moment_break_nothing) {  // B3, B5
  const Witness witness = make_witness();
  std::mt19937_64 random(seed());
  (void)open();  // the tables are there
  for (std::size_t i = 0; i < workers; ++i) launch(witness, i);
  const auto begin = Clock::now(), end = begin + 120s * storm::slowness;
  const auto bad = [&] { return witness.all().violations.load() != 0; };
  unsigned kills = 0;
  for (; kills < kills_of_each && !bad() && Clock::now() < end; ++kills) {
    // By turns somebody who holds, who waits, who is in the middle of a call; after a while anybody.
    const unsigned wish = static_cast<unsigned>(random() % 4);
    const auto fits = [&](State state) {
      return wish == 0   ? state == State::holding || state == State::extending
             : wish == 1 ? state == State::waiting || state == State::extending_waiting
             : wish == 2 ? state == State::acquiring || state == State::releasing
                         : true;
    };
    std::size_t victim = random() % workers;
    const auto patience = Clock::now() + 80ms, not_before = Clock::now() + std::chrono::milliseconds(random() % 30);
    while (Clock::now() < patience && (Clock::now() < not_before || !fits(doing(witness.row(victim))))) {
      std::this_thread::sleep_for(100us);
      if (Clock::now() >= not_before) victim = random() % workers;
    }
    kill_one(witness, victim);
    launch(witness, victim);
  }
  witness.all().stop.store(1);
  for (std::size_t i = 0; i < workers; ++i) {
    int status = 0;
    if (!eventually([&] { return waitpid(pids_[i], &status, WNOHANG) != 0; }, 40s * storm::slowness)) {
      witness.violation("hang: " + witness.about(i) + " does not end");
      kill(pids_[i], SIGKILL);
      waitpid(pids_[i], &status, 0);
    }
  }
  std::uint64_t grants = 0, timeouts = 0, deadlocks = 0;
  for (std::size_t i = 0; i < workers; ++i) {
    grants += witness.row(i).grants.load();
    timeouts += witness.row(i).timeouts.load();
    deadlocks += witness.row(i).deadlocks.load();
  }
  for (std::size_t place = 0; place < storm::places().size(); ++place) {
    std::uint64_t counted = 0;
    for (std::size_t i = 0; i < workers; ++i) counted += witness.row(i).counted[place].load();
    const std::uint64_t value = witness.all().counters[place].value;
    EXPECT_GE(value, counted) << "lost updates of " << storm::places()[place].text;
    EXPECT_LE(value, counted + unsure_[static_cast<int>(place)]) << storm::places()[place].text;
  }
  std::printf(
      "%s: %u kills in %.1f s (HIERLOCK_SEED=%llu), %llu grants, %llu timeouts, %llu deadlocks; the victims were:",
      GetParam().c_str(), kills, std::chrono::duration<double>(Clock::now() - begin).count(), seed(),
      static_cast<unsigned long long>(grants), static_cast<unsigned long long>(timeouts),
      static_cast<unsigned long long>(deadlocks));
  for (const auto& [state, count] : by_state_) std::printf(" %s %u,", storm::to_string(state), count);
  std::printf("\n");
  for (std::size_t i = 0; i < std::min<std::size_t>(witness.all().violations.load(), 16); ++i) {
    ADD_FAILURE() << witness.all().violation[i].text;
  }
  EXPECT_EQ(kills, kills_of_each);
  EXPECT_GT(grants, kills) << "work went on between the kills";
  EXPECT_TRUE(eventually([&] { return locked().empty(); }, 15s)) << "the dead hold nothing";
}

HIERLOCK_ON_BOTH_SERVERS(KillStorm);

// --- the server dies -------------------------------------------------------------------------------------

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

struct Board {
  std::atomic<bool> stop;
  std::array<Register, 2> registers;
  std::atomic<std::uint64_t> grants, writes, losses, refusals, stale, stale_while_held, twice;
};

class ServerStorm : public testing::TestWithParam<std::string> {
 protected:
  // One of two resources, or the account of both.
  static void work(const std::string& url, Board& board, unsigned number) {
    std::mt19937_64 random(seed() + number);
    Locker locker = hierlock::open(url);
    while (!board.stop) {
      const unsigned which = static_cast<unsigned>(random() % 3);
      const std::string path = which == 2 ? "u1/a1" : "u1/a1/r" + std::to_string(which);
      try {
        Lock lock = locker.acquire(path, {.timeout = 5s});
        const std::int64_t fence = lock.fence();
        ++board.grants;
        for (int turn = 0; turn < 3; ++turn) {
          for (unsigned i = 0; i < 2; ++i) {
            if ((which != 2 && which != i) || !lock.held()) continue;
            const Register::Answer answer = board.registers[i].write(fence, turn == 0);
            if (answer == Register::Answer::taken) ++board.writes;
            if (answer == Register::Answer::twice) ++board.twice;
            if (answer != Register::Answer::stale) continue;
            // Somebody was granted it after us: so it is not ours any more, and we know, or learn it as soon as we run
            // (B4).
            const bool known = eventually([&] { return !lock.held(); }, 2s * storm::slowness);
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

TEST_P(ServerStorm, a_server_that_is_killed_under_load_breaks_nothing) {  // B3, B4
  HIERLOCK_NEEDS_SERVER(GetParam() == "mysql" ? "MYSQL" : "MARIADB");
  mysql::enable();
  const OwnServer* const own = OwnServer::get(GetParam());
  ASSERT_NE(own, nullptr) << "tools/servers cannot start another " << GetParam();
  const std::string url = own->url() + "?provision=lazy&table=server_storm";
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
    const std::uint64_t before = board.grants;
    return eventually([&, before] { return board.grants > before + 80 / storm::slowness; }, 30s);
  };
  const auto servers = [&](const std::string& what) {
    return std::system(("'" HIERLOCK_SERVERS "' " + what + " " + own->name() + " >/dev/null 2>&1").c_str()) == 0;
  };
  EXPECT_TRUE(more_grants());
  for (int kills = 0; kills < 2; ++kills) {
    // Some of them sleep over it, and wake up with locks that others have by then.
    for (std::size_t i = 0; i < workers / 2; ++i) kill(pids[i], SIGSTOP);
    EXPECT_TRUE(servers("kill"));
    EXPECT_TRUE(servers("start"));
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
  std::printf("%s: %llu grants, %llu writes; %llu locks were lost, %llu requests refused, %llu stale writes refused\n",
              GetParam().c_str(), static_cast<unsigned long long>(board.grants),
              static_cast<unsigned long long>(board.writes), static_cast<unsigned long long>(board.losses),
              static_cast<unsigned long long>(board.refusals), static_cast<unsigned long long>(board.stale));
  EXPECT_EQ(board.twice, 0u) << "one fence for two locks";
  EXPECT_EQ(board.stale_while_held, 0u) << "who says to hold it was overtaken";
  munmap(memory, sizeof(Board));
}

INSTANTIATE_TEST_SUITE_P(, ServerStorm, testing::Values("mysql", "mariadb"),
                         [](const auto& engine) { return engine.param; });

}  // namespace
}  // namespace hierlock::mysql_tests
