// SessionPool: the sessions of one Locker. The driver decides whether a lock has its own session or shares one.
//
//   idle ──take──> taken, asking ──granted──> taken, holding ──put_back──> idle
//                       └──────────────put_back────────────────────────────^
//
// - Requests are served in order. When a session comes back, the pool gives it to the first request in line, and wakes
//   only that one.
// - Requests that wait at the store use only a part of the pool (`most_waiting`). If that part is used up, a request
//   asks without waiting (Taken::may_wait is false). If its cells are taken, it gives the session back, and stands in
//   line for a place in that part. So a free target can be locked, however many requests wait for taken ones.
// - An owner that already has a session does not stand in line for another, because it might wait for itself. It may
//   use the whole pool. If the pool is empty, it gets `exhausted`.
//
// A request in line keeps its place in the local queue. An owner that holds a session may wait there for this request,
// while this request stands in line for the owner's session. Neither the queue nor the store sees this cycle. The Gate
// looks for such requests and calls let_pass() for them. They get `full`, give up their place in the queue, and queue
// again. They keep their ticket, and so their place in line.
//
// A release does not wait for the store's answer. The session comes back before that answer has come, and its next user
// reads the answer first. The pool prefers sessions without such an answer. If there are none and the store is far
// away, it makes one more session. If an answer stays unread for long, the heartbeat thread reads it.
//
// Other processes know a session by its notice. While the notice stands, the pool does not use the session for another
// lock. Otherwise other processes would take the new owner for the old one, and see false deadlocks. The pool keeps
// such a session aside until its notice is gone (`stands`, let_in()).
//
// A separate thread makes each session, so a request can still end at its deadline or when it is cancelled. The new
// session then goes to the next request. Otherwise requests with short timeouts would never get a session to a server
// that is far away.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include <hierlock/spi/backend.h>

#include "remote/session.h"
#include "timed/signal.h"
#include "timed/timed_mutex.h"
#include "timed/wait_limit.h"

namespace hierlock::remote {

using timed::Clock;
using timed::Deadline;
using timed::SharedDeadline;
using timed::TimedMutex;
using timed::WaitLimit;

class SessionPool {
 public:
  // Makes a new session, unless the limit gives up. Throws Error.
  using Connect = std::function<std::unique_ptr<Session>(WaitLimit&)>;
  SessionPool(std::size_t most, Connect connect);
  ~SessionPool();
  SessionPool(const SessionPool&) = delete;
  SessionPool& operator=(const SessionPool&) = delete;

  // Counts the calls of Session::begin_unlock_all(). 0: none. `begun`: it has no number yet.
  using Unlock = std::uint64_t;
  static constexpr Unlock begun = std::numeric_limits<Unlock>::max();
  struct Taken {
    std::unique_ptr<Session> session;
    bool fresh = false;     // connected just now: nobody has closed it meanwhile
    bool may_wait = false;  // it counts among the waiting, until granted() or put_back()
    bool full = false;      // there was none for a while, and the deadline has not passed
    Unlock unlock = 0;      // the answer to this one must be read first; then call unlocked()
    Clock::time_point unlock_sent{};
    Unlock before = 0;  // the last one without an answer, of any session, when it was taken; for wait_for_unlocks()
  };
  enum class Place : std::uint8_t {
    any,      // among the waiting if there is room, otherwise beside them
    waiting,  // among the waiting, however long that takes
  };
  struct Asking {
    std::uint64_t owner;
    const spi::Request& request;
    std::uint64_t in_queue = 0;  // its place in the local queue, for let_pass()
    std::uint64_t* ticket =
        nullptr;  // its number in line. 0: it gets one. Null: its owner has a session, so it never stands
    // Tells the user that it stands in line, if that is due. Returns when to call it again. May be empty.
    std::function<Clock::time_point()> tell{};
  };
  // Waits for a session as the request says.
  Taken take(const Asking& asking, Place place);
  // Requests with these places in the local queue must not stand in line any longer.
  void let_pass(const std::unordered_set<std::uint64_t>& in_queue);
  // The request got its cells: its session does not count among the waiting any more.
  void granted(const Taken& taken) noexcept;
  // Back from its owner, to be used again unless it is broken.
  void put_back(Taken taken, std::uint64_t owner) noexcept;
  // Its answer was read, or its session is closed.
  void unlocked(Unlock unlock) noexcept;
  // The last one without an answer, of any session. 0: all are answered.
  Unlock last_unanswered() const noexcept;
  // Waits until all up to this one are answered, and reads the answers that nobody else reads. If the time is up first,
  // the rest of the wait is left to others.
  void wait_for_unlocks(Unlock last, Clock::time_point by, const std::stop_token& cancel = {}) noexcept;
  // The owner of a session has become another, or nobody.
  static constexpr std::uint64_t nobody = 0;
  void give(std::uint64_t from, std::uint64_t to);

