#include "embedded/embedded.h"

#include <linux/membarrier.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <hierlock/error.h>

#include "engine/engine.h"

namespace hierlock::embedded {

namespace {

constexpr std::uint64_t default_locks = 16'000'000;
constexpr std::uint64_t most_locks = 60'000'000;
constexpr std::uint64_t default_shm_locks = 1'000'000;
constexpr std::uint64_t most_shm_locks = 4'000'000;

// Looks now and then whether locks are still held, for those who asked to be told (Lock::lost). A thread of its own,
// started by the first who asks.
class LossWatch {
 public:
  explicit LossWatch(engine::Engine& engine) : engine_(engine) {}
  ~LossWatch() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    // A callback that releases the last lock may be what ends the store. Then the thread goes on alone, and only what
    // it shares is left to it.
    if (thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();
    } else {
      thread_.join();
    }
  }
  LossWatch(const LossWatch&) = delete;
  LossWatch& operator=(const LossWatch&) = delete;

  std::stop_token watch(const spi::Grant& grant) {
    const std::lock_guard guard(shared_->mutex);
    std::erase_if(shared_->watched, [&](const Watched& w) { return w.told; });
    for (const Watched& w : shared_->watched) {
      if (w.grant.id == grant.id) return w.lost.get_token();
    }
    Watched& added = shared_->watched.emplace_back(Watched{grant, {}, false, false});
    const std::stop_token token = added.lost.get_token();
    if (!engine_.surely_held(grant)) {
      added.lost.request_stop();
      added.told = true;
    } else if (!thread_.joinable()) {
      thread_started_.store(true);
      thread_ = std::jthread(
          [shared = shared_, &engine = engine_](const std::stop_token& end) { run(*shared, engine, end); });
    }
    shared_->wake.notify_all();
    return token;
  }
  // Extending or handing over makes it another grant: until that is known, nobody is told that the old one is gone.
  template <class F>
  std::optional<spi::Grant> while_it_changes(const spi::Grant& grant, F change) {
    if (!thread_started_.load(std::memory_order_relaxed)) return change();
    const auto pause = [&](bool paused, const spi::Grant& now) {
      const std::lock_guard guard(shared_->mutex);
      for (Watched& w : shared_->watched) {
        if (w.grant.id != grant.id) continue;
        w.paused = paused;
        w.grant = now;
      }
    };
    pause(true, grant);
    try {
      const std::optional<spi::Grant> changed = change();
      pause(false, changed.value_or(grant));
      return changed;
    } catch (...) {
      pause(false, grant);
      throw;
    }
  }
  // Nothing is watched any more. The thread ends; by itself, if it is the caller (a callback that released a lock).
  void end() noexcept {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    if (thread_.get_id() != std::this_thread::get_id()) thread_.join();
  }
  // It was given back by its holder: nobody is told.
  void forget(const spi::Grant& grant) noexcept {
    if (thread_started_.load(std::memory_order_relaxed)) [[unlikely]]
      forget_watched(grant);
  }

 private:
  struct Watched {
    spi::Grant grant;
    std::stop_source lost;
    bool told;
    bool paused = false;
  };
  // With the thread.
  struct Shared {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::vector<Watched> watched;
  };

  [[gnu::noinline]] void forget_watched(const spi::Grant& grant) noexcept {
    const std::lock_guard guard(shared_->mutex);
    std::erase_if(shared_->watched, [&](const Watched& w) { return w.grant.id == grant.id; });
  }

  // Once it is to end, it asks the engine nothing: that may be gone.
  static void run(Shared& shared, engine::Engine& engine, const std::stop_token& end) {
    constexpr std::chrono::milliseconds interval{50};
    std::unique_lock guard(shared.mutex);
    while (!end.stop_requested()) {
      if (shared.watched.empty()) {
        shared.wake.wait(guard, end, [&] { return !shared.watched.empty(); });
        continue;
      }
      std::vector<std::stop_source> lost;
      for (Watched& w : shared.watched) {
        if (w.told || w.paused || engine.surely_held(w.grant)) continue;
        w.told = true;
        lost.push_back(w.lost);
      }
      guard.unlock();
      for (std::stop_source& source : lost) source.request_stop();  // runs callbacks: not under the mutex
      guard.lock();
      shared.wake.wait_for(guard, end, interval, [] { return false; });
    }
  }

  engine::Engine& engine_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::atomic<bool> thread_started_{false};
  std::jthread thread_;
};

class Embedded final : public Queue {
 public:
  template <class Where>
  Embedded(std::string url, const Where& where, Owners owners)
      : url_(std::move(url)), engine_(where, owners), losses_(engine_) {}

