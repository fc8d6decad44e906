// Keeper: a session that holds many names at a time, and its thread.
//
// A keeper never waits for a lock: the store answers every question at once. So its releases are never late. The store
// also sees no wait of a session that holds locks. Such waits would look like deadlocks between unrelated owners.
//
// Requests hand in jobs. The keeper asks the store for all present jobs in one statement. The next statement has the
// jobs that come meanwhile. The keeper does not change the order of jobs: the next job can take a name that the
// previous job released.
//
// Only the thread that has the `turn` talks on the session:
// - If the turn is free, a request takes it, and asks the store for its own job. That saves two thread switches.
//   Otherwise the keeper's thread asks.
// - If the deadline of a request passes in the middle of an answer, the request leaves the answer to the keeper's
//   thread. It does the same with an error or a loss.
// - A release sends its question, and leaves the answer to the next turn. If no turn comes within 10 ms, the keeper's
//   thread reads the answer, because it may say that the name is still held.
// - If a name is granted and no request waits for it any more, the keeper releases it before anything else.
//
// If the store ends the session, or does not answer for the length of the lease, all names on it are lost. Then the
// keeper tells each holder. The next job makes a new session.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "remote/hold.h"
#include "remote/name_store.h"
#include "remote/session_pool.h"
#include "timed/brief_mutex.h"
#include "timed/signal.h"

namespace hierlock::remote {

// KeptSession: one session of a keeper. The object exists as long as any lock has a name on the session.
class KeptSession {
 public:
  KeptSession(std::uint64_t number, std::string on, std::shared_ptr<Minter> mints, std::chrono::nanoseconds its_lease)
      : id(number), server(std::move(on)), minter(std::move(mints)), lease(its_lease) {}

  const std::uint64_t id;
  const std::string server;
  const std::shared_ptr<Minter> minter;
  const std::chrono::nanoseconds lease;
  std::atomic<std::int64_t> confirmed{0};  // when the last question was sent that the store answered
  std::atomic<bool> ended{false};

  bool surely() const noexcept { return !ended.load() && now_with_suspend() < confirmed.load() + lease.count(); }

  // Holds to be told when the session ends. False: it has ended.
  bool add(Hold& hold);
  void remove(const Hold& hold) noexcept;
  void tell_all(std::vector<std::shared_ptr<Hold>>& untold);

 private:
  timed::BriefMutex mutex_;  // guards what follows
  std::unordered_map<const Hold*, std::weak_ptr<Hold>> holds_;
};

// Several jobs that one thread waits for.
class Keeper;
class NameCall {
 public:
  // True: all jobs are done. False: they were not done by `end`, or `cancel` was requested.
  bool wait(Clock::time_point end, const std::stop_token& cancel);

 private:
  friend class Keeper;
  std::atomic<int> left_{0};
  std::atomic<bool> sleeps_{false};  // set before left_ is read, and read after left_ is set
  timed::Signal done_;
};

class Keeper {
 public:
  struct Job {
    NameOp op;
    std::shared_ptr<NameCall> call{};  // none: nobody waits for it
    // Guarded by the keeper's mutex until the call is over.
    bool done = false, abandoned = false;
    int tries = 0;
    NameResult result{};
    std::exception_ptr error{};
    std::shared_ptr<KeptSession> session{};  // that it was granted on
  };
  using JobPtr = std::shared_ptr<Job>;

  Keeper(NameStore& store, SessionPool& pool, std::chrono::nanoseconds lease, std::chrono::nanoseconds ask_after);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // Throws Error if there is no thread. `help`: the calling thread waits for nothing else until `help->end`. If no
  // other thread has the turn, it talks to the store itself.
  struct Help {
    Clock::time_point end;
    std::stop_token cancel;
  };
  void submit(std::span<const JobPtr> jobs, const std::shared_ptr<NameCall>& call, const Help* help);
  // Nobody waits for it any more. If it is granted, the name is given back.
  void abandon(const JobPtr& job) noexcept;
  // Gives a name back on the session that granted it. False: that session has ended, or there is no memory. In the
  // latter case the keeper closes the session.
  bool give_back(const LockName& name, std::uint32_t slot, const std::shared_ptr<KeptSession>& on) noexcept;
  bool in_use() const noexcept { return in_use_.load(); }
  std::uint64_t session() const noexcept { return last_session_.load(); }  // the store's number of the last one

  // Final. begin_to_end() only tells the thread to end. end() returns when the thread has ended, or soon after `by`.
  // Repeated calls do nothing.
  void begin_to_end(Clock::time_point by) noexcept;
  void end(Clock::time_point by) noexcept;

 private:
  class Finishing;
  void start();
  void run(const std::stop_token& end);
  void next_jobs(std::vector<JobPtr>& jobs);
  bool anything_to_do() const;
  void set_asked(bool asked) noexcept;
  void help(const NameCall& call, const Help& help);
  void send_jobs();
  bool take_plain_answer();
  void finish_asked();
  void tend();
  bool sleep();
  void connect();
  void work(std::vector<JobPtr> jobs);
  void conclude(const std::vector<JobPtr>& jobs, const std::optional<NameReply>& reply, std::int64_t sent);
  std::optional<NameReply> wait_for_answer();
  std::optional<NameReply> ask(std::span<const NameOp> ops, std::int64_t& sent);
  void settle(const std::vector<JobPtr>& jobs, const NameReply& reply);
  void try_again(std::vector<JobPtr> jobs, const NameReply& reply);
  void fail(const std::vector<JobPtr>& jobs, const std::exception_ptr& error) noexcept;
  void lose() noexcept;
  void wake() noexcept;   // there is something to do
  void nudge() noexcept;  // an answer may be left to the thread

  NameStore& store_;
  SessionPool& pool_;
  const std::chrono::nanoseconds lease_, ask_after_;
  const int wake_;

  std::mutex turn_;                       // before mutex_. Guards what follows
  std::unique_ptr<NameSession> session_;  // the thread alone sets it
  bool asked_ = false;                    // the answer was not read yet, or not evaluated yet:
  std::optional<NameReply> reply_;        // it was read, and is not plain
  std::vector<JobPtr> asked_for_;
  std::vector<NameOp> ops_;  // of asked_for_
  std::int64_t sent_ = 0;
  Clock::time_point used_{};
  std::vector<std::shared_ptr<Hold>> untold_;

  // For the thread, which sleeps without the turn: asked_, and how often it was set.
  std::atomic<bool> unread_{false};
  std::atomic<std::uint64_t> questions_{0};
  // There are jobs for the thread. (A request that has the turn also has its own jobs in jobs_ for a while.)
  std::atomic<bool> work_{false};
  std::atomic<bool> watches_{false};  // the thread looks often, because an answer may be left to it

  std::atomic<bool> in_use_{false};  // there is a session
  std::atomic<std::uint64_t> last_session_{0};
  mutable timed::BriefMutex mutex_;  // guards what follows
  std::deque<JobPtr> jobs_;
  std::shared_ptr<KeptSession> kept_;  // of session_
  std::size_t names_ = 0;              // that are held on it
  bool give_up_ = false;               // a name could not be given back
  timed::SharedDeadline ending_;

  std::mutex starting_;  // guards what follows
  std::condition_variable ended_;
  bool runs_ = false, closed_ = false;
  std::jthread thread_;
};

}  // namespace hierlock::remote
