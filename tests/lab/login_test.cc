// A server that the URL does not trust learns nothing of the login.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

#include <hierlock/lab.h>

#include "support/impostor.h"

namespace hierlock::lab_tests {
namespace {

lab::Result play(const std::string& url) { return lab::run(lab::parse("scenario x\nT1 a: select 1 => ok\n"), url); }

TEST(Login, by_a_way_that_shows_the_password_is_refused) {
  for (const char* proof : {"mysql_clear_password", "dialog"}) {
    for (const char* how : {"tls=on", "tls=off"}) {
      const tests::Impostor impostor(proof);
      EXPECT_NE(play(impostor.url("app", "hunter2", how)).verdict, lab::Result::Verdict::passed) << proof;
      EXPECT_EQ(impostor.heard().find("hunter2"), std::string::npos) << proof << ", " << how;
    }
  }
}

TEST(Login, a_server_without_tls_is_told_nothing_where_tls_is_asked_for) {
  for (const char* proof : {"mysql_native_password", "caching_sha2_password", "mysql_clear_password", "dialog"}) {
    for (const char* how : {"tls=on", "tls=verify"}) {
      const tests::Impostor impostor(proof);
      const lab::Result result = play(impostor.url("app", "hunter2", how));
      EXPECT_NE(result.verdict, lab::Result::Verdict::passed) << proof;
      EXPECT_EQ(impostor.heard(), "") << proof << ", " << how;
    }
  }
}

// Answers in place of a PostgreSQL server: it has no TLS, and remembers what it is told.
class PostgresImpostor {
 public:
  PostgresImpostor() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(listener_, 8) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("impostor: no port");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~PostgresImpostor() { end(); }
  PostgresImpostor(const PostgresImpostor&) = delete;
  PostgresImpostor& operator=(const PostgresImpostor&) = delete;

  std::string url(const std::string& options) const {
    return "postgres://app:hunter2@127.0.0.1:" + std::to_string(port_) + "/shop?" + options;
  }
  const std::string& heard() {
    end();
    return heard_;
  }

 private:
  void end() {
    if (!thread_.joinable()) return;
    end_ = true;
    thread_.join();
    close(listener_);
  }
  bool readable(int fd) const {
    pollfd one{fd, POLLIN, 0};
    return poll(&one, 1, 20) > 0;
  }
  void run() {
    while (!end_) {
      if (!readable(listener_)) continue;
      const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      while (!end_) {
        if (!readable(client)) continue;
        char buffer[4096];
        const ssize_t got = recv(client, buffer, sizeof buffer, 0);
        if (got <= 0) break;
        heard_.append(buffer, static_cast<std::size_t>(got));
        (void)!send(client, "N", 1, MSG_NOSIGNAL);
      }
      close(client);
    }
  }

  const int listener_;
  unsigned port_ = 0;
  std::atomic<bool> end_{false};
  std::string heard_;  // by thread_, until it has ended
  std::thread thread_;
};

TEST(Login, a_postgres_server_without_tls_is_asked_for_it_and_told_nothing) {
  const std::string tls_request("\0\0\0\x08\x04\xd2\x16\x2f", 8);
  for (const char* how : {"tls=on", "tls=verify&ca=/etc/hostname"}) {
    PostgresImpostor impostor;
    EXPECT_NE(play(impostor.url(how)).verdict, lab::Result::Verdict::passed) << how;
    EXPECT_EQ(impostor.heard(), tls_request) << how;
  }
}

}  // namespace
}  // namespace hierlock::lab_tests
