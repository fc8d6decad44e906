#include "remote/session_pool.h"

#include <algorithm>
#include <utility>

namespace hierlock::remote {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds longest_connect{5};

// Looking whether the store has closed a session costs a system call. A request that gets a closed one finds out from
// the answer, and asks on another.
constexpr milliseconds usually_alive{50};

// However far away the store is, an answer that takes longer is unusual.
constexpr milliseconds longest_usual_answer{250};

// If a notice cannot be removed, its session is closed after so long.
constexpr seconds longest_aside{3};

// Many waits that end at the same time share the side session, as long as it answers.
constexpr milliseconds usually_free{50};

void heed(const std::stop_token& cancel) {
  if (cancel.stop_requested()) throw Error(ErrorKind::cancelled, "waiting for a connection was cancelled");
}

}  // namespace

SessionPool::SessionPool(std::size_t most, Connect connect)
    : most_(most),
      most_waiting_(std::max<std::size_t>(1, most - std::max<std::size_t>(1, most / 4))),
      connect_(std::move(connect)) {
  idle_.reserve(most);
  aside_.reserve(most);
}

SessionPool::~SessionPool() {
  ending_.set(Clock::now());
  for (Making& making : making_) making.thread.join();
}

// --- taking ----------------------------------------------------------------------------------------------

bool SessionPool::available() const {
  return !idle_.empty() || open_ < most_ ||
         std::any_of(making_.begin(), making_.end(), [](const Making& m) { return !m.wanted && !m.done; });
}

bool SessionPool::available_to(Place place) const {
  return available() && (place == Place::any || waiting_ < most_waiting_);
}

SessionPool::Taken SessionPool::take(const Asking& asking, Place place) {
  const spi::Request& request = asking.request;
  const std::stop_token cancel = request.cancel != nullptr ? *request.cancel : std::stop_token();
  Guard guard(mutex_);
  // A request that cannot stand in line waits here for a session that nobody uses and that is usually back soon.
  const bool may_stand = !request.no_wait && asking.ticket != nullptr && !has_session(asking.owner);
  const auto settled = [&] { return available() || (tended_ == 0 && aside_.empty()); };
  if (!may_stand && !settled()) {
    const Clock::time_point soon = Clock::now() + seconds(1);
    settled_.wait_until(guard, cancel, std::min(soon, request.deadline.value_or(soon)), settled);
    heed(cancel);
  }
  if (has_session(asking.owner) || asking.ticket == nullptr) {
    if (available()) return take_now(guard, asking, !request.no_wait);
    throw Error(
        ErrorKind::exhausted,
        "all " + std::to_string(most_) +
            " connections are in use, and this owner holds a lock on one: it does not wait for another, because "
            "it might wait for itself. Release first, or open with a larger connections=");
  }
  if (request.no_wait) {
    if (available()) return take_now(guard, asking, false);
    throw Error(ErrorKind::exhausted, "all " + std::to_string(most_) +
                                          " connections are in use, and waiting was not asked for: try again, or open "
                                          "with a larger connections=");
  }
  const bool others_first = !line(place).empty() || (!waiting_line_.empty() && waiting_ < most_waiting_);
  if (others_first || !available_to(place)) {
    InLine mine{asking, place};
    const Line line = stand_in_line(guard, mine);
    if (line != Line::served) return {.full = line == Line::full};
    if (mine.given.session != nullptr) return std::move(mine.given);
  }
  const bool may_wait = waiting_ < most_waiting_ && (place == Place::waiting || waiting_line_.empty());
  return take_now(guard, asking, may_wait);
}

