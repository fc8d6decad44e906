// ScriptedServer, ScriptedStore: a store in this process whose server does what a test says: grants, waits, hangs up,
// is slow, lies. It makes loss, deadlines, deadlocks and closing deterministic.
//
// Several stores on one server are several processes, as far as the remote room can tell.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/buckets.h"
#include "remote/gate.h"
#include "remote/session_driver.h"
#include "remote/session_store.h"

namespace hierlock::remote::testing {

class ScriptedServer {
 public:
  // --- the script ----------------------------------------------------------------------------------------

  // Sessions get no answer until it is false again.
  void be_silent(bool silent) {
    const std::lock_guard guard(mutex_);
    silent_ = silent;
    if (!silent) {
      answer_beats();
      for (const std::uint64_t session : std::exchange(late_unlocks_, {})) unlock(session);
    }
    changed_.notify_all();
  }
  // Unlocks happen, and are answered, when it is false again.
  void unlock_late(bool late) {
    const std::lock_guard guard(mutex_);
    late_ = late;
    if (!late) {
      for (const std::uint64_t session : std::exchange(late_unlocks_, {})) unlock(session);
    }
  }
  // The server ends a session, with all its locks.
  void hang_up(std::uint64_t session) {
    const std::lock_guard guard(mutex_);
    forget(session);
    if (const auto found = sockets_.find(session); found != sockets_.end()) {
      close(found->second);
      sockets_.erase(found);
    }
    changed_.notify_all();
  }
  // The next `times` requests that would wait are answered "deadlock" instead.
  void choose_as_victim(int times) {
    const std::lock_guard guard(mutex_);
    victims_ = times;
    changed_.notify_all();
  }
  // A session that finds a cell taken, and does not wait, loses all that it holds.
  std::atomic<bool> unlocks_if_busy{false};
  // After the answer to the next request that had to wait, the server is silent, as with be_silent(true).
  std::atomic<bool> silent_after_wait{false};
  // Every request is answered with another session's number, as a proxy would.
  std::atomic<bool> mixes_sessions{false};
  // The client library reads the answer to a heartbeat while it sends the question. The socket never becomes readable.
  std::atomic<bool> answers_at_once{false};
  // A request may pass a cell that is not there, as it may on a table of rows.
  std::atomic<bool> cells_may_be_missing{false};
  // The store ends each wait after so long.
  std::atomic<std::chrono::milliseconds> longest_wait{std::chrono::hours(1)};
  // Connecting fails, or takes so long.
  std::atomic<bool> refuses{false};
  std::atomic<std::chrono::milliseconds> connect_time{std::chrono::milliseconds(0)};
  // How long it takes to read or write notices, and after how many a write fails.
  std::atomic<std::chrono::milliseconds> notice_time{std::chrono::milliseconds(0)};
  std::atomic<std::size_t> notices_a_call{1000};
  std::atomic<bool> shows_waits{true};
  // Notices are refused, as a demoted primary refuses all writes.
  std::atomic<bool> refuses_notices{false};
  std::atomic<std::uint64_t> notices_refused{0};

  // The server is found unfit for locks, like a demoted primary, at the n-th call of Session::server() from now. The
  // caller continues when that is done, or after 100 ms if it blocks that itself.
  void be_demoted_at(int question) { until_demoted_ = question; }
  // Whether that has happened. Waits until it is done.
  bool was_demoted() {
    if (!demotion_.valid()) return false;
    demotion_.get();
    return true;
  }

  // --- what happened -------------------------------------------------------------------------------------

  std::size_t waiting() const {
    const std::lock_guard guard(mutex_);
    return waiters_.size();
  }
  std::size_t open() const {  // sessions
    const std::lock_guard guard(mutex_);
    return sockets_.size();
  }
  std::size_t holding() const {
    const std::lock_guard guard(mutex_);
    return holders_.size();
  }
  std::vector<std::uint64_t> sessions_that_hold() const {
    const std::lock_guard guard(mutex_);
    std::vector<std::uint64_t> sessions;
    for (const auto& [session, cells] : holders_) sessions.push_back(session);
    return sessions;
  }
  std::map<std::uint64_t, Notice> notices() const {
    const std::lock_guard guard(mutex_);
    std::map<std::uint64_t, Notice> notices;
    for (const auto& [id, published] : notices_) notices.emplace(id, published.first);
    return notices;
  }
  std::atomic<std::uint64_t> asked{0}, unlocks{0}, connecting{0}, connected{0}, notices_read{0}, beats{0}, housekept{0};

