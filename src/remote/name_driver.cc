#include "remote/name_driver.h"

#include <poll.h>

#include <algorithm>
#include <map>
#include <utility>

#include "plan/sha256.h"

namespace hierlock::remote {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Clock::time_point never = Clock::time_point::max();
// How long a request with no_wait waits for a store that says nothing.
constexpr seconds longest_try{2};
constexpr milliseconds usual_answer{30};
constexpr milliseconds longest_clear{900}, shortest_end{100};
// A wait at the store lasts so long at most, and is begun anew. So the wait of a machine that has vanished ends (B5).
// The first: while others wait for an usher.
constexpr seconds short_slice{1}, long_slice{10};
// Between two looks of a request that has no usher. The third: of one that is the first in line for slots; of all
// processes only that one looks.
constexpr milliseconds first_pause{2}, longest_pause{50}, longest_slots_pause{10};
constexpr int most_failures = 5;
// Names of which the holder is asked for in one statement, to confirm deadlocks.
constexpr std::size_t most_confirmed = 200, most_slots_confirmed = 32;

std::stop_token cancel_of(const spi::Request& request) {
  return request.cancel != nullptr ? *request.cancel : std::stop_token();
}

// False: the wait has ended.
bool rest(LockWait& wait, Clock::duration time) {
  const Clock::time_point end = Clock::now() + time;
  for (;;) {
    const std::optional<Clock::duration> next = wait.next();
    if (!next || wait.ended()) return false;
    const Clock::duration left = end - Clock::now();
    if (left <= Clock::duration::zero()) return true;
    const auto some = std::chrono::duration_cast<milliseconds>(std::min<Clock::duration>(*next, left));
    pollfd fd{wait.wake(), POLLIN, 0};
    poll(&fd, wait.wake() < 0 ? 0 : 1, static_cast<int>(std::min<milliseconds>(some, longest_pause).count()) + 1);
  }
}

// What a wait that has ended comes to.
Driver::Answer answer_of(const LockWait& wait, const Ask& ask) {
  if (wait.victim()) wait.throw_deadlock();
  if (wait.cancelled()) throw cancelled_error("waiting for", ask.plan);
  return wait.lets_pass() ? Driver::Answer::full : Driver::Answer::not_in_time;
}

// The first bytes of a hash. A thread often asks for one name again and again, and hashing it takes a microsecond.
std::uint64_t number_of(std::string_view key) {
  thread_local std::string last;
  thread_local std::optional<std::uint64_t> number;
  if (number && last == key) return *number;
  number.reset();
  last = key;
  const plan::Digest digest = plan::sha256(key);
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < 8; ++i) first = first << 8 | digest[i];
  number = first;
  return first;
}

Cell cell_of_name(Space space, std::string_view key, Mode mode) {
  return {space == Space::name ? name_level : slots_level, number_of(key), mode};
}

bool has_paths(const spi::Plan& plan) {
  return std::any_of(plan.steps().begin(), plan.steps().end(), [](auto& step) { return step.space == Space::path; });
}

}  // namespace

// --- what is held ----------------------------------------------------------------------------------------

class NameDriver::NameHold final : public Hold {
 public:
  NameHold(std::uint64_t number, std::vector<Taken> taken) : number_(number), taken_(std::move(taken)) {}
  ~NameHold() override { forget(); }

