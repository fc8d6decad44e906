// What goes wrong is told apart, says what to do, and leaves nothing locked.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <future>

#include "on_server.h"
#include "relay.h"
#include "support/rights.h"

namespace hierlock::mysql_tests {
namespace {

class Errors : public OnServer {
 protected:
  // A port that somebody listens on and never answers at, or that nobody listens on.
  struct Port {
    explicit Port(bool listens) : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t size = sizeof address;
      bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
      getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
      if (listens) listen(socket, 8);
      number = ntohs(address.sin_port);
    }
    ~Port() { close(socket); }
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;
    int socket;
    unsigned number;
  };
  Server at_port(unsigned port) const {
    Server changed = server();
    changed.port = port;
    return changed;
  }
};

TEST_P(Errors, a_wait_that_cannot_be_ended_for_lack_of_descriptors_leaves_nothing) {  // H8
  Locker one = open(), two = open("publish_after=60000");  // else there may be a connection on the side
  std::optional<Lock> more = two.acquire("u2");
  Lock mine = two.acquire("u3");
  more.reset();  // its connection is there for the next
  std::optional<Lock> held = one.acquire("u1");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);  // the lowest that is free: from here on there is none
  close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  std::optional<Error> acquired, extended;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  acquired = error_of([&] { (void)two.acquire("u1", {.timeout = 2s}); });
  extended = error_of([&] { mine.extend("u1", {.timeout = 2s}); });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (const auto& error : {acquired, extended}) {
    ASSERT_TRUE(error);
    EXPECT_TRUE(error->kind() == ErrorKind::exhausted || error->kind() == ErrorKind::lost) << error->what();
  }
  mine.release();
  held.reset();
  EXPECT_TRUE(eventually([&] { return locked().empty(); }));
  EXPECT_TRUE(two.acquire("u1", {.timeout = 5s}).held());
}

