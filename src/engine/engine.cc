#include "engine/engine.h"

#include <pthread.h>

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

// A waiter looks again at least this often, whatever it was or was not told (I5).
constexpr nanoseconds look_again = std::chrono::seconds(1);

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

Engine::~Engine() { Threads::remove(id_); }

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

// What a waiter can be asked while it waits.
class WaitingAttempt final : public spi::Waiting {
 public:
  WaitingAttempt(const Table& table, const Attempt& attempt) : table_(table), attempt_(attempt) {}
  std::string owner() const override { return table_.owner_text(attempt_.owner); }
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
  if (record == none || c.lane == common_lane) return {};
  const std::int64_t fence = table_.take_at_once(chain, record, c.lane);
  if (fence == 0) return {};
  c.free_record = table_.next_free(record);
  return granted(c, chain.space, record, fence);
}

std::optional<spi::Grant> Engine::extend(const spi::Grant& grant, const spi::Request& request) {
  const Index record = grant_record(grant);
  Attempt attempt;
  attempt.steps = request.plan.steps();
  attempt.owner = table_.owner_of(record);
  attempt.record = record;
  attempt.crowd = table_.owner_kind(attempt.owner) == OwnerKind::crowd;
  attempt.extending = true;
  Context& c = context();
  attempt.lane = c.lane;
  return run(c, attempt, request);
}

std::optional<spi::Grant> Engine::run(Context& c, Attempt& attempt, const spi::Request& request) {
  try {
    if (!request.note.empty() && !attempt.extending) table_.set_note(attempt.record, request.note);
    table_.begin(attempt);
    Progress progress = table_.advance(attempt, !request.no_wait);
    if (progress == Progress::blocked && !request.no_wait) progress = wait(attempt, request);
    if (progress == Progress::granted) {
      return granted(c, attempt.steps.front().space, attempt.record, table_.finish(attempt));
    }
    if (progress != Progress::blocked) throw failure(attempt, progress);
  } catch (...) {
    give_up(attempt);
    throw;
  }
  give_up(attempt);
  return std::nullopt;
}

void Engine::give_up(Attempt& attempt) noexcept {
  table_.abandon(attempt);
  if (attempt.extending && attempt.cycle.empty()) return;
  if (attempt.extending) table_.release(attempt.record, attempt.lane);  // a deadlock takes the whole lock
  put_back(attempt.record);
}

// Sleeps and looks again, until granted, late (still `blocked`), or failed.
Progress Engine::wait(Attempt& attempt, const spi::Request& request) {
  std::atomic<Index> waiter{attempt.waiter};
  const auto wake = [&] { table_.tell(waiter.load()); };
  std::optional<std::stop_callback<decltype(wake)>> on_cancel;
  const bool cancellable = request.cancel != nullptr && request.cancel->stop_possible();
  if (cancellable) on_cancel.emplace(*request.cancel, wake);
  Clock::time_point tell_at = Clock::now();
  for (;;) {
    // In this order: a cancellation after the look below finds the waiter we sleep on.
    waiter.store(attempt.waiter);
    if (cancellable && request.cancel->stop_requested()) {
      throw Error(ErrorKind::cancelled, "waiting for " + spi::describe(attempt.steps) + " was cancelled");
    }
    const Clock::time_point now = Clock::now();
    if (request.deadline && now >= *request.deadline) return Progress::blocked;
    if (request.observer != nullptr && now >= tell_at) {
      const nanoseconds pause = request.observer->waits(WaitingAttempt(table_, attempt));
      tell_at = now + std::clamp<nanoseconds>(pause, std::chrono::milliseconds(1), std::chrono::hours(24 * 365));
    }
    nanoseconds sleep = look_again;
    if (request.observer != nullptr) sleep = std::min<nanoseconds>(sleep, tell_at - now);
    if (request.deadline) sleep = std::min<nanoseconds>(sleep, *request.deadline - now);
    table_.sleep(attempt.waiter, sleep.count());
    const Progress progress = table_.advance(attempt, true);
    if (progress != Progress::blocked) return progress;
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
      return {ErrorKind::exhausted,
              "the lock table is full, " + what + " was not locked: release locks, or open with a larger max_locks"};
  }
}

void Engine::release(const spi::Grant& grant) noexcept {
  if (!held(grant)) return;
  const Index record = grant_record(grant);
  const Context* const context = known_context();
  table_.release(record, context != nullptr ? context->lane : common_lane);
  put_back(record);
}

bool Engine::held(const spi::Grant& grant) const noexcept {
  return table_.record_state_word(grant_record(grant)) ==
         record_word(static_cast<std::uint32_t>(grant.id >> 32), RecordState::held);
}

spi::Grant Engine::give(const spi::Grant& grant, spi::OwnerId to) {
  const Party who = party(context(), to);
  std::string cycle;
  bool given = false;
  try {
    given = table_.give(grant_record(grant), who.record, cycle);
  } catch (...) {
    put_back(who.record);
    throw;
  }
  if (!given) {
    put_back(who.record);
    throw Error(ErrorKind::deadlock,
                "handing the lock over would close a cycle: " + cycle + ". It stays with the owner it has");
  }
  put_back(grant_record(grant));
  return {grant_id(who.record, record_generation(table_.record_state_word(who.record))), grant.fence};
}

}  // namespace hierlock::engine
