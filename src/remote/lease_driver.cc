#include "remote/lease_driver.h"

#include <poll.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

namespace hierlock::remote {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t fence_step = 128;  // the store's number x 128, and a hand-over adds 1 (hand_over.h)
// An answer that a server gives at once is not missed, however short the timeout is.
constexpr milliseconds shortest_question{250};
constexpr seconds longest_question{2}, longest_start{5};
constexpr milliseconds longest_give_back{900};
constexpr seconds longest_break{10};
constexpr milliseconds look_interval{500};
constexpr milliseconds first_pause{5}, longest_pause{50};
constexpr Clock::time_point never = Clock::time_point::max();

std::stop_token cancel_of(const spi::Request& request) {
  return request.cancel != nullptr ? *request.cancel : std::stop_token();
}

Error lost_error() { return {ErrorKind::lost, "the lock was taken away: it cannot be extended"}; }

void watch(int answer, int wake, Clock::duration time) {
  pollfd fds[2] = {{answer, POLLIN, 0}, {wake, POLLIN, 0}};
  const auto ns = std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  const timespec limit{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ppoll(fds, wake >= 0 ? 2 : 1, &limit, nullptr);
}

}  // namespace

LeaseDriver::LeaseDriver(std::unique_ptr<LeaseStore> store, std::string locker, std::uint32_t number,
                         std::chrono::nanoseconds lease)
    : store_(std::move(store)),
      locker_(std::move(locker)),
      number_(number),
      lease_(lease),
      longest_question_(std::min<Clock::duration>(longest_question, lease / 2)),
      keeper_(*store_, lease) {}

void LeaseDriver::end(Clock::time_point by) noexcept {
  keeper_.end(by);
  store_->end(by);
}

// --- asking ------------------------------------------------------------------------------------------------

// False: not in time.
bool LeaseDriver::start_keeper(const Ask& ask) {
  const Clock::time_point end = ask.request.no_wait ? never : ask.request.deadline.value_or(never);
  const Clock::time_point now = Clock::now();
  const Clock::duration longest = ask.request.no_wait ? longest_question_ : longest_start;
  Deadline limit(std::min(now + longest, std::max(end, now + shortest_question)), cancel_of(ask.request));
  try {
    keeper_.start(limit);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) throw;
    if (cancel_of(ask.request).stop_requested()) throw cancelled_error("asking for", ask.plan);
    if (Clock::now() < end) throw;
    return false;
  }
  return true;
}

// No value: not in time. An answer that is lost is asked for once more, with the same id.
std::optional<LeaseReply> LeaseDriver::ask_store(const Ask& ask, Lease& lease, const LeaseRequest& request,
                                                 const LeaseGroup& group) {
  const Clock::time_point end = ask.request.no_wait ? never : ask.request.deadline.value_or(never);
  for (bool again = false;; again = true) {
    const std::int64_t sent = now_with_suspend();
    const Clock::time_point now = Clock::now();
    Deadline limit(std::min(now + longest_question_, std::max(end, now + shortest_question)), cancel_of(ask.request));
    try {
      const LeaseReply reply = store_->take(request, group, limit);
      if (reply.repeated) lease.unanswered = true;
      lease.answered(group.place, sent, reply.state, request.part);
      return reply;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unavailable) throw;
      lease.unanswered = true;
      if (cancel_of(ask.request).stop_requested()) throw cancelled_error("asking for", ask.plan);
      if (Clock::now() >= end) return std::nullopt;
      if (again) throw;
    }
  }
}

LeaseDriver::Outcome LeaseDriver::take(const Ask& ask, Lease& lease, LeaseRequest& request, const LeaseGroup& group) {
  for (;;) {
    if (request.wait) request.question = lease.expect(group.place);
    const std::optional<LeaseReply> reply = ask_store(ask, lease, request, group);
    if (!reply) return Outcome::not_in_time;
    switch (reply->state) {
      case LeaseReply::State::granted:
        lease.number = reply->number;
        return Outcome::granted;
      case LeaseReply::State::busy:
        return Outcome::not_in_time;
      case LeaseReply::State::gone:
        if (request.part == 0) return Outcome::again;  // granted, and broken before the answer came
        throw lost_error();
      case LeaseReply::State::later:
        if (const Outcome outcome = wait_until(ask, reply->from); outcome != Outcome::granted) return outcome;
        // Under another id: a drop of this one may be on its way.
        if (request.part == 0 && reply->asked) return Outcome::again;
        continue;
      case LeaseReply::State::waiting:
        break;
    }
    lease.wait();
    keeper_.waits(lease);
    struct End {
      Lease& of;
      ~End() { of.stop_waiting(); }
    } end{lease};
    const Outcome outcome = wait(ask, lease, request, group.place);
    if (outcome == Outcome::granted && store_->confirms_grants()) continue;
    if (outcome == Outcome::granted) lease.answered(group.place, 0, LeaseReply::State::granted, request.part);
    if (outcome != Outcome::full || lease.has(group.place)) return outcome;
    // The store has forgotten the request, as after a restart: it asks anew.
  }
}

