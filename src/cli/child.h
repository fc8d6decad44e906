// Child: a command that is run while a lock is held.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cli/signals.h"

namespace hierlock::cli {

class Child {
 public:
  // Starts the command, looked up in PATH, with `extra` in its environment beside ours, and with `lifeline` open (-1:
  // none); otherwise as if the tool had not been there: the same streams, signals and process group.
  // The signals must have become_parent(). With `dies_with_us` it is killed when this thread ends, whatever ends it.
  Child(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& extra,
        int lifeline, bool dies_with_us, const Signals& signals);

  // 0, or why it could not be started.
  int error() const noexcept { return error_; }

  // Passes signals on until the command has ended; returns its wait status. While it runs, `may_go_on` is asked several
  // times a second; when it says no the command gets SIGTERM, and SIGKILL if it is still there after `grace`.
  int wait(const std::function<bool()>& may_go_on, std::chrono::nanoseconds grace);

 private:
  bool ended(int& status) const;
  void pass_on(const siginfo_t& signal) const;

  const Signals& signals_;
  pid_t pid_ = -1;
  int error_ = 0;
};

}  // namespace hierlock::cli
