// HeartbeatThread: sends heartbeats on sessions that hold locks, and tells holders whose lock is lost.
//
// This thread is never late, so no lock on a healthy server is lost because of it. It computes nothing, and never waits
// for an answer. It also never waits for a mutex that another thread keeps while it talks to the store. Other threads
// do slow work: notices, deadlocks, fitness of the server.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "remote/hold.h"
#include "remote/session_pool.h"
#include "timed/brief_mutex.h"

namespace hierlock::remote {

// A lock on a session of its own.
class SessionHold final : public Hold {
 public:
  // `sent`: when the request was sent that the store has granted. The store keeps a silent session for at least the
  // lease. If the constructor runs out of memory, `from` keeps the session.
  SessionHold(std::unique_ptr<Session>& from, std::uint64_t its_owner, std::int64_t sent,
              std::chrono::nanoseconds its_lease)
      : id(from->id()),
        server(from->server()),
        socket(from->socket()),
        lease(its_lease),
        owner(its_owner),
        confirmed(sent),
        held(std::move(from)) {}

  std::uint64_t session() const noexcept override { return id; }
  bool surely() const noexcept override {
    return !gone() && !released.load() && now_with_suspend() < confirmed.load() + lease.count() && part_surely();
  }

  const std::uint64_t id;
  const std::string server;
  const int socket;
  const std::chrono::nanoseconds lease;
  std::atomic<std::uint64_t> owner;
  std::atomic<std::int64_t> confirmed;  // when the last question was sent that the store answered
  std::atomic<bool> released{false};    // by its holder: its loss is no longer reported

  // Guards what follows. An extend keeps it while it waits; the heartbeat thread only tries.
  TimedMutex talking;
  std::unique_ptr<Session> held;
  bool beating = false;  // the answer to a heartbeat is still to come
  std::int64_t beat_sent = 0;

 private:
  friend class HeartbeatThread;
  std::list<std::shared_ptr<SessionHold>>::iterator place_{};  // guarded by the thread's mutex
};

class HeartbeatThread {
 public:
  // `ask_after`: a session that holds a lock, or is idle, gets a heartbeat after so long without an answer.
  HeartbeatThread(SessionPool& pool, std::chrono::nanoseconds ask_after);
  ~HeartbeatThread();
  HeartbeatThread(const HeartbeatThread&) = delete;
  HeartbeatThread& operator=(const HeartbeatThread&) = delete;

  void start();  // on first use; again is harmless. Throws Error
  // Final. Returns when the thread has ended, or soon after `by`. A second call does nothing.
  void end(Clock::time_point by) noexcept;
  void wake() noexcept;

  void add(const std::shared_ptr<SessionHold>& hold);
  void remove(SessionHold& hold) noexcept;
  void replace(SessionHold& by_another, const std::shared_ptr<SessionHold>& hold) noexcept;
  // The holder has released the lock while another thread talks on its session. The session is closed when that thread
  // is done.
  void close_later(SessionHold& hold) noexcept;
  // Declares every lock lost that is on this server.
  void lose_all_on(const std::string& server);
  // Declares one lock lost. If it cannot start a thread to tell the holder, it tries again later.
  void lose(SessionHold& hold);

 private:
  using Holds = std::vector<std::shared_ptr<SessionHold>>;
  void run(const std::stop_token& end);
  Holds all() const;
  void listen(const Holds& holds);
  void look_at(SessionHold& hold, bool readable, bool hung_up);
  static Session::Answer read_answer(SessionHold& hold);
  void tend_idle();
  void close_released();

  SessionPool& pool_;
  const std::chrono::nanoseconds ask_after_;
  const int wake_;

  mutable timed::BriefMutex mutex_;  // guards what follows
  std::list<std::shared_ptr<SessionHold>> holds_, closing_;

  Holds untold_;  // lost, but no thread could be started to tell their holders

  struct Tended {
    SessionPool::Idle idle;
    Clock::time_point asked;
  };
  std::vector<Tended> tended_;  // the thread's own

  std::mutex starting_;  // guards what follows
  std::condition_variable ended_;
  bool runs_ = false;
  std::jthread thread_;
};

}  // namespace hierlock::remote
