#include "engine/engine.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stop_token>
#include <unordered_map>
#include <utility>

#include <hierlock/error.h>

namespace hierlock::engine {

// --- threads ---------------------------------------------------------------------------------------------

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

// A waiter looks again at least this often, whatever it was or was not told (I5). Where processes share the table it
// also looks for those that died: two threads of a process often, the others now and then.
constexpr nanoseconds look_again = std::chrono::seconds(1);
constexpr nanoseconds look_again_shared = std::chrono::milliseconds(150);
constexpr nanoseconds look_again_watchman = std::chrono::milliseconds(15);
constexpr int watchmen = 2;

// How long to try to get past a stopped process, for a request that does not want to wait.
constexpr nanoseconds longest_latch = std::chrono::seconds(1);

// A table in a file may be taken away; asked this often by those who acquire.
constexpr std::int64_t look_for_loss_interval = 250'000'000;

constexpr std::size_t idle_owners_kept = 64;

Error no_room_for_owner() {
  return {ErrorKind::exhausted,
          "the lock table has no room for another owner: release locks, or open with a larger max_locks"};
}

// The engine this thread used last. Trivial, so that reading it costs nothing.
struct Recent {
  std::uint64_t engine = 0;
  void* context = nullptr;
};
constinit thread_local Recent recent;

// The thread's own variables are being destroyed: Locks among them may still be released, but nothing can be kept.
constinit thread_local bool ending = false;

}  // namespace

// Which engines exist and which threads use them. A thread that ends tells the engines that are still there.
class Threads {
 public:
  static std::uint64_t add(Engine* engine) {
    notice_forks();
    const std::lock_guard guard(mutex());
    static std::uint64_t last = 0;
    engines()[++last] = engine;
    return last;
  }
  static void remove(std::uint64_t id) {
    const std::lock_guard guard(mutex());
    engines().erase(id);
  }
  struct Mine {
    std::vector<std::pair<std::uint64_t, Engine::Context*>> contexts;
    ~Mine() {
      recent = {};
      ending = true;
      const std::lock_guard guard(mutex());
      for (const auto& [id, context] : contexts) {
        const auto engine = engines().find(id);
        if (engine != engines().end()) engine->second->leave_thread(*context);
      }
    }
  };
  static Mine& mine() {
    thread_local Mine mine;
    return mine;
  }
  // Forgets the engines that are gone, and remembers one that this thread has come to use.
  static void remember(std::uint64_t id, Engine::Context* context) {
    Mine& mine = Threads::mine();
    {
      const std::lock_guard guard(mutex());
      std::erase_if(mine.contexts, [](const auto& known) { return !engines().contains(known.first); });
    }
    mine.contexts.emplace_back(id, context);
  }

 private:
  // Whoever forks holds the mutex meanwhile, so that the child does not inherit it from a thread it does not have. The
  // child has none of the parent's engines: their tables may be in the middle of a change.
  static void notice_forks() {
    static const bool noticed = pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); },
                                               [] {
                                                 // The lock that tells that the parent lives is not the child's.
                                                 for (const auto& [id, engine] : engines()) {
                                                   engine->table_.close_in_child();
                                                 }
                                                 engines().clear();
                                                 recent = {};
                                                 mutex().unlock();
                                               }) == 0;
    if (!noticed) throw Error(ErrorKind::exhausted, "no memory to watch for forks");
  }
  static std::mutex& mutex() {
    static std::mutex* const mutex = new std::mutex;  // threads may end after static destructors ran
    return *mutex;
  }
  static std::unordered_map<std::uint64_t, Engine*>& engines() {
    static auto* const engines = new std::unordered_map<std::uint64_t, Engine*>;
    return *engines;
  }
};

Engine::Engine(const Capacity& capacity, Owners owners) : owners_(owners), table_(capacity) {
  id_ = Threads::add(this);
}

Engine::Engine(const FileOptions& options, Owners owners) : owners_(owners), table_(options) {
  id_ = Threads::add(this);
}

Engine::~Engine() { Threads::remove(id_); }

Error Engine::lost_table() const {
  return {ErrorKind::lost, "the lock table " + table_.path() +
                               " was taken away from this process: the file was removed, replaced or cut short, or its "
                               "descriptor was closed. Nothing that was locked through it is safe; open it again"};
}

void Engine::check_table() {
  if (!table_.shared()) return;
  if (coarse_time() - table_.last_look() >= look_for_loss_interval) table_.look_for_loss();
  if (table_.lost()) throw lost_table();
}

