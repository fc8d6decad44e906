// ScriptedNames: the names of a ScriptedServer. What a test says happens to sessions (silence, hanging up) happens to
// those that keep names, too.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "remote/name_driver.h"
#include "remote/testing/scripted_store.h"

namespace hierlock::remote::testing {

// Locks by text, each of one session; first come, first served. All sessions of a server share it.
class NameServer {
 public:
  std::atomic<std::uint64_t> questions{0};   // round trips of keepers
  std::atomic<std::uint64_t> answers{0};     // to them, that were read
  std::atomic<std::size_t> most_at_once{0};  // names in one of them
  std::atomic<int> kills{0};                 // so many questions of keepers are ended half-way
  std::atomic<bool> silent{false};           // keepers get no answer
  std::atomic<int> stuck{0};                 // so many ushers cannot give a lock back when it is to move
  std::atomic<int> deadlocks{0};             // so many waits of ushers are answered "deadlock"
  std::atomic<std::uint64_t> waits_of_keepers{0};
  std::atomic<int> moved{0}, stolen{0};  // names that went from an usher to a keeper, and that were gone by then

  bool try_take(const std::string& lock, std::uint64_t session) {
    const std::lock_guard guard(mutex_);
    return take(lock, session);
  }
  // For up to so long, or until the limit ends it. None: the limit did.
  std::optional<bool> wait(const std::string& lock, std::uint64_t session, Clock::duration time, WaitLimit& limit) {
    const Clock::time_point end = Clock::now() + time;
    std::unique_lock guard(mutex_);
    if (!held_by(session).empty() && held_by(session).begin()->starts_with("B")) waits_of_keepers.fetch_add(1);
    const std::uint64_t ticket = ++last_ticket_;
    lines_[lock].push_back(ticket);
    const auto leave = [&] { std::erase(lines_[lock], ticket); };
    for (;;) {
      if (lines_[lock].front() == ticket && take(lock, session)) {
        leave();
        return true;
      }
      if (interrupted_.erase(session) > 0) {
        leave();
        return std::nullopt;
      }
      if (Clock::now() >= end) {
        leave();
        return false;
      }
      guard.unlock();
      const std::optional<Clock::duration> next = limit.next();
      guard.lock();
      if (!next) {
        leave();
        return std::nullopt;
      }
      changed_.wait_for(guard, std::min<Clock::duration>(*next, std::chrono::milliseconds(2)));
    }
  }
  bool release(const std::string& lock, std::uint64_t session) {
    const std::lock_guard guard(mutex_);
    const auto found = holders_.find(lock);
    if (found == holders_.end() || found->second.first != session) return false;
    if (--found->second.second == 0) holders_.erase(found);
    changed_.notify_all();
    return true;
  }
  void forget(std::uint64_t session) {
    const std::lock_guard guard(mutex_);
    std::erase_if(holders_, [&](const auto& one) { return one.second.first == session; });
    changed_.notify_all();
  }
  void interrupt(std::uint64_t session) {
    const std::lock_guard guard(mutex_);
    interrupted_.insert(session);
    changed_.notify_all();
  }
  void forget_interrupts(std::uint64_t session) {
    const std::lock_guard guard(mutex_);
    interrupted_.erase(session);
  }
  std::optional<std::uint64_t> holder(const std::string& lock) const {
    const std::lock_guard guard(mutex_);
    const auto found = holders_.find(lock);
    return found == holders_.end() ? std::nullopt : std::optional(found->second.first);
  }
  std::size_t held() const {
    const std::lock_guard guard(mutex_);
    return holders_.size();
  }
  std::size_t waiting() const {
    const std::lock_guard guard(mutex_);
    std::size_t all = 0;
    for (const auto& [lock, line] : lines_) all += line.size();
    return all;
  }
  std::uint64_t mint() { return last_number_.fetch_add(1) + 1'000'000; }

 private:
  bool take(const std::string& lock, std::uint64_t session) {
    auto& [holder, times] = holders_[lock];
    if (times > 0 && holder != session) return false;
    holder = session;
    ++times;
    return true;
  }
  std::set<std::string> held_by(std::uint64_t session) const {
    std::set<std::string> locks;
    for (const auto& [lock, holder] : holders_) {
      if (holder.first == session && holder.second > 0) locks.insert(lock);
    }
    return locks;
  }

  std::atomic<std::uint64_t> last_number_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, std::pair<std::uint64_t, int>> holders_;
  std::map<std::string, std::deque<std::uint64_t>> lines_;
  std::set<std::uint64_t> interrupted_;
  std::uint64_t last_ticket_ = 0;
};

class ScriptedMinter final : public Minter {
 public:
  std::int64_t fence_of(std::uint64_t minted) override { return static_cast<std::int64_t>(minted) * 128; }
};

class ScriptedNameSession final : public NameSession {
 public:
  ScriptedNameSession(NameServer& names, std::unique_ptr<Session> session)
      : names_(names), session_(std::move(session)), minter_(std::make_shared<ScriptedMinter>()) {}
  ~ScriptedNameSession() override { names_.forget(session_->id()); }

  Session& session() noexcept override { return *session_; }
  const std::shared_ptr<Minter>& minter() const noexcept override { return minter_; }

