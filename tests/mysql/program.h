// Program: another program beside the test. Process: the test itself, once more.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace hierlock::mysql_tests {

// A program beside the test, with what it prints in the test's hands.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      // A shell that starts the tests with & has them ignore SIGINT, and programs inherit that.
      for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) ::signal(number, SIG_DFL);
      dup2(ends[1], STDERR_FILENO);
      dup2(ends[1], STDOUT_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    out_ = ends[0];
  }
  ~Program() {
    if (!ended_) {
      kill(pid_, SIGKILL);
      wait();
    }
    close(out_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Reads until it has said this. False if it ends before.
  bool says(const std::string& text) {
    char buffer[512];
    while (said_.find(text) == std::string::npos) {
      const ssize_t got = read(out_, buffer, sizeof buffer);
      if (got <= 0) return false;
      said_.append(buffer, static_cast<std::size_t>(got));
    }
    return true;
  }
  // Reads until its end.
  void says_all() {
    char buffer[512];
    for (ssize_t got; (got = read(out_, buffer, sizeof buffer)) > 0;) {
      said_.append(buffer, static_cast<std::size_t>(got));
    }
  }
  pid_t pid() const { return pid_; }
  void signal(int number) const { kill(pid_, number); }
  // Its exit code, or 128 and the signal that ended it.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const std::string& said() const { return said_; }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  bool ended_ = false;
  std::string said_;
};

// A process that does `work` and then stays until it is killed. Made while this one has no other threads.
class Process {
 public:
  explicit Process(const std::function<void()>& work) {
    int ready[2];
    if (pipe(ready) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      close(ready[0]);
      try {
        work();
        (void)!write(ready[1], "+", 1);
        for (;;) pause();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "a process of the test: %s\n", error.what());
      }
      _exit(1);
    }
    close(ready[1]);
    ready_ = ready[0];
  }
  ~Process() {
    kill();
    close(ready_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Has done its work.
  bool ready() {
    char answer = 0;
    return read(ready_, &answer, 1) == 1;
  }
  pid_t pid() const { return pid_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int ready_ = -1;
};

}  // namespace hierlock::mysql_tests