Engine::Context* Engine::known_context() const noexcept {
  if (recent.engine == id_) return static_cast<Context*>(recent.context);
  if (ending) return nullptr;
  for (const auto& [id, context] : Threads::mine().contexts) {
    if (id == id_) {
      recent = {id_, context};
      return context;
    }
  }
  return nullptr;
}

Engine::Context& Engine::context() {
  if (Context* const known = known_context()) return *known;
  if (ending) throw Error(ErrorKind::unsupported, "this thread is ending: it can release locks, but not acquire them");
  return enter_thread();
}

Engine::Context& Engine::enter_thread() {
  auto context = std::make_unique<Context>();
  if (owners_ == Owners::per_handle) {
    context->idle_owners.reserve(idle_owners_kept);
  } else {
    context->owner = table_.make_owner({}, OwnerKind::thread);
    if (context->owner == none) throw no_room_for_owner();
  }
  context->lane = table_.enter_lane();
  Context& result = *context;
  try {
    Threads::remember(id_, &result);
    const std::lock_guard guard(threads_);
    contexts_.push_back(std::move(context));
  } catch (...) {
    std::erase_if(Threads::mine().contexts, [&](const auto& known) { return known.second == &result; });
    if (result.owner != none) table_.retire_owner(result.owner);
    table_.leave_lane(result.lane);
    throw;
  }
  recent = {id_, &result};
  return result;
}

void Engine::leave_thread(Context& context) noexcept {
  for (Index record = context.free_record; record != none;) {
    const Index next = table_.next_free(record);
    table_.return_record(record);
    record = next;
  }
  if (context.owner != none) table_.retire_owner(context.owner);
  for (const Index owner : context.idle_owners) table_.retire_owner(owner);
  table_.leave_lane(context.lane);
  const std::lock_guard guard(threads_);
  for (std::size_t i = 0; i < past_grants_.size(); ++i)
    past_grants_[i] += context.grants[i].load(std::memory_order_relaxed);
  past_handles_ += context.handles.load(std::memory_order_relaxed);
  std::erase_if(contexts_, [&](const auto& owned) { return owned.get() == &context; });
}

std::array<std::uint64_t, 3> Engine::grants() const {
  const std::lock_guard guard(threads_);
  std::array<std::uint64_t, 3> sum = past_grants_;
  for (const auto& context : contexts_) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += context->grants[i].load(std::memory_order_relaxed);
  }
  return sum;
}

// Without a locked instruction, as grants are counted.
inline void Engine::count_handle(Context* c, int change) noexcept {
  if (!table_.shared()) return;  // nobody can take it away
  if (c == nullptr) {
    past_handles_ += change;
  } else {
    c->handles.store(c->handles.load(std::memory_order_relaxed) + change, std::memory_order_relaxed);
  }
}

bool Engine::no_handles() const {
  const std::lock_guard guard(threads_);
  std::int64_t sum = past_handles_;
  for (const auto& context : contexts_) sum += context->handles.load(std::memory_order_relaxed);
  return sum == 0;
}

// --- owners ----------------------------------------------------------------------------------------------

spi::OwnerId Engine::make_owner(std::string_view name) {
  const Index owner = table_.make_owner(name, OwnerKind::crowd);
  if (owner == none) throw no_room_for_owner();
  return {table_.owner_identity(owner)};
}

void Engine::drop_owner(spi::OwnerId owner) noexcept { table_.retire_owner(static_cast<Index>(owner.value)); }

std::string Engine::owner_name(spi::OwnerId owner) {
  if (owner.value != 0) return table_.owner_text(static_cast<Index>(owner.value));
  const Index mine = context().owner;
  return mine != none ? table_.owner_text(mine) : "a new handle";
}

// Who asks, and a free record of theirs.
Engine::Party Engine::party(Context& context, spi::OwnerId asked) {
  Party party{none, none, false};
  if (asked.value != 0) {
    party.owner = static_cast<Index>(asked.value);
    party.crowd = true;
    party.record = table_.take_record(party.owner);
  } else if (owners_ == Owners::per_thread) {
    party.owner = context.owner;
    if (context.free_record != none) {
      party.record = std::exchange(context.free_record, table_.next_free(context.free_record));
    } else {
      party.record = table_.take_record(party.owner);
    }
  } else {
    if (context.idle_owners.empty()) {
      party.owner = table_.make_owner({}, OwnerKind::handle);
    } else {
      party.owner = context.idle_owners.back();
      context.idle_owners.pop_back();
    }
    if (party.owner != none) party.record = table_.take_record(party.owner);
    if (party.owner != none && party.record == none) table_.retire_owner(party.owner);
  }
  if (party.record == none) {
    throw Error(ErrorKind::exhausted, "the lock table is full: release locks, or open with a larger max_locks");
  }
  return party;
}

