// Options: how long to wait, on whose behalf, and whom to tell. Plain aggregates for designated initialisers.
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
  // How long to wait. None: for ever. Zero: not at all (on shm:, up to 1 s if a process
  // was stopped in the middle of a change); a conflict is `busy`. Negative counts as zero.
  std::optional<std::chrono::nanoseconds> timeout{};
  // Ends the wait with `cancelled`.
  std::stop_token cancel{};
  // Who asks, {.owner = &owner} with Owner owner = locker.owner("request 17"). None: the calling thread (or the handle
  // itself, see OpenOptions::owners).
  const Owner* owner = nullptr;
  // Shown beside the holder in snapshot() and status. At most 255 bytes are kept.
  std::string_view note{};
};

// Something that happened while waiting. Views are valid during the callback only.
struct Event {
  enum class Kind : std::uint8_t {
    wait_begins,   // the acquire could not be granted at once
    wait_goes_on,  // it has been waiting for another OpenOptions::long_wait
    wait_granted,  // it got what it waited for
    wait_failed,   // it did not: see `error`
    refused,       // it failed without waiting (busy, deadlock with itself, exhausted): see `error`
  };
  Kind kind;
  std::string_view target;            // what was asked for, as text
  std::string_view owner;             // who asked
  std::string_view blocked_by;        // wait_begins, wait_goes_on: who stands in the way, in words
  std::chrono::nanoseconds waited{};  // since the wait began
  std::optional<ErrorKind> error{};
};

std::string_view to_string(Event::Kind kind) noexcept;

enum class Owners : std::uint8_t {
  per_thread,  // the calling thread owns what it acquires: asking twice for the same thing is `deadlock`, not a hang
  per_handle,  // every handle is an owner of its own: for pools and coroutines that move between threads. A thread that
               // waits for itself then waits for ever, or until its timeout
};

// For one Locker: hierlock::open("memory:", {.owners = Owners::per_handle}).
struct OpenOptions {
  Owners owners = Owners::per_thread;
  // Called on the waiting thread, with no lock of the library held, for acquires that wait or are refused; granted
  // acquires that did not wait are only counted (stats()). It must not throw; if it does, what it threw is dropped.
  std::function<void(const Event&)> on_event{};
  // A wait that lasts this long is told to on_event, and again each time it has lasted as long once more.
  std::chrono::nanoseconds long_wait = std::chrono::seconds(10);
  // shm: makes a table that is not there. False: open() throws not_provisioned instead, for those who only look.
  bool create = true;
  // How long open() may take altogether at a store that needs a server. None: 5 s to connect, and 5 s more to read what
  // the server has recorded. When the time is up: `unavailable`. memory: and shm: need no server and ignore it.
  std::optional<std::chrono::nanoseconds> connect_timeout{};
  // Ends open() with `cancelled`, within 50 ms, at a store that needs a server. An opened Locker does not use it.
  std::stop_token cancel{};
};

}  // namespace hierlock
