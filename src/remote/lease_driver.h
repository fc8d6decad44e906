// LeaseDriver: the Driver of stores in which a lock is a record with a lease (lease_store.h).
//
// A request takes its groups one after the other. For each group it asks the store once. The store grants the group, or
// puts the request into its queues. The LeaseKeeper renews what the request holds and waits for, until it is given
// back.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "remote/lease_keeper.h"
#include "remote/lease_store.h"

namespace hierlock::remote {

class LeaseDriver final : public Driver, private Interrupter {
 public:
  // `locker`: unique anywhere, and nobody else knows it.
  LeaseDriver(std::unique_ptr<LeaseStore> store, std::string locker, std::uint32_t number,
              std::chrono::nanoseconds lease);

  Capabilities capabilities() const override { return store_->capabilities(); }
  void check(const spi::Plan& plan) const override { store_->check(plan); }
  Cell cell_of(Space space, std::uint8_t level, std::string_view key, Mode mode) const override {
    return store_->cell_of(space, level, key, mode);
  }
  Granted grant(const Ask& ask) override;
  void extend(Hold& hold, const Ask& ask, Extended& result) override;
  bool give_back(std::shared_ptr<Hold> hold, Clock::time_point by) noexcept override;
  bool park(Hold& hold) noexcept override;
  std::shared_ptr<Hold> resume(Hold& hold, std::uint64_t owner) override;
  void give(Hold&, std::uint64_t) override {}
  std::size_t break_locks(const spi::Plan& plan) override;

  NoticeStore& notices() override { return store_->notices(); }
  std::optional<View> waits(Deadline& limit) override { return store_->waits(limit); }
  Look look(Clock::time_point by) override { return store_->look(by); }
  bool is_own(std::uint64_t session) const override {
    return number_of_names(number_, 0) >> name_count_bits == session >> name_count_bits;
  }
  void describe(Snapshot& snapshot) const override { store_->describe(snapshot); }

  void start() override {}  // grant() starts the keeper: connecting takes time, and a request has a deadline
  void end(Clock::time_point by) noexcept override;

 private:
  enum class Outcome : std::uint8_t { granted, not_in_time, full, again };
  bool start_keeper(const Ask& ask);
  Outcome take_all(const Ask& ask, Lease& lease, unsigned part, const std::vector<LeaseGroup>& groups,
                   std::size_t& reached);
  Outcome take(const Ask& ask, Lease& lease, LeaseRequest& request, const LeaseGroup& group);
  std::optional<LeaseReply> ask_store(const Ask& ask, Lease& lease, const LeaseRequest& request,
                                      const LeaseGroup& group);
  Outcome wait(const Ask& ask, Lease& lease, const LeaseRequest& request, const std::string& place);
  Outcome wait_until(const Ask& ask, Clock::time_point from);
  bool raise_others(const Ask& ask, Lease& lease, const std::string& except);
  bool give_back(Lease& lease, const std::vector<std::string>& places, Clock::time_point by) noexcept;
  bool undo(Lease& lease, unsigned part, const std::vector<LeaseGroup>& groups, std::size_t reached,
            const std::vector<bool>& known);

  // Nothing has to be interrupted: the store does not make a question wait.
  bool interrupt(Deadline&) override { return true; }

  const std::unique_ptr<LeaseStore> store_;
  const std::string locker_;
  const std::uint32_t number_;
  const std::chrono::nanoseconds lease_;
  const Clock::duration longest_question_;
  std::atomic<std::uint64_t> count_{0};
  LeaseKeeper keeper_;
};

}  // namespace hierlock::remote
