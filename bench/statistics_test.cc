#include "statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace bench {
namespace {

TEST(Statistics, the_median_of_an_even_number_lies_between_the_middle_two) {
  const Summary s = summarize({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(s.min, 1);
  EXPECT_DOUBLE_EQ(s.q1, 1.75);
  EXPECT_DOUBLE_EQ(s.median, 2.5);
  EXPECT_DOUBLE_EQ(s.q3, 3.25);
  EXPECT_DOUBLE_EQ(s.max, 4);
}

TEST(Statistics, one_outlier_moves_the_maximum_and_not_the_median) {
  const Summary s = summarize({5, 5, 5, 5, 5, 5, 5, 5, 5000});
  EXPECT_DOUBLE_EQ(s.median, 5);
  EXPECT_DOUBLE_EQ(s.q3, 5);
  EXPECT_DOUBLE_EQ(s.max, 5000);
}

TEST(Statistics, a_percentile_is_a_value_that_was_measured) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  EXPECT_DOUBLE_EQ(percentile(values, 99), 99);
  EXPECT_DOUBLE_EQ(percentile(values, 50), 50);
  EXPECT_DOUBLE_EQ(percentile(values, 100), 100);
  EXPECT_DOUBLE_EQ(percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(percentile({7}, 99), 7);
}

TEST(Statistics, nothing_measured_is_zero_and_not_a_crash) {
  EXPECT_DOUBLE_EQ(summarize({}).median, 0);
  EXPECT_DOUBLE_EQ(percentile({}, 99), 0);
  EXPECT_TRUE(ratios({}, {}).empty());
}

TEST(Statistics, a_ratio_is_taken_within_a_round) {
  // The machine was half as fast in the second round, for both.
  const std::vector<double> ours{8, 4, 8}, peer{2, 1, 2, 99};
  EXPECT_EQ(ratios(ours, peer), (std::vector<double>{4, 4, 4}));
  const std::vector<double> idle{0, 1, 2};
  EXPECT_EQ(ratios(ours, idle), (std::vector<double>{4, 4}));
}

TEST(Statistics, half_a_bar_is_half_for_a_rate_and_twice_for_a_time) {
  const Bar rate{Bar::Kind::at_least, 4}, time{Bar::Kind::at_most, 2};
  EXPECT_EQ(judge(rate, 4, Enforce::full), Verdict::met);
  EXPECT_EQ(judge(rate, 3.9, Enforce::full), Verdict::missed);
  EXPECT_EQ(judge(rate, 3.9, Enforce::half), Verdict::below);
  EXPECT_EQ(judge(rate, 2, Enforce::half), Verdict::below);
  EXPECT_EQ(judge(rate, 1.9, Enforce::half), Verdict::missed);
  EXPECT_EQ(judge(rate, 0.1, Enforce::off), Verdict::below);
  EXPECT_EQ(judge(time, 2, Enforce::full), Verdict::met);
  EXPECT_EQ(judge(time, 2.1, Enforce::full), Verdict::missed);
  EXPECT_EQ(judge(time, 4, Enforce::half), Verdict::below);
  EXPECT_EQ(judge(time, 4.1, Enforce::half), Verdict::missed);
  EXPECT_EQ(judge(std::nullopt, 0, Enforce::full), Verdict::shown);
}

TEST(Statistics, a_ratio_that_is_not_a_number_meets_no_bar) {
  EXPECT_EQ(judge(Bar{Bar::Kind::at_least, 4}, std::nan(""), Enforce::half), Verdict::missed);
  EXPECT_EQ(judge(Bar{Bar::Kind::at_most, 2}, std::nan(""), Enforce::half), Verdict::missed);
}

}  // namespace
}  // namespace bench
