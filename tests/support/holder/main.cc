// holder: a process that acquires, waits, releases, stops or dies when it is told to. Tests start it through
// ProcessParty; by hand:
//
//     $ hierlock_holder shm: alice
//     granted handle=0 ...                    once the store is open; otherwise the error, and it ends
//     1 acquire target=u1/a1
//     1 granted handle=1 fence=...
//     die
//
// The language is that of conformance/wire.h. What it is asked for it does one thing after the other, on one thread, as
// a Party does; `abandon`, `exit`, `die` and the like are obeyed at once, also while that thread waits. It ends when
// its stdin does: whoever started it is gone.
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <exception>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <hierlock/hierlock.h>
#ifdef HIERLOCK_WITH_MYSQL
#include <hierlock/mysql.h>
#endif
#ifdef HIERLOCK_WITH_VALKEY
#include <hierlock/valkey.h>
#endif

#include "support/party.h"
#include "support/wire.h"

namespace hierlock::conformance {
namespace {

Outcome outcome_of(const std::exception& error) {
  Outcome outcome;
  const auto* known = dynamic_cast<const Error*>(&error);
  outcome.error = known != nullptr ? known->kind() : ErrorKind::invalid_argument;
  outcome.message = known != nullptr ? error.what() : std::string("not a hierlock::Error: ") + error.what();
  outcome.retryable = known != nullptr && known->retryable();
  return outcome;
}

// Sends the answers, in the order of the requests, which is the order in which a Party has them.
class Answers {
 public:
  Answers() : thread_([this] { work(); }) {}
  // Whatever has been promised must have been kept or broken.
  ~Answers() {
    {
      const std::scoped_lock guard(mutex_);
      over_ = true;
      wake_.notify_one();
    }
    thread_.join();
  }
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  void expect(std::uint64_t id, std::future<Outcome> outcome) {
    const std::scoped_lock guard(mutex_);
    expected_.push_back({id, std::move(outcome)});
    wake_.notify_one();
  }

  void refuse(std::uint64_t id, const std::exception& error) {
    std::promise<Outcome> at_once;
    at_once.set_value(outcome_of(error));
    expect(id, at_once.get_future());
  }

 private:
  struct Expected {
    std::uint64_t id;
    std::future<Outcome> outcome;
  };

  void work() {
    std::unique_lock guard(mutex_);
    for (;;) {
      wake_.wait(guard, [&] { return over_ || !expected_.empty(); });
      if (expected_.empty()) return;
      Expected next = std::move(expected_.front());
      expected_.pop_front();
      guard.unlock();
      try {
        // Nobody reads any more: stdin will end too.
        (void)wire::write_all(STDOUT_FILENO, wire::line_of(wire::Answer{next.id, next.outcome.get()}));
      } catch (const std::future_error&) {  // abandoned before it was begun
      }
      guard.lock();
    }
  }

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<Expected> expected_;
  bool over_ = false;

  std::thread thread_;
};

// Ends the process unless it has ended by itself in time: a wait that nobody ends must not keep it.
class LastCall {
 public:
  explicit LastCall(std::chrono::seconds limit) {
    thread_ = std::thread([this, limit] {
      std::unique_lock guard(mutex_);
      if (!wake_.wait_for(guard, limit, [&] { return over_; })) ::_exit(0);
    });
  }
  ~LastCall() {
    {
      const std::scoped_lock guard(mutex_);
      over_ = true;
      wake_.notify_one();
    }
    thread_.join();
  }
  LastCall(const LastCall&) = delete;
  LastCall& operator=(const LastCall&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

void close_descriptors() {
  std::vector<int> open_ones;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    open_ones.push_back(std::stoi(entry.path().filename()));
  }
  for (const int fd : open_ones) {
    if (fd > STDERR_FILENO) (void)::dup2(STDERR_FILENO, fd);
  }
}

void obey(wire::Control control, Party& party) {
  switch (control) {
    case wire::Control::abandon:
      party.abandon();
      break;
    case wire::Control::exit:
      ::_exit(0);
    case wire::Control::die:
      (void)::kill(::getpid(), SIGKILL);
      break;
    case wire::Control::stop:
      (void)::kill(::getpid(), SIGSTOP);
      break;
    case wire::Control::close:
      close_descriptors();
      break;
  }
}

void serve(Party& party, Answers& answers) {
  wire::Lines orders;
  while (orders.read_from(STDIN_FILENO)) {
    for (std::string_view line; orders.next(line);) {
      const std::uint64_t id = wire::id_of(line);
      try {
        std::variant<wire::Request, wire::Control> order = wire::read_order(line);
        if (const auto* control = std::get_if<wire::Control>(&order)) {
          obey(*control, party);
        } else {
          answers.expect(id, party.run(std::move(std::get<wire::Request>(order).command)));
        }
      } catch (const std::exception& error) {
        answers.refuse(id, error);
      }
    }
  }
}

int run(std::string_view url, std::string name) {
  std::optional<LastCall> bounded;  // outlives the rest, which may take its time to end
  std::optional<Locker> locker;
  std::unique_ptr<Party> party;
  try {
    locker.emplace(open(url));
    party = make_thread_party(std::move(name), *locker);
  } catch (const std::exception& error) {
    (void)wire::write_all(STDOUT_FILENO, wire::line_of(wire::Answer{0, outcome_of(error)}));
    return 0;
  }
  (void)wire::write_all(STDOUT_FILENO, wire::line_of(wire::Answer{0, {}}));
  Answers answers;
  serve(*party, answers);
  bounded.emplace(std::chrono::seconds(2));
  party.reset();
  return 0;
}

}  // namespace
}  // namespace hierlock::conformance

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fputs("usage: hierlock_holder URL [NAME]\n", stderr);
    return 64;
  }
  (void)std::signal(SIGPIPE, SIG_IGN);
#ifdef HIERLOCK_WITH_MYSQL
  hierlock::mysql::enable();
#endif
#ifdef HIERLOCK_WITH_VALKEY
  hierlock::valkey::enable();
#endif
  return hierlock::conformance::run(argv[1], argc == 3 ? argv[2] : "holder");
}
