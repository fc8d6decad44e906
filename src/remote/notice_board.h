// NoticeBoard: tells other processes about the locks and waits of this Locker, and finds deadlocks that only the
// notices of all processes together show (B11).
//
// It publishes:
// - locks and waits that have lasted for `publish_after`. With a wait, it publishes all locks of the wait's owner. Of
//   the locks of names whose owners do not wait, it publishes at most 200.
// - after 20 ms, a wait that may be part of a deadlock. Its owner holds a lock, or the request asks for several targets
//   and may have some of them.
// - after 60 ms, any other wait at the store that another request may stand behind.
// - only the first 64 of the waits in the local queue whose owners hold no lock. It also publishes only the first 64 of
//   the waits for names at the store that can be in no cycle.
// Each member of a cycle waits, and holds what the member before it waits for, or stands before that member in a queue.
// The list has all such waits. So the notices of all processes contain every cycle.
//
// The NoticeBoard has its own thread, because it computes and talks to the store. Neither may delay a heartbeat.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "embedded/embedded.h"
#include "remote/deadlock_finder.h"
#include "remote/driver.h"
#include "remote/locks.h"
#include "timed/timed_mutex.h"

namespace hierlock::remote {

using timed::TimedMutex;

// Of this machine, for people.
std::string host_name();

class NoticeBoard {
 public:
  NoticeBoard(Driver& driver, Locks& locks, embedded::Queue& queue, std::chrono::milliseconds publish_after);
  ~NoticeBoard();
  NoticeBoard(const NoticeBoard&) = delete;
  NoticeBoard& operator=(const NoticeBoard&) = delete;

  void start();          // on first use; again is harmless. Throws Error
  void wake() noexcept;  // something changed that others should know soon
  // A wait has begun that is published soon. `may_block` is Pending::may_block.
  void expect(bool may_block) noexcept;
  // True if there is, or may be, a notice of this session. Other processes believe that the session belongs to the
  // owner in that notice.
  bool stands(std::uint64_t session) const noexcept;
  // Final. Call it when no lock is held and no request is running. Removes the notices, as far as there is time.
  // Returns when that is done, or soon after `by`. A second call does nothing.
  void end(Clock::time_point by) noexcept;

  // With publish_after=0, changed() publishes before it returns. It has little time for that, and leaves the rest to
  // the thread.
  void changed(std::optional<Clock::time_point> end = std::nullopt) noexcept;

  // What this Locker holds and waits for at the store; with `queued`, also its waits in the local queue.
  std::vector<Notice> own(bool queued) const;
  // Describes the owners that one of our waits at the store waits for, if they have published a notice. Empty: none
  // has.
  std::string in_the_way_of(std::uint64_t session, Clock::time_point end);
  bool is_own(const Notice& notice) const { return notice.owner.starts_with(process_); }
  std::string owner_of(std::uint64_t owner) const { return process_ + std::to_string(owner); }
  const std::string& process() const noexcept { return process_; }
  const std::string& host() const noexcept { return host_; }
  std::chrono::milliseconds publish_after() const noexcept { return publish_after_; }

 private:
  void run(const std::stop_token& end);
  void rest();
  void let_pass();
  void publish(Clock::time_point end);
  void leave_out_names(std::vector<Notice>& notices, const std::set<std::string>& waiting) const;
  void stand_by(std::vector<Notice>& news);
  void say_alive(const std::vector<std::uint64_t>& ids, Deadline& limit);
  void remove_old();
  void find_deadlocks();
  void judge(Pending& pending, const Notice& wait, const Notice& alone, DeadlockFinder& with_view,
             DeadlockFinder& of_owners, const View& view, Clock::time_point now);
  void note_sightings(const std::vector<Notice>& all, Clock::time_point now);
  Clock::time_point seen_since(const Cycle& cycle) const;
  bool in_other_queues(const Cycle& cycle) const;
  static bool through_names(const Cycle& cycle);
  bool shown_by(const View& view, const Cycle& cycle) const;
  bool let_pass_in(const Cycle& cycle);
  bool stays_in_the_way(const Pending& pending, const Notice& other) const;
  void look_again(Clock::time_point at);
  std::chrono::milliseconds published_after(const Pending& pending) const;
  bool in_no_cycle(const Pending& pending) const;
  std::vector<std::vector<std::uint64_t>> behind(const std::vector<std::shared_ptr<Pending>>& queued,
                                                 const std::vector<std::shared_ptr<Pending>>& at_store,
                                                 const std::map<std::uint64_t, std::uint64_t>& owners) const;
  Deadline soon() { return Deadline(std::chrono::seconds(2), &ending_); }

  Driver& driver_;
  Locks& locks_;
  embedded::Queue& queue_;
  const std::chrono::milliseconds publish_after_;
  const bool names_are_shared_;  // or may be
  const std::string process_;    // the beginning of its owners' names
  const std::string host_;

  TimedMutex publishing_;                                   // guards the next five
  std::unordered_map<std::uint64_t, std::string> written_;  // by id: what is published; empty: it must be again
  std::uint64_t published_version_ = 0;
  bool all_published_ = false;  // nothing that is younger than publish_after was left out
  Clock::time_point said_alive_{};
  Clock::time_point again_{};  // not before that, if the store has refused some
  std::atomic<bool> anything_written_{false};
  std::atomic<bool> failed_{false};                                    // the store could not be used
  std::atomic<Clock::time_point> at_once_again_{Clock::time_point()};  // until then changed() leaves it to the thread

  // The thread's own.
  Clock::time_point removed_old_ = Clock::now(), looked_{}, ask_store_again_{};
  using NoticeKey = std::pair<std::uint64_t, std::string>;  // id, owner
  struct Sighting {
    Clock::time_point since;
    std::int64_t fence;
    std::vector<std::uint64_t> behind;
  };
  std::map<NoticeKey, Sighting> sightings_;               // of the last look
  std::unordered_map<std::uint64_t, Pending*> requests_;  // by session; of this look only

  mutable std::mutex standing_mutex_;  // guards what follows
  std::unordered_set<std::uint64_t> standing_;

  SharedDeadline ending_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable woken_, ended_;
  bool runs_ = false, wake_ = false;
  Clock::time_point due_ = Clock::time_point::max();  // the thread rests no longer than that
  std::chrono::milliseconds pause_{};                 // between two looks for deadlocks
  std::jthread thread_;
};

}  // namespace hierlock::remote
