// Locks that all processes take in one order close no cycle: nobody is the victim of a deadlock that is none (B11).
//
// Processes and threads take locks of a few paths, in one order, by acquire() and extend(), shared and exclusive, alone
// and in pairs; or of names, exclusive and one by one. Some give up early, and some hold for longer than it takes to be
// written down. HIERLOCK_RUNS sets how many runs there are for each server, with and without the right to read the
// server's views; HIERLOCK_SEED repeats the choices of a run.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <random>
#include <sstream>
#include <vector>

#include "on_server.h"
#include "user_rows.h"

namespace hierlock::mysql_tests {
namespace {

using std::chrono::milliseconds;

constexpr int processes = 3, threads = 8, buckets = 1009;
constexpr std::size_t paths_wanted = 5;
constexpr auto slow = 60ms;  // waits that last so long are written down and looked at

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* const given = std::getenv(name);
  return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
}

// What the threads of a process, or all of them, have seen.
struct Seen {
  int runs = 0, locks = 0, slow = 0, timeouts = 0, errors = 0;
  std::string told;  // of the errors

  void add(const Seen& other) {
    runs += other.runs;
    locks += other.locks;
    slow += other.slow;
    timeouts += other.timeouts;
    errors += other.errors;
    told += other.told;
  }
  std::string text() const {
    std::ostringstream text;
    text << runs << " " << locks << " " << slow << " " << timeouts << " " << errors << " " << told;
    return text.str();
  }
  static Seen read(const std::string& from) {
    std::istringstream text(from);
    Seen seen;
    text >> seen.runs >> seen.locks >> seen.slow >> seen.timeouts >> seen.errors;
    std::getline(text, seen.told, '\0');
    return seen;
  }
};

// The locks of one thread, run by run.
class Runner {
 public:
  Runner(Locker& locker, const std::vector<Target>& paths, std::uint64_t seed)
      : locker_(locker), paths_(paths), random_(seed) {}

  void run() {
    std::vector<Lock> held;
    bool waited = false;
    for (std::size_t path = 0; path < paths_.size(); ++path) {
      if (one_of(2)) continue;
      std::vector<Target> wanted{some(path)};
      const bool named = wanted.front().space() != Space::path;  // several of them are locked in an order of their own
      if (!named && one_of(4) && path + 1 < paths_.size()) wanted.push_back(some(++path));
      const auto begin = Clock::now();
      take(held, wanted);
      waited = waited || Clock::now() - begin > slow;
    }
    if (one_of(40)) std::this_thread::sleep_for(milliseconds(random_() % 60));  // it works
    ++seen.runs;
    seen.slow += waited ? 1 : 0;
  }

  Seen seen;

 private:
  bool one_of(std::uint64_t many) { return random_() % many == 0; }
  Target some(std::size_t path) {
    const Target& target = paths_[path];
    return target.space() == Space::path && one_of(4) ? shared(target) : target;
  }

  void take(std::vector<Lock>& held, const std::vector<Target>& wanted) {
    AcquireOptions how{.timeout = one_of(16) ? milliseconds(1 + random_() % 80) : milliseconds(60s)};
    try {
      if (!held.empty() && wanted.size() == 1 && one_of(3)) {
        held.back().extend(wanted.front(), how);
      } else {
        held.push_back(locker_.acquire(wanted, how));
      }
      ++seen.locks;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::timeout && *how.timeout < 1s) {
        ++seen.timeouts;
        return;
      }
      ++seen.errors;
      seen.told += std::string(to_string(error.kind())) + ": " + error.what() + "\n";
    }
  }

  Locker& locker_;
  const std::vector<Target>& paths_;
  std::mt19937_64 random_;
};

Seen runs_of_a_process(const std::string& url, const std::vector<Target>& paths, int runs, std::uint64_t seed) {
  Locker locker = hierlock::open(url);
  Seen all;
  std::mutex mutex;
  std::atomic<int> begun = 0;
  std::vector<std::thread> several;
  for (int thread = 0; thread < threads; ++thread) {
    several.emplace_back([&, thread] {
      Runner runner(locker, paths, seed + static_cast<std::uint64_t>(thread));
      while (begun.fetch_add(1) < runs && runner.seen.errors == 0) runner.run();
      const std::lock_guard guard(mutex);
      all.add(runner.seen);
    });
  }
  for (std::thread& thread : several) thread.join();
  return all;
}

