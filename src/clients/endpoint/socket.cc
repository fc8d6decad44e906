#include "endpoint/socket.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace hierlock::endpoint {

namespace {

timespec to_timespec(timed::Clock::duration time) {
  const auto ns = std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

}  // namespace

int watch(int socket, int events, int wake, timed::Clock::duration time) {
  pollfd fds[2] = {{socket, 0, 0}, {wake, POLLIN, 0}};
  if ((events & readable) != 0) fds[0].events |= POLLIN;
  if ((events & writable) != 0) fds[0].events |= POLLOUT;
  if ((events & urgent) != 0) fds[0].events |= POLLPRI;
  const timespec limit = to_timespec(time);
  if (ppoll(fds, wake >= 0 ? 2 : 1, &limit, nullptr) <= 0) return 0;
  int ready = 0;
  const short seen = fds[0].revents;
  if ((seen & (POLLIN | POLLHUP | POLLERR | POLLNVAL)) != 0) ready |= readable;
  if ((seen & (POLLOUT | POLLHUP | POLLERR | POLLNVAL)) != 0) ready |= writable;
  if ((seen & POLLPRI) != 0) ready |= urgent;
  return ready & events;
}

bool has_input(int socket) noexcept {
  pollfd fd{socket, POLLIN | POLLRDHUP, 0};
  return poll(&fd, 1, 0) != 0;
}

// The kernel rounds the time up to its clock tick, twice, and there are at least 100 ticks a second.
void BriefLook::prepare(int socket) noexcept {
  constexpr timeval time{0, 4'000};
  possible_ = setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0;
}

bool BriefLook::readable(int socket) noexcept {
  char byte = 0;
  const ssize_t got = recv(socket, &byte, 1, MSG_PEEK);
  return got >= 0 || (errno != EAGAIN && errno != EINTR);
}

// All but the first fail on a unix socket, harmlessly.
void look_after(int socket) noexcept {
  fcntl(socket, F_SETFD, FD_CLOEXEC);
  const int silence_ms = 10'000, ask = 1, ask_after_s = 5, ask_again_s = 2;
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &ask, sizeof ask);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &ask_after_s, sizeof ask_after_s);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &ask_again_s, sizeof ask_again_s);
}

// By its name, so that nothing is linked with OpenSSL for this.
void forget_tls_errors() noexcept {
  static const auto forget = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "ERR_clear_error"));
  if (forget != nullptr) forget();
}

}  // namespace hierlock::endpoint
