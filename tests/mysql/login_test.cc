// Logging in: encryption, certificates, and the ways an account proves who it is.
#include <mysql.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <iostream>
#include <latch>
#include <thread>

#include "on_server.h"
#include "relay.h"
#include "support/impostor.h"
#include "support/not_applicable.h"

namespace hierlock::mysql_tests {
namespace {

// Somebody who answers in the server's place, to be given the password.
TEST(Impostors, who_offers_no_tls_is_told_nothing_where_tls_is_asked_for) {
  mysql::enable();
  for (const char* proof : {"mysql_native_password", "caching_sha2_password", "mysql_clear_password", "dialog"}) {
    for (const char* how : {"tls=on", "tls=verify"}) {
      const Impostor impostor(proof);
      EXPECT_TRUE(fails_with(
          ErrorKind::denied, [&] { (void)hierlock::open(impostor.url("app", "hunter2", how)); }, "TLS"))
          << proof;
      EXPECT_EQ(impostor.heard(), "") << proof << ", " << how;
    }
  }
}

// Older than any server that hierlock can use, or so it says: the client library has a way of its own for those.
TEST(Impostors, who_knows_no_plugins_is_told_nothing) {
  mysql::enable();
  const Impostor impostor("", Impostor::Age::old);
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { (void)hierlock::open(impostor.url("app", "hunter2", "tls=on")); }, "TLS"));
  EXPECT_TRUE(fails_with(ErrorKind::denied, [&] { (void)hierlock::open(impostor.url("app", "hunter2", "tls=off")); }));
  EXPECT_EQ(impostor.heard(), "");
}

TEST(Impostors, who_asks_for_the_password_itself_does_not_get_it) {
  mysql::enable();
  for (const char* proof : {"mysql_clear_password", "dialog", "mysql_old_password"}) {
    const Impostor impostor(proof);
    const auto begin = Clock::now();
    EXPECT_TRUE(fails_with(
        ErrorKind::denied, [&] { (void)hierlock::open(impostor.url("app", "hunter2", "tls=off")); }, proof));
    EXPECT_LT(Clock::now() - begin, 3s + stall) << "nobody is asked at the terminal";
    EXPECT_EQ(impostor.heard().find("hunter2"), std::string::npos) << proof;
  }
}

// 127.0.0.1 as one number: nothing in it says that it is this machine.
std::string on_another_machine(std::string url) {
  const std::string here = "127.0.0.1";
  return url.replace(url.find(here), here.size(), "2130706433");
}

// By these two the client sends the password encrypted by a public key, and asks whoever answers for the key.
TEST(Impostors, who_answers_in_plain_text_for_another_machine_gets_no_proof_by_its_own_key) {
  mysql::enable();
  for (const char* proof : {"caching_sha2_password", "sha256_password"}) {
    const Impostor impostor(proof);
    const auto url = [&](const std::string& password) { return impostor.url("app", password, "tls=off"); };
    EXPECT_TRUE(fails_with(
        ErrorKind::denied, [&] { (void)hierlock::open(on_another_machine(url("hunter2"))); }, "tls=verify"))
        << proof;
    const std::string told_to_a_stranger = impostor.heard();
    EXPECT_NE(told_to_a_stranger.find("app"), std::string::npos) << "it was asked who logs in";
    (void)error_of([&] { (void)hierlock::open(url("hunter2")); });
    EXPECT_GT(impostor.heard().size(), 2 * told_to_a_stranger.size() + 1) << "on this machine a proof is sent";
  }
}

class Login : public OnServer {
 protected:
  void SetUp() override {
    OnServer::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ca_ = server_variable(GetParam() + "_CA").value_or("");
    wrong_ca_ = server_variable(GetParam() + "_WRONG_CA").value_or("");
    socket_ = server_variable(GetParam() + "_SOCKET").value_or("");
    if (ca_.empty() || wrong_ca_.empty() || socket_.empty()) {
      ASSERT_FALSE(server_variable(GetParam() + "_PID")) << "tools/servers names certificates and sockets, too";
      HIERLOCK_NOT_APPLICABLE() << "nothing names the certificates and the socket of this server";
    }
  }
  Server on_host(const std::string& host) const {
    Server changed = server();
    changed.host = host;
    return changed;
  }
  std::string ca_, wrong_ca_, socket_;
};

class Tls : public Login {
 protected:
  // Whether a session that was opened so is encrypted, by an account that the server demands TLS of.
  bool encrypted(const std::string& more) {
    const Server as = make_user("ALL", server().database + ".*");
    plain().ask("ALTER USER '" + as.user + "'@'%' REQUIRE SSL");
    const std::optional<Error> error = error_of([&] { (void)hierlock::open(url(as, more)).acquire("u1/a1/r1"); });
    EXPECT_TRUE(!error || error->kind() == ErrorKind::denied) << error->what();
    return !error;
  }
};

