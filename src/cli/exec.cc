// The steps, and what keeps a gap between two of them harmless:
//   1. signals are kept back        from here on none is lost; the store's threads inherit it
//   2. the store is opened,         a signal that came before step 3 ends the tool, and nothing is run
//      the lock is acquired
//   3. the command is started       it never outlives the lock, whatever becomes of the tool: it inherits the
//                                   lifeline, by which the lock lasts as long as the command. On a store that has
//                                   none, the kernel kills it when the tool ends
//   4. the command is waited for    signals are passed on; a lost lock ends the command
//   5. the lock is released
#include "cli/exec.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include <hierlock/error.h>
#include <hierlock/spi/plan.h>
#include <hierlock/spi/url.h>

#include "cli/ancestors.h"
#include "cli/child.h"
#include "cli/look.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "plan/text.h"

namespace hierlock::cli {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::chrono::seconds grace{5};

std::string targets_text(const ExecCommand& command) { return spi::describe(spi::Plan(command.targets).steps()); }

// What the holder is called in status: the command's name, since the tool itself is not what anybody looks for. Its
// arguments may hold passwords; --note tells more.
std::string owner_name(const ExecCommand& command) {
  const std::string& path = command.command.front();
  return path.substr(path.rfind('/') + 1);
}

bool is_conflict(ErrorKind kind) {
  return kind == ErrorKind::timeout || kind == ErrorKind::busy || kind == ErrorKind::deadlock;
}

// If what it asks for is held by a command that it runs inside of: that, in words; otherwise nothing. On a server a
// lock is published when it has lasted for a second: `patience` is how long to look for it.
std::string own_parent_in_the_way(const ExecCommand& command, const Locker& locker,
                                  std::chrono::milliseconds patience = {}) {
  if (std::getenv("HIERLOCK_FENCE") == nullptr) return {};  // not inside of any
  const Clock::time_point end = Clock::now() + patience;
  std::optional<Snapshot::Party> who = ancestor_in_the_way(locker.snapshot(), command.targets);
  while (!who && Clock::now() < end) {
    std::this_thread::sleep_for(100ms);
    who = ancestor_in_the_way(locker.snapshot(), command.targets);
  }
  if (!who) return {};
  return targets_text(command) + " is held by your own parent command, " + plan::excerpt(who->owner_name) +
         ", and would wait for itself; name all targets in one exec";
}

int not_acquired(const ExecCommand& command, const Locker& locker, const Error& error) {
  // The library's words name its own functions.
  const std::string shows = "; " + status_command(command.store) + " shows by whom";
  std::string message = error.what();
  if (error.kind() == ErrorKind::busy) message = targets_text(command) + " is held or awaited by somebody else" + shows;
  if (error.kind() == ErrorKind::timeout) {
    message = targets_text(command) + " was not free within " + brief_time(*command.timeout) + shows;
  }
  // On this machine `exec` has already said so when the wait began.
  const bool remote = needs_server(command.store);
  const bool untold = error.kind() == ErrorKind::busy || (remote && error.kind() == ErrorKind::timeout);
  const std::string own = untold ? own_parent_in_the_way(command, locker, remote ? 3000ms : 0ms) : "";
  complain(own.empty() ? message : own);
  return command.conflict_exit_code;
}

// How long the tool may take to reach the store. A server that answers at all answers sooner; one that does not must
// not make --timeout late, nor --no-wait wait for long.
std::optional<std::chrono::nanoseconds> connect_timeout(const ExecCommand& command) {
  constexpr std::chrono::nanoseconds at_once = 2s, usual = 10s;  // by itself open() takes no longer than that
  if (!command.timeout || *command.timeout >= usual) return std::nullopt;
  return *command.timeout > 0ns ? *command.timeout : at_once;
}

// The time for connecting is part of --timeout.
std::optional<std::chrono::nanoseconds> time_left(const ExecCommand& command, Clock::time_point begin) {
  if (!command.timeout || *command.timeout <= 0ns) return command.timeout;
  return std::max<std::chrono::nanoseconds>(*command.timeout - (Clock::now() - begin), 1ns);  // 0 would be --no-wait
}

// The server did not answer while there was time.
int not_connected(const ExecCommand& command, const Error& error) {
  complain(targets_text(command) + " was not acquired within " + brief_time(*command.timeout) + ": " + error.what());
  return command.conflict_exit_code;
}

// Otherwise the store takes the lock away when the tool ends, whatever the command does, and has no log.
bool has_lifeline(Locker& locker) { return locker.lifeline() >= 0; }

// Why a lock was lost, as far as it can be told from here. A table that was removed takes its log with it.
std::string why_lost(const ExecCommand& command, Locker& locker) {
  const std::string scheme = spi::Url::parse(command.store.text).scheme;
  if (scheme == "valkey" || scheme == "redis") {
    return "its lease ended, because the server did not confirm a renewal in time, or an operator used hierlock break";
  }
  if (!has_lifeline(locker)) {
    return "its session ended, or may have ended: the server or an operator ended it, or the server cannot be reached";
  }
  struct stat file {};
  const bool removed = fstat(locker.lifeline(), &file) == 0 && file.st_nlink == 0;
  if (removed) return "the file of the lock table was removed or replaced";
  return "the log in " + status_command(command.store) + " shows what happened";
}

int cannot_run(const ExecCommand& command, int error) {
  const bool missing = error == ENOENT;
  complain("cannot run " + plan::excerpt(command.command.front()) + ": " + std::strerror(error) +
           (missing ? "; check its name and PATH" : "; check that it is a program you may run"));
  return missing ? exit_not_found : exit_cannot_run;
}

// Without room for a watch, what held() tells must do: the command is running, and wants to be waited for.
std::stop_token watch_for_loss(const Lock& lock) noexcept {
  try {
    return lock.lost();
  } catch (...) {
    return {};
  }
}

}  // namespace

