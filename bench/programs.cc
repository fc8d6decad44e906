#include "programs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "measure.h"

namespace bench {

std::optional<std::string> tool_path() {
#ifdef HIERLOCK_TOOL
  if (access(HIERLOCK_TOOL, X_OK) == 0) return HIERLOCK_TOOL;
#endif
  return std::nullopt;
}

std::string pairs_path() { return HIERLOCK_PAIRS; }

std::string specs_path() { return HIERLOCK_SPECS; }

std::string suite_path() { return HIERLOCK_SUITE; }

std::optional<std::string> found_in_path(const std::string& name) {
  const char* const path = std::getenv("PATH");
  for (std::string_view rest = path != nullptr ? path : ""; !rest.empty();) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
    std::string file = std::string(folder) + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return std::nullopt;
}

int Program::run(const posix_spawn_file_actions_t* actions) const {
  std::vector<char*> argv;
  for (const std::string& word : words_) argv.push_back(const_cast<char*>(word.c_str()));  // posix_spawn only reads it
  argv.push_back(nullptr);
  pid_t child = 0;
  // Not fork: what this process has in memory must not count.
  const int error = posix_spawn(&child, argv[0], actions, nullptr, argv.data(), environ);
  if (error != 0) throw std::runtime_error("cannot run " + words_[0] + ": " + std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw std::runtime_error("lost sight of " + words_[0] + ": " + std::strerror(errno));
  }
  if (!WIFEXITED(status)) throw std::runtime_error(words_[0] + " was killed");
  return WEXITSTATUS(status);
}

int Program::run_quietly() const {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const int code = run(&actions);
  posix_spawn_file_actions_destroy(&actions);
  return code;
}

double Program::time() const {
  const Clock::time_point begin = Clock::now();
  const int code = run();
  const double taken = nanoseconds(Clock::now() - begin);
  if (code != 0) throw std::runtime_error(words_[0] + " ended with exit code " + std::to_string(code));
  return taken;
}

std::string Program::errors() const {
  // A file without a name, so that nobody has to read along while it runs.
  const int file = memfd_create("stderr", MFD_CLOEXEC);
  if (file < 0) throw std::runtime_error(std::string("no memory for what a program says: ") + std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, file, STDERR_FILENO);
  const int code = run(&actions);
  posix_spawn_file_actions_destroy(&actions);
  std::string text;
  char part[4096];
  off_t at = 0;
  for (ssize_t size = 0; (size = pread(file, part, sizeof part, at)) > 0; at += size) {
    text.append(part, static_cast<std::size_t>(size));
  }
  close(file);
  if (code != 0) {
    throw std::runtime_error(words_[0] + " ended with exit code " + std::to_string(code) + ": " + text);
  }
  return text;
}

FileLock::FileLock(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  if (file_ < 0 || flock(file_, LOCK_EX) != 0) {
    throw std::runtime_error("cannot lock " + path + ": " + std::strerror(errno));
  }
}

FileLock::~FileLock() { close(file_); }

}  // namespace bench
