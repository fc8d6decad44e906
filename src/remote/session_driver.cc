#include "remote/session_driver.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

namespace hierlock::remote {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds longest_unlock{900};
// How long a request with no_wait waits for a store that says nothing, before it interrupts that. An extend waits for
// longer, because it costs the lock if the interruption is not answered either. But a lock that is kept must not have
// become uncertain meanwhile, for want of heartbeats.
constexpr seconds longest_try{2}, longest_extending_try{5};
constexpr milliseconds longest_second_try{300};
constexpr seconds longest_confirmation{3};
constexpr milliseconds look_interval{50};
constexpr Clock::time_point never = Clock::time_point::max();
constexpr int most_made = 3;  // times that missing cells are made, for one request

// A store may answer "deadlock" at once and many times, for example if too many requests wait for one cell.
void pause_after(int deadlocks, const spi::Request& request) {
  const Clock::duration pause = milliseconds(std::min(50, 1 << std::min(deadlocks, 6)));
  std::this_thread::sleep_until(std::min(Clock::now() + pause, request.deadline.value_or(never)));
}

std::stop_token cancel_of(const spi::Request& request) {
  return request.cancel != nullptr ? *request.cancel : std::stop_token();
}

bool all_there(const LockReply& reply) {
  return std::find(reply.there.begin(), reply.there.end(), false) == reply.there.end();
}

void unlock(Session& session, Clock::time_point by) noexcept {
  Deadline soon(by);
  session.unlock_all(soon);
}

}  // namespace

// Interrupts a wait on one of the sessions on the side.
class SessionDriver::PoolInterrupter final : public Interrupter {
 public:
  PoolInterrupter(SessionDriver& driver, const Session& waiting) : driver_(driver), waiting_(waiting) {}
  bool interrupt(Deadline& limit) override {
    bool unanswered = false;
    const auto use = [&](Session& side) {
      if (side.server() != waiting_.server()) return false;  // another server has other sessions by that number
      const bool done = driver_.store_->interrupt(side, waiting_, limit);
      if (!limit.next()) unanswered = true;  // it may still come to pass, and hit a later statement
      return done;
    };
    return driver_.pool_.urgently_on_the_side(use, limit) && !unanswered;
  }

 private:
  SessionDriver& driver_;
  const Session& waiting_;
};

struct SessionDriver::Asking {
  Session& session;
  bool fresh;    // connected just now
  bool no_wait;  // also for a request that may wait, if the pool has no room for one more
  const Ask& of;
  std::span<const Cell> cells;
  SessionHold* extended = nullptr;
};

SessionDriver::SessionDriver(std::unique_ptr<SessionStore> store, std::size_t most_sessions, const Timing& timing)
    : lease_(timing.lease),
      store_(std::move(store)),
      pool_(most_sessions, [&from = *store_](WaitLimit& limit) { return from.connect(limit); }),
      heartbeats_(pool_, timing.ask_after) {
  store_->attach(*this);
}

void SessionDriver::end(Clock::time_point by) noexcept {
  heartbeats_.end(by);
  pool_.close(by);
  store_->end(by);
}

