#include "faults.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
// These tests fork all the time, and a fork takes longer the more memory a process has. Of what was freed the sanitizer
// would keep 256 MB.
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=16"; }
#endif

namespace hierlock::conformance {

Unrest::Unrest() {
  thread_ = std::thread([this] {
    constexpr auto nap = 1ms;
    while (!over_) {
      const auto start = Clock::now();
      std::this_thread::sleep_for(nap);
      const std::chrono::nanoseconds late = Clock::now() - start - nap;
      if (late > worst_.load()) worst_ = late;
    }
  });
}

Unrest::~Unrest() {
  over_ = true;
  thread_.join();
}

ProcessParty& Faults::process(const std::string& name, const ProcessParty::How& how) {
  (void)locker();
  return dynamic_cast<ProcessParty&>(add_party(name, std::make_unique<ProcessParty>(name, table().url(), how)));
}

void Faults::start_again() {
  Conformance::TearDown();
  std::error_code ignored;
  std::filesystem::remove_all(table().file(), ignored);
}

std::chrono::nanoseconds Faults::granted_after(Pending& pending, const std::function<void()>& blow,
                                               std::chrono::nanoseconds bound) {
  const Unrest unrest;
  const auto start = Clock::now();
  blow();
  (void)eventually([&] { return pending.ready(); });
  const std::chrono::nanoseconds took = Clock::now() - start;
  EXPECT_LT(took, bound + late_bound) << pending.by->name() << " waited too long for " << pending.asked;
  return took - unrest.worst();
}

int reap(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

bool alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return false;
  const std::size_t name_end = text.rfind(')');  // the name itself may contain anything
  return name_end != std::string::npos && name_end + 2 < text.size() && text[name_end + 2] != 'Z' &&
         text[name_end + 2] != 'X';
}

std::vector<int> descriptors_of(const std::string& file) {
  std::vector<int> numbers;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // that of the listing itself
    if (std::filesystem::read_symlink(entry.path(), gone) == file)
      numbers.push_back(std::stoi(entry.path().filename()));
  }
  return numbers;
}

bool see_another_start_of_the_machine(const std::string& folder) {
  const std::string other = folder + "/boot_id." + std::to_string(::getpid());
  std::ofstream(other) << "01234567-89ab-cdef-0123-456789abcdef\n";
  const bool fine = ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                    ::mount(other.c_str(), "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr) == 0;
  std::error_code ignored;
  std::filesystem::remove(other, ignored);
  return fine;
}

std::mt19937 random_numbers(std::string& seed) {
  const char* given = std::getenv("HIERLOCK_SEED");
  seed = given != nullptr ? given : std::to_string(std::random_device()());
  return std::mt19937(static_cast<std::uint32_t>(std::stoul(seed)));
}

Backend shm_processes() {
  return {"shm_processes", [] { return std::make_unique<ShmTable>(ShmTable::Parties::processes); }};
}

}  // namespace hierlock::conformance