void Engine::put_back(Index record) noexcept {
  const Index owner = table_.owner_of(record);
  Context* const context = known_context();
  if (context != nullptr && owner == context->owner) {
    table_.set_next_free(record, context->free_record);
    context->free_record = record;
    return;
  }
  const bool handle = table_.owner_kind(owner) == OwnerKind::handle;
  table_.return_record(record);
  if (!handle) return;
  if (context != nullptr && context->idle_owners.size() < context->idle_owners.capacity()) {
    context->idle_owners.push_back(owner);
  } else {
    table_.retire_owner(owner);
  }
}

// --- acquire, extend, release ----------------------------------------------------------------------------

namespace {

constexpr std::uint64_t grant_id(Index record, std::uint32_t generation) {
  return std::uint64_t{generation} << 32 | record;
}
constexpr Index grant_record(const spi::Grant& grant) { return static_cast<Index>(grant.id); }

// Latches are waited for in pieces, so that deadlines are kept while a process is stopped in the middle of something.
std::int64_t latch_patience(const std::optional<Clock::time_point>& deadline) {
  constexpr nanoseconds piece = std::chrono::milliseconds(100);
  if (!deadline) return piece.count();
  return std::clamp<nanoseconds>(*deadline - Clock::now(), std::chrono::milliseconds(1), piece).count();
}

// A waiting thread that looks for the dead often, as long as it is one of few in its process.
class Watchman {
 public:
  explicit Watchman(std::atomic<int>* count) : count_(count) {
    if (count_ != nullptr) on_duty_ = count_->fetch_add(1) < watchmen;
  }
  ~Watchman() {
    if (count_ != nullptr) count_->fetch_sub(1);
  }
  Watchman(const Watchman&) = delete;
  Watchman& operator=(const Watchman&) = delete;
  bool on_duty() const { return on_duty_; }

 private:
  std::atomic<int>* const count_;
  bool on_duty_ = false;
};

// What a waiter can be asked while it waits.
class WaitingAttempt final : public spi::Waiting {
 public:
  WaitingAttempt(const Table& table, const Attempt& attempt) : table_(table), attempt_(attempt) {}
  std::string owner() const override { return table_.owner_text(attempt_.owner); }
  std::uint64_t owner_number() const override { return table_.owner_identity(attempt_.owner); }
  std::string blocked_by() const override {
    std::string words;
    for (const Index owner : table_.blockers_of(attempt_.waiter)) {
      if (!words.empty()) words += ", ";
      words += table_.owner_text(owner);
    }
    return words.empty() ? "nobody any more" : words + ", at " + table_.node_text(table_.node_awaited(attempt_.waiter));
  }

 private:
  const Table& table_;
  const Attempt& attempt_;
};

}  // namespace

std::optional<spi::Grant> Engine::acquire(const spi::Request& request) {
  check_table();
  Context& c = context();
  const Party who = party(c, request.owner);
  Attempt attempt;
  attempt.steps = request.plan.steps();
  attempt.owner = who.owner;
  attempt.record = who.record;
  attempt.crowd = who.crowd;
  attempt.lane = c.lane;
  return run(c, attempt, request);
}

// Counted without a locked instruction: only its own thread writes to a context.
inline spi::Grant Engine::granted(Context& c, Space space, Index record, std::int64_t fence) noexcept {
  auto& count = c.grants[static_cast<std::size_t>(space)];
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return {grant_id(record, record_generation(table_.record_state_word(record))), fence};
}

spi::Grant Engine::at_once(const spi::Chain& chain) noexcept {
  if (recent.engine != id_) return {};
  Context& c = *static_cast<Context*>(recent.context);
  const Index record = c.free_record;  // per_thread only: others keep no free records here
  if (record == none || c.lane == table_.common_lane()) return {};
  if (table_.shared() && coarse_time() - table_.last_look() >= look_for_loss_interval) return {};
  const std::int64_t fence = table_.take_at_once(chain, record, c.lane);
  if (fence == 0) return {};
  c.free_record = table_.next_free(record);
  count_handle(&c, 1);
  return granted(c, chain.space, record, fence);
}