SessionPool::Line SessionPool::stand_in_line(Guard& guard, InLine& mine) {
  const spi::Request& request = mine.asking.request;
  const std::stop_token cancel = request.cancel != nullptr ? *request.cancel : std::stop_token();
  std::uint64_t& ticket = *mine.asking.ticket;
  if (ticket == 0) ticket = ++last_ticket_;
  struct InThis {
    SessionPool& pool;
    Lines& line;
    InLine& mine;
    const Accounts::iterator account;  // there from now on: it must not need memory when a session is given
    Lines::iterator place;
    InThis(SessionPool& p, Lines& l, InLine& one)
        : pool(p), line(l), mine(one), account(p.accounts_.try_emplace(one.asking.owner).first), place(l.end()) {
      // One that has asked before goes before those that came later.
      while (place != l.begin() && *(*std::prev(place))->asking.ticket > *one.asking.ticket) --place;
      pool.change(account, &Account::in_line, 1);
      try {
        place = l.insert(place, &one);
      } catch (...) {
        pool.change(account, &Account::in_line, -1);
        throw;
      }
      pool.in_line_.fetch_add(1, std::memory_order_relaxed);
    }
    ~InThis() {  // with the mutex
      pool.change(account, &Account::in_line, -1);
      if (mine.given.session != nullptr) return;
      line.erase(place);
      pool.in_line_.fetch_sub(1, std::memory_order_relaxed);
      pool.wake_next();  // it may have been told, and not go
    }
  } const standing(*this, line(mine.place), mine);
  const auto my_turn = [&] {
    return mine.given.session != nullptr || mine.lets_pass ||
           (line(mine.place).front() == &mine && available_to(mine.place));
  };
  for (;;) {
    std::optional<Clock::time_point> until = request.deadline;
    if (mine.asking.tell) {
      guard.unlock();
      Clock::time_point again;
      try {
        again = mine.asking.tell();
      } catch (...) {  // no memory
        guard.lock();
        throw;
      }
      guard.lock();
      until = std::min(again, until.value_or(again));
    }
    const bool served =
        until ? mine.turn.wait_until(guard, cancel, *until, my_turn) : mine.turn.wait(guard, cancel, my_turn);
    if (mine.given.session != nullptr) return Line::served;
    heed(cancel);
    if (mine.lets_pass) return Line::full;
    if (served) return Line::served;
    if (request.deadline && Clock::now() >= *request.deadline) return Line::too_late;
  }
}

// Gives a session that came back to the first in line, if there is one whose turn it is. The mutex is held.
bool SessionPool::give_to_next(std::unique_ptr<Session>& session) noexcept {
  Lines& from = !waiting_line_.empty() && waiting_ < most_waiting_ ? waiting_line_ : line_;
  if (from.empty()) return false;
  InLine& next = *from.front();
  next.given.may_wait = waiting_ < most_waiting_ && (next.place == Place::waiting || waiting_line_.empty());
  if (next.given.may_wait) ++waiting_;
  next.given.session = std::move(session);
  change(accounts_.find(next.asking.owner), &Account::sessions, 1);
  from.pop_front();
  in_line_.fetch_sub(1, std::memory_order_relaxed);
  next.turn.notify_one();
  return true;
}

void SessionPool::let_pass(const std::unordered_set<std::uint64_t>& in_queue) {
  const std::lock_guard guard(mutex_);
  for (const Lines* line : {&line_, &waiting_line_}) {
    for (InLine* one : *line) {
      if (!in_queue.contains(one->asking.in_queue)) continue;
      one->lets_pass = true;
      one->turn.notify_one();
    }
  }
}

std::vector<SessionPool::Standing> SessionPool::in_line() const {
  std::vector<Standing> result;
  if (in_line_.load(std::memory_order_relaxed) == 0) return result;
  const std::lock_guard guard(mutex_);
  for (const Lines* line : {&line_, &waiting_line_}) {
    for (const InLine* one : *line) result.push_back({one->asking.in_queue, one->since});
  }
  return result;
}

// The mutex is held. Whoever is woken wakes the next one when it leaves the line.
void SessionPool::wake_next() noexcept {
  if (!idle_.empty()) {
    for (Making& making : making_) {
      if (!making.wanted || making.done || making.waits == nullptr) continue;
      making.waits->notify_one();  // it came before those in line
      break;
    }
  }
  if (!waiting_line_.empty() && available_to(Place::waiting)) return waiting_line_.front()->turn.notify_one();
  if (!line_.empty() && available_to(Place::any)) line_.front()->turn.notify_one();
}

