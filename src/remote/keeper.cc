#include "remote/keeper.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace hierlock::remote {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds longest_connect{5}, idle_kept{60};
constexpr milliseconds look_interval{250}, longest_untended{1'000}, last_words{500};
// While an answer may be left to the thread. It reads one that was there at two looks.
constexpr milliseconds watch_interval{5};
constexpr milliseconds helping_interval{5};  // in which a request that can be cancelled looks for that
// In one statement. A question for slots names each of them, so it counts by their number.
constexpr std::size_t most_jobs = 100, most_slots = 2'000;
constexpr int most_tries = 3;

Error session_ended() {
  return {ErrorKind::unavailable, "the session that was asked for the name has ended. Try again"};
}

}  // namespace

// --- KeptSession, NameCall -------------------------------------------------------------------------------

bool KeptSession::add(Hold& hold) {
  const std::lock_guard guard(mutex_);
  if (ended) return false;
  holds_.emplace(&hold, hold.weak_from_this());
  return true;
}

void KeptSession::remove(const Hold& hold) noexcept {
  const std::lock_guard guard(mutex_);
  holds_.erase(&hold);
}

void KeptSession::tell_all(std::vector<std::shared_ptr<Hold>>& untold) {
  std::unordered_map<const Hold*, std::weak_ptr<Hold>> holds;
  {
    const std::lock_guard guard(mutex_);
    ended = true;
    holds.swap(holds_);
  }
  for (const auto& [key, weak] : holds) {
    if (const std::shared_ptr<Hold> hold = weak.lock(); hold != nullptr && !hold->declare_lost()) {
      untold.push_back(hold);
    }
  }
}

bool NameCall::wait(Clock::time_point end, const std::stop_token& cancel) {
  if (left_.load() == 0) return true;
  struct Stop {
    timed::Signal* signal;
    void operator()() const noexcept {
      signal->set();
      timed::Signal::wake(signal);
    }
  };
  const std::stop_callback on_cancel(cancel, Stop{&done_});
  sleeps_ = true;
  while (left_.load() > 0) {
    const bool in_time = done_.wait_until(end);
    if (left_.load() == 0) break;
    if (!in_time || cancel.stop_requested()) return false;
  }
  return true;
}

// --- jobs ------------------------------------------------------------------------------------------------

Keeper::Keeper(NameStore& store, SessionPool& pool, std::chrono::nanoseconds lease, std::chrono::nanoseconds ask_after)
    : store_(store), pool_(pool), lease_(lease), ask_after_(ask_after), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_ < 0) throw Error(ErrorKind::exhausted, "no more file descriptors");
}

Keeper::~Keeper() {
  end(Clock::now());
  if (thread_.joinable()) thread_.join();
  close(wake_);
}

void Keeper::start() {
  const std::lock_guard guard(starting_);
  if (closed_) throw Error(ErrorKind::unavailable, "the Locker is being closed");
  if (thread_.joinable()) return;
  try {
    thread_ = std::jthread([this](const std::stop_token& end) { run(end); });
    runs_ = true;
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::exhausted, std::string("no thread can be made to look after names: ") + error.what());
  }
}

void Keeper::begin_to_end(Clock::time_point by) noexcept {
  const std::lock_guard guard(starting_);
  closed_ = true;
  if (!runs_) return;
  ending_.set(std::min(ending_.get(), by));
  thread_.request_stop();
  wake();
}

void Keeper::end(Clock::time_point by) noexcept {
  begin_to_end(by);
  std::unique_lock guard(starting_);
  if (!runs_) return;
  const bool ended = ended_.wait_until(guard, by, [this] { return !runs_; });
  if (ended && thread_.joinable()) thread_.join();  // it has nothing more to do
}

void Keeper::wake() noexcept {
  work_ = true;
  nudge();
}

void Keeper::nudge() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

void Keeper::submit(std::span<const JobPtr> jobs, const std::shared_ptr<NameCall>& call, const Help* helps) {
  if (jobs.empty()) return;
  start();
  {
    const std::lock_guard guard(mutex_);
    const std::size_t before = jobs_.size();
    try {
      for (const JobPtr& job : jobs) {
        job->call = call;
        jobs_.push_back(job);
      }
    } catch (...) {
      jobs_.resize(before);
      throw;
    }
    call->left_.fetch_add(static_cast<int>(jobs.size()));
  }
  if (helps == nullptr || !turn_.try_lock()) return wake();
  {
    const std::lock_guard turn(turn_, std::adopt_lock);
    try {
      help(*call, *helps);
    } catch (...) {  // no memory: the thread goes on
    }
  }
  if (call->left_.load() > 0 || anything_to_do()) wake();
}

