// Renewals, with a store whose answers a test has chosen.
#include "remote/lease_keeper.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <utility>

#include "remote/testing/fake_leases.h"

namespace hierlock::remote {
namespace {

using namespace std::chrono_literals;
using testing::FakeLeases;

// A lock that is held while the keeper also has to tell the store of locks that were given back.
class LeaseKeeping : public ::testing::Test {
 protected:
  static constexpr std::chrono::nanoseconds time = 2s;

  void SetUp() override {
    held_->answered("place", now_with_suspend(), LeaseReply::State::granted);
    keeper_.add(held_);
    Deadline limit(20s);
    keeper_.start(limit);
  }
  void give_back(int many) {
    for (int i = 0; i < many; ++i) keeper_.drop_later({"place", "given back " + std::to_string(i)});
  }
  // A machine that stalls for as long as a lease lasts may lose one, and has shown nothing then.
  bool is_kept_for(std::chrono::nanoseconds span) const {
    Clock::time_point last = Clock::now();
    for (const auto end = last + span; last < end; std::this_thread::sleep_for(5ms)) {
      const bool kept = held_->surely() && !held_->lost();
      const bool stalled = Clock::now() - last > time / 4;
      if (!kept || stalled) return stalled;
      last = Clock::now();
    }
    return true;
  }