void SessionPool::stop_waiting(bool may_wait) noexcept {
  if (may_wait) --waiting_;
}

SessionPool::Taken SessionPool::take_now(Guard& guard, const Asking& asking, bool may_wait) {
  const spi::Request& request = asking.request;
  const std::uint64_t owner = asking.owner;
  const std::stop_token cancel = request.cancel != nullptr ? *request.cancel : std::stop_token();
  change(accounts_.try_emplace(owner).first, &Account::sessions, 1);
  if (may_wait) ++waiting_;
  const auto leave = [&] {
    disown(owner);
    stop_waiting(may_wait);
    wake_next();
  };
  std::condition_variable_any made_or_freed;
  Making* mine = nullptr;
  for (;;) {
    while (!idle_.empty()) {
      std::unique_ptr<Session> session = std::move(idle_.back().session);
      const bool just_used = Clock::now() - idle_.back().used < usually_alive;
      idle_.pop_back();
      if (fit(*session) && (just_used || !session->hung_up())) {
        if (mine != nullptr) {
          mine->wanted = false;
          mine->waits = nullptr;
        }
        wake_next();  // what is left is the next one's
        return {.session = std::move(session), .may_wait = may_wait};
      }
      --open_;  // the store has closed it
    }
    try {
      if (mine == nullptr) {
        mine = &begin_or_take_over();
        wake_next();
      }
    } catch (...) {
      leave();
      throw;
    }
    mine->waits = &made_or_freed;
    const auto there = [&] { return mine->done || !idle_.empty(); };
    request.deadline ? made_or_freed.wait_until(guard, cancel, *request.deadline, there)
                     : made_or_freed.wait(guard, cancel, there);
    if (mine->done) break;
    if (!idle_.empty()) continue;
    mine->wanted = false;
    mine->waits = nullptr;
    leave();
    heed(cancel);
    throw Error(ErrorKind::timeout,
                "no connection to the server could be made in time. It goes on being made: try again, or wait longer");
  }
  std::list<Making> made;
  made.splice(made.end(), making_, std::find_if(making_.begin(), making_.end(), [&](auto& m) { return &m == mine; }));
  guard.unlock();
  mine->thread.join();
  if (mine->session != nullptr) return {.session = std::move(mine->session), .fresh = true, .may_wait = may_wait};
  put_back({.may_wait = may_wait}, owner);
  heed(cancel);
  std::rethrow_exception(mine->error);
}

void SessionPool::granted(const Taken& taken) noexcept {
  if (!taken.may_wait) return;
  const std::lock_guard guard(mutex_);
  --waiting_;
  if (!waiting_line_.empty()) wake_next();
}

// --- making ----------------------------------------------------------------------------------------------

// One for the caller. The mutex is held.
SessionPool::Making& SessionPool::begin_or_take_over() {
  std::erase_if(making_, [](Making& m) {
    const bool over = m.done && !m.wanted;
    if (over) m.thread.join();  // it is in its last lines, without the mutex
    return over;
  });
  // One that will be given up soon is only for those that can begin none.
  const Clock::time_point young = open_ < most_ ? Clock::now() - longest_connect / 2 : Clock::time_point::min();
  for (Making& making : making_) {
    if (making.wanted || making.done || making.began < young) continue;
    making.wanted = true;
    return making;
  }
  Making& making = making_.emplace_back();
  try {
    making.thread = std::thread([this, &making] { make(making); });
  } catch (const std::exception& error) {
    making_.pop_back();
    throw Error(ErrorKind::exhausted, std::string("no thread can be made to connect: ") + error.what());
  }
  ++open_;
  return making;
}

