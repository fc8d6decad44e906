// A path excludes its ancestors and descendants, and nobody else.
#include <sstream>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Hierarchy : public Conformance {
 protected:
  // Somebody holds `first`; does another who asks for `second` wait? Both are released afterwards.
  bool second_waits(const Target& first, const Target& second) {
    Party &alice = party("alice"), &bob = party("bob");
    const Outcome held = granted(alice.acquire(first));
    EXPECT_TRUE(nothing_left(bob));  // not taken for what comes now
    Pending asked = bob.acquire(second);
    const bool waited = waits(asked);
    if (!waited) bob.release(granted(asked));
    alice.release(held);
    if (waited) bob.release(granted(asked));
    return waited;
  }

  // 2 users, 2 accounts each, 2 resources each: every ordered pair of the 14 targets. The second conflicts exactly when
  // one is the other or its ancestor. All wrong cells are reported.
  void expect_matrix(const std::function<bool(const std::string& first, const std::string& second)>& conflict) {
    std::vector<std::string> targets;
    for (const std::string user : {"u1", "u2"}) {
      targets.push_back(user);
      for (const std::string account : {"/a1", "/a2"}) {
        targets.push_back(user + account);
        for (const std::string resource : {"/r1", "/r2"}) targets.push_back(user + account + resource);
      }
    }
    ASSERT_EQ(targets.size(), 14u);
    const auto is_or_is_above = [](const std::string& upper, const std::string& lower) {
      return lower == upper || lower.starts_with(upper + "/");
    };
    std::ostringstream wrong;
    int cells = 0;
    for (const std::string& first : targets) {
      for (const std::string& second : targets) {
        const bool expected = is_or_is_above(first, second) || is_or_is_above(second, first);
        const bool found = conflict(first, second);
        if (found != expected) {
          wrong << "  " << first << " is held, " << second << (found ? " is not granted" : " is granted") << '\n';
        }
        ++cells;
      }
    }
    EXPECT_EQ(cells, 196);
    EXPECT_EQ(wrong.str(), "") << "wrong cells";
    EXPECT_TRUE(nothing_left()) << state();
  }
};

TEST_P(Hierarchy, the_same_resource_excludes_itself) {  // H13.1
  EXPECT_TRUE(second_waits("u1/a1/r1", "u1/a1/r1"));
}

TEST_P(Hierarchy, two_resources_of_one_account_do_not_meet) {  // H13.2
  EXPECT_FALSE(second_waits("u1/a1/r1", "u1/a1/r2"));
}

TEST_P(Hierarchy, account_waits_for_its_resource) {  // H13.3
  EXPECT_TRUE(second_waits("u1/a1/r1", "u1/a1"));
}

TEST_P(Hierarchy, resource_waits_for_its_account) {  // H13.3, the other order
  EXPECT_TRUE(second_waits("u1/a1", "u1/a1/r1"));
}

TEST_P(Hierarchy, user_excludes_its_accounts_and_resources) {  // H13.4
  EXPECT_TRUE(second_waits("u1", "u1/a1"));
  EXPECT_TRUE(second_waits("u1/a1", "u1"));
  EXPECT_TRUE(second_waits("u1", "u1/a1/r1"));
  EXPECT_TRUE(second_waits("u1/a1/r1", "u1"));
}

TEST_P(Hierarchy, two_users_do_not_meet) {  // H13.5
  EXPECT_FALSE(second_waits("u1", "u2"));
  EXPECT_FALSE(second_waits("u1/a1", "u2/a1"));
  EXPECT_FALSE(second_waits("u1/a1/r1", "u2/a1/r1"));
}

TEST_P(Hierarchy, two_resources_in_opposite_orders_deadlock) {  // H13.6
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome first = granted(alice.acquire("u1/a1/r1"));
  const Outcome second = granted(bob.acquire("u1/a1/r2"));
  Pending alice_asks = alice.acquire("u1/a1/r2");
  blocked(alice_asks, "u1/a1/r2");
  Pending bob_asks = bob.acquire("u1/a1/r1");
  const bool bob_lost = eventually([&] { return alice_asks.ready() || bob_asks.ready(); }) && bob_asks.ready();
  if (can().deadlock_at_once) {
    EXPECT_TRUE(bob_lost) << "the request that closes the cycle fails, nobody else\n" << state();
  }
  refused(bob_lost ? bob_asks : alice_asks, ErrorKind::deadlock);
  bob_lost ? bob.release(second) : alice.release(first);
  granted(bob_lost ? alice_asks : bob_asks);
}

