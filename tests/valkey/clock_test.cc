// The server's clock is set forward and back. Leases end by it, so docs/valkey.md says what happens then.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include <hierlock/operate.h>

#include "on_valkey.h"
#include "support/process_party.h"

namespace hierlock::valkey_tests {
namespace {

using conformance::ProcessParty;

// A server whose clock is the test's to set (clock/gettimeofday.cc).
class ServerWithClock {
 public:
  ServerWithClock() {
    std::string folder = (std::filesystem::temp_directory_path() / "hierlock-clock-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = folder;
    const std::string clock = folder_ + "/clock";
    std::ofstream(clock) << std::string(sizeof(std::int64_t), '\0');
    const int file = ::open(clock.c_str(), O_RDWR | O_CLOEXEC);
    void* const mapped = mmap(nullptr, sizeof(std::int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) throw std::runtime_error("the clock cannot be mapped");
    offset_us_ = static_cast<volatile std::int64_t*>(mapped);
    start();
  }
  ~ServerWithClock() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    munmap(const_cast<std::int64_t*>(offset_us_), sizeof(std::int64_t));
    std::filesystem::remove_all(folder_);
  }
  ServerWithClock(const ServerWithClock&) = delete;
  ServerWithClock& operator=(const ServerWithClock&) = delete;

  std::string url(const std::string& options) const {
    return "valkey://localhost?socket=" + folder_ + "/socket&" + options;
  }
  void move(std::chrono::microseconds by) { *offset_us_ = *offset_us_ + by.count(); }

 private:
  // The program that the servers of the tests run, and how they start it.
  static std::vector<std::string> program() {
    std::ifstream file("/proc/" + server_variable("VALKEY_PID").value_or("0") + "/cmdline");
    const std::string all{std::istreambuf_iterator<char>(file), {}};
    std::vector<std::string> words;
    for (std::size_t at = 0; at < all.size(); at = all.find('\0', at) + 1) {
      const std::string word = all.substr(at, all.find('\0', at) - at);
      if (word == "--dir") return words;
      words.push_back(word);
    }
    throw std::runtime_error("it cannot be seen how the server of VALKEY_PID was started");
  }
  void start() {
    std::vector<std::string> words = program();
    for (const std::string word : {"--dir", "", "--port", "0", "--unixsocket", "", "--save", "", "--daemonize", "no"}) {
      words.push_back(word);
    }
    words[words.size() - 9] = folder_;
    words[words.size() - 5] = folder_ + "/socket";
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    std::string preload = "LD_PRELOAD=" HIERLOCK_TEST_CLOCK_LIBRARY,
                clock = "HIERLOCK_TEST_CLOCK=" + folder_ + "/clock";
    char* const environment[] = {preload.data(), clock.data(), nullptr};
    const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(nowhere, STDOUT_FILENO);
      dup2(nowhere, STDERR_FILENO);
      execve(arguments[0], arguments.data(), environment);
      _exit(127);
    }
    close(nowhere);
    if (!eventually([&] { return std::filesystem::exists(folder_ + "/socket"); })) {
      throw std::runtime_error("the server does not start");
    }
  }

  std::string folder_;
  pid_t pid_ = -1;
  volatile std::int64_t* offset_us_ = nullptr;
};

class ServerClock : public testing::Test {
 protected:
  void SetUp() override {
    HIERLOCK_NEEDS_SERVER("VALKEY");
    valkey::enable();
    server_.emplace();
    server_->move(60s);  // as if it had been started long ago: it grants locks at once
    ASSERT_TRUE(eventually([&] {
      try {
        return open("lease=20000").acquire("probe", {.timeout = 0s}).held();
      } catch (const Error&) {
        return false;
      }
    }));
  }
  ServerWithClock& server() { return *server_; }
  Locker open(const std::string& options = "lease=3000") { return hierlock::open(server().url(options)); }

 private:
  std::optional<ServerWithClock> server_;
};

// Two may believe to hold one lock until the first one's next renewal. Its fence is the lower one.
TEST_F(ServerClock, set_forward_ends_a_lock_and_its_holder_is_told) {  // B3, B4
  Locker holder = open(), other = open("lease=20000");
  const Lock lock = holder.acquire("u1", {.timeout = 30s});
  const std::int64_t fence = lock.fence();
  EXPECT_FALSE(other.try_acquire("u1").has_value());
  server().move(60s);
  const Lock next = other.acquire("u1", {.timeout = 30s});
  EXPECT_GT(next.fence(), fence);
  EXPECT_TRUE(eventually([&] { return !lock.held() && lock.lost().stop_requested(); }));
  EXPECT_TRUE(fails_with(ErrorKind::lost, [&] { static_cast<void>(lock.fence()); }));
  EXPECT_TRUE(next.held());
}

// By less than what is left of a lease. The next renewal counts from the new time.
TEST_F(ServerClock, set_forward_by_less_than_half_of_the_lease_changes_nothing) {
  Locker holder = open("lease=20000"), other = open("lease=20000");
  const Lock lock = holder.acquire("u1", {.timeout = 60s});
  server().move(8s);
  EXPECT_FALSE(other.try_acquire("u1", 200ms).has_value());
  EXPECT_TRUE(lock.held());
}

TEST_F(ServerClock, set_back_keeps_locks_of_the_living_and_fences_rise) {  // B3
  Locker holder = open(), other = open();
  std::optional<Lock> lock = holder.acquire("u1", {.timeout = 30s});
  const std::int64_t fence = lock->fence();
  server().move(-1h);
  EXPECT_FALSE(other.try_acquire("u1", 4s).has_value()) << "longer than a lease";
  EXPECT_TRUE(lock->held());
  lock.reset();
  const Lock next = other.acquire("u1", {.timeout = 20s});
  EXPECT_GT(next.fence(), fence);
}

TEST_F(ServerClock, set_back_keeps_locks_of_the_dead_until_they_are_broken) {
  Locker other = open("lease=1000");
  ProcessParty holder("holder", server().url("lease=1000"));
  ASSERT_TRUE(holder.acquire("u1").result.get().granted());
  server().move(-1h);
  holder.kill();
  EXPECT_FALSE(other.try_acquire("u1", 3s).has_value()) << "its lease ends by the server's clock";
  EXPECT_EQ(other.break_locks("u1", "its process is gone"), 1u);
  EXPECT_TRUE(other.try_acquire("u1", 20s).has_value()) << "after one lease at most";
}

TEST_F(ServerClock, that_is_wrong_is_told_by_doctor) {
  const auto verdict = [&] {
    for (const Finding& finding : doctor(server().url("table=t"))) {
      if (finding.check == "clock") return finding.verdict;
    }
    return Finding::Verdict::unsafe;
  };
  EXPECT_EQ(verdict(), Finding::Verdict::unknown) << "it is a minute ahead";
  server().move(-60s);
  EXPECT_EQ(verdict(), Finding::Verdict::good);
  server().move(-1h);
  EXPECT_EQ(verdict(), Finding::Verdict::unknown);
}

}  // namespace
}  // namespace hierlock::valkey_tests