// Asks for the cells on one session, until there is an answer that counts.
SessionDriver::Outcome SessionDriver::ask(const Asking& asking, LockReply& reply, std::int64_t& sent) {
  using Kind = LockReply::Kind;
  auto& [session, fresh, no_wait, of, cells, extended] = asking;
  PoolInterrupter interrupter(*this, session);
  LockWait wait(of, session.id(), interrupter, extended != nullptr ? longest_extending_try : longest_try,
                no_wait ? LockWait::Victim::never : LockWait::Victim::may_be, session.usual_answer);
  const auto again = [&] {
    if (wait.ended()) return false;
    // The store found a deadlock, and chose a request that locks in order and held nothing on this session before. It
    // has given back all that it had reached, so the others can go on, and it starts over.
    if (reply.kind == Kind::deadlock) return extended == nullptr && !of.request.no_wait;
    // The store ends long waits by itself. So a request that died while waiting is not waited for longer (B5), and
    // neither is a statement that a backup waits for.
    return reply.kind == Kind::wait_is_long && !no_wait;
  };
  // A store may end the whole lock with the statement that it refuses, or whose wait it ends.
  const auto confirm_kept = [&] {
    if (extended == nullptr || (reply.kind != Kind::wait_is_long && reply.kind != Kind::busy)) return;
    const std::int64_t asked = reply.kind == Kind::busy ? sent : now_with_suspend();
    Deadline soon(longest_unlock);
    store_->confirm_kept(session, reply, soon);
    extended->confirmed = asked;
  };
  // A statement passes a cell that is not there, and locks later ones. Another session may make that cell and lock it.
  // A request that then waited for the cell would do so out of order (H5), in a cycle that no notice shows. So it gives
  // back what it has and starts over; once it has seen that all cells are there, it need not do so again. An extend
  // cannot give anything back: it has seen to its cells before.
  //
  // But starting over may close a cycle, too. Others may wait for a cell that the request shares with another lock of
  // its owner. They came later, and now the request asks again behind them. So it starts over only if it must: not if
  // the cells were known to be there before, and not if it has all cells before its last one.
  bool all_there = extended != nullptr || !store_->cells_may_be_missing() || known_.all(cells);
  const auto has_all_before_the_last = [&] {
    return cells.size() < 2 || session.lock(cells.first(cells.size() - 1), true, wait).kind == Kind::granted;
  };
  const auto start_over = [&] {
    all_there = true;
    if (has_all_before_the_last()) return true;
    unlock(session, Clock::now() + longest_unlock);
    session.find_missing(cells, reply, wait);
    if (reply.kind != Kind::granted) return false;
    known_.add(cells);
    return true;
  };
  for (int deadlocks = 0;;) {
    sent = now_with_suspend();
    reply = session.lock(cells, no_wait, wait);
    // The session may have been slow to be made for another reason than a long way to the store.
    const std::chrono::nanoseconds took(now_with_suspend() - sent);
    session.usual_answer = std::min<Clock::duration>(session.usual_answer, 3 * took);
    confirm_kept();
    if (!again()) break;
    if (reply.kind == Kind::deadlock) {
      pause_after(++deadlocks, of.request);
    } else if (!all_there && !start_over()) {
      break;
    }
  }
  // The interruption of an extend may cross the grant of its last cell. That cell would stay locked, and no process
  // would know. So the store is asked once more, without waiting: then it is granted, or certainly not locked.
  const bool failed = reply.kind != Kind::granted && reply.kind != Kind::missing && reply.kind != Kind::deadlock;
  if (extended != nullptr && !no_wait && wait.ended() && !wait.victim() && failed && !session.broken()) {
    spi::Request at_once = of.request;
    at_once.no_wait = true;
    at_once.cancel = nullptr;
    const Ask once_more{of.plan, at_once, of.owner, of.teller, of.host};
    LockWait briefly(once_more, session.id(), interrupter, longest_second_try, LockWait::Victim::never);
    sent = now_with_suspend();
    reply = session.lock(cells, true, briefly);
    confirm_kept();
  }
  if (reply.kind == Kind::missing && reply.there.empty()) {
    if (extended == nullptr) unlock(session, Clock::now() + longest_unlock);
    LockReply found;
    session.find_missing(cells, found, wait);
    reply.there = std::move(found.there);
    // An extend may have locked cells behind the missing one. So it stays `missing`, also if the look fails.
    if (found.kind == Kind::failed && extended == nullptr) reply = std::move(found);
  }
  const bool granted = reply.kind == Kind::granted || reply.kind == Kind::missing;
  // A deadlock that the store finds at the last moment has taken away what was held before, too: that is more than
  // "too late". And a grant that crossed the end is kept: no part of an extended lock can be given back.
  const bool rolled_back = extended != nullptr && reply.kind == Kind::deadlock;
  const bool crossed = extended != nullptr && granted && !wait.victim();
  if (wait.ended() && !rolled_back && !crossed) {
    if (wait.victim()) wait.throw_deadlock();
    if (wait.cancelled()) throw cancelled_error("waiting for", of.plan);
    if (wait.lets_pass()) return Outcome::full;
    // With no_wait the caller is told whether a cell is taken, or the store did not even answer the interruption.
    if (!of.request.no_wait || !session.broken()) return Outcome::not_in_time;
  }
  if (reply.kind == Kind::granted && reply.session != session.id()) {
    session.give_up();
    throw Error(ErrorKind::unsafe_topology,
                "the lock was granted to another session than the one that asked: a proxy is in between that mixes "
                "sessions. Connect to the server itself");
  }
  switch (reply.kind) {
    case Kind::granted:
      return Outcome::granted;
    case Kind::missing:
      return Outcome::missing;
    case Kind::busy:
    case Kind::wait_is_long:
      if (no_wait) return Outcome::not_in_time;
      break;
    default:
      break;
  }
  if (session.broken() && !fresh && !wait.ended()) return Outcome::again;  // the store closed it while nobody used it
  throw store_->failure(reply, "lock " + spi::describe(of.plan.steps()));
}

