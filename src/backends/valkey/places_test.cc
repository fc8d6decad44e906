#include "valkey/places.h"

#include <gtest/gtest.h>

#include <hierlock/target.h>

namespace hierlock::valkey {
namespace {

// Every process and version must find a lock in the same place: changing this is a format change.
TEST(Places, are_what_they_always_were) {
  const Target target("u1/a1/r1");
  const spi::Plan plan(target);
  const std::vector<remote::LeaseGroup> groups = groups_of(plan, "locks");
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].place, "hl:locks:{p924403}");
  ASSERT_EQ(groups[0].nodes.size(), 3u);
  EXPECT_EQ(groups[0].nodes[0].name, "u1");
  EXPECT_EQ(groups[0].nodes[0].mode, Mode::IX);
  EXPECT_EQ(groups[0].nodes[2].name, "u1/a1/r1");
  EXPECT_EQ(groups[0].nodes[2].mode, Mode::X);
}

// The finder of deadlocks takes the order of cells for the order in which they are locked.
TEST(Places, of_a_plan_are_in_the_order_of_cells_whatever_the_targets_are) {
  std::vector<Target> targets;
  for (int i = 0; i < 300; ++i) {
    targets.push_back(Target("u" + std::to_string(i % 40) + "/a" + std::to_string(i) + "/r"));
    targets.push_back(named("n" + std::to_string(i)));
    targets.push_back(slots("s" + std::to_string(i), 2));
  }
  const spi::Plan plan{std::span<const Target>(targets)};
  std::map<std::string, remote::Place> cells;
  for (const spi::Step& step : plan.steps()) {
    cells[spi::describe_key(step.space, step.key)] = place(cell_of(step.space, step.level, step.key, step.mode));
  }
  std::optional<remote::Place> before;
  std::size_t count = 0;
  std::set<std::string> seen;
  for (const remote::LeaseGroup& group : groups_of(plan, "t")) {
    EXPECT_TRUE(seen.insert(group.place).second) << "a place comes twice: " << group.place;
    for (const remote::LeaseNode& node : group.nodes) {
      const remote::Place at = cells.at(node.name);
      if (before) {
        EXPECT_LT(*before, at) << node.name;
      }
      before = at;
      ++count;
    }
  }
  EXPECT_EQ(count, plan.steps().size());
}

// Paths, names and slots never meet.
TEST(Places, of_different_spaces_are_different) {
  const std::string path = groups_of(spi::Plan(Target("x")), "t")[0].place;
  const std::string name = groups_of(spi::Plan(named("x")), "t")[0].place;
  const std::string slot = groups_of(spi::Plan(slots("x", 1)), "t")[0].place;
  EXPECT_NE(path, name);
  EXPECT_NE(name, slot);
  EXPECT_NE(path, slot);
}

}  // namespace
}  // namespace hierlock::valkey