// A process of its own that does something and tells about it. Made while this one has no other threads.
class Teller {
 public:
  explicit Teller(const std::function<std::string()>& work) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      std::string told;
      try {
        told = work();
      } catch (const std::exception& error) {
        told = std::string("0 0 0 0 1 ") + error.what();
      }
      (void)!write(ends[1], told.data(), told.size());
      _exit(0);
    }
    close(ends[1]);
    from_ = ends[0];
  }
  ~Teller() {
    close(from_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  Teller(const Teller&) = delete;
  Teller& operator=(const Teller&) = delete;

  std::string told() const {
    std::string all;
    char buffer[4096];
    for (ssize_t got; (got = read(from_, buffer, sizeof buffer)) > 0;)
      all.append(buffer, static_cast<std::size_t>(got));
    return all;
  }

 private:
  pid_t pid_ = -1;
  int from_ = -1;
};

class NoCycle : public OnServer {
 protected:
  static std::vector<Target> paths_in_one_order() {
    std::vector<Target> paths;
    for (const UserRow& user : users_in_one_order(paths_wanted, buckets)) paths.emplace_back(user.path);
    return paths;
  }
  static int runs_wanted() { return static_cast<int>(number_from_environment("HIERLOCK_RUNS", 2500)); }

  Seen nobody_is_a_victim(const std::string& where, const std::string& how, int runs,
                          const std::vector<Target>& paths = paths_in_one_order()) {
    const std::uint64_t seed = number_from_environment("HIERLOCK_SEED", std::random_device()());
    const auto begin = Clock::now();
    Seen all;
    {
      std::vector<std::unique_ptr<Teller>> several;
      for (int process = 0; process < processes; ++process) {
        several.push_back(std::make_unique<Teller>([&, process] {
          const std::uint64_t its_seed = seed + 1000 * static_cast<std::uint64_t>(process);
          return runs_of_a_process(where, paths, (runs + processes - 1) / processes, its_seed).text();
        }));
      }
      for (const auto& one : several) all.add(Seen::read(one->told()));
    }
    const auto seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::cout << GetParam() << ", " << how << ", HIERLOCK_SEED=" << seed << ": " << all.runs << " runs in " << seconds
              << " s, " << all.locks << " locks; in " << all.slow << " runs a wait of more than " << slow.count()
              << " ms; " << all.timeouts << " timeouts, " << all.errors << " errors" << std::endl;
    EXPECT_EQ(all.errors, 0) << all.told;
    EXPECT_GE(all.runs, runs);
    return all;
  }
  void nobody_is_a_victim_for_long(const std::string& where, const std::string& how,
                                   const std::vector<Target>& paths = paths_in_one_order()) {
    const Seen all = nobody_is_a_victim(where, how, runs_wanted(), paths);
    EXPECT_GT(all.slow, all.runs / 100) << "there was nothing to be seen";
    EXPECT_TRUE(all_free());
  }
};

TEST_P(NoCycle, makes_no_victim_where_the_servers_views_can_be_read) {  // B11
  nobody_is_a_victim_for_long(url(operator_server(), "levels=1&buckets=" + std::to_string(buckets)),
                              "with the right to read views");
}

TEST_P(NoCycle, makes_no_victim_where_the_servers_views_cannot_be_read) {  // B11
  const Server poor = make_user("ALL", server().database + ".*");
  nobody_is_a_victim_for_long(url(poor, "levels=1&buckets=" + std::to_string(buckets)),
                              "without the right to read views");
}

TEST_P(NoCycle, of_names_makes_no_victim) {  // B11
  std::vector<Target> names;
  for (const char* const name : {"a", "b", "c", "d", "e"}) names.push_back(named(name));
  nobody_is_a_victim_for_long(url("levels=1&buckets=" + std::to_string(buckets)), "names", names);
}

TEST_P(NoCycle, of_slots_makes_no_victim) {  // B11
  std::vector<Target> some;
  for (const char* const name : {"a", "b", "c"}) some.push_back(slots(name, 2));
  for (const char* const name : {"d", "e"}) some.push_back(named(name));
  nobody_is_a_victim_for_long(url("levels=1&buckets=" + std::to_string(buckets)), "slots and names", some);
}

// Many times a table that is empty at first: all processes meet rows that are missing, and make them.
TEST_P(NoCycle, makes_no_victim_while_rows_are_still_made) {  // B11, H5, H11
  constexpr int tables = 10, runs_each = 60;
  for (int i = 0; i < tables && !HasFailure(); ++i) {
    const std::string where = url_of(another_table(), server(), "levels=1&buckets=" + std::to_string(buckets));
    nobody_is_a_victim(where, "from an empty table", runs_each);
  }
}

HIERLOCK_ON_BOTH_SERVERS(NoCycle);

}  // namespace
}  // namespace hierlock::mysql_tests
