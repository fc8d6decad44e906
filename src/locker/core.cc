#include "locker/core.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "threads/registry.h"

namespace hierlock::spi {

namespace {

using Clock = std::chrono::steady_clock;

// A child has this from its parent, so that its own generation is new.
std::atomic<std::uint64_t> last_generation{0};

std::atomic<std::uint64_t>* make_fork_page() noexcept {
  constexpr std::size_t page = 65'536;
  void* const wiped = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (wiped == MAP_FAILED) return nullptr;
  madvise(wiped, page, MADV_WIPEONFORK);  // an older kernel has atfork only
  return new (wiped) std::atomic<std::uint64_t>(0);
}

// Those that are open, each with its Locker's own reference, and those that were closed while locks were held through
// them. Guarded by threads::mutex().
std::vector<std::shared_ptr<Core>>& all_cores() {
  static auto* const cores = new std::vector<std::shared_ptr<Core>>;  // threads may end after static destructors ran
  return *cores;
}

std::string duration_text(std::chrono::nanoseconds time) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  if (milliseconds >= 10'000) return std::to_string(milliseconds / 1000) + " s";
  return std::to_string(milliseconds) + " ms";
}

std::size_t space_of(const Plan& plan) { return static_cast<std::size_t>(plan.steps().front().space); }

}  // namespace

// --- who keeps a Core alive ------------------------------------------------------------------------------

class Core::Reference final : public threads::Keepsake {
 public:
  explicit Reference(std::shared_ptr<Core> core) : Keepsake(core->number_), core_(std::move(core)) {}
  ~Reference() override {
    if (recent_ == core_.get()) recent_ = nullptr;
    if (!core_->here()) static_cast<void>(new std::shared_ptr<Core>(std::move(core_)));  // never ended in a child
  }
  // Under the mutex: whoever releases the last lock of a closed Core may take its table away meanwhile.
  bool useless() const noexcept override {
    const std::lock_guard guard(threads::mutex());
    return core_->may_go();
  }
  void thread_ends() noexcept override {
    recent_ = nullptr;
    // While it is open, it is among them.
    if (core_->here() && core_->closed_.load() && !core_->backend_->idle()) all_cores().push_back(core_);
  }

 private:
  std::shared_ptr<Core> core_;
};

// The parent's is not ours to end.
bool Core::may_go() const noexcept { return here() && closed_.load() && backend_->idle(); }

// One at a time, and outside of the mutex: a backend's destructor may take its time.
void Core::drop_idle() noexcept {
  if (threads::ending()) return;
  threads::tidy();
  for (;;) {
    std::shared_ptr<Core> gone;
    {
      const std::lock_guard guard(threads::mutex());
      auto& cores = all_cores();
      const auto idle = std::find_if(cores.begin(), cores.end(), [](const auto& core) { return core->may_go(); });
      if (idle == cores.end()) return;
      std::swap(*idle, cores.back());
      gone = std::move(cores.back());
      cores.pop_back();
    }
  }
}

void Core::begin_generation() noexcept { fork_page_->store(last_generation.fetch_add(1) + 1); }

void Core::notice_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::atomic<std::uint64_t>* const page = make_fork_page(); page != nullptr) fork_page_ = page;
    begin_generation();
  });
  threads::notice_forks(begin_generation);
  if (fork_page_->load() == 0) begin_generation();  // wiped: a child that libc does not know of
}

Core::Core(std::unique_ptr<Backend> backend, std::string url, OpenOptions options)
    : backend_(std::move(backend)),
      url_(std::move(url)),
      options_(std::move(options)),
      fork_generation_(fork_page_->load(std::memory_order_relaxed)) {}

Core* Core::make(std::unique_ptr<Backend> backend, const Url& url, OpenOptions options) {
  notice_forks();
  drop_idle();
  auto core = std::make_shared<Core>(std::move(backend), url.safe_text(), std::move(options));
  Core* const result = core.get();
  const std::lock_guard guard(threads::mutex());
  all_cores().push_back(std::move(core));  // the Locker's own reference
  return result;
}

void Core::close(Core* core) noexcept {
  if (core == nullptr || !core->here()) return;
  core->backend_->close();    // first: nobody takes it away before it is closed here,
  core->closed_.store(true);  // and then anybody may
  drop_idle();
}

void Core::keep_for_this_thread() {
  if (threads::ending()) return;
  if (threads::find(number_) == nullptr) {
    drop_idle();
    threads::keep(std::make_unique<Reference>(shared_from_this()));
  }
  recent_ = this;
}

Backend& Core::use() {
  if (!here()) {
    throw Error(ErrorKind::lost,
                "this Locker was opened before fork(): open one in the child, the parent's cannot be shared");
  }
  if (recent_ != this) keep_for_this_thread();
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
    if (error.kind() == ErrorKind::deadlock) backend.log_deadlock(error);
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
  const std::string in_time = options.timeout ? " within " + duration_text(*options.timeout) : "";
  throw Error(kind, describe(plan.steps()) + " was not free" + in_time +
                        ": try again, or wait longer; snapshot() shows who holds it");
}

void Core::release_from_elsewhere(const Grant& grant) noexcept {
  if (!here()) return;
  if (threads::ending()) {
    // The thread can keep no reference. A Core through which a lock is held is among all_cores().
    std::shared_ptr<Core> meanwhile;
    {
      const std::lock_guard guard(threads::mutex());
      for (const auto& core : all_cores()) {
        if (core.get() == this) meanwhile = core;
      }
    }
    backend_->release(grant);
    return;
  }
  if (recent_ != this) {
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
