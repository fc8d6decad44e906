#include "mysql/store.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <hierlock/mysql.h>
#include <hierlock/spi/store.h>

#include "embedded/embedded.h"
#include "mysql/doctor.h"
#include "mysql/explain.h"
#include "mysql/pool.h"
#include "mysql/provision.h"
#include "mysql/schema.h"
#include "mysql/statements.h"
#include "mysql/vigil.h"
#include "plan/buckets.h"

namespace hierlock::mysql {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// The server ends a session that is silent for 12 s (prepare_session). So for 10 s after the send of a question that it
// answered, the lock is surely held; asked again after 3.
constexpr nanoseconds lease = seconds(10);
constexpr nanoseconds heartbeat_after = seconds(3);
constexpr milliseconds look_interval{100};
constexpr seconds longest_release{1};  // B6
constexpr seconds connect_time{5};
constexpr seconds idle_kept{60};

constexpr unsigned lock_wait_timeout = 1205, deadlock = 1213, query_interrupted = 1317, lock_no_wait = 3572,
                   duplicate_key = 1062;

std::int64_t now_with_suspend() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// The default owner of a thread, as the pool counts; apart from the numbers of Owners.
std::uint64_t this_thread_number() {
  static std::atomic<std::uint64_t> last{std::uint64_t{1} << 63};
  thread_local const std::uint64_t mine = last.fetch_add(1) + 1;
  return mine;
}

// A lock that is held: in the local queue, and at the server on a session of its own.
struct Held {
  spi::Grant local;
  std::uint64_t owner = 0;
  std::int64_t fence = 0;
  std::vector<std::string> nodes;  // for people

  std::timed_mutex talking;  // guards `connection`: a release or an extend against the heartbeat
  std::unique_ptr<Connection> connection;
  const int socket;
  std::atomic<std::int64_t> confirmed;  // when the last question was sent that the server answered
  std::atomic<bool> gone{false};
  std::stop_source lost{std::nostopstate};  // guarded by Store::mutex_

  Held(std::unique_ptr<Connection> c, std::int64_t sent)
      : connection(std::move(c)), socket(connection->socket()), confirmed(sent) {}
  bool surely() const noexcept {
    return !gone.load() && now_with_suspend() < confirmed.load() + lease.count();
  }
};

class AtServer final : public spi::Waiting {
 public:
  AtServer(spi::Backend& queue, spi::OwnerId owner) : queue_(queue), owner_(owner) {}
  std::string owner() const override { return queue_.owner_name(owner_); }
  std::string blocked_by() const override { return "somebody in another process"; }

 private:
  spi::Backend& queue_;
  const spi::OwnerId owner_;
};

class Store final : public spi::Backend {
 public:
  Store(Options options, Owners owners)
      : options_(std::move(options)),
        owners_(owners),
        queue_(embedded::open_memory(spi::Url::parse("memory:"), owners)),
        pool_(options_.connections, [this] { return connect(options_, floor_.load(), connect_time); }) {
    auto first = connect(options_, 0, connect_time);
    Until soon(connect_time);
    recorded_ = read_or_make(*first, options_, soon);
    floor_ = recorded_.fence_floor;
    dialect_ = dialect_of(*first);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) throw Error(ErrorKind::exhausted, "no more file descriptors");
    pool_.add(std::move(first));
  }
  ~Store() override {
    if (watch_.joinable()) {
      watch_.request_stop();
      wake_watch();
      watch_.join();
    }
    close(wake_);
  }

  Capabilities capabilities() const override {
    return {.wakes_waiters = true, .extends = true, .across_processes = true, .across_machines = true, .leases = true};
  }