  void serve_holders_first() noexcept { engine_.table().serve_holders_first(); }

  Capabilities capabilities() const override {
    return {.names = true,
            .shared_inner = true,
            .shared_names = true,
            .slots = true,
            .fifo = true,
            .passes_own_queue = true,
            .wakes_waiters = true,
            .frees_at_once = true,
            .extends = true,
            .deadlock_at_once = true,
            .exact_keys = true,
            .across_processes = engine_.table().shared(),
            .across_machines = false,
            .leases = false};
  }
  std::optional<spi::Grant> acquire(const spi::Request& request) override { return engine_.acquire(request); }
  spi::Grant at_once(const spi::Chain& chain) noexcept override { return engine_.at_once(chain); }
  spi::Grant at_once_again(std::string_view path) noexcept override { return engine_.at_once_again(path); }
  std::optional<spi::Grant> extend(const spi::Grant& grant, const spi::Request& request) override {
    const auto extended = losses_.while_it_changes(grant, [&] { return engine_.extend(grant, request); });
    return extended;
  }
  // Only for memory:, where no lock can be lost.
  std::unique_ptr<Extension> begin_extend(const spi::Grant& grant, const spi::Request& request) override {
    class InTwoHalves final : public Extension {
     public:
      explicit InTwoHalves(std::unique_ptr<engine::Engine::Extension> of) : of_(std::move(of)) {}
      spi::Grant commit() override { return of_->commit(); }

     private:
      const std::unique_ptr<engine::Engine::Extension> of_;
    };
    auto begun = engine_.begin_extend(grant, request);
    return begun == nullptr ? nullptr : std::make_unique<InTwoHalves>(std::move(begun));
  }
  void release(const spi::Grant& grant) noexcept override {
    losses_.forget(grant);
    engine_.release(grant);
    if (closed_.load(std::memory_order_relaxed)) leave_if_idle();
  }
  spi::Grant give(const spi::Grant& grant, spi::OwnerId to) override {
    return *losses_.while_it_changes(grant, [&] { return std::optional(engine_.give(grant, to)); });
  }
  bool held(const spi::Grant& grant) const noexcept override { return engine_.held(grant); }
  std::stop_token lost(const spi::Grant& grant) override {
    if (!engine_.table().shared()) return {};  // nobody can take it away
    return losses_.watch(grant);
  }
  spi::OwnerId make_owner(std::string_view name) override { return engine_.make_owner(name); }
  void drop_owner(spi::OwnerId owner) noexcept override { engine_.drop_owner(owner); }
  std::string owner_name(spi::OwnerId owner) override { return engine_.owner_name(owner); }
  std::array<std::uint64_t, 3> grants() const override { return engine_.grants(); }
  bool idle() const noexcept override { return engine_.idle(); }
  void log_deadlock(const Error& error) noexcept override { engine_.log_deadlock(error); }
  Snapshot snapshot() const override;
  Snapshot holders() const override;
  Waits waits() const override;
  std::size_t break_locks(const spi::Plan& plan, std::string_view reason) override {
    if (!engine_.table().shared()) return spi::Backend::break_locks(plan, reason);
    return engine_.break_locks(plan, reason);
  }
  int lifeline() override { return engine_.lifeline(); }
  void close() noexcept override {
    if (!engine_.table().shared()) return;  // it has nothing besides memory
    closed_.store(true);
    if (!engine_.no_handles()) wait_for_releases_under_way();
    leave_if_idle();
  }

 private:
  // The last release and close() must not miss each other: a release counts itself, then reads closed_; close() sets
  // closed_, then counts. A release pays no barrier for that: the kernel makes one in all threads of the process.
  static void wait_for_releases_under_way() noexcept {
    engine::full_fence();
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  }
  void leave_if_idle() noexcept {
    if (!engine_.no_handles() || left_.exchange(true)) return;
    losses_.end();
    engine_.leave_table();
  }

  struct Looked;
  Looked look() const;
  Snapshot::Party party(Looked& looked, std::size_t index) const;
  Snapshot holders_of(Looked looked) const;

  const std::string url_;
  mutable engine::Engine engine_;
  std::atomic<bool> closed_{false};  // its Locker is gone
  std::atomic<bool> left_{false};    // and so is the table
  LossWatch losses_;
};

// A copy of the table, and what is asked once for all of it.
struct Embedded::Looked {
  engine::Look::Copy copy;
  std::int64_t now = engine::coarse_time();
  std::map<std::uint32_t, Snapshot::Doing> doing{};  // asked once for each process, however many locks it has

