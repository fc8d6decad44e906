#include "stage.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <thread>

#include "hook.h"

#ifdef __SANITIZE_ADDRESS__
// These tests fork all the time, and a fork takes longer the more memory a process has. Of what was freed the sanitizer
// would keep 256 MB.
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=16"; }
#endif

namespace hierlock::stores {

std::optional<spi::Grant> ask(engine::Engine& engine, const std::vector<Target>& targets,
                              std::chrono::nanoseconds timeout, spi::OwnerId owner) {
  const spi::Plan plan{std::span<const Target>(targets)};
  spi::Request request{.plan = plan, .no_wait = timeout <= timeout.zero(), .owner = owner, .note = "a note"};
  if (!request.no_wait) request.deadline = Clock::now() + timeout;
  return engine.acquire(request);
}

Stage::Stage(engine::Capacity capacity) {
  static int number = 0;
  options_.path = "/dev/shm/hierlock-stores." + std::to_string(getpid()) + "." + std::to_string(++number);
  options_.capacity = capacity;
  engine_ = open();
}

Stage::~Stage() {
  engine_.reset();
  unlink(options_.path.c_str());
}

std::string Stage::verify() {
  const Clock::time_point deadline = Clock::now() + patience;
  while (engine_->table().mapping().processes() > 1) {
    if (Clock::now() > deadline) return "a dead process was not collected\n" + engine_->table().look().check();
    engine_->table().recovery().recover_now(false);  // at once: recover() leaves it to whoever has just looked
    std::this_thread::yield();
  }
  return engine_->table().look().check();
}

Victim::Victim(Stage& stage, const Act& act, long n, int signal) {
  int forth[2];
  int back[2];
  if (pipe2(forth, O_CLOEXEC) != 0 || pipe2(back, O_CLOEXEC) != 0) std::terminate();
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ < 0) std::terminate();
  if (pid_ == 0) {
    close(forth[1]);
    close(back[0]);
    const Cue cue{.ready =
                      [&] {
                        char byte = 'r';
                        if (write(back[1], &byte, 1) != 1) _exit(3);
                        if (read(forth[0], &byte, 1) != 1) _exit(3);
                      },
                  .arm = [&] { arm(n, signal); }};
    int status = 0;
    try {
      act(stage, cue);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the victim failed: %s\n", error.what());
      status = 2;
    }
    disarm();
    std::fflush(nullptr);
    _exit(status);
  }
  close(forth[0]);
  close(back[1]);
  to_ = forth[1];
  from_ = back[0];
}

Victim::~Victim() {
  kill();
  while (state_ == State::running || state_ == State::stopped) {
    resume();
    wait();
  }
  close(from_);
  close(to_);
}

void Victim::wait_until_ready() {
  char byte = 0;
  while (read(from_, &byte, 1) < 0 && errno == EINTR) {
  }
}

bool Victim::says_ready() {
  pollfd news{from_, POLLIN, 0};
  return poll(&news, 1, 0) > 0;
}

bool Victim::rests_before_ready() {
  while (!says_ready()) {
    if (at_rest()) return true;
    std::this_thread::yield();
  }
  wait_until_ready();
  return at_rest();
}

void Victim::go() {
  const char byte = 'g';
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
  if (write(to_, &byte, 1) < 0 && errno != EPIPE) std::terminate();
}

void Victim::note(int status) {
  if (WIFSTOPPED(status)) {
    state_ = State::stopped;
    was_stopped_ = true;
  } else if (WIFSIGNALED(status)) {
    state_ = WTERMSIG(status) == SIGKILL ? State::killed : State::failed;
  } else {
    state_ = WEXITSTATUS(status) == 0 ? State::finished : State::failed;
  }
}

Victim::State Victim::wait() {
  if (state_ != State::running) return state_;
  int status = 0;
  while (waitpid(pid_, &status, WUNTRACED) < 0) {
    if (errno != EINTR) std::terminate();
  }
  note(status);
  return state_;
}

bool Victim::at_rest() {
  int status = 0;
  if (state_ == State::running && waitpid(pid_, &status, WUNTRACED | WNOHANG) == pid_) note(status);
  return state_ != State::running;
}

void Victim::resume() {
  if (state_ != State::stopped) return;
  state_ = State::running;
  ::kill(pid_, SIGCONT);
}

void Victim::kill() {
  if (state_ == State::running || state_ == State::stopped) ::kill(pid_, SIGKILL);
}

}  // namespace hierlock::stores