  std::optional<spi::Grant> acquire(const spi::Request& request) override {
    check(request.plan);
    const std::vector<plan::Row> rows = plan::rows_of(request.plan, recorded_.buckets);
    Teller teller(request.observer);
    spi::Request asked = request;
    asked.observer = &teller;
    const std::optional<spi::Grant> local = queue_->acquire(asked);
    if (!local) return std::nullopt;
    try {
      const std::uint64_t owner = owner_of(request.owner);
      std::shared_ptr<Held> held = lock_rows_for(owner, rows, asked, teller);
      if (held == nullptr) {
        queue_->release(*local);
        return std::nullopt;
      }
      held->local = *local;
      held->owner = owner;
      for (const spi::Step& step : request.plan.steps()) held->nodes.push_back(spi::describe_key(step.space, step.key));
      return remember(std::move(held));
    } catch (...) {
      queue_->release(*local);
      throw;
    }
  }

  std::optional<spi::Grant> extend(const spi::Grant& grant, const spi::Request& request) override;
  void release(const spi::Grant& grant) noexcept override;

  spi::Grant give(const spi::Grant& grant, spi::OwnerId to) override {
    const std::shared_ptr<Held> held = find(grant);
    if (held == nullptr || !held->surely())
      throw Error(ErrorKind::lost, "the lock was taken away: it cannot be handed over");
    held->local = queue_->give(held->local, to);
    const std::uint64_t owner = owner_of(to);
    pool_.give(std::exchange(held->owner, owner), owner);
    return grant;
  }

  bool held(const spi::Grant& grant) const noexcept override {
    const std::shared_ptr<Held> held = find(grant);
    return held != nullptr && held->surely();
  }
  std::stop_token lost(const spi::Grant& grant) override {
    const std::lock_guard guard(mutex_);
    const auto found = held_.find(grant.id);
    if (found == held_.end()) return {};
    Held& held = *found->second;
    if (!held.lost.stop_possible()) held.lost = std::stop_source();
    if (!held.surely()) held.lost.request_stop();
    return held.lost.get_token();
  }

  spi::OwnerId make_owner(std::string_view name) override { return queue_->make_owner(name); }
  void drop_owner(spi::OwnerId owner) noexcept override { queue_->drop_owner(owner); }
  std::string owner_name(spi::OwnerId owner) override { return queue_->owner_name(owner); }
  std::array<std::uint64_t, 3> grants() const override { return {grants_.load(), 0, 0}; }
  bool idle() const noexcept override {
    const std::lock_guard guard(mutex_);
    return held_.empty();
  }
  Snapshot snapshot() const override;

 private:
  void check(const spi::Plan& plan) const;
  std::uint64_t owner_of(spi::OwnerId owner) {
    if (owner.value != 0) return owner.value;
    if (owners_ == Owners::per_thread) return this_thread_number();
    return (std::uint64_t{3} << 62) + handles_.fetch_add(1);
  }
  std::shared_ptr<Held> find(const spi::Grant& grant) const noexcept {
    const std::lock_guard guard(mutex_);
    const auto found = held_.find(grant.id);
    return found == held_.end() ? nullptr : found->second;
  }
  spi::Grant remember(std::shared_ptr<Held> held) {
    grants_.fetch_add(1, std::memory_order_relaxed);
    spi::Grant grant{0, held->fence};
    {
      const std::lock_guard guard(mutex_);
      grant.id = ++last_id_;
      held_.emplace(grant.id, std::move(held));
      if (!watch_.joinable()) watch_ = std::jthread([this](const std::stop_token& end) { watch(end); });
    }
    return grant;
  }
  std::shared_ptr<Held> take_out(const spi::Grant& grant) noexcept {
    const std::lock_guard guard(mutex_);
    const auto found = held_.find(grant.id);
    if (found == held_.end()) return nullptr;
    std::shared_ptr<Held> held = std::move(found->second);
    held_.erase(found);
    return held;
  }

  enum class Answer : std::uint8_t { granted, not_in_time, again };
  std::shared_ptr<Held> lock_rows_for(std::uint64_t owner, const std::vector<plan::Row>& rows,
                                      const spi::Request& request, Teller& teller);
  Answer ask(Connection& connection, bool fresh, const std::vector<plan::Row>& rows, const spi::Request& request,
             Teller& teller, LockReply& reply, std::int64_t& sent);
  void make_missing(Connection& connection, const std::vector<plan::Row>& rows, const LockReply& reply);
  Error not_provisioned(const std::vector<plan::Row>& rows, const LockReply& reply) const;
  static void roll_back(Connection& connection, Clock::time_point end) noexcept;
  static std::int64_t fence_of(const LockReply& reply) {
    return static_cast<std::int64_t>(reply.minted & fence_mask) * fence_step;
  }