  std::chrono::nanoseconds since(std::int64_t then) const {
    return std::chrono::nanoseconds(std::max<std::int64_t>(0, now - then));
  }
};

Embedded::Looked Embedded::look() const {
  engine_.table().recovery().recover_now(false);  // who looks wants to see the living
  return {engine_.table().look().copy()};
}

Snapshot::Party Embedded::party(Looked& looked, std::size_t index) const {
  const engine::Look::PartyCopy& p = looked.copy.parties[index];
  const auto [known, is_new] = looked.doing.try_emplace(p.slot);
  if (is_new) known->second = engine_.table().mapping().doing(p.slot);
  return {p.identity, p.name, p.process, p.program, p.note, known->second};
}

Snapshot Embedded::holders_of(Looked looked) const {
  const engine::Table& table = engine_.table();
  const engine::Look::Copy& copy = looked.copy;
  // What an acquire has so far it has had since it began to wait for the rest, or for longer.
  std::map<engine::Index, std::int64_t> waits_since;
  for (const auto& w : copy.waiters) waits_since[w.record] = w.since;
  const auto age = [&](const engine::Look::HolderCopy& h) {
    if (h.since != 0) return looked.since(h.since);
    const auto waits = waits_since.find(h.record);
    return waits != waits_since.end() ? looked.since(waits->second) : std::chrono::nanoseconds{};
  };

  Snapshot result;
  result.store = url_;
  result.table = table.mapping().path();
  for (auto& entry : table.log().read_log()) {
    result.log.push_back(
        {std::chrono::system_clock::time_point(
             std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(entry.when))),
         std::move(entry.text), std::move(entry.targets), std::move(entry.cycle)});
  }
  result.holders.reserve(copy.holders.size());
  for (const auto& h : copy.holders) {
    // The number that its grant has, for a store that puts this one before its own.
    const std::uint64_t lock =
        std::uint64_t{engine::record_generation(table.record_state_word(h.record))} << 32 | h.record;
    result.holders.push_back({party(looked, h.party), h.target, h.mode, h.asked, lock, h.fence, age(h)});
  }
  std::sort(result.holders.begin(), result.holders.end(), [](const Snapshot::Holder& a, const Snapshot::Holder& b) {
    return std::tie(a.target, a.who.owner, a.fence) < std::tie(b.target, b.who.owner, b.fence);
  });
  return result;
}

Snapshot Embedded::holders() const { return holders_of(look()); }

Snapshot Embedded::snapshot() const {
  Looked looked = look();
  Snapshot result = holders_of(looked);
  const engine::Look::Copy& copy = looked.copy;
  std::map<engine::Index, std::uint64_t> identities;
  for (const auto& h : copy.holders) identities[h.owner] = copy.parties[h.party].identity;
  for (const auto& w : copy.waiters) identities[w.owner] = copy.parties[w.party].identity;
  for (const auto& w : copy.waiters) {
    Snapshot::Waiter waiter{party(looked, w.party), w.target, w.wanted, w.mode, looked.since(w.since), {}};
    for (const engine::Index owner : engine_.table().look().blockers(copy, w))
      waiter.blocked_by.push_back(identities[owner]);
    result.waiters.push_back(std::move(waiter));
  }
  return result;
}

Embedded::Waits Embedded::waits() const {
  const engine::Look::Copy copy = engine_.table().look().copy();
  Waits result;
  for (const auto& h : copy.holders) result.holds.push_back({copy.parties[h.party].identity, h.node, h.mode});
  for (const auto& w : copy.waiters) result.waits.push_back({copy.parties[w.party].identity, w.node, w.mode});
  return result;
}

}  // namespace

namespace {

std::uint64_t number(const std::string& name, const std::string& value, std::uint64_t most) {
  std::uint64_t result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc{} || end != value.data() + value.size() || result < 1 || result > most) {
    throw Error(ErrorKind::invalid_argument,
                name + "=" + value + " is not a whole number from 1 to " + std::to_string(most));
  }
  return result;
}

// Of a table, beside the default one: it may become the name of a file.
bool is_name(const std::string& text) {
  const bool dots = text == "." || text == "..";
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
  return plain && !dots && !text.empty() && text.size() <= 64;
}

