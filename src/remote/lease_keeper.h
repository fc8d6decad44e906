// LeaseKeeper: renews the leases of all locks and waits of a Locker, and tells holders whose lock is lost.
//
// One thread renews. It sends due renewals together, 1,000 in a round trip. It looks at a lease only when the lease is
// due. An acquire wakes it only if there was no lease before. A second thread receives the store's messages about
// grants. A lost message costs only time, because the first thread also asks about waits twice a second.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remote/hold.h"
#include "remote/lease_store.h"
#include "timed/timed_mutex.h"

namespace hierlock::remote {

// A request at the store, from its first question until it has given everything back. Any thread may call anything
// here.
class Lease {
 public:
  Lease(std::string id, std::uint64_t session, std::chrono::nanoseconds time);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const std::string id;
  const std::uint64_t session;
  timed::TimedMutex extending;          // guards the next
  unsigned last_part = 0;               // one extend at a time
  std::atomic<std::int64_t> number{0};  // of the last grant
  std::atomic<bool> unanswered{false};  // a question was given up

  // True: the request certainly has all that it was granted. The time counts from the last question that the store
  // answered, on a clock that runs during suspend (B4).
  bool surely() const noexcept { return now_with_suspend() < ends_.load(); }

  // The request had something, and its time is over. The answer is right even while another thread adds the first
  // place.
  bool has_run_out() const;
  // The same for the request's wait at this place. It says nothing about other places, because their servers may
  // answer.
  bool wait_has_run_out(const std::string& place) const;

  // The places where the request has something. A lease knows a place only after the store has answered there.
  void answered(const std::string& place, std::int64_t sent, LeaseReply::State state, unsigned part = 0);
  void renewed(const Renewal& renewal, std::int64_t sent);
  void forget(const std::string& place);
  bool has(const std::string& place) const;
  unsigned granted_part(const std::string& place) const;  // the last one
  std::vector<std::string> places() const;
  // Adds the places that are due for renewal at this time.
  void collect(std::vector<Renewal>& renewals, std::int64_t time) const;
  std::int64_t due() const;  // when the next place is

  // For a request that waits: only answers from the place that it waits at count. expect() returns the number of the
  // question, which the answer must have. After wait(), the descriptor wake() becomes readable when there is an answer.
  std::uint64_t expect(const std::string& place);
  void wait();
  void tell(const std::string& place, const LeaseReply& reply);
  std::optional<LeaseReply> answer();  // once
  int wake() const noexcept { return wake_; }
  void stop_waiting() noexcept;  // a lock that is held needs no descriptor

  void set_holder(const std::shared_ptr<Hold>& holder);
  // Tells the holder that the lock is lost, once. told(): it could be told.
  void lose();
  bool lost() const noexcept { return lost_.load(); }
  bool told() const noexcept { return told_.load(); }

 private:
  struct Place {
    std::string name;
    std::int64_t confirmed = 0, asked = 0;
    bool waits = false;  // for the whole lock, or an extend of it
    bool holds = false;  // something was granted
    unsigned part = 0;   // the last one that was granted
    std::int64_t due(std::int64_t time) const;
  };
  void settle();

  const std::int64_t time_, margin_;
  std::atomic<std::int64_t> ends_{0};
  std::atomic<bool> lost_{false}, told_{true};
  int wake_ = -1;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Place> places_;
  std::weak_ptr<Hold> holder_;
  std::string expected_;
  std::uint64_t question_ = 0;
  std::optional<LeaseReply> answer_;
};

class LeaseHold final : public Hold {
 public:
  explicit LeaseHold(std::shared_ptr<Lease> l) : lease(std::move(l)) {}
  std::uint64_t session() const noexcept override { return lease->session; }
  bool surely() const noexcept override { return !gone() && !lease->lost() && lease->surely(); }

  const std::shared_ptr<Lease> lease;
};

class LeaseKeeper {
 public:
  LeaseKeeper(LeaseStore& store, std::chrono::nanoseconds lease) : store_(store), lease_(lease) {}
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  // On first use; again is harmless. Returns when the store would tell of grants. The keeper's own thread connects, so
  // that a slow connection is made once, however little time each request has. Throws Error.
  void start(WaitLimit& limit);
  void end(Clock::time_point by) noexcept;

  void add(const std::shared_ptr<Lease>& lease);
  void remove(const Lease& lease) noexcept;
  // The lease waits from now on, so the keeper asks the store about it twice a second.
  void waits(const Lease& lease);
  // The store did not confirm that this was given back. The keeper tells it again until it does, or until the lease has
  // ended.
  void drop_later(LeaseStore::Drop what) noexcept;

 private:
  void start_threads();
  void renew_all(const std::stop_token& stop);
  void sleep(const std::stop_token& stop);
  std::vector<Renewal> renew();
  void acknowledge(const std::vector<Renewal>& gone);
  class Batch;
  void drop_abandoned();
  void hear(const std::stop_token& stop);

  LeaseStore& store_;
  const std::chrono::nanoseconds lease_;
  timed::SharedDeadline ending_;
  int ended_ = -1;  // readable when the threads must end

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  struct Entry {
    std::shared_ptr<Lease> lease;
    std::int64_t look;  // when to look at it
  };
  void look_at(Entry& entry, std::int64_t when);
  std::unordered_map<std::string_view, Entry> leases_;     // by id
  std::set<std::pair<std::int64_t, const Lease*>> looks_;  // in this order
  bool asleep_ = false;                                    // until something is added
  struct Abandoned {
    LeaseStore::Drop what;
    std::int64_t until;
  };
  std::vector<Abandoned> abandoned_;
  std::condition_variable heard_;  // what follows has changed
  bool listens_ = false;
  unsigned failures_ = 0;         // of attempts to listen
  std::optional<Error> failure_;  // the last
  bool started_ = false;
  std::jthread renewing_, hearing_;
};

}  // namespace hierlock::remote