// A request has the turn, and talks until its own jobs are done.
void Keeper::help(const NameCall& call, const Help& help) {
  while (call.left_.load() > 0) {
    if (session_ == nullptr || session_->session().broken() || reply_ || !pool_.trusts(session_->session().server())) {
      return;
    }
    if (!asked_) send_jobs();
    if (!asked_) return;
    for (bool first = true;; first = false) {
      const Clock::time_point now = Clock::now();
      if (now >= help.end || help.cancel.stop_requested()) return;
      const Clock::duration longest = help.cancel.stop_possible() ? helping_interval : look_interval;
      session_->look(first, std::chrono::ceil<milliseconds>(std::min<Clock::duration>(help.end - now, longest)));
      if (take_plain_answer()) break;
      if (reply_ || now_with_suspend() >= kept_->confirmed.load() + lease_.count()) return;
    }
  }
}

// Nothing is asked now.
void Keeper::send_jobs() {
  next_jobs(asked_for_);
  if (asked_for_.empty()) return;
  try {
    ops_.clear();
    for (const JobPtr& job : asked_for_) ops_.push_back(job->op);
  } catch (...) {
    const std::lock_guard guard(mutex_);
    jobs_.insert(jobs_.begin(), asked_for_.begin(), asked_for_.end());
    asked_for_.clear();
    throw;
  }
  set_asked(true);
  used_ = Clock::now();
  sent_ = now_with_suspend();
  session_->begin(ops_);
}

// Reads the answer if it is there. False: it is not, or it is not plain and left in reply_.
bool Keeper::take_plain_answer() {
  std::optional<NameReply> reply = session_->answer();
  if (!reply) return false;
  bool plain = reply->code == 0 && reply->good && !session_->session().broken();
  for (std::size_t i = 0; plain && i < asked_for_.size(); ++i) {
    const NameResult::Kind kind = reply->results.at(i).kind;
    plain = kind != NameResult::Kind::unknown && kind != NameResult::Kind::not_held;
  }
  if (!plain) {
    reply_ = std::move(reply);
    return false;
  }
  kept_->confirmed = sent_;
  settle(asked_for_, *reply);
  asked_for_.clear();
  set_asked(false);
  return true;
}

void Keeper::set_asked(bool asked) noexcept {
  asked_ = asked;
  if (asked) questions_.fetch_add(1);
  unread_ = asked;
}

void Keeper::abandon(const JobPtr& job) noexcept {
  std::shared_ptr<KeptSession> on;
  std::uint32_t slot = 0;
  {
    const std::lock_guard guard(mutex_);
    job->abandoned = true;
    if (!job->done) {
      // One that was not asked for yet need not be. The others are given back when they are granted.
      std::erase(jobs_, job);
      return;
    }
    if (job->op.kind == NameOp::Kind::mint || job->session == nullptr) return;
    on = std::move(job->session);
    slot = job->result.slot;
  }
  give_back(job->op.name, slot, on);
}

bool Keeper::give_back(const LockName& name, std::uint32_t slot, const std::shared_ptr<KeptSession>& on) noexcept {
  bool told = true;
  {
    const std::lock_guard guard(mutex_);
    if (kept_ != on || on->ended) return false;
    try {
      jobs_.push_back(std::make_shared<Job>(Job{{NameOp::Kind::give, name, slot}}));
    } catch (...) {  // no memory
      give_up_ = true;
      told = false;
    }
  }
  // It is sent now, and its answer is read later.
  if (turn_.try_lock()) {
    const std::lock_guard turn(turn_, std::adopt_lock);
    try {
      const bool talks = session_ != nullptr && !session_->session().broken() && !reply_;
      if (talks && (!asked_ || take_plain_answer())) send_jobs();
    } catch (...) {  // no memory: the thread goes on
    }
  }
  if (anything_to_do()) {
    wake();
  } else if (unread_.load() && !watches_.exchange(true)) {
    nudge();
  }
  return told;
}

// Holds the mutex. What a job comes to and that it is done are one step: whoever abandons it sees both or neither. Its
// call is told when all are done and the mutex is free.
class Keeper::Finishing {
 public:
  explicit Finishing(Keeper& keeper) : guard_(keeper.mutex_) {}
  ~Finishing() {
    guard_.unlock();
    if (first_ != nullptr) tell(*first_);
    for (const std::shared_ptr<NameCall>& call : others_) tell(*call);
  }
  Finishing(const Finishing&) = delete;
  Finishing& operator=(const Finishing&) = delete;

