// The driver of stores with leases, on a store whose answers a test has chosen.
#include "remote/lease_driver.h"

#include <gtest/gtest.h>

#include "remote/gate.h"
#include "remote/testing/fake_leases.h"

namespace hierlock::remote {
namespace {

using namespace std::chrono_literals;
using testing::FakeLeases;

class LeaseDriving : public ::testing::Test {
 protected:
  LeaseDriving() {
    auto store = std::make_unique<FakeLeases>();
    store_ = store.get();
    gate_ = make_gate(std::make_unique<LeaseDriver>(std::move(store), "locker:", 1, 10s), {});
  }
  ~LeaseDriving() override { gate_->close(); }

  FakeLeases& store() { return *store_; }
  std::optional<spi::Grant> acquire(std::optional<Clock::time_point> deadline) {
    return gate_->acquire({.plan = plan_, .deadline = deadline});
  }
  void release(const spi::Grant& grant) { gate_->release(grant); }

 private:
  const Target target_ = Target::parse("u1");
  const spi::Plan plan_{target_};
  FakeLeases* store_ = nullptr;
  std::unique_ptr<spi::Backend> gate_;
};

TEST_F(LeaseDriving, the_first_acquire_keeps_its_timeout) {
  store().silent = true;
  const Clock::time_point begin = Clock::now();
  EXPECT_FALSE(acquire(begin + 50ms).has_value());
  EXPECT_LT(Clock::now() - begin, 3s) << "it waited until the store would listen";
  store().silent = false;
  const std::optional<spi::Grant> granted = acquire(Clock::now() + 20s);
  ASSERT_TRUE(granted.has_value());
  release(*granted);
}

// The store has dropped the first request, and that drop may still be on its way.
TEST_F(LeaseDriving, a_request_that_came_too_early_asks_again_by_another_id) {  // B4
  store().answer({.state = LeaseReply::State::later, .from = Clock::now() + 5ms});
  const std::optional<spi::Grant> granted = acquire(Clock::now() + 20s);
  ASSERT_TRUE(granted.has_value());
  release(*granted);
  const std::vector<std::string> asked = store().asked();
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_NE(asked[0], asked[1]);
}

}  // namespace
}  // namespace hierlock::remote
