#include "relay.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

namespace bench {

namespace {

[[noreturn]] void refuse(const char* what) {
  throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

const sockaddr* plain(const sockaddr_in& address) { return reinterpret_cast<const sockaddr*>(&address); }

// mysql://user:password@host:port/database
struct Place {
  explicit Place(const std::string& url)
      : begin(url.rfind('@') + 1), end(url.rfind('/')), host(url.substr(begin, url.rfind(':') - begin)) {
    const std::string port = url.substr(url.rfind(':') + 1, end - url.rfind(':') - 1);
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) {
      throw std::runtime_error("relay: no address of " + host);
    }
    std::memcpy(&address, found->ai_addr, sizeof address);
    freeaddrinfo(found);
  }

  std::size_t begin, end;  // of host:port in the URL
  std::string host;
  sockaddr_in address{};
};

// The loop of the relay's process. Sockets are read when there is something to read; writing blocks, because what is
// said here is short.
class Loop {
 public:
  Loop(const sockaddr_in& server, std::chrono::nanoseconds each_way, std::string_view word)
      : server_(server), each_way_(each_way), word_(word) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (listener_ < 0 || bind(listener_, plain(any), sizeof any) != 0 || listen(listener_, 1024) != 0) refuse("relay");
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (timer_ < 0 || epoll_ < 0) refuse("relay");
    watch(listener_);
    watch(timer_);
    prctl(PR_SET_TIMERSLACK, 1);
  }

  unsigned port() const {
    sockaddr_in own{};
    socklen_t size = sizeof own;
    if (getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size) != 0) refuse("relay");
    return ntohs(own.sin_port);
  }

  template <class Count>
  [[noreturn]] void run(const Count& count) {
    for (;;) {
      epoll_event events[64];
      const int ready = epoll_wait(epoll_, events, 64, -1);
      for (int i = 0; i < ready; ++i) {
        const int descriptor = events[i].data.fd;
        if (descriptor == listener_) {
          accept_one();
        } else if (descriptor == timer_) {
          deliver();
        } else {
          pass_on(descriptor, count);
        }
      }
    }
  }

 private:
  struct Link {
    int client = -1, server = -1;
    bool has_word = false;
    ~Link() {
      close(client);
      close(server);
    }
  };
  struct OnItsWay {
    std::chrono::steady_clock::time_point due;
    std::weak_ptr<Link> link;
    bool from_client;
    std::string data;
  };

  void watch(int descriptor) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) != 0) refuse("relay");
  }

  void accept_one() {
    auto link = std::make_shared<Link>();
    link->client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    link->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (link->client < 0 || link->server < 0 || connect(link->server, plain(server_), sizeof server_) != 0) return;
    for (const int end : {link->client, link->server}) {
      const int on = 1;
      setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      watch(end);
      links_[end] = link;
    }
  }

  template <class Count>
  void pass_on(int from, const Count& count) {
    const auto found = links_.find(from);
    if (found == links_.end()) return;  // its other end was closed just now
    const std::shared_ptr<Link> link = found->second;
    const bool from_client = from == link->client;
    char buffer[65536];
    const ssize_t size = recv(from, buffer, sizeof buffer, 0);
    if (size <= 0) {
      links_.erase(link->client);
      links_.erase(link->server);
      return;
    }
    const std::string_view said(buffer, static_cast<std::size_t>(size));
    if (from_client && !word_.empty() && said.find(word_) != said.npos) link->has_word = true;
    count(said.size(), link->has_word);
    if (each_way_.count() == 0) return send_all(*link, from_client, said);
    on_its_way_.push_back({std::chrono::steady_clock::now() + each_way_, link, from_client, std::string(said)});
    if (on_its_way_.size() == 1) set_timer();
  }

  static void send_all(const Link& link, bool from_client, std::string_view data) {
    while (!data.empty()) {
      const ssize_t sent = send(from_client ? link.server : link.client, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the end is closed, which recv() tells
      data.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  void deliver() {
    std::uint64_t expirations = 0;
    [[maybe_unused]] const ssize_t got = read(timer_, &expirations, sizeof expirations);
    for (; !on_its_way_.empty() && on_its_way_.front().due <= std::chrono::steady_clock::now();
         on_its_way_.pop_front()) {
      const OnItsWay& next = on_its_way_.front();
      if (const auto link = next.link.lock()) send_all(*link, next.from_client, next.data);
    }
    if (!on_its_way_.empty()) set_timer();
  }

  // std::chrono::steady_clock is CLOCK_MONOTONIC here.
  void set_timer() const {
    const auto due = on_its_way_.front().due.time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(due);
    itimerspec at{};
    at.it_value.tv_sec = seconds.count();
    at.it_value.tv_nsec = std::chrono::nanoseconds(due - seconds).count();
    if (timerfd_settime(timer_, TFD_TIMER_ABSTIME, &at, nullptr) != 0) refuse("relay");
  }

  const sockaddr_in server_;
  const std::chrono::nanoseconds each_way_;
  const std::string_view word_;
  int listener_ = -1, timer_ = -1, epoll_ = -1;
  std::unordered_map<int, std::shared_ptr<Link>> links_;  // by both of its ends
  std::deque<OnItsWay> on_its_way_;                       // the next first
};

}  // namespace

Relay::Relay(const std::string& server, std::chrono::nanoseconds each_way, std::string word)
    : process_(1, [&](const std::function<void()>& ready) {
        Loop loop(Place(server).address, each_way, word);
        counts_->port = loop.port();
        ready();
        loop.run([&](std::size_t bytes, bool has_word) {
          counts_->bytes += bytes;
          if (has_word) counts_->bytes_with_word += bytes;
        });
      }) {
  const Place place(server);
  url_ = server.substr(0, place.begin) + "127.0.0.1:" + std::to_string(counts_->port) + server.substr(place.end);
}

}  // namespace bench
