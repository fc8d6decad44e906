// Socket: how clients watch a connection to a server while its answer is still to come.
#pragma once

#include "timed/wait_limit.h"

namespace hierlock::endpoint {

// What a client waits for; several are added up. libmariadb uses the same numbers.
inline constexpr int readable = 1, writable = 2, urgent = 4;

// Watches the socket for at most so long, and `wake` too, unless it is -1. Returns those of `events` that are there. A
// connection that has ended is readable and writable.
int watch(int socket, int events, int wake, timed::Clock::duration time);
// The server has closed its end, or has sent something. Does not wait.
bool has_input(int socket) noexcept;

// For an answer that is expected at once, if the thread has nothing else to watch. recv() sleeps with a coarse timer
// instead of an exact one. That saves 1 us of the 20 that a round trip takes on one machine.
class BriefLook {
 public:
  static constexpr std::chrono::milliseconds longest{25};

  void prepare(int socket) noexcept;
  bool possible() const noexcept { return possible_; }
  // Waits until the socket is readable, for at most `longest`. It does not wait for a non-blocking socket, as TLS has
  // it.
  static bool readable(int socket) noexcept;

 private:
  bool possible_ = false;
};

// Programs that this process starts do not get the socket. If the server's machine does not acknowledge data for 10 s,
// the kernel ends the connection. It also does so if a session waits for a lock, sends nothing, and the machine does
// not answer for that long.
void look_after(int socket) noexcept;

// OpenSSL keeps errors for each thread, not for each connection. A client library takes such an error for one of the
// connection that it reads from. So an error of one connection would end the next connection that has nothing to read
// yet. Call this before each call of a client library that uses OpenSSL.
void forget_tls_errors() noexcept;

}  // namespace hierlock::endpoint