  std::uint64_t session() const noexcept override { return part() != nullptr ? part()->session() : number_; }
  bool surely() const noexcept override {
    if (gone() || released.load() || !part_surely()) return false;
    const std::lock_guard guard(mutex_);
    return std::all_of(taken_.begin(), taken_.end(), [](const Taken& one) { return one.on->surely(); });
  }
  bool keeps(const Cell& cell) const override {
    if (Hold::keeps(cell)) return true;
    const std::lock_guard guard(mutex_);
    return std::any_of(taken_.begin(), taken_.end(), [&](const Taken& one) {
      return !one.on->ended.load() && same_place(cell, cell_of_name(one.name.space, one.name.key, Mode::X));
    });
  }
  // From now on it is told if a session ends.
  void listen() {
    const std::lock_guard guard(mutex_);
    for (const Taken& one : taken_) listen_to(one);
  }
  // If it throws, `more` is as it was.
  void add(std::vector<Taken>& more) {
    const std::lock_guard guard(mutex_);
    taken_.reserve(taken_.size() + more.size());
    try {
      for (const Taken& one : more) listen_to(one);
    } catch (...) {
      for (const Taken& one : more) {
        const auto same = [&](const Taken& known) { return known.on == one.on; };
        if (std::none_of(taken_.begin(), taken_.end(), same)) one.on->remove(*this);
      }
      throw;
    }
    std::move(more.begin(), more.end(), std::back_inserter(taken_));
    more.clear();
  }
  // Nobody is told of its loss any more.
  void park() noexcept {
    released = true;
    forget();
  }
  bool has(const LockName& name) const noexcept {
    const std::lock_guard guard(mutex_);
    return std::any_of(taken_.begin(), taken_.end(),
                       [&](const Taken& one) { return one.name.space == name.space && one.name.key == name.key; });
  }
  // The names are another's to give back.
  std::vector<Taken> take_out() noexcept {
    forget();
    const std::lock_guard guard(mutex_);
    return std::exchange(taken_, {});
  }

  std::atomic<bool> released{false};  // by its holder: its loss is nobody's any more

 private:
  void listen_to(const Taken& one) {
    if (!one.on->add(*this)) declare_lost();
  }
  void forget() noexcept {
    const std::lock_guard guard(mutex_);
    for (const Taken& one : taken_) one.on->remove(*this);
  }

  const std::uint64_t number_;
  mutable timed::BriefMutex mutex_;  // guards what follows
  std::vector<Taken> taken_;
};

NameDriver::NameHold* NameDriver::names_in(Hold& hold) noexcept {
  auto* const names = dynamic_cast<NameHold*>(&hold);
  return names != nullptr || hold.part() == nullptr ? names : dynamic_cast<NameHold*>(hold.part());
}

SessionHold* NameDriver::paths_in(Hold& hold) noexcept {
  auto* const paths = dynamic_cast<SessionHold*>(&hold);
  return paths != nullptr || hold.part() == nullptr ? paths : dynamic_cast<SessionHold*>(hold.part());
}

// --- ushers ----------------------------------------------------------------------------------------------

// Ends the wait of an usher, from a session on the side.
class NameDriver::Waiting final : public Interrupter {
 public:
  explicit Waiting(NameDriver& driver) : driver_(driver) {}
  bool interrupt(Deadline& limit) override {
    if (session == nullptr) return false;  // nothing waits at the store, so there are no last words to wait for
    bool unanswered = false;
    const auto use = [&](Session& side) {
      if (side.server() != session->server()) return false;  // another server has other sessions by that number
      const bool done = driver_.store_.interrupt(side, *session, limit);
      if (!limit.next()) unanswered = true;  // it may still come to pass, and hit a later statement
      return done;
    };
    return driver_.pool_.urgently_on_the_side(use, limit) && !unanswered;
  }
  const Session* session = nullptr;

 private:
  NameDriver& driver_;
};

// An usher of one request. It goes back when the request is over.
class NameDriver::Usher {
 public:
  explicit Usher(NameDriver& driver) : driver_(driver) {}
  ~Usher() { leave(); }
  Usher(const Usher&) = delete;
  Usher& operator=(const Usher&) = delete;

  NameSession* get() const noexcept { return session_.get(); }

