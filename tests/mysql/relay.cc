#include "relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace hierlock::mysql_tests {

namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("relay: " + what + ": " + strerror(errno)); }

sockaddr_in address_of(const std::string& host, unsigned port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) throw std::runtime_error("relay: not numeric: " + host);
  return address;
}

const sockaddr* plain(const sockaddr_in& address) { return reinterpret_cast<const sockaddr*>(&address); }

bool send_all(int to, const std::uint8_t* data, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = send(to, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

// In the server's first packet: version 10, its name up to a NUL, session (4), 8 bytes and a NUL, then what it can do.
void hide_tls(std::vector<std::uint8_t>& greeting) {
  if (greeting.size() < 6) return;
  const auto name_end = std::find(greeting.begin() + 5, greeting.end(), std::uint8_t{0});
  if (greeting.end() - name_end < 16) return;
  constexpr std::uint8_t client_ssl_in_second_byte = 0x08;
  *(name_end + 1 + 4 + 8 + 1 + 1) &= static_cast<std::uint8_t>(~client_ssl_in_second_byte);
}

}  // namespace

struct Relay::Pair {
  int client = -1, server = -1;
  std::size_t number = 0;
  bool greeted = false;
  std::vector<std::uint8_t> unread;  // of the client's last packet, as long as it is not complete

  ~Pair() {
    if (client >= 0) close(client);
    if (server >= 0) close(server);
  }
};

Relay::Relay(std::string host, unsigned port, Tls tls) : host_(std::move(host)), port_(port), tls_(tls) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  sockaddr_in own = address_of("127.0.0.1", 0);
  socklen_t size = sizeof own;
  if (listener_ < 0 || wake_ < 0 || bind(listener_, plain(own), sizeof own) != 0 || listen(listener_, 64) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    fail("cannot listen");
  }
  own_port_ = ntohs(own.sin_port);
  thread_ = std::thread([this] { run(); });
}

Relay::~Relay() {
  end_ = true;
  wake();
  thread_.join();
  close(listener_);
  close(wake_);
}

void Relay::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

void Relay::pause() { paused_ = true; }

void Relay::resume() {
  paused_ = false;
  wake();
}

void Relay::pause_at(std::string text) {
  const std::lock_guard guard(mutex_);
  pause_at_ = std::move(text);
}

void Relay::pause_at_connection(std::size_t number) {
  const std::lock_guard guard(mutex_);
  pause_at_connection_ = number;
}

void Relay::delay(std::chrono::milliseconds each_way) { delay_ = each_way; }

void Relay::cut() {
  cut_ = true;
  wake();
  while (cut_) std::this_thread::yield();  // until run() has done it
}

std::vector<Relay::Command> Relay::commands() const {
  const std::lock_guard guard(mutex_);
  return commands_;
}
void Relay::forget() {
  const std::lock_guard guard(mutex_);
  commands_.clear();
}
std::size_t Relay::connections() const {
  const std::lock_guard guard(mutex_);
  return made_;
}
std::size_t Relay::open() const {
  const std::lock_guard guard(mutex_);
  return open_;
}

void Relay::accept_one() {
  auto pair = std::make_unique<Pair>();
  pair->client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  pair->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (pair->client < 0 || pair->server < 0) return;
  const sockaddr_in to = address_of(host_, port_);
  if (connect(pair->server, plain(to), sizeof to) != 0) return;
  const int on = 1;
  setsockopt(pair->client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(pair->server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  {
    const std::lock_guard guard(mutex_);
    pair->number = made_++;
    ++open_;
    if (made_ == pause_at_connection_) paused_ = true;
  }
  pairs_.push_back(std::move(pair));
}

void Relay::read_commands(Pair& pair, const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t>& unread = pair.unread;
  unread.insert(unread.end(), data, data + size);
  while (unread.size() >= 4) {
    const std::size_t length = unread[0] + (std::size_t{unread[1]} << 8) + (std::size_t{unread[2]} << 16);
    if (unread.size() < 4 + length) return;
    // A command begins a conversation: number 0. What a client sends while it logs in has others.
    if (unread[3] == 0 && length > 0) {
      const std::lock_guard guard(mutex_);
      commands_.push_back({pair.number, unread[4],
                           std::string(unread.begin() + 5, unread.begin() + 4 + static_cast<std::ptrdiff_t>(length))});
    }
    unread.erase(unread.begin(), unread.begin() + 4 + static_cast<std::ptrdiff_t>(length));
  }
}

bool Relay::pass_on(Pair& pair, bool from_client) {
  std::uint8_t buffer[65536];
  const ssize_t got = recv(from_client ? pair.client : pair.server, buffer, sizeof buffer, 0);
  if (got <= 0) return false;
  std::vector<std::uint8_t> data(buffer, buffer + got);
  if (from_client) {
    read_commands(pair, data.data(), data.size());
    const std::lock_guard guard(mutex_);
    if (pause_at_ && std::search(data.begin(), data.end(), pause_at_->begin(), pause_at_->end()) != data.end()) {
      paused_ = true;
      pause_at_.reset();
    }
  }
  // A greeting is shorter than a segment, so it comes in one piece.
  if (!from_client && !std::exchange(pair.greeted, true) && tls_ == Tls::hidden) hide_tls(data);
  if (const std::chrono::milliseconds delay = delay_; delay.count() != 0) {
    on_its_way_.push_back({std::chrono::steady_clock::now() + delay, pair.number, from_client, std::move(data)});
    return true;
  }
  return send_all(from_client ? pair.server : pair.client, data.data(), data.size());
}

void Relay::deliver() {
  for (; !on_its_way_.empty() && on_its_way_.front().due <= std::chrono::steady_clock::now(); on_its_way_.pop_front()) {
    const OnItsWay& next = on_its_way_.front();
    for (const auto& pair : pairs_) {
      if (pair->number != next.pair) continue;
      send_all(next.from_client ? pair->server : pair->client, next.data.data(), next.data.size());
    }
  }
}

void Relay::run() {
  while (!end_) {
    const bool silent = paused_;
    std::vector<pollfd> fds{{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    if (!silent) {
      for (const auto& pair : pairs_) {
        fds.push_back({pair->client, POLLIN, 0});
        fds.push_back({pair->server, POLLIN, 0});
      }
    }
    poll(fds.data(), fds.size(), on_its_way_.empty() ? 100 : 1);
    deliver();
    std::uint64_t woken = 0;
    [[maybe_unused]] const ssize_t read_size = read(wake_, &woken, sizeof woken);
    std::vector<Pair*> ended;
    const bool cuts = cut_;
    if (cuts) {
      for (const auto& pair : pairs_) ended.push_back(pair.get());
    } else if (!silent && !paused_) {
      for (std::size_t i = 2; i < fds.size(); ++i) {
        Pair& pair = *pairs_[i / 2 - 1];
        if (paused_) break;
        if (fds[i].revents != 0 && (ended.empty() || ended.back() != &pair) && !pass_on(pair, i % 2 == 0)) {
          ended.push_back(&pair);
        }
      }
    }
    std::erase_if(pairs_,
                  [&](const auto& pair) { return std::find(ended.begin(), ended.end(), pair.get()) != ended.end(); });
    {
      const std::lock_guard guard(mutex_);
      open_ -= ended.size();
    }
    if (cuts) cut_ = false;
    if ((fds[1].revents & POLLIN) != 0) accept_one();
  }
  pairs_.clear();
}

}  // namespace hierlock::mysql_tests
