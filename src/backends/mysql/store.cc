#include "mysql/store.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include <hierlock/mysql.h>
#include <hierlock/spi/store.h>

#include "embedded/embedded.h"
#include "mysql/doctor.h"
#include "mysql/explain.h"
#include "mysql/looker.h"
#include "mysql/pool.h"
#include "mysql/provision.h"
#include "mysql/schema.h"
#include "mysql/sessions.h"
#include "mysql/statements.h"
#include "mysql/vigil.h"
#include "mysql/watch.h"
#include "plan/buckets.h"

namespace hierlock::mysql {

namespace {

using std::chrono::seconds;

constexpr seconds longest_release{1};  // B6
constexpr seconds connect_time{5};

constexpr unsigned lock_wait_timeout = 1205, deadlock = 1213, query_interrupted = 1317, lock_no_wait = 3572,
                   duplicate_key = 1062;

// The default owner of a thread, as the pool counts; apart from the numbers of Owners.
std::uint64_t this_thread_number() {
  static std::atomic<std::uint64_t> last{std::uint64_t{1} << 63};
  thread_local const std::uint64_t mine = last.fetch_add(1) + 1;
  return mine;
}

std::vector<Node> nodes_of(const spi::Plan& plan, std::uint32_t buckets) {
  std::vector<Node> nodes;
  for (const spi::Step& step : plan.steps()) {
    nodes.push_back({{step.level, plan::bucket_of(step.key, buckets), plan::row_mode(step.mode)},
                     step.asked,
                     spi::describe_key(step.space, step.key)});
  }
  return nodes;
}

// Held in both modes is held in the stronger.
void add_node(std::vector<Node>& nodes, Node node) {
  for (Node& known : nodes) {
    if (known.text != node.text) continue;
    known.row.mode = strongest(known.row.mode, node.row.mode);
    known.asked = known.asked || node.asked;
    return;
  }
  nodes.push_back(std::move(node));
}

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
        pool_(options_.connections, [this](Vigil& vigil) {
          auto connection = connect(options_, floor_.load(), vigil);
          connection->enroll(roll_);
          return connection;
        }) {
    auto first = connect(options_, 0, connect_time);
    first->enroll(roll_);
    Until soon(connect_time);
    recorded_ = read_or_make(*first, options_, soon);
    floor_ = recorded_.fence_floor;
    dialect_ = dialect_of(*first);
    pool_.add(std::move(first));
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
      std::shared_ptr<Held> held = lock_rows_for(owner, *local, rows, asked, teller);
      if (held == nullptr) {
        queue_->release(*local);
        return std::nullopt;
      }
      held->nodes = nodes_of(request.plan, recorded_.buckets);
      grants_.fetch_add(1, std::memory_order_relaxed);
      const std::int64_t fence = held->fence;
      watch_.start();
      const spi::Grant grant{sessions_.add(std::move(held)), fence};
      watch_.changed();
      return grant;
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
    const spi::Grant given = queue_->give(held->local, to);
    const std::uint64_t owner = owner_of(to);
    {
      const std::lock_guard guard(sessions_.mutex);
      held->local = given;
      pool_.give(std::exchange(held->owner, owner), owner);
    }
    watch_.changed();
    return grant;
  }

  bool held(const spi::Grant& grant) const noexcept override {
    const std::shared_ptr<Held> held = find(grant);
    return held != nullptr && held->surely();
  }
  std::stop_token lost(const spi::Grant& grant) override {
    const std::shared_ptr<Held> held = find(grant);
    if (held == nullptr) return {};
    std::stop_source source{std::nostopstate};
    {
      const std::lock_guard guard(sessions_.mutex);
      if (!held->lost.stop_possible()) held->lost = std::stop_source();
      source = held->lost;
    }
    if (!held->surely()) source.request_stop();
    watch_.wake();  // it may not have begun to listen to this one yet
    return source.get_token();
  }

  spi::OwnerId make_owner(std::string_view name) override { return queue_->make_owner(name); }
  void drop_owner(spi::OwnerId owner) noexcept override { queue_->drop_owner(owner); }
  std::string owner_name(spi::OwnerId owner) override { return queue_->owner_name(owner); }
  std::array<std::uint64_t, 3> grants() const override { return {grants_.load(), 0, 0}; }
  bool idle() const noexcept override { return sessions_.empty(); }
  Snapshot snapshot() const override { return looker_.snapshot(recorded_.buckets); }