 private:
  friend class ScriptedSession;
  friend class ScriptedStore;
  friend class ScriptedNotices;

  struct Waiter {
    std::uint64_t session;
    std::vector<Cell> cells;
    bool interrupted = false;
  };

  void forget(std::uint64_t session) {
    holders_.erase(session);
    silent_beats_.erase(session);
    late_unlocks_.erase(session);
  }
  void unlock(std::uint64_t session) {
    holders_.erase(session);
    beat(session);
    changed_.notify_all();
  }
  void answer_beats() {
    for (const std::uint64_t session : std::exchange(silent_beats_, {})) beat(session);
  }
  void beat(std::uint64_t session) {
    const auto found = sockets_.find(session);
    if (found == sockets_.end()) return;
    const char byte = 1;
    [[maybe_unused]] const ssize_t sent = send(found->second, &byte, 1, MSG_NOSIGNAL);
  }
  bool free_for(std::uint64_t session, const Cell& cell) const {
    for (const auto& [other, cells] : holders_) {
      if (other == session) continue;
      for (const Cell& held : cells) {
        if (conflict(held, cell)) return false;
      }
    }
    return true;
  }

  void asked_for_name() {
    if (until_demoted_ == 0 || --until_demoted_ > 0) return;
    demotion_ = std::async(std::launch::async, demote_);
    demotion_.wait_for(std::chrono::milliseconds(100));
  }

