#include "remote/heartbeat_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace hierlock::remote {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr milliseconds busy_interval{100}, idle_interval{500}, shortest_end{100};
constexpr seconds idle_kept{60};
constexpr milliseconds beat_answer{5'000}, unlock_answer{900};  // less than the store takes a session for dead

}  // namespace

HeartbeatThread::HeartbeatThread(SessionPool& pool, nanoseconds ask_after)
    : pool_(pool), ask_after_(ask_after), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_ < 0) throw Error(ErrorKind::exhausted, "no more file descriptors");
}

HeartbeatThread::~HeartbeatThread() {
  end(Clock::now());
  if (thread_.joinable()) thread_.join();
  close(wake_);
}

void HeartbeatThread::start() {
  const std::lock_guard guard(starting_);
  if (thread_.joinable()) return;
  try {
    thread_ = std::jthread([this](const std::stop_token& end) { run(end); });
    runs_ = true;
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::exhausted, std::string("no thread can be made to look after locks: ") + error.what());
  }
}

void HeartbeatThread::end(Clock::time_point by) noexcept {
  std::unique_lock guard(starting_);
  if (!runs_) return;
  thread_.request_stop();
  wake();
  const bool ended = ended_.wait_until(guard, std::max(by, Clock::now() + shortest_end), [this] { return !runs_; });
  if (ended && thread_.joinable()) thread_.join();  // it has nothing more to do
}

void HeartbeatThread::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

void HeartbeatThread::add(const std::shared_ptr<SessionHold>& hold) {
  const std::lock_guard guard(mutex_);
  hold->place_ = holds_.insert(holds_.end(), hold);
}

void HeartbeatThread::remove(SessionHold& hold) noexcept {
  std::list<std::shared_ptr<SessionHold>> removed;  // destroyed without the mutex
  const std::lock_guard guard(mutex_);
  removed.splice(removed.end(), holds_, hold.place_);
}

void HeartbeatThread::replace(SessionHold& by_another, const std::shared_ptr<SessionHold>& hold) noexcept {
  std::shared_ptr<SessionHold> before = hold;  // destroyed without the mutex
  const std::lock_guard guard(mutex_);
  hold->place_ = by_another.place_;
  hold->place_->swap(before);
}

void HeartbeatThread::close_later(SessionHold& hold) noexcept {
  {
    const std::lock_guard guard(mutex_);
    closing_.splice(closing_.end(), holds_, hold.place_);
  }
  wake();
}

void HeartbeatThread::close_released() {
  std::list<std::shared_ptr<SessionHold>> closing;
  {
    const std::lock_guard guard(mutex_);
    closing.swap(closing_);
  }
  closing.remove_if([this](const std::shared_ptr<SessionHold>& hold) {
    const std::unique_lock talking(hold->talking, std::try_to_lock);
    if (!talking) return false;
    if (hold->held != nullptr) {
      hold->held->give_up();
      pool_.put_back({.session = std::move(hold->held)}, hold->owner.load());
    }
    return true;
  });
  const std::lock_guard guard(mutex_);
  closing_.splice(closing_.end(), closing);
}

HeartbeatThread::Holds HeartbeatThread::all() const {
  const std::lock_guard guard(mutex_);
  return {holds_.begin(), holds_.end()};
}

void HeartbeatThread::lose_all_on(const std::string& server) {
  for (const auto& hold : all()) {
    if (hold->server == server) lose(*hold);
  }
}

void HeartbeatThread::lose(SessionHold& hold) {
  if (hold.released.load() || hold.gone()) return;
  if (hold.declare_lost()) return;
  const std::lock_guard guard(mutex_);
  untold_.push_back(std::static_pointer_cast<SessionHold>(hold.shared_from_this()));
}

void HeartbeatThread::run(const std::stop_token& end) {
  while (!end.stop_requested()) {
    try {
      Holds holds = all();
      std::erase_if(holds, [](const auto& hold) { return hold->gone(); });
      const std::string server = pool_.server();
      for (const auto& hold : holds) {
        if (hold->server != server) lose(*hold);  // the primary is another one now
      }
      listen(holds);
      if (end.stop_requested()) break;
      tend_idle();
      close_released();
      Holds untold;
      {
        const std::lock_guard guard(mutex_);
        untold.swap(untold_);
        for (const auto& hold : untold) {
          if (!hold->declare_lost()) untold_.push_back(hold);
        }
      }
    } catch (...) {  // no memory: once more
      std::this_thread::sleep_for(busy_interval);
    }
  }
  for (Tended& tended : tended_) {
    tended.idle.session.reset();
    pool_.drop_idle(tended.idle.unlock);
  }
  tended_.clear();
  const std::lock_guard guard(starting_);
  runs_ = false;
  ended_.notify_all();
}

