// Capabilities: what a store cannot do is data, and asking for it fails loudly (B2).
#include "suite.h"

namespace hierlock::conformance {
namespace {

class CapabilitiesOf : public Conformance {};

TEST_P(CapabilitiesOf, are_the_same_whenever_they_are_asked) {
  const std::string before = describe(locker().capabilities());
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
  EXPECT_EQ(can().names, GetParam().names) << "which suites run here depends on it";
  EXPECT_EQ(can().slots, GetParam().slots) << "which suites run here depends on it";
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

HIERLOCK_ON_EVERY_BACKEND(CapabilitiesOf);

}  // namespace
}  // namespace hierlock::conformance
