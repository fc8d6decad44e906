// Valkey: a pair beside PINGs and beside what people write by hand, the hand-over to a waiter, one lock that everybody
// wants, and ten thousand that are held.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "groups.h"
#include "herd.h"
#include "measure.h"
#include "ours.h"
#include "peer_valkey.h"
#include "session.h"
#include "statistics.h"

namespace bench::groups {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t pairs_a_turn = 10, held_locks = 10'000, threads = 64;

// Null: the group is skipped.
const char* valkey_for(Session& session, std::string_view group) {
  const char* const url = std::getenv("HIERLOCK_TEST_VALKEY");
  std::string why = why_no_valkey();
  if (why.empty() && (url == nullptr || *url == '\0')) {
    why = "HIERLOCK_TEST_VALKEY names no server: eval \"$(tools/servers env)\"";
  }
  if (!why.empty()) {
    session.skip(group, why);
    return nullptr;
  }
  enable_valkey();
  return url;
}

// The application's account has no right to SET, GET and DEL.
const char* operator_at(const char* url) {
  const char* const all_rights = std::getenv("HIERLOCK_TEST_VALKEY_OPERATOR");
  return all_rights == nullptr ? url : all_rights;
}

std::string table_at(const char* url) { return std::string(url) + "?table=bench_" + std::to_string(getpid()); }

// The fastest tenth of many short turns. The kernel keeps client and server on one processor or on two, for seconds,
// and gives either to others meanwhile.
Figures<3> pairs_of(hierlock::Locker& locker, ValkeySession& by_hand, std::size_t turns) {
  return Figures<3>([&locker, &by_hand, turns]() -> std::array<double, 3> {
    const hierlock::Target path = "u1/a1/r1";
    std::array<std::vector<double>, 3> times;
    const auto timed = [](const auto& pair) {
      const Clock::time_point begin = Clock::now();
      for (std::size_t n = 0; n < pairs_a_turn; ++n) pair();
      return nanoseconds(Clock::now() - begin) / pairs_a_turn;
    };
    for (std::size_t turn = 0; turn < turns; ++turn) {
      times[0].push_back(timed([&] { locker.acquire(path).release(); }));
      by_hand.ping();  // its first word after a while must not count
      times[1].push_back(timed([&] {
        by_hand.ping();
        by_hand.ping();
      }));
      times[2].push_back(timed([&] { by_hand.pair_by_hand(); }));
    }
    return {percentile(times[0], 10), percentile(times[1], 10), percentile(times[2], 10)};
  });
}

// From the release by one Locker until the acquire of another one returns, which waits at the server; and a PING, both
// after the same pause.
std::array<double, 2> hand_overs(hierlock::Locker& first, hierlock::Locker& second, ValkeySession& pings,
                                 std::size_t samples) {
  constexpr auto pause = 3ms;
  std::vector<double> waits, round_trips;
  for (std::size_t i = 0; i < samples; ++i) {
    hierlock::Lock held = first.acquire("handed/over");
    std::atomic<bool> asks = false;
    Clock::time_point granted;
    std::thread waiter([&] {
      asks = true;
      const hierlock::Lock lock = second.acquire("handed/over");
      granted = Clock::now();
    });
    sleep_until_done([&] { return asks.load(); });
    std::this_thread::sleep_for(pause);
    Clock::time_point begin = Clock::now();
    held.release();
    waiter.join();
    waits.push_back(nanoseconds(granted - begin));
    std::this_thread::sleep_for(pause);
    begin = Clock::now();
    pings.ping();
    round_trips.push_back(nanoseconds(Clock::now() - begin));
  }
  return {percentile(waits, 99), percentile(round_trips, 99)};
}

// Scripts and bytes a second that the server handles for 10,000 locks of one process.
std::array<double, 2> cost_of_held(const std::string& url, ValkeySession& looker) {
  Ours holder(url);
  std::vector<hierlock::Lock> locks;
  locks.reserve(held_locks);
  for (std::size_t i = 0; i < held_locks; ++i) {
    locks.push_back(holder.locker().acquire(hierlock::named("held-" + std::to_string(i))));
  }
  std::this_thread::sleep_for(2s);  // after a second some are published, which happens once
  const auto seen = [&]() -> std::array<double, 2> {
    return {looker.info("commandstats", {"cmdstat_evalsha"}),
            looker.info("stats", {"total_net_input_bytes", "total_net_output_bytes"})};
  };
  const std::array<double, 2> before = seen();
  const Clock::time_point begin = Clock::now();
  std::this_thread::sleep_for(7s);  // two renewals of each
  const std::array<double, 2> after = seen();
  const double seconds = nanoseconds(Clock::now() - begin) / 1e9;
  for (const hierlock::Lock& lock : locks) {
    if (!lock.held()) throw std::runtime_error("a lock was lost while it was measured");
  }
  return {(after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds};
}

}  // namespace

void valkey(Session& session) {
  const char* const url = valkey_for(session, "valkey");
  if (url == nullptr) return;
  Ours ours(table_at(url)), other(table_at(url));
  ValkeySession by_hand(operator_at(url));
  Figures<3> pairs = pairs_of(ours.locker(), by_hand, session.quick() ? 200 : 1000);
  Figures<2> waits([&] { return hand_overs(ours.locker(), other.locker(), by_hand, session.quick() ? 100 : 300); });
  session.measure("valkey",
                  {{"ours", [&] { return pairs[0]; }},
                   {"pings", [&] { return pairs[1]; }},
                   {"by-hand", [&] { return pairs[2]; }},
                   {"hand-over", [&] { return waits[0]; }},
                   {"ping", [&] { return waits[1]; }}},
                  9);
}

void valkey_hot(Session& session) {
  const char* const url = valkey_for(session, "valkey-hot");
  if (url == nullptr) return;
  const std::vector<std::string> paths(threads, "hot");
  Ours ours(table_at(url)), memory;
  Herd on_server(ours.locker(), paths), in_memory(memory.locker(), paths);
  const auto length = session.quick() ? 400ms : 1'000ms;
  session.measure(
      "valkey-hot",
      {{"ours", [&] { return on_server.run(length)[0]; }}, {"memory", [&] { return in_memory.run(length)[0]; }}}, 9);
}

void valkey_held(Session& session) {
  const char* const url = valkey_for(session, "valkey-held");
  if (url == nullptr) return;
  ValkeySession looker(operator_at(url));
  Figures<2> held([&] { return cost_of_held(table_at(url), looker); });
  session.measure("valkey-held",
                  {{"scripts", [&] { return held[0]; }},
                   {"renewals", [] { return 2.0 * held_locks / (10.0 / 3); }},
                   {"bytes", [&] { return held[1]; }},
                   {"megabytes", [] { return 2'000'000.0; }}},
                  session.quick() ? 1 : 5);
}

}  // namespace bench::groups
