#include "worker.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <hierlock/hierlock.h>

#include "own_stops.h"

namespace storm {

namespace {

using hierlock::AcquireOptions;
using hierlock::ErrorKind;
using hierlock::Lock;
using hierlock::Locker;
using hierlock::Mode;
using hierlock::Target;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

// A server's grant has a multiple of it as its fence, and each hand-over inside the process adds one (docs/remote.md).
constexpr std::int64_t fences_of_a_grant = 128;

constexpr nanoseconds late_bound = std::chrono::seconds(5 * slowness);  // after a timeout, on a crowded machine

// Releases what it is given: another thread, another lane of the table.
class Releaser {
 public:
  Releaser() : thread_([this](const std::stop_token& end) { run(end); }) {}
  void take(Lock lock) {
    const std::lock_guard guard(mutex_);
    locks_.push_back(std::move(lock));
    wake_.notify_one();
  }

 private:
  void run(const std::stop_token& end) {
    std::unique_lock guard(mutex_);
    while (wake_.wait(guard, end, [this] { return !locks_.empty(); })) {
      std::vector<Lock> locks = std::exchange(locks_, {});
      guard.unlock();
      locks.clear();
      guard.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::vector<Lock> locks_;
  std::jthread thread_;
};

struct Ask {
  Target target;
  int place;  // its account's, for a scratch leaf
  bool scratch;
};

// A lock, and what is believed because of it.
struct Held {
  Lock lock;
  Inside inside;
  bool given_up = false;  // an extend lost it: it is released already
};

std::mt19937_64 random_for(const Witness& witness, const Setting& setting, std::size_t worker) {
  return std::mt19937_64(setting.seed * 0x9E3779B97F4A7C15u + worker * 1'000'003 +
                         witness.row(worker).incarnation.load());
}

class Worker {
 public:
  Worker(const Witness& witness, const Setting& setting, std::size_t me, Locker& locker, bool per_handle)
      : witness_(witness),
        setting_(setting),
        testimony_(witness, me, setting.workers()),
        random_(random_for(witness, setting, me)),
        rogue_(me == 0 ? setting.fault : Break::nothing),
        per_handle_(per_handle),
        locker_(locker) {
    if (chance(15)) releaser_.emplace();
    of_this_thread_ = this;
  }
  ~Worker() { of_this_thread_ = nullptr; }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The Locker tells it on the waiting thread.
  static void notice(const hierlock::Event& event) {
    if (of_this_thread_ == nullptr) return;
    const Testimony& testimony = of_this_thread_->testimony_;
    const bool extending = testimony.state() == State::extending || testimony.state() == State::extending_waiting;
    if (event.kind == hierlock::Event::Kind::wait_begins) {
      testimony.state(extending ? State::extending_waiting : State::waiting);
    } else if (event.kind != hierlock::Event::Kind::wait_goes_on) {
      testimony.state(extending ? State::extending : State::acquiring);
    }
  }

  void run() {
    while (witness_.all().stop.load(std::memory_order_relaxed) == 0) {
      testimony_.state(State::idle);
      if (chance(10)) nap(below(1000));
      be_rogue();
      if (chance(setting_.danger)) {
        if (chance(30)) {
          break_somebody();
        } else {
          be_endangered();
        }
        continue;
      }
      if (chance(setting_.hot)) {
        one(hot_ask());
        continue;
      }
      const unsigned what = below(87);
      if (what < 44) {
        one(any_ask());
      } else if (what < 57) {
        many();
      } else if (what < 75) {
        grow();
      } else if (what < 85) {
        nest();
      } else {
        look();
      }
    }
    testimony_.state(State::idle);
  }

 private:
  // --- chance ---
  unsigned below(unsigned end) { return static_cast<unsigned>(random_() % end); }
  bool chance(unsigned percent) { return below(100) < percent; }
  static void nap(unsigned us) { std::this_thread::sleep_for(microseconds(us)); }
  void dawdle() {
    const unsigned how = below(100);
    if (how < 60) {
      const unsigned turns = below(400);
      for (unsigned i = 0; i < turns; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    } else if (how < 97) {
      sched_yield();
    } else {
      nap(below(1500));
    }
  }

  Ask any_ask() {
    const auto place = static_cast<int>(below(static_cast<unsigned>(places().size())));
    const Place& p = places()[static_cast<std::size_t>(place)];
    if (p.breakable || !setting_.store.has(p)) return any_ask();  // only be_endangered() asks for the breakable
    if (p.above.size() == 1 && chance(60)) {  // a leaf of its own below an account: nodes come and go
      return {p.text + "/x" + std::to_string(below(setting_.scratch)), place, true};
    }
    if (p.parent < 0 && p.slots == 0 && !p.below.empty() && chance(60)) return any_ask();  // whole users less often
    return {setting_.store.shares(p) && chance(35) ? shared(p.target) : p.target, place, false};
  }

  // What many threads want at once, each by a lock on nothing else: so locks are handed over inside a process.
  Ask hot_ask() {
    static const int place = hot_place();
    return {places()[static_cast<std::size_t>(place)].target, place, false};
  }

  // A place whose locks others break.
  Ask dangerous_ask() {
    static const std::vector<int> all = breakable_places();
    const int place = all[below(static_cast<unsigned>(all.size()))];
    const Place& p = places()[static_cast<std::size_t>(place)];
    return {setting_.store.shares(p) && chance(60) ? shared(p.target) : p.target, place, false};
  }

  AcquireOptions any_options(bool bounded) {
    AcquireOptions options;
    const unsigned how = below(100);
    if (how < 15) {
      options.timeout = nanoseconds(0);
    } else if (how < 55 || bounded) {
      options.timeout = microseconds(100 + below(chance(20) ? 50'000 : 5'000));
    }
    if (chance(10))
      options.note = "a note of some length, so that it needs more than one block to be kept in the table";
    return options;
  }

  // --- what a lock makes us believe ---
  static void add(Inside& inside, const Ask& ask) {
    const Place& p = places()[static_cast<std::size_t>(ask.place)];
    const Modes intent = bit(ask.target.is_shared() ? Mode::IS : Mode::IX);
    inside.modes[static_cast<std::size_t>(ask.place)] |=
        ask.scratch ? intent : bit(ask.target.is_shared() ? Mode::S : Mode::X);
    for (const int above : p.above) inside.modes[static_cast<std::size_t>(above)] |= intent;
  }

  static std::string text(const std::vector<Ask>& asks) {
    std::string text;
    for (const Ask& ask : asks) text += (text.empty() ? "" : ", ") + ask.target.str();
    return text;
  }

  // Asks, and says what became of it; an error that ought not to be is a violation.
  std::optional<Held> acquire(const std::vector<Ask>& asks, const AcquireOptions& options, bool holding) {
    std::vector<Target> targets;
    for (const Ask& ask : asks) targets.push_back(ask.target);
    const std::int64_t start = now_ns();
    testimony_.state(State::acquiring);
    std::optional<Held> held;
    try {
      if (options.timeout && chance(50)) {
        auto lock = targets.size() == 1 ? locker_.try_acquire(targets.front(), *options.timeout, options)
                                        : locker_.try_acquire(targets, *options.timeout, options);
        if (lock) held.emplace(Held{std::move(*lock), {}, false});
      } else if (targets.size() == 1) {
        held.emplace(Held{locker_.acquire(targets.front(), options), {}, false});
      } else {
        held.emplace(Held{locker_.acquire(targets, options), {}, false});
      }
    } catch (const hierlock::Error& error) {
      const Place& first = places()[static_cast<std::size_t>(asks.front().place)];
      failed(error, text(asks), options, holding, asks.size() == 1 && !asks.front().scratch && first.parent < 0);
    }
    const std::int64_t end = now_ns();
    testimony_.state(holding || held ? State::holding : State::idle);
    look_at_time(text(asks), options, end - start);
    if (!held) {
      testimony_.row().timeouts.fetch_add(1, std::memory_order_relaxed);
      return held;
    }
    testimony_.row().grants.fetch_add(1, std::memory_order_relaxed);
    held->inside.granted_at = end;
    for (const Ask& ask : asks) add(held->inside, ask);
    if (!enter(*held)) {
      held.reset();
    } else if (setting_.store.at_a_server() && held->inside.fence % fences_of_a_grant != 0) {
      testimony_.row().handed_over.fetch_add(1, std::memory_order_relaxed);
    }
    return held;
  }

  // The fence, or none if the lock is lost, which only a break can do.
  std::optional<std::int64_t> fence_of(const Held& held) {
    try {
      return held.lock.fence();
    } catch (const hierlock::Error& error) {
      if (!testimony_.maybe_broken()) {
        testimony_.violation("lost: " + std::string(error.what()) + ", and nobody broke it: " + held.inside.text());
      }
      testimony_.row().losses.fetch_add(1, std::memory_order_relaxed);
      return std::nullopt;
    }
  }

  bool enter(Held& held) {
    const std::optional<std::int64_t> fence = fence_of(held);
    if (!fence) return false;
    held.inside.fence = *fence;
    if (rogue_ == Break::stale_fence) held.inside.fence = std::exchange(old_fence_, held.inside.fence);
    if (held.inside.fence == 0) held.inside.fence = *fence;
    testimony_.enter(held.inside);
    return true;
  }

  void failed(const hierlock::Error& error, const std::string& asked, const AcquireOptions& options, bool holding,
              bool one_node) {
    Row& row = testimony_.row();
    switch (error.kind()) {
      case ErrorKind::timeout:
      case ErrorKind::busy:
        if (options.timeout) return;
        break;
      case ErrorKind::deadlock:
        row.deadlocks.fetch_add(1, std::memory_order_relaxed);
        // Whoever asks for a single node and holds nothing is in nobody's way. (What was given to the releaser may
        // still be this thread's; and on the way down a path others can be met that hold what comes next.)
        if (holding || releaser_ || !one_node) return;
        break;
      case ErrorKind::lost:
        if (!holding || !testimony_.maybe_broken()) break;
        row.losses.fetch_add(1, std::memory_order_relaxed);
        return;
      case ErrorKind::exhausted:
        row.refusals.fetch_add(1, std::memory_order_relaxed);
        break;
      default:
        break;
    }
    testimony_.violation("error: " + std::string(to_string(error.kind())) + " for " + asked +
                         (holding ? " while holding" : "") + ": " + error.what());
  }

  void look_at_time(const std::string& asked, const AcquireOptions& options, std::int64_t took) {
    if (!options.timeout || nanoseconds(took) < *options.timeout + late_bound) return;
    testimony_.violation("late: " + asked + " with a timeout of " + std::to_string(options.timeout->count() / 1000) +
                         " us took " + std::to_string(took / 1'000'000) + " ms");
  }

  // --- what is done inside ---
  void use(Held& held) {
    std::vector<int> mine;  // exclusively held: to be counted in
    for (std::size_t place = 0; place < places().size(); ++place) {
      if ((held.inside.modes[place] & bit(Mode::X)) == 0 || places()[place].slots > 1) continue;
      if (places()[place].breakable) continue;  // its lock may be gone at any time
      mine.push_back(static_cast<int>(place));
      mine.insert(mine.end(), places()[place].below.begin(), places()[place].below.end());
    }
    for (unsigned round = 1 + below(3); round > 0; --round) {
      if (mine.empty()) {
        dawdle();
      } else {
        testimony_.count(mine[below(static_cast<unsigned>(mine.size()))], &held.inside, [this] { dawdle(); });
      }
      testimony_.look_again(held.inside);
    }
    if (rogue_ == Break::hang && (held.inside.modes[0] & bit(Mode::X)) != 0) pause();
  }

  void release(Held& held) {
    const std::optional<std::int64_t> fence = fence_of(held);
    if (fence && rogue_ != Break::stale_fence && *fence != held.inside.fence) {
      testimony_.violation("fence: another than at the grant: " + std::to_string(*fence) + "; " + held.inside.text());
    }
    testimony_.leave(held.inside);
    testimony_.state(State::releasing);
    if (releaser_ && chance(50)) {
      releaser_->take(std::move(held.lock));
    } else {
      held.lock.release();
    }
    testimony_.state(State::idle);
  }

  // --- the ways to lock ---
  void one(const Ask& ask) {
    std::optional<hierlock::Owner> owner;
    AcquireOptions options = any_options(releaser_.has_value());
    if (chance(10)) {
      owner.emplace(locker_.owner("a task"));
      options.owner = &*owner;
    }
    std::optional<Held> held = acquire({ask}, options, false);
    if (!held) return;
    use(*held);
    if (owner && chance(50)) held->lock.give_to_this_thread();
    release(*held);
  }

  void many() {
    std::vector<Ask> asks;
    for (unsigned count = 2 + below(3); count > 0; --count) asks.push_back(any_ask());
    std::optional<Held> held = acquire(asks, any_options(releaser_.has_value()), false);
    if (!held) return;
    use(*held);
    release(*held);
  }

  void grow() {
    Ask first = any_ask();
    Ask second = any_ask();
    const Place& place = places()[static_cast<std::size_t>(first.place)];
    if (!first.scratch && setting_.store.shares(place) && chance(40)) {  // an upgrade
      const Target& exclusive = place.target;
      first.target = shared(exclusive);
      second = {exclusive, first.place, false};
    }
    std::optional<Held> held = acquire({first}, any_options(releaser_.has_value()), false);
    if (!held) return;
    use(*held);
    if (extend(*held, second)) use(*held);
    if (!held->given_up) release(*held);
  }

  // Locks that others break at any moment, while they are extended, fail to be, are given away and released. Who loses
  // one finds it lost; nobody else may notice anything.
  void be_endangered() {
    const auto ask = [&] {
      Ask dangerous = dangerous_ask();
      testimony_.endanger(dangerous.place);
      return dangerous;
    };
    std::vector<Ask> asks{ask()};
    if (chance(20)) asks.push_back(ask());
    std::optional<Held> held = acquire(asks, any_options(true), false);
    for (unsigned more = below(4); held && !held->given_up && more > 0; --more) {
      use(*held);
      extend(*held, ask());
    }
    if (held && !held->given_up) {
      dawdle();
      release(*held);
    }
    testimony_.endanger_no_more();
  }

  void break_somebody() {
    static const std::vector<int> all = breakable_places();
    const int place = all[below(static_cast<unsigned>(all.size()))];
    testimony_.begin_break(place);
    std::size_t broken = 0;
    try {
      broken = locker_.break_locks(places()[static_cast<std::size_t>(place)].target, "the storm");
    } catch (const hierlock::Error& error) {  // somebody was stopped in the middle of an extend or a hand-over
      if (error.kind() != ErrorKind::unavailable) throw;
      testimony_.row().late_breaks.fetch_add(1, std::memory_order_relaxed);
    }
    testimony_.end_break();
    testimony_.row().breaks.fetch_add(broken, std::memory_order_relaxed);
  }

  bool extend(Held& held, const Ask& ask) {
    // Where every handle is an owner, nobody can see a cycle.
    const AcquireOptions options = any_options(per_handle_ || releaser_.has_value());
    const std::int64_t start = now_ns();
    testimony_.begin_extend();
    testimony_.state(State::extending);
    std::optional<ErrorKind> error;
    try {
      held.lock.extend(ask.target, options);
    } catch (const hierlock::Error& e) {
      error = e.kind();
      failed(e, "an extend to " + ask.target.str(), options, true, false);
    }
    Inside more;
    more.granted_at = now_ns();
    std::optional<std::int64_t> fence;
    if (!error) fence = fence_of(held);
    if (error == ErrorKind::deadlock || error == ErrorKind::lost || (!error && !fence)) {
      if (error == ErrorKind::deadlock) {
        testimony_.lost_by_extend(held.inside);
      } else {
        testimony_.broken_in_extend(held.inside);
      }
      held.given_up = true;
      testimony_.state(State::idle);
      if (held.lock.held())
        testimony_.violation("extend: deadlock or lost, and the lock is still held: " + ask.target.str());
      held.lock.release();
      return false;
    }
    if (error) {
      testimony_.not_extended();
    } else {
      testimony_.row().grants.fetch_add(1, std::memory_order_relaxed);
      add(more, ask);
      more.fence = *fence;
      if (rogue_ == Break::stale_fence) more.fence = held.inside.fence + 1;
      testimony_.extended(held.inside, more);
    }
    testimony_.state(State::holding);
    look_at_time("an extend to " + ask.target.str(), options, more.granted_at - start);
    testimony_.look_again(held.inside);
    return !error;
  }

  void nest() {
    std::optional<Held> outer = acquire({any_ask()}, any_options(releaser_.has_value()), false);
    if (!outer) return;
    use(*outer);
    std::optional<Held> inner = acquire({any_ask()}, any_options(per_handle_ || releaser_.has_value()), true);
    if (inner) {
      use(*inner);
      if (chance(50)) std::swap(*inner, *outer);
      release(*inner);
      testimony_.state(State::holding);
    }
    testimony_.look_again(outer->inside);
    release(*outer);
  }

  void look() {
    (void)locker_.snapshot();
    testimony_.row().looks.fetch_add(1, std::memory_order_relaxed);
  }

  // --- what must not be ---
  void be_rogue() {
    if (rogue_ == Break::nothing || !chance(20)) return;
    switch (rogue_) {
      case Break::unlocked_write:
        testimony_.count(0, nullptr, [this] { dawdle(); });
        break;
      case Break::unlocked_entry:
      case Break::extra_slot: {
        const std::size_t place = rogue_ == Break::unlocked_entry ? 0 : places().size() - 2;
        Inside inside;
        inside.modes[place] = bit(Mode::X);
        // Twice: of the slots it takes both, and whoever has one sees three.
        testimony_.trespass(inside, [&] { testimony_.trespass(inside, [] { nap(300); }); });
        break;
      }
      case Break::lost_write: {
        // A single slot, where there are any, or a whole user: nobody can share it.
        const std::size_t place = setting_.store.can.slots ? places().size() - 3 : 0;
        const Lock lock = locker_.acquire(places()[place].target);
        const std::uint64_t before = witness_.all().counters[place].value;
        testimony_.count(static_cast<int>(place), nullptr, [this] { dawdle(); });
        witness_.all().counters[place].value = before;
        break;
      }
      case Break::unsaid_break:  // as if a break had taken away another lock than the named one
        (void)locker_.break_locks(places()[below(3)].target, "nobody said so");
        break;
      case Break::crash:
        std::abort();
      default:
        break;
    }
  }

  const Witness& witness_;
  const Setting& setting_;
  const Testimony testimony_;
  std::mt19937_64 random_;
  const Break rogue_;
  const bool per_handle_;
  Locker& locker_;
  static inline thread_local const Worker* of_this_thread_ = nullptr;
  std::optional<Releaser> releaser_;
  std::int64_t old_fence_ = 0;
};

}  // namespace

void work(const Witness& witness, const Setting& setting, std::size_t process) {
  const std::size_t first = setting.first_worker(process);
  const auto told = [&](std::size_t worker, const auto& what) {
    try {
      what();
    } catch (const std::exception& error) {
      witness.violation("error: " + std::string(error.what()) + "\n  by " + witness.about(worker));
    }
  };
  told(first, [&] {
    stop_oneself_now_and_then(witness, witness.row(first), setting.seed * 31 + first, setting.own_stops);
    std::mt19937_64 random = random_for(witness, setting, first);
    const bool per_handle = random() % 100 < 10;
    // Some do not listen, because listening costs time at the moment the wait begins.
    const bool listens = random() % 100 >= 15;
    hierlock::OpenOptions options;
    options.owners = per_handle ? hierlock::Owners::per_handle : hierlock::Owners::per_thread;
    if (listens) options.on_event = Worker::notice;
    Locker locker = hierlock::open(setting.store.url, options);
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < setting.threads; ++i) {
      others.emplace_back([&, worker = first + i] {
        told(worker, [&] { Worker(witness, setting, worker, locker, per_handle).run(); });
      });
    }
    Worker(witness, setting, first, locker, per_handle).run();
  });
}

}  // namespace storm