  void done(Job& job) noexcept {
    job.done = true;
    if (job.call == nullptr || job.call->left_.fetch_sub(1) != 1) return;
    try {
      if (first_ == nullptr) {
        first_ = job.call;
      } else {
        others_.push_back(job.call);
      }
    } catch (...) {  // no memory
      job.call->done_.set();
      timed::Signal::wake(&job.call->done_);
    }
  }

 private:
  static void tell(NameCall& call) noexcept {
    call.done_.set();
    if (call.sleeps_.load()) timed::Signal::wake(&call.done_);
  }

  std::unique_lock<timed::BriefMutex> guard_;
  std::shared_ptr<NameCall> first_;  // that is over. Most often there is one
  std::vector<std::shared_ptr<NameCall>> others_;
};

// --- the thread ------------------------------------------------------------------------------------------

void Keeper::run(const std::stop_token& end) {
  Clock::time_point tended = Clock::now();
  std::uint64_t seen = 0;  // the question whose answer was unread at the last look
  for (bool over = false; !over;) {
    const std::uint64_t unread = unread_.load() ? questions_.load() : 0;
    const bool left_over = unread != 0 && unread == seen;
    seen = unread;
    // Without a reason it leaves the turn to requests: one that finds the turn taken has to wait for two changes of
    // threads, and would do so again and again.
    const Clock::time_point now = Clock::now();
    const bool has_work = work_.exchange(false) && anything_to_do();
    const bool must = has_work || end.stop_requested() || now - tended >= longest_untended;
    const bool tends = must || now - tended >= look_interval;
    std::unique_lock turn(turn_, std::defer_lock);
    if (must) {
      turn.lock();
    } else if (tends || left_over) {
      (void)turn.try_lock();
    }
    if (turn.owns_lock()) {
      if (tends) tended = now;
      std::vector<JobPtr> jobs;
      try {
        if (asked_) {
          if (tends || reply_ || (!take_plain_answer() && reply_)) finish_asked();
        } else if (next_jobs(jobs); !jobs.empty()) {
          work(jobs);
        } else if (end.stop_requested()) {
          over = true;
        } else {
          tend();
        }
        std::erase_if(untold_, [](const std::shared_ptr<Hold>& hold) { return hold->declare_lost(); });
      } catch (...) {  // no memory: what was under way is not known any more
        lose();
        fail(jobs, std::make_exception_ptr(session_ended()));
      }
      if (anything_to_do()) work_ = true;
      turn.unlock();
    }
    if (!over && !end.stop_requested() && !work_.load() && sleep()) tended = {};
  }
  {
    const std::lock_guard turn(turn_);
    lose();
  }
  const std::lock_guard guard(starting_);
  runs_ = false;
  ended_.notify_all();
}

// An answer that was asked for by another thread.
void Keeper::finish_asked() {
  if (!reply_ && take_plain_answer()) return;
  std::optional<NameReply> reply = reply_ ? std::exchange(reply_, std::nullopt) : wait_for_answer();
  const std::vector<JobPtr> jobs = std::exchange(asked_for_, {});
  set_asked(false);
  conclude(jobs, reply, sent_);
}

bool Keeper::anything_to_do() const {
  const std::lock_guard guard(mutex_);
  return !jobs_.empty() || give_up_;
}

// The next ones to be asked for. `jobs` is empty before.
void Keeper::next_jobs(std::vector<JobPtr>& jobs) {
  std::size_t slots = 0;
  const std::lock_guard guard(mutex_);
  jobs.reserve(std::min(jobs_.size(), most_jobs));
  while (!jobs_.empty() && jobs.size() < most_jobs) {
    slots += jobs_.front()->op.name.slots;
    if (slots > most_slots && !jobs.empty()) break;
    jobs.push_back(std::move(jobs_.front()));
    jobs_.pop_front();
  }
}

// Nothing is under way.
void Keeper::tend() {
  bool give_up = false, holds = false;
  std::int64_t confirmed = 0;
  {
    const std::lock_guard guard(mutex_);
    give_up = std::exchange(give_up_, false);
    holds = names_ > 0;
    if (kept_ != nullptr) confirmed = kept_->confirmed;
  }
  if (session_ == nullptr) return;
  Session& session = session_->session();
  if (session.broken() || session.hung_up() || give_up || !pool_.trusts(session.server()) ||
      (!holds && Clock::now() - used_ > idle_kept)) {
    lose();
  } else if (now_with_suspend() - confirmed >= ask_after_.count()) {
    work({});
  }
}