  // Takes one that is idle, or makes one. False: all are in use, or none can be had now.
  bool take(LockWait& wait) {
    for (;;) {
      {
        const std::lock_guard guard(driver_.ushers_);
        if (driver_.idle_ushers_.empty()) {
          if (driver_.closed_ || driver_.open_ushers_ >= most_ushers) return false;
          ++driver_.open_ushers_;
          break;
        }
        session_ = std::move(driver_.idle_ushers_.back());
        driver_.idle_ushers_.pop_back();
      }
      Session& session = session_->session();
      Deadline soon(longest_clear);
      if (!session.broken() && session_->cleared(soon) && !session.hung_up() &&
          driver_.pool_.trusts(session.server())) {
        return true;
      }
      drop();
    }
    try {
      session_ = driver_.store_.name_session(driver_.pool_.connect(wait), NameStore::Use::usher, wait);
    } catch (...) {  // too many connections, or no server: its keeper is asked instead, and tells
    }
    if (session_ == nullptr) drop();
    return session_ != nullptr;
  }
  // Gives back what it holds, and waits for the answer. False: the session is closed.
  bool clear() noexcept {
    Deadline soon(longest_clear);
    session_->begin_clear();
    if (!session_->session().broken() && session_->cleared(soon)) return true;
    session_->session().give_up();
    drop();
    return false;
  }
  // Another request may have it. What it holds is given back soon.
  void leave() noexcept {
    if (session_ == nullptr) return;
    session_->begin_clear();
    const std::lock_guard guard(driver_.ushers_);
    if (session_->session().broken() || driver_.closed_) {
      session_.reset();
      --driver_.open_ushers_;
    } else {
      driver_.idle_ushers_.push_back(std::move(session_));  // there is room
    }
  }

 private:
  void drop() noexcept {
    if (session_ != nullptr) session_->session().give_up();
    session_.reset();
    const std::lock_guard guard(driver_.ushers_);
    --driver_.open_ushers_;
  }

  NameDriver& driver_;
  std::unique_ptr<NameSession> session_;
};

// A request waits for a name.
class NameDriver::Waits {
 public:
  Waits(NameDriver& driver, std::uint64_t number, const LockName& name) : driver_(driver), number_(number) {
    const std::lock_guard guard(driver_.waits_mutex_);
    driver_.waits_.insert_or_assign(number_, name);
  }
  ~Waits() {
    const std::lock_guard guard(driver_.waits_mutex_);
    driver_.waits_.erase(number_);
  }
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

 private:
  NameDriver& driver_;
  const std::uint64_t number_;
};

// --- the driver ------------------------------------------------------------------------------------------

NameDriver::NameDriver(std::unique_ptr<SessionDriver> paths, NameStore& store, const SessionDriver::Timing& timing)
    : store_(store), paths_(std::move(paths)), pool_(paths_->pool()) {
  idle_ushers_.reserve(most_ushers);
  for (std::size_t i = 0; i < most_keepers; ++i) {
    keepers_.push_back(std::make_unique<Keeper>(store_, pool_, timing.lease, timing.ask_after));
  }
}

NameDriver::~NameDriver() = default;

Capabilities NameDriver::capabilities() const {
  Capabilities all = paths_->capabilities();
  all.names = true;
  all.slots = true;
  all.sliced_names = true;
  return all;
}

void NameDriver::check(const spi::Plan& plan) const {
  paths_->check(plan);
  refuse_shared_names(plan);
}

void refuse_shared_names(const spi::Plan& plan) {
  for (const spi::Step& step : plan.steps()) {
    if (step.space == Space::path || step.mode == Mode::X) continue;
    throw Error(ErrorKind::unsupported,
                "shared " + spi::describe_key(step.space, step.key) + ": names cannot be shared on this store");
  }
}

Cell NameDriver::cell_of(Space space, std::uint8_t level, std::string_view key, Mode mode) const {
  if (space == Space::path) return paths_->cell_of(space, level, key, mode);
  return cell_of_name(space, key, mode);
}

