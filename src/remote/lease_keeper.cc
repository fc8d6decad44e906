#include "remote/lease_keeper.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

namespace hierlock::remote {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr milliseconds tick{100}, poll_interval{500}, pause_after_failure{200};
constexpr std::int64_t tick_ns = nanoseconds(tick).count(), poll_ns = nanoseconds(poll_interval).count();
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t most_at_once = 1000;  // renewals in one round trip
constexpr seconds longest_acknowledge{1}, longest_connect{4};

void raise(int descriptor) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(descriptor, &one, sizeof one);
}

// Until a descriptor becomes readable.
class UntilRaised final : public timed::WaitLimit {
 public:
  UntilRaised(int descriptor, const std::stop_token& stop) : descriptor_(descriptor), stop_(stop) {}
  std::optional<Clock::duration> next() override {
    return stop_.stop_requested() ? std::nullopt : std::optional<Clock::duration>(std::chrono::hours(1));
  }
  int wake() const override { return descriptor_; }

 private:
  const int descriptor_;
  const std::stop_token& stop_;
};

}  // namespace

// --- Lease -----------------------------------------------------------------------------------------------

Lease::Lease(std::string name, std::uint64_t of, nanoseconds time)
    : id(std::move(name)), session(of), time_(time.count()), margin_(time.count() / 10) {}

Lease::~Lease() {
  if (wake_ >= 0) close(wake_);
}

// The oldest confirmation counts.
void Lease::settle() {
  std::int64_t oldest = never;
  for (const Place& place : places_) {
    if (place.holds) oldest = std::min(oldest, place.confirmed);
  }
  ends_ = oldest == 0 || oldest == never ? 0 : oldest + time_ - margin_;
}

void Lease::answered(const std::string& place, std::int64_t sent, LeaseReply::State state, unsigned part) {
  const std::lock_guard guard(mutex_);
  const bool waits = state == LeaseReply::State::waiting;
  if (!waits && state != LeaseReply::State::granted) return;
  auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.name == place; });
  if (found == places_.end()) found = places_.insert(places_.end(), Place{place});
  found->confirmed = std::max(found->confirmed, sent);
  found->asked = found->confirmed;
  found->waits = waits;
  if (!waits) {
    found->holds = true;
    found->part = std::max(found->part, part);
  }
  settle();
}

void Lease::renewed(const Renewal& renewal, std::int64_t sent) {
  using State = LeaseReply::State;
  const LeaseReply reply = renewal.reply.value();
  bool held = false;
  {
    const std::lock_guard guard(mutex_);
    const auto found =
        std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.name == renewal.place; });
    if (found == places_.end()) return;  // given back meanwhile
    held = found->holds;
    if (reply.state != State::gone) {
      found->confirmed = std::max(found->confirmed, sent);
      found->asked = std::max(found->asked, sent);
      settle();
      if (!renewal.waits || !found->waits || reply.state != State::granted) return;
      if (expected_ != renewal.place || reply.question != question_) return;  // it answers an earlier question
      found->waits = false;
    } else if (found->confirmed > sent) {
      return;  // the store has granted it since
    } else if (found->waits && renewal.waits && !held) {
      places_.erase(found);  // its place in the queue is gone; the waiting thread asks anew
      settle();
    }
    if (expected_ == renewal.place && renewal.waits && !answer_) {
      answer_ = reply;
      if (wake_ >= 0) raise(wake_);
      if (!held || reply.state != State::gone) return;  // an extend waits, and what it extends may be gone with it
    }
  }
  if (reply.state == State::gone) lose();
}

bool Lease::has_run_out() const {
  const std::lock_guard guard(mutex_);
  return std::any_of(places_.begin(), places_.end(), [](const Place& p) { return p.holds; }) && !surely();
}

bool Lease::wait_has_run_out(const std::string& place) const {
  const std::lock_guard guard(mutex_);
  const auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.name == place; });
  return found != places_.end() && found->waits && now_with_suspend() >= found->confirmed + time_ - margin_;
}

void Lease::forget(const std::string& place) {
  const std::lock_guard guard(mutex_);
  std::erase_if(places_, [&](const Place& p) { return p.name == place; });
  settle();
}

bool Lease::has(const std::string& place) const {
  const std::lock_guard guard(mutex_);
  return std::any_of(places_.begin(), places_.end(), [&](const Place& p) { return p.name == place; });
}

