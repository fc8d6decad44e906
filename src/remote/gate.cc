#include "remote/gate.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "embedded/embedded.h"
#include "remote/hand_over.h"
#include "remote/locks.h"
#include "remote/notice_board.h"
#include "remote/status_builder.h"

namespace hierlock::remote {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds longest_release{900};  // B6: a second, with what ends a Locker
constexpr milliseconds longest_close{700};    // the same, and then memory is given back, too
constexpr milliseconds longest_question{300};
constexpr seconds longest_look{2};

// A session that has ended, or was given up and is closed, takes its locks with it.
Error lost_with_session(const std::string& why) {
  return {ErrorKind::lost, "the lock was lost while it was extended, with its session: " + why};
}

Error taken_away(const std::string& what) { return {ErrorKind::lost, "the lock was taken away: it cannot be " + what}; }

// The default owner of a thread; apart from the numbers of Owners.
std::uint64_t this_thread_number() {
  static std::atomic<std::uint64_t> last{std::uint64_t{1} << 63};
  thread_local const std::uint64_t mine = last.fetch_add(1) + 1;
  return mine;
}

// A node that is held in both modes is held in the stronger.
void add_node(std::vector<Node>& nodes, Node node) {
  for (Node& known : nodes) {
    if (known.leftover || known.text != node.text) continue;
    known.cell.mode = strongest(known.cell.mode, node.cell.mode);
    known.asked = known.asked || node.asked;
    return;
  }
  nodes.push_back(std::move(node));
}

class ForSession final : public spi::Waiting {
 public:
  explicit ForSession(const WaitHost& host) : host_(host) {}
  std::string owner() const override { return host_.owner_name(); }
  std::string blocked_by() const override { return "those who hold locks: all connections are in use"; }

 private:
  const WaitHost& host_;
};

// A wait in the local queue. That queue knows who waits for whom in it, the store who waits there; a cycle may run
// through both. So a wait here of an owner that holds something is published as one at the store is (B11). Any other
// wait that lasts is published for `status`.
class QueueWait final : public spi::WaitObserver {
 public:
  // `begins` is called when it first waits. `make` gives what is published, and `holds` whether its owner holds
  // something.
  using Make = std::function<std::shared_ptr<Pending>(std::stop_source, bool holds)>;
  QueueWait(Locks& locks, NoticeBoard& board, Teller& teller, const spi::Request& request, std::function<void()> begins,
            std::function<bool()> holds, Make make)
      : locks_(locks),
        board_(board),
        teller_(teller),
        begins_(std::move(begins)),
        holds_(std::move(holds)),
        make_(std::move(make)),
        request_(request) {
    if (request.cancel != nullptr) on_cancel_.emplace(*request.cancel, Stop{&stop_});
    request_.cancel = &token_;
    request_.observer = this;
  }
  ~QueueWait() override { over(); }
  QueueWait(const QueueWait&) = delete;
  QueueWait& operator=(const QueueWait&) = delete;

  const spi::Request& request() const noexcept { return request_; }  // to be asked for instead
  const Pending* victim() const noexcept { return victim_ ? pending_.get() : nullptr; }
  // It does not wait here any more.
  void over() noexcept {
    if (pending_ == nullptr || over_) return;
    over_ = true;
    victim_ = pending_->victim();
    locks_.remove(pending_.get());
    if (pending_->may_block) board_.wake();  // otherwise its notice goes with the next look of the board
    if (victim_ || replaced_ == nullptr || !replaced_->victim()) return;
    pending_ = replaced_;
    victim_ = true;
  }

  std::chrono::nanoseconds waits(const spi::Waiting& waiting) noexcept override {
    try {
      if (begins_) std::exchange(begins_, nullptr)();
      const bool published = pending_ != nullptr;
      if (!published || !pending_->may_block) {
        // Another of its owner's threads may have come to hold something.
        const bool holds = holds_(), lasts = Clock::now() - since_ >= board_.publish_after();
        if (holds || (lasts && !published)) publish(waiting, holds);
      }
    } catch (...) {  // no memory: the next time
    }
    return std::min<std::chrono::nanoseconds>(teller_.waits(waiting), seconds(1));
  }