 private:
  void check(const spi::Plan& plan) const;
  std::uint64_t owner_of(spi::OwnerId owner) {
    if (owner.value != 0) return owner.value;
    if (owners_ == Owners::per_thread) return this_thread_number();
    return (std::uint64_t{3} << 62) + handles_.fetch_add(1);
  }
  std::shared_ptr<Held> find(const spi::Grant& grant) const noexcept { return sessions_.find(grant.id); }

  enum class Answer : std::uint8_t { granted, not_in_time, again };
  std::shared_ptr<Held> lock_rows_for(std::uint64_t owner, const spi::Grant& local, const std::vector<plan::Row>& rows,
                                      const spi::Request& request, Teller& teller);
  struct Asking {
    Connection& connection;
    bool fresh;  // connected just now
    std::uint64_t owner;
    const spi::Grant& local;
    const std::vector<plan::Row>& rows;
    const spi::Request& request;
    Teller& teller;
    Held* extended = nullptr;
    bool* patient = nullptr;  // set if its session was told to wait_patiently
  };
  Answer ask(const Asking& asking, LockReply& reply, std::int64_t& sent);
  static void confirm_kept(Held& held);
  void make_missing(Connection& connection, const std::vector<plan::Row>& rows, const LockReply& reply);
  Error not_provisioned(const std::vector<plan::Row>& rows, const LockReply& reply) const;
  static void roll_back(Connection& connection, Clock::time_point end) noexcept;
  static std::int64_t fence_of(const LockReply& reply) {
    return static_cast<std::int64_t>(reply.minted & fence_mask) * fence_step;
  }