// No view shows who waits for a name, but everybody may ask who holds one. So a notice of its holder is confirmed.
std::optional<View> NameDriver::waits(Deadline& limit) {
  std::optional<View> view = paths_->waits(limit);
  if (!view) return view;
  std::vector<std::uint64_t> numbers;
  std::vector<LockName> names;
  {
    const std::lock_guard guard(waits_mutex_);
    for (const auto& [number, name] : waits_) {
      if (name.slots > most_slots_confirmed || names.size() >= most_confirmed) continue;
      numbers.push_back(number);
      names.push_back(name);
    }
  }
  if (names.empty()) return view;
  std::optional<NameStore::Holders> holders;
  pool_.on_the_side(
      [&](Session& side) {
        holders = store_.holders(side, names, limit);
        return !side.broken();
      },
      limit);
  for (std::size_t i = 0; holders && i < numbers.size(); ++i) {
    if (!holders->at(i).empty()) view->name_holders.emplace(numbers[i], std::move(holders->at(i)));
  }
  return view;
}

void NameDriver::housekeep(Deadline& limit) {
  if (std::any_of(keepers_.begin(), keepers_.end(), [](const auto& keeper) { return keeper->in_use(); })) {
    pool_.note_use();
  }
  paths_->housekeep(limit);
}

void NameDriver::end(Clock::time_point by) noexcept {
  by = std::max(by, Clock::now() + shortest_end);  // for all of them together
  for (const auto& keeper : keepers_) keeper->begin_to_end(by);
  for (const auto& keeper : keepers_) keeper->end(by);
  {
    const std::lock_guard guard(ushers_);
    closed_ = true;
    open_ushers_ -= idle_ushers_.size();
    idle_ushers_.clear();
  }
  paths_->end(by);
}

std::uint64_t NameDriver::new_number(std::uint64_t session) noexcept {
  return number_of_names(session, numbers_.fetch_add(1));
}

// In the one order.
std::vector<NameDriver::Wanted> NameDriver::wanted(const spi::Plan& plan) const {
  std::vector<Wanted> names;
  for (const spi::Step& step : plan.steps()) {
    if (step.space == Space::path) continue;
    const Cell cell = cell_of(step.space, step.level, step.key, step.mode);
    names.push_back({{step.space, std::string(step.key), step.slots}, cell, keepers_[cell.key % most_keepers].get()});
  }
  std::sort(names.begin(), names.end(), in_order);
  return names;
}

// --- taking ----------------------------------------------------------------------------------------------

Driver::Granted NameDriver::grant(const Ask& ask) {
  const std::vector<Wanted> names = wanted(ask.plan);
  if (names.empty()) return paths_->grant(ask);
  Granted granted;
  if (has_paths(ask.plan)) {
    granted = paths_->grant(ask);
    if (granted.answer != Answer::granted) return granted;
  }
  Holding holding;
  try {
    const std::uint64_t number = granted.hold != nullptr ? granted.hold->session() : 0;
    const Answer answer = take_all(ask, names, number, holding);
    if (answer == Answer::granted) {
      auto hold = std::make_shared<NameHold>(new_number(holding.taken.front().on->id), holding.taken);
      granted.answer = answer;
      granted.fence = std::max(granted.fence, holding.fence);
      for (const Wanted& name : names) {
        granted.cells.push_back(name.cell);
        granted.cells.back().mode = cell_mode(Mode::X, name.name.slots);
      }
      if (granted.hold != nullptr) granted.hold->attach(hold);
      hold->listen();
      if (granted.hold == nullptr) granted.hold = std::move(hold);
      return granted;
    }
    if (granted.hold != nullptr) paths_->give_back(granted.hold, Clock::now() + longest_clear);
    return {.answer = answer};
  } catch (...) {
    give_back(holding.taken);
    if (granted.hold != nullptr) paths_->give_back(granted.hold, Clock::now() + longest_clear);
    throw;
  }
}