unsigned Lease::granted_part(const std::string& place) const {
  const std::lock_guard guard(mutex_);
  const auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.name == place; });
  return found == places_.end() ? 0 : found->part;
}

std::vector<std::string> Lease::places() const {
  const std::lock_guard guard(mutex_);
  std::vector<std::string> names;
  for (const Place& place : places_) names.push_back(place.name);
  return names;
}

// A place is renewed when a third of the lease has passed.
std::int64_t Lease::Place::due(std::int64_t time) const {
  const std::int64_t renewal = confirmed + time / 3;
  return waits ? std::min(renewal, asked + poll_ns) : renewal;
}

std::int64_t Lease::due() const {
  const std::lock_guard guard(mutex_);
  std::int64_t first = never;
  for (const Place& place : places_) first = std::min(first, place.due(time_));
  return first;
}

void Lease::collect(std::vector<Renewal>& renewals, std::int64_t time) const {
  const std::lock_guard guard(mutex_);
  for (const Place& place : places_) {
    if (place.due(time_) <= time) renewals.push_back({place.name, id, place.waits, 0, place.part});
  }
}

std::uint64_t Lease::expect(const std::string& place) {
  const std::lock_guard guard(mutex_);
  expected_ = place;
  answer_.reset();
  return ++question_;
}

void Lease::wait() {
  const std::lock_guard guard(mutex_);
  if (wake_ < 0) wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) throw Error(ErrorKind::exhausted, "no more file descriptors for a wait");
  if (answer_) raise(wake_);  // it has come already
}

void Lease::tell(const std::string& place, const LeaseReply& reply) {
  const std::lock_guard guard(mutex_);
  if (expected_ != place || reply.question != question_ || answer_) return;
  for (Place& known : places_) {
    if (known.name == place) known.waits = false;
  }
  answer_ = reply;
  if (wake_ >= 0) raise(wake_);
}

std::optional<LeaseReply> Lease::answer() {
  const std::lock_guard guard(mutex_);
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_, &count, sizeof count);
  if (answer_) expected_.clear();
  return std::exchange(answer_, std::nullopt);
}

void Lease::stop_waiting() noexcept {
  const std::lock_guard guard(mutex_);
  if (wake_ >= 0) close(std::exchange(wake_, -1));
}

void Lease::set_holder(const std::shared_ptr<Hold>& holder) {
  const std::lock_guard guard(mutex_);
  holder_ = holder;
}

void Lease::lose() {
  lost_ = true;
  std::shared_ptr<Hold> holder;
  {
    const std::lock_guard guard(mutex_);
    holder = holder_.lock();
    if (wake_ >= 0) raise(wake_);  // an extend that waits must not go on
  }
  told_ = holder == nullptr || holder->declare_lost();
}

// --- LeaseKeeper -----------------------------------------------------------------------------------------

LeaseKeeper::~LeaseKeeper() {
  end(Clock::now());
  if (ended_ >= 0) close(ended_);
}

void LeaseKeeper::start(WaitLimit& limit) {
  std::unique_lock guard(mutex_);
  if (!started_) start_threads();
  const unsigned before = failures_;
  while (!listens_ && failures_ == before) {
    const std::optional<Clock::duration> time = limit.next();
    if (!time) throw Error(ErrorKind::unavailable, "the server has not answered in time");
    heard_.wait_for(guard, *time);
  }
  if (!listens_) throw Error(*failure_);
}

void LeaseKeeper::start_threads() {
  try {
    if (ended_ < 0) ended_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ended_ < 0) throw Error(ErrorKind::exhausted, "no more file descriptors for a thread that renews leases");
    if (!renewing_.joinable()) renewing_ = std::jthread([this](const std::stop_token& stop) { renew_all(stop); });
    hearing_ = std::jthread([this](const std::stop_token& stop) { hear(stop); });
    started_ = true;
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::exhausted, std::string("no thread can be made to renew leases: ") + error.what());
  }
}

void LeaseKeeper::end(Clock::time_point by) noexcept {
  ending_.set(std::min(ending_.get(), by));
  renewing_.request_stop();
  hearing_.request_stop();
  {
    const std::lock_guard guard(mutex_);
    changed_.notify_all();
  }
  if (ended_ >= 0) raise(ended_);
  if (renewing_.joinable()) renewing_.join();
  if (hearing_.joinable()) hearing_.join();
}

