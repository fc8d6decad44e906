// What ./quickstart runs: the rule of hierarchical locks as a picture, every cell of it tried for real (H14), a first
// lock that is held and waited for, and one whose holder is killed. All of it in a table that processes share, which is
// removed again. Ends with 1 if anything is not as the rule says.
#include <hierlock/hierlock.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

// Colour and blocks for a person at a terminal, plain signs for a file or a pipe.
struct Pen {
  bool pretty = isatty(STDOUT_FILENO) != 0;
  bool colour = pretty && std::getenv("NO_COLOR") == nullptr;

  const char* waits() const { return colour ? "\033[38;5;203m██\033[0m" : pretty ? "██" : "##"; }
  const char* passes() const { return colour ? "\033[38;5;71m··\033[0m" : pretty ? "··" : ".."; }
  const char* wrong() const { return colour ? "\033[1;33m??\033[0m" : "??"; }
  const char* bold() const { return colour ? "\033[1m" : ""; }
  const char* plain() const { return colour ? "\033[0m" : ""; }
};

// A table of this program's own, so that nobody else's locks are in the way.
const std::string& table_url() {
  static const std::string url = "shm:quickstart." + std::to_string(getpid());
  return url;
}

// 2 users x 2 accounts x 2 resources: 14 targets, in the order of the tree.
std::vector<std::string> all_targets() {
  std::vector<std::string> targets;
  for (const char* user : {"u1", "u2"}) {
    targets.emplace_back(user);
    for (const char* account : {"/a1", "/a2"}) {
      targets.push_back(std::string(user) + account);
      for (const char* resource : {"/r1", "/r2"}) targets.push_back(std::string(user) + account + resource);
    }
  }
  return targets;
}

// The rule: two targets exclude each other when one is the other or its ancestor.
bool excludes(const std::string& a, const std::string& b) {
  return a == b || a.starts_with(b + "/") || b.starts_with(a + "/");
}

enum class Outcome { passed, waited, broken };

// This thread holds one target while another thread asks for the other. Whether that one waits is what the lock table
// says of it; no sleep decides anything.
Outcome try_pair(hierlock::Locker& locker, const std::string& held, const std::string& asked) {
  auto lock = locker.acquire(held);

  std::atomic<bool> granted = false;
  std::atomic<bool> failed = false;
  std::jthread other([&] {
    try {
      auto second = locker.acquire(asked, {.timeout = 20s});  // ends the loop below, should nothing else
      granted = true;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s while %s is held: %s\n", asked.c_str(), held.c_str(), e.what());
      failed = true;
    }
  });

  bool waits = false;
  while (!waits && !granted && !failed) {
    for (const auto& waiter : locker.snapshot().waiters) waits = !waiter.blocked_by.empty();
    std::this_thread::yield();
  }
  const bool granted_too_early = waits && granted;
  lock.release();
  other.join();
  // One that waited must get it once we let go.
  if (failed || granted_too_early || !granted) return Outcome::broken;
  return waits ? Outcome::waited : Outcome::passed;
}

bool draw_matrix(const Pen& pen) {
  const auto targets = all_targets();
  auto locker = hierlock::open(table_url());

  std::printf("%s1. Who waits for whom%s\n\n", pen.bold(), pen.plain());
  std::printf("   A row's target is held, and a second thread asks for a column's target:\n");
  std::printf("   %s it waits    %s it goes ahead\n\n", pen.waits(), pen.passes());

  // Each column's name stands on the line of its level: users, accounts, resources.
  for (std::size_t level = 0; level < 3; ++level) {
    std::printf("%14s", "");
    for (const auto& target : targets) {
      const bool here = static_cast<std::size_t>(std::count(target.begin(), target.end(), '/')) == level;
      std::printf(" %-2s", here ? target.substr(target.size() - 2).c_str() : "");
    }
    std::printf("\n");
  }

  int pairs = 0;
  int waited = 0;
  int wrong = 0;
  for (const auto& held : targets) {
    std::printf("   %-11s", held.c_str());
    for (const auto& asked : targets) {
      const Outcome outcome = try_pair(locker, held, asked);
      const bool as_the_rule_says = outcome == (excludes(held, asked) ? Outcome::waited : Outcome::passed);
      ++pairs;
      waited += outcome == Outcome::waited;
      wrong += !as_the_rule_says;
      std::printf(" %s", !as_the_rule_says ? pen.wrong() : outcome == Outcome::waited ? pen.waits() : pen.passes());
      std::fflush(stdout);
    }
    std::printf("\n");
  }
  std::printf("\n   %d pairs tried: %d waited, %d went ahead, %d against the rule\n", pairs, waited, pairs - waited,
              wrong);
  std::printf("   The rule: it waits exactly when one is the other or its ancestor.\n\n");
  return wrong == 0;
}

