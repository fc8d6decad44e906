// Watch: a thread that looks after the sessions of one Locker: hears when the server hangs up, sends heartbeats, tells
// others who holds and waits (who.h), and finds the deadlocks that nobody else can.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "mysql/fences.h"
#include "mysql/pool.h"
#include "mysql/sessions.h"
#include "mysql/views.h"

namespace hierlock::mysql {

class Watch {
 public:
  // `queue` knows the names of the owners.
  Watch(const Options& options, Sessions& sessions, Pool& pool, Fences& fences, spi::Backend& queue);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void declare_lost(Held& held);
  void start();          // on first use; again is harmless. Throws Error
  void wake() noexcept;  // something changed that others should know soon
  // For good, when nothing is held and nobody asks any more: what was written down is taken out, as far as there is
  // time, and the pool is closed. Returns when that is done, or soon after `by`. Again is harmless.
  void end(Clock::time_point by) noexcept;

  // Writes down what has lasted long enough, and with a wait all that its owner holds. Every member of a cycle waits
  // and holds, be it here in the local queue or at the server, so the table then has every cycle. Takes out what is
  // over.
  void keep_the_book(Clock::time_point end);
  // The same, at once, where everything is to be written down at once (?publish_after=0); as far as there is time,
  // which is never much, and the rest is left to the thread.
  void changed(std::optional<Clock::time_point> end = std::nullopt) noexcept;

  // What this process has, without or with those who wait in the local queue; and what others have published, as far as
  // it can be read.
  std::vector<Entry> own(bool queued = false) const;
  std::vector<Entry> others();
  std::vector<Entry> published();  // by all
  // Those whom one of ours waits for at the server, in words, as far as they have published; empty: nobody has.
  std::string who_is_in_the_way(std::uint64_t session, Clock::time_point end);
  const std::string& process() const noexcept { return process_; }
  const std::string& host() const noexcept { return host_; }

 private:
  struct Heartbeat {
    std::shared_ptr<Held> of;
    std::unique_lock<TimedMutex> talking;  // a mutex of that
    std::int64_t sent;
  };
  using AllHeld = std::vector<std::shared_ptr<Held>>;

  void run(const std::stop_token& end);
  void look_after(const std::stop_token& end);
  void keep_the_book_in_turn();
  void listen(const AllHeld& all);
  void begin_heartbeats(const AllHeld& all);
  void end_heartbeats();
  void tend_idle();
  void tell_again();
  void look_at_server();
  void clear_old();
  void look_for_cycles();
  std::optional<View> waits_at_server();
  void raise_floor();
  bool read_published(Connection& side, WaitLimit& soon, std::vector<Entry>& entries) const;
  // All of them in one transaction; how many rows the last has changed.
  bool write(const std::vector<std::string>& statements, Clock::time_point end, std::uint64_t* last_changed = nullptr);
  bool aside(const std::function<bool(Connection&, WaitLimit&)>& use);
  bool aside(const std::function<bool(Connection&, WaitLimit&)>& use, Clock::time_point end);

  const Options& options_;
  Sessions& sessions_;
  Pool& pool_;
  Fences& fences_;
  spi::Backend& queue_;
  const std::string process_;  // the beginning of its owners' names in the table
  std::string host_;
  int wake_;

  std::vector<Heartbeat> beating_;
  AllHeld untold_;                              // guarded by Sessions::mutex
  TimedMutex book_;                             // guards the next two
  std::vector<std::uint64_t> written_;          // what is in the table
  std::map<std::uint64_t, std::string> known_;  // and what as
  Clock::time_point said_alive_{}, looked_for_old_{}, looked_for_cycles_{}, ask_server_again_{},
      looked_at_server_ = Clock::now();
  std::atomic<bool> anything_written_{false};
  std::atomic<bool> side_failed_{false};
  std::atomic<Clock::time_point> at_once_again_{Clock::time_point()};  // until then changed() leaves it to the thread

  SharedDeadline ending_;
  std::mutex starting_;  // guards what follows
  std::condition_variable ended_;
  bool runs_ = false;
  std::jthread thread_;
};

}  // namespace hierlock::mysql
