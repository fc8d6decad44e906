#include "remote/lock_wait.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hierlock::remote {

namespace {

// An answer that takes longer than the first is probably that of a taken cell. After the second it almost surely is.
constexpr std::chrono::milliseconds usual_answer{30}, longest_answer{250};
// A wait that the store has told, and that is over so soon, is not worth looking at.
constexpr std::chrono::milliseconds short_wait{5};
// How long an interrupted statement may still take to say so.
constexpr std::chrono::seconds last_words{2}, last_words_of_a_try{1};
// An interruption that arrives before the statement has begun ends nothing. So it is repeated.
constexpr std::chrono::milliseconds interrupt_interval{20};
constexpr std::chrono::hours long_time{1};

void raise(int descriptor) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(descriptor, &one, sizeof one);
}

}  // namespace

Pending::Pending(int wake) : wake_(fcntl(wake, F_DUPFD_CLOEXEC, 0)) {}

Pending::~Pending() {
  if (wake_ >= 0) close(wake_);
}

void Pending::choose_as_victim(std::string cycle, std::vector<Error::Wait> waits) {
  cycle_ = std::move(cycle);
  waits_ = std::move(waits);
  victim_ = true;
  stop_.request_stop();
  if (wake_ >= 0) raise(wake_);
}

void Pending::let_pass() noexcept {
  lets_pass_ = true;
  if (wake_ >= 0) raise(wake_);
}

class LockWait::Waiting final : public spi::Waiting {
 public:
  explicit Waiting(LockWait& wait) : wait_(wait) {}
  std::string owner() const override { return wait_.ask_.host.owner_name(); }
  // Other processes publish what they hold after a while. So only the second question is worth asking the store.
  std::string blocked_by() const override {
    const std::string words = wait_.told_++ > 0 ? wait_.ask_.host.blocked_by(wait_.session_) : "";
    return words.empty() ? "a lock that its holder has not published yet; `hierlock status` shows it after a second"
                         : words;
  }

 private:
  LockWait& wait_;
};

void LockWait::Wake::operator()() const noexcept { raise(descriptor); }

LockWait::LockWait(const Ask& ask, std::uint64_t session, Interrupter& interrupter, Clock::duration longest_try,
                   Victim victim, Clock::duration usual)
    : ask_(ask),
      session_(session),
      interrupter_(interrupter),
      deadline_(ask.request.no_wait ? Clock::now() + longest_try : ask.request.deadline),
      silence_(Clock::now() +
               (victim == Victim::surely_waits ? short_wait : std::max<Clock::duration>(usual_answer, usual))),
      tell_at_(ask.teller.due().value_or(Clock::now() + longest_answer)),
      silent_(ask.request.no_wait || victim == Victim::never) {
  if (ask.request.cancel == nullptr) return;
  open_wake();
  on_cancel_.emplace(*ask.request.cancel, Wake{wake_});
}

void LockWait::open_wake() {
  if (wake_ < 0) wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) throw Error(ErrorKind::exhausted, "no more file descriptors for a wait that can be cancelled");
}

LockWait::~LockWait() {
  on_cancel_.reset();
  if (pending_ != nullptr) ask_.host.wait_is_over(pending_);
  if (wake_ >= 0) close(wake_);
}

void LockWait::tell(Clock::time_point now) {
  ask_.teller.waits(Waiting(*this));
  tell_at_ = ask_.teller.due().value_or(now + long_time);
}

std::optional<Clock::duration> LockWait::next() {
  Clock::time_point now = Clock::now();
  if (!silent_ && now >= silence_) {
    silent_ = true;
    open_wake();
    pending_ = ask_.host.begins_to_wait(session_, wake_);
  }
  if (!end_by_ && (cancelled() || victim() || lets_pass() || (deadline_ && now >= *deadline_))) {
    end_by_ = now + (ask_.request.no_wait ? last_words_of_a_try : last_words);
    interrupt_at_ = now;
  }
  if (end_by_ && now >= interrupt_at_) {
    Deadline limit(*end_by_);
    if (!interrupter_.interrupt(limit)) return std::nullopt;  // the session is closed, which ends the statement soon
    now = Clock::now();
    interrupt_at_ = now + interrupt_interval;
  }
  if (end_by_) return *end_by_ > now ? std::optional(std::min(*end_by_, interrupt_at_) - now) : std::nullopt;
  const bool tells = ask_.teller.anybody() && !ask_.request.no_wait;
  if (tells && now >= tell_at_) tell(now);
  Clock::duration time = silent_ ? Clock::duration(long_time) : std::max<Clock::duration>(silence_ - now, {});
  if (tells) time = std::min<Clock::duration>(time, std::max<Clock::duration>(tell_at_ - now, {}));
  if (deadline_) time = std::min<Clock::duration>(time, *deadline_ - now);
  return time;
}

void LockWait::throw_deadlock() const { throw deadlock_error(*pending_, false); }

Error deadlock_error(const Pending& victim, bool whole_lock_released) {
  return {ErrorKind::deadlock,
          "deadlock: " + victim.cycle() + (whole_lock_released ? "; the whole lock was released" : "") +
              ". Release what you hold and start over; one acquire of all targets avoids it",
          0, victim.waits()};
}

Error cancelled_error(const std::string& doing, const spi::Plan& plan) {
  return {ErrorKind::cancelled, doing + " " + spi::describe(plan.steps()) + " was cancelled"};
}

}  // namespace hierlock::remote