// All or nothing. `number` names the request to others if it has to wait; 0: it gets one.
Driver::Answer NameDriver::take_all(const Ask& ask, const std::vector<Wanted>& names, std::uint64_t number,
                                    Holding& holding) {
  try {
    const Answer answer = take_in_order(ask, names, number, holding);
    if (answer != Answer::granted) give_back(holding.taken);
    return answer;
  } catch (...) {
    give_back(holding.taken);  // H8
    throw;
  }
}

Driver::Answer NameDriver::take_in_order(const Ask& ask, const std::vector<Wanted>& names, std::uint64_t number,
                                         Holding& holding) {
  // However short its time is, a request gets a name that is free: the answer takes less than this.
  const Clock::time_point end = ask.request.no_wait
                                    ? Clock::now() + longest_try
                                    : std::max(ask.request.deadline.value_or(never), Clock::now() + usual_answer);
  holding.taken.reserve(names.size());
  int disagreements = 0;
  for (std::size_t first = 0; first < names.size(); ++first) {
    // The request asks for all names that are left, without waiting. It gives back those that were granted after one
    // that was not: a request that waits has taken its names in order.
    const std::span<const Wanted> left(names.begin() + static_cast<std::ptrdiff_t>(first), names.end());
    const std::vector<Keeper::JobPtr> asked = ask_keepers(ask, left, NameOp::Kind::take, end);
    if (asked.empty()) return Answer::not_in_time;
    const auto is_granted = [](const auto& job) { return job->result.kind == NameResult::Kind::granted; };
    const auto first_refused = std::find_if_not(asked.begin(), asked.end(), is_granted);
    const auto granted = static_cast<std::size_t>(first_refused - asked.begin());
    const std::size_t before = holding.taken.size();
    try {
      for (std::size_t i = 0; i < granted; ++i) keep(left[i], *asked[i], holding);
    } catch (...) {
      abandon(left, asked);
      throw;
    }
    if (granted < left.size()) abandon(left, asked);
    // Only now: a fence may have to be refused, and then all that was granted is known.
    for (std::size_t i = 0; i < granted; ++i) mint(holding.taken[before + i], *asked[i], holding);
    if (granted == left.size()) return Answer::granted;
    const Wanted& name = left[granted];
    const NameResult& result = (*first_refused)->result;
    if (result.kind == NameResult::Kind::disagrees) {
      refuse_disagreement(name, result.slot, ++disagreements >= most_failures);
      first += granted - 1;  // that holder has left: once more
      continue;
    }
    if (ask.request.no_wait) return Answer::not_in_time;
    const Answer answer = wait_for(ask, name, number, holding);
    if (answer != Answer::granted) return answer;
    first += granted;
  }
  return Answer::granted;
}

// Asks for all of them, without waiting for anybody. Empty: there was no answer in time. If one of them failed, none is
// held, and it throws.
std::vector<Keeper::JobPtr> NameDriver::ask_keepers(const Ask& ask, std::span<const Wanted> names, NameOp::Kind kind,
                                                    Clock::time_point end) {
  const auto call = std::make_shared<NameCall>();
  std::vector<Keeper::JobPtr> jobs;
  jobs.reserve(names.size());
  for (const Wanted& name : names) jobs.push_back(std::make_shared<Keeper::Job>(Keeper::Job{{kind, name.name}}));
  bool all = false;
  try {
    const Keeper::Help help{end, cancel_of(ask.request)};
    if (jobs.size() == 1) {
      names[0].keeper->submit(jobs, call, &help);
    } else {
      std::map<Keeper*, std::vector<Keeper::JobPtr>> by_keeper;
      for (std::size_t i = 0; i < jobs.size(); ++i) by_keeper[names[i].keeper].push_back(jobs[i]);
      for (const auto& [keeper, its] : by_keeper) {
        keeper->submit(its, call, by_keeper.size() == 1 ? &help : nullptr);
      }
    }
    all = call->wait(end, cancel_of(ask.request));
  } catch (...) {
    abandon(names, jobs);
    throw;
  }
  if (all) {
    const auto failed = std::find_if(jobs.begin(), jobs.end(), [](const auto& job) { return job->error != nullptr; });
    if (failed != jobs.end()) {
      abandon(names, jobs);
      std::rethrow_exception((*failed)->error);
    }
  } else {
    abandon(names, jobs);
    if (cancel_of(ask.request).stop_requested()) throw cancelled_error("asking for", ask.plan);
    if (ask.request.no_wait) {
      throw Error(ErrorKind::unavailable, "the server does not answer. It may do so again: try again");
    }
    return {};
  }
  return jobs;
}

