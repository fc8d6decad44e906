#include "mysql/fences.h"

#include <gtest/gtest.h>

namespace hierlock::mysql {
namespace {

constexpr std::uint64_t a = 11, b = 22;  // servers
constexpr std::uint64_t now = std::uint64_t{1'700'000'000} << 24;

TEST(FenceRow, the_first_server_mints_as_it_is) { EXPECT_EQ(settled({}, a, now, 0), (FenceRow{now, a, 0})); }

TEST(FenceRow, the_server_of_the_floor_keeps_its_offset) {
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{500}}) {
    const FenceRow row{now + offset, a, offset};
    EXPECT_TRUE(may_mint(row, a, now));
    EXPECT_EQ(settled(row, a, now + 7, 0), (FenceRow{now + 7 + offset, a, offset}));
  }
}

TEST(FenceRow, another_server_starts_above_all_that_may_have_been_given_out) {
  const FenceRow row{now, a, 0};
  for (const std::uint64_t minted : {now - 1000, now, now + 1, now + fence_slack - 1, now + fence_slack}) {
    EXPECT_FALSE(may_mint(row, b, minted));
    const std::optional<FenceRow> next = settled(row, b, minted, 0);
    ASSERT_TRUE(next.has_value());
    EXPECT_EQ(next->floor, now + fence_slack + 1) << "and not a number higher";
    EXPECT_EQ(next->floor, minted + next->offset);
    EXPECT_EQ(next->server, b);
    EXPECT_TRUE(may_mint(*next, b, minted)) << "whoever comes second changes nothing";
    EXPECT_EQ(settled(*next, b, minted + 1, 0)->offset, next->offset);
  }
  EXPECT_EQ(settled(row, b, now + fence_slack + 1, 0), (FenceRow{now + fence_slack + 1, b, 0})) << "high enough";
}

TEST(FenceRow, a_server_that_mints_again_gets_a_higher_offset) {
  const FenceRow first{now, a, 0};
  const FenceRow second = *settled(first, b, now - fence_slack, 0);
  EXPECT_FALSE(may_mint(second, a, now + 5));
  const FenceRow third = *settled(second, a, now + 5, 0);
  EXPECT_GT(third.floor, second.floor + fence_slack);
  EXPECT_GT(third.offset, first.offset);
}

TEST(FenceRow, a_server_whose_clock_was_set_back_gets_an_offset) {
  const FenceRow row{now, a, 0};
  EXPECT_FALSE(may_mint(row, a, now - 1));
  EXPECT_EQ(settled(row, a, now - 1, 0)->floor, now + fence_slack + 1);
}

TEST(FenceRow, a_replica_that_missed_the_last_floor_starts_above_what_the_locker_was_given) {
  const FenceRow row{now, a, 0};
  const std::uint64_t given = now + 5 * fence_slack;
  EXPECT_EQ(settled(row, b, now, given)->floor, given + 1);
}

TEST(FenceRow, numbers_stay_below_2_to_the_56) {
  const FenceRow last{fence_mask - 2 * fence_slack - 1, a, 0};
  ASSERT_TRUE(settled(last, b, now, 0).has_value());
  EXPECT_EQ(settled(last, b, now, 0)->floor, fence_mask - fence_slack);
  EXPECT_FALSE(settled({last.floor + 1, a, 0}, b, now, 0));
  EXPECT_FALSE(settled({~std::uint64_t{0}, a, 0}, b, now, 0));
  EXPECT_FALSE(settled({now, a, 0}, b, now, ~std::uint64_t{0}));
  EXPECT_FALSE(may_mint({now, a, ~std::uint64_t{0}}, a, now)) << "damaged";
  EXPECT_FALSE(settled({now, a, 0}, a, fence_mask, 0)) << "a clock in the year 2106";
  EXPECT_GT(static_cast<std::int64_t>(fence_mask) * fence_step + (fence_step - 1), 0);
}

}  // namespace
}  // namespace hierlock::mysql
