// Capabilities: what a store cannot do is data, and asking for it fails loudly (B1, B2).
#include <algorithm>
#include <fstream>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class CapabilitiesOf : public Conformance {};

// Of a line of a Markdown table; none if it is not one.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  if (!line.starts_with("|")) return cells;
  for (std::size_t begin = 1, end = 0; (end = line.find('|', begin)) != line.npos; begin = end + 1) {
    const std::string cell = line.substr(begin, end - begin);
    const std::size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
    cells.push_back(first == cell.npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

TEST_P(CapabilitiesOf, are_the_same_whenever_they_are_asked) {
  const std::string before = describe(can());
  const Lock lock = locker().acquire("u1");
  EXPECT_EQ(describe(locker().capabilities()), before);
  EXPECT_EQ(describe(table().open().capabilities()), before);
  RecordProperty("capabilities", before);
}

// Either it works, or it is `unsupported`, says so in words, and holds nothing.
TEST_P(CapabilitiesOf, tell_the_truth_about_each_kind_of_target) {
  struct Case {
    Target target;
    bool promised;
  };
  const std::vector<Case> cases = {
      {shared("u1"), can().shared_inner},       {shared("u1/a1"), can().shared_inner}, {shared("u1/a1/r1"), true},
      {shared(named("n")), can().shared_names}, {slots("s", 2), can().slots},          {named("n"), can().names},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.target.str());
    if (one.promised) {
      EXPECT_TRUE(locker().acquire(one.target).held());
    } else {
      expect_unsupported(one.target);
      EXPECT_FALSE(message_of([&] { return locker().acquire(one.target); }).empty());
    }
    EXPECT_TRUE(nothing_left()) << state();
  }
}

TEST_P(CapabilitiesOf, tell_the_truth_about_extending) {
  Lock lock = locker().acquire("u1");
  const std::optional<ErrorKind> thrown = kind_thrown_by([&] {
    lock.extend("u2");
    return 0;
  });
  EXPECT_EQ(thrown, can().extends ? std::nullopt : std::optional(ErrorKind::unsupported));
  EXPECT_TRUE(lock.held());
}

TEST_P(CapabilitiesOf, a_lock_manager_needs_slots) {
  LockManager manager(locker(), "s", 1);
  const std::optional<ErrorKind> thrown = kind_thrown_by([&] {
    manager.await_lock();
    return 0;
  });
  EXPECT_EQ(thrown, can().slots ? std::nullopt : std::optional(ErrorKind::unsupported));
}

TEST_P(CapabilitiesOf, tell_the_truth_about_other_lockers) {
  Locker other = table().open();
  const Lock lock = locker().acquire("u1");
  const bool free = elsewhere([&] { return other.try_acquire("u1").has_value(); });
  EXPECT_EQ(free, !table().one_for_all_lockers());
  if (can().across_processes) {
    EXPECT_TRUE(table().one_for_all_lockers());
  }
}

TEST_P(CapabilitiesOf, the_url_is_told_without_a_password) {
  EXPECT_FALSE(locker().url().empty());
  EXPECT_EQ(locker().url().find("secret"), std::string::npos);
}

// docs/stores.md tells people what a store can do; they read that and not this.
TEST_P(CapabilitiesOf, are_what_the_page_of_stores_says) {
  if (GetParam().column.empty()) HIERLOCK_NOT_APPLICABLE() << "docs/stores.md does not speak of " << GetParam();
  std::ifstream page(HIERLOCK_STORES_PAGE);
  std::vector<std::vector<std::string>> rows;  // of the table that has this store as a column
  std::size_t column = 0;
  for (std::string line; std::getline(page, line);) {
    std::vector<std::string> cells = cells_of(line);
    if (column == 0) {
      const auto found = std::find(cells.begin(), cells.end(), GetParam().column);
      if (found != cells.end() && cells[0].empty()) column = static_cast<std::size_t>(found - cells.begin());
    } else if (cells.empty()) {
      break;
    } else {
      rows.push_back(std::move(cells));
    }
  }
  ASSERT_NE(column, 0u) << "no table has a column " << GetParam().column;
  const auto says = [&](const std::string& what) -> std::string {
    for (const std::vector<std::string>& cells : rows) {
      if (cells[0].find(what) != std::string::npos) return cells.at(column);
    }
    ADD_FAILURE() << "docs/stores.md has no row about " << what;
    return {};
  };
  const auto yes = [&](const std::string& what) { return says(what) == "yes"; };
  EXPECT_EQ(yes("names, slots"), can().names && can().slots) << says("names, slots");
  EXPECT_EQ(yes("shared on any node"), can().shared_inner) << says("shared on any node");
  EXPECT_EQ(yes("`extend`"), can().extends) << says("`extend`");
  EXPECT_EQ(yes("first come, first served"), can().fifo) << says("first come, first served");
  EXPECT_EQ(yes("deadlock found when the cycle closes"), can().deadlock_at_once) << says("deadlock found");
  EXPECT_EQ(says("excludes other processes") != "**no**", can().across_processes);
  EXPECT_EQ(says("excludes other processes").starts_with("of all machines"), can().across_machines);
}

HIERLOCK_ON_EVERY_BACKEND(CapabilitiesOf);

}  // namespace
}  // namespace hierlock::conformance
