#include "locker/core.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace hierlock::spi {

namespace {

using Clock = std::chrono::steady_clock;

// Which process this is, in a line of forks. It lies on a page that the kernel wipes in a child, also in one that was
// made without libc's knowledge (a bare clone); `last_generation` the child has from its parent, so that its own is
// new.
std::atomic<std::uint64_t> last_generation{0};
std::atomic<std::uint64_t> generation_without_page{0};

std::atomic<std::uint64_t>* make_generation() noexcept {
  constexpr std::size_t page = 65'536;
  void* const wiped = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (wiped == MAP_FAILED) return &generation_without_page;
  madvise(wiped, page, MADV_WIPEONFORK);  // an older kernel has atfork only
  return new (wiped) std::atomic<std::uint64_t>(0);
}
std::atomic<std::uint64_t>& fork_generation() noexcept {
  static std::atomic<std::uint64_t>* const generation = make_generation();
  return *generation;
}
void begin_generation() noexcept { fork_generation().store(last_generation.fetch_add(1) + 1); }

// The Core this thread used last.
constinit thread_local const Core* recent = nullptr;

// The thread's own variables are being destroyed, this file's among them.
constinit thread_local bool ending = false;

// Closed while locks were held through them.
struct Orphans {
  std::mutex mutex;
  std::vector<std::shared_ptr<Core>> cores;
};
Orphans& orphans() {
  static auto* const orphans = new Orphans;  // threads may end after static destructors ran
  return *orphans;
}

// Whoever forks holds the mutex meanwhile, so that the child does not inherit it from a thread it does not have.
void notice_forks() {
  static const bool noticed = pthread_atfork([] { orphans().mutex.lock(); }, [] { orphans().mutex.unlock(); },
                                             [] {
                                               begin_generation();
                                               orphans().mutex.unlock();
                                             }) == 0;
  if (!noticed) throw Error(ErrorKind::exhausted, "no memory to watch for forks");
  if (fork_generation().load() == 0) begin_generation();
}

std::string duration_text(std::chrono::nanoseconds time) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  if (milliseconds >= 10'000) return std::to_string(milliseconds / 1000) + " s";
  return std::to_string(milliseconds) + " ms";
}

std::size_t space_of(const Plan& plan) { return static_cast<std::size_t>(plan.steps().front().space); }

}  // namespace

// --- who keeps a Core alive ------------------------------------------------------------------------------

struct Core::References {
  std::vector<std::shared_ptr<Core>> cores;

  // One at a time, and outside of the mutex: a backend's destructor may take its time.
  void drop_idle() noexcept {
    while (take_idle(cores) != nullptr) {
    }
    for (;;) {
      std::unique_lock guard(orphans().mutex);
      const std::shared_ptr<Core> gone = take_idle(orphans().cores);
      guard.unlock();
      if (gone == nullptr) return;
    }
  }

  static std::shared_ptr<Core> take_idle(std::vector<std::shared_ptr<Core>>& from) noexcept {
    for (auto& core : from) {
      if (!core->here()) continue;  // the parent's: not ours to end
      if (!core->closed_.load() || !core->backend_->idle()) continue;
      if (recent == core.get()) recent = nullptr;
      std::swap(core, from.back());
      std::shared_ptr<Core> taken = std::move(from.back());
      from.pop_back();
      return taken;
    }
    return nullptr;
  }

  ~References() {
    recent = nullptr;
    ending = true;
    const std::lock_guard guard(orphans().mutex);
    for (auto& core : cores) {
      if (!core->here()) {
        static_cast<void>(new std::shared_ptr<Core>(std::move(core)));  // never ended in a child
      } else if (core->closed_.load() && !core->backend_->idle()) {
        // While it is open, its Locker's own reference is among them.
        orphans().cores.push_back(std::move(core));
      }
    }
  }
};

Core::References& Core::references() {
  thread_local References references;
  return references;
}

std::uint64_t Core::current_fork_generation() noexcept { return fork_generation().load(std::memory_order_relaxed); }

Core::Core(std::unique_ptr<Backend> backend, std::string url, OpenOptions options)
    : backend_(std::move(backend)),
      url_(std::move(url)),
      options_(std::move(options)),
      fork_generation_(current_fork_generation()) {}

Core* Core::make(std::unique_ptr<Backend> backend, const Url& url, OpenOptions options) {
  notice_forks();
  if (!ending) references().drop_idle();
  auto core = std::make_shared<Core>(std::move(backend), url.safe_text(), std::move(options));
  Core* const result = core.get();
  const std::lock_guard guard(orphans().mutex);
  orphans().cores.push_back(std::move(core));  // the Locker's own reference
  return result;
}

void Core::close(Core* core) noexcept {
  if (core == nullptr || !core->here()) return;
  core->backend_->close();    // first: nobody takes it away before it is closed here,
  core->closed_.store(true);  // and then anybody may
  if (!ending) references().drop_idle();
}

void Core::keep_for_this_thread() {
  if (ending) return;
  References& mine = references();
  for (const auto& core : mine.cores) {
    if (core.get() == this) {
      recent = this;
      return;
    }
  }
  mine.drop_idle();
  mine.cores.push_back(shared_from_this());
  recent = this;
}

Backend& Core::use() {
  if (!here()) {
    throw Error(ErrorKind::lost,
                "this Locker was opened before fork(): open one in the child, the parent's cannot be shared");
  }
  if (recent != this) keep_for_this_thread();
  return *backend_;
}

// --- acquire, extend, release ----------------------------------------------------------------------------

class Core::Watch final : public WaitObserver {
 public:
  Watch(Core& core, const Plan& plan) : core_(core), plan_(plan) {}

