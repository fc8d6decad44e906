#include "mysql/lock_wait.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "mysql_client/error_codes.h"

namespace hierlock::mysql {

namespace {

// An answer that takes longer may be that of a lock that somebody has; and this long, it most likely is.
constexpr std::chrono::milliseconds usual_answer{30}, longest_answer{250};
// How long a statement that was ended by KILL may still take to say so.
constexpr std::chrono::seconds last_words{2}, last_words_of_a_try{1};
// A KILL that arrives before the statement has begun ends nothing: it is said again.
constexpr std::chrono::milliseconds kill_interval{20};
constexpr std::chrono::hours long_time{1};

}  // namespace

void LockWait::Wake::operator()() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(descriptor, &one, sizeof one);
}

LockWait::LockWait(Pool& pool, const Connection& connection, const spi::Request& request, Teller& teller,
                   const spi::Waiting& waiting, Clock::duration longest_try, std::function<Pending*()> long_silence)
    : pool_(pool),
      connection_(connection),
      request_(request),
      teller_(teller),
      waiting_(waiting),
      deadline_(request.no_wait ? Clock::now() + longest_try : request.deadline),
      long_silence_(std::move(long_silence)),
      silence_(Clock::now() + usual_answer),
      tell_at_(teller.due().value_or(Clock::now() + longest_answer)),
      silent_(request.no_wait) {
  if (request.cancel == nullptr) return;
  open_wake();
  on_cancel_.emplace(*request.cancel, Wake{wake_});
}

void LockWait::open_wake() {
  if (wake_ < 0) wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) throw Error(ErrorKind::exhausted, "no more file descriptors for a wait that can be cancelled");
}

LockWait::~LockWait() {
  on_cancel_.reset();
  if (wake_ >= 0) close(wake_);
}

bool LockWait::interrupt() {
  Deadline limit(*end_by_);  // also for those who had to stand behind others at a server that is silent
  bool unanswered = false;
  const auto kill = [&](Connection& side) {
    if (side.identity() != connection_.identity()) return false;  // another server has other sessions by that number
    const Reply reply = side.query("KILL QUERY " + std::to_string(connection_.id()), limit);
    if (!limit.next()) unanswered = true;  // it may still come to be, and hit a later statement
    return reply.well() || reply.code == codes::no_such_session;
  };
  return pool_.urgently_on_the_side(kill, limit) && !unanswered;
}

std::optional<Clock::duration> LockWait::next() {
  Clock::time_point now = Clock::now();
  if (!silent_ && now >= silence_) {
    silent_ = true;
    open_wake();
    pending_ = long_silence_();
  }
  if (!end_by_ && (cancelled() || victim() || (deadline_ && now >= *deadline_))) {
    end_by_ = now + (request_.no_wait ? last_words_of_a_try : last_words);
    kill_at_ = now;
  }
  if (end_by_ && now >= kill_at_) {
    if (!interrupt()) return std::nullopt;  // then the connection is closed, and the server forgets the request soon
    now = Clock::now();
    kill_at_ = now + kill_interval;
  }
  if (end_by_) return *end_by_ > now ? std::optional(std::min(*end_by_, kill_at_) - now) : std::nullopt;
  const bool tells = teller_.anybody() && !request_.no_wait;
  if (tells && now >= tell_at_) {
    teller_.waits(waiting_);
    tell_at_ = teller_.due().value_or(now + long_time);
  }
  Clock::duration time = silent_ ? Clock::duration(long_time) : std::max<Clock::duration>(silence_ - now, {});
  if (tells) time = std::min<Clock::duration>(time, std::max<Clock::duration>(tell_at_ - now, {}));
  if (deadline_) time = std::min<Clock::duration>(time, *deadline_ - now);
  return time;
}

}  // namespace hierlock::mysql
