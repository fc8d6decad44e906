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
#include "mysql/lock_rows.h"
#include "mysql/lock_wait.h"
#include "mysql/looker.h"
#include "mysql/pool.h"
#include "mysql/provision.h"
#include "mysql/refuse.h"
#include "mysql/schema.h"
#include "mysql/sessions.h"
#include "mysql/statements.h"
#include "mysql/watch.h"
#include "mysql_client/error_codes.h"
#include "plan/buckets.h"
#include "plan/text.h"

namespace hierlock::mysql {

namespace {

using std::chrono::seconds;

constexpr std::chrono::milliseconds longest_release{900};  // B6: a second, with what ends a Locker
constexpr std::chrono::milliseconds longest_close{700};    // the same, and then memory is given back, too
constexpr seconds connect_time{5};
// How long somebody who does not want to wait waits for a server that says nothing, before it tries to end that by KILL
// for a second. An extend waits for longer, because it costs the lock if that is not answered either; but a lock that
// is kept must not have become uncertain meanwhile, for want of heartbeats.
constexpr seconds longest_try{2}, longest_extending_try{5};
constexpr std::chrono::milliseconds look_interval{50};
constexpr Clock::time_point never = Clock::time_point::max();

using codes::lock_wait_timeout, codes::deadlock, codes::query_interrupted, codes::lock_no_wait, codes::duplicate_key;

// A session that has ended, or was given up and is closed, takes its locks with it.
Error lost_with_session(const std::string& why) {
  return {ErrorKind::lost, "the lock was lost while it was extended, with its session: " + why};
}

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

class ForRow final : public spi::Waiting {
 public:
  ForRow(spi::Backend& queue, Watch& watch, const spi::Request& request, std::uint64_t session)
      : queue_(queue), watch_(watch), request_(request), session_(session) {}
  std::string owner() const override { return queue_.owner_name(request_.owner); }
  // Who is in the way is written down after a while, so it is looked for the second time that somebody wants to know.
  std::string blocked_by() const override {
    std::string words;
    if (std::exchange(asked_before_, true)) {
      const Clock::time_point end = Clock::now() + longest_look;
      words = watch_.who_is_in_the_way(session_, std::min(end, request_.deadline.value_or(end)));
    }
    return words.empty() ? "somebody at the server; `hierlock status` may show who" : words;
  }

 private:
  static constexpr std::chrono::milliseconds longest_look{300};
  spi::Backend& queue_;
  Watch& watch_;
  const spi::Request& request_;
  const std::uint64_t session_;
  mutable bool asked_before_ = false;
};

class ForConnection final : public spi::Waiting {
 public:
  ForConnection(spi::Backend& queue, spi::OwnerId owner, std::size_t connections)
      : queue_(queue), owner_(owner), connections_(connections) {}
  std::string owner() const override { return queue_.owner_name(owner_); }
  std::string blocked_by() const override {
    return "those who hold locks: all " + std::to_string(connections_) + " connections are in use";
  }

 private:
  spi::Backend& queue_;
  const spi::OwnerId owner_;
  const std::size_t connections_;
};

// A wait in the local queue. That queue knows who waits for whom in it, the server who waits there; a cycle may run
// through both. So a wait here of an owner that holds something is told to the watch as one at the server is (B11).
class QueueWait final : public spi::WaitObserver {
 public:
  // `make` gives what the watch is told, or nothing as long as the owner holds nothing.
  using Make = std::function<std::shared_ptr<Pending>(std::stop_source)>;
  QueueWait(Sessions& sessions, Watch& watch, Teller& teller, const spi::Request& request, Make make)
      : sessions_(sessions), watch_(watch), teller_(teller), make_(std::move(make)), request_(request) {
    if (request.cancel != nullptr) on_cancel_.emplace(*request.cancel, Stop{&stop_});
    request_.cancel = &token_;
    request_.observer = this;
  }
  ~QueueWait() override { over(); }
  QueueWait(const QueueWait&) = delete;
  QueueWait& operator=(const QueueWait&) = delete;

