#include "forger.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace hierlock::mysql_tests {
namespace {

sockaddr_in loopback(unsigned port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool write_all(int to, const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = send(to, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

Forger::Forger(const std::string& url, std::vector<Forgery> forgeries) : forgeries_(std::move(forgeries)) {
  for (const auto& [from, to] : forgeries_) {
    if (from.size() != to.size()) throw std::runtime_error("a forgery changes the number of bytes: " + to);
  }
  const std::size_t colon = url.rfind(':'), slash = url.find('/', colon);
  port_ = static_cast<unsigned>(std::stoul(url.substr(colon + 1, slash - colon - 1)));
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in own = loopback(0);
  socklen_t size = sizeof own;
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&own), size) != 0 || listen(listener_, 16) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    throw std::runtime_error("the forger cannot listen");
  }
  url_ = url.substr(0, colon + 1) + std::to_string(ntohs(own.sin_port)) + url.substr(slash);
  acceptor_ = std::thread([this] { accept_all(); });
}

Forger::~Forger() {
  end_ = true;
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  close(listener_);
}

void Forger::accept_all() {
  while (!end_) {
    pollfd ready{listener_, POLLIN, 0};
    if (poll(&ready, 1, 20) <= 0) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client >= 0) threads_.emplace_back([this, client] { serve(client); });
  }
}

// Good enough for tests: on loopback what is looked for comes in one piece.
std::string Forger::forged(std::string bytes, bool greeting) const {
  for (const auto& [from, to] : forgeries_) {
    for (std::size_t at = 0; (at = bytes.find(from, at)) != bytes.npos; at += to.size()) {
      bytes.replace(at, from.size(), to);
    }
  }
  // Header of 4 bytes, protocol version, the server's version with a zero, then the number.
  if (greeting && renumber_) {
    const std::size_t end_of_version = bytes.find('\0', 5);
    if (end_of_version + 1 < bytes.size()) ++bytes[end_of_version + 1];
  }
  return bytes;
}

void Forger::serve(int client) {
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port_);
  bool greeting = true;
  bool open = connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  while (open && !end_) {
    pollfd ready[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    if (poll(ready, 2, 20) <= 0) continue;
    for (int from = 0; from < 2 && open; ++from) {
      if (ready[from].revents == 0) continue;
      std::string bytes(256 * 1024, '\0');
      const ssize_t n = recv(ready[from].fd, bytes.data(), bytes.size(), 0);
      if (n <= 0) {
        open = false;
        break;
      }
      bytes.resize(static_cast<std::size_t>(n));
      open = write_all(ready[1 - from].fd, forged(std::move(bytes), from == 1 && greeting));
      if (from == 1) greeting = false;
    }
  }
  close(server);
  close(client);
}

}  // namespace hierlock::mysql_tests