  std::function<void()> demote_;
  std::atomic<int> until_demoted_{0};
  std::future<void> demotion_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool silent_ = false, late_ = false;
  int victims_ = 0;
  std::uint64_t last_session_ = 0, last_number_ = 0;
  std::map<std::uint64_t, int> sockets_;  // the server's ends
  std::map<std::uint64_t, std::vector<Cell>> holders_;
  std::list<Waiter> waiters_;
  std::set<std::uint64_t> silent_beats_, late_unlocks_;  // sessions that asked and have no answer yet
  std::map<std::uint64_t, std::pair<Notice, timed::Clock::time_point>> notices_;
};

class ScriptedSession final : public Session {
 public:
  ScriptedSession(ScriptedServer& server, std::shared_ptr<OpenSessions> open)
      : server_(server), open_(std::move(open)) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw Error(ErrorKind::exhausted, "no more file descriptors");
    }
    socket_ = ends[0];
    const std::lock_guard guard(server_.mutex_);
    id_ = ++server_.last_session_;
    server_.sockets_[id_] = ends[1];
    open_->enter(id_);
    server_.connected.fetch_add(1);
  }
  ~ScriptedSession() override {
    open_->leave(id_);
    server_.hang_up(id_);
    close(socket_);
  }

  std::uint64_t id() const noexcept override { return id_; }
  const std::string& server() const noexcept override {
    server_.asked_for_name();
    return name_;
  }
  int socket() const noexcept override { return socket_; }
  bool broken() const noexcept override { return broken_; }
  void give_up() noexcept override { broken_ = true; }
  bool hung_up() const noexcept override {
    pollfd fd{socket_, POLLIN | POLLRDHUP, 0};
    return poll(&fd, 1, 0) != 0;
  }

  LockReply lock(std::span<const Cell> cells, bool no_wait, timed::WaitLimit& limit) override {
    using Kind = LockReply::Kind;
    std::unique_lock guard(server_.mutex_);
    server_.asked.fetch_add(1);
    const timed::Clock::time_point began = timed::Clock::now();
    const auto mine = server_.waiters_.insert(server_.waiters_.end(), {id_, {cells.begin(), cells.end()}});
    struct Leave {
      ScriptedServer& server;
      const std::list<ScriptedServer::Waiter>::iterator place;
      ~Leave() { server.waiters_.erase(place); }
    } const leave{server_, mine};
    const bool held_before = server_.holders_.contains(id_);
    std::size_t next = 0;
    for (bool waited = false;; waited = true) {
      const bool alive = server_.sockets_.contains(id_);
      while (alive && !server_.silent_ && next < cells.size() && server_.free_for(id_, cells[next])) {
        server_.holders_[id_].push_back(cells[next++]);
      }
      if (!alive) {
        broken_ = true;
        return {.kind = Kind::failed, .code = 2013, .message = "the server hung up"};
      }
      if (next == cells.size()) {
        if (waited && server_.silent_after_wait.exchange(false)) server_.silent_ = true;
        return {
            .kind = Kind::granted, .minted = ++server_.last_number_, .session = server_.mixes_sessions ? id_ + 1 : id_};
      }
      if (!server_.silent_ && no_wait) {
        if (server_.unlocks_if_busy) server_.holders_.erase(id_);
        return {.kind = Kind::busy, .code = 3572, .message = "taken"};
      }
      if (!server_.silent_ && server_.victims_ > 0) {
        --server_.victims_;
        server_.holders_.erase(id_);
        static_cast<void>(held_before);
        return {.kind = Kind::deadlock, .code = 1213, .message = "deadlock found"};
      }
      if (mine->interrupted) return {.kind = Kind::failed, .code = 1317, .message = "interrupted"};
      if (timed::Clock::now() - began >= server_.longest_wait.load()) {
        return {.kind = Kind::wait_is_long, .code = 1205, .message = "waited too long"};
      }
      guard.unlock();
      const std::optional<timed::Clock::duration> time = limit.next();
      guard.lock();
      if (!time) {
        broken_ = true;
        return {.kind = Kind::failed, .code = 2013, .message = "no answer"};
      }
      server_.changed_.wait_for(guard, std::min<timed::Clock::duration>(*time, std::chrono::milliseconds(2)));
    }
  }
  void unlock_all(timed::WaitLimit& limit) noexcept override {
    if (wait_for_answer(limit) != Answer::good) return give_up();
    begin_unlock_all();
    if (wait_for_answer(limit) != Answer::good) give_up();
  }
  void begin_unlock_all() noexcept override {
    const std::lock_guard guard(server_.mutex_);
    server_.unlocks.fetch_add(1);
    asked_ = true;
    if (server_.silent_ || server_.late_) {
      server_.late_unlocks_.insert(id_);
    } else {
      server_.unlock(id_);
    }
  }

  void begin_heartbeat() override {
    const std::lock_guard guard(server_.mutex_);
    server_.beats.fetch_add(1);
    asked_ = true;
    if (server_.answers_at_once) {
      read_ahead_ = true;
    } else if (server_.silent_) {
      server_.silent_beats_.insert(id_);
    } else {
      server_.beat(id_);
    }
  }
  Answer answer() override {
    if (!asked_) return broken_ ? Answer::bad : Answer::good;
    if (std::exchange(read_ahead_, false)) {
      asked_ = false;
      return Answer::good;
    }
    char byte = 0;
    const ssize_t got = recv(socket_, &byte, 1, MSG_DONTWAIT);
    if (got < 0) return Answer::none_yet;
    asked_ = false;
    if (got == 0) broken_ = true;
    return got == 0 ? Answer::bad : Answer::good;
  }
  Answer wait_for_answer(timed::WaitLimit& limit) override {
    for (;;) {
      const Answer said = answer();
      if (said != Answer::none_yet) return said;
      const std::optional<timed::Clock::duration> time = limit.next();
      if (!time) return Answer::none_yet;
      pollfd fd{socket_, POLLIN, 0};
      poll(&fd, 1, 2);
    }
  }

 private:
  ScriptedServer& server_;
  const std::shared_ptr<OpenSessions> open_;
  const std::string name_ = "scripted";
  std::uint64_t id_ = 0;
  int socket_ = -1;
  bool broken_ = false, asked_ = false, read_ahead_ = false;
};

class ScriptedNotices final : public NoticeStore {
 public:
  explicit ScriptedNotices(ScriptedServer& server) : server_(server) {}

