// Crowds that wait, on memory: and shm:.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "crowd.h"
#include "groups.h"
#include "ours.h"
#include "peer_futex.h"
#include "process.h"
#include "session.h"

namespace bench::groups {

namespace {

using namespace std::chrono_literals;

}  // namespace

// Processor time that processes use while they wait. Nobody gets anything meanwhile.
void waiting(Session& session) {
  constexpr std::size_t crowd_size = 400;
  const ScratchFolder folder;
  const std::string url = "shm://" + folder.file("table");
  const auto take = [&url](const auto& about_to_wait, bool first) {
    hierlock::Locker locker = hierlock::open(url);
    if (!first) about_to_wait();
    const hierlock::Lock lock = locker.acquire(hierlock::named("wanted"));
    if (!first) throw std::runtime_error("waiting: a held name was given to two");
    about_to_wait();
    for (;;) pause();
  };
  session.preparing("waiting", "starting processes");
  const ProcessCrowd holder(1, [&](const auto& about_to_wait) { take(about_to_wait, true); });
  const ProcessCrowd ours(crowd_size, [&](const auto& about_to_wait) { take(about_to_wait, false); });
  // A waiter that would never look could not notice that the holder died.
  Shared<std::atomic<std::uint32_t>> word(0u);
  const ProcessCrowd futex(crowd_size, [&](const auto& about_to_wait) {
    about_to_wait();
    while (word->load() == 0) futex_sleep(*word, 0, 100ms, FutexTurns::Between::processes);
  });
  const auto share = [&session](const ProcessCrowd& crowd) {
    const double begin = crowd.processor_nanoseconds();
    const Clock::time_point begin_time = Clock::now();
    std::this_thread::sleep_for(session.quick() ? 300ms : 1000ms);
    return (crowd.processor_nanoseconds() - begin) / nanoseconds(Clock::now() - begin_time);
  };
  session.measure(
      "waiting",
      {{"ours", [&] { return share(ours); }}, {"futex", [&] { return share(futex); }}, {"limit", [] { return 0.2; }}},
      session.quick() ? 3 : 7);
}

// From a release until each of the waiting threads has had what was released, and has released it.
void drain(Session& session) {
  constexpr std::size_t crowd_size = 4'000, slot_count = 3;
  constexpr auto longest = 5s;  // who waits longer has failed
  const ScratchFolder folder;
  std::optional<hierlock::Locker> memory = hierlock::open("memory:"), shm = hierlock::open("shm://" + folder.file("t"));
  session.preparing("drain", "starting threads");
  ThreadCrowd crowd(crowd_size);
  const auto timed = [&](const auto& pair, const auto& release) {
    std::atomic<std::size_t> failed{0};
    crowd.start([&](std::size_t) {
      if (!pair()) ++failed;
    });
    const Clock::time_point begin = Clock::now();
    release();
    crowd.finish();
    const double took = nanoseconds(Clock::now() - begin);
    return failed == 0 ? took : std::max(took, nanoseconds(longest));
  };
  const auto ours = [&](hierlock::Locker& locker, const hierlock::Target& wanted) {
    const bool slots = wanted.space() == hierlock::Space::slots;
    std::vector<hierlock::Owner> owners;
    std::vector<hierlock::Lock> held;
    for (std::size_t i = 0; i < (slots ? slot_count : 1); ++i) {
      owners.push_back(locker.owner("holder"));
      held.push_back(locker.acquire(slots ? wanted : hierlock::named("drained"), {.owner = &owners.back()}));
    }
    return timed([&] { return locker.try_acquire(wanted, longest).has_value(); }, [&] { held.clear(); });
  };
  const auto futex = [&](std::size_t all, std::size_t each) {
    FutexQueue queue(all);
    queue.acquire(all);
    const auto pair = [&] {
      if (!queue.acquire(each, longest)) return false;
      queue.release(each);
      return true;
    };
    return timed(pair, [&] { queue.release(all); });
  };
  const hierlock::Target exclusive = hierlock::named("drained"), shared = hierlock::shared(hierlock::named("drained")),
                         slots = hierlock::slots("drained", slot_count);
  session.measure("drain",
                  {{"exclusive", [&] { return ours(*memory, exclusive); }},
                   {"shared", [&] { return ours(*memory, shared); }},
                   {"slots", [&] { return ours(*memory, slots); }},
                   {"shm-exclusive", [&] { return ours(*shm, exclusive); }},
                   {"shm-shared", [&] { return ours(*shm, shared); }},
                   {"shm-slots", [&] { return ours(*shm, slots); }},
                   {"futex-exclusive", [&] { return futex(1, 1); }},
                   {"futex-shared", [&] { return futex(crowd_size, 1); }},
                   {"futex-slots", [&] { return futex(slot_count, 1); }},
                   {"limit", [] { return 1e9; }}},
                  session.quick() ? 1 : 5);
}

namespace {

// Threads that hold something and wait for something, until the object goes.
class Standstill {
 public:
  struct Place {
    std::vector<hierlock::Target> held;
    hierlock::Target wanted;
  };
  // The calling thread holds `mine`, an owner that does not wait holds `hot`. Everybody waits for one of these, or for
  // somebody who does.
  Standstill(std::size_t size, const std::function<Place(std::size_t)>& place)
      : held_(size),
        other_(locker_.owner("other")),
        hot_(locker_.acquire(hot(), {.owner = &other_})),
        mine_(locker_.acquire(mine())),
        crowd_(size) {
    crowd_.start([&](std::size_t i) {
      for (const hierlock::Target& target : place(i).held) held_[i].push_back(locker_.acquire(target));
    });
    crowd_.finish();
    crowd_.start([this, place](std::size_t i) {
      locker_.acquire(place(i).wanted).release();
      held_[i].clear();
    });
  }
  ~Standstill() {
    hot_.release();
    mine_.release();
    crowd_.finish();
  }
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;

