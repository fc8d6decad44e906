// Pool: the connections of one Locker. Each lock that is held has one to itself; those of nobody wait here.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include <hierlock/spi/backend.h>

#include "mysql_client/connection.h"
#include "timed/timed_mutex.h"

namespace hierlock::mysql {

class Pool {
 public:
  // A new one, unless the WaitLimit gives up.
  using Connect = std::function<std::unique_ptr<Connection>(WaitLimit&)>;
  Pool(std::size_t most, Connect connect) : most_(most), connect_(std::move(connect)) { idle_.reserve(most); }
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  struct Taken {
    std::unique_ptr<Connection> connection;
    bool fresh = false;   // connected just now: nobody else has closed it meanwhile
    bool others = false;  // this is not the only one that the owner has
    bool full = false;    // there was none for a while, and the deadline has not passed
  };
  // One for `owner`, waiting for it as the request says, but only for a while. An owner that has one already does not
  // wait for another, because it might wait for itself: `exhausted`.
  //
  // Whoever asks has its place in the local queue, and those who stand behind it there may be those who have the
  // connections: a cycle that neither the queue nor the server sees. So nobody waits here for long with that place in
  // hand: who finds it `full` gives its place back, lets those behind it pass, and queues again. Then every wait for a
  // connection that keeps somebody else waiting ends by itself, and no cycle goes through the pool.
  //
  // Each is made by a thread of its own. So a deadline (`timeout`) and a cancel are kept while one is made; and what
  // was begun for somebody who has not the time goes on, for the next who asks. Otherwise those with little time would
  // begin anew each time, and never have one at a server that is far away.
  Taken take(std::uint64_t owner, const spi::Request& request);
  bool has(std::uint64_t owner) {
    const std::lock_guard guard(mutex_);
    return had_.contains(owner);
  }
  std::size_t most() const noexcept { return most_; }
  // All connections are to be to one server, the one that the newest went to, and that one must be fit for locks. Those
  // of another, or of one that was found unfit (demoted to a replica), are not used again: whoever needs one connects
  // anew, and is told.
  void distrust();
  std::string server();  // empty before the first connection
  // Somebody has used a connection since.
  bool used_since(Clock::time_point then);

  // One that is ready, of nobody yet.
  void add(std::unique_ptr<Connection> connection);
  // Back from its owner, to be used again unless it is broken.
  void put_back(std::unique_ptr<Connection> connection, std::uint64_t owner) noexcept;
  // The owner of a connection has become another.
  void give(std::uint64_t from, std::uint64_t to);

  // Those of nobody that were not used for so long, to be asked whether they live or to be closed; they still count.
  struct Idle {
    std::unique_ptr<Connection> connection;
    Clock::time_point used, spoken;
  };
  std::vector<Idle> take_quiet(Clock::duration since);
  void put_idle(Idle idle) noexcept;
  void drop_idle() noexcept;  // one that take_quiet() gave is closed

  // For what is not a lock: a connection of its own, made when it is first needed. `use` gets it alone. Waiting for
  // that, and connecting, end as `until` says, too: whoever has it may be talking to a server that does not answer.
  using Use = std::function<bool(Connection&)>;
  bool on_the_side(const Use& use, Deadline& until) noexcept;
  // The same for what is urgent (KILL): if that one is busy, on another.
  bool urgently_on_the_side(const Use& use, Deadline& until) noexcept;

  // How many there may be beyond `most`, of one Locker: the two on the side, and that for snapshots (looker.h).
  static constexpr std::size_t beyond = 3;

  // Closes those of nobody and those on the side, and makes no more; nobody uses them any more. Waits for whoever still
  // does until `by`.
  void close(Clock::time_point by) noexcept;

 private:
  struct Making {
    const Clock::time_point began = Clock::now();
    bool wanted = true;  // by somebody who waits for it
    bool done = false;   // of one that is not wanted there is nothing left then but its thread
    std::unique_ptr<Connection> connection;
    std::exception_ptr error;
    std::thread thread;
  };
  Making& begin_or_take_over();
  void make(Making& making) noexcept;
  void disown(std::uint64_t owner) noexcept;
  std::unique_ptr<Connection> connect(WaitLimit& limit);
  bool fit(const Connection& connection) const { return !distrusted_ && connection.identity() == server_; }

  const std::size_t most_;
  const Connect connect_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable_any freed_;
  std::vector<Idle> idle_;  // with room for all: what gives one back must not need memory
  std::list<Making> making_;
  bool closed_ = false;
  std::size_t open_ = 0;                      // idle, tended, in use or being made
  std::size_t tended_ = 0;                    // given out by take_quiet()
  std::map<std::uint64_t, std::size_t> had_;  // by owner
  std::string server_;                        // Connection::identity()
  bool distrusted_ = false;                   // no connection was made to it since
  std::uint64_t asked_ = 0, newest_ = 0;      // connections that were begun, and the last begun of those made
  Clock::time_point used_{};

  struct Side {
    TimedMutex mutex;
    std::unique_ptr<Connection> connection;  // guarded by it
  };
  bool on(Side& side, Clock::time_point free_by, const Use& use, Deadline& until) noexcept;
  Side side_, urgent_;
  SharedDeadline ending_;
};

}  // namespace hierlock::mysql