TEST_P(Tls, off_is_not_encrypted_and_on_and_verify_are) {
  EXPECT_FALSE(encrypted("tls=off"));
  EXPECT_TRUE(encrypted("tls=on"));
  EXPECT_TRUE(encrypted("tls=verify&ca=" + ca_));
  EXPECT_TRUE(encrypted("ca=" + ca_)) << "a CA alone means verify";
}

TEST_P(Tls, verify_accepts_the_address_and_the_name_that_the_certificate_is_for) {
  for (const char* host : {"127.0.0.1", "localhost"}) {
    Locker locker = hierlock::open(url(on_host(host), "tls=verify&ca=" + ca_));
    EXPECT_TRUE(locker.acquire("u1/a1/r1").held()) << host;
  }
}

TEST_P(Tls, verify_refuses_a_certificate_that_another_ca_signed) {
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { (void)open("tls=verify&ca=" + wrong_ca_); }, "ca="));
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { (void)open("tls=verify"); }, "ca="))
      << "none that the system trusts";
}

TEST_P(Tls, verify_refuses_a_host_that_the_certificate_is_not_for) {
  // 127.1 is 127.0.0.1 for the resolver, and in no certificate.
  EXPECT_TRUE(
      fails_with(ErrorKind::denied, [&] { (void)hierlock::open(url(on_host("127.1"), "tls=verify&ca=" + ca_)); }));
  EXPECT_FALSE(error_of([&] { (void)hierlock::open(url(on_host("127.1"), "tls=on")); })) << "on does not look";
}

TEST_P(Tls, a_ca_file_that_is_not_there_is_said) {
  EXPECT_TRUE(error_of([&] { (void)open("tls=verify&ca=/nowhere/ca.pem"); }).has_value());
}

TEST_P(Tls, a_server_without_it_is_refused) {
  Relay plaintext(server().host, server().port, Relay::Tls::hidden);
  Server behind = server();
  behind.port = plaintext.port();
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { (void)hierlock::open(url(behind, "tls=on")); }, "TLS"));
  EXPECT_TRUE(fails_with(ErrorKind::denied, [&] { (void)hierlock::open(url(behind, "tls=verify&ca=" + ca_)); }));
  EXPECT_FALSE(error_of([&] { (void)hierlock::open(url(behind, "tls=off")); }));
}

// The client library writes to a socket that was closed under it: that must not end the process by SIGPIPE.
TEST_P(Tls, a_server_that_falls_silent_in_the_handshake_is_unavailable_in_bounded_time) {  // H2
  Relay relay(server().host, server().port);
  Server behind = server();
  behind.port = relay.port();
  relay.pause_at("");  // its answer to the greeting
  auto opens = std::async(std::launch::async, [&] {
    EXPECT_TRUE(fails_with(ErrorKind::unavailable, [&] { (void)hierlock::open(url(behind, "tls=on")); }));
  });
  const bool ends = opens.wait_for(8s + stall) == std::future_status::ready;
  EXPECT_TRUE(ends);
  if (!ends) relay.cut();
  opens.wait();
}

TEST_P(Tls, a_session_that_the_server_ends_is_only_a_lost_lock) {  // B4, B6
  for (const std::string how : {"tls=off", "tls=on"}) {
    const Server as = make_user("ALL", server().database + ".*");
    Locker locker = hierlock::open(url(as, how));
    Lock lock = locker.acquire("u1/a1/r1");
    for (const auto& row : plain().ask("SELECT ID FROM information_schema.processlist WHERE USER='" + as.user + "'")) {
      plain().ask("KILL " + row[0]);
    }
    EXPECT_TRUE(eventually([&] { return !lock.held(); })) << how;
    lock.release();
    EXPECT_TRUE(locker.acquire("u1/a1/r1").held()) << how;
  }
}

TEST_P(Tls, an_encrypted_session_that_is_cut_is_only_a_lost_lock) {  // B4, B6
  Relay relay(server().host, server().port);
  Server behind = server();
  behind.port = relay.port();
  Locker locker = hierlock::open(url(behind, "tls=on"));
  Lock first = locker.acquire("u1/a1/r1");
  relay.cut();
  first.release();  // at once, before anybody has noticed
  EXPECT_TRUE(locker.acquire("u1/a1/r1").held());
}

HIERLOCK_ON_BOTH_SERVERS(Tls);