  // --- the watch: a thread that looks after what is held ---
  struct Heartbeat {
    std::shared_ptr<Held> of;
    std::unique_lock<std::timed_mutex> talking;
    std::int64_t sent;
  };
  void watch(const std::stop_token& end);
  void begin_heartbeats(const std::vector<std::shared_ptr<Held>>& all, std::vector<Heartbeat>& beating);
  void end_heartbeats(std::vector<Heartbeat>& beating);
  void tend_idle();
  void declare_lost(Held& held);
  void wake_watch() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
  }

  const Options options_;
  const Owners owners_;
  const std::unique_ptr<spi::Backend> queue_;
  Recorded recorded_;
  Dialect dialect_ = Dialect::mysql;
  std::atomic<std::uint64_t> floor_{0}, grants_{0}, handles_{0};
  Pool pool_;
  int wake_ = -1;

  mutable std::mutex mutex_;  // guards what follows
  std::unordered_map<std::uint64_t, std::shared_ptr<Held>> held_;
  std::uint64_t last_id_ = 0;
  std::jthread watch_;
};

// --- asking ----------------------------------------------------------------------------------------------

// H7, B10: what cannot be said in rows is refused before anything is sent.
void Store::check(const spi::Plan& plan) const {
  for (const spi::Step& step : plan.steps()) {
    if (step.space != Space::path) {
      throw Error(ErrorKind::unsupported, "mysql: knows paths only so far, not " +
                                              spi::describe_key(step.space, step.key) + ": use shm: or memory: for it");
    }
    if (step.level >= recorded_.levels) {
      throw Error(ErrorKind::invalid_argument,
                  spi::describe_key(step.space, step.key) + " has more levels than the " +
                      std::to_string(recorded_.levels) + " of this database: provision it with more, or shorten the path");
    }
    if (step.mode == Mode::S && step.asked && step.level + 1u != recorded_.levels) {
      throw Error(ErrorKind::unsupported,
                  "shared " + spi::describe_key(step.space, step.key) +
                      ": rows have no intention modes, so mysql: can share at the deepest level only (level " +
                      std::to_string(recorded_.levels) + ")");
    }
  }
}

void Store::roll_back(Connection& connection, Clock::time_point end) noexcept {
  try {
    for (int tries = 0; tries < 2; ++tries) {
      Until soon(end);
      const Reply reply = connection.query("ROLLBACK", soon);
      if (reply.well()) return;
      if (reply.code != query_interrupted) break;  // a KILL that came late
    }
  } catch (...) {  // no memory
  }
  connection.give_up();
}

Store::Answer Store::ask(Connection& connection, bool fresh, const std::vector<plan::Row>& rows,
                         const spi::Request& request, Teller& teller, LockReply& reply, std::int64_t& sent) {
  const std::string sql = lock_rows(dialect_, options_.layout.table, rows, request.no_wait);
  std::vector<std::uint32_t> buckets;
  for (const plan::Row& row : rows) buckets.push_back(row.bucket);
  const AtServer waiting(*queue_, request.owner);
  LockVigil vigil(pool_, connection, request, teller, waiting);
  do {
    sent = now_with_suspend();
    reply = connection.lock(sql, buckets, vigil);
    // The server ends each wait after 10 s, so that one who died while waiting is not waited for longer (B5).
  } while (reply.code == lock_wait_timeout && !request.no_wait && !vigil.ended());
  if (vigil.ended()) {
    if (vigil.cancelled()) {
      throw Error(ErrorKind::cancelled, "waiting for " + spi::describe(request.plan.steps()) + " was cancelled");
    }
    return Answer::not_in_time;
  }
  if (reply.well() && reply.session != 0 && reply.session != connection.id()) {
    connection.give_up();
    throw Error(ErrorKind::unsafe_topology,
                "the lock was granted to another session than the one that asked: a proxy is in between that mixes "
                "sessions. Connect to the server itself");
  }
  if (reply.well()) return Answer::granted;
  if (request.no_wait && (reply.code == lock_no_wait || reply.code == lock_wait_timeout)) return Answer::not_in_time;
  if (connection.broken() && !fresh) return Answer::again;  // it was closed while nobody used it
  throw error_of(reply.code, reply.message, "lock " + spi::describe(request.plan.steps()));
}

