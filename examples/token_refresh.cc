// Two workers find one access token expired (M6). Without a lock both refresh it, and the second refresh makes the
// token of the first one invalid. With a LockManager one refreshes, and the other finds the new token.
//
//     token_refresh [URL]        memory: (default), shm:, or valkey://USER@HOST if built with hierlock::valkey
//
// The service that issues the tokens is a small HTTP server in this program.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <hierlock/hierlock.h>
#ifdef TOKEN_REFRESH_WITH_VALKEY
#include <hierlock/valkey.h>
#endif

using namespace std::chrono_literals;

namespace {

std::string receive(int socket, std::string_view until) {
  std::string text;
  std::array<char, 512> buffer{};
  for (ssize_t n = 0; text.find(until) == text.npos && (n = read(socket, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return text;
}

void send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

// POST /refresh gives a new token, and the one before is invalid from then on. GET /data/TOKEN answers 200 or 401.
class Service {
 public:
  Service() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    if (bind(socket_, reinterpret_cast<const sockaddr*>(&address_), size) != 0 || listen(socket_, 16) != 0 ||
        getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &size) != 0) {
      throw std::runtime_error("the HTTP server cannot listen on 127.0.0.1");
    }
    thread_ = std::thread([this] { serve(); });
  }
  ~Service() {
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }

  // Status and body.
  std::pair<int, std::string> ask(const std::string& request) const {
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(client, reinterpret_cast<const sockaddr*>(&address_), sizeof address_) != 0) {
      close(client);
      throw std::runtime_error("the HTTP server cannot be reached");
    }
    send_all(client, request + " HTTP/1.0\r\n\r\n");
    const std::string answer = receive(client, "\n\n");  // never there: reads to the end
    close(client);
    const std::size_t body = answer.find("\r\n\r\n");
    if (!answer.starts_with("HTTP/1.0 ") || body == answer.npos) throw std::runtime_error("no HTTP: " + answer);
    return {std::stoi(answer.substr(9)), answer.substr(body + 4)};
  }
  int refreshes() const { return issued_; }

 private:
  void serve() {
    for (int client = -1; (client = accept(socket_, nullptr, nullptr)) >= 0; close(client)) {
      const std::string request = receive(client, "\r\n\r\n");
      if (request.starts_with("POST /refresh ")) {
        send_all(client, "HTTP/1.0 200 OK\r\n\r\ntoken-" + std::to_string(++issued_));
      } else {
        const bool valid = request.starts_with("GET /data/token-" + std::to_string(issued_) + " ");
        send_all(client, valid ? "HTTP/1.0 200 OK\r\n\r\ndata" : "HTTP/1.0 401 Unauthorized\r\n\r\n");
      }
    }
  }

  const int socket_;
  sockaddr_in address_{};
  std::atomic<int> issued_{0};
  std::thread thread_;
};

// Where the workers keep the token they share, as in a database.
class Tokens {
 public:
  std::string read() {
    const std::lock_guard guard(mutex_);
    return token_;
  }
  void save(std::string token) {
    const std::lock_guard guard(mutex_);
    token_ = std::move(token);
  }

 private:
  std::mutex mutex_;
  std::string token_ = "token-0";  // expired
};

// `after_reading` is called when the worker has read the token.
std::string valid_token(const Service& service, Tokens& tokens, const std::function<void()>& after_reading) {
  std::string token = tokens.read();
  after_reading();
  if (token != "token-0") return token;
  token = service.ask("POST /refresh").second;
  tokens.save(token);
  return token;
}

std::string valid_token_with_lock(hierlock::Locker& locker, const Service& service, Tokens& tokens) {
  hierlock::LockManager refresh(locker, "alarmbox-token-refresh", 1);
  auto guard = refresh.lock({.timeout = 30s});
  return valid_token(service, tokens, [] {});  // read again under the lock: another worker may have refreshed it
}

struct Result {
  int refreshes, refused;
};

// Two workers, each of which gets a valid token and then uses it.
Result run(const std::function<std::string(int worker, const Service&, Tokens&)>& get) {
  const Service service;
  Tokens tokens;
  std::atomic<int> refused{0};
  std::exception_ptr failed;
  std::mutex failing;
  std::barrier both_have_tokens(2);
  std::vector<std::jthread> workers;
  for (int worker = 0; worker < 2; ++worker) {
    workers.emplace_back([&, worker] {
      std::optional<std::string> token;
      try {
        token = get(worker, service, tokens);
      } catch (...) {
        const std::lock_guard guard(failing);
        failed = std::current_exception();
      }
      both_have_tokens.arrive_and_wait();
      if (token && service.ask("GET /data/" + *token).first == 401) ++refused;
    });
  }
  workers.clear();
  if (failed) std::rethrow_exception(failed);
  return {service.refreshes(), refused};
}

void print(const char* how, const Result& result) {
  std::printf("%s: %d %s, %d of 2 workers refused\n", how, result.refreshes,
              result.refreshes == 1 ? "refresh" : "refreshes", result.refused);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string url = argc > 1 ? argv[1] : "memory:";
  try {
#ifdef TOKEN_REFRESH_WITH_VALKEY
    hierlock::valkey::enable();
#endif
    // Workers of one process share a Locker. On the other stores each has its own, as in processes of their own.
    std::vector<hierlock::Locker> lockers;
    for (int i = 0; i < (url == "memory:" ? 1 : 2); ++i) lockers.push_back(hierlock::open(url));

    std::barrier both_have_read(2);  // the moment that the race needs
    const Result without = run([&](int, const Service& service, Tokens& tokens) {
      return valid_token(service, tokens, [&] { both_have_read.arrive_and_wait(); });
    });
    const Result with = run([&](int worker, const Service& service, Tokens& tokens) {
      return valid_token_with_lock(lockers[static_cast<std::size_t>(worker) % lockers.size()], service, tokens);
    });
    print("without the lock", without);
    print("with the lock   ", with);
    const bool as_expected = without.refreshes == 2 && without.refused == 1 && with.refreshes == 1 && with.refused == 0;
    return as_expected ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "token_refresh: %s\n", error.what());
    return 2;
  }
}
