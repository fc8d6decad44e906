// Signals: those that would end the tool, kept back until it asks for them, so that none is lost between two steps.
#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <stop_token>
#include <thread>

namespace hierlock::cli {

// From its making to its end these signals stay pending until they are taken: HUP, INT, QUIT, TERM, ALRM, USR1, USR2;
// those that were ignored from the start (as nohup does it) are left alone. SIGPIPE is ignored: a complaint that nobody
// reads must not end who watches over a command. Threads that are started meanwhile inherit all this, so it is made
// before a store is opened.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Also keeps back what a parent must know about: SIGCHLD, and SIGTSTP and SIGCONT to pass them on.
  void become_parent();

  // The next signal, or none if none came in `timeout`.
  std::optional<siginfo_t> take(std::chrono::nanoseconds timeout) const;

  // In a child between vfork and exec: everything as the tool itself found it. Async-signal-safe.
  void restore_in_child() const noexcept;

  // Stops this process as SIGTSTP does by itself, until SIGCONT.
  void stop_here() const noexcept;

  const sigset_t& kept_back() const noexcept { return kept_back_; }

 private:
  sigset_t kept_back_;
  sigset_t found_mask_;
  struct sigaction found_child_action_;
  struct sigaction found_pipe_action_;
};

// Turns the first signal into a stop request, from a thread of its own that exists only while somebody waits.
class CancelOnSignal {
 public:
  explicit CancelOnSignal(const Signals& signals) : signals_(signals) {}
  ~CancelOnSignal() { finish(); }
  CancelOnSignal(const CancelOnSignal&) = delete;
  CancelOnSignal& operator=(const CancelOnSignal&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  void start();
  // Ends the thread. Afterwards signal() is final.
  void finish() noexcept;
  // The signal that came, or 0.
  int signal() const noexcept { return signal_.load(); }

 private:
  void listen();

  const Signals& signals_;
  std::stop_source source_;
  std::atomic<int> signal_{0};
  std::atomic<bool> finished_{false};
  std::thread thread_;
};

// Makes a stop request within 50 ms once a signal is pending that would end the tool: HUP, INT, QUIT or TERM. The
// signal stays pending. For callers that have blocked these signals and read them elsewhere.
class StopOnPendingSignal {
 public:
  StopOnPendingSignal();
  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::jthread thread_;
};

}  // namespace hierlock::cli
