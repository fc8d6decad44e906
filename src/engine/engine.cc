#include "engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stop_token>
#include <thread>
#include <unordered_map>
#include <utility>

#include <hierlock/error.h>

#include "engine/fast_path.h"
#include "threads/registry.h"

namespace hierlock::engine {

// --- threads ---------------------------------------------------------------------------------------------

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

// A waiter looks under the latch at least this often, whatever it was or was not told (I5).
constexpr nanoseconds look_again = std::chrono::seconds(1);

// How long a request may be kept by collecting what the dead left: a part of its time, and little if it has none.
constexpr nanoseconds collect_at_most = std::chrono::milliseconds(5);
constexpr nanoseconds collect_at_least = std::chrono::milliseconds(1);

// How long to try to get past a stopped process, for a request that does not want to wait.
constexpr nanoseconds longest_latch = std::chrono::seconds(1);
// So long a breaker waits for the owner of a lock, who was told, to put an end to its extend.
constexpr nanoseconds end_of_extend = std::chrono::milliseconds(300);

// A table in a file may be taken away; asked this often by those who acquire.
constexpr std::int64_t look_for_loss_interval = 250'000'000;

// What a thread keeps for its next locks. One without a lane of its own keeps next to nothing: there is no bound on how
// many such threads there are, and what they keep others cannot use.
constexpr std::size_t idle_owners_kept = 64;
constexpr std::uint32_t free_records_kept = 64;
constexpr std::uint32_t records_at_a_time = 8;

// The engine this thread used last. Trivial, so that reading it costs nothing.
struct Recent {
  std::uint64_t engine = 0;
  void* context = nullptr;
};
constinit thread_local Recent recent;

}  // namespace

// Which engines exist, guarded by threads::mutex().
class Engines {
 public:
  static std::uint64_t add(Engine* engine) {
    threads::notice_forks(leave_in_child);
    const std::uint64_t number = threads::next_number();
    const std::lock_guard guard(threads::mutex());
    all()[number] = engine;
    return number;
  }
  static void remove(std::uint64_t number) {
    const std::lock_guard guard(threads::mutex());
    all().erase(number);
  }
  // Requires the mutex.
  static Engine* find(std::uint64_t number) noexcept {
    const auto engine = all().find(number);
    return engine != all().end() ? engine->second : nullptr;
  }
  // Calls f while no thread of the process enters or leaves an engine.
  template <class F>
  static void undisturbed(F f) {
    const std::lock_guard guard(threads::mutex());
    f();
  }

 private:
  // The child has none of the parent's engines: their tables may be in the middle of a change. The lock that tells that
  // the parent lives is not the child's.
  static void leave_in_child() noexcept {
    for (const auto& [number, engine] : all()) engine->table_.mapping().close_in_child();
    all().clear();
    recent = {};
  }
  static std::unordered_map<std::uint64_t, Engine*>& all() {
    static auto* const engines = new std::unordered_map<std::uint64_t, Engine*>;  // as threads::mutex()
    return *engines;
  }
};

class Engine::OfThread final : public threads::Keepsake {
 public:
  OfThread(std::uint64_t engine, Context& context) : Keepsake(engine), context_(context) {}
  Context& context() const noexcept { return context_; }
  bool useless() const noexcept override {
    const std::lock_guard guard(threads::mutex());
    return Engines::find(object()) == nullptr;
  }
  void thread_ends() noexcept override {
    recent = {};
    if (Engine* const engine = Engines::find(object())) engine->leave_thread(context_);
  }

 private:
  Context& context_;
};

Engine::Engine(const Capacity& capacity, Owners owners)
    : owners_(owners), own_(std::make_unique<Table>(capacity)), table_(*own_), counts_handles_(false) {
  id_ = Engines::add(this);
}

Engine::Engine(const FileOptions& options, Owners owners)
    : owners_(owners), own_(std::make_unique<Table>(options)), table_(*own_), counts_handles_(true) {
  id_ = Engines::add(this);
}

Engine::Engine(std::shared_ptr<NamedTable> table, Owners owners)
    : owners_(owners), named_(std::move(table)), table_(named_->table()), counts_handles_(true) {
  id_ = Engines::add(this);
}

Engine::~Engine() {
  Engines::remove(id_);
  if (named_ == nullptr) return;
  // Others go on with the table. No thread uses this Engine any more, and none that ends finds it.
  while (!contexts_.empty()) leave_thread(*contexts_.back());
}