// Nobody waits for them any more. What they were granted, and nobody keeps, is given back.
void NameDriver::abandon(std::span<const Wanted> names, std::span<const Keeper::JobPtr> jobs) noexcept {
  for (std::size_t i = 0; i < jobs.size(); ++i) names[i].keeper->abandon(jobs[i]);
}

// What the job was granted. There is room for it. If there is no memory for the name, the job has it still.
void NameDriver::keep(const Wanted& name, Keeper::Job& job, Holding& holding) {
  holding.taken.push_back({name.name, job.result.slot, std::move(job.session), name.keeper});
}

void NameDriver::mint(const Taken& taken, const Keeper::Job& job, Holding& holding) {
  holding.fence = std::max(holding.fence, taken.on->minter->fence_of(job.result.minted));
}

bool NameDriver::take_once(const Ask& ask, const Wanted& name, NameOp::Kind kind, Clock::time_point end,
                           Holding& holding) {
  const std::vector<Keeper::JobPtr> asked = ask_keepers(ask, {&name, 1}, kind, end);
  if (asked.empty()) return false;
  const NameResult& result = asked[0]->result;
  if (result.kind == NameResult::Kind::disagrees) refuse_disagreement(name, result.slot, false);
  if (result.kind != NameResult::Kind::granted) return false;
  try {
    keep(name, *asked[0], holding);
  } catch (...) {
    abandon({&name, 1}, asked);
    throw;
  }
  mint(holding.taken.back(), *asked[0], holding);
  return true;
}