  std::size_t most() const noexcept { return most_; }
  // The requests that stand in line. No mutex is taken if there are none.
  struct Standing {
    std::uint64_t in_queue;
    Clock::time_point since;
  };
  std::vector<Standing> in_line() const;

  // All sessions go to one server: the one that the newest went to. That server must be fit for locks. Sessions on
  // another server, or on an unfit one (demoted to a replica), are not used again. A request that needs a session then
  // connects anew, and gets any error.
  void distrust();
  bool trusts(const std::string& server);
  std::string server();  // empty before the first session
  bool used_since(Clock::time_point then);
  void note_use();  // sessions of connect() are in use

  bool stands(const Session& session) const { return stands_ && stands_(session.id()); }
  // Tells whether there is a notice of a session. Set once, before the first take(). Must not throw.
  void set_stands(std::function<bool(std::uint64_t session)> stands) { stands_ = std::move(stands); }
  // Sessions that were kept aside and have no notice any more can be used again. Closes those whose notice stays.
  void let_in() noexcept;

  // Adds a session that is ready and has no owner yet.
  void add(std::unique_ptr<Session> session);
  // A new one that the pool does not count or keep, on the one server. Throws Error.
  std::unique_ptr<Session> connect(WaitLimit& limit);

  // Takes out idle sessions that were silent for so long, so that the caller sends a heartbeat or closes them. It also
  // takes out sessions whose unlock has no answer after the usual time. All of them still count as open.
  struct Idle {
    std::unique_ptr<Session> session;
    Clock::time_point used, spoken;
    Unlock unlock = 0;  // not answered yet
  };
  std::vector<Idle> take_quiet(Clock::duration since);
  void put_idle(Idle idle) noexcept;
  void drop_idle(Unlock unlock) noexcept;  // one that take_quiet() gave is closed

  // Runs `use` on the side session, which is for work other than locks and is made when first needed. Only one `use`
  // runs on it at a time. `limit` also covers the wait for the session and connecting. False: `use` could not be
  // called, or returned false; `why`: the error that kept it from it, if it was one.
  using Use = std::function<bool(Session&)>;
  bool on_the_side(const Use& use, Deadline& limit, std::optional<Error>* why = nullptr) noexcept;
  // The same for urgent work: if the side session is busy, it uses a second one.
  bool urgently_on_the_side(const Use& use, Deadline& limit) noexcept;
  // How many sessions there may be beyond `most`: the two on the side.
  static constexpr std::size_t beyond = 2;

  // Closes the idle sessions and the side sessions, and makes no more. Waits until `by` for threads that still use
  // them.
  void close(Clock::time_point by) noexcept;

