#include <hierlock/spi/plan.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <hierlock/error.h>

#include "plan/buckets.h"
#include "plan/test_random.h"

namespace hierlock::plan {
namespace {

using spi::Plan;
using spi::Step;

std::string describe(const Step& step) {
  std::string text = spi::describe_key(step.space, step.key) + ":" + std::string(to_string(step.mode));
  if (step.asked) text += "!";
  if (step.slots != 0) text += " of " + std::to_string(step.slots);
  return text;
}

std::vector<std::string> describe(const Plan& plan) {
  std::vector<std::string> out;
  for (const Step& step : plan.steps()) out.push_back(describe(step));
  return out;
}

std::vector<std::string> describe(const std::vector<Row>& rows) {
  std::vector<std::string> out;
  for (const Row& row : rows) {
    out.push_back(std::to_string(row.level) + "/" + std::to_string(row.bucket) + ":" +
                  std::string(to_string(row.mode)));
  }
  return out;
}

using Lines = std::vector<std::string>;

// What must hold of every plan, however it was made.
void check_invariants(const Plan& plan) {
  const auto steps = plan.steps();
  ASSERT_FALSE(steps.empty());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (i > 0) {
      ASSERT_TRUE(exact_before(steps[i - 1], step)) << "canonical, and no node twice";
    }
    ASSERT_TRUE(step.key.ends_with(step.segment));
    ASSERT_EQ(step.slots != 0, step.space == Space::slots);
    if (step.level == 0) {
      ASSERT_EQ(step.parent, -1);
      ASSERT_EQ(step.key.size(), step.segment.size() + 4);
      continue;
    }
    ASSERT_GE(step.parent, 0);
    ASSERT_LT(static_cast<std::size_t>(step.parent), i) << "ancestors before descendants";
    const Step& parent = steps[static_cast<std::size_t>(step.parent)];
    ASSERT_EQ(parent.level + 1, step.level);
    ASSERT_EQ(step.key.size(), parent.key.size() + 4 + step.segment.size());
    ASSERT_TRUE(step.key.starts_with(parent.key));
    ASSERT_TRUE(covers(parent.mode, intention(step.mode))) << describe(parent) << " " << describe(step);
  }
}

TEST(Plan, a_path_holds_its_target_exclusively_and_its_ancestors_by_intention) {  // H1
  const Target target = "u1/a1/r1";
  const Plan plan(target);
  EXPECT_EQ(describe(plan), (Lines{"u1:IX", "u1/a1:IX", "u1/a1/r1:X!"}));
  check_invariants(plan);
  for (std::size_t level = 0; level < 3; ++level) {
    EXPECT_EQ(plan.steps()[level].hash, target.hash(level));
    EXPECT_EQ(plan.steps()[level].segment, target.segment(level));
    EXPECT_EQ(plan.steps()[level].key, target.key(level));
  }
}

TEST(Plan, a_shared_path_holds_its_ancestors_by_shared_intention) {  // B10
  const Target target = shared("u1/a1");
  EXPECT_EQ(describe(Plan(target)), (Lines{"u1:IS", "u1/a1:S!"}));
}

TEST(Plan, any_depth_from_one_to_eight) {  // H1
  std::string text = "1";
  for (std::size_t depth = 1; depth <= max_depth; ++depth) {
    const Target target(text);
    const Plan plan(target);
    ASSERT_EQ(plan.steps().size(), depth);
    check_invariants(plan);
    text += "/" + std::to_string(depth + 1);
  }
}

TEST(Plan, names_and_slots_are_one_step) {  // N6, M1
  const Target name = named("a/b");
  EXPECT_EQ(describe(Plan(name)), (Lines{"named \"a/b\":X!"}));
  const Target shared_name = shared(named("x"));
  EXPECT_EQ(describe(Plan(shared_name)), (Lines{"named \"x\":S!"}));
  const Target three = slots("import", 3);
  EXPECT_EQ(describe(Plan(three)), (Lines{"slots \"import\":X! of 3"}));
}

TEST(Plan, text_and_target_make_the_same_plan) {
  for (const bool is_shared : {false, true}) {
    const spi::PathText text("u1/a%2F1/r1");
    const Target target = is_shared ? shared("u1/a%2F1/r1") : Target("u1/a%2F1/r1");
    const Plan a(text, is_shared);
    const Plan b(target);
    ASSERT_EQ(describe(a), describe(b));
    check_invariants(a);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(a.steps()[i].hash, b.steps()[i].hash);
      EXPECT_EQ(a.steps()[i].segment, b.steps()[i].segment);
    }
  }
}