  const Options options_;
  const Owners owners_;
  const std::unique_ptr<spi::Backend> queue_;
  Recorded recorded_;
  Dialect dialect_ = Dialect::mysql;
  std::atomic<std::uint64_t> floor_{0}, grants_{0}, handles_{0};
  const std::shared_ptr<Roll> roll_ = std::make_shared<Roll>();
  Pool pool_;
  Sessions sessions_;
  mutable Watch watch_{options_, sessions_, pool_, *queue_};  // its thread uses all of the above
  mutable Looker looker_{options_, sessions_, watch_, *queue_, *roll_};
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
      throw Error(ErrorKind::invalid_argument, spi::describe_key(step.space, step.key) + " has more levels than the " +
                                                   std::to_string(recorded_.levels) +
                                                   " of this database: provision it with more, or shorten the path");
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

Store::Answer Store::ask(const Asking& asking, LockReply& reply, std::int64_t& sent) {
  auto& [connection, fresh, owner, local, rows, request, teller, extended, patient] = asking;
  const std::string sql = lock_rows(dialect_, options_.layout.table, rows, request.no_wait);
  std::vector<std::uint32_t> buckets;
  for (const plan::Row& row : rows) buckets.push_back(row.bucket);
  const AtServer waiting(*queue_, request.owner);
  const auto forget = [this](Pending* pending) {
    sessions_.remove(pending);
    watch_.wake();  // what was written down goes
  };
  std::shared_ptr<Pending> pending;
  std::unique_ptr<Pending, decltype(forget)> registered(nullptr, forget);
  LockVigil* watched = nullptr;
  LockVigil vigil(pool_, connection, request, teller, waiting, [&] {
    pending = std::make_shared<Pending>(watched->wake_descriptor());
    pending->local = local;
    pending->owner = owner;
    pending->session = connection.id();
    pending->nodes = nodes_of(request.plan, recorded_.buckets);
    sessions_.add(pending);
    registered.reset(pending.get());
    watch_.start();
    watch_.changed();
    return pending.get();
  });
  watched = &vigil;
  do {
    sent = now_with_suspend();
    reply = connection.lock(sql, buckets, vigil);
    if (extended != nullptr && reply.code == lock_wait_timeout) confirm_kept(*extended);
    if (patient != nullptr && !*patient && reply.code == lock_wait_timeout && !request.no_wait && !vigil.ended()) {
      *patient = true;
      Until soon(longest_release);
      if (!connection.query(wait_patiently, soon).well()) connection.give_up();
    }
    // The server ends each wait after a while, so that one who died while waiting is not waited for longer (B5).
  } while (reply.code == lock_wait_timeout && !request.no_wait && !vigil.ended());
  // A deadlock that was found at the last moment has taken away what was held before, too: that is not just "too late".
  const bool rolled_back = extended != nullptr && reply.code == deadlock;
  if (vigil.ended() && !rolled_back) {
    if (vigil.victim()) {
      throw Error(ErrorKind::deadlock,
                  "deadlock: " + pending->cycle +
                      ". Release what you hold and start over; one acquire of all targets avoids it");
    }
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

std::shared_ptr<Held> Store::lock_rows_for(std::uint64_t owner, const spi::Grant& local,
                                           const std::vector<plan::Row>& rows, const spi::Request& request,
                                           Teller& teller) {
  for (int made = 0;;) {
    Pool::Taken taken = pool_.take(owner, request);
    if (taken.connection == nullptr) return nullptr;
    LockReply reply;
    std::int64_t sent = 0;
    bool patient = false;
    Answer answer = Answer::not_in_time;
    try {
      answer =
          ask({*taken.connection, taken.fresh, owner, local, rows, request, teller, nullptr, &patient}, reply, sent);
      if (answer == Answer::granted && std::count(reply.there.begin(), reply.there.end(), true) == std::ssize(rows)) {
        // The lease counts from the send: after a long wait it is asked for anew.
        if (patient || now_with_suspend() - sent > std::chrono::nanoseconds(seconds(1)).count()) {
          sent = now_with_suspend();
          Until soon(longest_release);
          taken.connection->ask(patient ? waited : "SELECT CONNECTION_ID()", soon);
        }
        auto held = std::make_shared<Held>(std::move(taken.connection), sent);
        held->fence = fence_of(reply);
        held->local = local;
        held->owner = owner;
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
      if (patient) taken.connection->give_up();
      pool_.put_back(std::move(taken.connection), owner);
      throw;
    }
    roll_back(*taken.connection, Clock::now() + longest_release);  // H8
    if (patient) taken.connection->give_up();                      // not for a holder: its wait_timeout is too short
    pool_.put_back(std::move(taken.connection), owner);
    if (answer == Answer::not_in_time) return nullptr;
  }
}

// --- missing rows ----------------------------------------------------------------------------------------

Error Store::not_provisioned(const std::vector<plan::Row>& rows, const LockReply& reply) const {
  std::size_t first = 0;
  while (first + 1 < rows.size() && reply.there[first]) ++first;
  return {ErrorKind::not_provisioned,
          "level " + std::to_string(rows[first].level) + ", bucket " + std::to_string(rows[first].bucket) +
              " is not in the table " + options_.layout.table + ", nothing was locked: run `hierlock provision --on " +
              options_.url + "`, or open with ?provision=lazy"};
}

// Outside of any lock's transaction, one after the other in canonical order, each committed before the next (H11).
void Store::make_missing(Connection& connection, const std::vector<plan::Row>& rows, const LockReply& reply) {
  Until soon(seconds(10));
  connection.ask("SET SESSION innodb_lock_wait_timeout=1", soon);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (reply.there[i]) continue;
    const Reply made = connection.query(make_row(options_.layout.table, rows[i].level, rows[i].bucket), soon);
    // These mean that somebody else is making it, or has made it.
    if (!made.well() && made.code != duplicate_key && made.code != lock_wait_timeout && made.code != deadlock) {
      throw error_of(made.code, made.message, "make a missing row of " + options_.layout.table);
    }
    connection.ask("COMMIT", soon);
  }
  connection.ask(waited, soon);
}

// --- extend, release -------------------------------------------------------------------------------------

std::optional<spi::Grant> Store::extend(const spi::Grant& grant, const spi::Request& request) {
  check(request.plan);
  const std::shared_ptr<Held> held = find(grant);
  if (held == nullptr || !held->surely())
    throw Error(ErrorKind::lost, "the lock was taken away: it cannot be extended");
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
  {
    const std::lock_guard guard(sessions_.mutex);
    held->local = *local;
  }
  std::unique_lock talking(held->talking);
  const auto look_if_lost = [&] {  // a session that was given up is closed, and its locks with it
    const bool broken = held->connection->broken();
    talking.unlock();
    if (broken) watch_.declare_lost(*held);
  };
  for (int made = 0;; ++made) {
    LockReply reply;
    std::int64_t sent = 0;
    Answer answer = Answer::not_in_time;
    try {
      answer = ask({*held->connection, true, held->owner, *local, rows, asked, teller, held.get()}, reply, sent);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::deadlock) {
        // The server has rolled all of it back, or it was chosen by the watch: either way all of it goes
        // (Lock::extend).
        talking.unlock();
        release(grant);
        throw Error(error.kind(), std::string(error.what()) + ". The whole lock was released", error.native_code());
      }
      look_if_lost();
      throw;
    }
    if (answer != Answer::granted) {
      look_if_lost();
      return std::nullopt;
    }
    if (std::count(reply.there.begin(), reply.there.end(), true) == std::ssize(rows)) {
      grants_.fetch_add(1, std::memory_order_relaxed);
      held->confirmed = sent;
      {
        const std::lock_guard guard(sessions_.mutex);
        held->fence = fence_of(reply);
        for (Node& node : nodes_of(request.plan, recorded_.buckets)) add_node(held->nodes, std::move(node));
      }
      talking.unlock();
      watch_.changed();
      return spi::Grant{grant.id, held->fence};
    }
    if (!options_.layout.lazy || made > 3) throw not_provisioned(rows, reply);
    Pool::Taken other = pool_.take(held->owner, request);  // not on the session that holds locks
    if (other.connection == nullptr) return std::nullopt;
    try {
      make_missing(*other.connection, rows, reply);
    } catch (...) {
      roll_back(*other.connection, Clock::now() + longest_release);
      pool_.put_back(std::move(other.connection), held->owner);
      throw;
    }
    pool_.put_back(std::move(other.connection), held->owner);
  }
}

// The server ended an extend's wait (1205). What was held before it is still there, unless the server is set up to roll
// back all of a transaction whose statement waited too long.
void Store::confirm_kept(Held& held) {
  const std::int64_t sent = now_with_suspend();
  Until soon(longest_release);
  const Reply reply = held.connection->query("SELECT @@innodb_rollback_on_timeout", soon);
  if (!reply.well() || reply.rows.at(0).at(0) != "0") {
    held.connection->give_up();
    throw Error(
        ErrorKind::lost,
        "the lock was lost while it was extended: the server rolls back everything that a transaction holds when "
        "one of its statements waits too long. Set innodb_rollback_on_timeout=OFF there");
  }
  held.confirmed = sent;
}

void Store::release(const spi::Grant& grant) noexcept {
  const std::shared_ptr<Held> held = sessions_.take_out(grant.id);
  if (held == nullptr) return;
  const Clock::time_point end = Clock::now() + longest_release;
  bool answered = false;
  std::unique_lock talking(held->talking, std::defer_lock);
  if (talking.try_lock_until(end)) {
    std::unique_ptr<Connection> connection = std::move(held->connection);
    talking.unlock();
    if (connection != nullptr) {  // else its heartbeat was not answered, and the watch has closed it meanwhile
      if (held->gone.load()) connection->give_up();
      roll_back(*connection, end);
      answered = !connection->broken();
      pool_.put_back(std::move(connection), held->owner);
    }
  } else {
    held->gone = true;  // its heartbeat is not answered: whoever waits for that closes it
  }
  if (held->local.id != 0) queue_->release(held->local);
  try {
    // A server that does not answer is left to the watch: there is no time for it here (B6).
    answered ? watch_.changed() : watch_.wake();
  } catch (...) {  // no memory: it is written down later
  }
}

}  // namespace

std::unique_ptr<spi::Backend> open(const spi::Url& url, const OpenOptions& options) {
  return std::make_unique<Store>(read_url(url), options.owners);
}

void enable() {
  spi::add_store("mysql", {.open = open, .provision = provision, .doctor = doctor, .statements = statements});
}

}  // namespace hierlock::mysql