std::optional<spi::Grant> Engine::extend(const spi::Grant& grant, const spi::Request& request,
                                         const std::function<bool()>* confirm) {
  check_table();
  const Index record = grant_record(grant);
  if (!held(grant)) throw Error(ErrorKind::lost, "the lock was taken away: it cannot be extended");
  Attempt attempt;
  attempt.steps = request.plan.steps();
  attempt.owner = table_.owner_of(record);
  attempt.record = record;
  attempt.crowd = table_.owner_kind(attempt.owner) == OwnerKind::crowd;
  attempt.extending = true;
  Context& c = context();
  attempt.lane = c.lane;
  return run(c, attempt, request, confirm);
}

std::optional<spi::Grant> Engine::run(Context& c, Attempt& attempt, const spi::Request& request,
                                      const std::function<bool()>* confirm) {
  bool begun = !attempt.extending;
  try {
    if (!request.note.empty() && !attempt.extending) table_.set_note(attempt.record, request.note);
    if (!table_.begin(attempt)) {
      throw Error(ErrorKind::lost, "the lock was taken away: it cannot be extended");
    }
    begun = true;
    if (table_.shared()) attempt.patience = latch_patience(request.deadline);
    Progress progress = advance(attempt, !request.no_wait);
    // Somebody who is long dead must not be waited for, nor be the reason not to wait.
    if (progress == Progress::blocked && table_.recover(request.no_wait)) progress = advance(attempt, !request.no_wait);
    if (request.no_wait) {
      const Clock::time_point until = Clock::now() + longest_latch;
      while (progress == Progress::late && Clock::now() < until) progress = advance(attempt, false);
    } else if (progress == Progress::blocked || progress == Progress::late) {
      progress = wait(attempt, request);
    }
    if (progress == Progress::granted && confirm != nullptr && !(*confirm)()) progress = Progress::blocked;
    if (progress == Progress::granted) {
      const std::int64_t fence = table_.finish(attempt);
      if (!table_.lost()) {
        if (!attempt.extending) count_handle(&c, 1);
        return granted(c, attempt.steps.front().space, attempt.record, fence);
      }
    }
    if (table_.lost()) throw lost_table();
    if (progress != Progress::blocked && progress != Progress::late) throw failure(attempt, progress);
  } catch (...) {
    if (begun) give_up(attempt);
    throw;
  }
  give_up(attempt);
  return std::nullopt;
}

// A cycle through somebody who is dead is none: before it is reported, those who died are looked for.
Progress Engine::advance(Attempt& attempt, bool queue) {
  for (;;) {
    const Progress progress = table_.advance(attempt, queue);
    if (progress != Progress::deadlock || attempt.closed_by_taking || !table_.recover_now(true)) return progress;
    attempt.cycle.clear();
  }
}

void Engine::give_up(Attempt& attempt) noexcept {
  table_.abandon(attempt);
  if (attempt.extending && attempt.cycle.empty()) return;
  if (attempt.extending) table_.release(attempt.record, attempt.lane);  // a deadlock takes the whole lock
  put_back(attempt.record);
}

// Sleeps and looks again, until granted, out of time (still `blocked`), or failed.
Progress Engine::wait(Attempt& attempt, const spi::Request& request) {
  std::atomic<Index> waiter{attempt.waiter};
  const auto wake = [&] { table_.tell(waiter.load()); };
  std::optional<std::stop_callback<decltype(wake)>> on_cancel;
  const bool cancellable = request.cancel != nullptr && request.cancel->stop_possible();
  if (cancellable) on_cancel.emplace(*request.cancel, wake);
  const Watchman watchman(table_.shared() ? &watchmen_ : nullptr);
  Clock::time_point tell_at = Clock::now();
  for (;;) {
    // In this order: a cancellation after the look below finds the waiter we sleep on.
    waiter.store(attempt.waiter);
    if (cancellable && request.cancel->stop_requested()) {
      throw Error(ErrorKind::cancelled, "waiting for " + spi::describe(attempt.steps) + " was cancelled");
    }
    const Clock::time_point now = Clock::now();
    if (request.deadline && now >= *request.deadline) return Progress::blocked;
    if (table_.shared()) attempt.patience = latch_patience(request.deadline);
    if (attempt.waiter != none) {  // otherwise a stopped process keeps us from queueing: that sleeps by itself
      if (request.observer != nullptr && now >= tell_at) {
        const nanoseconds pause = request.observer->waits(WaitingAttempt(table_, attempt));
        tell_at = now + std::clamp<nanoseconds>(pause, std::chrono::milliseconds(1), std::chrono::hours(24 * 365));
      }
      nanoseconds sleep = !table_.shared() ? look_again : watchman.on_duty() ? look_again_watchman : look_again_shared;
      if (request.observer != nullptr) sleep = std::min<nanoseconds>(sleep, tell_at - now);
      if (request.deadline) sleep = std::min<nanoseconds>(sleep, *request.deadline - now);
      table_.sleep(attempt.waiter, sleep.count());
    }
    if (table_.shared()) {
      table_.recover();
      check_table();
    }
    const Progress progress = advance(attempt, true);
    if (progress != Progress::blocked && progress != Progress::late) return progress;
  }
}

