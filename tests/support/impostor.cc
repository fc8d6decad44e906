#include "support/impostor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>

namespace hierlock::tests {

namespace {

// Those that a client looks at: long password, found rows, long flag, database, protocol 4.1, transactions, secure
// connection; and plugins, with their names. Not TLS (0x800).
constexpr std::uint32_t can_do = 0x1 | 0x2 | 0x4 | 0x8 | 0x200 | 0x2000 | 0x8000, knows_plugins = 0x80000;

std::string packet(std::size_t number, const std::string& body) {
  std::string text;
  for (int i = 0; i < 3; ++i) text += static_cast<char>(body.size() >> (8 * i));
  return text + static_cast<char>(number) + body;
}

std::string nul(std::size_t count) { return std::string(count, '\0'); }

std::string greeting(bool plugins) {
  const std::uint32_t flags = can_do | (plugins ? knows_plugins : 0);
  const auto byte = [&](int i) { return std::string(1, static_cast<char>(flags >> (8 * i))); };
  return "\x0a"
         "9.7.0" +
         nul(1) + "\x07" + nul(3) + "12345678" + nul(1) + byte(0) + byte(1) + "\x2d\x02" + nul(1) + byte(2) + byte(3) +
         "\x15" + nul(10) + "123456789012" + nul(1) + (plugins ? "mysql_native_password" + nul(1) : "");
}

}  // namespace

Impostor::Impostor(std::string proof, Age age) : proof_(std::move(proof)), age_(age) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(listener_, 8) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    close(listener_);
    throw std::runtime_error("impostor: no port");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

Impostor::~Impostor() {
  end_ = true;
  thread_.join();
  close(listener_);
}

std::string Impostor::url(const std::string& user, const std::string& password, const std::string& options) const {
  return "mysql://" + user + (password.empty() ? "" : ":" + password) + "@127.0.0.1:" + std::to_string(port_) +
         "/shop?" + options;
}

std::string Impostor::heard() const {
  const std::lock_guard guard(mutex_);
  return heard_;
}

void Impostor::run() {
  while (!end_) {
    pollfd fd{listener_, POLLIN, 0};
    if (poll(&fd, 1, 20) <= 0) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    serve(client);
    close(client);
  }
}

void Impostor::serve(int client) {
  const auto say = [&](const std::string& text) { (void)!send(client, text.data(), text.size(), MSG_NOSIGNAL); };
  say(packet(0, greeting(age_ == Age::today)));
  for (std::size_t number = 2; !end_;) {
    pollfd fd{client, POLLIN, 0};
    if (poll(&fd, 1, 20) <= 0) continue;
    char buffer[4096];
    const ssize_t got = recv(client, buffer, sizeof buffer, 0);
    if (got <= 0) return;
    {
      const std::lock_guard guard(mutex_);
      heard_.append(buffer, static_cast<std::size_t>(got));
    }
    if (number == 2 && age_ == Age::today) {
      const std::string about = proof_ == "dialog" ? "\x02Password: " : "12345678901234567890";
      say(packet(number, "\xfe" + proof_ + nul(1) + about + nul(1)));
    } else {
      say(packet(number, nul(3) + "\x02" + nul(3)));  // OK
    }
    number += 2;
  }
}

}  // namespace hierlock::tests