Error Engine::lost_table() const {
  return {ErrorKind::lost, "the lock table " + table_.mapping().path() +
                               " was taken away from this process: the file was removed, replaced or cut short, or its "
                               "descriptor was closed. Nothing that was locked through it is safe; open it again"};
}

void Engine::check_table() {
  if (!table_.shared()) return;
  if (coarse_time() - table_.mapping().last_look() >= look_for_loss_interval) table_.mapping().look_for_loss();
  if (table_.mapping().lost()) throw lost_table();
}

inline Engine::Context* Engine::known_context() const noexcept {
  if (recent.engine == id_) [[likely]]
    return static_cast<Context*>(recent.context);
  return find_context();
}

Engine::Context* Engine::find_context() const noexcept {
  const threads::Keepsake* const kept = threads::find(id_);
  if (kept == nullptr) return nullptr;
  Context* const context = &static_cast<const OfThread*>(kept)->context();
  recent = {id_, context};
  return context;
}

Engine::Context& Engine::context() {
  if (Context* const known = known_context()) return *known;
  if (threads::ending())
    throw Error(ErrorKind::unsupported, "this thread is ending: it can release locks, but not acquire them");
  return enter_thread();
}

Engine::Context& Engine::enter_thread() {
  auto context = std::make_unique<Context>();
  context->lane = table_.enter_lane();
  const bool own_lane = context->lane != table_.common_lane();
  context->too_many = own_lane ? free_records_kept + 1 : 2;
  try {
    if (owners_ == Owners::per_handle) {
      context->idle_owners.reserve(own_lane ? idle_owners_kept : 0);
    } else if (named_ != nullptr) {
      context->owner_of_thread = named_->thread_owner();
      if (context->owner_of_thread != nullptr) context->owner = context->owner_of_thread->index();
    } else {
      context->owner = table_.records().make_owner({}, OwnerKind::thread);
    }
    if (owners_ == Owners::per_thread && context->owner == none) throw full("this thread cannot lock anything");
  } catch (...) {
    table_.leave_lane(context->lane);
    throw;
  }
  Context& result = *context;
  try {
    threads::keep(std::make_unique<OfThread>(id_, result));
    const std::lock_guard guard(threads_);
    contexts_.push_back(std::move(context));
  } catch (...) {
    threads::drop(id_);
    retire_owner_of(result);
    table_.leave_lane(result.lane);
    throw;
  }
  recent = {id_, &result};
  return result;
}

void Engine::retire_owner_of(Context& context) noexcept {
  if (context.owner != none && named_ == nullptr) table_.records().retire_owner(context.owner);
  context.owner_of_thread.reset();
}

void Engine::leave_thread(Context& context) noexcept {
  if (left_) return;  // the table is gone, and what this thread had in it
  for (Index record = context.free_record; record != none;) {
    const Index next = table_.records().next_free(record);
    table_.records().return_record(record);
    record = next;
  }
  retire_owner_of(context);
  for (const Index owner : context.idle_owners) table_.records().retire_owner(owner);
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
  if (!counts_handles_) return;
  if (c == nullptr) {
    past_handles_ += change;
  } else {
    // Release: when the sum is zero, all that the releases did to the table is done.
    c->handles.store(c->handles.load(std::memory_order_relaxed) + change, std::memory_order_release);
  }
}

bool Engine::no_handles() const {
  const std::lock_guard guard(threads_);
  std::int64_t sum = past_handles_;
  for (const auto& context : contexts_) sum += context->handles.load(std::memory_order_acquire);
  return sum == 0;
}

bool Engine::idle() const {
  return named_ != nullptr || table_.mapping().lost() ? no_handles() : table_.look().nothing_held();
}

void Engine::leave_table() noexcept {
  Engines::undisturbed([this] {
    if (std::exchange(left_, true)) return;
    table_.mapping().leave_for_good();
  });
}

// --- owners ----------------------------------------------------------------------------------------------

spi::OwnerId Engine::make_owner(std::string_view name) {
  const Index owner = table_.records().make_owner(name, OwnerKind::crowd);
  if (owner == none) throw full("the owner was not made");
  return {table_.names().owner_identity(owner)};
}

void Engine::drop_owner(spi::OwnerId owner) noexcept {
  const auto drop = [&] { table_.records().retire_owner(static_cast<Index>(owner.value)); };
  if (!table_.shared()) return drop();
  // An Owner may outlive the Locker, and so the table.
  Engines::undisturbed([&] {
    if (!left_) drop();
  });
}