  void begin(std::span<const NameOp> ops) override {
    names_.questions.fetch_add(1);
    names_.most_at_once = std::max(names_.most_at_once.load(), ops.size());
    ops_.assign(ops.begin(), ops.end());
    said_.reset();
    if (!names_.silent) said_ = do_it();
  }
  std::optional<NameReply> answer() override {
    if (session_->hung_up()) {
      session_->give_up();
      return NameReply{.code = 2013, .message = "the server hung up"};
    }
    if (!said_ && names_.silent) return std::nullopt;
    if (!said_) said_ = do_it();
    names_.answers.fetch_add(1);
    return std::exchange(said_, std::nullopt);
  }
  void look(bool, std::chrono::milliseconds time) noexcept override {
    if (said_ || !names_.silent) return;
    pollfd fd{session_->socket(), POLLIN, 0};
    poll(&fd, 1, static_cast<int>(time.count()));
  }
  Waited wait(const LockName& name, At at, std::chrono::seconds time, WaitLimit& limit) override {
    names_.forget_interrupts(id());
    if (names_.deadlocks.fetch_sub(1) > 0) return {3058, "deadlock found"};
    if (at == At::line) {
      const std::optional<bool> passed = names_.wait("A" + name.key, id(), time, limit);
      if (!passed) return {1317, "interrupted"};
      if (!*passed) return {};
    }
    if (name.slots != 0) return {.at = At::turnstile};
    const std::optional<bool> got = names_.wait("B" + name.key, id(), time, limit);
    if (!got) return {1317, "interrupted"};
    return {.at = *got ? At::lock : At::turnstile};
  }
  std::optional<bool> any_free(const LockName& name, WaitLimit&) override {
    for (std::uint32_t i = 1; i <= name.slots; ++i) {
      if (!names_.holder(slot(name, i))) return true;
    }
    return false;
  }
  bool step_back(const LockName& name, WaitLimit&) override {
    return names_.stuck.fetch_sub(1) <= 0 && names_.release("B" + name.key, id());
  }
  void begin_clear() noexcept override { names_.forget(id()); }
  bool cleared(WaitLimit&) noexcept override { return !session_->broken(); }

 private:
  using Kind = NameResult::Kind;
  std::uint64_t id() const { return session_->id(); }
  static std::string slot(const LockName& name, std::uint32_t i) { return "S" + name.key + std::to_string(i); }

  NameReply do_it() {
    NameReply reply{.good = true};
    const bool killed = !ops_.empty() && ops_[0].kind != NameOp::Kind::undo && names_.kills.fetch_sub(1) > 0;
    std::size_t done = 0;
    for (const NameOp& op : ops_) {
      if (killed && done++ >= (ops_.size() + 1) / 2) break;
      reply.results.push_back(evaluate(op));
    }
    return killed ? NameReply{.code = 1317, .message = "interrupted"} : reply;
  }
  NameResult inside(const LockName& name) {
    if (name.slots == 0) {
      if (!names_.try_take("B" + name.key, id())) return {Kind::taken};
      return {Kind::granted, 0, names_.mint()};
    }
    for (std::uint32_t i = 1; i <= name.slots; ++i) {
      if (!names_.holder(slot(name, i)) && names_.try_take(slot(name, i), id())) {
        return {Kind::granted, i, names_.mint()};
      }
    }
    return {Kind::taken};
  }
  NameResult evaluate(const NameOp& op) {
    switch (op.kind) {
      case NameOp::Kind::take: {
        if (!names_.try_take("A" + op.name.key, id())) return {Kind::queued};
        const NameResult result = inside(op.name);
        names_.release("A" + op.name.key, id());
        return result;
      }
      case NameOp::Kind::take_inside: {
        const NameResult result = inside(op.name);
        if (op.name.slots == 0) (result.kind == Kind::granted ? names_.moved : names_.stolen).fetch_add(1);
        return result;
      }
      case NameOp::Kind::mint:
        return {Kind::granted, 0, names_.mint()};
      case NameOp::Kind::give:
        return {names_.release(op.name.slots == 0 ? "B" + op.name.key : slot(op.name, op.slot), id()) ? Kind::given
                                                                                                      : Kind::not_held};
      case NameOp::Kind::undo:
        names_.release("B" + op.name.key, id());
        return {Kind::given};
    }
    return {};
  }

  NameServer& names_;
  const std::unique_ptr<Session> session_;
  const std::shared_ptr<Minter> minter_;
  std::vector<NameOp> ops_;          // asked for
  std::optional<NameReply> said_{};  // and not read yet
};

class ScriptedNameStore final : public NameStore {
 public:
  explicit ScriptedNameStore(NameServer& names) : names_(names) {}
  std::unique_ptr<NameSession> name_session(std::unique_ptr<Session> session, Use, WaitLimit&) override {
    return std::make_unique<ScriptedNameSession>(names_, std::move(session));
  }
  bool interrupt(Session&, const Session& waiting, Deadline&) override {
    names_.interrupt(waiting.id());
    return true;
  }
  Error name_failure(std::int64_t code, const std::string& message, const std::string& doing) const override {
    const ErrorKind kind = code == 3058 ? ErrorKind::deadlock : ErrorKind::unavailable;
    return {kind, "cannot " + doing + ": " + message, code};
  }
  std::optional<Holders> holders(Session&, std::span<const LockName> names, Deadline&) override {
    Holders all;
    for (const LockName& name : names) {
      std::vector<std::uint64_t>& sessions = all.emplace_back();
      if (const std::optional<std::uint64_t> one = names_.holder("B" + name.key)) sessions.push_back(*one);
    }
    return all;
  }
  std::optional<std::uint32_t> slots_of_holder(Session&, const LockName&, std::uint32_t, Deadline&) override {
    return std::nullopt;
  }

 private:
  NameServer& names_;
};

}  // namespace hierlock::remote::testing
