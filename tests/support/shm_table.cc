#include "support/shm_table.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "support/process_party.h"

namespace hierlock::conformance {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view prefix = "hierlock-test-";

fs::path root() {
  if (::access("/dev/shm", W_OK | X_OK) == 0) return "/dev/shm";
  return fs::temp_directory_path();
}

// A test that was aborted could not clean up: its process's number is in the name.
void remove_leftovers(const fs::path& where) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(where, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(prefix)) continue;
    pid_t pid = 0;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), pid);
    if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  static const fs::path where = [] {
    remove_leftovers(root());
    return root();
  }();
  path_ = where / (std::string(prefix) + std::to_string(::getpid()) + "-XXXXXX");
  if (::mkdtemp(path_.data()) == nullptr) throw std::system_error(errno, std::generic_category(), path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::unique_ptr<Party> ShmTable::make_party(std::string name, Locker& locker) {
  if (parties_ == Parties::threads) return Table::make_party(std::move(name), locker);
  return std::make_unique<ProcessParty>(std::move(name), url());
}

}  // namespace hierlock::conformance