  const spi::Request& request() const noexcept { return request_; }  // to be asked for instead
  const Pending* victim() const noexcept { return victim_ ? pending_.get() : nullptr; }
  // It does not wait here any more.
  void over() noexcept {
    if (pending_ == nullptr || over_) return;
    over_ = true;
    victim_ = pending_->victim.load();
    sessions_.remove(pending_.get());
    watch_.wake();
  }

  std::chrono::nanoseconds waits(const spi::Waiting& waiting) noexcept override {
    try {
      if (pending_ == nullptr && (pending_ = make_(stop_)) != nullptr) {
        pending_->owner_name = waiting.owner();
        pending_->queue_owner = waiting.owner_number();
        sessions_.add(pending_);
        watch_.changed(request_.deadline);
      }
    } catch (...) {  // no memory: the next time
    }
    // Another of its owner's threads may come to hold something.
    return std::min<std::chrono::nanoseconds>(teller_.waits(waiting), seconds(1));
  }

 private:
  struct Stop {
    std::stop_source* source;
    void operator()() const noexcept { source->request_stop(); }
  };

  Sessions& sessions_;
  Watch& watch_;
  Teller& teller_;
  const Make make_;
  spi::Request request_;
  std::stop_source stop_;
  const std::stop_token token_ = stop_.get_token();
  std::shared_ptr<Pending> pending_;
  bool over_ = false, victim_ = false;
  std::optional<std::stop_callback<Stop>> on_cancel_;
};

class Store final : public spi::Backend {
 public:
  Store(Options options, Owners owners)
      : options_(std::move(options)),
        owners_(owners),
        queue_(embedded::open_queue(owners)),
        pool_(options_.connections, [this](WaitLimit& limit) {
          const std::uint64_t given = fences_.highest();
          Reply floor;
          auto connection = connect(options_, limit, &floor);
          connection->enroll(roll_);
          fences_.check(*connection, given, floor, limit);
          return connection;
        }) {
    auto first = connect(options_, connect_time);
    first->enroll(roll_);
    Deadline soon(connect_time);
    recorded_ = read_or_make(*first, options_, soon);
    fences_.check(*first, soon);
    pool_.add(std::move(first));
  }

  Capabilities capabilities() const override {
    return {.wakes_waiters = true, .extends = true, .across_processes = true, .across_machines = true, .leases = true};
  }

