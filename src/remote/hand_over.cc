#include "remote/hand_over.h"

#include <algorithm>
#include <utility>

namespace hierlock::remote {

namespace {

// While locks are being handed over, the thread looks so often, instead of being woken for each of them.
constexpr std::chrono::milliseconds look_interval{10};
constexpr std::chrono::milliseconds shortest_end{100};

}  // namespace

HandOver::~HandOver() {
  end(Clock::now());
  if (thread_.joinable()) thread_.join();
}

void HandOver::end(Clock::time_point by) noexcept {
  std::unique_lock guard(mutex_);
  closed_ = true;
  if (!runs_) return;
  thread_.request_stop();
  woken_.notify_one();
  const bool ended = ended_.wait_until(guard, std::max(by, Clock::now() + shortest_end), [this] { return !runs_; });
  if (ended && thread_.joinable()) thread_.join();  // it has nothing more to do
}

std::uint64_t HandOver::number_of(const spi::Plan& plan) noexcept {
  constexpr std::uint64_t multiplier = 0x9E3779B97F4A7C15;
  std::uint64_t number = plan.steps().size();
  for (const spi::Step& step : plan.steps()) {
    number = (number ^ step.hash ^ static_cast<std::uint64_t>(step.mode) << 60) * multiplier;
  }
  return number;
}

// Locks that are not parked any more. They are given back at the end, also of a call that throws, without the mutex.
class HandOver::Unwanted {
 public:
  explicit Unwanted(const HandOver& of) : of_(of) {}
  ~Unwanted() {
    for (const Lock& held : locks) of_.give_back_(held);
  }
  Unwanted(const Unwanted&) = delete;
  Unwanted& operator=(const Unwanted&) = delete;

  std::vector<Lock> locks;

 private:
  const HandOver& of_;
};

// --- requests that wait ----------------------------------------------------------------------------------

HandOver::Waiting::Waiting(HandOver& of, const spi::Plan& plan) : of_(of), plan_(number_of(plan)) {
  const std::lock_guard guard(of_.mutex_);
  ++of_.waiting_[plan_];
}

HandOver::Waiting::~Waiting() {
  Unwanted unwanted(of_);
  const std::lock_guard guard(of_.mutex_);
  of_.stop_waiting(*this, unwanted.locks);
}

// The mutex is held. Adds the locks that were parked for this request, if nobody else waits for them.
void HandOver::stop_waiting(Waiting& waiting, std::vector<Lock>& unwanted) noexcept {
  if (!std::exchange(waiting.counts_, false)) return;
  const auto found = waiting_.find(waiting.plan_);
  if (--found->second > 0) return;
  waiting_.erase(found);
  for (auto at = by_plan_.find(waiting.plan_); at != by_plan_.end() && at->first == waiting.plan_;) {
    const Entry entry = (at++)->second;
    try {
      unwanted.reserve(unwanted.size() + 1);
    } catch (...) {  // no memory: the thread gives it back when its time is up
      return;
    }
    unwanted.push_back(remove(entry));
  }
}

// --- parking ---------------------------------------------------------------------------------------------

bool HandOver::park(const Lock& held, const std::function<bool()>& park) noexcept {
  if (held->extended || held->published || held->handed_over >= most) return false;
  const std::lock_guard guard(mutex_);
  if (closed_ || !waiting_.contains(held->plan) || Clock::now() - held->granted >= longest || !park()) return false;
  try {
    if (!thread_.joinable()) {
      thread_ = std::jthread([this](const std::stop_token& end) { run(end); });
      runs_ = true;
    }
    const Entry entry = parked_.insert(parked_.end(), {held});
    count_.fetch_add(1);
    try {
      entry->by_plan = by_plan_.emplace(held->plan, entry);
      entry->by_cell.reserve(held->cells.size());
      for (const Cell& cell : held->cells) entry->by_cell.push_back(by_cell_.emplace(place(cell), entry));
    } catch (...) {
      remove(entry);
      throw;
    }
  } catch (...) {  // no memory, or no thread
    return false;
  }
  if (std::exchange(asleep_, false)) woken_.notify_one();
  return true;
}

HandOver::Lock HandOver::remove(Entry entry) noexcept {
  if (entry->by_plan) by_plan_.erase(*entry->by_plan);
  for (const ByCell::iterator at : entry->by_cell) by_cell_.erase(at);
  Lock held = std::move(entry->held);
  parked_.erase(entry);
  count_.fetch_sub(1);
  return held;
}

void HandOver::remove_conflicting(const std::vector<Cell>& cells, std::vector<Lock>& removed) {
  for (const Cell& cell : cells) {
    for (auto at = by_cell_.lower_bound(place(cell)); at != by_cell_.end() && at->first == place(cell);) {
      const Entry entry = (at++)->second;
      const std::vector<Cell>& has = entry->held->cells;
      if (std::none_of(has.begin(), has.end(), [&](const Cell& one) { return conflict(one, cell); })) continue;
      while (at != by_cell_.end() && at->second == entry) ++at;  // these go with it
      removed.reserve(removed.size() + 1);
      removed.push_back(remove(entry));
    }
  }
}

// --- taking ----------------------------------------------------------------------------------------------

HandOver::Lock HandOver::take(const spi::Plan& plan, const CellsOf& cells, Waiting* waiting) {
  // A lock that is in conflict with this request was parked before its place in the local queue was released, so it is
  // seen here. One that only shares a cell with it may be parked later. Then the store makes the request wait.
  if (waiting == nullptr && count_.load() == 0) return nullptr;
  Unwanted unwanted(*this);
  const std::lock_guard guard(mutex_);
  Lock mine = remove_same(plan);
  if (waiting != nullptr) stop_waiting(*waiting, unwanted.locks);
  if (mine == nullptr && !parked_.empty()) remove_conflicting(cells(), unwanted.locks);
  return mine;
}

HandOver::Lock HandOver::remove_same(const spi::Plan& plan) noexcept {
  const auto [first, last] = by_plan_.equal_range(number_of(plan));
  const auto found = std::find_if(first, last, [&](const auto& one) { return one.second->held->nodes.are(plan); });
  return found == last ? nullptr : remove(found->second);
}

void HandOver::clear(const CellsOf& cells) {
  if (count_.load() == 0) return;
  Unwanted unwanted(*this);
  const std::lock_guard guard(mutex_);
  remove_conflicting(cells(), unwanted.locks);
}

// --- the thread ------------------------------------------------------------------------------------------

// Gives back what is parked for too long.
void HandOver::run(const std::stop_token& end) {
  std::unique_lock guard(mutex_);
  while (!end.stop_requested()) {
    if (parked_.empty()) {
      asleep_ = true;
      woken_.wait(guard, [&] { return !asleep_ || end.stop_requested(); });
      asleep_ = false;
    }
    woken_.wait_for(guard, look_interval, [&] { return end.stop_requested(); });
    std::optional<Unwanted> late(std::in_place, *this);
    const Clock::time_point now = Clock::now();
    for (Entry entry = parked_.begin(); entry != parked_.end();) {
      const Entry one = entry++;
      if (!end.stop_requested() && now - one->held->granted < longest) continue;
      try {
        late->locks.reserve(late->locks.size() + 1);
      } catch (...) {  // no memory: the next time
        continue;
      }
      late->locks.push_back(remove(one));
    }
    guard.unlock();
    late.reset();
    guard.lock();
  }
  runs_ = false;
  ended_.notify_all();
}

}  // namespace hierlock::remote