// Waits until something happens, for a while at most.
void HeartbeatThread::listen(const Holds& holds) {
  std::vector<pollfd> fds{{wake_, POLLIN, 0}};
  for (const auto& hold : holds) fds.push_back({hold->socket, POLLRDHUP, 0});
  for (std::size_t i = 0; i < holds.size(); ++i) {
    const std::unique_lock talking(holds[i]->talking, std::try_to_lock);
    if (talking && holds[i]->beating) fds[i + 1].events |= POLLIN;
  }
  for (const Tended& tended : tended_) fds.push_back({tended.idle.session->socket(), POLLIN, 0});
  poll(fds.data(), fds.size(), static_cast<int>((fds.size() > 1 ? busy_interval : idle_interval).count()));
  std::uint64_t woken = 0;
  if ((fds[0].revents & POLLIN) != 0) {
    [[maybe_unused]] const ssize_t got = read(wake_, &woken, sizeof woken);
  }
  for (std::size_t i = 0; i < holds.size(); ++i) {
    const short events = fds[i + 1].revents;
    look_at(*holds[i], (events & POLLIN) != 0, (events & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0);
  }
}

// An answer that has arrived is read before the lease is judged.
void HeartbeatThread::look_at(SessionHold& hold, bool readable, bool hung_up) {
  if (hold.released.load()) return;  // its socket may be another's by now
  std::unique_lock talking(hold.talking, std::try_to_lock);
  Session* const session = talking ? hold.held.get() : nullptr;
  if (session != nullptr && hold.beating && (readable || hung_up || !hold.surely())) {
    if (read_answer(hold) == Session::Answer::bad) hung_up = true;
  }
  if (session != nullptr && !hung_up && hold.surely() && !hold.beating &&
      now_with_suspend() - hold.confirmed.load() >= ask_after_.count()) {
    hold.beat_sent = now_with_suspend();
    session->begin_heartbeat();
    hold.beating = true;
    // The client library may have read a quick answer while it sent. Then the socket does not become readable.
    if (read_answer(hold) == Session::Answer::bad) hung_up = true;
  }
  if (hung_up || !hold.surely()) {
    if (session != nullptr) session->give_up();
    lose(hold);
  }
}

Session::Answer HeartbeatThread::read_answer(SessionHold& hold) {
  const Session::Answer said = hold.held->answer();
  if (said != Session::Answer::none_yet) hold.beating = false;
  if (said == Session::Answer::good) hold.confirmed = hold.beat_sent;
  return said;
}

// Sessions of nobody are kept for a while, and the store must not find them silent meanwhile.
void HeartbeatThread::tend_idle() {
  const Clock::time_point now = Clock::now();
  std::erase_if(tended_, [&](Tended& tended) {
    Session::Answer said = Session::Answer::bad;
    try {
      said = tended.idle.session->answer();
    } catch (...) {  // no memory
    }
    const milliseconds patience = tended.idle.unlock != 0 ? unlock_answer : beat_answer;
    if (said == Session::Answer::none_yet && now - tended.asked < patience) return false;
    if (said == Session::Answer::good) {
      tended.idle.spoken = tended.asked;
      pool_.put_idle(std::move(tended.idle));
    } else {
      tended.idle.session->give_up();
      tended.idle.session.reset();
      pool_.drop_idle(tended.idle.unlock);
    }
    return true;
  });
  tended_.reserve(tended_.size() + pool_.most());  // nothing fails once they are taken
  for (SessionPool::Idle& idle : pool_.take_quiet(std::chrono::duration_cast<Clock::duration>(ask_after_))) {
    if (idle.unlock != 0) {
      const Clock::time_point asked = idle.used;
      tended_.push_back({std::move(idle), asked});
      continue;
    }
    bool asked = false;
    try {
      if (now - idle.used < idle_kept) {
        idle.session->begin_heartbeat();
        asked = true;
      }
    } catch (...) {  // no memory
    }
    if (asked) {
      tended_.push_back({std::move(idle), now});
    } else {
      idle.session.reset();
      pool_.drop_idle(0);
    }
  }
}

}  // namespace hierlock::remote
