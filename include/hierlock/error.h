// Error: the one exception type of hierlock. There is no tree of classes: ask the Error for its kind.
//
//     try { auto lock = locker.acquire("u1/a1/r1", {.timeout = 2s}); … }
//     catch (const hierlock::Error& e) { if (e.retryable()) try_again(); else throw; }
//
// what() is one line for a person. It says what happened and what to do about it. It never contains a password.
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
  timeout,           // the deadline passed during the wait; nothing new is held                      retryable
  busy,              // the request must not wait, and another owner is in the way                    retryable
  deadlock,          // the wait would never end; what() and cycle() say why                          retryable
  cancelled,         // the stop_token was triggered, before the call or during the wait
  lost,              // the store took the lock away, or this process is a forked child; in rows.h also: the fence
                     // was too low, or a COMMIT was not answered
  not_provisioned,   // the store lacks rows or tables that this lock needs
  unsupported,       // this store cannot do that, or is not linked in; see Capabilities
  incompatible,      // two parties disagree on a setting (bucket count, number of slots, file format)
  unsafe_topology,   // the store's current setup cannot guarantee exclusion
  exhausted,         // a bounded resource is used up: lock table, memory, connections                retryable
  denied,            // missing rights
  unavailable,       // the store cannot be reached                                                   retryable
  invalid_argument,  // a malformed target, URL or option; nothing was sent anywhere
  conflict,          // an optimistic check failed: the row changed since it was read
  serialization,     // the database asks to run the transaction again                                retryable
};

inline constexpr int error_kind_count = 15;

std::string_view to_string(ErrorKind kind) noexcept;

class Error : public std::runtime_error {
 public:
  // One member of a deadlock's cycle: an owner, and its wait that is part of the cycle.
  struct Wait {
    std::string owner;         // its name, as in snapshot(); empty: the caller, which would wait for itself
    std::int64_t process = 0;  // its process; 0 if the store does not know it
    std::string host;          // its machine; empty if all members are on this machine
    std::string waits_for;     // the node or target that it waits for, as text
    // The node that it holds and that the previous member waits for. Empty: it stands before that member in a queue.
    std::string holds;
  };

  Error(ErrorKind kind, const std::string& message, std::int64_t native_code = 0)
      : std::runtime_error(message), kind_(kind), native_code_(native_code) {}
  Error(ErrorKind kind, const std::string& message, std::int64_t native_code, std::vector<Wait> cycle);

  ErrorKind kind() const noexcept { return kind_; }

  // True if another try may succeed. Release all locks first, and start the work from its beginning. (If an owner gets
  // `deadlock` because of its own lock, each try fails until it releases that lock.)
  bool retryable() const noexcept;

  // The store's own error number (errno, MySQL's 1213, …); 0 if there is none.
  std::int64_t native_code() const noexcept { return native_code_; }

  // The members of a `deadlock`. Each member waits for the next one, and the last one waits for the first. If there is
  // only one member, its wait would be for itself. The list is empty for other kinds, and if the server found the
  // deadlock and does not describe it (InnoDB). The reference is valid as long as this Error or a copy of it exists.
  const std::vector<Wait>& cycle() const noexcept;

 private:
  ErrorKind kind_;
  std::int64_t native_code_;
  std::shared_ptr<const std::vector<Wait>> cycle_;  // shared, so that copying does not throw
};

}  // namespace hierlock