 private:
  struct Stop {
    std::stop_source* source;
    void operator()() const noexcept { source->request_stop(); }
  };

  void publish(const spi::Waiting& waiting, bool holds) {
    std::shared_ptr<Pending> made = make_(stop_, holds);
    made->since = since_;
    made->owner_name = waiting.owner();
    made->queue_owner = waiting.owner_number();
    made->may_block = holds;
    locks_.add(made);
    if (pending_ != nullptr) locks_.remove(pending_.get());
    replaced_ = std::exchange(pending_, std::move(made));
    if (!holds) return;  // it can wait for the next look of the board
    board_.expect(true);
    board_.changed(request_.deadline);
  }

  Locks& locks_;
  NoticeBoard& board_;
  Teller& teller_;
  std::function<void()> begins_;
  const std::function<bool()> holds_;
  const Make make_;
  const Clock::time_point since_ = Clock::now();
  spi::Request request_;
  std::stop_source stop_;
  const std::stop_token token_ = stop_.get_token();
  std::shared_ptr<Pending> pending_;
  std::shared_ptr<Pending> replaced_;  // the board may still have it in hand, and choose it as a victim
  bool over_ = false, victim_ = false;
  std::optional<std::stop_callback<Stop>> on_cancel_;
};

class Gate final : public spi::Backend {
 public:
  Gate(std::unique_ptr<Driver> driver, const GateOptions& options)
      : owners_(options.owners),
        hands_over_(options.hand_over),
        driver_(std::move(driver)),
        queue_(embedded::open_queue(options.owners)),
        hand_over_(
            [this](const HandOver::Lock& held) { driver_->give_back(held->hold, Clock::now() + longest_release); }),
        board_(*driver_, locks_, *queue_, options.publish_after) {
    driver_->attach([this](std::uint64_t session) { return board_.stands(session); });
  }
  ~Gate() override { board_.end(Clock::now()); }

  Capabilities capabilities() const override { return driver_->capabilities(); }
  std::optional<spi::Grant> acquire(const spi::Request& request) override;
  std::optional<spi::Grant> extend(const spi::Grant& grant, const spi::Request& request) override;
  void release(const spi::Grant& grant) noexcept override;
  spi::Grant give(const spi::Grant& grant, spi::OwnerId to) override;

  bool held(const spi::Grant& grant) const noexcept override {
    const std::shared_ptr<Held> held = locks_.find(grant.id);
    return held != nullptr && held->hold->surely();
  }
  std::stop_token lost(const spi::Grant& grant) override {
    const std::shared_ptr<Held> held = locks_.find(grant.id);
    return held == nullptr ? std::stop_token() : held->hold->lost();
  }

  spi::OwnerId make_owner(std::string_view name) override { return queue_->make_owner(name); }
  void drop_owner(spi::OwnerId owner) noexcept override { queue_->drop_owner(owner); }
  std::string owner_name(spi::OwnerId owner) override { return queue_->owner_name(owner); }
  std::array<std::uint64_t, 3> grants() const override {
    return {grants_[0].load(), grants_[1].load(), grants_[2].load()};
  }
  bool idle() const noexcept override { return locks_.empty(); }
  void log_deadlock(const Error& error) noexcept override { queue_->log_deadlock(error); }
  Snapshot snapshot() const override;
  std::size_t break_locks(const spi::Plan& plan, std::string_view) override {
    const Use use(*this);
    return driver_->break_locks(plan);
  }
  void close() noexcept override { leave(Clock::now() + longest_close); }

 private:
  class AtStore;