TEST(Plan, many_targets_share_their_ancestors) {  // H5
  const std::vector<Target> targets{"u1/a2/r7", "u1/a1/r1"};
  EXPECT_EQ(describe(Plan(targets)), (Lines{"u1:IX", "u1/a1:IX", "u1/a1/r1:X!", "u1/a2:IX", "u1/a2/r7:X!"}));
}

TEST(Plan, targets_may_be_under_different_users) {  // H5
  const std::vector<Target> targets{"u2/a1", "u1/a1/r1", named("x"), slots("y", 2)};
  const Plan plan(targets);
  EXPECT_EQ(describe(plan),
            (Lines{"u1:IX", "u1/a1:IX", "u1/a1/r1:X!", "u2:IX", "u2/a1:X!", "named \"x\":X!", "slots \"y\":X! of 2"}));
  check_invariants(plan);
}

TEST(Plan, duplicates_collapse_to_the_strongest_mode) {  // H5
  const std::vector<Target> twice{"u1/a1", shared("u1/a1"), "u1/a1"};
  EXPECT_EQ(describe(Plan(twice)), (Lines{"u1:IX", "u1/a1:X!"}));
  const std::vector<Target> nested{"u1", "u1/a1"};
  EXPECT_EQ(describe(Plan(nested)), (Lines{"u1:X!", "u1/a1:X!"}));
  // Shared on the whole and exclusive on a part is exclusive on the whole: there is no SIX.
  const std::vector<Target> mixed{shared("u1"), "u1/a1"};
  EXPECT_EQ(describe(Plan(mixed)), (Lines{"u1:X!", "u1/a1:X!"}));
  const std::vector<Target> both_shared{shared("u1"), shared("u1/a1")};
  EXPECT_EQ(describe(Plan(both_shared)), (Lines{"u1:S!", "u1/a1:S!"}));
}

TEST(Plan, no_targets_is_an_error) {  // H7
  try {
    const Plan plan(std::span<const Target>{});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
  }
}

TEST(Plan, two_numbers_of_slots_for_one_name_are_incompatible_and_both_are_named) {  // M7
  for (const std::vector<Target>& targets : {std::vector<Target>{slots("x", 3), slots("x", 5)},
                                             std::vector<Target>{slots("x", 5), "u1/a1/r1/d/e/f/g/h", slots("x", 3)}}) {
    try {
      const Plan plan(targets);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::incompatible);
      EXPECT_STREQ(error.what(), "slots \"x\" is asked for with 3 and with 5 slots in one call; use one number");
    }
  }
}

TEST(Plan, is_the_same_for_any_permutation_of_its_targets) {  // H5
  HIERLOCK_TELL_SEED();
  Random random;
  for (int round = 0; round < 3'000; ++round) {
    const bool hostile = random.one_in(4);
    std::vector<Target> targets;
    for (std::size_t left = 1 + random.below(9); left > 0; --left) {
      Target target = random.target(hostile);
      while (hostile && target.space() == Space::slots) target = random.target(true);
      targets.push_back(std::move(target));
    }
    const Plan first(targets);
    check_invariants(first);
    std::vector<Target> shuffled = targets;
    std::shuffle(shuffled.begin(), shuffled.end(), random.engine());
    if (random.one_in(2)) shuffled.push_back(shuffled.front());  // H5: a duplicate changes nothing
    const Plan second(shuffled);
    ASSERT_EQ(describe(first), describe(second));

    // Against the plain definition: every step of every target, the strongest mode for each node.
    std::map<std::pair<Space, std::string>, std::pair<Mode, bool>> expected;
    for (const Target& target : targets) {
      const Plan one(target);
      for (const Step& step : one.steps()) {
        const auto [at, fresh] =
            expected.emplace(std::pair(step.space, std::string(step.key)), std::pair(step.mode, step.asked));
        if (fresh) continue;
        at->second.first = strongest(at->second.first, step.mode);
        at->second.second = at->second.second || step.asked;
      }
    }
    ASSERT_EQ(first.steps().size(), expected.size());
    auto at = expected.begin();
    for (const Step& step : first.steps()) {
      ASSERT_EQ(std::pair(step.space, std::string(step.key)), at->first);
      ASSERT_EQ(std::pair(step.mode, step.asked), at->second);
      ++at;
    }
  }
}

