#include <hierlock/locker.h>

#include <hierlock/error.h>

#include "locker/core.h"
#include "locker/stores.h"

namespace hierlock {

Locker& Locker::operator=(Locker&& other) noexcept {
  if (this != &other) {
    spi::Core::close(core_);
    core_ = std::exchange(other.core_, nullptr);
  }
  return *this;
}

Locker::~Locker() { spi::Core::close(core_); }

spi::Core& Locker::core() const {
  if (core_ == nullptr)
    throw Error(ErrorKind::invalid_argument, "this Locker was moved from: use the one it was moved to");
  return *core_;
}

spi::OwnerId Locker::owner_of(const AcquireOptions& options) const {
  if (options.owner == nullptr) return {};
  if (options.owner->core_.get() != core_) {
    throw Error(ErrorKind::invalid_argument,
                "the Owner belongs to another Locker, or was moved from: make it with this Locker's owner()");
  }
  return options.owner->id_;
}

// --- acquire ---------------------------------------------------------------------------------------------

// In functions of their own, so that the usual case needs no room for a plan.
Lock Locker::acquire_unusual(const Target& target, const AcquireOptions& options) {
  return {core_, *core().run(spi::Plan(target), options, owner_of(options), nullptr, false)};
}

Lock Locker::acquire(const Target& target, const AcquireOptions& options) {
  if (core_ != nullptr) {
    if (const spi::Grant grant = core_->at_once(spi::Chain::of(target), options); grant.id != 0) return {core_, grant};
  }
  return acquire_unusual(target, options);
}

Lock Locker::acquire_path_unusual(std::string_view path, const AcquireOptions& options) {
  const spi::PathText text(path);
  if (const spi::Grant grant = core().at_once(text.chain(), options); grant.id != 0) return {core_, grant};
  return {core_, *core().run(spi::Plan(text), options, owner_of(options), nullptr, false)};
}

Lock Locker::acquire_path(std::string_view path, const AcquireOptions& options) {
  if (core_ != nullptr) {
    if (const spi::Grant grant = core_->at_once_again(path, options); grant.id != 0) return {core_, grant};
  }
  return acquire_path_unusual(path, options);
}

Lock Locker::acquire(std::span<const Target> targets, const AcquireOptions& options) {
  return {core_, *core().run(spi::Plan(targets), options, owner_of(options), nullptr, false)};
}

namespace {

// `timeout` is the parameter of the try_ forms; it rules over the options'.
std::optional<spi::Grant> try_run(spi::Core& core, const spi::Plan& plan, std::chrono::nanoseconds timeout,
                                  AcquireOptions& options, spi::OwnerId owner) {
  options.timeout = timeout;
  return core.run(plan, options, owner, nullptr, true);
}

}  // namespace

std::optional<Lock> Locker::try_acquire(const Target& target, std::chrono::nanoseconds timeout,
                                        AcquireOptions options) {
  if (const spi::Grant grant = core().at_once(spi::Chain::of(target), options); grant.id != 0)
    return Lock(core_, grant);
  const auto grant = try_run(core(), spi::Plan(target), timeout, options, owner_of(options));
  return grant ? std::optional(Lock(core_, *grant)) : std::nullopt;
}

std::optional<Lock> Locker::try_acquire_path(std::string_view path, std::chrono::nanoseconds timeout,
                                             AcquireOptions& options) {
  if (const spi::Grant grant = core().at_once_again(path, options); grant.id != 0) return Lock(core_, grant);
  const spi::PathText text(path);
  if (const spi::Grant grant = core().at_once(text.chain(), options); grant.id != 0) return Lock(core_, grant);
  const auto grant = try_run(core(), spi::Plan(text), timeout, options, owner_of(options));
  return grant ? std::optional(Lock(core_, *grant)) : std::nullopt;
}

std::optional<Lock> Locker::try_acquire(std::span<const Target> targets, std::chrono::nanoseconds timeout,
                                        AcquireOptions options) {
  const auto grant = try_run(core(), spi::Plan(targets), timeout, options, owner_of(options));
  return grant ? std::optional(Lock(core_, *grant)) : std::nullopt;
}

// --- looking ---------------------------------------------------------------------------------------------

Owner Locker::owner(std::string_view name) { return {core().shared_from_this(), core().use().make_owner(name)}; }

Capabilities Locker::capabilities() const { return core().backend().capabilities(); }
Snapshot Locker::snapshot() const { return core().use().snapshot(); }
Stats Locker::stats() const {
  core().use();
  return core().stats();
}
std::string Locker::url() const { return core().url(); }

std::size_t Locker::break_locks(const Target& target, std::string_view reason) {
  return core().use().break_locks(spi::Plan(target), reason);
}
int Locker::lifeline() { return core().use().lifeline(); }

Locker open(std::string_view text, OpenOptions options) {
  const spi::Url url = spi::Url::parse(text);
  if (options.long_wait <= std::chrono::nanoseconds::zero()) {
    throw Error(ErrorKind::invalid_argument, "long_wait must be positive");
  }
  auto backend = find_store(url.scheme).open(url, options);
  options.cancel = {};  // it is for opening only
  return Locker(spi::Core::make(std::move(backend), url, std::move(options)));
}

}  // namespace hierlock
