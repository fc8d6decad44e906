// Sessions: the locks of one Locker, held or waited for, each on a session of its own.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <hierlock/spi/backend.h>

#include "mysql/who.h"
#include "mysql_client/connection.h"
#include "timed/timed_mutex.h"

namespace hierlock::mysql {

// The server ends a session that is silent for 12 s (prepare_session). So for 10 s after the send of a question that it
// answered, the lock is surely held.
inline constexpr std::chrono::nanoseconds lease = std::chrono::seconds(10);

inline std::int64_t now_with_suspend() noexcept {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// A lock that is held: in the local queue, and at the server.
struct Held : std::enable_shared_from_this<Held> {
  spi::Grant local;         // guarded by Sessions::mutex, as the three below
  std::uint64_t owner = 0;  // as the pool counts
  std::int64_t fence = 0;
  HeldNodes nodes;
  const std::uint64_t session;
  const std::string server;  // Connection::identity()
  const Clock::time_point since = Clock::now();

  TimedMutex talking;  // guards `connection`: a release or an extend against the heartbeat
  std::unique_ptr<Connection> connection;
  const int socket;
  std::atomic<std::int64_t> confirmed;  // when the last question was sent that the server answered
  std::atomic<bool> gone{false};
  std::stop_source lost{std::nostopstate};  // guarded by Sessions::mutex

  // If there is no memory for it, the connection stays where it is.
  Held(std::unique_ptr<Connection>&& c, std::int64_t sent)
      : session(c->id()),
        server(c->identity()),
        connection(std::move(c)),
        socket(connection->socket()),
        confirmed(sent) {}
  bool surely() const noexcept { return !gone.load() && now_with_suspend() < confirmed.load() + lease.count(); }
};

// A request that the server has not answered for a while, or one that waits in the local queue while its owner holds
// something.
struct Pending {
  spi::Grant local;
  std::uint64_t owner = 0, session = 0;  // the latter as who.h says
  std::string owner_name;                // of one without a local grant
  std::uint64_t queue_owner = 0;         // in the local queue: its owner there
  std::vector<Node> nodes;
  const Clock::time_point since = Clock::now();
  // Written to when it is chosen as the victim of a deadlock. Its own: the one who chooses may be late, and the number
  // of a descriptor that was closed is somebody else's soon.
  const int wake = -1;
  std::stop_source stop{std::nostopstate};  // in the local queue that, instead
  explicit Pending(int descriptor) : wake(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {}
  explicit Pending(std::stop_source source) : stop(std::move(source)) {}
  ~Pending() {
    if (wake >= 0) close(wake);
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  void choose(std::string why) {
    cycle = std::move(why);
    victim = true;
    stop.request_stop();
    const std::uint64_t one = 1;
    if (wake >= 0) [[maybe_unused]]
      const ssize_t written = write(wake, &one, sizeof one);
  }

  std::atomic<bool> victim{false};
  std::string cycle;  // set before `victim`
  // The watch's own: a cycle that it was seen in.
  struct Suspicion {
    std::string key;  // none: nothing is suspected
    Clock::time_point since{};
    int looks = 0;
  } suspicion;
};

class Sessions {
 public:
  std::uint64_t add(std::shared_ptr<Held> held) {
    const std::lock_guard guard(mutex);
    held_.emplace(++last_id_, std::move(held));
    return last_id_;
  }
  std::shared_ptr<Held> find(std::uint64_t id) const noexcept {
    const std::lock_guard guard(mutex);
    const auto found = held_.find(id);
    return found == held_.end() ? nullptr : found->second;
  }
  std::shared_ptr<Held> take_out(std::uint64_t id) noexcept {
    const std::lock_guard guard(mutex);
    const auto found = held_.find(id);
    if (found == held_.end()) return nullptr;
    std::shared_ptr<Held> held = std::move(found->second);
    held_.erase(found);
    return held;
  }
  bool has(const Held& held) const noexcept {
    const std::lock_guard guard(mutex);
    for (const auto& [id, other] : held_) {
      if (other.get() == &held) return true;
    }
    return false;
  }
  std::vector<std::shared_ptr<Held>> all_held() const {
    const std::lock_guard guard(mutex);
    std::vector<std::shared_ptr<Held>> all;
    all.reserve(held_.size());
    for (const auto& [id, held] : held_) all.push_back(held);
    return all;
  }
  // The first thing that an owner holds, on another session than `except`, in the way of one of these nodes.
  struct Collision {
    std::string held;
    const Node* wanted;
  };
  std::optional<Collision> collision(std::uint64_t owner, const Held* except, const std::vector<Node>& wanted) const {
    const std::lock_guard guard(mutex);
    for (const auto& [id, held] : held_) {
      if (held->owner != owner || held.get() == except || held->gone.load()) continue;
      for (const Node& has : held->nodes.read()) {
        for (const Node& node : wanted) {
          if (has.row.level == node.row.level && has.row.bucket == node.row.bucket &&
              (has.row.mode == Mode::X || node.row.mode == Mode::X)) {
            return Collision{has.text, &node};
          }
        }
      }
    }
    return std::nullopt;
  }
  // Whether an owner has a lock that is gone and was not released.
  bool lost_one(std::uint64_t owner) const noexcept {
    const std::lock_guard guard(mutex);
    return std::any_of(held_.begin(), held_.end(),
                       [&](const auto& held) { return held.second->owner == owner && !held.second->surely(); });
  }
  bool empty() const noexcept {
    const std::lock_guard guard(mutex);
    return held_.empty();
  }

  void add(std::shared_ptr<Pending> pending) {
    const std::lock_guard guard(mutex);
    pending_.push_back(std::move(pending));
  }
  void remove(const Pending* pending) noexcept {
    const std::lock_guard guard(mutex);
    std::erase_if(pending_, [&](const auto& p) { return p.get() == pending; });
  }
  std::vector<std::shared_ptr<Pending>> all_pending() const {
    const std::lock_guard guard(mutex);
    return pending_;
  }

  mutable std::mutex mutex;

 private:
  std::unordered_map<std::uint64_t, std::shared_ptr<Held>> held_;
  std::vector<std::shared_ptr<Pending>> pending_;
  std::uint64_t last_id_ = 0;
};

}  // namespace hierlock::mysql
