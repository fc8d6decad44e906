#include "cli/signals.h"

#include <pthread.h>
#include <time.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>

namespace hierlock::cli {

Signals::Signals() {
  sigemptyset(&kept_back_);
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGUSR1, SIGUSR2}) {
    struct sigaction found {};
    // Linux keeps a blocked signal pending even if it is ignored, so that it would be taken for one that counts.
    if (sigaction(signal, nullptr, &found) == 0 && found.sa_handler == SIG_IGN) continue;
    sigaddset(&kept_back_, signal);
  }
  sigaction(SIGCHLD, nullptr, &found_child_action_);
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignored, &found_pipe_action_);
  pthread_sigmask(SIG_BLOCK, &kept_back_, &found_mask_);
}

Signals::~Signals() {
  sigaction(SIGCHLD, &found_child_action_, nullptr);
  sigaction(SIGPIPE, &found_pipe_action_, nullptr);
  pthread_sigmask(SIG_SETMASK, &found_mask_, nullptr);
}

void Signals::become_parent() {
  // Whoever starts the tool with SIGCHLD ignored would make the kernel reap the child, and its exit code be lost.
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &by_default, nullptr);
  struct sigaction found {};
  if (sigaction(SIGTSTP, nullptr, &found) == 0 && found.sa_handler != SIG_IGN) sigaddset(&kept_back_, SIGTSTP);
  sigaddset(&kept_back_, SIGCONT);
  sigaddset(&kept_back_, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &kept_back_, nullptr);
}

std::optional<siginfo_t> Signals::take(std::chrono::nanoseconds timeout) const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec limit{seconds.count(), (timeout - seconds).count()};
  siginfo_t info{};
  // EINTR: a stop and its end, or a debugger. The caller looks again anyway.
  if (sigtimedwait(&kept_back_, &info, &limit) < 0) return std::nullopt;
  return info;
}

void Signals::restore_in_child() const noexcept {
  sigaction(SIGCHLD, &found_child_action_, nullptr);
  sigaction(SIGPIPE, &found_pipe_action_, nullptr);
  pthread_sigmask(SIG_SETMASK, &found_mask_, nullptr);
}

void Signals::stop_here() const noexcept {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  pthread_kill(pthread_self(), SIGTSTP);
  // Here it stops, unless nobody is there to wake it up again: the kernel drops SIGTSTP for an orphaned process group.
  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
}

void CancelOnSignal::start() {
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { listen(); });
  } catch (...) {
    // No room for a thread: then a signal ends the tool as it would any other.
    pthread_sigmask(SIG_UNBLOCK, &signals_.kept_back(), nullptr);
  }
}

void CancelOnSignal::listen() {
  sigset_t awaited = signals_.kept_back();
  sigaddset(&awaited, SIGCHLD);  // what finish() sends; blocked here, so that it is not lost before the wait
  pthread_sigmask(SIG_BLOCK, &awaited, nullptr);
  while (!finished_.load()) {
    siginfo_t info{};
    const int signal = sigwaitinfo(&awaited, &info);
    if (signal < 0 || signal == SIGCHLD) continue;  // children that were there before exec may end at any time
    signal_.store(signal);
    source_.request_stop();
    return;
  }
}

void CancelOnSignal::finish() noexcept {
  if (!thread_.joinable()) return;
  finished_.store(true);
  pthread_kill(thread_.native_handle(), SIGCHLD);
  thread_.join();
}

StopOnPendingSignal::StopOnPendingSignal() {
  const auto watch = [source = source_](const std::stop_token& over) mutable {
    std::mutex mutex;
    std::condition_variable_any ends;
    std::unique_lock guard(mutex);
    while (!over.stop_requested()) {
      sigset_t pending;
      sigemptyset(&pending);
      sigpending(&pending);
      for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
        if (sigismember(&pending, signal) == 1) source.request_stop();
      }
      ends.wait_for(guard, over, std::chrono::milliseconds(50), [] { return false; });
    }
  };
  try {
    thread_ = std::jthread(watch);
  } catch (const std::system_error&) {
    // No room for a thread: then a signal waits until the store is opened.
  }
}

}  // namespace hierlock::cli