std::vector<Driver::InLine> SessionDriver::in_line() const {
  std::vector<InLine> result;
  for (const SessionPool::Standing& one : pool_.in_line()) result.push_back({one.in_queue, one.since});
  return result;
}

// A session on which nothing is under way.
SessionPool::Taken SessionDriver::take(const SessionPool::Asking& asking, SessionPool::Place place) {
  const Clock::time_point end = asking.request.deadline.value_or(never);
  for (;;) {
    SessionPool::Taken taken = pool_.take(asking, place);
    if (taken.unlock == 0) return taken;
    Deadline soon(std::min(taken.unlock_sent + longest_unlock, end), cancel_of(asking.request));
    Session::Answer said = Session::Answer::none_yet;
    try {
      said = taken.session->wait_for_answer(soon);
    } catch (...) {
      taken.session->give_up();
      pool_.put_back(std::move(taken), asking.owner);
      throw;
    }
    if (said == Session::Answer::good) {
      pool_.unlocked(std::exchange(taken.unlock, 0));
      return taken;
    }
    const bool cancelled = asking.request.cancel != nullptr && asking.request.cancel->stop_requested();
    const bool in_time = Clock::now() < end;
    // A request that is too late leaves the rest of the wait to the next one.
    const bool silent = said == Session::Answer::none_yet && in_time && !cancelled;
    if (silent) taken.session->give_up();
    pool_.put_back(std::move(taken), asking.owner);
    if (silent && asking.request.no_wait) {
      throw Error(ErrorKind::unavailable, "the server does not answer. It may do so again: try again");
    }
    if (cancelled) throw Error(ErrorKind::cancelled, "waiting for a connection was cancelled");
    if (!in_time) return {};
  }
}

// The lease counts from the question. If the answer came so late that half of it is over, the store is asked for a sign
// of life before the lock counts. Otherwise the heartbeat thread asks in time. False: the session has ended meanwhile,
// and the lock with it.
bool SessionDriver::confirm_late_grant(Session& session, std::int64_t& sent) {
  if (now_with_suspend() - sent <= lease_.count() / 2) return true;
  sent = now_with_suspend();
  session.begin_heartbeat();
  Deadline soon(longest_confirmation);
  const Session::Answer said = session.wait_for_answer(soon);
  if (said == Session::Answer::none_yet) {
    session.give_up();
    throw Error(ErrorKind::unavailable,
                "the server granted the lock, but late, and does not answer since. It may do so again: try again");
  }
  return said == Session::Answer::good;
}

