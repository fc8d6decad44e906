// How long the driver of stores with leases waits for a store that is slow, or refuses for a moment.
#include <gtest/gtest.h>

#include "remote/gate.h"
#include "remote/lease_driver.h"
#include "remote/testing/fake_leases.h"

namespace hierlock::remote {
namespace {

using namespace std::chrono_literals;
using testing::FakeLeases;

class LeasePatience : public ::testing::Test {
 protected:
  LeasePatience() {
    auto store = std::make_unique<FakeLeases>();
    store_ = store.get();
    gate_ = make_gate(std::make_unique<LeaseDriver>(std::move(store), "locker:", 1, 1s), {});  // asks for 500 ms
  }
  ~LeasePatience() override { gate_->close(); }

  FakeLeases& store() { return *store_; }
  std::optional<spi::Grant> acquire(std::optional<Clock::time_point> deadline, bool no_wait = false) {
    return gate_->acquire({.plan = plan_, .no_wait = no_wait, .deadline = deadline});
  }
  void release(const spi::Grant& grant) { gate_->release(grant); }

 private:
  const Target target_ = Target::parse("u1");
  const spi::Plan plan_{target_};
  FakeLeases* store_ = nullptr;
  std::unique_ptr<spi::Backend> gate_;
};

TEST_F(LeasePatience, short_timeouts_over_a_slow_link_get_their_first_lock) {
  store().connect_takes = 600ms;
  std::optional<spi::Grant> granted;
  for (int i = 0; i < 8 && !granted; ++i) granted = acquire(Clock::now() + 50ms);
  ASSERT_TRUE(granted.has_value()) << "each request connects anew";
  release(*granted);
}

TEST_F(LeasePatience, a_first_request_that_does_not_wait_is_told_soon) {
  store().silent = true;
  const Clock::time_point begin = Clock::now();
  EXPECT_THROW(acquire({}, true), Error);
  EXPECT_LT(Clock::now() - begin, 3s);
  store().silent = false;
}

// The node of a cluster refuses while a slot is moved. The docs promise that the client asks again.
TEST_F(LeasePatience, several_roots_are_locked_though_one_refuses_for_a_moment) {
  store().places = {"one", "two"};
  store().refuses_raises = 3;
  const std::optional<spi::Grant> granted = acquire(Clock::now() + 20s);
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(store().raises, 1);
  release(*granted);
}

TEST_F(LeasePatience, a_root_that_goes_on_to_refuse_is_told_in_its_own_words) {
  store().places = {"one", "two"};
  store().refuses_raises = 1'000'000;
  try {
    acquire(Clock::now() + 20s);
    ADD_FAILURE() << "it is granted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_NE(std::string(error.what()).find("TRYAGAIN"), std::string::npos) << error.what();
  }
  EXPECT_EQ(store().drops, 2) << "nothing stays locked";
  EXPECT_FALSE(acquire(Clock::now() + 50ms).has_value()) << "and nobody waits beyond the deadline";
}

}  // namespace
}  // namespace hierlock::remote
