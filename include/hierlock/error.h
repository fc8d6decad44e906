// Error: the one exception type of hierlock. Ask it questions instead of catching a tree of classes:
//
//     try { auto lock = locker.acquire("u1/a1/r1", {.timeout = 2s}); … }
//     catch (const hierlock::Error& e) { if (e.retryable()) try_again(); else throw; }
//
// what() is one line for a person: what happened and what to do about it. It never contains a password.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hierlock {

enum class ErrorKind : std::uint8_t {
  timeout,           // the deadline passed while waiting; nothing new is held                        retryable
  busy,              // zero wait was asked for and somebody holds it; nothing new is held            retryable
  deadlock,          // waiting would never end; what() tells the cycle                               retryable
  cancelled,         // the stop_token was triggered, before the call or while waiting
  lost,              // the store took the lock away, or the handle is a forked child's
  not_provisioned,   // the store lacks rows or tables this lock needs
  unsupported,       // this store cannot do that, or is not linked in; see Capabilities
  incompatible,      // two parties disagree on a setting (bucket count, number of slots, file format)
  unsafe_topology,   // the store, as set up, cannot guarantee exclusion
  exhausted,         // a bounded resource is used up: lock table, memory, connections                retryable
  denied,            // missing rights
  unavailable,       // the store cannot be reached                                                   retryable
  invalid_argument,  // a malformed target, URL or option; nothing was sent anywhere
  conflict,          // an optimistic check failed: the row changed since it was read
  serialization,     // the database asks for the transaction to be run again                         retryable
};

inline constexpr int error_kind_count = 15;

std::string_view to_string(ErrorKind kind) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, std::int64_t native_code = 0)
      : std::runtime_error(message), kind_(kind), native_code_(native_code) {}

  ErrorKind kind() const noexcept { return kind_; }

  // True when starting over may succeed: release what you hold, and do the work again from its beginning. (A `deadlock`
  // with what this owner holds itself comes back each time until that is released.)
  bool retryable() const noexcept;

  // The store's own error number (errno, MySQL's 1213, …); 0 where there is none.
  std::int64_t native_code() const noexcept { return native_code_; }

 private:
  ErrorKind kind_;
  std::int64_t native_code_;
};

}  // namespace hierlock