Driver::Granted SessionDriver::grant(const Ask& of) {
  std::vector<Cell> wanted = store_->cells(of.plan);
  const SessionPool::Asking asking{of.owner, of.request, of.place, of.ticket,
                                   [&] { return of.host.waits_for_session(); }};
  SessionPool::Place place = SessionPool::Place::any;
  SessionPool::Unlock released_before = 0;
  bool waited_for_unlocks = false;
  for (int made = 0;;) {
    SessionPool::Taken taken;
    try {
      taken = take(asking, place);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::timeout) throw;
      throw Error(ErrorKind::timeout, spi::describe(of.plan.steps()) + " was not locked: " + error.what());
    }
    if (taken.session == nullptr) return {.answer = taken.full ? Answer::full : Answer::not_in_time};
    Session& session = *taken.session;
    const bool no_wait = !taken.may_wait;
    LockReply reply;
    std::int64_t sent = 0;
    Outcome outcome = Outcome::not_in_time;
    try {
      outcome = ask({session, taken.fresh, no_wait, of, wanted}, reply, sent);
      if (outcome == Outcome::granted) {
        if (!confirm_late_grant(session, sent)) {
          pool_.put_back(std::move(taken), of.owner);
          continue;
        }
        const std::int64_t fence = store_->fence_of(reply, session);
        pool_.granted(taken);
        taken.may_wait = false;
        auto hold = std::make_shared<SessionHold>(taken.session, of.owner, sent, lease_);
        try {
          heartbeats_.add(hold);
        } catch (...) {  // no memory
          taken.session = std::move(hold->held);
          throw;
        }
        lose_if_unfit(*hold);
        return {Answer::granted, std::move(hold), fence, std::move(wanted)};
      }
      if (outcome == Outcome::missing) {
        const bool there = all_there(reply);
        known_.forget(wanted);
        if ((!there && !store_->makes_missing()) || ++made > most_made) throw store_->missing(wanted, reply);
        PoolInterrupter interrupter(*this, session);
        const bool made_now = there || store_->make_missing(session, wanted, reply, of, interrupter);
        outcome = made_now ? Outcome::again : Outcome::not_in_time;
      } else if (reply.kind == LockReply::Kind::busy && outcome == Outcome::not_in_time && taken.before != 0 &&
                 !waited_for_unlocks) {
        released_before = taken.before;  // a cell is taken, perhaps by a lock that this process has just released
        outcome = Outcome::again;
      } else if (outcome == Outcome::not_in_time && no_wait && !of.request.no_wait) {
        place = SessionPool::Place::waiting;  // a cell is taken, and there was no room to wait for it
        outcome = Outcome::again;
      }
    } catch (...) {
      if (taken.session != nullptr) unlock(*taken.session, Clock::now() + longest_unlock);
      pool_.put_back(std::move(taken), of.owner);
      throw;
    }
    unlock(session, Clock::now() + longest_unlock);  // H8
    pool_.put_back(std::move(taken), of.owner);
    if (outcome == Outcome::full) return {.answer = Answer::full};
    if (outcome == Outcome::not_in_time) return {};
    if (released_before != 0 && !std::exchange(waited_for_unlocks, true)) {
      const Clock::time_point end = Clock::now() + longest_unlock;
      pool_.wait_for_unlocks(released_before, std::min(end, of.request.deadline.value_or(end)), cancel_of(of.request));
    }
  }
}

// The server may have been found unfit after the session was looked at and before the heartbeat thread knew of the
// lock.
void SessionDriver::lose_if_unfit(SessionHold& hold) {
  if (!pool_.trusts(hold.server)) heartbeats_.lose(hold);
}

// --- extend ----------------------------------------------------------------------------------------------

