#include "mysql/pool.h"

#include <algorithm>
#include <utility>

namespace hierlock::mysql {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds longest_connect{5};
constexpr milliseconds longest_wait{50};

// Looking whether the server has closed it costs a system call. Whoever is given one that it just has closed finds out
// from the answer, and asks on another.
constexpr milliseconds usually_alive{50};

// Many waits that end at the same time share the side connection, as long as it answers.
constexpr milliseconds usually_free{50};

}  // namespace

Pool::Taken Pool::take(std::uint64_t owner, const spi::Request& request) {
  const std::stop_token cancel = request.cancel != nullptr ? *request.cancel : std::stop_token();
  std::unique_lock guard(mutex_);
  const auto can = [&] {
    return !idle_.empty() || open_ < most_ ||
           std::any_of(making_.begin(), making_.end(), [](const Making& m) { return !m.wanted && !m.done; });
  };
  const auto settled = [&] { return can() || tended_ == 0; };
  const auto heed_cancel = [&] {
    if (cancel.stop_requested()) throw Error(ErrorKind::cancelled, "waiting for a connection was cancelled");
  };
  if (!settled()) {
    const Clock::time_point soon = Clock::now() + seconds(1);  // they are of nobody, and back by then
    freed_.wait_until(guard, cancel, std::min(soon, request.deadline.value_or(soon)), settled);
    heed_cancel();
  }
  if (!can() && had_.contains(owner)) {
    throw Error(
        ErrorKind::exhausted,
        "all " + std::to_string(most_) +
            " connections are in use, and this owner holds a lock on one: it does not wait for another, because "
            "it might wait for itself. Release first, or open with a larger connections=");
  }
  if (!can() && request.no_wait) {
    throw Error(ErrorKind::exhausted, "all " + std::to_string(most_) +
                                          " connections are in use, and waiting was not asked for: try again, or open "
                                          "with a larger connections=");
  }
  if (!can()) {
    Clock::time_point end = Clock::now() + longest_wait;
    if (request.deadline) end = std::min(end, *request.deadline);
    const bool freed = freed_.wait_until(guard, cancel, end, can);
    heed_cancel();
    if (!freed) return {.full = !request.deadline || end < *request.deadline};
  }
  const bool others = ++had_[owner] > 1;
  Making* mine = nullptr;
  for (;;) {
    while (!idle_.empty()) {
      std::unique_ptr<Connection> connection = std::move(idle_.back().connection);
      const bool just_used = Clock::now() - idle_.back().used < usually_alive;
      idle_.pop_back();
      if (fit(*connection) && (just_used || !connection->hung_up())) {
        if (mine != nullptr) mine->wanted = false;
        return {std::move(connection), false, others};
      }
      --open_;  // the server has closed it
    }
    try {
      if (mine == nullptr) mine = &begin_or_take_over();
    } catch (...) {
      disown(owner);
      throw;
    }
    const auto there = [&] { return mine->done || !idle_.empty(); };
    request.deadline ? freed_.wait_until(guard, cancel, *request.deadline, there) : freed_.wait(guard, cancel, there);
    if (mine->done) break;
    if (!idle_.empty()) continue;
    mine->wanted = false;
    disown(owner);
    heed_cancel();
    throw Error(ErrorKind::timeout,
                "no connection to the server could be made in time. It goes on being made: try again, or wait longer");
  }
  std::list<Making> made;
  made.splice(made.end(), making_, std::find_if(making_.begin(), making_.end(), [&](auto& m) { return &m == mine; }));
  guard.unlock();
  mine->thread.join();
  if (mine->connection != nullptr) return {std::move(mine->connection), true, others};
  put_back(nullptr, owner);
  heed_cancel();
  std::rethrow_exception(mine->error);
}