std::shared_ptr<Held> Store::lock_rows_for(std::uint64_t owner, const std::vector<plan::Row>& rows,
                                           const spi::Request& request, Teller& teller) {
  for (int made = 0;;) {
    Pool::Taken taken = pool_.take(owner, request);
    if (taken.connection == nullptr) return nullptr;
    LockReply reply;
    std::int64_t sent = 0;
    Answer answer = Answer::not_in_time;
    try {
      answer = ask(*taken.connection, taken.fresh, rows, request, teller, reply, sent);
      if (answer == Answer::granted && std::count(reply.there.begin(), reply.there.end(), true) == std::ssize(rows)) {
        // The lease counts from the send: after a long wait it is asked for anew.
        if (now_with_suspend() - sent > std::chrono::nanoseconds(seconds(1)).count()) {
          sent = now_with_suspend();
          Until soon(longest_release);
          taken.connection->ask("SELECT CONNECTION_ID()", soon);
        }
        auto held = std::make_shared<Held>(std::move(taken.connection), sent);
        held->fence = fence_of(reply);
        return held;
      }
      if (answer == Answer::granted) {
        roll_back(*taken.connection, Clock::now() + longest_release);
        if (!options_.layout.lazy || ++made > 3) throw not_provisioned(rows, reply);
        make_missing(*taken.connection, rows, reply);
        answer = Answer::again;
      }
    } catch (...) {
      roll_back(*taken.connection, Clock::now() + longest_release);
      pool_.put_back(std::move(taken.connection), owner);
      throw;
    }
    roll_back(*taken.connection, Clock::now() + longest_release);  // H8
    pool_.put_back(std::move(taken.connection), owner);
    if (answer == Answer::not_in_time) return nullptr;
  }
}

// --- missing rows ----------------------------------------------------------------------------------------

Error Store::not_provisioned(const std::vector<plan::Row>& rows, const LockReply& reply) const {
  std::size_t first = 0;
  while (first + 1 < rows.size() && reply.there[first]) ++first;
  return {ErrorKind::not_provisioned, "level " + std::to_string(rows[first].level) + ", bucket " +
                                          std::to_string(rows[first].bucket) + " is not in the table " +
                                          options_.layout.table + ", nothing was locked: run `hierlock provision --on " +
                                          options_.url + "`, or open with ?provision=lazy"};
}

// Outside of any lock's transaction, one after the other in canonical order, each committed before the next (H11).
void Store::make_missing(Connection& connection, const std::vector<plan::Row>& rows, const LockReply& reply) {
  Until soon(seconds(10));
  connection.ask("SET SESSION innodb_lock_wait_timeout=1", soon);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (reply.there[i]) continue;
    const Reply made = connection.query(make_row(options_.layout.table, rows[i].level, rows[i].bucket), soon);
    // Both mean that somebody else is making it, or has made it.
    if (!made.well() && made.code != duplicate_key && made.code != lock_wait_timeout) {
      throw error_of(made.code, made.message, "make a missing row of " + options_.layout.table);
    }
    connection.ask("COMMIT", soon);
  }
  connection.ask("SET SESSION innodb_lock_wait_timeout=10", soon);
}

// --- extend, release -------------------------------------------------------------------------------------