  std::chrono::nanoseconds waits(const Waiting& waiting) noexcept override {
    const bool first = !began_;
    if (first) began_ = Clock::now();
    if (!core_.options_.on_event) return std::chrono::hours(24 * 365);
    try {
      owner_ = waiting.owner();
      core_.tell(first ? Event::Kind::wait_begins : Event::Kind::wait_goes_on, plan_, owner_, waiting.blocked_by(),
                 waited(), {});
    } catch (...) {  // no memory for the words: the wait matters more
    }
    return core_.options_.long_wait;
  }

  bool waited_at_all() const { return began_.has_value(); }
  std::chrono::nanoseconds waited() const { return began_ ? Clock::now() - *began_ : std::chrono::nanoseconds{}; }
  const std::string& owner() const { return owner_; }

 private:
  Core& core_;
  const Plan& plan_;
  std::optional<Clock::time_point> began_;
  std::string owner_;
};

void Core::tell(Event::Kind kind, const Plan& plan, std::string_view owner, std::string_view blocked_by,
                std::chrono::nanoseconds waited, std::optional<ErrorKind> error) const noexcept {
  if (!options_.on_event) return;
  try {
    options_.on_event({kind, describe(plan.steps()), owner, blocked_by, waited, error});
  } catch (...) {  // as options.h says
  }
}

void Core::count_failure(const Plan& plan, ErrorKind kind) noexcept {
  failures_[static_cast<std::size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
  if (kind == ErrorKind::deadlock) counters_[space_of(plan)].deadlocks.fetch_add(1, std::memory_order_relaxed);
}

Grant Core::at_once(const Chain& chain, const AcquireOptions& options) noexcept {
  if (recent != this || !here() || chain.space == Space::slots) return {};
  if (options.owner != nullptr || !options.note.empty() || options.cancel.stop_possible()) return {};
  return backend_->at_once(chain);
}

std::optional<Grant> Core::run(const Plan& plan, const AcquireOptions& options, OwnerId owner, const Grant* extended,
                               bool may_fail) {
  Backend& backend = use();
  Watch watch(*this, plan);
  Request request{.plan = plan, .owner = owner, .note = options.note, .observer = &watch};
  if (options.timeout) {
    request.no_wait = *options.timeout <= std::chrono::nanoseconds::zero();
    // A deadline beyond the end of the clock is no deadline.
    if (!request.no_wait) {
      const Clock::time_point now = Clock::now();
      if (*options.timeout < Clock::time_point::max() - now) request.deadline = now + *options.timeout;
    }
  }
  if (options.cancel.stop_possible()) request.cancel = &options.cancel;

  const auto ended = [&](std::optional<ErrorKind> error) {
    const std::chrono::nanoseconds waited = watch.waited();
    if (error) count_failure(plan, *error);
    if (watch.waited_at_all()) {
      Counters& counters = counters_[space_of(plan)];
      counters.waits.fetch_add(1, std::memory_order_relaxed);
      counters.waited.fetch_add(static_cast<std::uint64_t>(waited.count()), std::memory_order_relaxed);
      tell(error ? Event::Kind::wait_failed : Event::Kind::wait_granted, plan, watch.owner(), {}, waited, error);
    } else if (error) {
      std::string who;
      try {
        if (options_.on_event) who = backend.owner_name(owner);
      } catch (...) {  // no memory for the words
      }
      tell(Event::Kind::refused, plan, who, {}, waited, error);
    }
  };

  if (request.cancel != nullptr && request.cancel->stop_requested()) {
    ended(ErrorKind::cancelled);
    throw Error(ErrorKind::cancelled, describe(plan.steps()) + " was not asked for: the request was cancelled before");
  }
  std::optional<Grant> grant;
  try {
    grant = extended != nullptr ? backend.extend(*extended, request) : backend.acquire(request);
  } catch (const Error& error) {
    ended(error.kind());
    if (may_fail && (error.kind() == ErrorKind::timeout || error.kind() == ErrorKind::busy)) return std::nullopt;
    throw;
  } catch (...) {
    ended(ErrorKind::exhausted);  // no memory
    throw;
  }
  if (grant) {
    if (watch.waited_at_all()) ended({});
    return grant;
  }
  const ErrorKind kind = request.no_wait ? ErrorKind::busy : ErrorKind::timeout;
  ended(kind);
  if (may_fail) return std::nullopt;
  if (kind == ErrorKind::busy)
    throw Error(kind, describe(plan.steps()) + " is held by somebody else, and waiting was not asked for");
  throw Error(kind, describe(plan.steps()) + " was not free within " + duration_text(*options.timeout) +
                        ": try again, or wait longer; snapshot() shows who holds it");
}

void Core::release(const Grant& grant) noexcept {
  if (!here()) return;
  if (ending) {
    // No reference of this thread's own: but what is not idle is among the orphans, and ends under their mutex.
    const std::lock_guard guard(orphans().mutex);
    backend_->release(grant);
    return;
  }
  if (recent != this) {
    try {
      keep_for_this_thread();
    } catch (...) {  // no memory: then this thread releases without a reference, as most would
    }
  }
  backend_->release(grant);
}

Stats Core::stats() const {
  Stats stats;
  const auto grants = backend_->grants();
  for (std::size_t i = 0; i < stats.by_space.size(); ++i) {
    stats.by_space[i] = {grants[i], counters_[i].waits.load(std::memory_order_relaxed),
                         std::chrono::nanoseconds(counters_[i].waited.load(std::memory_order_relaxed)),
                         counters_[i].deadlocks.load(std::memory_order_relaxed)};
  }
  for (std::size_t i = 0; i < failures_.size(); ++i) stats.failures[i] = failures_[i].load(std::memory_order_relaxed);
  return stats;
}

}  // namespace hierlock::spi
