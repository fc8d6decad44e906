#include "quiet.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include <hierlock/hierlock.h>

namespace storm {

namespace {

using hierlock::Locker;
using hierlock::Target;

constexpr std::int64_t ms = 1'000'000;
// A loaded machine may stop one process, and not the one that measures. So a few deaths may be noticed late. A table
// that wakes nobody, or the wrong process, is late far more often.
constexpr std::int64_t ever = (250 + 5'000) * ms * slowness;
constexpr std::int64_t longest = 250 * ms * slowness;  // B5, of all but one or two
constexpr std::int64_t usually = 50 * ms * slowness;   // of 99 in 100
constexpr std::size_t waiters = 3;
constexpr std::size_t victim_row = waiters;

// What the victim holds, and what the others wait for.
struct Case {
  Target held, wanted;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {{"u1/a1/r1", "u1/a1/r1"},
                                        {"u1", "u1/a1/r1"},
                                        {"u1/a1/r1", "u1"},
                                        {hierlock::shared("u1/a1"), "u1/a1/r1"},
                                        {"u1/a1", hierlock::shared("u1")},
                                        {hierlock::named("n"), hierlock::named("n")},
                                        {hierlock::slots("s", 1), hierlock::slots("s", 1)}};
  return all;
}

// Row of a waiter: `state` says how far it is, `state_since` when it was granted what it waited for.
void wait_when_told(const Witness& witness, const std::string& url, std::size_t me, int orders) {
  Row& row = witness.row(me);
  hierlock::OpenOptions options;
  options.on_event = [&](const hierlock::Event& event) {
    if (event.kind == hierlock::Event::Kind::wait_begins) row.state.store(State::waiting);
  };
  Locker locker = hierlock::open(url, options);
  for (unsigned char number = 0; read(orders, &number, 1) == 1;) {
    row.state.store(State::acquiring);
    hierlock::Lock lock = locker.acquire(cases()[number % cases().size()].wanted);
    row.state_since.store(now_ns());
    lock.release();
    row.state.store(State::idle);
  }
}

std::int64_t at(const std::vector<std::int64_t>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(share * static_cast<double>(sorted.size()));
  return sorted[std::min(rank, sorted.size() - 1)];
}

void print(const char* what, std::vector<std::int64_t> times) {
  std::sort(times.begin(), times.end());
  const auto show = [&](double share) { return static_cast<double>(at(times, share)) / 1e6; };
  std::printf("  %-28s p50 %6.2f   p99 %6.2f   p99.9 %6.2f   max %6.2f ms\n", what, show(0.5), show(0.99), show(0.999),
              static_cast<double>(times.back()) / 1e6);
}

}  // namespace

void measure_deaths(const Witness& witness, const Options& options, const std::string& table) {
  const std::string url = "shm://" + table + ".quiet?max_locks=" + std::to_string(options.max_locks);
  std::mt19937_64 random(options.seed);
  for (std::size_t i = 0; i <= victim_row; ++i) witness.row(i).state.store(State::none);

  std::array<pid_t, waiters> children{};
  std::array<int, waiters> orders{};
  for (std::size_t i = 0; i < waiters; ++i) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      witness.violation("no pipe");
      return;
    }
    children[i] = start([&] {
      for (std::size_t other = 0; other < i; ++other) close(orders[other]);
      close(ends[1]);
      wait_when_told(witness, url, i, ends[0]);
    });
    close(ends[0]);
    orders[i] = ends[1];
  }

  pid_t victim = -1, bystander = -1;
  std::vector<std::int64_t> first, last, unrest, corrected;
  const std::int64_t began = now_ns();
  const auto eventually = [&](const auto& happened) {
    const std::int64_t until = now_ns() + 20'000 * ms * slowness;
    std::int64_t worst = 0;
    while (!happened() && now_ns() < until && !interrupted()) {
      constexpr std::int64_t nap_us = 100;
      const std::int64_t before = now_ns();
      sleep_us(nap_us);
      worst = std::max(worst, now_ns() - before - nap_us * 1000);
    }
    if (!happened() && !interrupted()) {
      witness.violation("hang: in the quiet phase, round " + std::to_string(first.size()) + "\n" + describe_table(url));
    }
    return worst;
  };