TEST_P(Errors, a_wrong_password_is_denied_and_not_shown) {
  Server as = server();
  as.password = "hunter2";
  const std::optional<Error> error = error_of([&] { (void)hierlock::open(url(as)); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::denied) << error->what();
  EXPECT_EQ(error->native_code(), 1045);
  EXPECT_FALSE(error->retryable());
  EXPECT_EQ(std::string(error->what()).find("hunter2"), std::string::npos) << error->what();
}

TEST_P(Errors, a_database_that_is_not_there_is_not_provisioned) {
  Server as = operator_server();
  as.database = "no_such_database";
  EXPECT_TRUE(fails_with(
      ErrorKind::not_provisioned, [&] { (void)hierlock::open(url(as)); }, "no_such_database"));
}

TEST_P(Errors, nobody_at_the_port_is_unavailable_at_once) {
  const Port nobody(false);
  const auto begin = Clock::now();
  const std::optional<Error> error = error_of([&] { (void)hierlock::open(url(at_port(nobody.number))); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::unavailable) << error->what();
  EXPECT_TRUE(error->retryable());
  EXPECT_NE(std::string(error->what()).find(std::to_string(nobody.number)), std::string::npos) << error->what();
  EXPECT_LT(Clock::now() - begin, 3s + stall);
}

TEST_P(Errors, a_server_that_does_not_answer_is_unavailable_in_bounded_time) {
  const Port silent(true);
  const auto opening = [&](const char* how) {
    const auto begin = Clock::now();
    EXPECT_TRUE(fails_with(ErrorKind::unavailable, [&] { (void)hierlock::open(url(at_port(silent.number), how)); }));
    EXPECT_LT(Clock::now() - begin, 8s + stall) << how;
  };
  auto without = std::async(std::launch::async, [&] { opening("tls=off"); });
  opening("tls=on");
  without.get();
}

TEST_P(Errors, who_does_not_want_to_wait_does_not_wait_for_a_server_that_falls_silent) {  // H2
  Relay relay(server().host, server().port);
  Locker locker = hierlock::open(url(at_port(relay.port()), "tls=off"));
  locker.acquire("u1").release();
  relay.pause();
  auto begin = Clock::now();
  EXPECT_TRUE(fails_with(ErrorKind::unavailable, [&] { (void)locker.try_acquire("u1"); }));
  EXPECT_LT(Clock::now() - begin, 3s + stall) << "3 s on a connection that is there";
  begin = Clock::now();
  EXPECT_TRUE(fails_with(ErrorKind::unavailable, [&] { (void)locker.try_acquire("u1"); }));
  EXPECT_LT(Clock::now() - begin, 5s + stall) << "5 s if one has to be made";
  relay.cut();
  relay.resume();
  EXPECT_TRUE(eventually([&] { return !error_of([&] { EXPECT_TRUE(locker.try_acquire("u1")); }); }));
}

TEST_P(Errors, a_deadline_is_kept_within_seconds_when_the_server_falls_silent) {  // H2
  Relay relay(server().host, server().port);
  Locker locker = hierlock::open(url(at_port(relay.port()), "tls=off"));
  locker.acquire("u1").release();
  relay.pause();
  const auto begin = Clock::now();
  (void)error_of([&] { EXPECT_FALSE(locker.try_acquire("u1", 100ms)); });
  EXPECT_LT(Clock::now() - begin, 5s + stall)
      << "4 s late at most: it cannot know that the server will not answer the KILL";
  relay.cut();
}

TEST_P(Errors, an_extend_that_does_not_want_to_wait_knows_by_then_that_its_lock_is_not_certain) {  // B4
  Relay relay(server().host, server().port);
  Locker locker = hierlock::open(url(at_port(relay.port()), "tls=off"));
  Lock lock = locker.acquire("u1");
  relay.pause();
  const auto begin = Clock::now();
  const std::optional<Error> error = error_of([&] { lock.extend("u2", {.timeout = 0s}); });
  EXPECT_LT(Clock::now() - begin, 10s + stall);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::lost) << error->what();
  EXPECT_FALSE(lock.held());
  relay.cut();
}

// In a place of its own where the name server is there and never answers.
TEST(Names, that_nobody_resolves_are_unavailable_in_bounded_time) {  // H2
  if (std::system("ip -V >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no ip: install iproute2";
  HIERLOCK_NEEDS_RIGHT(make_network);
  HIERLOCK_NEEDS_RIGHT(mount);
  HIERLOCK_NEEDS_RIGHT(take_low_port);
  const std::string file = testing::TempDir() + "resolv." + std::to_string(getpid());
  std::ofstream(file) << "nameserver 127.0.0.1\noptions timeout:20 attempts:1\n";
  enum { in_time, late, wrong, not_allowed };
  const pid_t child = fork();
  if (child == 0) {
    const auto run = [](const std::string& command) { return std::system(command.c_str()) == 0; };
    if (unshare(CLONE_NEWNS | CLONE_NEWNET) != 0 || !run("ip link set lo up && mount --make-rprivate / && "
                                                         "mount --bind '" +
                                                         file + "' /etc/resolv.conf")) {
      _exit(not_allowed);
    }
    const int silent = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(53);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(silent, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) _exit(not_allowed);
    mysql::enable();
    const auto begin = Clock::now();
    const std::optional<Error> error =
        error_of([] { (void)hierlock::open("mysql://app:secret@db.example/shop?tls=off"); });
    if (!error || error->kind() != ErrorKind::unavailable) _exit(wrong);
    _exit(Clock::now() - begin < 5s + stall ? in_time : late);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  std::remove(file.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == not_allowed) GTEST_SKIP() << "namespaces are not allowed";
  EXPECT_EQ(WEXITSTATUS(status), in_time);
}

// In a place of its own where the name is known at first, and then is to be asked for from somebody who never answers.
TEST_P(Errors, cancelled_while_the_name_is_resolved_is_cancelled_at_once) {  // H2
  HIERLOCK_NEEDS_RIGHT(mount);
  HIERLOCK_NEEDS_RIGHT(take_low_port);
  const std::string names = testing::TempDir() + "hosts." + std::to_string(getpid()),
                    ask = testing::TempDir() + "resolv." + std::to_string(getpid());
  std::ofstream(names) << "127.0.0.1 db.example\n";
  std::ofstream(ask) << "nameserver 127.53.53.53\noptions timeout:20 attempts:1\n";
  Server named = server();
  named.host = "db.example";
  const std::string where = url(named, "tls=on");  // by its name it is another machine
  enum { in_time, late, wrong, not_allowed };
  const pid_t child = fork();
  if (child == 0) {
    const auto bound = [](const std::string& file, const char* over) {
      return mount(file.c_str(), over, nullptr, MS_BIND, nullptr) == 0;
    };
    const int silent = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(53);
    address.sin_addr.s_addr = htonl(0x7f353535);
    if (bind(silent, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || !bound(names, "/etc/hosts") ||
        !bound(ask, "/etc/resolv.conf")) {
      _exit(not_allowed);
    }
    std::optional<Locker> opened;
    if (error_of([&] { opened.emplace(hierlock::open(where)); })) _exit(wrong);
    Locker& locker = *opened;
    const Lock held = locker.acquire("u1");
    std::ofstream(names) << "";
    const bool soon = once_within(500ms, [&] {
      std::stop_source stop;
      Clock::time_point cancelled;
      std::thread cancels([&] {
        std::this_thread::sleep_for(300ms);
        cancelled = Clock::now();
        stop.request_stop();
      });
      const std::optional<Error> error = error_of([&] { (void)locker.acquire("u2", {.cancel = stop.get_token()}); });
      const auto ended = Clock::now();
      cancels.join();
      if (!error || error->kind() != ErrorKind::cancelled) _exit(wrong);
      return ended - cancelled;
    });
    _exit(soon ? in_time : late);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  std::remove(names.c_str());
  std::remove(ask.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == not_allowed) GTEST_SKIP() << "namespaces are not allowed";
  EXPECT_EQ(WEXITSTATUS(status), in_time);
}

TEST_P(Errors, tables_that_are_not_there_are_not_provisioned) {  // H6
  const std::string ahead = server().url("table=" + table());
  EXPECT_TRUE(fails_with(
      ErrorKind::not_provisioned, [&] { (void)hierlock::open(ahead); }, "hierlock provision"));
  Locker locker = open();
  locker.acquire("u1").release();
  plain().ask("DROP TABLE `" + table() + "`");
  const std::optional<Error> error = error_of([&] { (void)locker.acquire("u1"); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::not_provisioned) << error->what();
  EXPECT_EQ(error->native_code(), 1146);
}

TEST_P(Errors, a_row_that_is_not_there_names_itself_and_its_cure_and_leaves_nothing_locked) {  // H6, H8
  (void)open();                                                                                // makes the tables
  const std::string ahead = server().url("table=" + table());
  Locker locker = hierlock::open(ahead);
  open().acquire("u1/a1").release();  // all but the last level
  const std::optional<Error> error = error_of([&] { (void)locker.acquire("u1/a1/r1"); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::not_provisioned);
  const std::string text = error->what();
  for (const char* part : {"level 2", "bucket", "hierlock provision"}) EXPECT_NE(text.find(part), text.npos) << text;
  EXPECT_EQ(text.find(server().password), text.npos) << text;
  EXPECT_TRUE(all_free());
  EXPECT_EQ(plain().one("SELECT COUNT(*) FROM `" + table() + "`"), "2") << "nothing is made unless it is asked for";
  EXPECT_FALSE(error_of([&] { (void)locker.acquire("u1/a1"); }));
}

TEST_P(Errors, who_is_not_let_in_is_told_to_check_the_password_and_not_the_rights) {
  for (const char* password : {"wrong", ""}) {
    Server stranger = server();
    stranger.password = password;
    const std::optional<Error> error = error_of([&] { (void)hierlock::open(url(stranger)); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->kind(), ErrorKind::denied);
    const std::string text = error->what();
    for (const char* part : {"the user and the password", "%HH", "password_file="}) {
      EXPECT_NE(text.find(part), text.npos) << text;
    }
    EXPECT_EQ(text.find("rights"), text.npos) << text;
  }
}

TEST_P(Errors, a_server_that_is_not_there_is_looked_for_in_the_url) {
  const std::string somebody = "mysql://app:secret@";
  for (const char* nowhere : {"127.0.0.1:1/shop", "nowhere.invalid/shop?tls=off", "/shop?socket=/nowhere.sock"}) {
    EXPECT_TRUE(fails_with(
        ErrorKind::unavailable, [&] { (void)hierlock::open(somebody + nowhere); }, "of the URL right?"))
        << nowhere;
  }
}

TEST_P(Errors, what_rows_cannot_say_is_refused_with_what_can_be_done_between_machines) {  // H7, B10
  Locker locker = open();
  const auto refused = [&](const Target& target, ErrorKind kind, const std::string& saying) {
    EXPECT_TRUE(fails_with(
        kind, [&] { (void)locker.acquire(target); }, saying));
    const std::optional<Error> error = error_of([&] { (void)locker.acquire(target); });
    EXPECT_EQ(std::string(error->what()).find("shm:"), std::string::npos)
        << "its locks would be none: " << error->what();
  };
  refused(shared(named("token-refresh")), ErrorKind::unsupported, "names cannot be shared");
  refused(Target("a/b/c/d"), ErrorKind::invalid_argument, "another table= with more --levels");
  refused(shared("u1"), ErrorKind::unsupported, "at the deepest level only (level 2)");
}

TEST_P(Errors, who_may_only_read_is_denied_and_told_what_is_missing) {
  open().acquire("u1/a1/r1").release();
  const Server reader = make_user("SELECT", server().database + ".*");
  const std::string ahead = reader.url("table=" + table());
  if (mariadb()) {  // it asks for no more than SELECT
    EXPECT_TRUE(hierlock::open(ahead).acquire("u1/a1/r1").held());
    return;
  }
  const std::optional<Error> error = error_of([&] { (void)hierlock::open(ahead).acquire("u1/a1/r1"); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::denied) << error->what();
  EXPECT_EQ(error->native_code(), 1142) << error->what();
  EXPECT_NE(std::string(error->what()).find(table()), std::string::npos) << error->what();
  EXPECT_TRUE(all_free());
}

TEST_P(Errors, who_may_not_make_tables_is_denied_with_lazy_provisioning) {
  const Server reader = make_user("SELECT, UPDATE", server().database + ".*");
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { (void)hierlock::open(url(reader)); }, "CREATE"));
}

// The floor is where a server's restart leaves it, far below the numbers: a new connection has to raise it.
TEST_P(Errors, settings_that_somebody_has_locked_are_unavailable_and_nobody_lacks_a_right) {  // H9
  Locker locker = open();
  const Lock held = locker.acquire("u1");  // on the connection that there is
  plain().ask("UPDATE `" + table() + "_settings` SET fence_floor=1");
  plain().ask("START TRANSACTION");
  plain().ask("SELECT 1 FROM `" + table() + "_settings` WHERE id=1 FOR UPDATE");
  const std::function<void()> asks[] = {[&] { (void)open(); }, [&] { (void)locker.acquire("u2"); },
                                        [&] { (void)locker.try_acquire("u2"); }};
  for (const auto& ask : asks) {
    const std::optional<Error> error = error_of(ask);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->kind(), ErrorKind::unavailable) << error->what();
    EXPECT_EQ(error->native_code(), 1205);
    EXPECT_NE(std::string(error->what()).find("locked by somebody"), std::string::npos) << error->what();
  }
  plain().ask("COMMIT");
  EXPECT_FALSE(error_of([&] { (void)locker.acquire("u2"); }));
}

// And what the server says is passed on.
TEST_P(Errors, settings_that_one_may_not_write_are_denied_by_the_servers_own_words) {  // H9
  open().acquire("u1").release();
  plain().ask("UPDATE `" + table() + "_settings` SET fence_floor=1");
  const Server reader = make_user("SELECT", server().database + ".*");
  const std::optional<Error> error = error_of([&] { (void)hierlock::open(reader.url("table=" + table())); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::denied) << error->what();
  EXPECT_EQ(error->native_code(), 1142) << error->what();
}

TEST_P(Errors, what_cannot_be_said_in_rows_is_refused_before_anything_is_sent) {  // H7, B2, B10
  Relay relay(server().host, server().port);
  Locker locker = hierlock::open(url(at_port(relay.port())));
  relay.forget();
  EXPECT_TRUE(fails_with(
      ErrorKind::invalid_argument, [&] { (void)locker.acquire("a/b/c/d"); }, "levels"));
  EXPECT_TRUE(fails_with(
      ErrorKind::unsupported, [&] { (void)locker.acquire(shared("u1/a1")); }, "level"));
  EXPECT_TRUE(fails_with(ErrorKind::invalid_argument, [&] { (void)locker.acquire(""); }));
  EXPECT_TRUE(fails_with(ErrorKind::invalid_argument, [&] { (void)locker.acquire("u1//r1"); }));
  EXPECT_TRUE(relay.commands().empty());
}

TEST_P(Errors, more_rows_than_a_statement_has_room_for_are_refused_before_anything_is_sent) {  // H7
  Relay relay(server().host, server().port);
  Locker locker = hierlock::open(url(at_port(relay.port())));
  std::vector<Target> many;
  for (int i = 0; i < 70'000; ++i) many.emplace_back("u" + std::to_string(i));
  Lock lock = locker.acquire("u1");
  relay.forget();
  EXPECT_TRUE(fails_with(
      ErrorKind::invalid_argument, [&] { (void)locker.acquire(many); }, "65535"));
  EXPECT_TRUE(relay.commands().empty());
  EXPECT_TRUE(lock.held());
}

// Two sessions of two Lockers that each hold what the other asks for: a cycle only the server can see.
TEST_P(Errors, a_deadlock_is_told_and_releases_the_whole_lock) {  // H9, H8, B11
  Locker one = open(), two = open();
  Lock first = one.acquire("u1/a1/r1"), second = two.acquire("u2/a1/r1");
  auto asks = std::async(std::launch::async, [&] { return error_of([&] { first.extend("u2/a1/r1"); }); });
  ASSERT_TRUE(eventually([&] { return somebody_waits(); }));
  std::optional<Error> of_two = error_of([&] { second.extend("u1/a1/r1"); });
  if (of_two) second.release();  // harmless: it is released already
  const std::optional<Error> of_one = asks.get();
  ASSERT_NE(of_one.has_value(), of_two.has_value()) << "one of them is the victim, and only one";
  const Error& error = of_one ? *of_one : *of_two;
  Lock &victim = of_one ? first : second, &winner = of_one ? second : first;
  EXPECT_EQ(error.kind(), ErrorKind::deadlock) << error.what();
  EXPECT_EQ(error.native_code(), 1213);
  EXPECT_TRUE(error.retryable());
  EXPECT_NE(std::string(error.what()).find("released"), std::string::npos) << "the error says so: " << error.what();
  EXPECT_FALSE(victim.held());
  EXPECT_TRUE(winner.held());
  EXPECT_TRUE(only_stay_locked(6)) << "all of the winner's, nothing else";
  winner.release();
  EXPECT_TRUE(all_free());
  // Neither the queue in the process nor the pool of connections keeps anything of the victim.
  for (Locker* locker : {&one, &two}) {
    EXPECT_TRUE(locker->acquire({"u1/a1/r1", "u2/a1/r1"}, {.timeout = 5s}).held());
    EXPECT_TRUE(eventually([&] { return locker->snapshot().holders.empty(); }));  // a ROLLBACK may be under way
  }
}

TEST_P(Errors, a_timeout_leaves_nothing_locked) {  // H8, H9
  Locker one = open(), two = open();
  const Lock held = one.acquire("u1/a1/r1");
  const std::optional<Error> error = error_of([&] { (void)two.acquire({"u1/a1/r1", "u9/a9/r9"}, {.timeout = 100ms}); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::timeout) << error->what();
  EXPECT_TRUE(error->retryable());
  EXPECT_TRUE(only_stay_locked(3)) << "what the holder has, and nothing else";
  EXPECT_TRUE(two.acquire("u9/a9/r9").held());
}

// The server ends a wait after innodb_lock_wait_timeout (1205), and the library asks again until its own deadline.
TEST_P(Errors, a_wait_outlives_the_servers_own_timeout) {  // H9, H2
  Relay relay(server().host, server().port);
  Locker one = open(), two = hierlock::open(url(at_port(relay.port())));
  Lock held = one.acquire("u1/a1/r1");
  two.acquire("u1/a2").release();
  relay.forget();
  auto asks = std::async(std::launch::async, [&] { return two.acquire("u1/a1/r1", {.timeout = 60s}).fence(); });
  const auto executes = [&] {
    const auto said = relay.commands();
    return std::count_if(said.begin(), said.end(), locks);
  };
  ASSERT_TRUE(eventually([&] { return executes() >= 2; }, 20s)) << "it asks again";
  const std::int64_t before = held.fence();
  held.release();
  EXPECT_GT(asks.get(), before);
  EXPECT_TRUE(all_free());
}

TEST_P(Errors, an_extend_that_waits_long_keeps_what_it_holds) {  // B4
  Locker one = open(), two = open();
  Lock held = one.acquire("u1/a1/r1"), more = two.acquire("u2/a1/r1");
  std::atomic<bool> lost = false;
  const std::stop_callback callback(more.lost(), [&] { lost = true; });
  auto asks =
      std::async(std::launch::async, [&] { return error_of([&] { more.extend("u1/a1/r1", {.timeout = 60s}); }); });
  // Longer than a lease and than the server's own timeout.
  ASSERT_FALSE(eventually([&] { return asks.wait_for(0s) == std::future_status::ready; }, 14s));
  EXPECT_FALSE(lost);
  held.release();
  const std::optional<Error> error = asks.get();
  EXPECT_FALSE(error) << error->what();
  EXPECT_TRUE(more.held());
  EXPECT_EQ(locked().size(), 6u);
}

HIERLOCK_ON_BOTH_SERVERS(Errors);

}  // namespace
}  // namespace hierlock::mysql_tests