void LeaseKeeper::look_at(Entry& entry, std::int64_t when) {
  auto node = looks_.extract({entry.look, entry.lease.get()});  // without an allocation, which could fail
  node.value().first = entry.look = when;
  looks_.insert(std::move(node));
}

void LeaseKeeper::add(const std::shared_ptr<Lease>& lease) {
  const std::lock_guard guard(mutex_);
  const std::int64_t look = now_with_suspend() + poll_ns;
  leases_.emplace(lease->id, Entry{lease, look});
  looks_.emplace(look, lease.get());
  if (std::exchange(asleep_, false)) changed_.notify_all();
}

void LeaseKeeper::remove(const Lease& lease) noexcept {
  std::shared_ptr<Lease> removed;  // freed without the mutex
  const std::lock_guard guard(mutex_);
  const auto found = leases_.find(lease.id);
  if (found == leases_.end()) return;
  looks_.erase({found->second.look, &lease});
  removed = std::move(found->second.lease);
  leases_.erase(found);
}

// The thread looks whether anything is due at least as often.
void LeaseKeeper::waits(const Lease& lease) {
  const std::lock_guard guard(mutex_);
  const auto found = leases_.find(lease.id);
  if (found != leases_.end()) look_at(found->second, now_with_suspend() + poll_ns);
}

void LeaseKeeper::drop_later(LeaseStore::Drop what) noexcept {
  try {
    const std::lock_guard guard(mutex_);
    abandoned_.push_back({std::move(what), now_with_suspend() + 2 * lease_.count()});
    changed_.notify_all();
  } catch (...) {  // no memory: its lease ends
  }
}

// Until something is due, but not for longer than until a new lease or a new wait would be: nobody wakes the thread for
// those. If there was no lock for that time, it sleeps until there is one.
void LeaseKeeper::sleep(const std::stop_token& stop) {
  std::unique_lock guard(mutex_);
  const auto stopped = [&] { return stop.stop_requested(); };
  if (!abandoned_.empty()) {
    changed_.wait_for(guard, tick, stopped);
    return;
  }
  const std::int64_t first = looks_.empty() ? never : looks_.begin()->first;
  const std::int64_t time = std::min(first - now_with_suspend(), poll_ns);
  if (time > 0) changed_.wait_for(guard, nanoseconds(time), [&] { return stopped() || !abandoned_.empty(); });
  if (!leases_.empty() || !abandoned_.empty()) return;
  asleep_ = true;
  changed_.wait(guard, [&] { return stopped() || !asleep_ || !abandoned_.empty(); });
  asleep_ = false;
}

void LeaseKeeper::renew_all(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    bool failed = false;
    try {
      sleep(stop);
      if (stop.stop_requested()) break;
      const std::vector<Renewal> gone = renew();  // first: nothing else may keep locks from being renewed
      acknowledge(gone);
      drop_abandoned();
    } catch (...) {  // the store cannot be reached, or there is no memory: once more
      failed = true;
    }
    if (!failed) continue;
    std::unique_lock guard(mutex_);
    changed_.wait_for(guard, pause_after_failure, [&] { return stop.stop_requested(); });
  }
}