// `granted`: the time has come.
LeaseDriver::Outcome LeaseDriver::wait_until(const Ask& ask, Clock::time_point from) {
  const auto refusal = [&](ErrorKind kind) {
    const auto left = std::chrono::ceil<seconds>(from - Clock::now());
    return Error(kind, spi::describe(ask.plan.steps()) +
                           " was not locked: the server was started a moment ago, and may have lost locks that their "
                           "holders rely on. It grants none for another " +
                           std::to_string(left.count()) + " s. Try again then");
  };
  if (ask.request.no_wait) throw refusal(ErrorKind::unavailable);
  LockWait limit(ask, 0, *this, longest_question, LockWait::Victim::never);
  while (Clock::now() < from) {
    const std::optional<Clock::duration> time = limit.next();
    if (limit.ended() && limit.cancelled()) throw cancelled_error("waiting for", ask.plan);
    if (limit.ended() || !time) throw refusal(ErrorKind::timeout);
    watch(-1, limit.wake(), std::min(*time, from - Clock::now()));
  }
  return Outcome::granted;
}

LeaseDriver::Outcome LeaseDriver::wait(const Ask& ask, Lease& lease, const LeaseRequest& request,
                                       const std::string& place) {
  LockWait limit(ask, lease.session, *this, longest_question, LockWait::Victim::surely_waits);
  for (;;) {
    const std::optional<Clock::duration> time = limit.next();
    if (limit.victim()) limit.throw_deadlock();
    if (limit.ended() && limit.cancelled()) throw cancelled_error("waiting for", ask.plan);
    if (limit.ended() && limit.lets_pass()) return Outcome::full;
    if (limit.ended() || !time) return Outcome::not_in_time;
    watch(lease.wake(), limit.wake(), std::min<Clock::duration>(*time, look_interval));
    if (const std::optional<LeaseReply> reply = lease.answer()) {
      if (reply->state == LeaseReply::State::granted) {
        lease.number = reply->number;
        return Outcome::granted;
      }
      if (request.known) throw lost_error();
      return Outcome::full;  // and take() asks anew
    }
    if (lease.lost()) {
      if (request.part > 0) throw lost_error();
      return Outcome::again;
    }
    if (lease.wait_has_run_out(place)) {
      if (request.part == 0) return Outcome::again;
      throw Error(ErrorKind::unavailable, "the server has not answered for as long as a lease lasts, so " +
                                              spi::describe(ask.plan.steps()) +
                                              " was not added to the lock. Try again");
    }
  }
}

// `reached`: how many groups the store may have something of.
LeaseDriver::Outcome LeaseDriver::take_all(const Ask& ask, Lease& lease, unsigned part,
                                           const std::vector<LeaseGroup>& groups, std::size_t& reached) {
  for (const LeaseGroup& group : groups) {
    ++reached;
    LeaseRequest request{.id = lease.id,
                         .session = lease.session,
                         .part = part,
                         .known = lease.has(group.place),
                         .granted_part = lease.granted_part(group.place),
                         .wait = !ask.request.no_wait,
                         .above = lease.number.load()};
    const Outcome outcome = take(ask, lease, request, group);
    if (outcome != Outcome::granted) return outcome;
  }
  if (!raise_others(ask, lease, groups.back().place)) return Outcome::not_in_time;
  return lease.lost() || !lease.surely() ? Outcome::again : Outcome::granted;
}

