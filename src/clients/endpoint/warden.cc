#include "endpoint/warden.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <system_error>

#include <hierlock/error.h>

namespace hierlock::endpoint {

Warden::Warden(timed::WaitLimit& limit) : limit_(limit) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::exhausted, std::string("no thread can be made for a TLS handshake: ") + error.what());
  }
}

Warden::~Warden() {
  {
    const std::lock_guard guard(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

int Warden::during(int socket, const std::function<int()>& call) {
  // A descriptor of its own: the call may close the socket, and then its number belongs to somebody else.
  const int own = fcntl(socket, F_DUPFD_CLOEXEC, 0);
  set(own >= 0 ? own : socket);
  const int result = call();
  set(-1);
  if (own >= 0) close(own);
  return result;
}

bool Warden::gave_up() {
  const std::lock_guard guard(mutex_);
  return gave_up_;
}

void Warden::set(int socket) {
  {
    const std::lock_guard guard(mutex_);
    socket_ = socket;
  }
  changed_.notify_one();
}

void Warden::run() {
  std::unique_lock guard(mutex_);
  for (;;) {
    changed_.wait(guard, [this] { return over_ || (socket_ >= 0 && !gave_up_); });
    if (over_) return;
    if (const std::optional<timed::Clock::duration> time = limit_.next()) {
      changed_.wait_for(guard, *time, [this] { return over_ || socket_ < 0; });
    } else {
      gave_up_ = true;
      shutdown(socket_, SHUT_RDWR);
    }
  }
}

}  // namespace hierlock::endpoint