// Without the turn, which is not needed to read session_: no other thread sets it. An answer that another thread waits
// for does not wake this one, the end of the session does. True: it has ended.
bool Keeper::sleep() {
  watches_ = false;
  if (unread_.load()) watches_ = true;  // after the line above: a release that comes now wakes this thread
  const int socket = session_ != nullptr ? session_->session().socket() : -1;
  pollfd fds[] = {{wake_, POLLIN, 0}, {socket, POLLRDHUP, 0}};
  poll(fds, socket < 0 ? 1 : 2, static_cast<int>((watches_.load() ? watch_interval : look_interval).count()));
  std::uint64_t woken = 0;
  if ((fds[0].revents & POLLIN) != 0) [[maybe_unused]]
    const ssize_t got = read(wake_, &woken, sizeof woken);
  return fds[1].revents != 0;
}

void Keeper::connect() {
  Deadline limit(longest_connect, &ending_);
  std::unique_ptr<NameSession> made = store_.name_session(pool_.connect(limit), NameStore::Use::keeper, limit);
  Session& session = made->session();
  auto kept = std::make_shared<KeptSession>(session.id(), session.server(), made->minter(), lease_);
  kept->confirmed = now_with_suspend();  // it holds nothing yet
  const std::lock_guard guard(mutex_);
  session_ = std::move(made);
  kept_ = std::move(kept);
  names_ = 0;
  in_use_ = true;
  last_session_ = kept_->id;
}

// Asks for all of them, at once. None: for a sign of life.
void Keeper::work(std::vector<JobPtr> jobs) {
  try {
    if (session_ != nullptr && (session_->session().broken() || !pool_.trusts(session_->session().server()))) {
      lose();
      // The session took the names with it that were to be given back.
      Finishing finishing(*this);
      std::erase_if(jobs, [&](const JobPtr& job) {
        if (job->op.kind != NameOp::Kind::give) return false;
        job->result = {NameResult::Kind::given};
        finishing.done(*job);
        return true;
      });
    }
    if (session_ == nullptr && jobs.empty()) return;
    if (session_ == nullptr) connect();
  } catch (...) {
    return fail(jobs, std::current_exception());
  }
  std::vector<NameOp> ops;
  ops.reserve(jobs.size());
  for (const JobPtr& job : jobs) ops.push_back(job->op);
  if (!jobs.empty()) used_ = Clock::now();
  std::int64_t sent = 0;
  const std::optional<NameReply> reply = ask(ops, sent);
  conclude(jobs, reply, sent);
}

void Keeper::conclude(const std::vector<JobPtr>& jobs, const std::optional<NameReply>& reply, std::int64_t sent) {
  if (!reply || session_->session().broken() || (reply->code == 0 && !reply->good)) {
    const bool unfit = reply && reply->code == 0 && !session_->session().broken();
    lose();
    return fail(jobs, std::make_exception_ptr(
                          unfit ? Error(ErrorKind::unavailable,
                                        "the server is not fit for locks any more, or a proxy is in between that mixes "
                                        "sessions: nothing was locked. Try again; see doctor if this goes on")
                                : session_ended()));
  }
  kept_->confirmed = sent;
  if (reply->code == 0) return settle(jobs, *reply);
  try_again(jobs, *reply);
}

std::optional<NameReply> Keeper::ask(std::span<const NameOp> ops, std::int64_t& sent) {
  sent = now_with_suspend();
  session_->begin(ops);
  return wait_for_answer();
}

// No value: there was no answer in the time for which the names are surely held.
std::optional<NameReply> Keeper::wait_for_answer() {
  Clock::time_point last = Clock::time_point::max();
  for (;;) {
    std::optional<NameReply> reply = session_->answer();
    if (reply) return reply;
    const std::int64_t left = kept_->confirmed.load() + lease_.count() - now_with_suspend();
    if (left <= 0 || Clock::now() >= last) return std::nullopt;
    const auto time = std::chrono::duration_cast<milliseconds>(std::chrono::nanoseconds(left)) + milliseconds(1);
    session_->look(false, std::min<milliseconds>(time, look_interval));
    if (last == Clock::time_point::max() && ending_.get() != last) {
      last = std::max(ending_.get(), Clock::now() + last_words);
    }
  }
}