std::string Engine::owner_name(spi::OwnerId owner) {
  if (owner.value != 0) return table_.names().owner_text(static_cast<Index>(owner.value));
  const Index mine = context().owner;
  return mine != none ? table_.names().owner_text(mine) : "a new handle";
}

// Who asks, and a free record of theirs.
Engine::Party Engine::party(Context& context, spi::OwnerId asked) {
  Party party{none, none, false};
  if (asked.value != 0) {
    party.owner = static_cast<Index>(asked.value);
    party.crowd = true;
    party.record = table_.records().take_record(party.owner);
  } else if (owners_ == Owners::per_thread) {
    party.owner = context.owner;
    if (context.free_record != none) {
      party.record = context.free_record;
      context.free_record = table_.records().next_free(party.record);
      --context.free_records;
    } else {
      const bool few = context.lane == table_.common_lane();
      const std::uint64_t stack = table_.records().take_records(party.owner, few ? 1 : records_at_a_time);
      party.record = stack_first(stack);
      if (party.record != none) {
        context.free_record = table_.records().next_free(party.record);
        context.free_records = stack_count(stack) - 1;
      }
    }
  } else {
    if (context.idle_owners.empty()) {
      party.owner = table_.records().make_owner({}, OwnerKind::handle);
    } else {
      party.owner = context.idle_owners.back();
      context.idle_owners.pop_back();
    }
    if (party.owner != none) party.record = table_.records().take_record(party.owner);
    if (party.owner != none && party.record == none) table_.records().retire_owner(party.owner);
  }
  if (party.record == none) throw full("nothing was locked");
  return party;
}

inline void Engine::put_back(Context* context, Index record) noexcept {
  const Index owner = table_.records().owner_of(record);
  if (context == nullptr || owner != context->owner) return return_to(owner, context, record);
  table_.records().set_next_free(record, context->free_record);
  context->free_record = record;
  if (++context->free_records >= context->too_many) [[unlikely]]
    shed_records(*context);
}

void Engine::return_to(Index owner, Context* context, Index record) noexcept {
  const bool handle = table_.records().owner_kind(owner) == OwnerKind::handle;
  table_.records().return_record(record);
  if (!handle) return;
  if (context != nullptr && context->idle_owners.size() < context->idle_owners.capacity()) {
    context->idle_owners.push_back(owner);
  } else {
    table_.records().retire_owner(owner);
  }
}