  while (first.size() < options.quiet_kills && !interrupted() && witness.all().violations.load() == 0) {
    auto number = static_cast<unsigned char>(random() % cases().size());
    if (options.fault == Break::slow) number = 0;  // the bystander keeps nobody waiting who only wants to share
    const std::size_t count = 1 + random() % waiters;
    Row& row = witness.row(victim_row);
    row.state.store(State::opening);
    victim = start([&] {
      Locker locker = hierlock::open(url);
      const hierlock::Lock lock = locker.acquire(cases()[number].held);
      row.state.store(State::holding);
      for (;;) pause();
    });
    eventually([&] { return row.state.load() == State::holding; });
    if (options.fault == Break::slow) {  // somebody else comes between, and is slow
      row.state.store(State::opening);
      bystander = start([&] {
        Locker locker = hierlock::open(url, {.on_event = [&](const hierlock::Event& event) {
                                         if (event.kind == hierlock::Event::Kind::wait_begins) {
                                           row.state.store(State::holding);
                                         }
                                       }});
        const hierlock::Lock lock = locker.acquire(cases()[number].wanted);
        sleep_us(300'000 * slowness);
      });
      eventually([&] { return row.state.load() == State::holding; });
    }
    for (std::size_t i = 0; i < count; ++i) {
      witness.row(i).state_since.store(0);
      witness.row(i).state.store(State::acquiring);
      if (write(orders[i], &number, 1) != 1) witness.violation("a waiter is gone");
    }
    const auto all_are = [&](State state) {
      return std::all_of(witness.all().rows, witness.all().rows + count,
                         [&](const Row& r) { return r.state.load() == state; });
    };
    eventually([&] { return all_are(State::waiting); });
    sleep_us(static_cast<std::int64_t>(random() % 15'000));  // at any moment of those who look

    const std::int64_t start_at = now_ns();
    kill(victim, SIGKILL);
    reap(std::exchange(victim, -1));
    const auto granted = [&](std::size_t i) { return witness.row(i).state_since.load(); };
    const auto anybody = [&] {
      for (std::size_t i = 0; i < count; ++i) {
        if (granted(i) != 0) return true;
      }
      return false;
    };
    const std::int64_t late = eventually(anybody);
    eventually([&] { return all_are(State::idle); });
    if (bystander > 0) reap(std::exchange(bystander, -1));
    std::int64_t soonest = INT64_MAX, latest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      soonest = std::min(soonest, granted(i) - start_at);
      latest = std::max(latest, granted(i) - start_at);
    }
    first.push_back(soonest);
    last.push_back(latest);
    unrest.push_back(late);
    corrected.push_back(std::max<std::int64_t>(soonest - late, 0));
  }
  for (const int order : orders) close(order);
  for (const pid_t child : children) reap(child, now_ns() + 10'000 * ms);
  if (first.empty()) return;

  std::printf("\n%zu holders killed with 1 to %zu waiting, in %.1f s: until they run\n", first.size(), waiters,
              static_cast<double>(now_ns() - began) / 1e9);
  print("the first waiter", first);
  print("the last waiter", last);
  print("how late this machine wakes", unrest);
  // A bound in time is only as good as the machine: what it was late in the same moment does not count.
  std::sort(corrected.begin(), corrected.end());
  const auto most_within = [&](std::int64_t bound, std::size_t exceptions) {
    const std::int64_t time = corrected[corrected.size() - 1 - std::min(exceptions, corrected.size() - 1)];
    if (time <= bound) return;
    witness.violation("latency: " + std::to_string(time / ms) +
                      " ms and more until the next waiter ran, more often than " + std::to_string(exceptions) +
                      " times in " + std::to_string(corrected.size()));
  };
  most_within(usually, std::max<std::size_t>(2, corrected.size() / 100));
  most_within(longest, std::max<std::size_t>(1, corrected.size() / 500));
  most_within(ever, 0);
}

}  // namespace storm