  static hierlock::Target hot() { return hierlock::named("hot"); }
  static hierlock::Target mine() { return hierlock::named("mine"); }

  // Waits for `hot` exclusively, in vain.
  void wait(std::chrono::nanoseconds longest) {
    if (locker_.try_acquire(hot(), longest)) throw std::runtime_error("entangled: a held name was given to two");
  }

 private:
  hierlock::Locker locker_ = hierlock::open("memory:");
  std::vector<std::vector<hierlock::Lock>> held_;
  hierlock::Owner other_;
  hierlock::Lock hot_, mine_;
  ThreadCrowd crowd_;
};

}  // namespace

// What one more wait costs, in processor time of the thread that waits; the others are asleep.
void entangled(Session& session) {
  constexpr std::size_t crowd_size = 800, few = 20, locks = 10'000, accounts_each = 100;
  const hierlock::Target hot = hierlock::shared(Standstill::hot()), mine = Standstill::mine();
  using Place = Standstill::Place;
  const auto link = [](std::size_t i) { return hierlock::named("link " + std::to_string(i)); };
  const auto many = [](std::size_t i) {
    std::vector<hierlock::Target> targets;
    for (std::size_t n = 0; n < locks; ++n) {
      targets.emplace_back("u" + std::to_string(i) + "/a" + std::to_string(n % accounts_each) + "/r" +
                           std::to_string(n / accounts_each));
    }
    return targets;
  };
  const std::map<std::string, std::pair<std::size_t, std::function<Place(std::size_t)>>> scenes = {
      {"one",
       {crowd_size,
        [&](std::size_t i) {
          return i == 0 ? Place{{link(0)}, hot} : Place{{}, hot};
        }}},
      {"holder",
       {crowd_size,
        [&](std::size_t i) {
          return i == 0 ? Place{{link(0)}, mine} : Place{{}, hot};
        }}},
      {"chain",
       {crowd_size,
        [&](std::size_t i) {
          return Place{{link(i)}, i + 1 < crowd_size ? link(i + 1) : mine};
        }}},
      {"many-locks",
       {few,
        [&](std::size_t i) {
          return Place{many(i), hot};
        }}},
      // The first waits for a user that the second holds by intention: who holds it is written at their locks only.
      {"many-shared",
       {few,
        [&](std::size_t i) {
          return Place{many(i), i == 0 ? hierlock::Target("u1") : mine};
        }}},
  };
  const std::size_t samples = session.quick() ? 15 : 41;
  const auto cost = [samples](const auto& wait) {
    std::vector<double> times;
    for (std::size_t n = 0; n < samples; ++n) {
      const double begin = thread_nanoseconds();
      wait(1ms);
      times.push_back(thread_nanoseconds() - begin);
    }
    return summarize(times).median;
  };
  session.preparing("entangled", "starting threads");
  std::vector<std::unique_ptr<Standstill>> standing;
  Contenders contenders = {{"limit", [] { return 2e5; }}, {"limit-shared", [] { return 2e6; }}};
  for (const auto& [name, scene] : scenes) {
    if (!session.needs("entangled", name)) continue;
    standing.push_back(std::make_unique<Standstill>(scene.first, scene.second));
    contenders[name] = [&cost, &still = *standing.back()] {
      return cost([&](std::chrono::nanoseconds longest) { still.wait(longest); });
    };
  }
  FutexQueue queue(1);
  queue.acquire(1);
  ThreadCrowd crowd(crowd_size);
  crowd.start([&](std::size_t) {
    queue.acquire(1);
    queue.release(1);
  });
  contenders["futex"] = [&] {
    return cost([&](std::chrono::nanoseconds longest) {
      if (queue.acquire(1, longest)) throw std::runtime_error("futex: self-check: a lock was given to two");
    });
  };
  session.measure("entangled", contenders);
  queue.release(1);
  crowd.finish();
}

}  // namespace bench::groups
