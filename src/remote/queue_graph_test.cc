#include "remote/queue_graph.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace hierlock::remote {
namespace {

using Waits = embedded::Queue::Waits;

TEST(QueueGraph, follows_holders_and_earlier_waiters_in_conflict) {
  // 1 holds node 7 shared. 2 waits for it exclusively, 3 shared behind 2, 4 exclusively behind both.
  Waits queue;
  queue.holds = {{1, 7, Mode::S}, {3, 8, Mode::X}};
  queue.waits = {{2, 7, Mode::X}, {3, 7, Mode::S}, {4, 7, Mode::X}, {5, 8, Mode::X}};
  const QueueGraph graph(queue);
  const std::vector<std::uint64_t> all{1, 2, 3, 4, 5};
  const auto reached = graph.reached(all, all);
  using Indices = std::vector<std::size_t>;
  EXPECT_EQ(reached[0], Indices{}) << "it waits for nobody";
  EXPECT_EQ(reached[1], Indices{0});
  EXPECT_EQ(reached[2], (Indices{0, 1})) << "1 shares with it, and is in the way of 2";
  EXPECT_EQ(reached[3], (Indices{0, 1, 2}));
  EXPECT_EQ(reached[4], (Indices{0, 1, 2})) << "through 3";
  const std::vector<std::uint64_t> five{5};
  EXPECT_EQ(graph.waited_for(five, all), (std::vector<bool>{true, true, true, false, false}));
}

TEST(QueueGraph, agrees_with_a_naive_search_on_random_queues) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  for (int turn = 0; turn < 2000; ++turn) {
    Waits queue;
    constexpr std::uint32_t owners = 8, nodes = 4;
    const auto mode = [&] { return all_modes[below(static_cast<std::uint32_t>(all_modes.size()))]; };
    for (std::uint32_t i = below(8); i > 0; --i) queue.holds.push_back({1 + below(owners), below(nodes), mode()});
    for (std::uint32_t node = 0; node < nodes; ++node) {
      for (std::uint32_t i = below(4); i > 0; --i) queue.waits.push_back({1 + below(owners), node, mode()});
    }
    bool waits[owners + 1][owners + 1] = {};
    for (std::size_t i = 0; i < queue.waits.size(); ++i) {
      const auto& wait = queue.waits[i];
      for (const auto& hold : queue.holds) {
        if (hold.node == wait.node && !compatible(hold.mode, wait.mode)) waits[wait.owner][hold.owner] = true;
      }
      for (std::size_t k = 0; k < i; ++k) {
        const auto& before = queue.waits[k];
        if (before.node == wait.node && !compatible(before.mode, wait.mode)) waits[wait.owner][before.owner] = true;
      }
    }
    for (std::uint32_t via = 1; via <= owners; ++via) {
      for (std::uint32_t a = 1; a <= owners; ++a) {
        for (std::uint32_t b = 1; b <= owners; ++b) waits[a][b] = waits[a][b] || (waits[a][via] && waits[via][b]);
      }
    }
    std::vector<std::uint64_t> all;
    for (std::uint64_t owner = 1; owner <= owners; ++owner) all.push_back(owner);
    const QueueGraph graph(queue);
    const auto reached = graph.reached(all, all);
    for (std::uint32_t a = 1; a <= owners; ++a) {
      const std::set<std::size_t> found(reached[a - 1].begin(), reached[a - 1].end());
      const std::vector<std::uint64_t> from{a};
      const std::vector<bool> waited_for = graph.waited_for(from, all);
      for (std::uint32_t b = 1; b <= owners; ++b) {
        ASSERT_EQ(found.contains(b - 1), a != b && waits[a][b]) << "turn " << turn << ": " << a << " and " << b;
        ASSERT_EQ(waited_for[b - 1], waits[a][b]) << "turn " << turn << ": " << a << " and " << b;
      }
    }
  }
}

}  // namespace
}  // namespace hierlock::remote
