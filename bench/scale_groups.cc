// Many threads, waits and locks, on MySQL and MariaDB: what they cost the process and the server.
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "crowd.h"
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

namespace bench::groups {

namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t buckets = 20'000;

// --- herd ------------------------------------------------------------------------------------------------

void herd(Session& session, const ServerKind& server, std::string_view group) {
  const char* const url = server_for(session, group, server.variable.c_str());
  if (url == nullptr) return;
  session.preparing(group, "rows and threads");
  const BucketTable table(url, buckets);
  Ours ours(table.url() + "&connections=16");
  const std::vector<std::string> paths = paths_on_own_rows(1'000, buckets);
  Herd few(ours.locker(), std::vector<std::string>(paths.begin(), paths.begin() + 16)), many(ours.locker(), paths);
  const auto length = session.quick() ? 300ms : 1'000ms;
  Figures<3> of_few([&] { return few.run(length); }), of_many([&] { return many.run(length); });
  session.measure(group,
                  {{"thousand", [&] { return of_many[0]; }},
                   {"sixteen", [&] { return of_few[0]; }},
                   {"thousand-processor", [&] { return of_many[1]; }},
                   {"sixteen-processor", [&] { return of_few[1]; }},
                   {"thousand-sleeps", [&] { return of_many[2]; }},
                   {"sixteen-sleeps", [&] { return of_few[2]; }}},
                  session.quick() ? 5 : 15);
}

// --- waiting ---------------------------------------------------------------------------------------------

// What a process may hold while the others of the group wait for it.
using AboutToWait = std::function<void()>;

void hold_for_good(const std::string& url, const std::vector<std::string>& paths, const AboutToWait& holds) {
  hierlock::Locker locker = hierlock::open(url);
  std::vector<hierlock::Lock> held;
  for (const std::string& path : paths) held.push_back(locker.acquire(path));
  holds();
  for (;;) pause();
}

// A wait in vain that ends and begins anew at each restart().
class RestartedWait {
 public:
  void wait(hierlock::Locker& locker, const std::string& wanted) {
    for (;;) {
      try {
        locker.acquire(wanted, {.cancel = token()}).release();
        throw std::runtime_error("a held path was given to two");
      } catch (const hierlock::Error& error) {
        if (error.kind() != hierlock::ErrorKind::cancelled) throw;
      }
    }
  }
  void restart() {
    std::stop_source over;
    {
      const std::lock_guard guard(mutex_);
      std::swap(over, source_);
    }
    over.request_stop();
  }

 private:
  std::stop_token token() {
    const std::lock_guard guard(mutex_);
    return source_.get_token();
  }

  std::mutex mutex_;
  std::stop_source source_;
};

// Threads of one process that wait in vain. `first` is what one of them holds meanwhile, or empty.
struct Wait {
  std::string first, wanted;
};
void wait_for_good(
    const std::string& url, const std::vector<Wait>& waits, const AboutToWait& all_wait,
    const std::function<void()>& all_hold = [] {}, RestartedWait* first = nullptr) {
  hierlock::Locker locker = hierlock::open(url);
  ThreadCrowd crowd(waits.size());
  std::vector<std::optional<hierlock::Lock>> held(waits.size());
  crowd.begin([&](std::size_t i) {
    if (!waits[i].first.empty()) held[i] = locker.acquire(waits[i].first);
  });
  crowd.finish();
  all_hold();
  crowd.start([&](std::size_t i) {
    if (i == 0 && first != nullptr) return first->wait(locker, waits[i].wanted);
    locker.acquire(waits[i].wanted).release();
    throw std::runtime_error("a held path was given to two");
  });
  all_wait();
  for (;;) pause();
}

// Processor time that threads use while they wait. Nobody gets anything meanwhile.
void waiting(Session& session, const ServerKind& server, std::string_view group) {
  constexpr std::size_t threads = 1'000, holders = 8;
  const char* const url = server_for(session, group, server.variable.c_str());
  if (url == nullptr) return;
  session.preparing(group, "rows, processes and threads");
  const BucketTable table(url, buckets);
  const std::vector<std::string> paths = paths_on_own_rows(holders + 1, buckets);
  const std::string& hot = paths.back();
  std::vector<Wait> one_path(threads, Wait{"", hot}), some_hold = one_path, many_paths;
  for (std::size_t i = 0; i < holders; ++i) some_hold[i].first = paths[i];
  for (std::size_t i = 0; i < threads; ++i) many_paths.push_back({"", hot + "/a" + std::to_string(i)});

  const ProcessCrowd holder(1, [&](const AboutToWait& holds) { hold_for_good(table.url(), {hot}, holds); });
  const auto crowd_of = [&](const std::vector<Wait>& waits) {
    return ProcessCrowd(1, [&](const AboutToWait& all_wait) { wait_for_good(table.url(), waits, all_wait); });
  };
  const ProcessCrowd one = crowd_of(one_path), some = crowd_of(some_hold), many = crowd_of(many_paths);
  std::this_thread::sleep_for(2s);  // after a second waits are published, which happens once
  const std::optional<pid_t> server_process = process_of(server);
  if (!server_process) session.skip(group, "server", server.variable + "_PID names no process");
  const auto used = [&]() -> std::array<double, 4> {
    return {one.processor_nanoseconds(), some.processor_nanoseconds(), many.processor_nanoseconds(),
            server_process ? process_nanoseconds(*server_process) : 0};
  };
  Figures<4> shares([&] {
    const std::array<double, 4> before = used();
    const Clock::time_point begin = Clock::now();
    std::this_thread::sleep_for(session.quick() ? 2s : 5s);
    std::array<double, 4> share = used();
    const double time = nanoseconds(Clock::now() - begin);
    for (std::size_t i = 0; i < share.size(); ++i) share[i] = (share[i] - before[i]) / time;
    return share;
  });
  session.measure(group,
                  {{"one", [&] { return shares[0]; }},
                   {"some-hold", [&] { return shares[1]; }},
                   {"many-paths", [&] { return shares[2]; }},
                   {"server", [&] { return shares[3]; }},
                   {"limit", [] { return 0.2; }}},
                  session.quick() ? 1 : 5);
}

// --- held ------------------------------------------------------------------------------------------------

void held(Session& session, const ServerKind& server, std::string_view group) {
  constexpr std::size_t locks = 1'000;
  const char* const url = server_for(session, group, server.variable.c_str());
  if (url == nullptr) return;
  const ConnectionRoom room(server, locks + 100);
  if (!room.why_not().empty()) return session.skip(group, room.why_not());
  session.preparing(group, "rows and locks");
  const BucketTable table(url, buckets);
  Ours ours(table.url() + "&connections=" + std::to_string(locks));
  std::vector<hierlock::Lock> handles;
  for (const std::string& path : paths_on_own_rows(locks, buckets)) handles.push_back(ours.locker().acquire(path));
  SqlSession looker(url);
  const auto statements = [&] {
    return looker.number(
        "SELECT SUM(VARIABLE_VALUE) FROM " +
        std::string(looker.mariadb() ? "information_schema.GLOBAL_STATUS" : "performance_schema.global_status") +
        " WHERE VARIABLE_NAME IN ('Questions', 'Com_admin_commands')");
  };
  std::this_thread::sleep_for(2s);  // after a second they are published, which happens once
  const auto per_second = [&] {
    const double begin = statements();
    const Clock::time_point begin_time = Clock::now();
    std::this_thread::sleep_for(6s);  // two heartbeats of each
    return (statements() - begin) / (nanoseconds(Clock::now() - begin_time) / 1e9);
  };
  session.measure(group, {{"ours", per_second}, {"limit", [] { return 400.0; }}}, session.quick() ? 1 : 5);
  for (const hierlock::Lock& lock : handles) {
    if (!lock.held()) throw std::runtime_error("a lock was lost while it was measured");
  }
}

// --- notices ---------------------------------------------------------------------------------------------

// Every thread of every process holds a lock and waits for one that another process holds, so all look for deadlocks.
void notices(Session& session, const ServerKind& server, std::string_view group) {
  constexpr std::size_t processes = 64, threads = 15;
  constexpr auto restarts_every = 5'000ms;  // of one thread of each process, while they are busy
  const char* const url = server_for(session, group, server.variable.c_str());
  if (url == nullptr) return;
  const ConnectionRoom room(server, processes * (threads + 4) + 100);
  if (!room.why_not().empty()) return session.skip(group, room.why_not());
  session.preparing(group, "rows and processes");
  const BucketTable table(url, buckets);
  const std::vector<std::string> paths = paths_on_own_rows(processes * threads + 1, buckets);
  const std::string& hot = paths.back();
  const Relay relay(url, {}, table.name() + "_notices");
  const std::string relayed = table.url(relay.url()) + "&tls=off&connections=24";
  const ProcessCrowd holder(1, [&](const AboutToWait& holds) { hold_for_good(table.url(), {hot}, holds); });
  // They connect four at a time: a thousand logins at once would take longer than a login may. Then all wait at once.
  Shared<std::atomic<std::size_t>> next(std::size_t{0}), connected(std::size_t{0});
  Shared<std::atomic<bool>> busy(false);
  const ProcessCrowd crowd(processes, [&](const AboutToWait& all_wait) {
    const std::size_t mine = next->fetch_add(1);
    sleep_until_done([&] { return mine < *connected + 4; });
    std::vector<Wait> waits;
    for (std::size_t i = 0; i < threads; ++i) waits.push_back({paths[mine * threads + i], hot});
    RestartedWait first;
    const auto go_on = [&] {
      all_wait();
      for (;;) {
        while (!*busy) std::this_thread::sleep_for(100ms);
        std::this_thread::sleep_for(restarts_every * mine / processes);
        for (; *busy; std::this_thread::sleep_for(restarts_every)) first.restart();
      }
    };
    const auto all_connect = [&] {
      ++*connected;
      sleep_until_done([&] { return *connected == processes; });
    };
    wait_for_good(relayed, waits, go_on, all_connect, &first);
  });
  SqlSession looker(url);
  session.preparing(group, "notices");
  sleep_until_done([&] {  // of all locks and waits, and of the one that all wait for
    return looker.number("SELECT COUNT(*) FROM " + table.name() + "_notices") >= 2 * processes * threads + 1;
  });
  std::this_thread::sleep_for(3s);  // all have read them
  const auto bytes_a_second = [&]() -> std::array<double, 2> {
    const auto with_word = static_cast<double>(relay.bytes_with_word()), all = static_cast<double>(relay.bytes());
    const Clock::time_point begin_time = Clock::now();
    std::this_thread::sleep_for(session.quick() ? 3s : 9s);  // notices are confirmed every 3 s
    const double seconds = nanoseconds(Clock::now() - begin_time) / 1e9;
    return {(static_cast<double>(relay.bytes_with_word()) - with_word) / seconds,
            (static_cast<double>(relay.bytes()) - all) / seconds};
  };
  Figures<2> figures(bytes_a_second);
  const std::size_t rounds = session.quick() ? 1 : 5;
  const auto while_busy = [&] {
    *busy = true;
    std::this_thread::sleep_for(1s);
    const double bytes = bytes_a_second()[0];
    *busy = false;
    if (rounds > 1) std::this_thread::sleep_for(restarts_every + 1s);
    return bytes;
  };
  session.measure(group,
                  {{"notices", [&] { return figures[0]; }},
                   {"all", [&] { return figures[1]; }},
                   {"notices-busy", while_busy},
                   {"limit", [] { return 1e6; }}},
                  rounds);
}

}  // namespace

void mysql_herd(Session& session) { herd(session, mysql_server, "mysql-herd"); }
void mariadb_herd(Session& session) { herd(session, mariadb_server, "mariadb-herd"); }
void mysql_waiting(Session& session) { waiting(session, mysql_server, "mysql-waiting"); }
void mariadb_waiting(Session& session) { waiting(session, mariadb_server, "mariadb-waiting"); }
void mysql_notices(Session& session) { notices(session, mysql_server, "mysql-notices"); }
void mariadb_notices(Session& session) { notices(session, mariadb_server, "mariadb-notices"); }
void mysql_held(Session& session) { held(session, mysql_server, "mysql-held"); }
void mariadb_held(Session& session) { held(session, mariadb_server, "mariadb-held"); }

}  // namespace bench::groups
