#include "support/party.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace hierlock::conformance {

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  if (outcome.granted()) return out << "granted with fence " << outcome.fence;
  return out << to_string(*outcome.error) << " (" << outcome.message << ")";
}

namespace {

std::string text_of(const std::vector<Target>& targets) {
  std::string text;
  for (const Target& target : targets) text += (text.empty() ? "" : ", ") + target.str();
  return text;
}

}  // namespace

Pending Party::pending(Command command) {
  std::string asked = text_of(command.targets);
  return Pending{this, std::move(asked), run(command), command};
}

Outcome Party::at_once(Command command) {
  std::future<Outcome> result = run(std::move(command));
  if (result.wait_for(patience) != std::future_status::ready) {
    throw std::runtime_error(name_ + " does not answer: it is waiting, or its thread is stuck");
  }
  return result.get();
}

Pending Party::acquire_all(std::vector<Target> targets, const Ask& ask) {
  return pending({Command::What::acquire, std::move(targets), 0, ask});
}

Pending Party::try_acquire(const Target& target, std::chrono::nanoseconds timeout, const Ask& ask) {
  Ask with_timeout = ask;
  with_timeout.timeout = timeout;
  return pending({Command::What::try_acquire, {target}, 0, with_timeout});
}

Pending Party::extend(const Outcome& lock, const Target& target, const Ask& ask) {
  return pending({Command::What::extend, {target}, lock.handle, ask});
}

Pending Party::give_to(const Outcome& lock, const Owner& owner) {
  return pending({Command::What::give_to, {}, lock.handle, {.owner = &owner}});
}

void Party::release(const Outcome& lock) { (void)at_once({Command::What::release, {}, lock.handle, {}}); }

bool Party::holds(const Outcome& lock) { return at_once({Command::What::look, {}, lock.handle, {}}).granted(); }

std::int64_t Party::fence(const Outcome& lock) { return at_once({Command::What::look, {}, lock.handle, {}}).fence; }

bool Party::lost(const Outcome& lock) {
  return at_once({Command::What::lost, {}, lock.handle, {}}).error == ErrorKind::lost;
}

namespace {

class ThreadParty final : public Party {
 public:
  ThreadParty(std::string name, Locker& locker) : Party(std::move(name)), locker_(locker) {
    thread_ = std::thread([this] { work(); });
  }

  ~ThreadParty() override {
    abandon();
    thread_.join();
  }

  void abandon() override {
    std::map<int, Lock> given_back;
    const std::scoped_lock guard(mutex_);
    over_ = true;
    given_back.swap(locks_);
    wake_.notify_one();
  }

  std::future<Outcome> run(Command command) override {
    Job job{std::move(command), {}};
    std::future<Outcome> result = job.answer.get_future();
    const std::scoped_lock guard(mutex_);
    jobs_.push_back(std::move(job));
    wake_.notify_one();
    return result;
  }

 private:
  struct Job {
    Command command;
    std::promise<Outcome> answer;
  };

  void work() {
    std::unique_lock guard(mutex_);
    for (;;) {
      wake_.wait(guard, [&] { return over_ || !jobs_.empty(); });
      if (over_) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      guard.unlock();
      job.answer.set_value(outcome_of(job.command));
      guard.lock();
    }
  }

  Outcome outcome_of(const Command& command) {
    const auto start = Clock::now();
    Outcome outcome;
    outcome.handle = command.handle;
    try {
      perform(command, outcome);
    } catch (const Error& error) {
      outcome.error = error.kind();
      outcome.message = error.what();
      outcome.retryable = error.retryable();
      outcome.cycle = error.cycle();
    } catch (const std::exception& error) {
      outcome.error = ErrorKind::invalid_argument;
      outcome.message = std::string("not a hierlock::Error: ") + error.what();
    }
    outcome.took = Clock::now() - start;
    return outcome;
  }

  void perform(const Command& command, Outcome& outcome) {
    const Ask& ask = command.ask;
    const AcquireOptions options{ask.timeout, ask.cancel, ask.owner, ask.plain ? std::string_view() : name()};
    switch (command.what) {
      case Command::What::acquire: {
        Lock lock = command.targets.size() == 1 ? locker_.acquire(command.targets.front(), options)
                                                : locker_.acquire(command.targets, options);
        outcome.fence = lock.fence();
        if (!ask.then_release) outcome.handle = keep(++last_handle_, std::move(lock));
        break;
      }
      case Command::What::try_acquire: {
        std::optional<Lock> lock = locker_.try_acquire(command.targets.front(), *ask.timeout, options);
        if (lock) {
          outcome.fence = lock->fence();
          outcome.handle = keep(++last_handle_, *std::move(lock));
        } else {
          outcome.error = *ask.timeout > ask.timeout->zero() ? ErrorKind::timeout : ErrorKind::busy;
        }
        break;
      }
      case Command::What::extend: {
        Keeper lock(*this, command.handle);
        lock->extend(command.targets.front(), options);
        outcome.fence = lock->fence();
        break;
      }
      case Command::What::give_to: {
        Keeper lock(*this, command.handle);
        lock->give_to(*ask.owner);
        outcome.fence = lock->fence();
        break;
      }
      case Command::What::release: {
        Lock lock = take(command.handle);
        lock.release();
        break;
      }
      case Command::What::look: {
        Keeper lock(*this, command.handle);
        outcome.fence = lock->fence();
        break;
      }
      case Command::What::lost: {
        Keeper lock(*this, command.handle);
        if (lock->lost().stop_requested()) outcome.error = ErrorKind::lost;
        break;
      }
    }
  }

  // A lock in use is not in the map, so that abandon() never touches what this thread is using.
  class Keeper {
   public:
    Keeper(ThreadParty& party, int handle) : party_(party), handle_(handle), lock_(party.take(handle)) {}
    ~Keeper() { party_.keep(handle_, std::move(lock_)); }
    Lock* operator->() { return &lock_; }

   private:
    ThreadParty& party_;
    int handle_;
    Lock lock_;
  };

  int keep(int handle, Lock lock) {
    const std::scoped_lock guard(mutex_);
    if (!over_) locks_[handle] = std::move(lock);
    return handle;
  }

  Lock take(int handle) {
    const std::scoped_lock guard(mutex_);
    const auto found = locks_.find(handle);
    if (found == locks_.end()) return Lock();
    Lock lock = std::move(found->second);
    locks_.erase(found);
    return lock;
  }

  Locker& locker_;
  int last_handle_ = 0;  // used by thread_ only

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  std::map<int, Lock> locks_;
  bool over_ = false;

  std::thread thread_;
};

}  // namespace

std::unique_ptr<Party> make_thread_party(std::string name, Locker& locker) {
  return std::make_unique<ThreadParty>(std::move(name), locker);
}

}  // namespace hierlock::conformance