std::optional<spi::Grant> Store::extend(const spi::Grant& grant, const spi::Request& request) {
  check(request.plan);
  const std::shared_ptr<Held> held = find(grant);
  if (held == nullptr || !held->surely()) throw Error(ErrorKind::lost, "the lock was taken away: it cannot be extended");
  const std::vector<plan::Row> rows = plan::rows_of(request.plan, recorded_.buckets);
  Teller teller(request.observer);
  spi::Request asked = request;
  asked.observer = &teller;
  std::optional<spi::Grant> local;
  try {
    local = queue_->extend(held->local, asked);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::deadlock) {  // the local queue has released it: so has the server to
      held->local = {};
      release(grant);
    }
    throw;
  }
  if (!local) return std::nullopt;
  held->local = *local;
  const std::lock_guard talking(held->talking);
  for (int made = 0;; ++made) {
    LockReply reply;
    std::int64_t sent = 0;
    Answer answer = Answer::not_in_time;
    try {
      answer = ask(*held->connection, true, rows, asked, teller, reply, sent);
    } catch (const Error& error) {
      if (held->connection->broken()) held->gone = true;
      if (error.native_code() == deadlock) held->gone = true;  // the server has rolled all of it back
      throw;
    }
    if (answer != Answer::granted) return std::nullopt;
    if (std::count(reply.there.begin(), reply.there.end(), true) == std::ssize(rows)) {
      grants_.fetch_add(1, std::memory_order_relaxed);
      held->fence = fence_of(reply);
      held->confirmed = now_with_suspend() - sent > nanoseconds(seconds(1)).count() ? held->confirmed.load() : sent;
      for (const spi::Step& step : request.plan.steps()) held->nodes.push_back(spi::describe_key(step.space, step.key));
      return spi::Grant{grant.id, held->fence};
    }
    if (!options_.layout.lazy || made > 3) throw not_provisioned(rows, reply);
    Pool::Taken other = pool_.take(owner_of(request.owner), request);  // not on the session that holds locks
    if (other.connection == nullptr) return std::nullopt;
    try {
      make_missing(*other.connection, rows, reply);
    } catch (...) {
      pool_.put_back(std::move(other.connection), owner_of(request.owner));
      throw;
    }
    pool_.put_back(std::move(other.connection), owner_of(request.owner));
  }
}

void Store::release(const spi::Grant& grant) noexcept {
  const std::shared_ptr<Held> held = take_out(grant);
  if (held == nullptr) return;
  const Clock::time_point end = Clock::now() + longest_release;
  std::unique_lock talking(held->talking, std::defer_lock);
  if (talking.try_lock_until(end)) {
    std::unique_ptr<Connection> connection = std::move(held->connection);
    talking.unlock();
    if (held->gone.load()) connection->give_up();
    roll_back(*connection, end);
    pool_.put_back(std::move(connection), held->owner);
  } else {
    held->gone = true;  // its heartbeat is not answered: whoever waits for that closes it
  }
  if (held->local.id != 0) queue_->release(held->local);
}

// --- the watch -------------------------------------------------------------------------------------------

void Store::declare_lost(Held& held) {
  held.gone = true;
  std::stop_source lost{std::nostopstate};
  {
    const std::lock_guard guard(mutex_);
    lost = held.lost;
  }
  lost.request_stop();  // runs callbacks: not under the mutex
}

void Store::begin_heartbeats(const std::vector<std::shared_ptr<Held>>& all, std::vector<Heartbeat>& beating) {
  for (const auto& held : all) {
    if (held->gone.load() || now_with_suspend() - held->confirmed.load() < heartbeat_after.count()) continue;
    std::unique_lock talking(held->talking, std::try_to_lock);
    if (!talking || held->connection == nullptr) continue;  // being released, or beating already
    const std::int64_t sent = now_with_suspend();
    held->connection->begin("SELECT CONNECTION_ID()");
    beating.push_back({held, std::move(talking), sent});
  }
}