// The same for cron, ssh, systemd and a terminal: nothing of the environment decides.
std::string path_of(const std::string& rest) {
  const std::string own = "/dev/shm/hierlock-" + std::to_string(geteuid());
  if (rest.empty()) return own;
  if (rest.starts_with("//")) {
    const std::string path = rest.substr(2);
    if (!path.starts_with("/") || path.ends_with("/") || path.size() < 2) {
      throw Error(ErrorKind::invalid_argument,
                  "shm:" + rest + " names no file: write shm:///folder/file with the whole path, or shm:NAME");
    }
    return path;
  }
  if (!is_name(rest)) {
    throw Error(ErrorKind::invalid_argument,
                "shm:" + rest + ": a name has 1 to 64 letters, digits, '-', '_' or '.'; a file is shm:///folder/file");
  }
  return own + "." + rest;
}

// The user whose default table, or named one, this is by its name; -1 if it is nobody's.
std::int64_t user_by_name(const std::string& path) {
  constexpr std::string_view prefix = "hierlock-";
  const std::size_t slash = path.rfind('/');
  const std::string_view name = std::string_view(path).substr(slash + 1);
  if (!name.starts_with(prefix)) return -1;
  const std::string_view rest = name.substr(prefix.size());
  std::uint32_t user = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), user);
  if (error != std::errc{} || (end != rest.data() + rest.size() && *end != '.')) return -1;
  struct stat here {};
  struct stat shm {};
  if (stat(path.substr(0, slash).c_str(), &here) != 0 || stat("/dev/shm", &shm) != 0) return -1;
  return here.st_ino == shm.st_ino && here.st_dev == shm.st_dev ? std::int64_t{user} : -1;
}

// Made by anybody else, a user's default table would lock that user out of it.
std::string who_creates(const std::string& path, bool create) {
  if (!create) return "it is made by the first who locks something";
  const std::int64_t user = user_by_name(path);
  if (user < 0 || user == std::int64_t{geteuid()}) return {};
  return "it would be the table of user " + std::to_string(user) +
         ", who alone can make it. Let them lock something first, or use another file: shm:///folder/file?mode=0660";
}

mode_t mode_of(const std::string& value) {
  unsigned mode = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), mode, 8);
  const bool whole = error == std::errc{} && end == value.data() + value.size() && !value.empty();
  // Whoever may read must write, too: looking takes a place in the table.
  const auto pair = [&](unsigned shift) { return (mode >> shift & 7) == 0 || (mode >> shift & 7) == 6; };
  if (!whole || mode > 0666 || (mode >> 6 & 7) != 6 || !pair(3) || !pair(0)) {
    throw Error(ErrorKind::invalid_argument,
                "mode=" + value + " cannot be: write 0600 (you alone), 0660 (your group) or 0666 (everybody)");
  }
  return mode;
}

}  // namespace

std::unique_ptr<spi::Backend> open_memory(const spi::Url& url, Owners owners) {
  if (!url.rest.empty() && !is_name(url.rest)) {
    throw Error(ErrorKind::invalid_argument,
                "memory:NAME: a name has 1 to 64 letters, digits, '-', '_' or '.'; memory: alone is one Locker's own");
  }
  std::uint64_t locks = default_locks;
  for (const auto& [name, value] : url.options) {
    if (name != "max_locks") {
      throw Error(ErrorKind::invalid_argument, "memory: has no option \"" + name + "\": it knows max_locks");
    }
    locks = number(name, value, most_locks);
  }
  const engine::Capacity capacity = engine::Capacity::for_locks(locks);
  if (url.rest.empty()) return std::make_unique<Embedded>(url.safe_text(), capacity, owners);
  return std::make_unique<Embedded>(url.safe_text(), engine::NamedTable::open(url.rest, capacity), owners);
}

std::unique_ptr<Queue> open_queue(Owners owners) {
  auto queue = std::make_unique<Embedded>("memory:", engine::Capacity::for_locks(default_locks), owners);
  queue->serve_holders_first();
  return queue;
}

std::unique_ptr<spi::Backend> open_shm(const spi::Url& url, Owners owners, bool create) {
  constexpr std::uint32_t lanes = 2048;
  engine::FileOptions file;
  file.path = path_of(url.rest);
  std::uint64_t locks = default_shm_locks;
  for (const auto& [name, value] : url.options) {
    if (name == "max_locks") {
      locks = number(name, value, most_shm_locks);
    } else if (name == "mode") {
      file.mode = mode_of(value);
    } else {
      throw Error(ErrorKind::invalid_argument, "shm: has no option \"" + name + "\": it knows mode and max_locks");
    }
  }
  file.who_creates = who_creates(file.path, create);
  file.capacity = engine::Capacity::for_locks(locks, lanes);
  return std::make_unique<Embedded>(url.safe_text(), file, owners);
}

}  // namespace hierlock::embedded