// It is taken, or somebody waits for it.
Driver::Answer NameDriver::wait_for(const Ask& ask, const Wanted& name, std::uint64_t number, Holding& holding) {
  using At = NameSession::At;
  const Clock::time_point deadline = ask.request.deadline.value_or(never);
  Waiting waiting(*this);
  if (number == 0) number = new_number(name.keeper->session());
  const Waits told(*this, number, name.name);
  LockWait wait(ask, number, waiting, longest_try, LockWait::Victim::may_be);
  Usher usher(*this);
  At at = At::line;
  Clock::duration pause = first_pause;
  const auto pause_longer = [&] { pause = std::min<Clock::duration>(2 * pause, longest_pause); };
  Clock::time_point usher_since{}, usher_again{};
  // Others have none, and this one has had its time. They look every now and then, so it is left to them for a while.
  const auto pass_on = [&] {
    if (in_line_.load() == 0 || Clock::now() - usher_since < short_slice) return;
    usher.leave();
    usher_again = Clock::now() + 2 * longest_pause;
    at = At::line;
    pause = first_pause;
  };
  for (int failures = 0;;) {
    if (!rest(wait, {})) return answer_of(wait, ask);
    if (usher.get() == nullptr && Clock::now() >= usher_again && usher.take(wait)) {
      usher_since = Clock::now();
      at = At::line;
    }
    if (wait.ended()) return answer_of(wait, ask);
    if (usher.get() == nullptr) {
      in_line_.fetch_add(1);
      const bool goes_on = rest(wait, pause);
      in_line_.fetch_sub(1);
      if (!goes_on) return answer_of(wait, ask);
      if (take_once(ask, name, NameOp::Kind::take, deadline, holding)) return Answer::granted;
      pause_longer();
      continue;
    }
    NameSession& session = *usher.get();
    NameSession::Waited waited{.at = at};
    if (name.name.slots == 0 || at == At::line) {
      waiting.session = &session.session();
      waited = session.wait(name.name, at, in_line_.load() > 0 ? short_slice : long_slice, wait);
      waiting.session = nullptr;
    }
    if (waited.code != 0 || wait.ended() || session.session().broken()) {
      usher.clear();
      at = At::line;
      if (wait.ended()) return answer_of(wait, ask);
      // A session that was ended from outside, or a statement.
      const Error error = store_.name_failure(waited.code, waited.message, "lock " + spi::describe(ask.plan.steps()));
      if (error.kind() == ErrorKind::deadlock || ++failures > most_failures) throw error;
      continue;
    }
    at = waited.at;
    if (at == At::line) {
      pass_on();
      continue;
    }
    if (name.name.slots != 0) {
      Deadline soon(longest_try);
      const std::optional<bool> free = session.any_free(name.name, soon);
      if (free && *free && take_once(ask, name, NameOp::Kind::take_inside, deadline, holding)) return Answer::granted;
      if (!free) {
        usher.clear();
        at = At::line;
      }
      if (!rest(wait, std::min<Clock::duration>(pause, longest_slots_pause))) return answer_of(wait, ask);
      pause_longer();
      if (usher.get() != nullptr) pass_on();
      continue;
    }
    if (at == At::turnstile) {
      pass_on();
      continue;
    }
    // It has the lock, which moves to the keeper while nobody else can pass the turnstile.
    Deadline soon(longest_try);
    if (!session.step_back(name.name, soon)) {  // it may have the lock still
      usher.clear();
      at = At::line;
      if (++failures > most_failures) {
        throw Error(ErrorKind::unavailable, "the name could not be moved to the session that keeps it. Try again");
      }
      continue;
    }
    if (take_once(ask, name, NameOp::Kind::take_inside, Clock::now() + longest_try, holding)) return Answer::granted;
    at = At::turnstile;
  }
}

// Throws what names both numbers (M7). If the other one is not known, or is the same, the slot has another holder
// since; then it throws only if that is `enough`.
void NameDriver::refuse_disagreement(const Wanted& name, std::uint32_t slot, bool enough) {
  std::optional<std::uint32_t> others;
  Deadline soon(longest_try);
  pool_.on_the_side(
      [&](Session& side) {
        others = store_.slots_of_holder(side, name.name, slot, soon);
        return !side.broken();
      },
      soon);
  if (others == name.name.slots) others.reset();
  if (!others && !enough) return;
  const std::string what = spi::describe_key(name.name.space, name.name.key);
  throw Error(ErrorKind::incompatible,
              what + " is asked for with " + std::to_string(name.name.slots) + " slots, and another process holds it " +
                  (others ? "with " + std::to_string(*others) : std::string("with another number")) +
                  "; use one number everywhere");
}

// --- extend ----------------------------------------------------------------------------------------------

