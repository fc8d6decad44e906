#include "support/process_party.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace hierlock::conformance {

namespace {

std::system_error failed(const char* what) { return {errno, std::generic_category(), what}; }

struct Pipe {
  int read_end = -1, write_end = -1;

  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw failed("pipe2");
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    if (read_end >= 0) ::close(read_end);
    if (write_end >= 0) ::close(write_end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return std::string("was killed by ") + ::strsignal(WTERMSIG(status));
  return "exited with " + std::to_string(WEXITSTATUS(status));
}

// For the children of this thread, which can start no threads any more.
void enter_namespace_of(pid_t process) {
  const int there = ::open(("/proc/" + std::to_string(process) + "/ns/pid").c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = there >= 0 && ::setns(there, CLONE_NEWPID) == 0;
  ::close(there);
  if (!entered) throw failed("setns");
}

// In the new process, which has one thread of many: system calls only, and past the sanitizers, which have locks.
[[noreturn]] void become(const char* program, char* const* arguments, int input, int output,
                         const ProcessParty::How& how) {
  bool fine = ::syscall(SYS_dup3, input, STDIN_FILENO, 0) >= 0 && ::syscall(SYS_dup3, output, STDOUT_FILENO, 0) >= 0;
  if (how.own_proc) {
    fine = fine && ::syscall(SYS_mount, "none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::syscall(SYS_mount, "proc", "/proc", "proc", 0UL, nullptr) == 0;
  }
  if (fine) (void)::syscall(SYS_execve, program, arguments, environ);
  (void)::syscall(SYS_exit_group, 127L);
  __builtin_unreachable();
}

}  // namespace

ProcessParty::ProcessParty(std::string name, const std::string& url, const How& how) : Party(std::move(name)) {
  start(url, how);
  std::promise<Outcome> ready;
  std::future<Outcome> opened = ready.get_future();
  listener_ = std::thread([this, ready = std::move(ready)]() mutable { listen(std::move(ready)); });
  const bool answered = opened.wait_for(patience) == std::future_status::ready;
  const Outcome outcome = answered ? opened.get() : Outcome{.error = ErrorKind::unavailable, .message = "no answer"};
  if (outcome.granted()) return;
  may_die_ = may_die_ || !answered;
  reap();
  throw Error(*outcome.error, outcome.message);
}

ProcessParty::~ProcessParty() { reap(); }

void ProcessParty::start(const std::string& url, const How& how) {
  Pipe orders, answers;
  std::string program = HIERLOCK_HOLDER, its_url = url, its_name = name();
  std::vector<char*> arguments = {program.data(), its_url.data(), its_name.data(), nullptr};
  clone_args clone{};
  clone.exit_signal = SIGCHLD;
  if (how.own_pid_namespace) clone.flags |= CLONE_NEWPID;
  if (how.own_proc) clone.flags |= CLONE_NEWNS;
  if (how.pid != 0) {
    clone.set_tid = reinterpret_cast<std::uintptr_t>(&how.pid);
    clone.set_tid_size = 1;
  }
  const auto bear = [&] {
    const long child = ::syscall(SYS_clone3, &clone, sizeof clone);
    if (child < 0) throw failed("clone3");
    if (child == 0) become(program.c_str(), arguments.data(), orders.read_end, answers.write_end, how);
    return static_cast<pid_t>(child);
  };
  pid_ = how.beside == 0 ? bear() : std::async(std::launch::async, [&] {
                                      enter_namespace_of(how.beside);
                                      return bear();
                                    }).get();
  orders_ = std::exchange(orders.write_end, -1);
  answers_ = std::exchange(answers.read_end, -1);
}

void ProcessParty::listen(std::promise<Outcome> ready) {
  bool open = false;
  wire::Lines lines;
  while (lines.read_from(answers_)) {
    for (std::string_view line; lines.next(line);) {
      wire::Answer answer = wire::read_answer(line);
      if (answer.id == 0 && !open) {
        open = true;
        ready.set_value(std::move(answer.outcome));
        continue;
      }
      const std::scoped_lock guard(mutex_);
      const auto found = asked_.find(answer.id);
      if (found == asked_.end()) continue;
      found->second.set_value(std::move(answer.outcome));
      asked_.erase(found);
    }
  }
  const Outcome gone{.error = ErrorKind::unavailable, .message = name() + "'s process has ended"};
  if (!open) ready.set_value(gone);
  const std::scoped_lock guard(mutex_);
  silent_ = true;
  for (auto& [id, answer] : asked_) answer.set_value(gone);
  asked_.clear();
}

std::future<Outcome> ProcessParty::run(Command command) {
  std::promise<Outcome> answer;
  std::future<Outcome> result = answer.get_future();
  const std::scoped_lock guard(mutex_);
  const std::uint64_t id = ++last_id_;
  const std::string line = wire::line_of(wire::Request{id, std::move(command)});
  if (silent_ || orders_ < 0) {
    answer.set_value({.error = ErrorKind::unavailable, .message = name() + "'s process has ended"});
    return result;
  }
  asked_.emplace(id, std::move(answer));
  send(line);
  return result;
}

void ProcessParty::tell(wire::Control control) {
  if (control == wire::Control::die) may_die_ = true;
  if (control == wire::Control::stop) stopped_ = true;
  const std::scoped_lock guard(mutex_);
  send(wire::line_of(control));
}

void ProcessParty::abandon() {
  if (!gone_) tell(wire::Control::abandon);
}

// A process that is gone is noticed where its answers are read.
void ProcessParty::send(const std::string& line) {
  sigset_t pipe, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  if (!wire::write_all(orders_, line)) {
    const timespec at_once{};
    while (::sigtimedwait(&pipe, nullptr, &at_once) > 0) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ProcessParty::kill() {
  strike();
  reap();
}

void ProcessParty::strike() {
  may_die_ = true;
  if (!gone_) ::kill(pid_, SIGKILL);
}

void ProcessParty::stop() {
  stopped_ = true;
  ::kill(pid_, SIGSTOP);
  int status = 0;
  if (::waitpid(pid_, &status, WUNTRACED) != pid_ || !WIFSTOPPED(status)) {
    gone_ = true;
    throw std::runtime_error(name() + " did not stop, but " + how_it_ended(status));
  }
}

void ProcessParty::go_on() {
  stopped_ = false;
  ::kill(pid_, SIGCONT);
}

void ProcessParty::reap() {
  if (!gone_) {
    {
      const std::scoped_lock guard(mutex_);
      ::close(std::exchange(orders_, -1));
    }
    // Only then: it would also undo the stops with which a leak checker holds a process that is about to end.
    if (stopped_) go_on();
    int status = 0;
    pid_t ended = 0;
    for (const auto deadline = Clock::now() + patience; (ended = ::waitpid(pid_, &status, WNOHANG)) == 0;) {
      if (Clock::now() > deadline) {
        ADD_FAILURE() << name() << " (process " << pid_ << ") does not end when it should";
        strike();
        ended = ::waitpid(pid_, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    gone_ = true;
    if (ended == pid_ && !may_die_ && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
      ADD_FAILURE() << name() << " (process " << pid_ << ") " << how_it_ended(status);
    }
  }
  if (listener_.joinable()) listener_.join();
  if (answers_ >= 0) ::close(std::exchange(answers_, -1));
}

}  // namespace hierlock::conformance