  // What needs the threads and the sessions: the Locker, each grant, and each call. The last to leave ends them. Nobody
  // comes after it: only the Locker and those who hold something let others in.
  class Use {
   public:
    explicit Use(const Gate& gate) : gate_(&gate) { gate.users_.fetch_add(1); }
    ~Use() {
      if (gate_ != nullptr) gate_->leave(Clock::now() + longest_close);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    void goes_on() noexcept { gate_ = nullptr; }  // until a release leaves for it

   private:
    const Gate* gate_;
  };
  void leave(Clock::time_point by) const noexcept {
    if (users_.fetch_sub(1) != 1) return;
    hand_over_.end(by);
    board_.end(by);
    driver_->end(by);
  }

  std::uint64_t owner_of(spi::OwnerId owner) {
    if (owner.value != 0) return owner.value;
    if (owners_ == Owners::per_thread) return this_thread_number();
    return (std::uint64_t{3} << 62) + handles_.fetch_add(1);
  }
  void count(const spi::Plan& plan) noexcept {
    grants_[static_cast<std::size_t>(plan.steps().front().space)].fetch_add(1, std::memory_order_relaxed);
  }
  CellOf cell_of() const {
    return [this](auto space, auto level, auto key, auto mode) { return driver_->cell_of(space, level, key, mode); };
  }
  template <class Ask>
  auto queue_for(std::uint64_t owner, const Held* extended, const spi::Request& request, Teller& teller, Ask ask,
                 std::optional<HandOver::Waiting>* waiting = nullptr) -> decltype(ask(request));
  std::optional<spi::Grant> take_over(std::uint64_t owner, const spi::Grant& local, const spi::Plan& plan,
                                      HandOver::Waiting* waiting);
  void refuse_own_cell(std::uint64_t owner, const Held* extended, const spi::Request& request) const;
  spi::Grant keep(Driver::Granted granted, std::uint64_t owner, const spi::Grant& local, const spi::Plan& plan,
                  const Held* before = nullptr);
  std::vector<Cell> cells_of(const spi::Plan& plan) const;
  void keep_leftover(Held& held, const spi::Plan& plan, Driver::Extended::Leftover leftover) noexcept;

  const Owners owners_;
  const bool hands_over_;
  const std::unique_ptr<Driver> driver_;
  const bool cells_are_exact_ = driver_->capabilities().exact_keys;
  const std::unique_ptr<embedded::Queue> queue_;
  std::array<std::atomic<std::uint64_t>, 3> grants_{};  // by Space of the first step
  std::atomic<std::uint64_t> handles_{0}, queued_{0};
  mutable std::atomic<std::uint64_t> users_{1};
  mutable Locks locks_;
  mutable HandOver hand_over_;
  mutable NoticeBoard board_;  // its thread uses all of the above
};

// What a request does while it waits at the store.
class Gate::AtStore final : public WaitHost {
 public:
  // `passes`: how often the request has let others pass; made when it first waits. Null: it cannot let anybody pass.
  AtStore(Gate& gate, const spi::Request& request, std::uint64_t owner, const spi::Grant& local, Teller& teller,
          std::shared_ptr<Passes>* passes = nullptr)
      : gate_(gate), request_(request), owner_(owner), local_(local), teller_(teller), passes_(passes) {}

