#include "cli/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>

namespace hierlock::cli {
namespace {

using Clock = std::chrono::steady_clock;

// How often the lock is looked at. Looking is reading a word; being woken costs more.
constexpr std::chrono::milliseconds look_interval{250};

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& extra) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto replaced = [&](const auto& one) { return text.starts_with(one.first + "="); };
    if (std::none_of(extra.begin(), extra.end(), replaced)) out.emplace_back(text);
  }
  for (const auto& [name, value] : extra) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// The child borrows the parent's memory until it calls exec (vfork): it starts as fast however much memory a store has
// mapped, nothing of the library runs at a fork, and the parent reads why exec failed from its own variable. In return
// the child may do nothing here but call the kernel. No signal handler can run in it: the tool has none.
pid_t start(char* const* argv, char* const* environment, int lifeline, bool dies_with_us, const Signals& signals,
            int& error) noexcept {
  const pid_t self = getpid();
  const pid_t pid = vfork();
  if (pid != 0) {
    if (pid < 0) error = errno;
    return pid;
  }
  // Scripts use low numbers for files of their own, and would close it without knowing.
  if (lifeline >= 0 && fcntl(lifeline, F_DUPFD, 100) < 0) fcntl(lifeline, F_SETFD, 0);
  if (dies_with_us) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != self) _exit(127);  // killed before it could be asked for
  }
  signals.restore_in_child();
  execvpe(argv[0], argv, environment);
  error = errno;
  _exit(127);
}

}  // namespace

Child::Child(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& extra,
             int lifeline, bool dies_with_us, const Signals& signals)
    : signals_(signals) {
  std::vector<std::string> arguments = command;
  std::vector<std::string> environment = environment_with(extra);
  pid_ = start(pointers(arguments).data(), pointers(environment).data(), lifeline, dies_with_us, signals, error_);
  if (error_ == 0 || pid_ < 0) return;
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

bool Child::ended(int& status) const { return waitpid(pid_, &status, WNOHANG) == pid_; }

void Child::pass_on(const siginfo_t& signal) const {
  // What is typed goes to the whole foreground group, and the child is in ours unless it has left it. (A terminal that
  // hangs up tells the session's leader only.)
  const bool typed = signal.si_signo == SIGINT || signal.si_signo == SIGQUIT || signal.si_signo == SIGTSTP;
  const bool has_it = typed && signal.si_code == SI_KERNEL && getpgid(pid_) == getpgrp();
  if (!has_it) kill(pid_, signal.si_signo);
  if (signal.si_signo == SIGTSTP) signals_.stop_here();
}

int Child::wait(const std::function<bool()>& may_go_on, std::chrono::nanoseconds grace) {
  std::optional<Clock::time_point> told_to_end;
  bool killed = false;
  for (int status = 0;;) {
    const std::optional<siginfo_t> signal = signals_.take(look_interval);
    // Until the child is waited for its number belongs to nobody else, so that a signal always meets the right one.
    if (ended(status)) return status;
    if (signal && signal->si_signo != SIGCHLD) pass_on(*signal);
    if (!told_to_end && !may_go_on()) {
      told_to_end = Clock::now();
      kill(pid_, SIGTERM);
      kill(pid_, SIGCONT);  // a stopped one does not hear the other
    } else if (told_to_end && !killed && Clock::now() - *told_to_end >= grace) {
      killed = true;
      kill(pid_, SIGKILL);
    }
  }
}

}  // namespace hierlock::cli
