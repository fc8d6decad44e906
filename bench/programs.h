// Programs: what a command costs from its start to its end, as a script pays for it.
#pragma once

#include <spawn.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bench {

// Where the hierlock tool of this build is; none if it is not built.
std::optional<std::string> tool_path();
// Where bench/instructions/pairs is.
std::string pairs_path();
// The folder bench/lab.
std::string specs_path();
// The folder of PostgreSQL's isolation suite, which tools/postgres-isolation --fetch makes.
std::string suite_path();
// Where a program of PATH is; none if there is none.
std::optional<std::string> found_in_path(const std::string& name);

class Program {
 public:
  // `words` begin with the path of the program.
  explicit Program(std::vector<std::string> words) : words_(std::move(words)) {}

  // Starts it, waits for its end and returns its exit code. Throws if it cannot be started or is killed.
  int run() const { return run(nullptr); }
  // The same without what it says on stderr.
  int run_quietly() const;
  // The wall-clock time of a run, in nanoseconds. Throws if it fails.
  double time() const;
  // What it says on stderr. Throws if it fails.
  std::string errors() const;

 private:
  int run(const posix_spawn_file_actions_t* actions) const;

  std::vector<std::string> words_;
};

// A file that is locked as flock(1) does it, as long as this lives.
class FileLock {
 public:
  explicit FileLock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

}  // namespace bench