  FakeLeases store_;
  const std::shared_ptr<Lease> held_ = std::make_shared<Lease>("held", 1, time);
  LeaseKeeper keeper_{store_, time};
};

TEST_F(LeaseKeeping, goes_on_while_the_store_refuses_to_take_locks_back) {  // B4, B12
  store_.refuses_drops = true;
  give_back(1);
  EXPECT_TRUE(is_kept_for(3 * time / 2));
}

TEST_F(LeaseKeeping, goes_on_while_many_locks_are_given_back_late) {  // B4, B12
  store_.drop_takes = 25ms;
  give_back(200);  // 4 s in all
  EXPECT_TRUE(is_kept_for(3 * time / 2));
  EXPECT_GT(store_.drops, 10);
}

// Nothing is polled here: renewals do not tell what became of a wait.
TEST_F(LeaseKeeping, a_message_alone_wakes_a_waiter) {  // M7
  store_.answers_waits = false;
  const auto waits = std::make_shared<Lease>("waits", 2, 600s);
  const std::uint64_t question = waits->expect("place");
  waits->wait();
  waits->answered("place", now_with_suspend(), LeaseReply::State::waiting);
  keeper_.add(waits);
  store_.say({"place", "waits", question, 7});
  pollfd fd{waits->wake(), POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, 20'000), 1);
  const std::optional<LeaseReply> answer = waits->answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->number, 7);
}

TEST_F(LeaseKeeping, a_message_tells_that_a_lock_was_broken) {  // B13
  store_.say({.place = "place", .id = "held", .broken = true});
  EXPECT_FALSE(is_kept_for(20s));
  EXPECT_TRUE(held_->lost());
}

// The message about the break was lost. The next holder must not wait until this lease would have ended.
TEST_F(LeaseKeeping, acknowledges_a_break_that_a_renewal_tells_of) {  // B13
  store_.is_gone = true;
  EXPECT_FALSE(is_kept_for(20s));
  EXPECT_TRUE(held_->lost());
  const Clock::time_point end = Clock::now() + 20s;
  while (store_.acknowledged().empty() && Clock::now() < end) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(store_.acknowledged(), std::vector<std::string>{"held"});
}

// A request that the store forgot asks anew with the same id. An answer to its first question may still come.
TEST(LeaseAnswers, to_an_earlier_question_are_ignored) {  // B4
  using State = LeaseReply::State;
  Lease lease("id", 1, 10s);
  const std::uint64_t first = lease.expect("place");
  lease.wait();
  lease.answered("place", now_with_suspend(), State::waiting);
  const std::uint64_t second = lease.expect("place");
  ASSERT_NE(first, second);
  lease.tell("place", {State::granted, 7, first});
  EXPECT_FALSE(lease.answer()) << "by a message";
  Renewal renewal{"place", "id", true};
  renewal.reply = LeaseReply{State::granted, 7, first};
  lease.renewed(renewal, now_with_suspend());
  EXPECT_FALSE(lease.answer()) << "by a renewal";
  renewal.reply = LeaseReply{State::granted, 8, second};
  lease.renewed(renewal, now_with_suspend());
  const std::optional<LeaseReply> answer = lease.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->number, 8);
}

// The keeper looks at a lease while its first place is granted.
TEST(LeaseAnswers, a_lock_that_is_gone_is_lost_although_an_extend_of_it_waits) {  // B4
  const std::int64_t now = now_with_suspend();
  const auto gone_while_it_waits = [&](bool holds) {
    Lease lease("id", 1, 10s);
    if (holds) lease.answered("place", now, LeaseReply::State::granted);
    lease.answered("elsewhere", now, LeaseReply::State::granted);
    lease.answered("place", now, LeaseReply::State::waiting, 1);
    lease.expect("place");
    lease.wait();
    lease.renewed({.place = "place", .id = "id", .waits = true, .reply = LeaseReply{}}, now);
    EXPECT_TRUE(lease.answer().has_value()) << "the waiting thread is told";
    return lease.lost();
  };
  EXPECT_TRUE(gone_while_it_waits(true));
  EXPECT_FALSE(gone_while_it_waits(false)) << "only its place in the queue is gone";
}

TEST(LeaseAnswers, a_lock_is_lost_if_one_root_is_gone_while_another_waits) {  // B4
  const std::int64_t now = now_with_suspend();
  const auto lease = std::make_shared<Lease>("id", 1, 10s);
  lease->answered("one", now, LeaseReply::State::granted);
  lease->answered("two", now, LeaseReply::State::granted);
  const auto hold = std::make_shared<LeaseHold>(lease);
  lease->set_holder(hold);
  lease->expect("three");
  lease->wait();
  lease->answered("three", now, LeaseReply::State::waiting, 1);
  lease->renewed({.place = "two", .id = "id", .reply = LeaseReply{}}, now);
  EXPECT_FALSE(hold->surely()) << "although the extend has not returned";
  EXPECT_FALSE(lease->answer().has_value()) << "the extend waits for another root";
}

// In a cluster one node is silent, and the others are not.
TEST(LeaseAnswers, a_lock_is_not_lost_because_its_extend_waits_at_a_silent_place) {  // B4
  const std::int64_t now = now_with_suspend(), long_ago = now - std::chrono::nanoseconds(20s).count();
  Lease lease("id", 1, 10s);
  lease.answered("one", now, LeaseReply::State::granted);
  lease.answered("two", long_ago, LeaseReply::State::waiting, 1);
  EXPECT_TRUE(lease.surely());
  EXPECT_FALSE(lease.has_run_out());
  EXPECT_TRUE(lease.wait_has_run_out("two")) << "the extend does not wait there for ever";
  EXPECT_FALSE(lease.wait_has_run_out("one"));
  lease.answered("two", 0, LeaseReply::State::granted, 1);
  EXPECT_FALSE(lease.surely()) << "what it was granted there may have ended by now";
}

TEST(LeaseAnswers, do_not_count_if_they_are_older_than_a_grant) {  // B4
  const std::int64_t now = now_with_suspend();
  Lease lease("id", 1, 10s);
  lease.answered("place", now, LeaseReply::State::granted);
  lease.renewed({.place = "place", .id = "id", .reply = LeaseReply{}}, now - 1);
  EXPECT_FALSE(lease.lost());
  lease.renewed({.place = "place", .id = "id", .reply = LeaseReply{}}, now + 1);
  EXPECT_TRUE(lease.lost());
}

TEST(LeaseAnswers, a_lease_that_gets_its_first_place_has_not_run_out) {  // B4
  std::vector<std::unique_ptr<Lease>> leases;
  for (int i = 0; i < 20'000; ++i) leases.push_back(std::make_unique<Lease>("id", 1, 10s));
  std::atomic<Lease*> next{leases.front().get()};
  std::atomic<bool> ran_out{false}, end{false};
  std::thread keeper([&] {
    while (!end) {
      if (next.load()->has_run_out()) ran_out = true;
    }
  });
  for (const auto& lease : leases) {
    next = lease.get();
    lease->answered("place", now_with_suspend(), LeaseReply::State::granted);
  }
  end = true;
  keeper.join();
  EXPECT_FALSE(ran_out);
}

}  // namespace
}  // namespace hierlock::remote
