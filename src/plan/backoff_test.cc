#include "plan/backoff.h"

#include <gtest/gtest.h>

#include <vector>

namespace hierlock::plan {
namespace {

std::vector<double> pauses(Backoff backoff, double jitter, int count) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i) out.push_back(backoff.next(jitter));
  return out;
}

TEST(Backoff, without_jitter_each_pause_is_half_as_long_again_up_to_the_maximum) {  // M4
  EXPECT_EQ(pauses(Backoff(1.0, 30.0), 1.0, 11), (std::vector<double>{1.0, 1.5, 2.25, 3.375, 5.0625, 7.59375, 11.390625,
                                                                      17.0859375, 25.62890625, 30.0, 30.0}));
}

TEST(Backoff, jitter_scales_the_pause_but_not_what_follows) {  // M4
  Backoff backoff(1.0, 30.0);
  EXPECT_EQ(backoff.next(0.5), 0.5);
  EXPECT_EQ(backoff.next(1.5), 2.25);
  EXPECT_EQ(backoff.next(1.0), 2.25);
  EXPECT_EQ(backoff.next(0.5), 1.6875);
}

TEST(Backoff, no_pause_is_longer_than_the_maximum_whatever_the_jitter) {  // M4
  EXPECT_EQ(pauses(Backoff(20.0, 30.0), 1.5, 3), (std::vector<double>{30.0, 30.0, 30.0}));
  // At the maximum a small jitter still shortens the pause.
  EXPECT_EQ(pauses(Backoff(20.0, 30.0), 0.5, 3), (std::vector<double>{10.0, 15.0, 15.0}));
}

TEST(Backoff, an_initial_delay_above_the_maximum_is_cut_at_once) {  // M4
  EXPECT_EQ(pauses(Backoff(60.0, 30.0), 1.0, 2), (std::vector<double>{30.0, 30.0}));
}

TEST(Backoff, zero_stays_zero) { EXPECT_EQ(pauses(Backoff(0.0, 30.0), 1.5, 3), (std::vector<double>{0, 0, 0})); }

}  // namespace
}  // namespace hierlock::plan
