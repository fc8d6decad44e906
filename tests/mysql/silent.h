// Silent: a server that accepts connections and never says a word, as a stopped process does; or one that does not even
// answer a SYN, as a machine that is off.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace hierlock::mysql_tests {

class Silent {
 public:
  enum class How : std::uint8_t { accepts, unreachable };

  explicit Silent(How how = How::accepts) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    if (bind(listener_, reinterpret_cast<const sockaddr*>(&address_), size) != 0 ||
        listen(listener_, how == How::accepts ? 8 : 0) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address_), &size) != 0) {
      close(listener_);
      throw std::runtime_error("silent server: no port");
    }
    if (how == How::unreachable) fill_backlog();
  }
  ~Silent() {
    for (const int file : others_) close(file);
    close(listener_);
  }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;

  unsigned port() const { return ntohs(address_.sin_port); }
  std::string url(const std::string& options = "") const {
    return "mysql://app:secret@127.0.0.1:" + std::to_string(port()) + "/shop" + (options.empty() ? "" : "?" + options);
  }
  // Waits for a client. False if none comes within 20 s.
  bool has_client() {
    pollfd client{listener_, POLLIN, 0};
    return poll(&client, 1, 20'000) == 1;
  }

 private:
  // The kernel drops the SYN of whoever comes next.
  void fill_backlog() {
    for (int i = 0; i < 4; ++i) {
      const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      others_.push_back(file);
      (void)!connect(file, reinterpret_cast<const sockaddr*>(&address_), sizeof address_);
    }
  }

  int listener_ = -1;
  sockaddr_in address_{};
  std::vector<int> others_;
};

}  // namespace hierlock::mysql_tests
