// The queue: who is told to look, and that everybody gets on whatever becomes of those who were told.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "asking.h"
#include "stage.h"

namespace hierlock::stores {
namespace {

using engine::Table;
using engine::WakeList;

// Many who want to read what somebody writes.
class Readers {
 public:
  Readers(Table& table, std::size_t count) {
    const auto writer = std::make_unique<Asking>(table, Target("u1"));
    EXPECT_TRUE(writer->granted());
    for (std::size_t i = 0; i < count; ++i) {
      all_.push_back(std::make_unique<Asking>(table, hierlock::shared("u1")));
      EXPECT_FALSE(all_.back()->granted());
      EXPECT_FALSE(all_.back()->told());
    }
  }

  bool told(std::size_t i) const { return !granted_[i] && all_[i]->told(); }
  std::size_t told() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < all_.size(); ++i) count += told(i) ? 1 : 0;
    return count;
  }
  bool look(std::size_t i) { return granted_[i] = all_[i]->granted(); }
  std::size_t size() const { return all_.size(); }
  void leave() { all_.clear(); }

 private:
  std::vector<std::unique_ptr<Asking>> all_;
  std::vector<bool> granted_ = std::vector<bool>(1000);
};

TEST(Queue, tells_few_at_a_time_and_everybody_in_the_end) {  // I5, B12
  const Clock::time_point deadline = Clock::now() + patience;
  for (bool in_time = false; !in_time;) {
    ASSERT_LT(Clock::now(), deadline) << "this machine is too busy";
    Table table(engine::Capacity::for_locks(1000));
    const Clock::time_point begin = Clock::now();
    Readers readers(table, 100);
    std::size_t most = readers.told();
    for (std::size_t i = 0; i < readers.size(); ++i) {
      ASSERT_TRUE(readers.told(i)) << "number " << i << " may go, and was not told";
      ASSERT_TRUE(readers.look(i));
      most = std::max(most, readers.told());
    }
    // If it took longer, those who were told first did not count any more, and others were told in their place.
    in_time = Clock::now() - begin < 20ms;
    readers.leave();
    EXPECT_EQ(table.look().check(), "");
    if (in_time) {
      EXPECT_EQ(most, std::size_t{WakeList::most_at_once});
    }
  }
}

TEST(Queue, goes_on_though_all_who_were_told_are_stopped) {  // I5, B5
  Table table(engine::Capacity::for_locks(1000));
  Readers readers(table, 500);
  // Those who were told do nothing. The last ones look for themselves, as everybody does once a second.
  const Clock::time_point deadline = Clock::now() + patience;
  const auto first = std::size_t{WakeList::most_at_once};
  for (std::size_t i = readers.size() - 1; !readers.told(first); --i) {
    ASSERT_LT(Clock::now(), deadline);
    ASSERT_GT(i, 2 * first) << "nobody else was told";
    ASSERT_TRUE(readers.look(i));
    std::this_thread::sleep_for(1ms);
  }
  // From here on each tells the next.
  for (std::size_t i = first; i < 2 * first; ++i) {
    ASSERT_TRUE(readers.told(i)) << "number " << i << " may go, and was not told";
    ASSERT_TRUE(readers.look(i));
  }
  readers.leave();
  EXPECT_EQ(table.look().check(), "");
}

// Whoever is granted something tells nobody of its owner's other requests (I4): none can stand behind somebody who
// waits for that owner. Whichever of the two requests came last would have closed a cycle.
TEST(Queue, refuses_who_would_stand_behind_one_that_waits_for_its_owner) {  // I4
  Table table(engine::Capacity::for_locks(1000));
  const engine::Index owner = table.records().make_owner("a crowd", engine::OwnerKind::crowd);
  {
    Asking writes(table, Target("u1"));
    ASSERT_TRUE(writes.granted());
    Asking first(table, hierlock::shared("u1"), owner);
    EXPECT_EQ(first.look(), engine::Progress::blocked);
    Asking other(table, Target("u1"));
    EXPECT_EQ(other.look(), engine::Progress::blocked);
    Asking second(table, hierlock::shared("u1"), owner);
    EXPECT_EQ(second.look(), engine::Progress::deadlock) << "first would be granted before other, and other after it";
  }
  EXPECT_EQ(table.look().check(), "");
  {
    Asking reads(table, hierlock::shared("u1"));
    ASSERT_TRUE(reads.granted());
    Asking other(table, Target("u1/x"));
    EXPECT_EQ(other.look(), engine::Progress::blocked);
    Asking waits(table, hierlock::shared("u1"), owner);
    EXPECT_EQ(waits.look(), engine::Progress::blocked);
    Asking below(table, hierlock::shared("u1/a"), owner);
    EXPECT_EQ(below.look(), engine::Progress::granted);
    Asking passes(table, hierlock::shared("u1"), owner);
    EXPECT_EQ(passes.look(), engine::Progress::deadlock) << "its owner holds u1 already, and other would wait for it";
  }
  EXPECT_EQ(table.look().check(), "");
  table.records().retire_owner(owner);
}

}  // namespace
}  // namespace hierlock::stores