// The fence is that of the last group. Later grants in the other groups must be above it, too, also if this process
// dies. False: not in time.
bool LeaseDriver::raise_others(const Ask& ask, Lease& lease, const std::string& except) {
  std::vector<Renewal> others;
  lease.collect(others, std::numeric_limits<std::int64_t>::max());
  std::erase_if(others, [&](const Renewal& one) { return one.place == except; });
  for (Renewal& one : others) one.raise = lease.number.load();
  const Clock::time_point end = ask.request.no_wait ? never : ask.request.deadline.value_or(never);
  const Clock::time_point now = Clock::now();
  Deadline limit(std::min(now + longest_question_, std::max(end, now + shortest_question)), cancel_of(ask.request));
  // A server may refuse for a moment, as the node of a cluster while a slot is moved.
  for (milliseconds pause = first_pause; !others.empty(); pause = std::min(2 * pause, longest_pause)) {
    const std::int64_t sent = now_with_suspend();
    store_->renew(others, limit);
    for (const Renewal& one : others) {
      if (one.reply) lease.renewed(one, sent);
    }
    std::erase_if(others, [](const Renewal& one) { return one.reply.has_value(); });
    if (others.empty()) break;
    const std::optional<Clock::duration> left = limit.next();
    if (cancel_of(ask.request).stop_requested()) throw cancelled_error("asking for", ask.plan);
    if (!left && Clock::now() >= end) return false;
    if (!left) {
      const std::string& why = others.front().refusal;
      throw Error(ErrorKind::unavailable, "the server has not confirmed all of " + spi::describe(ask.plan.steps()) +
                                              (why.empty() ? "" : " (" + why + ")") + ": nothing is locked. Try again");
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(*left, pause));
  }
  return true;
}

Driver::Granted LeaseDriver::grant(const Ask& ask) {
  if (!start_keeper(ask)) return {.answer = Answer::not_in_time};
  const std::vector<LeaseGroup> groups = store_->groups(ask.plan);
  // A lease that ended before all was granted, because this process or the store was stopped: all of it again.
  for (;;) {
    const std::uint64_t count = ++count_;
    const auto lease =
        std::make_shared<Lease>(locker_ + std::to_string(count), number_of_names(number_, count), lease_);
    keeper_.add(lease);
    std::size_t reached = 0;
    const auto end = [&] {
      std::vector<std::string> places;
      for (std::size_t i = 0; i < reached; ++i) places.push_back(groups[i].place);
      // A store that was silent until the deadline is told in the background.
      const bool late = !ask.request.no_wait && Clock::now() >= ask.request.deadline.value_or(never);
      give_back(*lease, places, Clock::now() + (late ? shortest_question : longest_give_back));
    };
    Outcome outcome = Outcome::not_in_time;
    try {
      outcome = take_all(ask, *lease, 0, groups, reached);
      if (outcome == Outcome::granted) {
        auto hold = std::make_shared<LeaseHold>(lease);
        lease->set_holder(hold);
        std::vector<Cell> cells;
        for (const spi::Step& step : ask.plan.steps()) {
          cells.push_back(cell_of(step.space, step.level, step.key, cell_mode(step.mode, step.slots)));
        }
        return {Answer::granted, std::move(hold), lease->number.load() * fence_step, std::move(cells)};
      }
    } catch (...) {
      end();
      throw;
    }
    // `busy` has left nothing behind, unless an earlier question is still on its way.
    if (ask.request.no_wait && groups.size() == 1 && outcome == Outcome::not_in_time && !lease->unanswered) {
      keeper_.remove(*lease);
    } else {
      end();
    }
    if (outcome != Outcome::again) return {.answer = outcome == Outcome::full ? Answer::full : Answer::not_in_time};
  }
}

// --- extend ------------------------------------------------------------------------------------------------