  Pending* begins_to_wait(std::uint64_t session, int wake) override {
    auto pending = std::make_shared<Pending>(wake);
    pending->local = local_;
    pending->owner = owner_;
    pending->session = session;
    if (passes_ != nullptr) {
      if (*passes_ == nullptr) *passes_ = std::make_shared<Passes>();
      pending->passes = *passes_;
    }
    pending->owner_name = owner_name();
    pending->nodes = nodes_of(request_.plan, gate_.cell_of());
    const auto targets = std::count_if(pending->nodes.begin(), pending->nodes.end(), [](auto& n) { return n.asked; });
    pending->may_block = targets > 1 || gate_.locks_.any_of(owner_);
    gate_.locks_.add(pending);
    gate_.board_.expect(pending->may_block);
    gate_.board_.changed(request_.deadline);
    return pending.get();
  }
  void wait_is_over(Pending* pending) noexcept override {
    gate_.locks_.remove(pending);
    gate_.board_.wake();  // its notice goes
  }
  std::string owner_name() const override { return gate_.queue_->owner_name(request_.owner); }
  std::string blocked_by(std::uint64_t session) const override {
    const Clock::time_point end = Clock::now() + longest_question;
    return gate_.board_.in_the_way_of(session, std::min(end, request_.deadline.value_or(end)));
  }
  Clock::time_point waits_for_session() override { return Clock::now() + teller_.waits(ForSession(*this)); }

