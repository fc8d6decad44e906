// The shortest ways in and out, against each other: threads that hardly do anything but take and give back, so that
// every moment between two instructions of the store is hit sooner or later. The witness counts who is inside.
#include <array>
#include <atomic>
#include <thread>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Handshake : public Conformance {
 protected:
  struct Side {
    std::vector<Target> targets;  // taken by turns
    bool excludes_itself;
  };

  // Sides exclude each other.
  void hammer(const Side& left, const Side& right) {
    for (const int threads_each : {1, 2}) hammer(left, right, threads_each);
  }

  void hammer(const Side& left, const Side& right, int threads_each) {
    constexpr int rounds = 60'000 / slowness, looks = 100;
    struct Inside {
      std::atomic<int> left = 0, right = 0;
    } inside;
    std::atomic<int> wrong = 0, unavailable = 0, grants_left = 0, grants_right = 0;
    Locker& all = locker();
    const auto work = [&](const Side& side, std::atomic<int>& own, const std::atomic<int>& other,
                          std::atomic<int>& grants, int number) {
      for (int round = 0; round < rounds && wrong == 0; ++round) {
        const Target& target = side.targets[static_cast<std::size_t>(number + round) % side.targets.size()];
        // Mostly without waiting: who waits shuts the short way for everybody.
        std::optional<Lock> lock;
        try {
          if (round % 64 == 0) {
            lock = all.acquire(target);
          } else {
            lock = all.try_acquire(target);
          }
        } catch (const Error& error) {
          // A server that is very busy may not answer a request without waiting for seconds.
          if (error.kind() != ErrorKind::unavailable) throw;
          ++unavailable;
        }
        if (!lock) continue;
        if (own.fetch_add(1) != 0 && side.excludes_itself) ++wrong;
        for (int look = 0; look < looks; ++look) {
          if (other.load() != 0) ++wrong;
        }
        own.fetch_sub(1);
        ++grants;
      }
    };
    std::vector<std::thread> threads;
    for (int number = 0; number < threads_each; ++number) {
      threads.emplace_back(work, std::cref(left), std::ref(inside.left), std::cref(inside.right), std::ref(grants_left),
                           number);
      threads.emplace_back(work, std::cref(right), std::ref(inside.right), std::cref(inside.left),
                           std::ref(grants_right), number);
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0) << "both sides were inside at once";
    EXPECT_LE(unavailable, can().across_machines ? 10 : 0);
    EXPECT_GT(grants_left, 0);
    EXPECT_GT(grants_right, 0);
    EXPECT_TRUE(nothing_left()) << state();
  }
};

TEST_P(Handshake, a_user_and_its_resources) { hammer({{"u1"}, true}, {{"u1/a1/r1", "u1/a1/r2", "u1/a2/r1"}, false}); }

TEST_P(Handshake, an_account_and_its_resources) {
  hammer({{"u1/a1"}, true}, {{"u1/a1/r1", "u1/a1/r2", table().levels() > 4 ? "u1/a1/r3/x/y" : "u1/a1/r3"}, false});
}

TEST_P(Handshake, the_writer_of_a_resource_and_its_readers) {
  hammer({{"u1/a1/r1"}, true}, {{shared("u1/a1/r1")}, false});
}

TEST_P(Handshake, the_readers_of_a_user_and_the_writers_below) {
  HIERLOCK_NEEDS(shared_inner);
  hammer({{shared("u1")}, false}, {{"u1/a1/r1", "u1/a2/r1", "u1/a3"}, false});
}

TEST_P(Handshake, a_user_and_readers_below) {
  hammer({{"u1"}, true}, {{shared("u1/a1/r1"), shared("u1/a2/r1")}, false});
}

TEST_P(Handshake, nodes_that_come_and_go) {
  // Many different resources: the store forgets idle ones and uses their room again under the same user.
  std::vector<Target> resources;
  for (int i = 0; i < 5000; ++i) resources.emplace_back("u1/a" + std::to_string(i % 50) + "/r" + std::to_string(i));
  hammer({{"u1"}, true}, {resources, false});
}

HIERLOCK_ON_EVERY_BACKEND(Handshake);

}  // namespace
}  // namespace hierlock::conformance
