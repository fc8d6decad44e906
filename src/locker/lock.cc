#include <hierlock/lock.h>

#include <hierlock/error.h>

#include "locker/core.h"

namespace hierlock {

// --- Owner -----------------------------------------------------------------------------------------------

Owner::Owner(Owner&& other) noexcept : core_(std::move(other.core_)), id_(other.id_) {}

Owner& Owner::operator=(Owner&& other) noexcept {
  if (this != &other) {
    drop();
    core_ = std::move(other.core_);
    id_ = other.id_;
  }
  return *this;
}

Owner::~Owner() { drop(); }

void Owner::drop() noexcept {
  if (core_ == nullptr) return;
  if (core_->here()) {
    core_->backend().drop_owner(id_);
    core_.reset();
  } else {
    static_cast<void>(new std::shared_ptr<spi::Core>(std::move(core_)));  // the parent's: never ended in a child
  }
}

// --- Lock ------------------------------------------------------------------------------------------------

namespace {

[[noreturn]] void throw_not_held() {
  throw Error(ErrorKind::lost, "this lock is not held: it was released, moved from, or lost");
}

}  // namespace

bool Lock::held() const noexcept { return core_ != nullptr && core_->here() && core_->backend().held(grant_); }

std::int64_t Lock::fence() const {
  if (!held()) throw_not_held();
  return grant_.fence;
}

std::stop_token Lock::lost() const {
  if (!held()) {
    std::stop_source stopped;
    stopped.request_stop();
    return stopped.get_token();
  }
  return core_->backend().lost(grant_);
}

void Lock::release() noexcept {
  if (core_ != nullptr) std::exchange(core_, nullptr)->release(grant_);
}

void Lock::extend(const Target& target, const AcquireOptions& options) {
  if (!held()) throw_not_held();
  try {
    grant_ = *core_->run(spi::Plan(target), options, {}, &grant_, false);
  } catch (const Error& error) {
    // After a deadlock the grant is gone, and nothing keeps the Core alive for this handle. In all other cases the lock
    // stays its holder's to release, also if it was taken away meanwhile. Until then nobody is given what lies above
    // it. So held() must not decide here: an operator may have broken the lock since the extend failed.
    if (error.kind() == ErrorKind::deadlock) release();
    throw;
  } catch (...) {
    if (!held()) release();  // no memory, perhaps for the words of a deadlock
    throw;
  }
}

void Lock::give_to(const Owner& owner) {
  if (!held()) throw_not_held();
  if (owner.core_.get() != core_)
    throw Error(ErrorKind::invalid_argument, "the Owner belongs to another Locker, or was moved from");
  grant_ = core_->use().give(grant_, owner.id_);
}

void Lock::give_to_this_thread() {
  if (!held()) throw_not_held();
  grant_ = core_->use().give(grant_, {});
}

}  // namespace hierlock