void Store::end_heartbeats(std::vector<Heartbeat>& beating) {
  std::erase_if(beating, [this](Heartbeat& beat) {
    Held& held = *beat.of;
    if (!held.connection->go_on()) {
      if (held.surely()) return false;
      held.connection->give_up();
    } else {
      const Reply reply = held.connection->reply();
      if (reply.well() && !reply.rows.empty() && reply.rows[0].at(0) == std::to_string(held.connection->id())) {
        held.confirmed = beat.sent;
      } else {
        held.connection->give_up();
      }
    }
    const bool released = held.gone.load();  // while we waited: nobody else closes it
    if (held.connection->broken() && !released) declare_lost(held);
    bool forgotten = false;
    {
      const std::lock_guard guard(mutex_);
      forgotten = std::none_of(held_.begin(), held_.end(), [&](const auto& h) { return h.second.get() == &held; });
    }
    if (forgotten) {
      held.connection->give_up();
      pool_.put_back(std::move(held.connection), held.owner);
    }
    return true;
  });
}

// Connections of nobody are kept for a while, and the server must not find them silent meanwhile.
void Store::tend_idle() {
  bool answers = true;
  for (Pool::Idle& idle : pool_.take_quiet(std::chrono::duration_cast<Clock::duration>(heartbeat_after))) {
    const Clock::time_point now = Clock::now();
    if (answers && now - idle.used < idle_kept) {
      Until soon(milliseconds(500));
      answers = idle.connection->query("DO 0", soon).well();
      if (answers) {
        idle.spoken = now;
        pool_.put_idle(std::move(idle));
        continue;
      }
    }
    idle.connection.reset();
    pool_.drop_idle();
  }
}

void Store::watch(const std::stop_token& end) {
  std::vector<Heartbeat> beating;
  while (!end.stop_requested()) {
    std::vector<std::shared_ptr<Held>> all;
    {
      const std::lock_guard guard(mutex_);
      for (const auto& [id, held] : held_) {
        if (!held->gone.load()) all.push_back(held);
      }
    }
    std::vector<pollfd> fds{{wake_, POLLIN, 0}};
    for (const auto& held : all) fds.push_back({held->socket, POLLRDHUP, 0});
    for (const Heartbeat& beat : beating) fds.push_back({beat.of->socket, POLLIN, 0});
    poll(fds.data(), fds.size(), static_cast<int>(all.empty() && beating.empty() ? 500 : look_interval.count()));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool hung_up = (fds[i + 1].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
      if (hung_up || !all[i]->surely()) {
        bool still = false;
        {
          const std::lock_guard guard(mutex_);  // a socket that was closed by a release means nothing
          still = std::any_of(held_.begin(), held_.end(), [&](const auto& h) { return h.second == all[i]; });
        }
        if (still) declare_lost(*all[i]);
      }
    }
    begin_heartbeats(all, beating);
    end_heartbeats(beating);
    tend_idle();
  }
  for (Heartbeat& beat : beating) beat.of->connection->give_up();
}

// --- looking ---------------------------------------------------------------------------------------------

// What the local queue knows, with the fences of the server.
Snapshot Store::snapshot() const {
  Snapshot result = queue_->snapshot();
  result.store = options_.url;
  result.table = options_.layout.table;
  const std::lock_guard guard(mutex_);
  for (Snapshot::Holder& holder : result.holders) {
    std::int64_t fence = 0;  // not found: it still waits at the server
    for (const auto& [id, held] : held_) {
      if (held->local.fence == holder.fence &&
          std::find(held->nodes.begin(), held->nodes.end(), holder.target) != held->nodes.end()) {
        fence = held->fence;
      }
    }
    holder.fence = fence;
    if (holder.mode == Mode::IS || holder.mode == Mode::IX) holder.mode = Mode::S;  // rows have no intentions
  }
  return result;
}

}  // namespace

std::unique_ptr<spi::Backend> open(const spi::Url& url, const OpenOptions& options) {
  return std::make_unique<Store>(read_url(url), options.owners);
}

void enable() {
  spi::add_store("mysql", {.open = open, .provision = provision, .doctor = doctor, .statements = statements});
}

}  // namespace hierlock::mysql
