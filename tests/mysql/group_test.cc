// Group replication, for real: two servers in one group, of which one stops.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <hierlock/operate.h>

#include "on_server.h"
#include "support/own_server.h"

namespace hierlock::mysql_tests {
namespace {

// A port that nobody uses at this moment.
unsigned free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(listener);
  return ntohs(address.sin_port);
}

class Member {
 public:
  explicit Member(const std::string& called)
      : port_(free_port()), own_("mysql", "--with=log_bin=binlog", called), plain_(own_.operator_url()) {}
  ~Member() { go_on(); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string url() const { return own_.url() + "?provision=lazy&buckets=10&table=in_group"; }
  Plain& plain() { return plain_; }

  void join(const std::string& seeds, bool first) {
    const Server donor(own_.operator_url());
    plain_.ask("SET GLOBAL server_id=" + std::to_string(port_));
    plain_.ask("INSTALL PLUGIN group_replication SONAME 'group_replication.so'");
    plain_.ask("RESET BINARY LOGS AND GTIDS");  // both have the same accounts: there is nothing to copy
    for (const std::string& setting :
         {std::string("group_name='d7b0c1f0-0000-4000-8000-000000000000'"), "local_address='" + address() + "'",
          "group_seeds='" + seeds + "'", "advertise_recovery_endpoints='127.0.0.1:" + std::to_string(donor.port) + "'",
          std::string("recovery_get_public_key=ON"),
          std::string(first ? "bootstrap_group=ON" : "bootstrap_group=OFF")}) {
      plain_.ask("SET GLOBAL group_replication_" + setting);
    }
    plain_.ask("START GROUP_REPLICATION USER='recovery', PASSWORD='secret-of-recovery'");
    plain_.ask("SET GLOBAL group_replication_bootstrap_group=OFF");
  }
  void make_account() {
    plain_.ask("CREATE USER 'recovery' IDENTIFIED BY 'secret-of-recovery'");
    plain_.ask("GRANT ALL ON *.* TO 'recovery'");
  }
  std::string others(const std::string& state) {
    return plain_.one("SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE MEMBER_STATE='" + state +
                      "'");
  }
  void stop() const { kill(own_.pid(), SIGSTOP); }
  void go_on() const { kill(own_.pid(), SIGCONT); }

 private:
  const unsigned port_;
  OwnServer own_;
  Plain plain_;
};

Finding finding(const std::string& url, const std::string& check) {
  for (const Finding& found : hierlock::doctor(url)) {
    if (found.check == check) return found;
  }
  return {};
}

// The primary stays ONLINE and writable when it loses sight of the others; the majority would choose another one.
TEST(Group, a_primary_that_loses_the_majority_loses_its_locks_and_is_refused) {  // B4, H17
  HIERLOCK_NEEDS_SERVER("MYSQL");
  mysql::enable();
  Member primary("primary"), other("other");
  const std::string seeds = primary.address() + "," + other.address();
  for (Member* const member : {&primary, &other}) member->make_account();
  primary.join(seeds, true);
  other.join(seeds, false);
  ASSERT_TRUE(eventually([&] { return primary.others("ONLINE") == "2"; }, 60s));

  EXPECT_EQ(finding(primary.url(), "group_replication").verdict, Finding::Verdict::good);
  EXPECT_TRUE(fails_with(
      ErrorKind::unsafe_topology, [&] { (void)hierlock::open(other.url()); }, "read_only"))
      << "a secondary";
  Locker locker = hierlock::open(primary.url());
  const Lock lock = locker.acquire("u1");
  EXPECT_TRUE(lock.held());

  other.stop();
  ASSERT_TRUE(eventually([&] { return primary.others("UNREACHABLE") == "1"; }, 60s));
  EXPECT_EQ(primary.plain().one("SELECT @@global.read_only"), "0") << "nothing else tells";
  EXPECT_TRUE(eventually([&] { return !lock.held(); }, 10s + stall));
  EXPECT_TRUE(fails_with(
      ErrorKind::unsafe_topology, [&] { (void)hierlock::open(primary.url()); }, "majority"));
  EXPECT_EQ(finding(primary.url(), "group_replication").verdict, Finding::Verdict::unsafe);
  other.go_on();
}

}  // namespace
}  // namespace hierlock::mysql_tests