// The leases that the keeper looks at now. Whatever comes of it, holders are told of locks that are uncertain by then,
// and the keeper looks at each again when it is due.
class LeaseKeeper::Batch {
 public:
  Batch(LeaseKeeper& keeper, std::int64_t now) : keeper_(keeper) {
    const std::lock_guard guard(keeper_.mutex_);
    const std::int64_t third = keeper_.lease_.count() / 3;
    // One that is due takes along those that soon would be.
    for (const auto& [look, lease] : keeper_.looks_) {
      if (look > (until == 0 ? now : until)) break;
      leases.push_back(keeper_.leases_.find(lease->id)->second.lease);
      if (lease->due() <= now) until = now + third / 2;
    }
  }
  ~Batch() {
    for (const auto& lease : leases) {
      if (lease->lost() ? !lease->told() : lease->has_run_out()) lease->lose();
    }
    const std::int64_t now = now_with_suspend();
    const std::lock_guard guard(keeper_.mutex_);
    for (const auto& lease : leases) {
      const auto found = keeper_.leases_.find(lease->id);
      if (found == keeper_.leases_.end()) continue;
      // A new one has no place yet. One that could not be renewed is tried again until it runs out.
      const std::int64_t due = lease->due();
      const bool over = lease->lost() && lease->told();
      keeper_.look_at(found->second, over ? never : due == never ? now + poll_ns : std::max(due, now + tick_ns));
    }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  std::vector<std::shared_ptr<Lease>> leases;
  std::int64_t until = 0;  // places that are due by then are renewed

 private:
  LeaseKeeper& keeper_;
};

// Returns the renewals of locks that the store does not have any more.
std::vector<Renewal> LeaseKeeper::renew() {
  Batch batch(*this, now_with_suspend());
  std::vector<Renewal> renewals, gone;
  std::vector<Lease*> whose;
  const auto flush = [&] {
    if (renewals.empty()) return;
    const std::int64_t sent = now_with_suspend();
    Deadline limit(lease_ / 3, &ending_);
    store_.renew(renewals, limit);
    for (std::size_t i = 0; i < renewals.size(); ++i) {
      if (!renewals[i].reply) continue;
      whose[i]->renewed(renewals[i], sent);
      if (renewals[i].reply->state == LeaseReply::State::gone && whose[i]->lost()) gone.push_back(renewals[i]);
    }
    renewals.clear();
    whose.clear();
  };
  for (const auto& lease : batch.leases) {
    lease->collect(renewals, batch.until);
    whose.resize(renewals.size(), lease.get());
    if (renewals.size() >= most_at_once) flush();
  }
  flush();
  return gone;
}

// Such a lock may have been broken, and the message of that been lost. Then the next holder waits until the store hears
// that nobody relies on the lock any more.
void LeaseKeeper::acknowledge(const std::vector<Renewal>& gone) {
  Deadline limit(lease_ / 10, &ending_);
  try {
    for (const Renewal& one : gone) {
      if (!limit.next()) return;
      store_.acknowledge(one.place, one.id, limit);
    }
  } catch (const Error&) {  // it is free when its lease would have ended
  }
}

// For a part of the lease at most: what is left then has its turn after the next renewal.
void LeaseKeeper::drop_abandoned() {
  std::vector<Abandoned> some;
  {
    const std::lock_guard guard(mutex_);
    some.swap(abandoned_);
  }
  const auto keep_the_rest = [&] {
    const std::lock_guard guard(mutex_);
    abandoned_.insert(abandoned_.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  };
  Deadline limit(lease_ / 10, &ending_);
  try {
    for (; !some.empty() && limit.next(); some.pop_back()) {
      if (now_with_suspend() < some.back().until) store_.drop(some.back().what, limit);
    }
  } catch (...) {
    // The others come first next time: they may be at a place that answers.
    std::rotate(some.begin(), some.end() - 1, some.end());
    keep_the_rest();
    throw;
  }
  keep_the_rest();
}

void LeaseKeeper::hear(const std::stop_token& stop) {
  UntilRaised limit(ended_, stop);
  const auto failed = [&](const Error& error) {
    std::unique_lock guard(mutex_);
    ++failures_;
    failure_ = error;
    heard_.notify_all();
    changed_.wait_for(guard, pause_after_failure, [&] { return stop.stop_requested(); });
  };
  const Error no_memory(ErrorKind::exhausted, "no memory to hear of grants");
  for (bool listens = false; !stop.stop_requested();) {
    try {
      if (!listens) {
        timed::Within soon(limit, longest_connect);
        store_.start_listening(soon);
        listens = true;
        const std::lock_guard guard(mutex_);
        listens_ = true;
        heard_.notify_all();
      }
      for (const LeaseNews& news : store_.listen(limit)) {
        std::shared_ptr<Lease> lease;
        {
          const std::lock_guard guard(mutex_);
          const auto found = leases_.find(news.id);
          if (found != leases_.end()) lease = found->second.lease;
        }
        if (lease == nullptr) continue;  // given back meanwhile
        if (!news.broken) {
          lease->tell(news.place, {LeaseReply::State::granted, news.number, news.question});
          continue;
        }
        lease->lose();  // from here on it is not handed over either
        Deadline soon(longest_acknowledge, &ending_);
        store_.acknowledge(news.place, news.id, soon);
      }
    } catch (const Error& error) {
      failed(error);
    } catch (...) {
      failed(no_memory);
    }
  }
}

}  // namespace hierlock::remote