void SessionPool::make(Making& making) noexcept {
  std::unique_ptr<Session> session;
  std::exception_ptr error;
  try {
    Deadline soon(longest_connect, &ending_);
    session = connect(soon);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard guard(mutex_);
  making.done = true;
  if (making.wanted) {
    making.session = std::move(session);
    making.error = std::move(error);
    if (making.waits != nullptr) making.waits->notify_one();
  } else if (session != nullptr && !closed_ && fit(*session)) {
    const Clock::time_point now = Clock::now();
    idle_.push_back({std::move(session), now, now});
  } else {
    --open_;
  }
  settled_.notify_all();
  wake_next();
}

std::unique_ptr<Session> SessionPool::connect(WaitLimit& limit) {
  std::uint64_t mine = 0;
  {
    const std::lock_guard guard(mutex_);
    mine = ++asked_;
  }
  try {
    const Clock::time_point began = Clock::now();
    auto session = connect_(limit);
    session->usual_answer = std::min<Clock::duration>((Clock::now() - began) / 2, longest_usual_answer);
    const std::lock_guard guard(mutex_);
    if (mine > newest_) {
      newest_ = mine;
      server_ = session->server();
      distrusted_ = false;
    } else if (!fit(*session)) {  // it took so long that the primary is another one by now
      throw Error(ErrorKind::unavailable, "the server is another one since this connection was begun: try again");
    }
    return session;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unsafe_topology) {
      const std::lock_guard guard(mutex_);
      distrusted_ = true;
      newest_ = std::max(newest_, mine);  // one that was begun later may be made to a server that is fit
    }
    throw;
  }
}

// Whatever was begun before proves nothing: only a session that is begun from now on makes the server trusted again.
void SessionPool::distrust() {
  const std::lock_guard guard(mutex_);
  distrusted_ = true;
  newest_ = asked_;
}

bool SessionPool::usable(const Session& session) {
  const std::lock_guard guard(mutex_);
  return fit(session);
}

std::string SessionPool::server() {
  const std::lock_guard guard(mutex_);
  return server_;
}

bool SessionPool::used_since(Clock::time_point then) {
  const std::lock_guard guard(mutex_);
  return used_ >= then || !accounts_.empty();
}

// --- giving back -----------------------------------------------------------------------------------------

void SessionPool::change(Accounts::iterator account, std::size_t Account::*what, int by) noexcept {
  account->second.*what += static_cast<std::size_t>(by);
  if (account->second.sessions == 0 && account->second.in_line == 0) accounts_.erase(account);
}

bool SessionPool::has_session(std::uint64_t owner) const noexcept {
  const auto account = accounts_.find(owner);
  return account != accounts_.end() && account->second.sessions > 0;
}

void SessionPool::disown(std::uint64_t owner) noexcept {
  const auto account = accounts_.find(owner);
  if (account != accounts_.end() && account->second.sessions > 0) change(account, &Account::sessions, -1);
}

void SessionPool::add(std::unique_ptr<Session> session) {
  const std::lock_guard guard(mutex_);
  server_ = session->server();
  const Clock::time_point now = Clock::now();
  idle_.push_back({std::move(session), now, now});
  ++open_;
}

void SessionPool::put_back(Taken taken, std::uint64_t owner) noexcept {
  if (taken.session != nullptr && taken.session->broken()) taken.session.reset();  // outside of the mutex
  std::unique_ptr<Session> unfit;
  const std::lock_guard guard(mutex_);
  disown(owner);
  stop_waiting(taken.may_wait);
  used_ = Clock::now();
  if (taken.session != nullptr && !closed_ && stands_ && stands_(taken.session->id())) {
    aside_.push_back({std::move(taken.session), used_, used_});
    return wake_next();  // there may be a place among the waiting now
  }
  if (taken.session != nullptr && !closed_ && fit(*taken.session)) {
    if (!give_to_next(taken.session)) idle_.push_back({std::move(taken.session), used_, used_});
  } else {
    unfit = std::move(taken.session);
    --open_;
  }
  if (tended_ > 0 || !aside_.empty()) settled_.notify_all();
  wake_next();
}