 private:
  Gate& gate_;
  const spi::Request& request_;
  const std::uint64_t owner_;
  const spi::Grant local_;
  Teller& teller_;
  std::shared_ptr<Passes>* const passes_;
};

// --- acquire ---------------------------------------------------------------------------------------------

std::optional<spi::Grant> Gate::acquire(const spi::Request& request) {
  driver_->check(request.plan);
  Teller teller(request.observer);
  spi::Request asked = request;
  asked.observer = &teller;
  const std::uint64_t owner = owner_of(request.owner);
  Use use(*this);
  driver_->start();  // before there is anything to give back
  board_.start();
  std::shared_ptr<Passes> passes;
  for (std::uint64_t ticket = 0;;) {
    std::optional<HandOver::Waiting> waiting;
    const std::optional<spi::Grant> local = queue_for(
        owner, nullptr, asked, teller, [&](const spi::Request& r) { return queue_->acquire(r); }, &waiting);
    if (!local) return std::nullopt;
    Driver::Granted granted;
    try {
      if (locks_.any_of(owner)) refuse_own_cell(owner, nullptr, request);
      const auto taken = take_over(owner, *local, request.plan, waiting ? &*waiting : nullptr);
      if (taken) {
        use.goes_on();
        return taken;
      }
      AtStore host(*this, asked, owner, *local, teller, &passes);
      // An owner that holds a lock, on whatever session, does not stand in line for one: those who have them may wait
      // for it.
      std::uint64_t* const in_line = locks_.any_of(owner) ? nullptr : &ticket;
      granted = driver_->grant({request.plan, asked, owner, teller, host, local->id, in_line});
      if (granted.answer == Driver::Answer::granted) {
        const spi::Grant grant = keep(std::move(granted), owner, *local, request.plan);
        count(request.plan);
        board_.changed();
        use.goes_on();
        return grant;
      }
    } catch (...) {
      queue_->release(*local);
      throw;
    }
    queue_->release(*local);
    if (granted.answer != Driver::Answer::full) return std::nullopt;
  }
}

// In the local queue, as the request says; a wait there is published.
template <class Ask>
auto Gate::queue_for(std::uint64_t owner, const Held* extended, const spi::Request& request, Teller& teller, Ask ask,
                     std::optional<HandOver::Waiting>* waiting) -> decltype(ask(request)) {
  std::uint64_t ticket = 0;  // rises in the order of the queue
  const auto begins = [&] {
    ticket = queued_.fetch_add(1);
    if (waiting != nullptr && hands_over_) waiting->emplace(hand_over_, request.plan);
  };
  const auto holds = [&] { return extended != nullptr || locks_.any_of(owner); };
  const auto make = [&](std::stop_source stop, bool owner_holds) {
    auto pending = std::make_shared<Pending>(std::move(stop));
    pending->owner = owner;
    pending->note = request.note;
    pending->nodes = nodes_of(request.plan, cell_of());
    if (extended != nullptr) {
      pending->local = extended->local;
      pending->session = extended->hold->session() | in_queue;
    } else {
      const std::uint64_t any = std::hash<std::string>()(board_.process()) + ticket;
      pending->session = in_queue | without_session | (owner_holds ? 0 : for_status) | (any & (for_status - 1));
    }
    return pending;
  };
  QueueWait wait(locks_, board_, teller, request, std::cref(begins), std::cref(holds), std::cref(make));
  try {
    return ask(wait.request());
  } catch (const Error& error) {
    wait.over();
    if (error.kind() == ErrorKind::cancelled && wait.victim() != nullptr) {
      throw deadlock_error(*wait.victim(), extended != nullptr);
    }
    // The owner may have lost what it holds there, and not have noticed.
    if (error.kind() != ErrorKind::deadlock || extended != nullptr || !locks_.lost_one(owner)) throw;
    throw Error(
        ErrorKind::deadlock,
        std::string(error.what()) + ". (This owner has a lock that was lost: release() it before it asks again)", 0,
        error.cycle());
  }
}

// Two targets of one owner that share a cell, in two locks: each lock has a session of its own, so the owner would wait
// for itself. Equal paths, ancestors and descendants are the local queue's to find.
void Gate::refuse_own_cell(std::uint64_t owner, const Held* extended, const spi::Request& request) const {
  if (cells_are_exact_) return;
  std::vector<Node> wanted = nodes_of(request.plan, cell_of());
  std::erase_if(wanted, [](const Node& node) { return by_name(node.cell); });  // two names never share a cell
  if (wanted.empty()) return;
  const std::optional<Locks::Collision> found = locks_.collision(owner, extended, wanted, cell_of());
  if (!found) return;
  throw Error(ErrorKind::deadlock,
              "deadlock: this owner would wait for itself: " + found->wanted->text + " and " + found->held +
                  ", which it holds in another lock, share a row (level " + std::to_string(found->wanted->cell.level) +
                  ", bucket " + std::to_string(found->wanted->cell.key) +
                  "). Ask for both in one acquire, or extend the lock that is held",
              0,
              {{.owner = queue_->owner_name(request.owner),
                .process = getpid(),
                .host = "",
                .waits_for = found->wanted->text,
                .holds = found->held}});
}

std::vector<Cell> Gate::cells_of(const spi::Plan& plan) const {
  std::vector<Cell> cells;
  for (const spi::Step& step : plan.steps()) {
    cells.push_back(driver_->cell_of(step.space, step.level, step.key, cell_mode(step.mode, step.slots)));
  }
  return cells;
}

// A lock on the same plan that another owner has just released (B8). No value: the store must be asked.
std::optional<spi::Grant> Gate::take_over(std::uint64_t owner, const spi::Grant& local, const spi::Plan& plan,
                                          HandOver::Waiting* waiting) {
  const HandOver::Lock parked = hand_over_.take(
      plan, [&] { return cells_of(plan); }, waiting);
  if (parked == nullptr) return std::nullopt;
  Driver::Granted granted{.answer = Driver::Answer::granted};
  const auto give_back = [&] { driver_->give_back(parked->hold, Clock::now() + longest_release); };
  try {
    granted.cells = parked->cells;
    granted.hold = driver_->resume(*parked->hold, owner);
  } catch (...) {  // no memory
    give_back();
    throw;
  }
  if (granted.hold == nullptr) {  // the store has taken it away
    give_back();
    return std::nullopt;
  }
  granted.fence = parked->fence + 1;
  const spi::Grant grant = keep(std::move(granted), owner, local, plan, parked.get());
  count(plan);
  return grant;
}

// If there is no memory for it, all is as if nothing had been locked (H8).
spi::Grant Gate::keep(Driver::Granted granted, std::uint64_t owner, const spi::Grant& local, const spi::Plan& plan,
                      const Held* before) {
  try {
    const auto held = std::make_shared<Held>(granted.hold);
    held->owner = owner;
    held->local = local;
    held->fence = granted.fence;
    held->nodes.keep(plan);
    held->cells = std::move(granted.cells);
    held->plan = HandOver::number_of(plan);
    if (before != nullptr) {
      held->granted = before->granted;
      held->handed_over = before->handed_over + 1;
    }
    return {locks_.add(held), granted.fence};
  } catch (...) {
    driver_->give_back(std::move(granted.hold), Clock::now() + longest_release);
    throw;
  }
}

// --- extend, give, release -------------------------------------------------------------------------------

std::optional<spi::Grant> Gate::extend(const spi::Grant& grant, const spi::Request& request) {
  driver_->check(request.plan);
  const std::shared_ptr<Held> held = locks_.find(grant.id);
  if (held == nullptr || !held->hold->surely()) throw taken_away("extended");
  held->extended = true;
  Teller teller(request.observer);
  spi::Request asked = request;
  asked.observer = &teller;
  bool at_store = false;
  Driver::Extended extended;
  std::unique_ptr<embedded::Queue::Extension> addition;
  try {
    addition = queue_for(held->owner, held.get(), asked, teller,
                         [&](const spi::Request& r) { return queue_->begin_extend(held->local, r); });
    if (addition == nullptr) return std::nullopt;
    at_store = true;
    refuse_own_cell(held->owner, held.get(), request);
    hand_over_.clear([&] { return cells_of(request.plan); });
    AtStore host(*this, asked, held->owner, held->local, teller);
    driver_->extend(*held->hold, {request.plan, asked, held->owner, teller, host}, extended);
  } catch (const Error& error) {
    addition.reset();
    if (extended.lost) driver_->lose(*held->hold);
    keep_leftover(*held, request.plan, extended.leftover);
    const bool released = error.kind() == ErrorKind::deadlock || error.kind() == ErrorKind::lost;
    if (extended.lost && !released) throw lost_with_session(error.what());
    if (error.kind() != ErrorKind::deadlock) throw;
    // Whoever found it, all of the lock goes (Lock::extend). What the local queue or the store has released already is
    // released once more, which is harmless.
    release(grant);
    if (!at_store) throw;
    throw Error(error.kind(), std::string(error.what()) + ". The whole lock was released", error.native_code(),
                error.cycle());
  }
  if (extended.lost) {
    driver_->lose(*held->hold);
    if (!extended.granted) throw lost_with_session("the time was up, and its wait could not be ended otherwise");
  }
  if (!extended.granted) {
    keep_leftover(*held, request.plan, extended.leftover);
    return std::nullopt;
  }
  const spi::Grant local = addition->commit();
  {
    const std::lock_guard guard(locks_.mutex);
    held->local = local;  // it is another lock in the local queue now, whatever happens next
  }
  count(request.plan);
  {
    std::vector<Node> nodes = nodes_of(request.plan, cell_of());
    const CellOf cells = cell_of();
    const std::lock_guard guard(locks_.mutex);
    held->fence = extended.fence;
    std::vector<Node>& known = held->nodes.read(cells);
    for (Node& node : nodes) {
      std::erase_if(known, [&](const Node& n) { return n.leftover && n.text == node.text; });
      add_node(known, std::move(node));
    }
    locks_.changed();
  }
  board_.changed();
  return spi::Grant{grant.id, extended.fence};
}

// The store may have locked cells for an extend that failed, and gives them back only with the whole lock. Which they
// are it does not say, so all count that may be.
void Gate::keep_leftover(Held& held, const spi::Plan& plan, Driver::Extended::Leftover leftover) noexcept {
  if (leftover == Driver::Extended::Leftover::none) return;
  try {
    std::vector<Node> nodes = nodes_of(plan, cell_of());
    std::erase_if(nodes, [](const Node& node) { return by_name(node.cell); });  // names are given back one by one
    if (leftover == Driver::Extended::Leftover::all_but_the_last) {
      Place last{};
      for (const Node& node : nodes) last = std::max(last, place(node.cell));
      std::erase_if(nodes, [&](const Node& n) { return place(n.cell) == last; });
    }
    const CellOf cells = cell_of();
    const std::lock_guard guard(locks_.mutex);
    std::vector<Node>& known = held.nodes.read(cells);
    for (Node& node : nodes) {
      const bool has = std::any_of(known.begin(), known.end(), [&](const Node& n) {
        return same_place(n.cell, node.cell) && covers(n.cell.mode, node.cell.mode);
      });
      if (has) continue;
      node.leftover = true;
      node.asked = false;
      known.push_back(std::move(node));
    }
    locks_.changed();
  } catch (...) {  // no memory: then nobody is told
  }
}

spi::Grant Gate::give(const spi::Grant& grant, spi::OwnerId to) {
  const std::shared_ptr<Held> held = locks_.find(grant.id);
  if (held == nullptr || !held->hold->surely()) throw taken_away("handed over");
  // Nothing may fail once the local queue has given it.
  const std::uint64_t owner = owner_of(to), before = held->owner;
  locks_.make_room(owner);
  driver_->give(*held->hold, owner);
  try {
    locks_.give(*held, queue_->give(held->local, to), owner);
  } catch (...) {
    driver_->give(*held->hold, before);
    throw;
  }
  board_.changed();
  return grant;
}

void Gate::release(const spi::Grant& grant) noexcept {
  const std::shared_ptr<Held> held = locks_.take_out(grant.id);
  if (held == nullptr) return;
  const Clock::time_point end = Clock::now() + longest_release;
  // The lock itself has no notice (see HandOver::park). But the notice of the wait that led to it may still be there,
  // and say that its session belongs to this owner. The next owner may take over the session nevertheless, if this
  // owner holds nothing else. Then whoever waits for this owner waits because of this session. So any cycle through the
  // notice is one through the session, whoever has it:
  // - The store's view shows whom the session waits for. It shows nobody, unless the next owner extends the lock. Then
  //   the cycle is real.
  // - Without the view the cycle must last. The notice does not: the board removes it at its next turn, as it would if
  //   this owner had kept the lock.
  // If the owner holds another lock, a wait for that lock would seem to lead to what the next owner waits for.
  const auto park = [&] {
    const bool misleads = locks_.any_of(held->owner) && board_.stands(held->hold->session());
    return !misleads && driver_->park(*held->hold);
  };
  if (hands_over_ && hand_over_.park(held, park)) {
    queue_->release(held->local);
    return leave(end);
  }
  const bool told = driver_->give_back(held->hold, end);
  if (held->local.id != 0) queue_->release(held->local);
  // If the store could not be told, the notice is left to the thread: there is no time for it here (B6).
  if (told) board_.changed(end);
  if (!told || held->published) board_.wake();
  leave(end);
}

// --- snapshot --------------------------------------------------------------------------------------------

// Requests that wait for a session. Nobody is in their way but the locks that have one. `queued`: what requests have in
// the local queue and do not hold at the store.
void add_requests_in_line(const std::vector<Driver::InLine>& in_line, const std::vector<Snapshot::Holder>& queued,
                          Snapshot& result) {
  if (in_line.empty()) return;
  std::unordered_map<std::uint64_t, Snapshot::Waiter> waiters;  // by place in the local queue
  for (const Driver::InLine& one : in_line) waiters[one.place].age = Clock::now() - one.since;
  for (const Snapshot::Holder& holder : queued) {
    const auto found = waiters.find(holder.lock);
    if (found == waiters.end() || !holder.asked) continue;
    Snapshot::Waiter& waiter = found->second;
    waiter.who = holder.who;
    waiter.wanted += (waiter.wanted.empty() ? "" : ", ") + holder.target;
    waiter.target = holder.target;
    waiter.mode = holder.mode;
  }
  for (const Driver::InLine& one : in_line) {
    auto waiter = waiters.extract(one.place);
    if (!waiter.empty() && !waiter.mapped().wanted.empty()) result.waiters.push_back(std::move(waiter.mapped()));
  }
  result.notes.push_back(std::to_string(in_line.size()) + (in_line.size() == 1 ? " request waits" : " requests wait") +
                         " for a connection, not for a lock: all are in use. Open with a larger connections=");
}

Snapshot Gate::snapshot() const {
  const Use use(*this);
  // First the notices, then the store's view: a lock that has ended in between is then not confirmed, and one that has
  // begun is shown by its cell.
  Look look = driver_->look(Clock::now() + longest_look);
  std::erase_if(look.notices, [this](const Notice& notice) { return board_.is_own(notice); });

  // What the local queue knows, with the fences of the store.
  Snapshot result = queue_->snapshot();
  driver_->describe(result);
  struct Known {
    std::uint64_t session, owner;
    std::int64_t fence;
  };
  std::map<std::uint64_t, Known> held;  // by lock of the local queue
  const auto all_held = locks_.all_held();
  {
    const std::lock_guard guard(locks_.mutex);
    for (const auto& one : all_held) held.emplace(one->local.id, Known{one->hold->session(), one->owner, one->fence});
  }
  std::map<std::uint64_t, std::uint64_t> owners;  // the numbers that the local queue has, by lock
  std::map<std::uint64_t, Snapshot::Party> parties;
  for (Snapshot::Waiter& waiter : result.waiters) waiter.who.host = board_.host();
  const bool intentions = capabilities().shared_inner;
  std::vector<Snapshot::Holder> not_at_store;
  std::erase_if(result.holders, [&](Snapshot::Holder& holder) {
    owners.emplace(holder.lock, holder.who.owner);
    const auto found = held.find(holder.lock);
    if (found == held.end()) {  // in the local queue only: it waits for a session or at the store, or was just released
      holder.who.host = board_.host();
      not_at_store.push_back(std::move(holder));
      return true;
    }
    holder.fence = found->second.fence;
    holder.who.host = board_.host();
    holder.who.session = shown_session(found->second.session);
    parties.emplace(holder.lock, holder.who);
    if (!intentions && (holder.mode == Mode::IS || holder.mode == Mode::IX)) holder.mode = Mode::S;
    return false;
  });

  // Cells that a failed extend had reached are locked at the store, although nothing in the local queue says so.
  const CellOf cells = cell_of();
  for (const auto& one : all_held) {
    const std::lock_guard guard(locks_.mutex);
    const auto party = parties.find(one->local.id);
    for (const Node& node : one->nodes.read(cells)) {
      if (party == parties.end() || !node.leftover) continue;
      result.holders.push_back({.who = party->second,
                                .target = node.text,
                                .mode = node.cell.mode,
                                .lock = one->local.id,
                                .fence = one->fence,
                                .age = Clock::now() - one->since,
                                .leftover = true});
    }
  }

  add_requests_in_line(driver_->in_line(), not_at_store, result);

  Sources sources;
  sources.own = board_.own(false);
  sources.others = std::move(look.notices);
  sources.view = std::move(look.view);
  sources.notes = std::move(look.notes);
  sources.rows = driver_->row_names();
  sources.is_own = [this](std::uint64_t session) { return driver_->is_own(session); };
  const auto know = [&](std::uint64_t owner, std::uint64_t lock) {
    const auto found = owners.find(lock);
    if (found != owners.end()) sources.numbers[board_.owner_of(owner)] = found->second;
  };
  for (const auto& [lock, known] : held) know(known.owner, lock);
  for (const auto& pending : locks_.all_pending()) know(pending->owner, pending->local.id);
  build_status(sources, result);
  return result;
}

}  // namespace

std::unique_ptr<spi::Backend> make_gate(std::unique_ptr<Driver> driver, const GateOptions& options) {
  return std::make_unique<Gate>(std::move(driver), options);
}

}  // namespace hierlock::remote
