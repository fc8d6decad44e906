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

// However far away the store is, an answer that takes longer is unusual. The second: of a session that was not made
// here, before its first answer.
constexpr milliseconds longest_usual_answer{250}, first_usual_answer{30};

// An unlock that is not answered by then is looked after by the heartbeat thread.
constexpr milliseconds usual_unlock{50};

// Sessions to a store whose answers take so long are worth another one, if all that are free still unlock.
// By then an answer that came quickly was among them, if the store is near.
constexpr milliseconds far_away{5};  // by Session::usual_answer, which is several times as long as an answer
constexpr int late_before_another = 8;
constexpr seconds make_another_after{1};

// If a notice cannot be removed, its session is closed after so long.
constexpr seconds longest_aside{3};

// A lock that nobody has is handed over, or given back, before that (HandOver::longest).
constexpr milliseconds longest_parked{100};

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
  spare_.resize(most);
  unanswered_.reserve(most);
}

SessionPool::~SessionPool() {
  ending_.set(Clock::now());
  for (Making& making : making_) making.thread.join();
}

// --- taking ----------------------------------------------------------------------------------------------

bool SessionPool::available() const {
  return !idle_.empty() || !unlocking_.empty() || open_ < most_ ||
         std::any_of(making_.begin(), making_.end(), [](const Making& m) { return !m.wanted && !m.done; });
}

bool SessionPool::available_to(Place place) const {
  return available() && (place == Place::any || waiting_ < most_waiting_);
}