  Published publish(std::span<const Notice> notices, Deadline& limit) override {
    Published done{.written = std::vector<bool>(notices.size())};
    for (std::size_t i = 0; i < notices.size() && !done.failed; ++i) {
      done.failed = refused() || i == server_.notices_a_call.load() || !pause(limit);
      if (done.failed) break;
      const std::lock_guard guard(server_.mutex_);
      const Clock::time_point since = Clock::now() - notices[i].age;
      Notice& published = (server_.notices_[notices[i].id()] = {notices[i], since}).first;
      published.since = std::chrono::duration_cast<std::chrono::microseconds>(since.time_since_epoch()).count();
      done.written[i] = true;
    }
    return done;
  }
  bool remove(std::span<const std::uint64_t> ids, Deadline& limit) override {
    if (refused() || !pause(limit)) return false;
    const std::lock_guard guard(server_.mutex_);
    for (const std::uint64_t id : ids) server_.notices_.erase(id);
    return true;
  }
  std::optional<std::size_t> keep_alive(std::span<const std::uint64_t> ids, Deadline& limit) override {
    if (!pause(limit)) return std::nullopt;
    const std::lock_guard guard(server_.mutex_);
    return static_cast<std::size_t>(
        std::count_if(ids.begin(), ids.end(), [&](std::uint64_t id) { return server_.notices_.contains(id); }));
  }
  std::optional<std::vector<Notice>> read(Deadline& limit) override {
    if (!pause(limit)) return std::nullopt;
    server_.notices_read.fetch_add(1);
    const std::lock_guard guard(server_.mutex_);
    std::vector<Notice> all;
    for (const auto& [id, published] : server_.notices_) {
      all.push_back(published.first);
      all.back().age = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - published.second);
    }
    return all;
  }
  void remove_old(Deadline&) override {}

 private:
  bool refused() {
    if (server_.refuses_notices) server_.notices_refused.fetch_add(1);
    return server_.refuses_notices;
  }
  // False: the limit gave up first.
  bool pause(Deadline& limit) const {
    const Clock::time_point end = Clock::now() + server_.notice_time.load();
    std::unique_lock guard(server_.mutex_);
    while (Clock::now() < end) {
      guard.unlock();
      if (!limit.next()) return false;
      guard.lock();
      server_.changed_.wait_for(guard, std::min<Clock::duration>(end - Clock::now(), std::chrono::milliseconds(2)));
    }
    return true;
  }

  ScriptedServer& server_;
};

class ScriptedStore final : public SessionStore {
 public:
  static constexpr unsigned levels = 3;

  // Names are another driver's, or there are none.
  enum class Names : std::uint8_t { none, of_another_driver };
  explicit ScriptedStore(ScriptedServer& server, Names names = Names::none)
      : server_(server), names_(names), notices_(server) {}

  void attach(SessionServices& services) override {
    services_ = &services;
    server_.demote_ = [&services] {
      services.pool().distrust();
      services.lose_all_on("scripted");
    };
  }
  Capabilities capabilities() const override {
    return {.wakes_waiters = true, .extends = true, .across_processes = true, .across_machines = true, .leases = true};
  }
  void check(const spi::Plan& plan) const override {
    plan::check_rows(plan, levels, "scripted");
    for (const spi::Step& step : plan.steps()) {
      if (step.space == Space::path || names_ == Names::of_another_driver) continue;
      throw Error(ErrorKind::unsupported, "scripted: has only paths");
    }
  }
  Cell cell_of(Space, std::uint8_t level, std::string_view key, Mode mode) const override {
    return {level, std::hash<std::string_view>()(key), plan::row_mode(mode)};
  }
  NoticeStore& notices() override { return notices_; }
  std::optional<View> waits(Deadline&) override {
    std::optional<View> shown(std::in_place);
    View& view = *shown;
    if (!server_.shows_waits) return shown;
    const std::lock_guard guard(server_.mutex_);
    view.seen = true;
    for (const ScriptedServer::Waiter& waiter : server_.waiters_) {
      for (const auto& [session, cells] : server_.holders_) {
        for (const Cell& held : cells) {
          for (const Cell& wanted : waiter.cells) {
            if (session == waiter.session || !conflict(held, wanted)) continue;
            view.locks.push_back({.session = session, .cell = held, .mode = held.mode});
            view.locks.push_back({.session = waiter.session,
                                  .cell = wanted,
                                  .mode = wanted.mode,
                                  .waits = true,
                                  .blocked_by = {view.locks.size() - 1}});
          }
        }
      }
    }
    return shown;
  }
  Look look(Clock::time_point by) override {
    Deadline limit(by);
    Look look;
    look.notices = notices_.read(limit).value_or(std::vector<Notice>{});
    look.view = waits(limit).value_or(View{});
    return look;
  }
  void describe(Snapshot& snapshot) const override { snapshot.store = "scripted:"; }
  void housekeep(Deadline&) override { server_.housekept.fetch_add(1); }