// A release or the heartbeat thread may have the session for a moment. False: not in time; nothing was asked.
bool SessionDriver::wait_to_talk(SessionHold& hold, const Ask& of, std::unique_lock<TimedMutex>& talking) {
  const spi::Request& request = of.request;
  const Clock::time_point end =
      request.no_wait ? Clock::now() + longest_extending_try : request.deadline.value_or(never);
  while (!talking.try_lock_until(std::min(Clock::now() + look_interval, end))) {
    if (!hold.surely()) throw Error(ErrorKind::lost, "the lock was taken away: it cannot be extended");
    if (request.cancel != nullptr && request.cancel->stop_requested()) throw cancelled_error("extending to", of.plan);
    if (Clock::now() >= end) return false;
  }
  if (hold.held == nullptr) throw Error(ErrorKind::lost, "the lock was taken away: it cannot be extended");
  // The answer to a heartbeat comes first.
  while (hold.beating) {
    Deadline soon(std::min(Clock::now() + look_interval, end));
    const Session::Answer said = hold.held->wait_for_answer(soon);
    if (said != Session::Answer::none_yet) hold.beating = false;
    if (said == Session::Answer::good) hold.confirmed = hold.beat_sent;
    if (said == Session::Answer::bad || !hold.surely()) {
      throw Error(ErrorKind::lost, "the lock was taken away: it cannot be extended");
    }
    if (!hold.beating) break;
    if (request.cancel != nullptr && request.cancel->stop_requested()) throw cancelled_error("extending to", of.plan);
    if (Clock::now() >= end) return false;
  }
  return true;
}

void SessionDriver::extend(Hold& hold, const Ask& of, Extended& result) {
  result.granted = extend_on(static_cast<SessionHold&>(hold), of, result);
}

// Makes the cells that are missing before the extend asks for any: what it has locked by then it could not give back
// (see ask()). False: it was not in time.
bool SessionDriver::make_before_extend(SessionHold& hold, const Ask& of, std::span<const Cell> wanted) {
  if (known_.all(wanted)) return true;
  for (int made = 0;; ++made) {
    PoolInterrupter interrupter(*this, *hold.held);
    LockReply reply;
    {
      LockWait wait(of, hold.held->id(), interrupter, longest_extending_try, LockWait::Victim::never);
      hold.held->find_missing(wanted, reply, wait);
      if (reply.kind == LockReply::Kind::failed) {
        if (wait.cancelled()) throw cancelled_error("extending to", of.plan);
        if (wait.ended()) return false;
        throw store_->failure(reply, "lock " + spi::describe(of.plan.steps()));
      }
    }
    if (reply.kind == LockReply::Kind::granted) break;
    if (made == most_made) throw store_->missing(wanted, reply);
    // Not on the session that holds locks.
    const std::uint64_t owner = hold.owner.load();  // another thread may release the lock meanwhile
    SessionPool::Taken other = take({owner, of.request}, SessionPool::Place::any);
    if (other.session == nullptr) return false;
    bool there = false;
    try {
      PoolInterrupter other_interrupter(*this, *other.session);
      there = store_->make_missing(*other.session, wanted, reply, of, other_interrupter);
    } catch (...) {
      pool_.put_back(std::move(other), owner);
      throw;
    }
    pool_.put_back(std::move(other), owner);
    if (!there) return false;
  }
  known_.add(wanted);
  return true;
}

bool SessionDriver::extend_on(SessionHold& hold, const Ask& of, Extended& result) {
  const std::vector<Cell> wanted = store_->cells(of.plan);
  std::unique_lock talking(hold.talking, std::defer_lock);
  if (!wait_to_talk(hold, of, talking)) return false;
  const auto leave = [&] { result.lost = hold.held->broken(); };
  bool waited_for_unlocks = false;
  try {
    if (store_->makes_missing() && !make_before_extend(hold, of, wanted)) {
      leave();
      return false;
    }
    // Whatever becomes of it, a statement that failed has not reached its last cell.
    result.leftover = Extended::Leftover::all_but_the_last;
    for (;;) {
      const SessionPool::Unlock released_before = of.request.no_wait ? pool_.last_unanswered() : 0;
      LockReply reply;
      std::int64_t sent = 0;
      const Outcome outcome = ask({*hold.held, true, of.request.no_wait, of, wanted, &hold}, reply, sent);
      if (outcome == Outcome::granted) {
        result.leftover = Extended::Leftover::all;  // unless the fence must not be given out, all of it counts
        hold.confirmed = sent;
        result.fence = store_->fence_of(reply, *hold.held);
        leave();
        return true;
      }
      // As in grant(): this process may have released the cell just now.
      if (reply.kind == LockReply::Kind::busy && released_before != 0 && !std::exchange(waited_for_unlocks, true)) {
        pool_.wait_for_unlocks(released_before, Clock::now() + longest_unlock, cancel_of(of.request));
        continue;
      }
      if (outcome != Outcome::missing) break;
      result.leftover = Extended::Leftover::all;
      known_.forget(wanted);
      throw store_->missing(wanted, reply);
    }
  } catch (...) {
    leave();
    throw;
  }
  leave();
  return false;
}