// One for the caller. The mutex is held.
Pool::Making& Pool::begin_or_take_over() {
  std::erase_if(making_, [](Making& m) {
    const bool over = m.done && !m.wanted;
    if (over) m.thread.join();  // it is in its last lines, without the mutex
    return over;
  });
  // One that will be given up soon is for those only who can begin none.
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

void Pool::make(Making& making) noexcept {
  std::unique_ptr<Connection> connection;
  std::exception_ptr error;
  try {
    Deadline soon(longest_connect, &ending_);
    connection = connect(soon);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard guard(mutex_);
  making.done = true;
  if (making.wanted) {
    making.connection = std::move(connection);
    making.error = std::move(error);
  } else if (connection != nullptr && !closed_ && fit(*connection)) {
    const Clock::time_point now = Clock::now();
    idle_.push_back({std::move(connection), now, now});
  } else {
    --open_;
  }
  freed_.notify_all();
}

Pool::~Pool() {
  ending_.set(Clock::now());
  for (Making& making : making_) making.thread.join();
}

void Pool::disown(std::uint64_t owner) noexcept {
  if (const auto had = had_.find(owner); had != had_.end() && --had->second == 0) had_.erase(had);
}

std::unique_ptr<Connection> Pool::connect(WaitLimit& limit) {
  std::uint64_t mine = 0;
  {
    const std::lock_guard guard(mutex_);
    mine = ++asked_;
  }
  try {
    auto connection = connect_(limit);
    const std::lock_guard guard(mutex_);
    if (mine > newest_) {
      newest_ = mine;
      server_ = connection->identity();
      distrusted_ = false;
    } else if (!fit(*connection)) {  // it took so long that the primary is another one by now
      throw Error(ErrorKind::unavailable, "the server is another one since this connection was begun: try again");
    }
    return connection;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unsafe_topology) distrust();
    throw;
  }
}

void Pool::distrust() {
  const std::lock_guard guard(mutex_);
  distrusted_ = true;
}

std::string Pool::server() {
  const std::lock_guard guard(mutex_);
  return server_;
}

bool Pool::used_since(Clock::time_point then) {
  const std::lock_guard guard(mutex_);
  return used_ >= then || !had_.empty();
}

void Pool::add(std::unique_ptr<Connection> connection) {
  const std::lock_guard guard(mutex_);
  server_ = connection->identity();
  const Clock::time_point now = Clock::now();
  idle_.push_back({std::move(connection), now, now});
  ++open_;
}

void Pool::put_back(std::unique_ptr<Connection> connection, std::uint64_t owner) noexcept {
  if (connection != nullptr && connection->broken()) connection.reset();  // outside of the mutex
  {
    const std::lock_guard guard(mutex_);
    disown(owner);
    used_ = Clock::now();
    if (connection != nullptr && fit(*connection)) {
      idle_.push_back({std::move(connection), used_, used_});
    } else {
      --open_;
    }
  }
  freed_.notify_all();  // one that is cancelled at this moment would keep it from the others
}

void Pool::give(std::uint64_t from, std::uint64_t to) {
  const std::lock_guard guard(mutex_);
  disown(from);
  ++had_[to];
}

std::vector<Pool::Idle> Pool::take_quiet(Clock::duration since) {
  std::vector<Idle> quiet;
  const Clock::time_point before = Clock::now() - since;
  const std::lock_guard guard(mutex_);
  const auto first =
      std::stable_partition(idle_.begin(), idle_.end(), [&](const Idle& i) { return i.spoken > before; });
  std::move(first, idle_.end(), std::back_inserter(quiet));
  idle_.erase(first, idle_.end());
  tended_ += quiet.size();
  return quiet;
}

void Pool::put_idle(Idle idle) noexcept {
  {
    const std::lock_guard guard(mutex_);
    idle_.insert(idle_.begin(), std::move(idle));  // the others were used later
    --tended_;
  }
  freed_.notify_all();
}

void Pool::drop_idle() noexcept {
  {
    const std::lock_guard guard(mutex_);
    --open_;
    --tended_;
  }
  freed_.notify_all();
}

bool Pool::on(Side& side, Clock::time_point free_by, const Use& use, Deadline& until) noexcept {
  std::unique_lock guard(side.mutex, std::defer_lock);
  if (!guard.try_lock_until(free_by)) return false;
  for (int tries = 0; tries < 2 && until.next(); ++tries) {
    try {
      if (side.connection == nullptr || side.connection->broken() || side.connection->hung_up()) {
        side.connection = connect(until);
      }
      if (use(*side.connection)) return true;
    } catch (...) {  // not to be had
    }
    side.connection.reset();
  }
  return false;
}

bool Pool::on_the_side(const Use& use, Deadline& until) noexcept { return on(side_, until.end(), use, until); }

bool Pool::urgently_on_the_side(const Use& use, Deadline& until) noexcept {
  const Clock::time_point soon = std::min(until.end(), Clock::now() + usually_free);
  // The last, where the account may have no more connections.
  return on(side_, soon, use, until) || on(urgent_, until.end(), use, until) || on_the_side(use, until);
}

void Pool::close(Clock::time_point by) noexcept {
  {
    std::unique_lock guard(mutex_);
    closed_ = true;
    ending_.set(Clock::now());
    freed_.wait_until(guard, by,
                      [this] { return std::all_of(making_.begin(), making_.end(), [](auto& m) { return m.done; }); });
  }
  const auto take_one = [this]() -> std::unique_ptr<Connection> {
    const std::lock_guard guard(mutex_);
    if (idle_.empty()) return nullptr;
    std::unique_ptr<Connection> connection = std::move(idle_.back().connection);
    idle_.pop_back();
    --open_;
    return connection;
  };
  while (take_one() != nullptr) {  // outside of the mutex
  }
  for (Side* const side : {&side_, &urgent_}) {
    std::unique_lock guard(side->mutex, std::defer_lock);
    if (guard.try_lock_until(by)) side->connection.reset();
  }
}

}  // namespace hierlock::mysql
