#include "leftovers.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include <hierlock/hierlock.h>

namespace storm {

namespace {

using hierlock::ErrorKind;
using hierlock::Lock;
using hierlock::Locker;
using namespace std::chrono_literals;

std::string describe(const hierlock::Snapshot& snapshot) {
  std::string text;
  for (const auto& h : snapshot.holders) {
    text += "\n  " + h.target + " (" + std::string(to_string(h.mode)) + ") is held by process " +
            std::to_string(h.who.process) + " with fence " + std::to_string(h.fence);
  }
  for (const auto& w : snapshot.waiters) {
    text += "\n  " + w.target + " (" + std::string(to_string(w.mode)) + ") is awaited by process " +
            std::to_string(w.who.process);
  }
  return text;
}

// A server may take a moment to notice that somebody is gone, a file may not.
bool nothing_left(Locker& locker, bool at_a_server) {
  const std::int64_t until = now_ns() + (at_a_server ? 15'000'000'000 * slowness : 0);
  for (;;) {
    const hierlock::Snapshot snapshot = locker.snapshot();
    if (snapshot.holders.empty() && snapshot.waiters.empty()) return true;
    if (now_ns() > until) return false;
    sleep_us(20'000);
  }
}

// In a process that has never seen the table before.
void look_for_locks(const Witness& witness, const Store& store) {
  Locker locker = hierlock::open(store.url);
  if (!nothing_left(locker, store.at_a_server())) {
    witness.violation("left behind: locks of nobody" + describe(locker.snapshot()));
  }
  std::vector<hierlock::Target> roots;
  for (const Place& place : places()) {
    if (place.parent < 0 && place.slots == 0 && store.has(place)) roots.push_back(place.target);
  }
  // Where a lock is a lease, those of processes that were killed last that long.
  const auto timeout = locker.capabilities().leases ? 20s : 0s;
  try {
    std::vector<Lock> locks;
    locks.push_back(locker.acquire(roots, {.timeout = timeout}));
    std::size_t slots = 0;
    for (const Place& place : places()) {
      if (!store.has(place)) continue;
      for (std::uint32_t i = 0; i < place.slots; ++i)
        locks.push_back(locker.acquire(place.target, {.timeout = timeout}));
      slots += place.slots;
    }
    const hierlock::Snapshot snapshot = locker.snapshot();
    if (snapshot.holders.size() != roots.size() + slots || !snapshot.waiters.empty()) {
      witness.violation("left behind: a snapshot with everything locked shows" + describe(snapshot));
    }
  } catch (const hierlock::Error& error) {
    witness.violation("left behind: cannot lock everything at once: " + std::string(error.what()) +
                      describe(locker.snapshot()));
  }
  if (!nothing_left(locker, store.at_a_server())) {
    witness.violation("left behind: after the release" + describe(locker.snapshot()));
  }
}

// As often as it can be done, until there is no more room.
template <class F>
std::int64_t until_full(std::int64_t most, F f) {
  for (std::int64_t count = 0; count < most; ++count) {
    // What is idle but not yet cleared away may need to be asked for twice.
    for (int tries = 0;; ++tries) {
      try {
        f(count);
        break;
      } catch (const hierlock::Error& error) {
        if (error.kind() != ErrorKind::exhausted) throw;
        if (tries == 3) return count;
      }
    }
  }
  return most;
}

constexpr std::array<const char*, 5> rooms{"processes", "owners", "locks on one node", "locks on many nodes",
                                           "locks on nodes of their own"};
using Room = std::array<std::int64_t, rooms.size()>;

// In a process of its own, which takes everything with it when it ends.
Room measure(const Witness& witness, const std::string& url) {
  for (auto& answer : witness.all().answers) answer.store(-1);
  const auto ask = [&](std::size_t number, const auto& f) {
    reap(start([&] { witness.all().answers[number].store(f()); }));
  };
  constexpr std::int64_t most = 100'000;
  ask(0, [&] {
    std::vector<Locker> lockers;
    return until_full(most, [&](std::int64_t) { lockers.push_back(hierlock::open(url)); });
  });
  ask(1, [&] {
    Locker locker = hierlock::open(url);
    std::vector<hierlock::Owner> owners;
    return until_full(most, [&](std::int64_t) { owners.push_back(locker.owner("")); });
  });
  ask(2, [&] {
    Locker locker = hierlock::open(url);
    std::vector<Lock> locks;
    return until_full(most, [&](std::int64_t) { locks.push_back(locker.acquire(shared(hierlock::named("room")))); });
  });
  ask(3, [&] {
    Locker locker = hierlock::open(url);
    std::vector<hierlock::Target> many;
    for (int i = 0; i < 8; ++i) many.push_back(shared(hierlock::named("room " + std::to_string(i))));
    std::vector<Lock> locks;
    return until_full(most, [&](std::int64_t) { locks.push_back(locker.acquire(many)); });
  });
  ask(4, [&] {
    Locker locker = hierlock::open(url);
    std::vector<Lock> locks;
    return until_full(
        most, [&](std::int64_t i) { locks.push_back(locker.acquire(hierlock::named("room " + std::to_string(i)))); });
  });
  Room room{};
  for (std::size_t i = 0; i < room.size(); ++i) room[i] = witness.all().answers[i].load();
  return room;
}

void compare_room(const Witness& witness, const Store& store) {
  const std::string fresh = store.file + ".fresh", settings = store.url.substr(store.url.find('?'));
  const Room used = measure(witness, store.url);
  const Room unused = measure(witness, "shm://" + fresh + settings);
  std::error_code ignored;
  std::filesystem::remove(fresh, ignored);
  std::printf("\nroom for            used table   fresh one\n");
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    std::printf("  %-28s %lld   %lld\n", rooms[i], static_cast<long long>(used[i]), static_cast<long long>(unused[i]));
    if (used[i] >= unused[i] && unused[i] > 0) continue;
    witness.violation("left behind: there is room for " + std::to_string(used[i]) + " " + rooms[i] +
                      ", in a fresh table for " + std::to_string(unused[i]));
  }
}

}  // namespace

void look_for_leftovers(const Witness& witness, const Options& options, const Store& store) {
  const std::string& url = store.url;
  const std::int64_t until = now_ns() + 60'000'000'000 * slowness;

  std::vector<pid_t> squatters;
  for (int i = 0; i < (options.fault == Break::leak ? 3 : options.fault == Break::leftover ? 1 : 0); ++i) {
    witness.all().answers[0].store(0);
    squatters.push_back(start([&] {
      Locker locker = hierlock::open(url);
      std::optional<Lock> lock;
      if (options.fault == Break::leftover) lock.emplace(locker.acquire("u1"));
      witness.all().answers[0].store(1);
      pause();
    }));
    while (witness.all().answers[0].load() == 0) sleep_us(1000);
  }

  const int status = reap(start([&] { look_for_locks(witness, store); }), until);
  if (status != 0) witness.violation("left behind: looking for it ended with status " + std::to_string(status));

  if (!store.at_a_server()) compare_room(witness, store);
  for (const pid_t squatter : squatters) {
    kill(squatter, SIGKILL);
    reap(squatter);
  }
}

}  // namespace storm
