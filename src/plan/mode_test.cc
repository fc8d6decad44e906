#include <hierlock/mode.h>

#include <gtest/gtest.h>

#include <string>

namespace hierlock {
namespace {

TEST(Mode, compatibility_is_the_published_table) {  // H1, B10
  const auto compatible_with = [](Mode mode) {
    std::string text;
    for (const Mode other : all_modes) text += compatible(mode, other) ? '+' : '-';
    return text;
  };
  //                                      IS IX S X
  EXPECT_EQ(compatible_with(Mode::IS), "+++-");
  EXPECT_EQ(compatible_with(Mode::IX), "++--");
  EXPECT_EQ(compatible_with(Mode::S), "+-+-");
  EXPECT_EQ(compatible_with(Mode::X), "----");
}

TEST(Mode, compatibility_is_symmetric) {
  for (const Mode a : all_modes) {
    for (const Mode b : all_modes) EXPECT_EQ(compatible(a, b), compatible(b, a)) << to_string(a) << to_string(b);
  }
}

TEST(Mode, strongest_is_commutative_associative_and_idempotent) {  // H5
  for (const Mode a : all_modes) {
    EXPECT_EQ(strongest(a, a), a);
    for (const Mode b : all_modes) {
      EXPECT_EQ(strongest(a, b), strongest(b, a));
      for (const Mode c : all_modes) {
        EXPECT_EQ(strongest(strongest(a, b), c), strongest(a, strongest(b, c)))
            << to_string(a) << " " << to_string(b) << " " << to_string(c);
      }
    }
  }
}

TEST(Mode, strongest_is_the_weakest_mode_that_covers_both) {
  for (const Mode a : all_modes) {
    for (const Mode b : all_modes) {
      const Mode both = strongest(a, b);
      EXPECT_TRUE(covers(both, a) && covers(both, b));
      for (const Mode c : all_modes) {
        if (covers(c, a) && covers(c, b)) {
          EXPECT_TRUE(covers(c, both)) << to_string(c) << " covers both";
        }
      }
    }
  }
}

TEST(Mode, covers_exactly_when_everything_compatible_with_the_stronger_is_compatible_with_the_weaker) {
  for (const Mode held : all_modes) {
    for (const Mode wanted : all_modes) {
      bool excludes_as_much = true;
      for (const Mode other : all_modes) {
        if (compatible(held, other) && !compatible(wanted, other)) excludes_as_much = false;
      }
      EXPECT_EQ(covers(held, wanted), excludes_as_much) << to_string(held) << " " << to_string(wanted);
    }
  }
}

TEST(Mode, the_intention_excludes_whoever_must_not_hold_the_whole) {  // H1, B10
  EXPECT_EQ(intention(Mode::X), Mode::IX);
  EXPECT_EQ(intention(Mode::IX), Mode::IX);
  EXPECT_EQ(intention(Mode::S), Mode::IS);
  EXPECT_EQ(intention(Mode::IS), Mode::IS);
  // Holding the whole in `above` must exclude holding a part in `below` exactly when the two would conflict there.
  for (const Mode above : {Mode::S, Mode::X}) {
    for (const Mode below : {Mode::S, Mode::X})
      EXPECT_EQ(compatible(above, intention(below)), compatible(above, below));
  }
  // Holders of two different parts never meet above.
  for (const Mode a : all_modes) {
    for (const Mode b : all_modes) EXPECT_TRUE(compatible(intention(a), intention(b)));
  }
}

TEST(Mode, a_stronger_mode_has_a_stronger_intention) {
  for (const Mode a : all_modes) {
    for (const Mode b : all_modes) {
      if (covers(a, b)) {
        EXPECT_TRUE(covers(intention(a), intention(b)));
      }
    }
  }
}

}  // namespace
}  // namespace hierlock
