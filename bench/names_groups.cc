// Names on MySQL and MariaDB: a pair beside GET_LOCK by hand, and ten thousand that are held.
#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "groups.h"
#include "measure.h"
#include "ours.h"
#include "peer_mysql.h"
#include "server.h"
#include "session.h"
#include "sql_session.h"

namespace bench::groups {

namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t buckets = 1'000;
constexpr std::size_t held_names = 10'000, pairs_a_turn = 10, sessions_in_turn = 4;

// That this process has open.
double sockets() {
  double count = 0;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(file, gone).string().starts_with("socket:")) ++count;
  }
  return count;
}

// What GET_LOCK costs whoever writes it down himself, on one connection.
class ByHand {
 public:
  explicit ByHand(const std::string& url) : session_(url) {}
  void pair() {
    const std::string name = "('bench-name-0'";
    if (session_.ask("SELECT GET_LOCK" + name + ",0)") != "1") throw std::runtime_error("a free name was not granted");
    if (session_.ask("SELECT RELEASE_LOCK" + name + ")") != "1") throw std::runtime_error("a name was not released");
  }

 private:
  SqlSession session_;
};

// Pairs a second of one thread: ours, and by hand. The kernel keeps the thread and that of the server's session on one
// processor or on two, which makes a round trip two to four times as long, and it keeps that up for seconds. So several
// sessions take turns on either side, and the lower quartile of many short turns counts.
Figures<2> pairs_of(std::deque<Ours>& ours, std::deque<ByHand>& by_hand, std::size_t turns) {
  return Figures<2>([&ours, &by_hand, turns]() -> std::array<double, 2> {
    const hierlock::Target name = hierlock::named("name-0");
    std::vector<double> our_times, peer_times;
    const auto timed = [](const auto& pair) {
      const Clock::time_point begin = Clock::now();
      for (std::size_t n = 0; n < pairs_a_turn; ++n) pair();
      return nanoseconds(Clock::now() - begin) / pairs_a_turn;
    };
    for (std::size_t turn = 0; turn < turns; ++turn) {
      for (std::size_t i = 0; i < sessions_in_turn; ++i) {
        our_times.push_back(timed([&] { ours[i].locker().acquire(name).release(); }));
        peer_times.push_back(timed([&] { by_hand[i].pair(); }));
      }
    }
    const auto per_second = [](std::vector<double>& times) {
      const auto quartile = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 4);
      std::nth_element(times.begin(), quartile, times.end());
      return 1e9 / *quartile;
    };
    return {per_second(our_times), per_second(peer_times)};
  });
}

// Statements that the server is asked, a second.
double statements_a_second(SqlSession& looker) {
  const auto statements = [&] {
    return looker.number(
        "SELECT SUM(VARIABLE_VALUE) FROM " +
        std::string(looker.mariadb() ? "information_schema.GLOBAL_STATUS" : "performance_schema.global_status") +
        " WHERE VARIABLE_NAME IN ('Questions', 'Com_admin_commands')");
  };
  const double begin = statements();
  const Clock::time_point begin_time = Clock::now();
  std::this_thread::sleep_for(6s);  // two heartbeats of each session
  return (statements() - begin) / (nanoseconds(Clock::now() - begin_time) / 1e9);
}

void names(Session& session, const ServerKind& server, std::string_view group) {
  const char* const url = server_for(session, group, server.variable.c_str());
  if (url == nullptr) return;
  session.preparing(group, "names");
  const BucketTable table(url, buckets);
  std::deque<Ours> alone;
  std::deque<ByHand> by_hand;
  for (std::size_t i = 0; i < sessions_in_turn; ++i) {
    alone.emplace_back(table.url());
    by_hand.emplace_back(url);
  }
  Figures<2> pairs = pairs_of(alone, by_hand, session.quick() ? 40 : 200);
  session.measure(group, {{"ours", [&] { return pairs[0]; }}, {"by-hand", [&] { return pairs[1]; }}}, 9);
}

void names_held(Session& session, const ServerKind& server, std::string_view group) {
  const char* const url = server_for(session, group, server.variable.c_str());
  if (url == nullptr) return;
  session.preparing(group, "names");
  const BucketTable table(url, buckets);
  SqlSession looker(url);
  Figures<3> held([&]() -> std::array<double, 3> {
    const double before = sockets(), bytes = static_cast<double>(resident_bytes());
    Ours holder(table.url());
    std::vector<hierlock::Lock> locks;
    locks.reserve(held_names);
    for (std::size_t i = 0; i < held_names; ++i) {
      locks.push_back(holder.locker().acquire(hierlock::named("held-" + std::to_string(i))));
    }
    const double bytes_each = (static_cast<double>(resident_bytes()) - bytes) / static_cast<double>(held_names);
    std::this_thread::sleep_for(2s);  // after a second some are published, which happens once
    const double statements = statements_a_second(looker), sessions = sockets() - before;
    for (const hierlock::Lock& lock : locks) {
      if (!lock.held()) throw std::runtime_error("a name was lost while it was measured");
    }
    return {sessions, statements, bytes_each};
  });

  session.measure(group,
                  {{"connections", [&] { return held[0]; }},
                   {"eight", [] { return 8.0; }},
                   {"statements", [&] { return held[1]; }},
                   {"ten", [] { return 10.0; }},
                   {"bytes", [&] { return held[2]; }},
                   {"kilobyte", [] { return 1'000.0; }}},
                  session.quick() ? 1 : 5);
}

}  // namespace

void mysql_names(Session& session) { names(session, mysql_server, "mysql-names"); }
void mariadb_names(Session& session) { names(session, mariadb_server, "mariadb-names"); }
void mysql_names_held(Session& session) { names_held(session, mysql_server, "mysql-names-held"); }
void mariadb_names_held(Session& session) { names_held(session, mariadb_server, "mariadb-names-held"); }

}  // namespace bench::groups