// --- give back -------------------------------------------------------------------------------------------

bool SessionDriver::give_back(std::shared_ptr<Hold> hold, Clock::time_point by) noexcept {
  auto& mine = static_cast<SessionHold&>(*hold);
  mine.released = true;
  std::unique_lock talking(mine.talking, std::defer_lock);
  if (!talking.try_lock_until(by)) {  // another thread extends it
    pool_.give(mine.owner.exchange(SessionPool::nobody), SessionPool::nobody);
    heartbeats_.close_later(mine);
    return false;
  }
  heartbeats_.remove(mine);
  SessionPool::Taken taken{.session = std::move(mine.held)};
  const bool beating = mine.beating;
  talking.unlock();
  if (taken.session == nullptr) return false;
  if (mine.gone()) taken.session->give_up();
  // A session with a notice is not used again before that is removed. So its lock should be gone then.
  if (beating || mine.gone() || pool_.stands(*taken.session)) {
    unlock(*taken.session, by);
  } else {
    taken.session->begin_unlock_all();
    taken.unlock = SessionPool::begun;
  }
  const bool sent = !taken.session->broken();
  pool_.put_back(std::move(taken), mine.owner.load());
  return sent;
}

bool SessionDriver::park(Hold& hold) noexcept {
  auto& mine = static_cast<SessionHold&>(hold);
  if (!mine.surely()) return false;
  mine.released = true;
  pool_.give(mine.owner.exchange(SessionPool::nobody), SessionPool::nobody);
  return true;
}

std::shared_ptr<Hold> SessionDriver::resume(Hold& hold, std::uint64_t owner) {
  auto& parked = static_cast<SessionHold&>(hold);
  std::unique_lock talking(parked.talking, std::defer_lock);
  if (!talking.try_lock_until(Clock::now() + look_interval)) return nullptr;  // the heartbeat thread keeps it briefly
  const bool lease = now_with_suspend() < parked.confirmed.load() + parked.lease.count();
  if (parked.held == nullptr || parked.held->broken() || parked.gone() || !lease) return nullptr;
  if (parked.beating) {
    const Session::Answer said = parked.held->answer();
    if (said == Session::Answer::bad) return nullptr;
    if (said == Session::Answer::good) parked.confirmed = parked.beat_sent;
    parked.beating = said == Session::Answer::none_yet;
  } else if (parked.held->hung_up()) {
    return nullptr;
  }
  if (!pool_.trusts(parked.server)) return nullptr;
  pool_.give(SessionPool::nobody, owner);
  std::shared_ptr<SessionHold> resumed;
  try {
    auto next = std::make_shared<SessionHold>(parked.held, owner, parked.confirmed.load(), lease_);
    next->beating = parked.beating;
    next->beat_sent = parked.beat_sent;
    heartbeats_.replace(parked, next);
    resumed = std::move(next);
  } catch (...) {  // no memory; the session stays where it is
    pool_.give(owner, SessionPool::nobody);
    throw;
  }
  lose_if_unfit(*resumed);
  return resumed;
}

void SessionDriver::give(Hold& hold, std::uint64_t to) {
  auto& mine = static_cast<SessionHold&>(hold);
  pool_.give(mine.owner.load(), to);
  mine.owner = to;
}

}  // namespace hierlock::remote