SessionPool::Taken SessionPool::take(const Asking& asking, Place place) {
  const spi::Request& request = asking.request;
  const std::stop_token cancel = request.cancel != nullptr ? *request.cancel : std::stop_token();
  Idle unfit;  // closed without the mutex
  Guard guard(mutex_);
  // A request that cannot stand in line waits here for a session that nobody uses and that is usually back soon.
  const bool may_stand = !request.no_wait && asking.ticket != nullptr && !has_session(asking.owner);
  const auto settled = [&] { return available() || (tended_ == 0 && aside_.empty() && of_nobody_ == 0); };
  if (!may_stand && !settled()) {
    const bool parked_only = tended_ == 0 && aside_.empty();
    const Clock::time_point soon = Clock::now() + (parked_only ? longest_parked : seconds(1));
    ++settling_;
    settled_.wait_until(guard, cancel, std::min(soon, request.deadline.value_or(soon)), settled);
    --settling_;
    heed(cancel);
    // One whose notice stays is closed, and another one takes its place.
    if (!available() && !aside_.empty()) {
      unfit = std::move(aside_.back());
      aside_.pop_back();
      --open_;
      unlocked_now(unfit.unlock);
    }
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
  Lines& line = this->line(mine.place);
  std::uint64_t& ticket = *mine.asking.ticket;
  if (ticket == 0) ticket = ++last_ticket_;
  // One that has asked before goes before those that came later.
  auto place = line.end();
  while (place != line.begin() && *(*std::prev(place))->asking.ticket > ticket) --place;
  place = line.insert(place, &mine);
  try {
    mine.account = accounts_.try_emplace(mine.asking.owner).first;
  } catch (...) {
    line.erase(place);
    throw;
  }
  change(mine.account, &Account::in_line, 1);
  in_line_.fetch_add(1, std::memory_order_relaxed);
  const auto leave = [&](Line result) {  // with the mutex
    change(mine.account, &Account::in_line, -1);
    line.erase(place);
    in_line_.fetch_sub(1, std::memory_order_relaxed);
    wake_next(guard);  // it may have been told, and not go
    return result;
  };
  const auto wake = [&] {
    mine.turn.set();
    timed::Signal::wake(&mine.turn);
  };
  const std::stop_callback on_cancel(cancel, wake);
  std::exception_ptr no_memory;
  for (;;) {
    if (mine.served) return Line::served;
    if (cancel.stop_requested() || no_memory != nullptr) {
      leave(Line::too_late);
      heed(cancel);
      std::rethrow_exception(no_memory);
    }
    if (mine.lets_pass) return leave(Line::full);
    if (line.front() == &mine && available_to(mine.place)) return leave(Line::served);
    if (request.deadline && Clock::now() >= *request.deadline) return leave(Line::too_late);
    guard.unlock();
    Clock::time_point until = request.deadline.value_or(Clock::time_point::max());
    try {
      if (mine.asking.tell) until = std::min(until, mine.asking.tell());
      mine.turn.wait_until(until);
    } catch (...) {
      no_memory = std::current_exception();
    }
    if (mine.served) return Line::served;  // the usual case needs no mutex
    guard.lock();
  }
}

// Gives a session that came back to the first in line, if there is one whose turn it is. The mutex is held.
bool SessionPool::give_to_next(Idle& idle, Guard& guard) noexcept {
  Lines& from = !waiting_line_.empty() && waiting_ < most_waiting_ ? waiting_line_ : line_;
  if (from.empty()) return false;
  InLine& next = *from.front();
  const bool may_wait = waiting_ < most_waiting_ && (next.place == Place::waiting || waiting_line_.empty());
  if (may_wait) ++waiting_;
  next.given = taken(std::move(idle), may_wait);
  change(next.account, &Account::sessions, 1);
  change(next.account, &Account::in_line, -1);
  from.pop_front();
  in_line_.fetch_sub(1, std::memory_order_relaxed);
  guard.wake(next.turn);
  next.served = true;  // from now on it may be gone
  return true;
}

void SessionPool::let_pass(const std::unordered_set<std::uint64_t>& in_queue) {
  Guard guard(mutex_);
  for (const Lines* line : {&line_, &waiting_line_}) {
    for (InLine* one : *line) {
      if (!in_queue.contains(one->asking.in_queue)) continue;
      one->lets_pass = true;
      guard.wake(one->turn);
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
void SessionPool::wake_next(Guard& guard) noexcept {
  if (!idle_.empty() || !unlocking_.empty()) {
    for (Making& making : making_) {
      if (!making.wanted || making.done || making.waits == nullptr) continue;
      making.waits->notify_one();  // it came before those in line
      break;
    }
  }
  if (!waiting_line_.empty() && available_to(Place::waiting)) return guard.wake(waiting_line_.front()->turn);
  if (!line_.empty() && available_to(Place::any)) guard.wake(line_.front()->turn);
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
    wake_next(guard);
  };
  std::condition_variable_any made_or_freed;
  Making* mine = nullptr;
  for (;;) {
    while (!idle_.empty() || !unlocking_.empty()) {
      const bool unlocking = idle_.empty();
      Idle idle = unlocking ? take_unlocking() : std::move(idle_.back());
      if (!unlocking) idle_.pop_back();
      const bool just_used = unlocking || Clock::now() - idle.used < usually_alive;
      if (fit(*idle.session) && (just_used || !idle.session->hung_up())) {
        if (mine != nullptr) {
          mine->wanted = false;
          mine->waits = nullptr;
        } else if (unlocking && Clock::now() - idle.used < idle.session->usual_answer / 3) {
          make_another(*idle.session);
        }
        wake_next(guard);  // what is left is the next one's
        return taken(std::move(idle), may_wait);
      }
      --open_;  // the store has closed it
      unlocked_now(idle.unlock);
    }
    try {
      if (mine == nullptr) {
        mine = &begin_or_take_over();
        wake_next(guard);
      }
    } catch (...) {
      leave();
      throw;
    }
    mine->waits = &made_or_freed;
    const auto there = [&] { return mine->done || !idle_.empty() || !unlocking_.empty(); };
    request.deadline ? made_or_freed.wait_until(guard, cancel, *request.deadline, there)
                     : made_or_freed.wait(guard, cancel, there);
    if (mine->done) break;
    if (!idle_.empty() || !unlocking_.empty()) continue;
    mine->wanted = false;
    mine->waits = nullptr;
    leave();
    heed(cancel);
    throw Error(ErrorKind::timeout,
                "no connection to the server could be made in time. It goes on being made: try again, or wait longer");
  }
  std::list<Making> made;
  made.splice(made.end(), making_, std::find_if(making_.begin(), making_.end(), [&](auto& m) { return &m == mine; }));
  Taken result = taken({.session = std::move(mine->session)}, may_wait);
  result.fresh = true;
  guard.unlock();
  mine->thread.join();
  if (result.session != nullptr) return result;
  put_back({.may_wait = may_wait}, owner);
  heed(cancel);
  std::rethrow_exception(mine->error);
}

void SessionPool::granted(const Taken& taken) noexcept {
  if (!taken.may_wait) return;
  Guard guard(mutex_);
  --waiting_;
  if (!waiting_line_.empty()) wake_next(guard);
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
  Guard guard(mutex_);
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
  wake_next(guard);
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

bool SessionPool::trusts(const std::string& server) {
  const std::lock_guard guard(mutex_);
  return !distrusted_ && server == server_;
}

std::string SessionPool::server() {
  const std::lock_guard guard(mutex_);
  return server_;
}

bool SessionPool::used_since(Clock::time_point then) {
  const std::lock_guard guard(mutex_);
  return used_ >= then || !accounts_.empty();
}

void SessionPool::note_use() {
  const std::lock_guard guard(mutex_);
  used_ = Clock::now();
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
  session->usual_answer = first_usual_answer;
  const Clock::time_point now = Clock::now();
  idle_.push_back({std::move(session), now, now});
  ++open_;
}

void SessionPool::put_back(Taken taken, std::uint64_t owner) noexcept {
  if (taken.session != nullptr && taken.session->broken()) taken.session.reset();  // outside of the mutex
  std::unique_ptr<Session> unfit;
  Guard guard(mutex_);
  disown(owner);
  if (owner == nobody && of_nobody_ > 0) --of_nobody_;
  stop_waiting(taken.may_wait);
  used_ = Clock::now();
  if (taken.unlock == begun) {
    unanswered_.push_back(taken.unlock = ++last_unlock_);
    taken.unlock_sent = used_;
  }
  Idle idle{std::move(taken.session), taken.unlock != 0 ? taken.unlock_sent : used_, used_, taken.unlock};
  if (idle.session != nullptr && !closed_ && stands_ && stands_(idle.session->id())) {
    aside_.push_back(std::move(idle));
    return wake_next(guard);  // there may be a place among the waiting now
  }
  if (idle.session != nullptr && !closed_ && fit(*idle.session)) {
    if (!give_to_next(idle, guard)) keep(std::move(idle));
  } else {
    unfit = std::move(idle.session);
    --open_;
    unlocked_now(idle.unlock);
  }
  if (settling_ > 0) settled_.notify_all();
  wake_next(guard);
}

// Those that stay are kept in their order, the first `looked_at` of them.
void SessionPool::let_in() noexcept {
  std::size_t looked_at = 0;
  for (bool all = false; !all;) {
    std::unique_ptr<Session> unfit;  // closed without the mutex
    Guard guard(mutex_);
    const Clock::time_point now = Clock::now();
    std::size_t next = std::min(looked_at, aside_.size()), kept = next;
    while (next < aside_.size() && unfit == nullptr) {
      Idle idle = std::move(aside_[next++]);
      const bool stands = stands_(idle.session->id());
      if (stands && now - idle.used <= longest_aside) {
        aside_[kept++] = std::move(idle);
      } else if (!stands && fit(*idle.session)) {
        if (!give_to_next(idle, guard)) keep(std::move(idle));
      } else {
        unfit = std::move(idle.session);
        --open_;
        unlocked_now(idle.unlock);
      }
    }
    looked_at = kept;
    all = next == aside_.size();
    if (next == kept) return;
    aside_.erase(aside_.begin() + static_cast<std::ptrdiff_t>(kept),
                 aside_.begin() + static_cast<std::ptrdiff_t>(next));
    settled_.notify_all();
    wake_next(guard);
  }
}

void SessionPool::give(std::uint64_t from, std::uint64_t to) {
  const std::lock_guard guard(mutex_);
  if (to != nobody) change(accounts_.try_emplace(to).first, &Account::sessions, 1);
  disown(from);
  if (to == nobody && from != nobody) ++of_nobody_;
  if (from == nobody && to != nobody) --of_nobody_;
  if (settling_ > 0) settled_.notify_all();
}

std::vector<SessionPool::Idle> SessionPool::take_quiet(Clock::duration since) {
  std::vector<Idle> quiet;
  const Clock::time_point before = Clock::now() - since;
  const std::lock_guard guard(mutex_);
  quiet.reserve(idle_.size() + unlocking_.size());  // nothing fails once one is taken out
  const auto first =
      std::stable_partition(idle_.begin(), idle_.end(), [&](const Idle& i) { return i.spoken > before; });
  std::move(first, idle_.end(), std::back_inserter(quiet));
  idle_.erase(first, idle_.end());
  const Clock::time_point late = Clock::now() - usual_unlock;
  while (!unlocking_.empty() && unlocking_.front().used < late) quiet.push_back(take_unlocking());
  tended_ += quiet.size();
  return quiet;
}

void SessionPool::put_idle(Idle idle) noexcept {
  Guard guard(mutex_);
  --tended_;
  unlocked_now(std::exchange(idle.unlock, 0));
  if (closed_) {
    --open_;
  } else {
    idle_.insert(idle_.begin(), std::move(idle));  // the others were used later
  }
  settled_.notify_all();
  wake_next(guard);
}

void SessionPool::drop_idle(Unlock unlock) noexcept {
  Guard guard(mutex_);
  --open_;
  --tended_;
  unlocked_now(unlock);
  settled_.notify_all();
  wake_next(guard);
}

// --- unlocks whose answer is still to come ----------------------------------------------------------------

SessionPool::Taken SessionPool::taken(Idle idle, bool may_wait) const noexcept {
  return {.session = std::move(idle.session),
          .may_wait = may_wait,
          .unlock = idle.unlock,
          .unlock_sent = idle.used,
          .before = last_unanswered_now()};
}

void SessionPool::keep(Idle idle) noexcept {
  if (idle.unlock == 0) return idle_.push_back(std::move(idle));
  auto place = unlocking_.end();
  while (place != unlocking_.begin() && std::prev(place)->unlock > idle.unlock) --place;  // it was not in time for one
  unlocking_.splice(place, spare_, spare_.begin());
  *std::prev(place) = std::move(idle);
}

SessionPool::Idle SessionPool::take_unlocking() noexcept {
  Idle idle = std::move(unlocking_.front());
  spare_.splice(spare_.end(), unlocking_, unlocking_.begin());
  return idle;
}

void SessionPool::unlocked(Unlock unlock) noexcept {
  const std::lock_guard guard(mutex_);
  unlocked_now(unlock);
}

// The mutex is held.
void SessionPool::unlocked_now(Unlock unlock) noexcept {
  const auto found = std::lower_bound(unanswered_.begin(), unanswered_.end(), unlock);
  if (unlock == 0 || found == unanswered_.end() || *found != unlock) return;
  unanswered_.erase(found);
  if (settling_ > 0) settled_.notify_all();
}

SessionPool::Unlock SessionPool::last_unanswered() const noexcept {
  const std::lock_guard guard(mutex_);
  return last_unanswered_now();
}

void SessionPool::wait_for_unlocks(Unlock last, Clock::time_point by, const std::stop_token& cancel) noexcept {
  Guard guard(mutex_);
  const auto over = [&] { return unanswered_.empty() || unanswered_.front() > last; };
  const auto readable = [&] { return !unlocking_.empty() && unlocking_.front().unlock <= last; };
  ++settling_;
  while (!over() && Clock::now() < by && !cancel.stop_requested()) {
    if (!readable()) {
      settled_.wait_until(guard, cancel, by, [&] { return over() || readable(); });
      continue;
    }
    Idle idle = take_unlocking();
    ++tended_;
    guard.unlock();
    Deadline soon(by, cancel);
    Session::Answer said = Session::Answer::bad;
    try {
      said = idle.session->wait_for_answer(soon);
    } catch (...) {  // no memory
    }
    if (said == Session::Answer::good) {
      put_idle(std::move(idle));
    } else if (said == Session::Answer::bad) {
      idle.session.reset();
      drop_idle(idle.unlock);
    }
    guard.lock();
    if (said != Session::Answer::none_yet) continue;
    --tended_;
    keep(std::move(idle));
    settled_.notify_all();
    wake_next(guard);
  }
  --settling_;
}

// The mutex is held. One that cannot be made is not tried again at once.
void SessionPool::make_another(const Session& like) noexcept {
  const Clock::time_point now = Clock::now();
  if (like.usual_answer < far_away) return;
  late_ = std::min(late_ + 1, late_before_another);
  const bool makes = std::any_of(making_.begin(), making_.end(), [](const Making& m) { return !m.done; });
  if (late_ < late_before_another || now - made_another_ < make_another_after || open_ >= most_ || makes) return;
  made_another_ = now;
  try {
    begin_or_take_over().wanted = false;
  } catch (...) {  // no thread
  }
}

// --- on the side -----------------------------------------------------------------------------------------

bool SessionPool::on(Side& side, Clock::time_point free_by, const Use& use, Deadline& limit,
                     std::optional<Error>* why) noexcept {
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
    } catch (const Error& error) {  // none can be had
      if (why != nullptr) *why = error;
    } catch (...) {
    }
    side.session.reset();
  }
  return false;
}

bool SessionPool::on_the_side(const Use& use, Deadline& limit, std::optional<Error>* why) noexcept {
  return on(side_, limit.end(), use, limit, why);
}

bool SessionPool::urgently_on_the_side(const Use& use, Deadline& limit) noexcept {
  const Clock::time_point soon = std::min(limit.end(), Clock::now() + usually_free);
  // The third, where the account may have no more connections.
  return on(side_, soon, use, limit) || on(urgent_, limit.end(), use, limit) || on_the_side(use, limit);
}

void SessionPool::close(Clock::time_point by) noexcept {
  {
    Guard guard(mutex_);
    closed_ = true;
    for (Idle& idle : aside_) keep(std::move(idle));
    aside_.clear();
    ending_.set(Clock::now());
    settled_.wait_until(guard, by,
                        [this] { return std::all_of(making_.begin(), making_.end(), [](auto& m) { return m.done; }); });
  }
  wait_for_unlocks(begun, by);  // so that what was released before is free now
  const auto take_one = [this]() -> std::unique_ptr<Session> {
    const std::lock_guard guard(mutex_);
    if (idle_.empty() && unlocking_.empty()) return nullptr;
    Idle idle = idle_.empty() ? take_unlocking() : std::move(idle_.back());
    if (idle.unlock == 0) idle_.pop_back();
    --open_;
    unlocked_now(idle.unlock);
    return std::move(idle.session);
  };
  while (take_one() != nullptr) {  // outside of the mutex
  }
  for (Side* const side : {&side_, &urgent_}) {
    std::unique_lock guard(side->mutex, std::defer_lock);
    if (guard.try_lock_until(by)) side->session.reset();
  }
}

}  // namespace hierlock::remote
