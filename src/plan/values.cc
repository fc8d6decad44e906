// The small questions that the plain values of the public headers answer.
#include <hierlock/error.h>
#include <hierlock/options.h>
#include <hierlock/snapshot.h>
#include <hierlock/target.h>

namespace hierlock {

std::string_view to_string(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::timeout:
      return "timeout";
    case ErrorKind::busy:
      return "busy";
    case ErrorKind::deadlock:
      return "deadlock";
    case ErrorKind::cancelled:
      return "cancelled";
    case ErrorKind::lost:
      return "lost";
    case ErrorKind::not_provisioned:
      return "not_provisioned";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::incompatible:
      return "incompatible";
    case ErrorKind::unsafe_topology:
      return "unsafe_topology";
    case ErrorKind::exhausted:
      return "exhausted";
    case ErrorKind::denied:
      return "denied";
    case ErrorKind::unavailable:
      return "unavailable";
    case ErrorKind::invalid_argument:
      return "invalid_argument";
    case ErrorKind::conflict:
      return "conflict";
    case ErrorKind::serialization:
      return "serialization";
  }
  return "unknown";
}

Error::Error(ErrorKind kind, const std::string& message, std::int64_t native_code, std::vector<Wait> cycle)
    : std::runtime_error(message), kind_(kind), native_code_(native_code) {
  if (!cycle.empty()) cycle_ = std::make_shared<const std::vector<Wait>>(std::move(cycle));
}

const std::vector<Error::Wait>& Error::cycle() const noexcept {
  static const std::vector<Wait> none;
  return cycle_ ? *cycle_ : none;
}

bool Error::retryable() const noexcept {
  switch (kind_) {
    case ErrorKind::timeout:
    case ErrorKind::busy:
    case ErrorKind::deadlock:
    case ErrorKind::exhausted:
    case ErrorKind::unavailable:
    case ErrorKind::serialization:
      return true;
    // Not `conflict`: the same write would meet the same changed row; the caller has to read again first.
    case ErrorKind::conflict:
    case ErrorKind::cancelled:
    case ErrorKind::lost:
    case ErrorKind::not_provisioned:
    case ErrorKind::unsupported:
    case ErrorKind::incompatible:
    case ErrorKind::unsafe_topology:
    case ErrorKind::denied:
    case ErrorKind::invalid_argument:
      return false;
  }
  return false;
}

std::string_view to_string(Space space) noexcept {
  switch (space) {
    case Space::path:
      return "path";
    case Space::name:
      return "name";
    case Space::slots:
      return "slots";
  }
  return "unknown";
}

std::string_view to_string(Event::Kind kind) noexcept {
  switch (kind) {
    case Event::Kind::wait_begins:
      return "wait_begins";
    case Event::Kind::wait_goes_on:
      return "wait_goes_on";
    case Event::Kind::wait_granted:
      return "wait_granted";
    case Event::Kind::wait_failed:
      return "wait_failed";
    case Event::Kind::refused:
      return "refused";
  }
  return "unknown";
}

Stats::Kind Stats::total() const {
  Kind sum;
  for (const Kind& kind : by_space) {
    sum.grants += kind.grants;
    sum.waits += kind.waits;
    sum.waited += kind.waited;
    sum.deadlocks += kind.deadlocks;
  }
  return sum;
}

bool Snapshot::anybody_waits(std::string_view target) const {
  if (target.empty()) return !waiters.empty();
  for (const Waiter& waiter : waiters) {
    if (waiter.target == target || waiter.wanted == target) return true;
  }
  return false;
}

}  // namespace hierlock