TEST(Order, exact_order_is_total) {  // H5
  HIERLOCK_TELL_SEED();
  Random random;
  std::vector<Target> targets;
  for (int i = 0; i < 60; ++i) targets.push_back(random.target(random.one_in(2)));
  std::vector<Step> steps;
  for (const Target& target : targets) {
    const Plan plan(target);
    steps.push_back(plan.steps().back());
  }
  for (const Step& a : steps) {
    for (const Step& b : steps) {
      const bool same = a.space == b.space && a.key == b.key;
      ASSERT_EQ(int{exact_before(a, b)} + int{exact_before(b, a)}, same ? 0 : 1);
      for (const Step& c : steps) {
        if (exact_before(a, b) && exact_before(b, c)) {
          ASSERT_TRUE(exact_before(a, c));
        }
      }
    }
  }
}

TEST(Buckets, rows_are_ordered_by_level_and_bucket_not_by_id) {  // H5
  // u1 lies in a higher bucket than u3: by id the order would be u1, u3.
  const std::uint32_t buckets = default_buckets;
  ASSERT_GT(bucket_of(Target("u1").key(0), buckets), bucket_of(Target("u3").key(0), buckets));
  const std::vector<Target> targets{"u1", "u3"};
  EXPECT_EQ(describe(rows_of(Plan(targets), buckets)),
            (Lines{"0/" + std::to_string(bucket_of(Target("u3").key(0), buckets)) + ":X",
                   "0/" + std::to_string(bucket_of(Target("u1").key(0), buckets)) + ":X"}));
}

TEST(Buckets, nodes_that_share_a_row_are_found) {  // H15
  const std::vector<Target> targets{Target("u1"), Target("u2"), Target("u3")};
  const std::vector<SharedRow> all = shared_rows(Plan(targets), 1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].level, 0u);
  EXPECT_EQ(all[0].bucket, 0u);
  EXPECT_EQ(all[0].nodes, (Lines{"u1", "u2", "u3"}));
  EXPECT_TRUE(shared_rows(Plan(targets), default_buckets).empty());
}

TEST(Buckets, what_rows_cannot_express_is_refused) {  // H7, B10
  const auto kind = [](const Target& target) -> std::optional<ErrorKind> {
    try {
      check_rows(Plan({target}), 3, "mysql");
      return std::nullopt;
    } catch (const Error& error) {
      return error.kind();
    }
  };
  EXPECT_EQ(kind(Target("u1/a1/r1")), std::nullopt);
  EXPECT_EQ(kind(Target("u1")), std::nullopt);
  EXPECT_EQ(kind(shared("u1/a1/r1")), std::nullopt);
  EXPECT_EQ(kind(shared("u1/a1")), ErrorKind::unsupported) << "rows have no intention modes";
  EXPECT_EQ(kind(Target("u1/a1/r1/x")), ErrorKind::invalid_argument);
  EXPECT_EQ(kind(named("n")), std::nullopt) << "names are not rows";
  EXPECT_EQ(kind(slots("s", 2)), std::nullopt);
}

TEST(Buckets, rows_of_one_target_go_down_the_levels) {  // H1, H3
  const Target target = "u1/a1/r1";
  EXPECT_EQ(describe(rows_of(Plan(target), default_buckets)), (Lines{"0/6624909:S", "1/7661865:S", "2/8675750:X"}));
}

TEST(Buckets, nodes_that_share_a_row_lock_it_once_in_the_strongest_mode) {  // H5, H15
  const std::vector<Target> targets{"u1/a1", "u2", shared("u3")};
  EXPECT_EQ(describe(rows_of(Plan(targets), 1)), (Lines{"0/0:X", "1/0:X"}));
  const std::vector<Target> only_shared{shared("u1"), shared("u2")};
  EXPECT_EQ(describe(rows_of(Plan(only_shared), 1)), (Lines{"0/0:S"}));
}