TEST_P(Hierarchy, two_resources_in_opposite_orders_through_one_call_do_not_deadlock) {  // H13.7, H5
  constexpr int rounds = 200;
  std::vector<Party*> both = {&party("alice"), &party("bob")};
  const std::vector<Target> forwards = {"u1/a1/r1", "u1/a1/r2"};
  const std::vector<Target> backwards = {"u1/a1/r2", "u1/a1/r1"};
  for (int round = 0; round < rounds; ++round) {
    Pending one = both[0]->acquire_all(forwards, {.then_release = true});
    Pending other = both[1]->acquire_all(backwards, {.then_release = true});
    granted(one);
    granted(other);
  }
  EXPECT_EQ(locker().stats().total().deadlocks, 0u);
}

TEST_P(Hierarchy, the_matrix_of_all_196_ordered_pairs) {  // H14
  expect_matrix([&](const std::string& first, const std::string& second) { return second_waits(first, second); });
}

TEST_P(Hierarchy, the_matrix_without_waiting) {  // H14, by the shortest way there is
  Party &alice = party("alice"), &bob = party("bob");
  expect_matrix([&](const std::string& first, const std::string& second) {
    const Outcome held = granted(alice.acquire(first, {.plain = true}));
    const Outcome tried = result(bob.try_acquire(second, 0ns, {.plain = true}));
    EXPECT_TRUE(tried.granted() || tried.error == ErrorKind::busy) << tried;
    alice.release(held);
    if (tried.granted()) bob.release(tried);
    return !tried.granted();
  });
}

TEST_P(Hierarchy, the_matrix_of_those_who_wait_for_a_plain_holder) {  // H14
  Party &alice = party("alice"), &bob = party("bob");
  expect_matrix([&](const std::string& first, const std::string& second) {
    const Outcome held = granted(alice.acquire(first, {.plain = true}));
    EXPECT_TRUE(nothing_left(bob));  // not taken for what comes now
    Pending asked = bob.acquire(second);
    const bool waited = waits(asked);
    if (!waited) bob.release(granted(asked));
    alice.release(held);
    if (waited) bob.release(granted(asked));
    return waited;
  });
}

TEST_P(Hierarchy, every_depth_from_1_to_8_excludes_its_ancestors_and_no_sibling) {  // H1
  std::string path = "d1";
  std::vector<std::string> above;
  for (std::size_t depth = 1; depth <= table().levels(); ++depth) {
    if (depth > 1) {
      above.push_back(path);
      path += "/d" + std::to_string(depth);
    }
    SCOPED_TRACE(path);
    EXPECT_TRUE(second_waits(path, path));
    EXPECT_FALSE(second_waits(path, path + "x"));
    for (const std::string& ancestor : above) {
      EXPECT_TRUE(second_waits(path, ancestor)) << ancestor;
      EXPECT_TRUE(second_waits(ancestor, path)) << ancestor;
    }
  }
}

TEST_P(Hierarchy, ancestors_are_held_by_intention_and_the_target_exclusively) {  // H1
  Party& alice = party("alice");
  granted(alice.acquire("u1/a1/r1"));
  const std::vector<Snapshot::Holder> held = held_by(alice);
  ASSERT_EQ(held.size(), 3u) << state();
  for (const Snapshot::Holder& h : held) {
    EXPECT_EQ(h.asked, h.target == "u1/a1/r1") << state();
    EXPECT_EQ(h.mode == Mode::X, h.asked) << state();
    if (can().shared_inner && !h.asked) {
      EXPECT_EQ(h.mode, Mode::IX) << state();
    }
  }
}

TEST_P(Hierarchy, segments_are_compared_byte_by_byte) {
  EXPECT_FALSE(second_waits("u1/a1", "u1/A1"));
  EXPECT_FALSE(second_waits("u1/a1", "u1/a1 "));
  EXPECT_FALSE(second_waits("u1/a1", "u1/a11"));
  EXPECT_FALSE(second_waits("u1/\xC3\xA9", "u1/e\xCC\x81")) << "composed and decomposed e-acute";
  EXPECT_FALSE(second_waits("u1/a1", Target::path({"u1/a1"}))) << "a slash inside a segment is no separator";
  EXPECT_TRUE(second_waits("u1%2Fa1", Target::path({"u1/a1"}))) << "two spellings of one path";
  EXPECT_TRUE(second_waits("%75%31", "u1")) << "two spellings of one path";
}

TEST_P(Hierarchy, paths_and_names_never_meet) {  // N6
  HIERLOCK_NEEDS(names);
  EXPECT_FALSE(second_waits("u1", named("u1")));
  EXPECT_FALSE(second_waits(named("u1/a1"), "u1/a1"));
}

TEST_P(Hierarchy, slots_meet_neither_paths_nor_names) {  // N6
  HIERLOCK_NEEDS(slots);
  EXPECT_FALSE(second_waits("u1", slots("u1", 1)));
  if (can().names) {
    EXPECT_FALSE(second_waits(named("u1"), slots("u1", 1)));
  }
}

HIERLOCK_ON_EVERY_BACKEND(Hierarchy);

}  // namespace
}  // namespace hierlock::conformance