void SessionPool::let_in() noexcept {
  for (;;) {
    std::unique_ptr<Session> unfit;  // closed without the mutex
    const std::lock_guard guard(mutex_);
    const Clock::time_point now = Clock::now();
    const auto one = std::find_if(aside_.begin(), aside_.end(), [&](const Idle& idle) {
      return now - idle.used > longest_aside || !stands_(idle.session->id());
    });
    if (one == aside_.end()) return;
    Idle idle = std::move(*one);
    aside_.erase(one);
    if (fit(*idle.session) && !stands_(idle.session->id())) {
      if (!give_to_next(idle.session)) idle_.push_back(std::move(idle));
    } else {
      unfit = std::move(idle.session);
      --open_;
    }
    settled_.notify_all();
    wake_next();
  }
}

void SessionPool::give(std::uint64_t from, std::uint64_t to) {
  const std::lock_guard guard(mutex_);
  if (to != nobody) change(accounts_.try_emplace(to).first, &Account::sessions, 1);
  disown(from);
}

std::vector<SessionPool::Idle> SessionPool::take_quiet(Clock::duration since) {
  std::vector<Idle> quiet;
  const Clock::time_point before = Clock::now() - since;
  const std::lock_guard guard(mutex_);
  quiet.reserve(idle_.size());  // nothing fails once one is taken out
  const auto first =
      std::stable_partition(idle_.begin(), idle_.end(), [&](const Idle& i) { return i.spoken > before; });
  std::move(first, idle_.end(), std::back_inserter(quiet));
  idle_.erase(first, idle_.end());
  tended_ += quiet.size();
  return quiet;
}

void SessionPool::put_idle(Idle idle) noexcept {
  const std::lock_guard guard(mutex_);
  --tended_;
  if (closed_) {
    --open_;
  } else {
    idle_.insert(idle_.begin(), std::move(idle));  // the others were used later
  }
  settled_.notify_all();
  wake_next();
}

void SessionPool::drop_idle() noexcept {
  const std::lock_guard guard(mutex_);
  --open_;
  --tended_;
  settled_.notify_all();
  wake_next();
}

// --- on the side -----------------------------------------------------------------------------------------

bool SessionPool::on(Side& side, Clock::time_point free_by, const Use& use, Deadline& limit) noexcept {
  std::unique_lock guard(side.mutex, std::defer_lock);
  if (!guard.try_lock_until(free_by)) return false;
  for (int tries = 0; tries < 2 && limit.next(); ++tries) {
    try {
      if (side.session == nullptr || side.session->broken() || side.session->hung_up()) {
        {
          const std::lock_guard closing(mutex_);
          if (closed_) return false;
        }
        side.session = connect(limit);
      }
      if (use(*side.session)) return true;
    } catch (...) {  // none can be had
    }
    side.session.reset();
  }
  return false;
}

bool SessionPool::on_the_side(const Use& use, Deadline& limit) noexcept { return on(side_, limit.end(), use, limit); }

bool SessionPool::urgently_on_the_side(const Use& use, Deadline& limit) noexcept {
  const Clock::time_point soon = std::min(limit.end(), Clock::now() + usually_free);
  // The third, where the account may have no more connections.
  return on(side_, soon, use, limit) || on(urgent_, limit.end(), use, limit) || on_the_side(use, limit);
}

void SessionPool::close(Clock::time_point by) noexcept {
  {
    Guard guard(mutex_);
    closed_ = true;
    std::move(aside_.begin(), aside_.end(), std::back_inserter(idle_));
    aside_.clear();
    ending_.set(Clock::now());
    settled_.wait_until(guard, by,
                        [this] { return std::all_of(making_.begin(), making_.end(), [](auto& m) { return m.done; }); });
  }
  const auto take_one = [this]() -> std::unique_ptr<Session> {
    const std::lock_guard guard(mutex_);
    if (idle_.empty()) return nullptr;
    std::unique_ptr<Session> session = std::move(idle_.back().session);
    idle_.pop_back();
    --open_;
    return session;
  };
  while (take_one() != nullptr) {  // outside of the mutex
  }
  for (Side* const side : {&side_, &urgent_}) {
    std::unique_lock guard(side->mutex, std::defer_lock);
    if (guard.try_lock_until(by)) side->session.reset();
  }
}

}  // namespace hierlock::remote
