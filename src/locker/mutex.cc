#include <hierlock/mutex.h>

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "locker/this_thread.h"

namespace hierlock {

using locker::this_thread_number;

namespace {

Target checked(Target target) {
  if (target.space() == Space::slots) {
    throw Error(ErrorKind::invalid_argument,
                "a Mutex excludes everybody else, " + target.str() + " does not: use LockManager for slots");
  }
  if (target.is_shared()) {
    throw Error(ErrorKind::invalid_argument,
                "a Mutex decides itself when it is shared: construct it without shared(), not with " + target.str());
  }
  return target;
}

// The newest one of this thread: an older one was taken away by the store, or it is shared and any will do.
template <class HeldVector>
auto newest_of(HeldVector& held, std::uint64_t thread) {
  const auto found = std::find_if(held.rbegin(), held.rend(), [&](const auto& h) { return h.by == thread; });
  return found == held.rend() ? held.end() : std::prev(found.base());
}

}  // namespace

Mutex::Mutex(Locker& locker, Target target, Sharing sharing)
    : locker_(locker), exclusive_(checked(std::move(target))), shared_(shared(exclusive_)) {
  if (sharing == Sharing::if_possible) return;
  const Capabilities can = locker_.capabilities();
  if (exclusive_.space() == Space::name) {
    if (can.shared_names) return;
    throw Error(ErrorKind::unsupported, locker_.url() + " cannot hold " + exclusive_.str() + " shared");
  }
  // Whether this is the deepest level is known to the store alone.
  if (!can.shared_inner) (void)locker_.try_acquire(shared_);
}

void Mutex::lock() {
  refuse_self_wait(exclusive_);
  keep(held_, locker_.acquire(exclusive_));
}

bool Mutex::try_lock() { return try_exclusive({}); }

void Mutex::unlock() noexcept { drop(held_); }

void Mutex::lock_shared() {
  refuse_self_wait(shared_);
  keep(held_shared_, locker_.acquire(shared_));
}

bool Mutex::try_lock_shared() { return try_shared({}); }

void Mutex::unlock_shared() noexcept { drop(held_shared_); }

std::int64_t Mutex::fence() const {
  const std::scoped_lock guard(mutex_);
  const auto found = newest_of(held_, this_thread_number());
  if (found == held_.end()) {
    throw Error(ErrorKind::lost, "this thread has not locked the Mutex of " + exclusive_.str() + " exclusively");
  }
  return found->lock.fence();
}

bool Mutex::try_exclusive(std::chrono::nanoseconds wait) {
  refuse_self_wait(exclusive_);
  std::optional<Lock> lock = locker_.try_acquire(exclusive_, wait);
  if (lock) keep(held_, *std::move(lock));
  return lock.has_value();
}

bool Mutex::try_shared(std::chrono::nanoseconds wait) {
  refuse_self_wait(shared_);
  std::optional<Lock> lock = locker_.try_acquire(shared_, wait);
  if (lock) keep(held_shared_, *std::move(lock));
  return lock.has_value();
}

void Mutex::refuse_self_wait(const Target& wanted) const {
  // The Locker sees this as well when its owners are threads, but not when every handle is an owner of its own.
  const std::scoped_lock guard(mutex_);
  const std::uint64_t thread = this_thread_number();
  const auto mine = [&](const Held& h) { return h.by == thread && h.lock.held(); };
  const auto refuse = [&](const Target& has) {
    throw Error(ErrorKind::deadlock,
                "this thread asks for " + wanted.str() + " and already holds " + has.str() +
                    " through the same Mutex: unlock it first",
                0, {{.owner = "", .process = getpid(), .host = "", .waits_for = wanted.str(), .holds = has.str()}});
  };
  if (std::any_of(held_.begin(), held_.end(), mine)) refuse(exclusive_);
  if (!wanted.is_shared() && std::any_of(held_shared_.begin(), held_shared_.end(), mine)) refuse(shared_);
}

void Mutex::keep(std::vector<Held>& held, Lock lock) {
  const std::uint64_t thread = this_thread_number();
  const std::scoped_lock guard(mutex_);
  held.push_back({thread, std::move(lock)});
}

void Mutex::drop(std::vector<Held>& held) noexcept {
  Lock lock;
  {
    const std::scoped_lock guard(mutex_);
    const auto found = newest_of(held, this_thread_number());
    if (found == held.end()) return;
    lock = std::move(found->lock);
    held.erase(found);
  }
  // Last, and without touching the Mutex: whoever gets it next may destroy it.
  lock.release();
}

}  // namespace hierlock
