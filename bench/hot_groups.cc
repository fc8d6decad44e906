// One path or name that everybody wants, and a server that is far away, on MySQL and MariaDB.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "groups.h"
#include "herd.h"
#include "measure.h"
#include "ours.h"
#include "peer_mysql.h"
#include "process.h"
#include "relay.h"
#include "server.h"
#include "session.h"
#include "sql_session.h"
#include "statistics.h"

namespace bench::groups {

namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t buckets = 1'000;

// What everybody wants, and how to count the connections that hold it or wait for it.
struct Wanted {
  hierlock::Target target;
  const char* count;
};

// The server's view may be 100 ms old.
Wanted hot_path() {
  return {"hot",
          "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT' OR trx_rows_locked > 0"};
}

// GET_LOCK is exclusive, so one connection holds the name: a keeper. The process list shows the connections that wait
// for the name or its turnstile: ushers. No view that both servers have shows who holds.
Wanted hot_name() {
  return {hierlock::named("hot"), "SELECT 1 + COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User lock'"};
}

// How many connections hold or wait now.
class Connections {
 public:
  Connections(const ServerKind& server, const char* count) : count_(count) {
    if (const std::optional<std::string> url = operator_of(server)) session_ = std::make_unique<SqlSession>(*url);
  }
  bool can_be_counted() const { return session_ != nullptr; }
  // The most that were seen, looking for so long.
  double most(Clock::duration length) const {
    double most = 0;
    for (const Clock::time_point end = Clock::now() + length; Clock::now() < end;) {
      most = std::max(most, session_->number(count_));
      std::this_thread::sleep_for(110ms);
    }
    return most;
  }

 private:
  const char* const count_;
  std::unique_ptr<SqlSession> session_;
};

// A process that wants the same lock: how long it waits for it, each time.
class Rival {
 public:
  static constexpr std::size_t most_samples = 100'000;

  Rival(const std::string& url, hierlock::Target wanted)
      : wanted_(std::move(wanted)), process_([this, &url]() -> Process::Service {
          const auto locker = std::make_shared<hierlock::Locker>(hierlock::open(url));
          return [this, locker](const Order& order) { return wait_again_and_again(*locker, order.window.length); };
        }) {}

  void begin(Clock::duration length) { process_.tell({.kind = Order::Kind::pairs, .window = {length}}); }
  std::vector<double> waits() {
    const auto count = static_cast<std::size_t>(process_.answer());
    return {samples_->begin(), samples_->begin() + static_cast<std::ptrdiff_t>(count)};
  }

 private:
  double wait_again_and_again(hierlock::Locker& locker, Clock::duration length) {
    std::size_t count = 0;
    for (const Clock::time_point end = Clock::now() + length; Clock::now() < end && count < most_samples;) {
      const Clock::time_point begin = Clock::now();
      const hierlock::Lock lock = locker.acquire(wanted_);
      (*samples_)[count++] = nanoseconds(Clock::now() - begin);
    }
    return static_cast<double>(count);
  }

  const hierlock::Target wanted_;
  Shared<std::array<double, most_samples>> samples_;
  Process process_;
};

void hot(Session& session, const ServerKind& server, std::string_view group, const Wanted& wanted) {
  constexpr std::size_t threads = 64;
  const char* const url = server_for(session, group, server.variable.c_str());
  if (url == nullptr) return;
  session.preparing(group, "rows and threads");
  const BucketTable table(url, buckets);
  Rival rival(table.url(), wanted.target);
  const std::vector<hierlock::Target> targets(threads, wanted.target);
  Ours ours(table.url()), gate_off(table.url() + "&gate=off"), memory;
  Herd on_server(ours.locker(), targets), without_gate(gate_off.locker(), targets), in_memory(memory.locker(), targets);
  const Connections connections(server, wanted.count);
  if (!connections.can_be_counted()) session.skip(group, "connections", server.variable + "_OPERATOR names nobody");
  const auto length = session.quick() ? 400ms : 1'000ms;
  const auto rival_length = session.quick() ? 1'000ms : 5'000ms;
  Figures<2> alone([&]() -> std::array<double, 2> {
    double most = 0;
    const double rate = on_server.run(length, [&] {
      if (connections.can_be_counted()) most = connections.most(length);
    })[0];
    return {rate, most};
  });
  Figures<3> with_rival([&]() -> std::array<double, 3> {
    std::vector<double> waits;
    on_server.run(rival_length, [&] {
      rival.begin(rival_length);
      waits = rival.waits();
    });
    if (waits.empty()) return {nanoseconds(rival_length), nanoseconds(rival_length), nanoseconds(rival_length)};
    const double longest = *std::max_element(waits.begin(), waits.end());
    return {percentile(waits, 50), percentile(waits, 99), longest};
  });
  session.measure(group,
                  {{"ours", [&] { return alone[0]; }},
                   {"memory", [&] { return in_memory.run(length)[0]; }},
                   {"gate-off", [&] { return without_gate.run(length)[0]; }},
                   {"connections", [&] { return alone[1]; }},
                   {"two", [] { return 2.0; }},
                   {"rival-p50", [&] { return with_rival[0]; }},
                   {"rival-p99", [&] { return with_rival[1]; }},
                   {"rival-max", [&] { return with_rival[2]; }},
                   {"limit", [] { return 50e6; }}},
                  session.quick() ? 3 : 9);
}

// Round trips of a pair, as its time shows them.
void far(Session& session, const ServerKind& server, std::string_view group) {
  const char* const url = server_for(session, group, server.variable.c_str());
  if (url == nullptr) return;
  session.preparing(group, "rows");
  const BucketTable table(url, buckets);
  const Relay relay(url, 1ms);
  Ours ours(table.url(relay.url()) + "&tls=off");
  SqlSession plain(relay.url());
  const hierlock::Target target = "hot";
  constexpr std::size_t trips_a_turn = 10;
  const auto timed = [](const auto& trip) {
    return [trip] {
      trip();
      const Clock::time_point begin = Clock::now();
      for (std::size_t n = 0; n < trips_a_turn; ++n) trip();
      return nanoseconds(Clock::now() - begin) / trips_a_turn;
    };
  };
  InTurns round(session.quick() ? 9 : 31, timed([&] { ours.locker().acquire(target).release(); }),
                timed([&] { plain.ask("DO 0"); }));
  session.measure(group, {{"pair", [&] { return round.ours(); }}, {"round-trip", [&] { return round.peer(); }}},
                  session.quick() ? 5 : 15);
}

}  // namespace

void mysql_hot(Session& session) { hot(session, mysql_server, "mysql-hot", hot_path()); }
void mariadb_hot(Session& session) { hot(session, mariadb_server, "mariadb-hot", hot_path()); }
void mysql_names_hot(Session& session) { hot(session, mysql_server, "mysql-names-hot", hot_name()); }
void mariadb_names_hot(Session& session) { hot(session, mariadb_server, "mariadb-names-hot", hot_name()); }
void mysql_far(Session& session) { far(session, mysql_server, "mysql-far"); }
void mariadb_far(Session& session) { far(session, mariadb_server, "mariadb-far"); }

}  // namespace bench::groups