  std::optional<spi::Grant> acquire(const spi::Request& request) override {
    check(request.plan);
    const std::vector<plan::Row> rows = rows_of(request.plan);
    Teller teller(request.observer);
    spi::Request asked = request;
    asked.observer = &teller;
    const std::uint64_t owner = owner_of(request.owner);
    Use use(*this);
    watch_.start();  // before there is anything to give back
    for (;;) {
      const std::optional<spi::Grant> local = queue_for(
          owner, nullptr, asked, teller, [&](const spi::Request& r, QueueWait*) { return queue_->acquire(r); });
      if (!local) return std::nullopt;
      bool full = false;
      try {
        std::shared_ptr<Held> held = lock_rows_for(owner, *local, rows, asked, teller, full);
        if (held != nullptr) {
          const spi::Grant grant = keep(held, request.plan);
          grants_.fetch_add(1, std::memory_order_relaxed);
          watch_.changed();
          use.goes_on();
          return grant;
        }
      } catch (...) {
        queue_->release(*local);
        throw;
      }
      queue_->release(*local);
      if (!full) return std::nullopt;
      teller.waits(ForConnection(*queue_, request.owner, pool_.most()));  // and once more: see Pool::take
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
  Snapshot snapshot() const override {
    const Use use(*this);
    return looker_.snapshot(recorded_.buckets);
  }
  void close() noexcept override { leave(Clock::now() + longest_close); }

 private:
  // Who needs the thread and the connections: the Locker, each grant, and whoever asks at the moment. The last to leave
  // ends them. Nobody comes after it: only the Locker and those who hold something let others in.
  class Use {
   public:
    explicit Use(const Store& store) : store_(&store) { store.users_.fetch_add(1); }
    ~Use() {
      if (store_ != nullptr) store_->leave(Clock::now() + longest_close);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    void goes_on() noexcept { store_ = nullptr; }  // until somebody else leaves for it

   private:
    const Store* store_;
  };
  void leave(Clock::time_point by) const noexcept {
    if (users_.fetch_sub(1) != 1) return;
    watch_.end(by);
    pool_.close(by);
    looker_.close(by);
  }
  spi::Grant keep(const std::shared_ptr<Held>& held, const spi::Plan& plan);
  void check(const spi::Plan& plan) const;
  std::vector<plan::Row> rows_of(const spi::Plan& plan) const;
  std::uint64_t owner_of(spi::OwnerId owner) {
    if (owner.value != 0) return owner.value;
    if (owners_ == Owners::per_thread) return this_thread_number();
    return (std::uint64_t{3} << 62) + handles_.fetch_add(1);
  }
  std::shared_ptr<Held> find(const spi::Grant& grant) const noexcept { return sessions_.find(grant.id); }

  template <class Ask>
  std::optional<spi::Grant> queue_for(std::uint64_t owner, const Held* extended, const spi::Request& request,
                                      Teller& teller, Ask ask, const bool* at_server = nullptr);
  void refuse_own_row(std::uint64_t owner, const Held* extended, const spi::Plan& plan) const;

  enum class Answer : std::uint8_t { granted, not_in_time, again };
  std::shared_ptr<Held> lock_rows_for(std::uint64_t owner, const spi::Grant& local, const std::vector<plan::Row>& rows,
                                      const spi::Request& request, Teller& teller, bool& full);
  struct Asking {
    Connection& connection;
    bool fresh;  // connected just now
    std::uint64_t owner;
    const spi::Grant& local;
    const std::vector<plan::Row>& rows;
    const spi::Request& request;
    Teller& teller;
    Held* extended = nullptr;
  };
  Answer ask(const Asking& asking, LockReply& reply, std::int64_t& sent);
  struct AtServer {
    bool asked = false, broken = false;
    LockReply reply;
    std::int64_t fence = 0;
  };
  bool extend_rows(Held& held, const std::vector<plan::Row>& rows, const spi::Request& request, Teller& teller,
                   AtServer& at_server);
  void leave_behind(Held& held, const spi::Plan& plan, bool all) noexcept;
  static void confirm_kept(Held& held);
  bool make_missing(Connection& connection, const std::vector<plan::Row>& rows, const LockReply& reply,
                    const spi::Request& request, Teller& teller);
  Error not_provisioned(const std::vector<plan::Row>& rows, const LockReply& reply) const;
  static void roll_back(Connection& connection, Clock::time_point end) noexcept;
  std::int64_t fence_of(const LockReply& reply, const Connection& connection);

  const Options options_;
  const Owners owners_;
  const std::unique_ptr<embedded::Queue> queue_;
  BucketTable recorded_;
  Fences fences_{options_.layout};
  std::atomic<std::uint64_t> grants_{0}, handles_{0}, queued_{0};
  mutable std::atomic<std::uint64_t> users_{1};
  const std::shared_ptr<Roll> roll_ = std::make_shared<Roll>();
  mutable Pool pool_;
  Sessions sessions_;
  mutable Watch watch_{options_, sessions_, pool_, fences_, *queue_};  // its thread uses all of the above
  mutable Looker looker_{options_, sessions_, watch_, *queue_, *roll_};
};

// --- asking ----------------------------------------------------------------------------------------------

void Store::check(const spi::Plan& plan) const { refuse_what_rows_cannot_say(plan, recorded_.levels); }

std::vector<plan::Row> Store::rows_of(const spi::Plan& plan) const {
  constexpr std::size_t most = 65535;  // placeholders of a prepared statement, on both servers
  std::vector<plan::Row> rows = plan::rows_of(plan, recorded_.buckets);
  if (rows.size() <= most) return rows;
  throw Error(ErrorKind::invalid_argument, "these targets and what is above them are " + std::to_string(rows.size()) +
                                               " rows, and a statement locks at most " + std::to_string(most) +
                                               ": lock fewer, or what is above them");
}

void Store::roll_back(Connection& connection, Clock::time_point end) noexcept {
  try {
    for (int tries = 0; tries < 2; ++tries) {
      Deadline soon(end);
      const Reply reply = connection.roll_back(soon);
      if (reply.well()) return;
      if (reply.code != query_interrupted) break;  // a KILL that came late
    }
  } catch (...) {  // no memory
  }
  connection.give_up();
}

// In the local queue: at once if that can be, and otherwise as the request says, told to the watch. `at_server` becomes
// true when the queue has granted it and the server is asked.
template <class Ask>
std::optional<spi::Grant> Store::queue_for(std::uint64_t owner, const Held* extended, const spi::Request& request,
                                           Teller& teller, Ask ask, const bool* at_server) {
  spi::Request at_once = request;
  at_once.no_wait = true;
  std::optional<spi::Grant> local;
  try {
    local = ask(at_once, nullptr);
  } catch (const Error& error) {
    // What it holds there it may have lost, and not have noticed.
    if (error.kind() != ErrorKind::deadlock || extended != nullptr || !sessions_.lost_one(owner)) throw;
    throw Error(ErrorKind::deadlock, std::string(error.what()) +
                                         ". (This owner has a lock that was lost: release() it before it asks again)");
  }
  if (local || request.no_wait || (at_server != nullptr && *at_server)) return local;
  QueueWait wait(sessions_, watch_, teller, request, [&](std::stop_source stop) -> std::shared_ptr<Pending> {
    if (extended == nullptr && !pool_.has(owner)) return nullptr;  // nobody waits for it
    auto pending = std::make_shared<Pending>(std::move(stop));
    pending->owner = owner;
    pending->nodes = nodes_of(request.plan, recorded_.buckets);
    if (extended != nullptr) {
      pending->local = extended->local;
      pending->session = extended->session | in_queue;
    } else {
      const std::uint64_t any = std::hash<std::string>()(watch_.process()) + queued_.fetch_add(1);
      pending->session = in_queue | without_session | (any & (without_session - 1));
    }
    return pending;
  });
  try {
    return ask(wait.request(), &wait);
  } catch (const Error& error) {
    wait.over();
    if (error.kind() != ErrorKind::cancelled || wait.victim() == nullptr || (at_server != nullptr && *at_server)) throw;
    throw Error(ErrorKind::deadlock,
                "deadlock: " + wait.victim()->cycle + (extended != nullptr ? "; the whole lock was released" : "") +
                    ". Release what you hold and start over; one acquire of all targets avoids it");
  }
}

// Two paths of one owner that share a row, in two locks: each lock has a session of its own, so the owner would wait
// for itself. Equal paths, ancestors and descendants are the local queue's to find.
void Store::refuse_own_row(std::uint64_t owner, const Held* extended, const spi::Plan& plan) const {
  const std::vector<Node> wanted = nodes_of(plan, recorded_.buckets);
  const std::optional<Sessions::Collision> found = sessions_.collision(owner, extended, wanted);
  if (!found) return;
  throw Error(ErrorKind::deadlock, "deadlock: this owner would wait for itself: " + found->wanted->text + " and " +
                                       found->held + ", which it holds in another lock, share a row (level " +
                                       std::to_string(found->wanted->row.level) + ", bucket " +
                                       std::to_string(found->wanted->row.bucket) +
                                       "). Ask for both in one acquire, or extend the lock that is held");
}

Store::Answer Store::ask(const Asking& asking, LockReply& reply, std::int64_t& sent) {
  auto& [connection, fresh, owner, local, rows, request, teller, extended] = asking;
  const Form usual = usual_form(rows);
  const ForRow waiting(*queue_, watch_, request, connection.id());
  const auto forget = [this](Pending* pending) {
    sessions_.remove(pending);
    watch_.wake();  // what was written down goes
  };
  std::shared_ptr<Pending> pending;
  std::unique_ptr<Pending, decltype(forget)> registered(nullptr, forget);
  LockWait* watched = nullptr;
  const auto long_silence = [&] {
    pending = std::make_shared<Pending>(watched->wake_descriptor());
    pending->local = local;
    pending->owner = owner;
    pending->session = connection.id();
    pending->nodes = nodes_of(request.plan, recorded_.buckets);
    sessions_.add(pending);
    registered.reset(pending.get());
    watch_.changed(request.deadline);
    return pending.get();
  };
  LockWait limit(pool_, connection, request, teller, waiting, extended != nullptr ? longest_extending_try : longest_try,
                 std::ref(long_silence));  // a copy would be allocated
  watched = &limit;
  do {
    sent = now_with_suspend();
    reply = lock_all(connection, recorded_, rows, request.no_wait, usual, limit);
    // Which is missing? It may be there by now.
    if (reply.well() && !reply.all && usual != Form::one_by_one && !limit.ended()) {
      reply = lock_all(connection, recorded_, rows, request.no_wait, Form::one_by_one, limit);
    }
    if (extended != nullptr && reply.code == lock_wait_timeout) confirm_kept(*extended);
    // The server ends each wait after 2 s. So one who died while waiting is not waited for longer (B5), and neither is
    // a statement that a backup waits for.
  } while (reply.code == lock_wait_timeout && !request.no_wait && !limit.ended());
  // A deadlock that was found at the last moment has taken away what was held before, too: that is not just "too late".
  const bool rolled_back = extended != nullptr && reply.code == deadlock;
  // And a grant that crossed its end is kept: of a lock that is extended no part could be given back.
  // (One that came to a missing row is none, and there was no time to ask which it is.)
  const bool told = reply.all || !reply.there.empty();
  const bool crossed = extended != nullptr && reply.well() && told && !limit.victim();
  if (limit.ended() && !rolled_back && !crossed) {
    if (limit.victim()) {
      throw Error(ErrorKind::deadlock,
                  "deadlock: " + pending->cycle +
                      ". Release what you hold and start over; one acquire of all targets avoids it");
    }
    if (limit.cancelled()) {
      throw Error(ErrorKind::cancelled, "waiting for " + spi::describe(request.plan.steps()) + " was cancelled");
    }
    // Who does not wait is told whether somebody was in the way, or the server did not even answer the KILL.
    if (!request.no_wait || !connection.broken()) return Answer::not_in_time;
  }
  if (reply.well() && reply.session != 0 && reply.session != connection.id()) {
    connection.give_up();
    throw Error(ErrorKind::unsafe_topology,
                "the lock was granted to another session than the one that asked: a proxy is in between that mixes "
                "sessions. Connect to the server itself");
  }
  if (reply.well()) return Answer::granted;
  if (request.no_wait && (reply.code == lock_no_wait || reply.code == lock_wait_timeout)) return Answer::not_in_time;
  if (connection.broken() && !fresh && !limit.ended()) return Answer::again;  // it was closed while nobody used it
  throw error_of(reply.code, reply.message, "lock " + spi::describe(request.plan.steps()));
}

std::shared_ptr<Held> Store::lock_rows_for(std::uint64_t owner, const spi::Grant& local,
                                           const std::vector<plan::Row>& rows, const spi::Request& request,
                                           Teller& teller, bool& full) {
  for (int made = 0;;) {
    Pool::Taken taken = pool_.take(owner, request);
    full = taken.full;
    if (taken.connection == nullptr) return nullptr;
    LockReply reply;
    std::int64_t sent = 0;
    Answer answer = Answer::not_in_time;
    try {
      if (taken.others) refuse_own_row(owner, nullptr, request.plan);
      answer = ask({*taken.connection, taken.fresh, owner, local, rows, request, teller}, reply, sent);
      if (answer == Answer::granted && reply.all) {
        // The lease counts from the send: after a long wait it is asked for anew.
        if (now_with_suspend() - sent > std::chrono::nanoseconds(seconds(1)).count()) {
          sent = now_with_suspend();
          Deadline soon(longest_release);
          taken.connection->ask("SELECT CONNECTION_ID()", soon);
        }
        const std::int64_t fence = fence_of(reply, *taken.connection);
        auto held = std::make_shared<Held>(std::move(taken.connection), sent);
        held->fence = fence;
        held->local = local;
        held->owner = owner;
        return held;
      }
      if (answer == Answer::granted) {
        roll_back(*taken.connection, Clock::now() + longest_release);
        if (!options_.layout.lazy || ++made > 3) throw not_provisioned(rows, reply);
        const bool there = make_missing(*taken.connection, rows, reply, request, teller);
        answer = there ? Answer::again : Answer::not_in_time;
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

// Those who hold something are known from now on. If there is no memory for it, all is as if the rows had never been
// locked (H8).
spi::Grant Store::keep(const std::shared_ptr<Held>& held, const spi::Plan& plan) {
  try {
    held->nodes.keep(plan, recorded_.buckets);
    return {sessions_.add(held), held->fence};
  } catch (...) {
    roll_back(*held->connection, Clock::now() + longest_release);
    pool_.put_back(std::move(held->connection), held->owner);
    throw;
  }
}

std::int64_t Store::fence_of(const LockReply& reply, const Connection& connection) {
  const std::uint64_t number = reply.minted & fence_mask;
  if (!fences_.minted(number)) {
    Deadline soon(connect_time);
    const bool raised = pool_.on_the_side(
        [&](Connection& side) { return side.identity() == connection.identity() && fences_.raise(side, soon).well(); },
        soon);
    if (!raised) {
      throw Error(ErrorKind::unavailable, "the lock was given back: the fence floor in " +
                                              options_.layout.settings_table() +
                                              " could not be raised. Try again; see doctor if this goes on");
    }
  }
  return static_cast<std::int64_t>(number) * fence_step;
}

// --- missing rows ----------------------------------------------------------------------------------------

Error Store::not_provisioned(const std::vector<plan::Row>& rows, const LockReply& reply) const {
  std::size_t first = 0;
  while (first + 1 < rows.size() && reply.there[first]) ++first;
  return {ErrorKind::not_provisioned,
          "level " + std::to_string(rows[first].level) + ", bucket " + std::to_string(rows[first].bucket) +
              " is not in the table " + options_.layout.table + ", nothing was locked: run `hierlock provision --on " +
              plan::shell_word(options_.url) + "`, or open with ?provision=lazy"};
}

// Outside of any lock's transaction, one after the other in canonical order, each committed before the next (H11).
// False: not in time.
bool Store::make_missing(Connection& connection, const std::vector<plan::Row>& rows, const LockReply& reply,
                         const spi::Request& request, Teller& teller) {
  // Unless it comes to the end the session is not set as others need it.
  struct Session {
    Connection& connection;
    bool kept = false;
    ~Session() {
      if (!kept) connection.give_up();
    }
  } session{connection};
  const ForRow waiting(*queue_, watch_, request, connection.id());
  enum class Late : std::uint8_t { fine, again };  // what the server's own timeout means
  const auto say = [&](std::string_view sql, Late late) {
    LockWait limit(pool_, connection, request, teller, waiting, longest_try, []() -> Pending* { return nullptr; });
    Reply said = connection.query(sql, limit);
    while (said.code == lock_wait_timeout && late == Late::again && !limit.ended()) said = connection.query(sql, limit);
    if (said.well()) return true;
    if (limit.ended() && limit.cancelled()) {
      throw Error(ErrorKind::cancelled, "making rows for " + spi::describe(request.plan.steps()) + " was cancelled");
    }
    if (limit.ended() && !(request.no_wait && connection.broken())) return false;
    if (late == Late::fine && (said.code == lock_wait_timeout || said.code == duplicate_key || said.code == deadlock)) {
      return true;
    }
    throw error_of(said.code, said.message, "make a missing row of " + options_.layout.table);
  };
  if (!say(wait_shortly, Late::again)) return false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (reply.there[i]) continue;
    // If it cannot be made, somebody else is making it, or has made it.
    if (!say(make_row(recorded_, rows[i].level, rows[i].bucket), Late::fine) || !say("COMMIT", Late::again))
      return false;
  }
  if (!say(wait_usually, Late::again)) return false;
  return session.kept = true;
}

// --- extend, release -------------------------------------------------------------------------------------

std::optional<spi::Grant> Store::extend(const spi::Grant& grant, const spi::Request& request) {
  check(request.plan);
  const std::shared_ptr<Held> held = find(grant);
  if (held == nullptr || !held->surely())
    throw Error(ErrorKind::lost, "the lock was taken away: it cannot be extended");
  const std::vector<plan::Row> rows = rows_of(request.plan);
  Teller teller(request.observer);
  spi::Request asked = request;
  asked.observer = &teller;
  AtServer at_server;
  std::optional<spi::Grant> local;
  try {
    // The local queue adds it only if the server does: what fails there leaves the queue as it was.
    local = queue_for(
        held->owner, held.get(), asked, teller,
        [&](const spi::Request& r, QueueWait* wait) {
          return queue_->extend_if(held->local, r, [&] {
            at_server.asked = true;
            if (wait != nullptr) wait->over();
            return extend_rows(*held, rows, asked, teller, at_server);
          });
        },
        &at_server.asked);
  } catch (const Error& error) {
    if (at_server.broken) {
      watch_.declare_lost(*held);
      if (error.kind() != ErrorKind::deadlock && error.kind() != ErrorKind::lost) throw lost_with_session(error.what());
    }
    if (error.kind() != ErrorKind::deadlock) throw;
    // Whoever found it, all of the lock goes (Lock::extend). What the local queue or the server has released already is
    // released once more, which is harmless.
    release(grant);
    if (!at_server.asked) throw;
    throw Error(error.kind(), std::string(error.what()) + ". The whole lock was released", error.native_code());
  }
  if (at_server.broken) {
    watch_.declare_lost(*held);
    if (!local) throw lost_with_session("the time was up, and its wait could not be ended otherwise");
  }
  if (!local) return std::nullopt;
  grants_.fetch_add(1, std::memory_order_relaxed);
  {
    const std::lock_guard guard(sessions_.mutex);
    held->local = *local;
    held->fence = at_server.fence;
    std::vector<Node>& known = held->nodes.read();
    for (Node& node : nodes_of(request.plan, recorded_.buckets)) {
      std::erase_if(known, [&](const Node& n) { return n.text == std::string(left_of_extend) + node.text; });
      add_node(known, std::move(node));
    }
  }
  watch_.changed();
  return spi::Grant{grant.id, held->fence};
}

// At the server. False: not in time.
bool Store::extend_rows(Held& held, const std::vector<plan::Row>& rows, const spi::Request& request, Teller& teller,
                        AtServer& at_server) {
  refuse_own_row(held.owner, &held, request.plan);
  LockReply& reply = at_server.reply;
  std::unique_lock talking(held.talking, std::defer_lock);
  // A heartbeat that is not answered has it, until the lock is lost. Nothing was asked yet, so nothing changes.
  while (!talking.try_lock_until(std::min(Clock::now() + look_interval, request.deadline.value_or(never)))) {
    if (!held.surely()) throw Error(ErrorKind::lost, "the lock was taken away: it cannot be extended");
    if (request.cancel != nullptr && request.cancel->stop_requested()) {
      throw Error(ErrorKind::cancelled, "extending to " + spi::describe(request.plan.steps()) + " was cancelled");
    }
    if (request.deadline && Clock::now() >= *request.deadline) return false;
  }
  bool to_the_end = false;  // a statement came there, though rows may have been missing
  const auto leave = [&] {
    at_server.broken = held.connection->broken();
    leave_behind(held, request.plan, to_the_end);
  };
  try {
    for (int made = 0;; ++made) {
      std::int64_t sent = 0;
      reply = {};
      const Answer answer =
          ask({*held.connection, true, held.owner, held.local, rows, request, teller, &held}, reply, sent);
      if (answer != Answer::granted) break;
      to_the_end = true;
      if (reply.all) {
        held.confirmed = sent;
        at_server.fence = fence_of(reply, *held.connection);
        return true;
      }
      if (!options_.layout.lazy || made > 3) throw not_provisioned(rows, reply);
      Pool::Taken other = pool_.take(held.owner, request);  // not on the session that holds locks
      if (other.connection == nullptr) break;
      bool there = false;
      try {
        there = make_missing(*other.connection, rows, reply, request, teller);
      } catch (...) {
        pool_.put_back(std::move(other.connection), held.owner);
        throw;
      }
      pool_.put_back(std::move(other.connection), held.owner);
      if (!there) break;
    }
  } catch (...) {
    leave();
    throw;
  }
  leave();
  return false;
}

// InnoDB gives back no row before the transaction ends, whatever becomes of the statement: those of the plan that it
// had reached stay locked until the release. Which they are it does not say, so all count that may be: all, or all but
// the last, which a statement that failed has not reached.
void Store::leave_behind(Held& held, const spi::Plan& plan, bool all) noexcept {
  try {
    std::vector<Node> nodes = nodes_of(plan, recorded_.buckets);
    if (!all) {
      const plan::Row last = plan::rows_of(plan, recorded_.buckets).back();
      std::erase_if(nodes, [&](const Node& n) { return n.row.level == last.level && n.row.bucket == last.bucket; });
    }
    const std::lock_guard guard(sessions_.mutex);
    std::vector<Node>& known = held.nodes.read();
    for (Node& node : nodes) {
      const bool has = std::any_of(known.begin(), known.end(), [&](const Node& n) {
        return n.row.level == node.row.level && n.row.bucket == node.row.bucket &&
               (n.row.mode == Mode::X || node.row.mode != Mode::X);
      });
      if (has) continue;
      node.text.insert(0, left_of_extend);
      node.asked = false;
      known.push_back(std::move(node));
    }
  } catch (...) {  // no memory: then nobody is told
  }
}

// The server ended an extend's wait (1205). What was held before it is still there, unless the server is set up to roll
// back all of a transaction whose statement waited too long.
void Store::confirm_kept(Held& held) {
  const std::int64_t sent = now_with_suspend();
  Deadline soon(longest_release);
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
  // A server that does not answer is left to the watch: there is no time for it here (B6).
  answered ? watch_.changed(end) : watch_.wake();
  leave(end);
}

}  // namespace

std::unique_ptr<spi::Backend> open(const spi::Url& url, const OpenOptions& options) {
  Options read = read_url(url);
  read.only_look = !options.create;
  return std::make_unique<Store>(std::move(read), options.owners);
}

void enable() {
  spi::add_store("mysql", {.open = open, .provision = provision, .doctor = doctor, .statements = statements});
}

}  // namespace hierlock::mysql
