// Options: how long to wait, for which owner, and which events to report. Plain aggregates for designated initialisers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include <hierlock/error.h>

namespace hierlock {

class Owner;

// For one acquire: locker.acquire("u1/a1", {.timeout = 50ms, .cancel = token, .note = "order 17"}).
struct AcquireOptions {
  // How long to wait. None: for ever. Zero: do not wait; a conflict is `busy`. A negative timeout counts as zero. (Even
  // with zero, the call may take time: up to 1 s on shm:, if another process was stopped in the middle of a change. If
  // a server does not answer, the call may take up to 5 s, and then throws `unavailable`.)
  std::optional<std::chrono::nanoseconds> timeout{};
  // Ends the wait with `cancelled`.
  std::stop_token cancel{};
  // The owner of the lock: {.owner = &owner} with Owner owner = locker.owner("request 17"). None: the calling thread,
  // or the handle itself (see OpenOptions::owners).
  const Owner* owner = nullptr;
  // Shown beside the holder in snapshot() and status. At most 255 bytes are kept.
  std::string_view note{};
};

// An event of a request that waits or is refused. The string views are valid only during the callback.
struct Event {
  enum class Kind : std::uint8_t {
    wait_begins,   // the request must wait
    wait_goes_on,  // the request has waited for another OpenOptions::long_wait
    wait_granted,  // the wait ended with the lock
    wait_failed,   // the wait ended without the lock: see `error`
    refused,       // the request failed without a wait (busy, deadlock with its own lock, exhausted): see `error`
  };
  Kind kind;
  std::string_view target;            // the request's target, as text
  std::string_view owner;             // the request's owner
  std::string_view blocked_by;        // wait_begins, wait_goes_on: the owner in the way, in words
  std::chrono::nanoseconds waited{};  // time since the wait began
  std::optional<ErrorKind> error{};
};

std::string_view to_string(Event::Kind kind) noexcept;

enum class Owners : std::uint8_t {
  per_thread,  // the calling thread owns its locks: if it asks again for a lock that it holds, it gets `deadlock`
  per_handle,  // every handle is a separate owner, for thread pools and coroutines that move between threads. If a
               // thread asks again for a lock that it holds, it waits for ever, or until its timeout
};

// For one Locker: hierlock::open("memory:", {.owners = Owners::per_handle}).
struct OpenOptions {
  Owners owners = Owners::per_thread;
  // Called for acquires and extends that wait or are refused. Those that are granted without a wait cause no event:
  // only stats() counts them. The callback runs on the waiting thread, while the thread holds no mutex of the library.
  // The callback must not throw. The library drops its exceptions.
  std::function<void(const Event&)> on_event{};
  // on_event is called with wait_goes_on each time that a wait has lasted this long.
  std::chrono::nanoseconds long_wait = std::chrono::seconds(10);
  // True: open() creates a missing table on shm:, and on mysql: with ?provision=lazy. False: open() throws
  // not_provisioned instead, for programs that only look.
  bool create = true;
  // How long open() may take in total on a store that needs a server. None: 5 s to connect, and 5 s more to read the
  // recorded settings. After that, open() throws `unavailable`. memory: and shm: ignore this option.
  std::optional<std::chrono::nanoseconds> connect_timeout{};
  // Ends open() with `cancelled` within 50 ms, on a store that needs a server. An opened Locker does not use it.
  std::stop_token cancel{};
};

}  // namespace hierlock
