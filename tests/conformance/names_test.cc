// Named locks: a space of their own, of any length and case.
#include <atomic>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Names : public ConformanceWith<&Capabilities::names> {};

TEST_P(Names, a_name_excludes_itself) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome held = granted(alice.acquire(named("token-refresh")));
  Pending asked = bob.acquire(named("token-refresh"));
  blocked(asked, "named \"token-refresh\"");
  alice.release(held);
  granted(asked);
}

TEST_P(Names, two_requests_of_one_process_never_both_get_one_name) {  // N3
  constexpr int threads = 8, rounds = 300;
  std::atomic<int> inside = 0, together = 0;
  Locker& all = locker();
  std::vector<std::future<void>> workers;
  for (int worker = 0; worker < threads; ++worker) {
    workers.push_back(std::async(std::launch::async, [&] {
      for (int round = 0; round < rounds; ++round) {
        const Lock lock = all.acquire(named("n"));
        if (++inside != 1) ++together;
        std::this_thread::yield();
        --inside;
      }
    }));
  }
  for (std::future<void>& worker : workers) worker.get();
  EXPECT_EQ(together, 0);
}

TEST_P(Names, two_owners_on_one_thread_never_both_get_one_name) {  // N3
  const Owner first = locker().owner("first"), second = locker().owner("second");
  const Lock lock = locker().acquire(named("n"), {.owner = &first});
  EXPECT_FALSE(locker().try_acquire(named("n"), 0ns, {.owner = &second}).has_value());
  EXPECT_FALSE(locker().try_acquire(named("n")).has_value()) << "this thread is another owner than the first";
}

TEST_P(Names, long_names_are_distinct_to_the_last_byte) {  // N4
  const std::string prefix(64, 'x');
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire(named(prefix)));
  granted(bob.try_acquire(named(prefix + "1")));
  granted(alice.try_acquire(named(prefix + "2")));
  refused(alice.try_acquire(named(prefix + "1")), ErrorKind::busy);
  const std::string longest(max_name_bytes - 1, 'y');
  granted(alice.acquire(named(longest + "1")));
  granted(bob.try_acquire(named(longest + "2")));
  refused(bob.try_acquire(named(longest + "1")), ErrorKind::busy);
}

TEST_P(Names, names_that_differ_only_in_case_are_distinct) {  // N4
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire(named("Token")));
  granted(bob.try_acquire(named("token")));
  granted(bob.try_acquire(named("TOKEN")));
  refused(bob.try_acquire(named("Token")), ErrorKind::busy);
  granted(alice.acquire(named("\xC3\x84")));
  granted(bob.try_acquire(named("\xC3\xA4")));
}

TEST_P(Names, spaces_and_slashes_are_bytes_like_any_other) {  // N4
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire(named("a")));
  for (const char* other : {"a ", " a", "a/b", "a%2Fb", "a\\", "a'", "a\"", "a\n"}) {
    granted(bob.try_acquire(named(other)));
  }
}

TEST_P(Names, a_name_has_no_hierarchy) {  // N6
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire(named("u1")));
  granted(bob.try_acquire(named("u1/a1")));
}

TEST_P(Names, ten_thousand_may_be_held_at_once) {  // N6
  constexpr int names = slowness == 1 ? 10'000 : 1'000;  // a sanitizer finds nothing more in minutes of the same
  std::vector<Lock> held;
  for (int i = 0; i < names; ++i) held.push_back(locker().acquire(named("n" + std::to_string(i))));
  EXPECT_EQ(elsewhere([&] { return locker().try_acquire(named("n471")).has_value(); }), false);
  held.clear();
  EXPECT_TRUE(nothing_left()) << state();
}

TEST_P(Names, malformed_names_are_refused) {  // H7
  EXPECT_EQ(kind_thrown_by([] { return named(""); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown_by([] { return named(std::string(max_name_bytes + 1, 'x')); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown_by([] { return named(std::string_view("a\0b", 3)); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown_by([] { return named("\xFF"); }), ErrorKind::invalid_argument);
}

HIERLOCK_ON_EVERY_BACKEND(Names);

}  // namespace
}  // namespace hierlock::conformance
