#include "crowd.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace bench {

namespace {

using namespace std::chrono_literals;

// What takes longer than this is broken.
constexpr auto patience = 60s;

// Whether a task sleeps, by the letter after its name in `stat`.
bool sleeps(const std::string& stat_file) {
  const int file = open(stat_file.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char text[512];
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  if (size <= 0) return false;
  text[size] = '\0';
  const char* const name_end = std::strrchr(text, ')');
  return name_end != nullptr && name_end[1] == ' ' && name_end[2] == 'S';
}

// Calls done() again and again until it says true.
template <class Done>
void wait_until(const char* what, const Done& done) {
  const Clock::time_point until = Clock::now() + patience;
  while (!done()) {
    if (Clock::now() > until) throw std::runtime_error(std::string(what) + " took more than a minute");
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace

ProcessCrowd::ProcessCrowd(std::size_t count, const Body& body) : about_to_wait_(std::size_t{0}) {
  const pid_t parent = getpid();
  try {
    for (std::size_t i = 0; i < count; ++i) {
      const pid_t child = fork();
      if (child < 0) throw std::runtime_error(std::string("cannot start a process: ") + std::strerror(errno));
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) std::_Exit(0);
        try {
          body([this] { about_to_wait_->fetch_add(1); });
        } catch (const std::exception& e) {
          fail(e.what());
        }
        std::_Exit(0);
      }
      children_.push_back(child);
    }
    wait_until("starting processes", [&] { return about_to_wait_->load() == children_.size(); });
    std::size_t asleep = 0;
    wait_until("going to sleep", [&] {
      while (asleep < children_.size() && sleeps("/proc/" + std::to_string(children_[asleep]) + "/stat")) ++asleep;
      return asleep == children_.size();
    });
  } catch (...) {
    end();
    throw;
  }
}

ProcessCrowd::~ProcessCrowd() { end(); }

void ProcessCrowd::end() noexcept {
  for (const pid_t child : children_) kill(child, SIGKILL);
  for (const pid_t child : children_) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

double ProcessCrowd::processor_nanoseconds() const {
  double sum = 0;
  for (const pid_t child : children_) sum += process_nanoseconds(child);
  return sum;
}

ThreadCrowd::ThreadCrowd(std::size_t count) : threads_(count) {
  constexpr std::size_t stack = 256 * 1024;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) throw std::runtime_error("cannot start threads");
  pthread_attr_setstacksize(&attributes, stack);
  busy_ = count;  // until each has said who it is
  for (std::size_t i = 0; i < count; ++i) {
    threads_[i].crowd = this;
    threads_[i].number = i;
    if (pthread_create(&threads_[i].thread, &attributes, run, &threads_[i]) != 0) {
      fail("cannot start so many threads");  // those that run already cannot be ended
    }
  }
  pthread_attr_destroy(&attributes);
  finish();
}

ThreadCrowd::~ThreadCrowd() {
  ends_ = true;
  ++order_;
  order_.notify_all();
  for (const Thread& thread : threads_) pthread_join(thread.thread, nullptr);
}

void* ThreadCrowd::run(void* argument) {
  auto& self = *static_cast<Thread*>(argument);
  try {
    self.crowd->work(self);
  } catch (const std::exception& e) {
    fail(e.what());
  }
  return nullptr;
}

void ThreadCrowd::work(Thread& self) {
  self.id = gettid();
  const auto returned = [this] {
    if (busy_.fetch_sub(1) == 1) busy_.notify_all();
  };
  std::uint32_t seen = 0;
  returned();
  for (;;) {
    order_.wait(seen);
    if (ends_) return;
    seen = order_;
    self.begun = seen;
    body_(self.number);
    returned();
  }
}

void ThreadCrowd::begin(std::function<void(std::size_t)> body) {
  body_ = std::move(body);
  busy_ = threads_.size();
  ++order_;
  order_.notify_all();
}

void ThreadCrowd::start(std::function<void(std::size_t)> body) {
  begin(std::move(body));
  const std::uint32_t order = order_;
  std::size_t asleep = 0;  // after it had begun, so either in the body or, if it has returned, waiting for an order
  wait_until("going to sleep", [&] {
    for (; asleep < threads_.size(); ++asleep) {
      const Thread& thread = threads_[asleep];
      if (thread.begun != order || !sleeps("/proc/self/task/" + std::to_string(thread.id) + "/stat")) return false;
    }
    return true;
  });
}

void ThreadCrowd::finish() {
  for (std::size_t busy = busy_; busy != 0; busy = busy_) busy_.wait(busy);
}

}  // namespace bench