Error Engine::failure(const Attempt& attempt, Progress progress) const {
  const std::string what = spi::describe(attempt.steps);
  const std::string consequence = attempt.extending ? "; the whole lock was released" : "";
  switch (progress) {
    case Progress::self_deadlock:
      return {ErrorKind::deadlock, "deadlock: " + attempt.cycle + consequence +
                                       ". Release the other lock first, extend it, or ask for both at once"};
    case Progress::deadlock:
      return {ErrorKind::deadlock, "deadlock: " + attempt.cycle + consequence +
                                       ". Release what you hold and start over; one acquire of all targets avoids it"};
    case Progress::slots_disagree:
      return {ErrorKind::incompatible, what + " was asked for with " +
                                           std::to_string(attempt.steps[attempt.next].slots) +
                                           " slots, but its present holders count on " +
                                           std::to_string(attempt.slots_there) + ": use the same number everywhere"};
    default:
      return {ErrorKind::exhausted, "the lock table is full, " + what + " was not locked: release locks, or " +
                                        (table_.shared() ? "make room where " + table_.path() +
                                                               " lies, or use one made with a larger max_locks"
                                                         : "open with a larger max_locks")};
  }
}

void Engine::release(const spi::Grant& grant) noexcept {
  Context* const context = known_context();
  give_back(grant, context != nullptr ? context->lane : table_.common_lane());
  count_handle(context, -1);
}

void Engine::give_back(const spi::Grant& grant, std::uint32_t lane) noexcept {
  const std::uint64_t word = table_.record_state_word(grant_record(grant));
  const auto generation = static_cast<std::uint32_t>(grant.id >> 32);
  if (word != record_word(generation, RecordState::held) && word != record_word(generation, RecordState::broken))
    return;
  if (table_.shared() && table_.lost()) return;  // what is there now is none of ours
  const Index record = grant_record(grant);
  table_.release(record, lane);
  put_back(record);
}

// Held, or just being extended.
bool Engine::held(const spi::Grant& grant) noexcept {
  if (table_.shared() && coarse_time() - table_.last_look() >= look_for_loss_interval) table_.look_for_loss();
  const std::uint64_t word = table_.record_state_word(grant_record(grant));
  const auto generation = static_cast<std::uint32_t>(grant.id >> 32);
  return (word == record_word(generation, RecordState::held) || word == record_word(generation, RecordState::taking)) &&
         !(table_.shared() && table_.lost());
}

bool Engine::surely_held(const spi::Grant& grant) noexcept {
  if (table_.shared()) table_.look_for_loss();
  return held(grant);
}

std::size_t Engine::break_locks(const spi::Plan& plan, std::string_view reason) {
  check_table();
  const std::size_t broken = table_.break_locks(plan.steps());
  if (broken > 0) {
    table_.write_log(std::to_string(broken) + (broken == 1 ? " lock" : " locks") + " on " +
                     spi::describe(plan.steps()) + " broken by process " + std::to_string(getpid()) +
                     (reason.empty() ? "" : ": ") + std::string(reason));
  }
  return broken;
}

spi::Grant Engine::give(const spi::Grant& grant, spi::OwnerId to) {
  check_table();
  if (!held(grant)) throw Error(ErrorKind::lost, "the lock was taken away: it cannot be handed over");
  const Party who = party(context(), to);
  std::string cycle;
  Progress given = Progress::late;
  try {
    const Clock::time_point until = Clock::now() + longest_latch;
    while (given == Progress::late && Clock::now() < until) given = table_.give(grant_record(grant), who.record, cycle);
  } catch (...) {
    put_back(who.record);
    throw;
  }
  if (given != Progress::granted) {
    put_back(who.record);
    if (given == Progress::lost) throw Error(ErrorKind::lost, "the lock was taken away: it cannot be handed over");
    if (given == Progress::late) {
      throw Error(ErrorKind::timeout,
                  "a stopped process keeps the lock table busy: the lock stays with the owner it has, try again");
    }
    throw Error(ErrorKind::deadlock,
                "handing the lock over would close a cycle: " + cycle + ". It stays with the owner it has");
  }
  put_back(grant_record(grant));
  return {grant_id(who.record, record_generation(table_.record_state_word(who.record))), grant.fence};
}

}  // namespace hierlock::engine