int exec(const ExecCommand& command) {
  const Clock::time_point begin = Clock::now();
  Signals signals;
  CancelOnSignal cancel(signals);
  std::optional<Locker> opened;
  const auto on_event = [&](const Event& event) {
    if (event.kind == Event::Kind::wait_begins) {
      cancel.start();
      const std::string own = own_parent_in_the_way(command, *opened);
      if (!own.empty()) complain(own);
    }
    if (event.kind != Event::Kind::wait_goes_on) return;
    if (needs_server(command.store)) {
      const std::string own = own_parent_in_the_way(command, *opened);
      if (!own.empty()) return complain(own);
    }
    complain("still waiting for " + std::string(event.target) + " after " + brief_time(event.waited) +
             "; in the way: " + std::string(event.blocked_by));
  };
  if (needs_server(command.store)) cancel.start();
  try {
    opened = open_store(command.store,
                        {.on_event = on_event, .connect_timeout = connect_timeout(command), .cancel = cancel.token()});
  } catch (const Error& error) {
    cancel.finish();
    if (cancel.signal() != 0) return exit_by_signal + cancel.signal();
    const bool late = time_left(command, begin) == 1ns;
    if (late && error.kind() == ErrorKind::unavailable) return not_connected(command, error);
    throw;
  }
  Locker& locker = *opened;
  if (!locker.capabilities().across_processes) {
    complain(command.store.text + " excludes nobody: each command has a table of its own; use shm:");
  }
  const Owner owner = locker.owner(plan::cut_short(owner_name(command), 255));
  Lock lock;
  try {
    lock = locker.acquire(command.targets, {.timeout = time_left(command, begin),
                                            .cancel = cancel.token(),
                                            .owner = &owner,
                                            .note = plan::cut_short(command.note, 255)});
  } catch (const Error& error) {
    cancel.finish();
    if (cancel.signal() != 0) return exit_by_signal + cancel.signal();
    if (!is_conflict(error.kind())) throw;
    return not_acquired(command, locker, error);
  }
  cancel.finish();
  if (cancel.signal() != 0) return exit_by_signal + cancel.signal();
  if (const auto signal = signals.take({})) return exit_by_signal + signal->si_signo;

  signals.become_parent();
  // This is the main thread, which ends with the process and not before.
  const bool dies_with_us = locker.capabilities().across_processes && !has_lifeline(locker);
  Child child(command.command, {{"HIERLOCK_FENCE", std::to_string(lock.fence())}}, locker.lifeline(), dies_with_us,
              signals);
  if (child.error() != 0) return cannot_run(command, child.error());

  bool lost = false;
  std::optional<std::stop_token> watched;
  const auto may_go_on = [&] {
    // Asked for only when the command has proved to be no short one: the store may start a thread for it.
    if (!watched) watched = watch_for_loss(lock);
    if (lock.held() && !watched->stop_requested()) return true;
    lost = true;
    complain("the lock on " + targets_text(command) + " is lost: the command gets SIGTERM now, and SIGKILL in " +
             brief_time(grace) + "; " + why_lost(command, locker));
    return false;
  };
  const int status = child.wait(may_go_on, grace);
  if (!lost && !lock.held()) {
    lost = true;
    complain("the lock on " + targets_text(command) + " was lost while the command ran; " + why_lost(command, locker));
  }
  lock.release();
  if (lost) return exit_lost;
  return WIFEXITED(status) ? WEXITSTATUS(status) : exit_by_signal + WTERMSIG(status);
}

}  // namespace hierlock::cli