// caching_sha2_password: the server remembers who logged in since it was started, and asks those it does not for the
// password itself, which needs TLS, a socket, or the server's RSA key.
class Sha2 : public Login {
 protected:
  void SetUp() override {
    Login::SetUp();
    if (!IsSkipped() && mariadb()) HIERLOCK_NOT_APPLICABLE() << "MariaDB has no such accounts";
  }
  Server newcomer() { return make_user("ALL", server().database + ".*", "caching_sha2_password"); }
  void works(const Server& as, const std::string& more) {
    const std::optional<Error> error = error_of([&] {
      Locker locker = hierlock::open(url(as, more));
      EXPECT_TRUE(locker.acquire("u1/a1/r1").held());
    });
    EXPECT_FALSE(error) << more << ": " << error->what();
  }
};

TEST_P(Sha2, who_never_logged_in_before_gets_in_without_tls) {
  const Server as = newcomer();
  works(as, "tls=off");
  works(as, "tls=off");  // remembered now
}

TEST_P(Sha2, who_never_logged_in_before_gets_in_with_tls) {
  const Server as = newcomer();
  works(as, "tls=on");
  works(as, "tls=verify&ca=" + ca_);
  works(newcomer(), "tls=verify&ca=" + ca_);
}

TEST_P(Sha2, who_never_logged_in_before_gets_in_over_a_socket) {
  const Server as = newcomer();
  works(as, "socket=" + socket_);
  works(as, "socket=" + socket_);
}

TEST_P(Sha2, who_was_forgotten_gets_in_again) {
  const Server as = newcomer();
  works(as, "tls=off");
  plain().ask("FLUSH PRIVILEGES");  // forgets them all
  works(as, "tls=off");
}

TEST_P(Sha2, a_wrong_password_is_denied_and_not_shown) {
  for (const std::string& how : {std::string("tls=off"), std::string("tls=on"), "socket=" + socket_}) {
    Server as = newcomer();
    as.password = "hunter2";
    const std::optional<Error> error = error_of([&] { (void)hierlock::open(url(as, how)); });
    ASSERT_TRUE(error.has_value()) << how;
    EXPECT_EQ(error->kind(), ErrorKind::denied) << error->what();
    EXPECT_EQ(std::string(error->what()).find("hunter2"), std::string::npos);
  }
}

TEST_P(Sha2, its_older_form_is_a_way_in_as_well) {
  for (const char* how : {"tls=off", "tls=on"})
    works(make_user("ALL", server().database + ".*", "sha256_password"), how);
}

HIERLOCK_ON_BOTH_SERVERS(Sha2);

#if !defined(__SANITIZE_THREAD__)  // that of gcc 12 ends a forked child that makes threads
class FirstLogins : public OnServer {};

// The client library loads the plugin for a way in when it first needs it. Two threads that need it at the same moment
// must both get in.
TEST_P(FirstLogins, of_many_threads_at_once_succeed) {
  const std::string where = url();
  (void)hierlock::open(where).acquire("u1");  // the table is there
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      mysql_library_end();  // all plugins are forgotten
      std::atomic<int> failed{0};
      {
        constexpr int threads = 32;
        std::latch ready(threads);
        std::vector<std::jthread> openers;
        for (int i = 0; i < threads; ++i) {
          openers.emplace_back([&] {
            ready.arrive_and_wait();
            if (const std::optional<Error> error = error_of([&] { (void)hierlock::open(where); })) {
              if (failed.fetch_add(1) == 0) std::cerr << error->what() << '\n';
            }
          });
        }
      }
      _exit(failed.load());
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
}

HIERLOCK_ON_BOTH_SERVERS(FirstLogins);
#endif

class Socket : public Login {};

TEST_P(Socket, a_socket_is_a_way_in) {
  const Server as = make_user("ALL", server().database + ".*");
  Locker locker = hierlock::open(url(as, "socket=" + socket_));
  const Lock lock = locker.acquire("u1/a1/r1");
  for (const auto& row : plain().ask("SELECT HOST FROM information_schema.processlist WHERE USER='" + as.user + "'")) {
    EXPECT_EQ(row[0], "localhost") << "over TCP it is an address and a port";
  }
  Locker over_tcp = open();
  EXPECT_FALSE(over_tcp.try_acquire("u1/a1/r1"));
}

TEST_P(Socket, nobody_there_is_unavailable) {
  EXPECT_TRUE(fails_with(
      ErrorKind::unavailable, [&] { (void)open("socket=/nowhere/server.sock"); }, "/nowhere/server.sock"));
}

HIERLOCK_ON_BOTH_SERVERS(Socket);

}  // namespace
}  // namespace hierlock::mysql_tests