// Keeps the half of them that was used last.
void Engine::shed_records(Context& context) noexcept {
  const std::uint32_t most = context.lane == table_.common_lane() ? 2 : free_records_kept + 1;
  const std::uint32_t keep = most / 2;
  Index last = context.free_record;
  for (std::uint32_t i = 1; i < keep && last != none; ++i) last = table_.records().next_free(last);
  const std::uint64_t surplus = record_stack(table_.records().next_free(last), context.free_records - keep);
  if (last != none && table_.records().give_back_records(context.owner, surplus)) {
    table_.records().set_next_free(last, none);
    context.free_records = keep;
    context.too_many = most;
  } else {
    context.too_many = context.free_records + most;  // somebody has a latch: later
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

std::int64_t collect_budget(const spi::Request& request) {
  if (request.no_wait) return collect_at_least.count();
  if (!request.deadline) return collect_at_most.count();
  return std::clamp<nanoseconds>((*request.deadline - Clock::now()) / 4, collect_at_least, collect_at_most).count();
}

Error taken_away(const char* done) {
  return {ErrorKind::lost, std::string("the lock was taken away: it cannot be ") + done};
}

// What a waiter can be asked while it waits.
class WaitingAttempt final : public spi::Waiting {
 public:
  WaitingAttempt(const Table& table, const Attempt& attempt) : table_(table), attempt_(attempt) {}
  std::string owner() const override { return table_.names().owner_text(attempt_.owner); }
  std::uint64_t owner_number() const override { return table_.names().owner_identity(attempt_.owner); }
  std::string blocked_by() const override {
    std::string words;
    for (const Index owner : table_.look().blockers_of(attempt_.waiter)) {
      if (!words.empty()) words += ", ";
      words += table_.names().owner_text(owner);
    }
    return words.empty() ? "nobody any more"
                         : words + ", at " + table_.names().node_text(table_.queues().node_awaited(attempt_.waiter));
  }

 private:
  const Table& table_;
  const Attempt& attempt_;
};

}  // namespace

// A thread that waits where processes share the table. One of each process is its scout, and one scout of all processes
// together is on duty: it looks for the dead every 15 ms. A scout that begins to wait goes on duty if nobody is. The
// other scouts wake up every 100 to 150 ms to see whether somebody still is, and has looked lately. So a death is found
// after 45 + 150 ms at most, even if the thread on duty died, left or was stopped at the same moment. The other threads
// sleep until they are told.
class Scout {
 public:
  Scout(Engine& engine, const Attempt& attempt)
      : engine_(engine), deaths_(engine.table_.recovery().deaths()), next_glance_(Clock::now() + first_glance) {
    const std::lock_guard guard(engine_.scouts_mutex_);
    waiter_ = attempt.waiter;
    before_ = std::exchange(engine_.last_scout_, this);
    if (before_ != nullptr) before_->after_ = this;
    if (engine_.scout_ == nullptr) engine_.scout_ = this;
  }
  ~Scout() {
    const std::lock_guard guard(engine_.scouts_mutex_);
    if (before_ != nullptr) before_->after_ = after_;
    (after_ != nullptr ? after_->before_ : engine_.last_scout_) = before_;
    if (engine_.scout_ != this) return;
    engine_.scout_ = nullptr;
    if (engine_.last_scout_ == nullptr && !engine_.table_.mapping().lost()) engine_.table_.recovery().end_duty();
    appoint(engine_.last_scout_);
  }
  Scout(const Scout&) = delete;
  Scout& operator=(const Scout&) = delete;

  // Where it waits now.
  void moved(Index waiter) {
    const std::lock_guard guard(engine_.scouts_mutex_);
    waiter_ = waiter;
  }

  // Before this thread does something that may take its time: another one looks, if there is one.
  void hand_over() {
    const std::lock_guard guard(engine_.scouts_mutex_);
    if (engine_.scout_ != this) return;
    Scout* const other = engine_.last_scout_ != this ? engine_.last_scout_ : before_;
    if (other != nullptr) appoint(other);
  }

  // When it must be awake next.
  std::optional<Clock::time_point> next_glance() {
    const std::lock_guard guard(engine_.scouts_mutex_);
    if (engine_.scout_ != this) return std::nullopt;
    return next_glance_;
  }

  // To be called when awake. True if dead processes were found, by this thread or another: what the waiter waits for
  // may be free.
  bool glance(Clock::time_point now, std::int64_t budget) {
    if (const auto due = next_glance(); due && now >= *due) {
      Recovery& recovery = engine_.table_.recovery();
      const bool on_duty = recovery.begin_duty();
      if (on_duty) recovery.watch(recovery.duty_interval() / 5 * 4, budget);
      next_glance_ = now + nanoseconds(on_duty ? recovery.duty_interval() : off_duty_interval(now));
    }
    const std::uint32_t deaths = engine_.table_.recovery().deaths();
    return std::exchange(deaths_, deaths) != deaths;
  }

 private:
  static constexpr std::chrono::milliseconds first_glance{5};  // most waits are over by then

  // 100 to 150 ms, so that those who came together do not wake up together.
  static std::int64_t off_duty_interval(Clock::time_point now) {
    constexpr std::uint64_t multiplier = 0x9E3779B97F4A7C15;
    const auto noise = static_cast<std::uint64_t>(now.time_since_epoch().count()) * multiplier >> 32;
    return 100'000'000 + static_cast<std::int64_t>(noise % 50'000'000);
  }

  // Under the mutex. Wakes it, because it sleeps for longer than a scout may.
  void appoint(Scout* other) const noexcept {
    engine_.scout_ = other;
    if (other != nullptr) engine_.table_.queues().tell(other->waiter_);
  }

  Engine& engine_;
  std::uint32_t deaths_;
  Clock::time_point next_glance_;

  Index waiter_;  // these are guarded by scouts_mutex_
  Scout* before_ = nullptr;
  Scout* after_ = nullptr;
};

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

// Without a locked instruction: only its own thread writes to a context.
inline void Engine::count_grant(Context& c, Space space) noexcept {
  auto& count = c.grants[static_cast<std::size_t>(space)];
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

spi::Grant Engine::granted(Context& c, Space space, Index record, std::int64_t fence) noexcept {
  count_grant(c, space);
  return {grant_id(record, record_generation(table_.record_state_word(record))), fence};
}

inline spi::Grant Engine::take_at_once(const Nodes::Found& found, Space space, Mode mode) noexcept {
  Context& c = *static_cast<Context*>(recent.context);
  const Index record = c.free_record;  // per_thread only: others keep no free records here
  if (record == none || c.lane == table_.common_lane()) return {};
  const std::int64_t now = coarse_time();
  if (table_.shared() && now - table_.mapping().last_look() >= look_for_loss_interval) return {};
  const Table::Taken taken = table_.take_at_once(found, mode, record, c.lane, now);
  if (taken.fence == 0) return {};
  c.free_record = table_.records().next_free(record);
  --c.free_records;
  count_handle(&c, 1);
  count_grant(c, space);
  return {grant_id(record, taken.generation), taken.fence};
}

spi::Grant Engine::at_once(const spi::Chain& chain) noexcept {
  if (recent.engine != id_) return {};
  return take_at_once(table_.find_at_once(chain), chain.space, chain.mode);
}

spi::Grant Engine::at_once_again(std::string_view path) noexcept {
  if (recent.engine != id_) return {};
  const Nodes::Found found = table_.nodes().find_text(path);
  if (found.node == none) [[unlikely]]
    return {};
  return take_at_once(found, Space::path, Mode::X);
}

Attempt Engine::extending(const spi::Grant& grant, const spi::Request& request) {
  check_table();
  const Index record = grant_record(grant);
  if (!held(grant)) throw taken_away("extended");
  Attempt attempt;
  attempt.steps = request.plan.steps();
  attempt.owner = table_.records().owner_of(record);
  attempt.record = record;
  attempt.crowd = table_.records().owner_kind(attempt.owner) == OwnerKind::crowd;
  attempt.extending = true;
  return attempt;
}

std::optional<spi::Grant> Engine::extend(const spi::Grant& grant, const spi::Request& request) {
  Attempt attempt = extending(grant, request);
  Context& c = context();
  attempt.lane = c.lane;
  return run(c, attempt, request);
}

std::unique_ptr<Engine::Extension> Engine::begin_extend(const spi::Grant& grant, const spi::Request& request) {
  Attempt attempt = extending(grant, request);
  attempt.lane = context().lane;
  if (!take(attempt, request)) return nullptr;
  try {
    return std::make_unique<Extension>(*this, std::move(attempt));
  } catch (...) {  // no memory; nothing was moved
    give_up(attempt);
    throw;
  }
}

spi::Grant Engine::Extension::commit() {
  open_ = false;
  return engine_.keep(engine_.context(), attempt_);
}

Engine::Extension::~Extension() {
  if (open_) engine_.give_up(attempt_);
}

std::optional<spi::Grant> Engine::run(Context& c, Attempt& attempt, const spi::Request& request) {
  if (!take(attempt, request)) return std::nullopt;
  return keep(c, attempt);
}

// True: all steps are taken. Otherwise, and if it throws, all is as it was.
bool Engine::take(Attempt& attempt, const spi::Request& request) {
  bool begun = !attempt.extending;
  try {
    if (!request.note.empty() && !attempt.extending) table_.records().set_note(attempt.record, request.note);
    if (!table_.begin(attempt)) {
      throw taken_away("extended");
    }
    begun = true;
    if (table_.shared()) attempt.patience = latch_patience(request.deadline);
    Progress progress = advance(attempt, request);
    // Somebody who is long dead must not be waited for, nor be the reason not to wait.
    if (progress == Progress::blocked && table_.recovery().recover(request.no_wait, collect_budget(request))) {
      progress = advance(attempt, request);
    }
    if (request.no_wait) {
      const Clock::time_point until = Clock::now() + longest_latch;
      while (progress == Progress::late && Clock::now() < until) progress = advance(attempt, request);
    } else if (progress == Progress::blocked || progress == Progress::late) {
      progress = wait(attempt, request);
    }
    if (progress == Progress::granted) return true;
    if (table_.mapping().lost()) throw lost_table();
    if (progress != Progress::blocked && progress != Progress::late) throw failure(attempt, progress);
  } catch (...) {
    if (begun) give_up(attempt);
    throw;
  }
  give_up(attempt);
  if (attempt.extending && state_of(attempt) == RecordState::broken) throw taken_away("extended");
  return false;
}

// The second half: what take() has taken becomes the grant.
spi::Grant Engine::keep(Context& c, Attempt& attempt) {
  const std::int64_t fence = table_.finish(attempt);
  if (fence == 0) throw taken_away("extended");  // broken as a whole: there is nothing to undo
  if (table_.mapping().lost()) {
    give_up(attempt);
    throw lost_table();
  }
  if (!attempt.extending) count_handle(&c, 1);
  return granted(c, attempt.steps.front().space, attempt.record, fence);
}

// A cycle through a dead process is none, so the dead are looked for before a cycle is reported. Where processes share
// the table a cycle must be seen twice: one of them may have died, and been collected, while the graph was built.
//
// They are looked for before a table is called full, too: nobody waits for room, so nobody else would look. Collecting
// them may take longer than one budget.
Progress Engine::advance(Attempt& attempt, const spi::Request& request) {
  constexpr int most_collected = 10;
  int collected = 0;
  bool first = table_.shared();
  for (;;) {
    const Progress progress = table_.advance(attempt, !request.no_wait);
    if (progress == Progress::full && table_.shared() && collected++ < most_collected) {
      const bool left = table_.recovery().anything_left();
      if (!table_.recovery().recover_now(true, collect_budget(request)) && !left) return progress;
      table_.note_release();
      continue;
    }
    if (progress != Progress::deadlock || attempt.closed_by_taking) return progress;
    if (!table_.recovery().recover_now(true, collect_at_least.count()) && !first) return progress;
    first = false;
    attempt.cycle = {};
  }
}

void Engine::give_up(Attempt& attempt) noexcept {
  table_.abandon(attempt);
  if (attempt.extending && attempt.cycle.empty()) return;
  if (attempt.extending) table_.release(attempt.record, attempt.lane);  // a deadlock takes the whole lock
  put_back(known_context(), attempt.record);
}

// Sleeps and looks again, until granted, out of time (still `blocked`), or failed.
Progress Engine::wait(Attempt& attempt, const spi::Request& request) {
  std::atomic<Index> waiter{attempt.waiter};
  const auto wake = [&] { table_.queues().tell(waiter.load()); };
  std::optional<std::stop_callback<decltype(wake)>> on_cancel;
  const bool cancellable = request.cancel != nullptr && request.cancel->stop_possible();
  if (cancellable) on_cancel.emplace(*request.cancel, wake);
  std::optional<Scout> scout;
  if (table_.shared()) scout.emplace(*this, attempt);
  Clock::time_point tell_at = Clock::now();
  Clock::time_point look_at = tell_at + look_again;
  for (;;) {
    // In this order: a cancellation after the look below finds the waiter we sleep on.
    if (waiter.exchange(attempt.waiter) != attempt.waiter && scout) scout->moved(attempt.waiter);
    if (cancellable && request.cancel->stop_requested()) {
      throw Error(ErrorKind::cancelled, "waiting for " + spi::describe(attempt.steps) + " was cancelled");
    }
    // The same for a lock that is taken away: whoever does it tells the waiter afterwards.
    if (attempt.extending && state_of(attempt) == RecordState::doomed) throw taken_away("extended");
    Clock::time_point now = Clock::now();
    if (request.deadline && now >= *request.deadline) return Progress::blocked;
    if (table_.shared()) attempt.patience = latch_patience(request.deadline);
    if (attempt.waiter != none) {  // otherwise a stopped process keeps us from queueing: that sleeps by itself
      Clock::time_point until = look_at;
      if (request.observer != nullptr && now >= tell_at) {
        if (scout) scout->hand_over();
        const nanoseconds pause = request.observer->waits(WaitingAttempt(table_, attempt));
        tell_at = now + std::clamp<nanoseconds>(pause, std::chrono::milliseconds(1), std::chrono::hours(24 * 365));
      }
      if (request.observer != nullptr) until = std::min(until, tell_at);
      if (scout) until = std::min(until, scout->next_glance().value_or(until));
      if (request.deadline) until = std::min(until, *request.deadline);
      table_.queues().sleep(attempt.waiter, nanoseconds(until - now).count());
      now = Clock::now();
    }
    bool look = attempt.waiter == none || table_.queues().told(attempt.waiter) || now >= look_at;
    if (scout) {
      if (scout->glance(now, collect_budget(request))) look = true;
      check_table();
      // The holder may have been killed after it released and before it told us, or a stopped process kept it from it.
      look = look || table_.holders().seems_free(attempt.waiter);
    }
    if (!look) continue;
    look_at = now + look_again;
    const Progress progress = advance(attempt, request);
    if (progress != Progress::blocked && progress != Progress::late) return progress;
  }
}

Error Engine::failure(const Attempt& attempt, Progress progress) const {
  const std::string what = spi::describe(attempt.steps);
  const std::string consequence = attempt.extending ? "; the whole lock was released" : "";
  switch (progress) {
    case Progress::self_deadlock:
      return {ErrorKind::deadlock,
              "deadlock: " + attempt.cycle.words + consequence +
                  ". Release the other lock first, extend it, or ask for both at once",
              0, attempt.cycle.waits};
    case Progress::deadlock:
      return {ErrorKind::deadlock,
              "deadlock: " + attempt.cycle.words + consequence +
                  ". Release what you hold and start over; one acquire of all targets avoids it",
              0, attempt.cycle.waits};
    case Progress::slots_disagree:
      return {ErrorKind::incompatible, what + " was asked for with " +
                                           std::to_string(attempt.steps[attempt.next].slots) +
                                           " slots, but its present holders count on " +
                                           std::to_string(attempt.slots_there) + ": use the same number everywhere"};
    default:
      return full(what + " was not locked");
  }
}

// Says which limit was met, and what to do about it.
Error Engine::full(const std::string& consequence) const {
  const Capacity& capacity = table_.capacity();
  const Shortage lacking = shortage();
  const auto all = [](std::uint32_t number, const char* what) {
    return "all " + std::to_string(number) + " " + what + " are in use";
  };
  const auto why = [&]() -> std::string {
    switch (lacking) {
      case Shortage::nodes:
        return all(capacity.nodes, "nodes") + " (a lock needs one for each level of its path)";
      case Shortage::texts:
        return all(capacity.texts, "pieces of text") + " (names of more than 16 bytes need them)";
      case Shortage::records:
        return all(capacity.records, "records") + " (a lock needs one)";
      case Shortage::owners:
        return all(capacity.owners, "owners") + " (a thread, an Owner or, with Owners::per_handle, a lock needs one)";
      case Shortage::blocks:
        return all(capacity.blocks, "blocks") + " (notes, names of owners and locks on many targets need them)";
      case Shortage::tallies:
        return "there is no room to count the holders of another node that is shared";
      case Shortage::waiters:
        return "there is no room for another waiter: up to " + std::to_string(capacity.waiters_per_stripe) +
               " can wait for the nodes of one stripe";
      default:
        return table_.shared() ? "there is no room where " + table_.mapping().path() + " lies"
                               : "the system has no memory";
    }
  };
  std::string todo = "release locks, ";
  if (!table_.shared()) {
    todo += "or open with a larger max_locks";
  } else if (lacking == Shortage::memory) {
    todo += "make room there (a container: --shm-size), or use a file elsewhere (shm:///folder/file)";
  } else {
    todo += "or use a table made with a larger max_locks: " + table_.mapping().path() +
            " keeps its size, so take another name, or remove it when nobody uses it";
    if (lacking == Shortage::tallies || lacking == Shortage::waiters) todo += "; or make room where it lies";
  }
  return {ErrorKind::exhausted, "the lock table is full, " + consequence + ": " + why() + ". To go on, " + todo};
}

void Engine::release(const spi::Grant& grant) noexcept {
  const Index record = grant_record(grant);
  const std::uint64_t handle = record_word(static_cast<std::uint32_t>(grant.id >> 32), RecordState::held);
  if (recent.engine != id_ || (table_.shared() && table_.mapping().lost())) return release_unusual(grant);
  Context& c = *static_cast<Context*>(recent.context);
  if (c.lane == table_.common_lane() || !table_.release_at_once(record, handle, c.lane)) return release_unusual(grant);
  table_.note_release();
  put_back(&c, record);
  count_handle(&c, -1);
}

RecordState Engine::state_of(const Attempt& attempt) const noexcept {
  return record_state(table_.record_state_word(attempt.record));
}

// `free` if the handle is stale.
RecordState Engine::state_of(const spi::Grant& grant) const noexcept {
  const std::uint64_t word = table_.record_state_word(grant_record(grant));
  return record_generation(word) == static_cast<std::uint32_t>(grant.id >> 32) ? record_state(word) : RecordState::free;
}

void Engine::release_unusual(const spi::Grant& grant) noexcept {
  Context* const context = known_context();
  const Index record = grant_record(grant);
  const RecordState state = state_of(grant);
  const bool here = state == RecordState::held || state == RecordState::broken;
  if (here && !(table_.shared() && table_.mapping().lost())) {  // once lost, what is there is none of ours
    table_.release(record, context != nullptr ? context->lane : table_.common_lane());
    table_.note_release();
    put_back(context, record);
  }
  count_handle(context, -1);
}

// Held, or just being extended.
bool Engine::held(const spi::Grant& grant) noexcept {
  if (table_.shared() && coarse_time() - table_.mapping().last_look() >= look_for_loss_interval)
    table_.mapping().look_for_loss();
  const RecordState state = state_of(grant);
  const bool held = state == RecordState::held || state == RecordState::taking || state == RecordState::changing;
  return held && !(table_.shared() && table_.mapping().lost());
}

bool Engine::surely_held(const spi::Grant& grant) noexcept {
  if (table_.shared()) table_.mapping().look_for_loss();
  return held(grant);
}

std::size_t Engine::break_locks(const spi::Plan& plan, std::string_view reason) {
  check_table();
  const Breaks::Breaking breaking = table_.breaks().break_locks(plan.steps());
  const auto locks = [&](std::size_t count) {
    return std::to_string(count) + (count == 1 ? " lock on " : " locks on ") + spi::describe(plan.steps());
  };
  if (breaking.broken > 0) {
    Log::Entry entry{locks(breaking.broken) + " broken by process " + std::to_string(getpid()) +
                         (reason.empty() ? "" : ": ") + std::string(reason),
                     {}};
    for (const spi::Step& step : plan.steps()) {
      if (step.asked) entry.targets.push_back(spi::describe_key(step.space, step.key));
    }
    table_.log().write_log(entry);
  }
  if (breaking.no_room > 0) {
    throw Error(ErrorKind::exhausted, locks(breaking.no_room) + " could not be broken: " + std::to_string(most_broken) +
                                          " broken locks were not released by their holders yet. Let these processes "
                                          "release them or end, and try again");
  }
  if (breaking.unsure && breaking.broken == 0) {  // otherwise it is most likely broken, and status() shows what is left
    throw Error(ErrorKind::unavailable, "a process was stopped while it hands a lock over, perhaps one on " +
                                            spi::describe(plan.steps()) + ". Let it go on, and try again; or kill it");
  }
  // Their owners were told, and end their extends at once, unless they are stopped or dead.
  const Clock::time_point until = Clock::now() + end_of_extend;
  const auto remain = [&] {
    return static_cast<std::size_t>(
        std::count_if(breaking.doomed.begin(), breaking.doomed.end(),
                      [&](const auto& lock) { return table_.breaks().still_doomed(lock); }));
  };
  while (remain() > 0) {
    table_.recovery().recover(true, collect_at_least.count());
    if (remain() == 0) break;
    if (Clock::now() >= until) {
      throw Error(ErrorKind::unavailable,
                  locks(remain()) +
                      " is taken away, but not free yet: its process was stopped while it extends "
                      "the lock. Let it go on; or kill it");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return breaking.broken;
}

void Engine::log_deadlock(const Error& error) noexcept {
  if (table_.mapping().lost()) return;
  try {
    Log::Entry entry{error.what(), {}, error.cycle()};
    for (const Error::Wait& wait : entry.cycle) entry.targets.push_back(wait.waits_for);
    table_.log().write_log(entry);
  } catch (...) {  // no memory for the words
  }
}

spi::Grant Engine::give(const spi::Grant& grant, spi::OwnerId to) {
  check_table();
  if (!held(grant)) throw taken_away("handed over");
  const Party who = party(context(), to);
  FoundCycle cycle;
  Progress given = Progress::late;
  try {
    const Clock::time_point until = Clock::now() + longest_latch;
    while (given == Progress::late && Clock::now() < until) given = table_.give(grant_record(grant), who.record, cycle);
  } catch (...) {
    put_back(known_context(), who.record);
    throw;
  }
  if (given != Progress::granted) {
    put_back(known_context(), who.record);
    if (given == Progress::lost) throw taken_away("handed over");
    if (given == Progress::late) {
      throw Error(ErrorKind::timeout,
                  "a stopped process keeps the lock table busy: the lock stays with the owner it has, try again");
    }
    throw Error(ErrorKind::deadlock,
                "handing the lock over would close a cycle: " + cycle.words + ". It stays with the owner it has", 0,
                cycle.waits);
  }
  put_back(known_context(), grant_record(grant));
  return {grant_id(who.record, record_generation(table_.record_state_word(who.record))), grant.fence};
}

}  // namespace hierlock::engine