void NameDriver::extend(Hold& hold, const Ask& ask, Extended& result) {
  std::vector<Wanted> names = wanted(ask.plan);
  SessionHold* const rows = paths_in(hold);
  if (names.empty() && rows != nullptr) return paths_->extend(*rows, ask, result);
  // A lock has a name, or a slot of one, once.
  std::optional<Wanted> known;
  if (const NameHold* const has = names_in(hold)) {
    const auto old = std::partition(names.begin(), names.end(), [&](const Wanted& one) { return !has->has(one.name); });
    if (old != names.end()) known = *old;
    names.erase(old, names.end());
    std::sort(names.begin(), names.end(), in_order);
  }
  std::shared_ptr<Hold> new_rows;
  std::int64_t fence = 0;
  if (has_paths(ask.plan)) {
    if (rows != nullptr) {
      paths_->extend(*rows, ask, result);
      if (!result.granted) return;
      result.granted = false;
      fence = result.fence;
    } else {
      Granted granted = paths_->grant(ask);
      if (granted.answer != Answer::granted) return;
      new_rows = std::move(granted.hold);
      fence = granted.fence;
    }
  }
  const auto undo = [&]() noexcept {
    if (new_rows != nullptr) paths_->give_back(std::move(new_rows), Clock::now() + longest_clear);
  };
  Holding holding;
  try {
    if (!names.empty() && take_all(ask, names, hold.session(), holding) != Answer::granted) return undo();
    if (names.empty() && fence == 0) {
      const std::vector<Keeper::JobPtr> asked =
          ask_keepers(ask, {&*known, 1}, NameOp::Kind::mint, Clock::now() + longest_try);
      if (asked.empty()) {
        if (Clock::now() >= ask.request.deadline.value_or(never)) return;
        throw Error(ErrorKind::unavailable, "the server does not answer. It may do so again: try again");
      }
      holding.fence = asked[0]->session->minter->fence_of(asked[0]->result.minted);
    }
    if (NameHold* const has = names_in(hold)) {
      has->add(holding.taken);
    } else if (!names.empty()) {
      auto added = std::make_shared<NameHold>(new_number(holding.taken.front().on->id), holding.taken);
      added->listen();
      hold.attach(std::move(added));  // if it was lost meanwhile, so is the whole
    }
    if (new_rows != nullptr) hold.attach(std::move(new_rows));
  } catch (...) {
    give_back(holding.taken);
    undo();
    throw;
  }
  result.leftover = Extended::Leftover::none;
  result.fence = std::max(fence, holding.fence);
  result.granted = true;
}

// --- give back -------------------------------------------------------------------------------------------

bool NameDriver::give_back(std::vector<Taken>& taken) noexcept {
  bool told = true;
  for (const Taken& one : taken) told = one.keeper->give_back(one.name, one.slot, one.on) && told;
  taken.clear();
  return told;
}

bool NameDriver::give_back(std::shared_ptr<Hold> hold, Clock::time_point by) noexcept {
  bool told = true;
  if (NameHold* const names = names_in(*hold)) {
    names->released = true;
    std::vector<Taken> taken = names->take_out();
    told = give_back(taken);
  }
  if (SessionHold* const rows = paths_in(*hold)) {
    std::shared_ptr<Hold> its = rows == hold.get() ? hold : hold->shared_part();
    told = paths_->give_back(std::move(its), by) && told;
  }
  return told;
}

// A lock of both is given back: it is rare.
bool NameDriver::park(Hold& hold) noexcept {
  if (hold.part() != nullptr) return false;
  NameHold* const names = names_in(hold);
  if (names == nullptr) return paths_->park(hold);
  if (!names->surely()) return false;
  names->park();
  return true;
}

std::shared_ptr<Hold> NameDriver::resume(Hold& hold, std::uint64_t owner) {
  NameHold* const names = names_in(hold);
  if (names == nullptr) return paths_->resume(hold, owner);
  std::vector<Taken> taken = names->take_out();
  const bool held = !taken.empty() && std::all_of(taken.begin(), taken.end(), [this](const Taken& one) {
    return one.on->surely() && pool_.trusts(one.on->server);
  });
  std::shared_ptr<NameHold> next;
  try {
    if (held) next = std::make_shared<NameHold>(new_number(taken.front().on->id), taken);
    if (next != nullptr) next->listen();
  } catch (...) {
    next = nullptr;
  }
  if (next == nullptr) give_back(taken);
  return next;
}

void NameDriver::lose(Hold& hold) {
  if (SessionHold* const rows = paths_in(hold)) {
    paths_->lose(*rows);
  } else {
    hold.declare_lost();
  }
}

void NameDriver::give(Hold& hold, std::uint64_t to) {
  if (SessionHold* const rows = paths_in(hold)) paths_->give(*rows, to);
}

}  // namespace hierlock::remote