void LeaseDriver::extend(Hold& hold, const Ask& ask, Extended& result) {
  Lease& lease = *static_cast<LeaseHold&>(hold).lease;
  const Clock::time_point end =
      ask.request.no_wait ? Clock::now() + longest_question_ : ask.request.deadline.value_or(never);
  std::unique_lock extending(lease.extending, std::defer_lock);
  while (!extending.try_lock_until(std::min(end, Clock::now() + look_interval / 10))) {
    if (cancel_of(ask.request).stop_requested()) throw cancelled_error("waiting for", ask.plan);
    if (Clock::now() >= end) return;
  }
  const std::vector<LeaseGroup> groups = store_->groups(ask.plan);
  const unsigned part = ++lease.last_part;
  std::vector<bool> known;
  for (const LeaseGroup& group : groups) known.push_back(lease.has(group.place));
  std::size_t reached = 0;
  // Another thread may have released the lock meanwhile, and so knows nothing of these places.
  const auto leave_lost = [&] {
    lease.lose();  // first: the store may grant at once what it gets back
    std::vector<std::string> places;
    for (std::size_t i = 0; i < reached; ++i) places.push_back(groups[i].place);
    give_back(lease, places, Clock::now() + longest_give_back);
  };
  const auto leave = [&](bool whole) {
    if (whole) return;  // the Gate gives all of it back
    if (!undo(lease, part, groups, reached, known)) result.leftover = Extended::Leftover::all;
  };
  Outcome outcome = Outcome::not_in_time;
  try {
    outcome = take_all(ask, lease, part, groups, reached);
    if (outcome == Outcome::again) throw lost_error();
  } catch (const Error& error) {
    result.lost = error.kind() == ErrorKind::lost || lease.lost();
    if (result.lost) leave_lost();
    leave(error.kind() == ErrorKind::deadlock || result.lost);
    throw;
  }
  if (outcome == Outcome::granted && !hold.surely()) {
    result.lost = true;
    leave_lost();
    throw lost_error();
  }
  if (outcome == Outcome::granted) {
    result.granted = true;
    result.fence = lease.number.load() * fence_step;
    return;
  }
  leave(false);
}

// False: the store could not be told. The part stays until the whole lock is given back, or is undone later.
bool LeaseDriver::undo(Lease& lease, unsigned part, const std::vector<LeaseGroup>& groups, std::size_t reached,
                       const std::vector<bool>& known) {
  bool done = true;
  for (std::size_t i = 0; i < reached; ++i) {
    const LeaseStore::Drop what{groups[i].place, lease.id, part, lease.number.load(), true, lease.unanswered.load()};
    // Before the store is told: a renewal that comes after the drop must not find anything missing.
    if (known[i]) {
      lease.answered(groups[i].place, 0, LeaseReply::State::granted);
    } else {
      lease.forget(groups[i].place);
    }
    try {
      Deadline soon(longest_give_back);
      store_->drop(what, soon);
    } catch (...) {
      done = false;
      keeper_.drop_later(what);
    }
  }
  return done;
}

// --- release, hand-over ------------------------------------------------------------------------------------

bool LeaseDriver::give_back(Lease& lease, const std::vector<std::string>& places, Clock::time_point by) noexcept {
  keeper_.remove(lease);
  bool told = true;
  for (const std::string& place : places) {
    LeaseStore::Drop what;
    try {
      what = {.place = place, .id = lease.id, .number = lease.number.load(), .unanswered = lease.unanswered.load()};
      Deadline limit(by);
      store_->drop(what, limit);
    } catch (...) {
      told = false;
      if (!what.id.empty()) keeper_.drop_later(std::move(what));  // otherwise no memory: its lease ends
    }
  }
  return told;
}

bool LeaseDriver::give_back(std::shared_ptr<Hold> hold, Clock::time_point by) noexcept {
  Lease& lease = *static_cast<LeaseHold&>(*hold).lease;
  lease.set_holder(nullptr);
  lease.lose();  // an extend that is under way in another thread must not count
  try {
    return give_back(lease, lease.places(), by);
  } catch (...) {  // no memory: its lease ends
    keeper_.remove(lease);
    return false;
  }
}

bool LeaseDriver::park(Hold& hold) noexcept {
  LeaseHold& held = static_cast<LeaseHold&>(hold);
  if (!held.surely()) return false;
  held.lease->set_holder(nullptr);
  return true;
}

std::shared_ptr<Hold> LeaseDriver::resume(Hold& hold, std::uint64_t) {
  LeaseHold& parked = static_cast<LeaseHold&>(hold);
  if (!parked.surely()) return nullptr;
  auto next = std::make_shared<LeaseHold>(parked.lease);
  parked.lease->set_holder(next);
  return next;
}

// --- break -------------------------------------------------------------------------------------------------

std::size_t LeaseDriver::break_locks(const spi::Plan& plan) {
  std::size_t broken = 0;
  for (const spi::Step& step : plan.steps()) {
    if (!step.asked) continue;
    const std::string node = spi::describe_key(step.space, step.key);
    for (const LeaseGroup& group : store_->groups(plan)) {
      for (const LeaseNode& one : group.nodes) {
        Deadline limit(longest_break);
        if (one.name == node) broken += store_->break_locks(group.place, one, limit);
      }
    }
  }
  return broken;
}

}  // namespace hierlock::remote