 private:
  struct Making {
    const Clock::time_point began = Clock::now();
    bool wanted = true;  // by a request that waits for it
    bool done = false;   // of one that is not wanted only its thread is left then
    std::unique_ptr<Session> session;
    std::exception_ptr error;
    std::condition_variable_any* waits = nullptr;  // of the request that wants it
    std::thread thread;
  };
  struct Account {  // of an owner
    std::size_t sessions = 0, in_line = 0;
  };
  using Accounts = std::map<std::uint64_t, Account>;
  // A request in line. It is on the stack of its thread.
  struct InLine {
    const Asking& asking;
    const Place place;
    const Clock::time_point since = Clock::now();
    timed::Signal turn;  // something below has changed, or it may be its turn
    bool lets_pass = false;
    Taken given{};                    // a session that came back
    std::atomic<bool> served{false};  // it has that, and is not in line any more
    Accounts::iterator account{};     // there as long as it is in line: giving a session must not need memory
  };
  using Lines = std::list<InLine*>;  // by ticket
  using Guard = timed::WakingGuard;

  bool available() const;
  bool available_to(Place place) const;
  Lines& line(Place place) { return place == Place::waiting ? waiting_line_ : line_; }
  enum class Line : std::uint8_t { served, too_late, full };
  Line stand_in_line(Guard& guard, InLine& mine);
  bool give_to_next(Idle& idle, Guard& guard) noexcept;
  void wake_next(Guard& guard) noexcept;
  Taken take_now(Guard& guard, const Asking& asking, bool may_wait);
  Taken taken(Idle idle, bool may_wait) const noexcept;
  Unlock last_unanswered_now() const noexcept { return unanswered_.empty() ? 0 : unanswered_.back(); }
  void keep(Idle idle) noexcept;
  Idle take_unlocking() noexcept;
  void unlocked_now(Unlock unlock) noexcept;
  void make_another(const Session& like) noexcept;
  Making& begin_or_take_over();
  void make(Making& making) noexcept;
  void change(Accounts::iterator account, std::size_t Account::*what, int by) noexcept;
  void disown(std::uint64_t owner) noexcept;
  bool has_session(std::uint64_t owner) const noexcept;
  void stop_waiting(bool may_wait) noexcept;
  bool fit(const Session& session) const { return !distrusted_ && session.server() == server_; }

  const std::size_t most_, most_waiting_;
  const Connect connect_;
  std::function<bool(std::uint64_t)> stands_;

  mutable timed::BriefMutex mutex_;      // guards what follows
  std::condition_variable_any settled_;  // a session is made, or back from take_quiet()
  std::vector<Idle> idle_, aside_;       // with room for all: giving one back must not need memory
  std::list<Idle> unlocking_, spare_;    // their answers are still to come, the oldest first; and places for more
  std::vector<Unlock> unanswered_;       // by number
  Unlock last_unlock_ = 0;
  int late_ = 0;  // unlocks of a store far away that were not answered when their session was needed
  Clock::time_point made_another_{};
  Lines line_, waiting_line_;            // by Place; the first one is next
  std::atomic<std::size_t> in_line_{0};  // how many stand in both. Written under the mutex
  std::uint64_t last_ticket_ = 0;
  std::list<Making> making_;
  bool closed_ = false;
  std::size_t open_ = 0;                  // idle, unlocking, aside, tended, taken or being made
  std::size_t tended_ = 0;                // given out by take_quiet()
  std::size_t of_nobody_ = 0;             // taken, and given to nobody: their locks are parked or about to end
  std::size_t settling_ = 0;              // who wait for settled_, in take() and wait_for_unlocks()
  std::size_t waiting_ = 0;               // taken, and may_wait
  Accounts accounts_;                     // by owner; those with nothing are not there
  std::string server_;                    // Session::server()
  bool distrusted_ = false;               // no session was made since
  std::uint64_t asked_ = 0, newest_ = 0;  // sessions that were begun, and the last begun of those made
  Clock::time_point used_{};

  struct Side {
    TimedMutex mutex;
    std::unique_ptr<Session> session;  // guarded by it
  };
  bool on(Side& side, Clock::time_point free_by, const Use& use, Deadline& limit,
          std::optional<Error>* why = nullptr) noexcept;
  Side side_, urgent_;
  SharedDeadline ending_;
};

}  // namespace hierlock::remote
