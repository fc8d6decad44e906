// The driver of stores with leases, on a store whose answers a test has chosen.
#include "remote/lease_driver.h"

#include <gtest/gtest.h>

#include <filesystem>

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
  std::optional<spi::Grant> acquire_of(const spi::Plan& plan) {
    return gate_->acquire({.plan = plan, .deadline = Clock::now() + 20s});
  }
  std::optional<spi::Grant> extend(const spi::Grant& grant) {
    return gate_->extend(grant, {.plan = more_, .deadline = Clock::now() + 20s});
  }
  bool held(const spi::Grant& grant) { return gate_->held(grant); }
  void release(const spi::Grant& grant) { gate_->release(grant); }

 private:
  const Target target_ = Target::parse("u1");
  const spi::Plan plan_{target_};
  const Target other_ = Target::parse("u2");
  const spi::Plan more_{other_};
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

TEST_F(LeaseDriving, a_request_that_was_told_of_its_grant_too_early_keeps_its_place_in_the_queue) {  // B4
  store().confirms = true;
  store().answer({.state = LeaseReply::State::waiting});
  store().answer({.state = LeaseReply::State::later, .from = Clock::now() + 5ms, .asked = false});
  const std::optional<spi::Grant> granted = acquire(Clock::now() + 20s);  // its first renewal tells that it is granted
  ASSERT_TRUE(granted.has_value());
  const std::vector<std::string> asked = store().asked();
  ASSERT_EQ(asked.size(), 3u);
  EXPECT_EQ(asked[0], asked[2]);
  EXPECT_EQ(store().drops, 0);
  release(*granted);
}

// The store knows the question by its id, so it grants once.
TEST_F(LeaseDriving, a_question_whose_answer_is_lost_is_repeated_by_its_id) {  // B3
  store().lost_answers = 1;
  const std::optional<spi::Grant> granted = acquire(Clock::now() + 20s);
  ASSERT_TRUE(granted.has_value());
  const std::vector<std::string> asked = store().asked();
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0], asked[1]);
  EXPECT_EQ(store().granted(), 1u);
  EXPECT_EQ(store().drops, 0);
  EXPECT_TRUE(held(*granted));
  release(*granted);
  EXPECT_EQ(store().drops_of_unanswered, 1) << "the first question may still arrive";
}

TEST_F(LeaseDriving, a_wait_whose_answer_is_lost_keeps_its_place_in_the_queue) {
  store().answer({.state = LeaseReply::State::waiting});
  store().answer({.state = LeaseReply::State::waiting});
  store().lost_answers = 1;
  const std::optional<spi::Grant> granted = acquire(Clock::now() + 20s);  // its first renewal tells that it is granted
  ASSERT_TRUE(granted.has_value());
  const std::vector<std::string> asked = store().asked();
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0], asked[1]);
  EXPECT_EQ(store().drops, 0);
  release(*granted);
}

TEST_F(LeaseDriving, a_lock_is_given_back_if_no_answer_tells_of_it) {  // B4
  store().lost_answers = 2;
  try {
    acquire(Clock::now() + 20s);
    ADD_FAILURE() << "nobody has said that it is granted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  }
  EXPECT_EQ(store().granted(), 1u);
  EXPECT_EQ(store().drops_of_unanswered, 1);
}

// Everything that the lock has goes back to the store, and to the next waiter.
TEST_F(LeaseDriving, a_lock_is_not_held_any_more_when_an_extend_that_found_it_gone_gives_it_back) {  // B4
  const std::optional<spi::Grant> granted = acquire(Clock::now() + 20s);
  ASSERT_TRUE(granted.has_value());
  store().places = {"place", "other"};
  store().answer({.state = LeaseReply::State::granted, .number = 2});
  store().answer({.state = LeaseReply::State::gone});
  bool held_meanwhile = false;
  store().on_drop = [&] { held_meanwhile = held_meanwhile || held(*granted); };
  EXPECT_THROW(extend(*granted), Error);
  EXPECT_FALSE(held_meanwhile);
  EXPECT_GT(store().drops, 0);
  EXPECT_FALSE(held(*granted));
  store().on_drop = nullptr;
  release(*granted);
}

// B12: nobody runs out of descriptors because of locks that had to wait once.
TEST_F(LeaseDriving, a_lock_that_has_waited_keeps_no_descriptor) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  std::vector<spi::Grant> held;
  held.push_back(*acquire(Clock::now() + 20s));  // makes the threads
  const auto before = open_files();
  for (int i = 0; i < 3; ++i) {
    store().answer({.state = LeaseReply::State::waiting});
    const Target target = Target::parse("w" + std::to_string(i));
    held.push_back(*acquire_of(spi::Plan(target)));
  }
  EXPECT_EQ(open_files(), before);
  for (const spi::Grant& grant : held) release(grant);
}

}  // namespace
}  // namespace hierlock::remote