// What two threads did, side by side, in the order it happened.
class Timeline {
 public:
  enum Column { alice, bob };

  void tell(Column column, const std::string& text) {
    const std::lock_guard guard(mutex_);
    const std::chrono::duration<double, std::milli> at = std::chrono::steady_clock::now() - start_;
    std::printf("   %6.2f ms  %*s%s\n", at.count(), column == bob ? 32 : 0, "", text.c_str());
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;  // keeps the lines whole and in order
};

bool show_a_wait(const Pen& pen) {
  std::printf("%s2. A lock held and waited for%s\n\n", pen.bold(), pen.plain());
  std::printf("              %-32s%s\n", "alice", "bob");

  auto locker = hierlock::open(table_url());
  const auto alice = locker.owner("alice");
  const auto bob = locker.owner("bob");
  Timeline timeline;

  auto account = locker.acquire("u1/a1", {.owner = &alice});
  const auto first = account.fence();
  timeline.tell(Timeline::alice, "holds u1/a1");
  timeline.tell(Timeline::alice, "  fence " + std::to_string(first));

  std::int64_t second = 0;
  std::jthread other([&] {
    try {
      timeline.tell(Timeline::bob, "asks for u1/a1/r1");
      auto resource = locker.acquire("u1/a1/r1", {.timeout = 20s, .owner = &bob});
      second = resource.fence();
      timeline.tell(Timeline::bob, "holds u1/a1/r1");
      timeline.tell(Timeline::bob, "  fence " + std::to_string(second));
    } catch (const std::exception& e) {
      timeline.tell(Timeline::bob, e.what());
    }
  });

  // Alice works until bob is seen waiting. (A program would not look; it would just release when it is done.)
  const auto give_up = std::chrono::steady_clock::now() + 20s;
  for (bool seen = false; !seen && std::chrono::steady_clock::now() < give_up; std::this_thread::yield()) {
    for (const auto& waiter : locker.snapshot().waiters) {
      if (waiter.blocked_by.empty()) continue;
      timeline.tell(Timeline::bob, "  waits at " + waiter.target);
      seen = true;
    }
  }
  timeline.tell(Timeline::alice, "releases u1/a1");
  account.release();
  other.join();

  const bool in_order = first < second;
  std::printf("\n   Bob's fence is %s than alice's. Send it along with what you write, and\n",
              in_order ? "higher" : "NOT higher");
  std::printf("   whoever receives it can refuse a writer that comes late with a lower one.\n\n");
  return in_order;
}

bool show_a_kill(const Pen& pen) {
  std::printf("%s3. A process that is killed while it holds%s\n\n", pen.bold(), pen.plain());
  int ready[2];
  if (pipe(ready) != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    auto locker = hierlock::open(table_url());
    const auto lock = locker.acquire("u1");
    const char byte = 1;
    if (write(ready[1], &byte, 1) == 1) pause();
    _exit(1);
  }
  char byte = 0;
  if (child < 0 || read(ready[0], &byte, 1) != 1) return false;
  auto locker = hierlock::open(table_url());
  const bool refused = !locker.try_acquire("u1/a1/r1");
  std::printf("   Process %d holds u1; u1/a1/r1 is %s. It is killed with SIGKILL.\n", static_cast<int>(child),
              refused ? "refused" : "NOT refused");
  const auto killed = std::chrono::steady_clock::now();
  kill(child, SIGKILL);
  const auto lock = locker.try_acquire("u1/a1/r1", 20s);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - killed;
  waitpid(child, nullptr, 0);
  if (lock)
    std::printf("   u1/a1/r1 was ours %.1f ms later: nothing to clean up, nothing to wait out.\n\n", took.count());
  unlink(locker.snapshot().table.c_str());
  return refused && lock;
}

}  // namespace

int main() {
  try {
    const Pen pen;
    std::printf("\n");
    const bool matrix_is_right = draw_matrix(pen);
    const bool fences_are_right = show_a_wait(pen);
    std::fflush(stdout);
    const bool the_dead_let_go = show_a_kill(pen);
    std::printf("%sRead next%s\n\n", pen.bold(), pen.plain());
    std::printf("   examples/quickstart.cc        this program\n");
    std::printf("   include/hierlock/hierlock.h   the headers are the manual, this is the guide\n");
    std::printf("   build/quickstart/hierlock     the tool; try: exec u1/a1 -- sleep 60, and status\n");
    std::printf("   ./test quick                  builds the tests and runs most of them\n\n");
    return matrix_is_right && fences_are_right && the_dead_let_go ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "quickstart: %s\n", e.what());
    return 1;
  }
}