  std::unique_ptr<Session> connect(WaitLimit& limit) override {
    server_.connecting.fetch_add(1);
    const Clock::time_point end = Clock::now() + server_.connect_time.load();
    std::unique_lock guard(server_.mutex_);
    while (Clock::now() < end) {
      guard.unlock();
      if (!limit.next()) throw Error(ErrorKind::unavailable, "the server does not answer");
      guard.lock();
      server_.changed_.wait_for(guard, std::chrono::milliseconds(2));
    }
    guard.unlock();
    if (server_.refuses) throw Error(ErrorKind::unavailable, "the server refuses");
    return std::make_unique<ScriptedSession>(server_, services_->open_sessions());
  }
  bool interrupt(Session&, const Session& waiting, Deadline& limit) override {
    std::unique_lock guard(server_.mutex_);
    while (server_.silent_) {
      guard.unlock();
      if (!limit.next()) return false;
      guard.lock();
      server_.changed_.wait_for(guard, std::chrono::milliseconds(2));
    }
    for (ScriptedServer::Waiter& waiter : server_.waiters_) {
      if (waiter.session == waiting.id()) waiter.interrupted = true;
    }
    server_.changed_.notify_all();
    return true;
  }
  std::vector<Cell> cells(const spi::Plan& plan) const override {
    std::vector<Cell> cells;
    for (const spi::Step& step : plan.steps()) {
      if (step.space != Space::path) continue;  // of the driver of names
      cells.push_back(cell_of(step.space, step.level, step.key, step.mode));
    }
    std::sort(cells.begin(), cells.end(), [](const Cell& a, const Cell& b) { return place(a) < place(b); });
    return cells;
  }
  std::int64_t fence_of(const LockReply& reply, const Session&) override {
    return static_cast<std::int64_t>(reply.minted) * 128;
  }
  Error failure(const LockReply& reply, const std::string& doing) const override {
    const ErrorKind kind = reply.kind == LockReply::Kind::deadlock ? ErrorKind::deadlock : ErrorKind::unavailable;
    return {kind, "cannot " + doing + ": " + reply.message, reply.code};
  }
  void confirm_kept(Session& session, const LockReply&, WaitLimit&) override {
    if (!server_.unlocks_if_busy) return;
    session.give_up();
    throw Error(ErrorKind::lost, "the server has unlocked all");
  }
  bool cells_may_be_missing() const override { return server_.cells_may_be_missing; }
  Error missing(std::span<const Cell>, const LockReply&) const override {
    return {ErrorKind::not_provisioned, "nothing is ever missing here"};
  }

 private:
  ScriptedServer& server_;
  const Names names_;
  ScriptedNotices notices_;
  SessionServices* services_ = nullptr;
};

// A Gate of its own, as a process of its own would have.
inline std::unique_ptr<spi::Backend> open_scripted(
    ScriptedServer& server, std::size_t sessions = 16,
    std::chrono::milliseconds publish_after = std::chrono::milliseconds(20), Owners owners = Owners::per_thread,
    bool hand_over = true, std::chrono::milliseconds lease = std::chrono::seconds(10)) {
  const SessionDriver::Timing timing{.lease = lease, .ask_after = std::chrono::milliseconds(200)};
  return make_gate(std::make_unique<SessionDriver>(std::make_unique<ScriptedStore>(server), sessions, timing),
                   {.owners = owners, .publish_after = publish_after, .hand_over = hand_over});
}

}  // namespace hierlock::remote::testing