void Keeper::settle(const std::vector<JobPtr>& jobs, const NameReply& reply) {
  using Kind = NameResult::Kind;
  std::vector<JobPtr> unknown;
  bool lost = false;
  {
    Finishing finishing(*this);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      Job& job = *jobs[i];
      job.result = reply.results.at(i);
      const Kind kind = job.result.kind;
      if (kind == Kind::unknown) {
        unknown.push_back(jobs[i]);
        continue;
      }
      if (kind == Kind::granted && job.op.kind == NameOp::Kind::mint) {
        job.session = kept_;
      } else if (kind == Kind::granted) {
        ++names_;
        if (job.abandoned) {
          jobs_.push_front(std::make_shared<Job>(Job{{NameOp::Kind::give, job.op.name, job.result.slot}}));
        } else {
          job.session = kept_;
        }
      }
      if (job.op.kind == NameOp::Kind::give) {
        if (names_ > 0) --names_;
        // Somebody else speaks on this session, or it is another one: nothing on it can be trusted.
        if (kind != Kind::given) lost = true;
      }
      finishing.done(job);
    }
  }
  if (lost) {
    lose();
    return fail(unknown, std::make_exception_ptr(session_ended()));
  }
  if (!unknown.empty()) try_again(std::move(unknown), {.code = 0, .message = "the store does not say why"});
}

// The statement was ended from outside, in the middle. What it has done is undone, and it is asked for once more.
void Keeper::try_again(std::vector<JobPtr> jobs, const NameReply& reply) {
  std::vector<NameOp> ops;
  for (const JobPtr& job : jobs) {
    if (job->op.kind == NameOp::Kind::mint) continue;  // its owner keeps the name
    // Which slot it took is not known, and the session may have others of them.
    if (job->op.kind != NameOp::Kind::give && job->op.name.slots != 0) {
      lose();
      return fail(jobs, std::make_exception_ptr(session_ended()));
    }
    ops.push_back({NameOp::Kind::undo, job->op.name, job->op.slot});
  }
  for (int tries = 0;; ++tries) {
    std::int64_t sent = 0;
    const std::optional<NameReply> undone = ops.empty() ? NameReply{.good = true} : ask(ops, sent);
    const bool well = undone && undone->code == 0 && undone->good && !session_->session().broken() &&
                      std::all_of(undone->results.begin(), undone->results.end(),
                                  [](const NameResult& r) { return r.kind == NameResult::Kind::given; });
    if (well) break;
    if (!undone || session_->session().broken() || tries >= most_tries) {
      lose();
      return fail(jobs, std::make_exception_ptr(session_ended()));
    }
  }
  std::vector<JobPtr> failed, again;
  {
    Finishing finishing(*this);
    for (JobPtr& job : jobs) {
      if (job->op.kind == NameOp::Kind::give) {
        job->result = {NameResult::Kind::given};
        if (names_ > 0) --names_;
        finishing.done(*job);
      } else if (!job->abandoned) {
        (++job->tries < most_tries ? again : failed).push_back(std::move(job));
      }
    }
    jobs_.insert(jobs_.begin(), again.begin(), again.end());
  }
  fail(failed, std::make_exception_ptr(store_.name_failure(reply.code, reply.message, "lock a name")));
}

void Keeper::fail(const std::vector<JobPtr>& jobs, const std::exception_ptr& error) noexcept {
  Finishing finishing(*this);
  for (const JobPtr& job : jobs) {
    if (job == nullptr || job->done) continue;
    job->error = error;
    job->result = {};
    finishing.done(*job);
  }
}

// The session ends, and with it every name on it.
void Keeper::lose() noexcept {
  std::shared_ptr<KeptSession> kept;
  {
    const std::lock_guard guard(mutex_);
    kept = std::move(kept_);
    kept_ = nullptr;
    names_ = 0;
    give_up_ = false;
    in_use_ = false;
    // The session takes the names with it that are still to be given back.
    std::erase_if(jobs_, [&](const JobPtr& job) { return job->op.kind == NameOp::Kind::give; });
  }
  if (kept != nullptr) {
    kept->ended = true;
    try {
      kept->tell_all(untold_);
    } catch (...) {  // no memory: they find out when they ask
    }
  }
  if (session_ != nullptr) session_->session().give_up();
  session_.reset();
  set_asked(false);
  reply_.reset();
  fail(std::exchange(asked_for_, {}), std::make_exception_ptr(session_ended()));
}

}  // namespace hierlock::remote