TEST(Buckets, rows_are_the_same_for_any_permutation_and_strictly_ascending) {  // H5
  HIERLOCK_TELL_SEED();
  Random random;
  for (int round = 0; round < 3'000; ++round) {
    std::vector<Target> targets;
    for (std::size_t left = 1 + random.below(9); left > 0; --left) {
      const Target target = Random::as_target(random.path(random.one_in(4)));
      targets.push_back(random.one_in(3) ? shared(target) : target);
    }
    // Few buckets, so that most rows are shared.
    const auto buckets = static_cast<std::uint32_t>(1 + random.below(random.one_in(2) ? 4 : 1'000'000));
    const std::vector<Row> rows = rows_of(Plan(targets), buckets);
    std::shuffle(targets.begin(), targets.end(), random.engine());
    const Plan plan(targets);
    ASSERT_EQ(rows, rows_of(plan, buckets));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_LT(rows[i].bucket, buckets);
      ASSERT_TRUE(rows[i].mode == Mode::S || rows[i].mode == Mode::X);
      if (i > 0) {
        ASSERT_LT(std::pair(rows[i - 1].level, rows[i - 1].bucket), std::pair(rows[i].level, rows[i].bucket));
      }
    }
    // H15: a shared row may be too strong, never too weak; and there is none that nobody needs.
    for (const Row& row : rows) {
      std::optional<Mode> needed;
      for (const Step& step : plan.steps()) {
        if (step.level != row.level || bucket_of(step.key, buckets) != row.bucket) continue;
        needed = needed ? strongest(*needed, row_mode(step.mode)) : row_mode(step.mode);
      }
      ASSERT_EQ(needed, row.mode);
    }
  }
}

TEST(Buckets, names_and_slots_have_no_rows) {  // N6
  const std::vector<Target> targets{named("x"), "u1", slots("x", 2)};
  EXPECT_EQ(rows_of(Plan(targets), 1).size(), 1u);
  EXPECT_TRUE(shared_rows(Plan(targets), 1).empty());
}

TEST(Buckets, no_buckets_are_refused) {  // H7
  const Target path = "u1";
  try {
    rows_of(Plan(path), 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
  }
}

TEST(DescribeKey, is_the_inverse_of_the_key_bytes) {
  HIERLOCK_TELL_SEED();
  Random random;
  for (int i = 0; i < 5'000; ++i) {
    const Target target = random.target(true);
    const std::string text = spi::describe_key(target.space(), target.key(target.depth() - 1));
    const Target again = Target::parse(target.space() == Space::slots ? text + " 1" : text);
    ASSERT_EQ(again.key(again.depth() - 1), target.key(target.depth() - 1)) << text;
  }
}

TEST(DescribeKey, damaged_keys_are_shown_and_never_read_beyond) {
  using namespace std::literals;
  EXPECT_EQ(spi::describe_key(Space::path, ""), "malformed key \"\"");
  EXPECT_EQ(spi::describe_key(Space::path, "\0\0\0\5abc"sv), "malformed key \"\\x00\\x00\\x00\\x05abc\"");
  EXPECT_EQ(spi::describe_key(Space::path, "\xFF\xFF\xFF\xFF"), "malformed key \"\\xFF\\xFF\\xFF\\xFF\"");
  EXPECT_EQ(spi::describe_key(Space::name, "\0\0\0\1ab"sv), "malformed key \"\\x00\\x00\\x00\\x01ab\"");
  HIERLOCK_TELL_SEED();
  Random random;
  for (int i = 0; i < 20'000; ++i) {
    const std::string bytes = random.one_in(2) ? random.bytes(20) : "\0\0\0\1"s + random.bytes(8);
    const std::vector<char> exact(bytes.begin(), bytes.end());
    for (const Space space : {Space::path, Space::name, Space::slots}) {
      const std::string text = spi::describe_key(space, {exact.data(), exact.size()});
      ASSERT_EQ(find_invalid_utf8(text), std::string::npos);
    }
  }
}

TEST(Describe, tells_the_targets_and_not_their_ancestors) {
  const Target targets[] = {"u1/a1/r1", shared("u2"), slots("import", 3)};
  EXPECT_EQ(describe(Plan(std::span<const Target>(targets)).steps()), "u1/a1/r1, shared u2, slots \"import\" 3");
}

TEST(Describe, cuts_long_names_between_characters_and_long_lists) {
  std::string name;
  while (name.size() < 3000) name += "鍵";
  const std::string text = describe(Plan(named(name)).steps());
  EXPECT_LT(text.size(), 210u);
  EXPECT_TRUE(text.ends_with("鍵…")) << text;
  std::vector<Target> many;
  for (int i = 0; i < 1000; ++i) many.emplace_back("user " + std::to_string(i));
  EXPECT_LT(describe(Plan(std::span<const Target>(many)).steps()).size(), 1100u);
}

}  // namespace
}  // namespace hierlock::plan
