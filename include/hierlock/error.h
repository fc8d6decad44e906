// Error: the one exception type of hierlock. Ask it questions instead of catching a tree of classes:
//
//     try { auto lock = locker.acquire("u1/a1/r1", {.timeout = 2s}); … }
//     catch (const hierlock::Error& e) { if (e.retryable()) try_again(); else throw; }
//
// what() is one line for a person: what happened and what to do about it. It never contains a password.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hierlock {

enum class ErrorKind : std::uint8_t {
  timeout,           // the deadline passed while waiting; nothing new is held                        retryable
  busy,              // zero wait was asked for and somebody holds it; nothing new is held            retryable
  deadlock,          // waiting would never end; what() and cycle() tell why                          retryable
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
  // One member of the cycle of a deadlock: an owner, and the one wait of it that is part of the cycle.
  struct Wait {
    std::string owner;         // its name, as snapshot() shows it; empty: the caller, who would wait for itself
    std::int64_t process = 0;  // its process; 0 where the store cannot know
    std::string host;          // its machine; empty where all are on this one
    std::string waits_for;     // the node or target that it waits for, as text
    // What it holds and the member before it waits for. Empty: it stands before that one in a queue.
    std::string holds;
  };

  Error(ErrorKind kind, const std::string& message, std::int64_t native_code = 0)
      : std::runtime_error(message), kind_(kind), native_code_(native_code) {}
  Error(ErrorKind kind, const std::string& message, std::int64_t native_code, std::vector<Wait> cycle);

  ErrorKind kind() const noexcept { return kind_; }

  // True when starting over may succeed: release what you hold, and do the work again from its beginning. (A `deadlock`
  // with what this owner holds itself comes back each time until that is released.)
  bool retryable() const noexcept;

  // The store's own error number (errno, MySQL's 1213, …); 0 where there is none.
  std::int64_t native_code() const noexcept { return native_code_; }

  // Of a `deadlock`: its members, each of which waits for the next one, and the last one for the first. A single member
  // would wait for itself. Empty for other kinds, and where the server itself found the deadlock and does not tell more
  // (InnoDB). Valid as long as this Error or a copy of it.
  const std::vector<Wait>& cycle() const noexcept;

 private:
  ErrorKind kind_;
  std::int64_t native_code_;
  std::shared_ptr<const std::vector<Wait>> cycle_;  // shared, so that copying does not throw
};

}  // namespace hierlock
