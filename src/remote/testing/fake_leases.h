// FakeLeases: a store with leases whose answers a test has chosen.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "remote/lease_store.h"

namespace hierlock::remote::testing {

class FakeLeases final : public LeaseStore, private NoticeStore {
 public:
  std::atomic<bool> refuses_drops{false};
  std::atomic<std::chrono::milliseconds> drop_takes{std::chrono::milliseconds(0)};
  std::atomic<int> drops{0};
  std::atomic<bool> answers_waits{true};  // when they are renewed
  std::atomic<bool> confirms{false};      // confirms_grants()
  std::atomic<bool> silent{false};        // it does not answer those who want to listen
  std::atomic<int> lost_answers{0};       // so many of take() are lost from now on: it is done, and nobody is told
  std::atomic<int> drops_of_unanswered{0};

  void say(LeaseNews news) {
    const std::lock_guard guard(mutex_);
    news_.push_back(std::move(news));
  }

  // What take() answers first.
  void answer(const LeaseReply& reply) {
    const std::lock_guard guard(mutex_);
    answers_.push_back(reply);
  }
  // So many renewals that raise numbers are refused from now on.
  std::atomic<int> refuses_raises{0};
  std::atomic<int> raises{0};        // that were not
  std::atomic<bool> is_gone{false};  // renewals find nothing
  std::atomic<std::chrono::milliseconds> connect_takes{std::chrono::milliseconds(0)};
  std::vector<std::string> acknowledged() {  // ids
    const std::lock_guard guard(mutex_);
    return acknowledged_;
  }
  // The places of a plan, one group each.
  std::vector<std::string> places{"place"};
  // Called when something is given back, before it counts.
  std::function<void()> on_drop;
  std::vector<std::string> asked() {  // ids, in the order of the questions
    const std::lock_guard guard(mutex_);
    return asked_;
  }
  std::size_t granted() {  // how many ids
    const std::lock_guard guard(mutex_);
    return granted_.size();
  }

  Capabilities capabilities() const override { return {.extends = true, .exact_keys = true}; }
  void check(const spi::Plan&) const override {}
  Cell cell_of(Space, std::uint8_t, std::string_view, Mode) const override { return {}; }
  NoticeStore& notices() override { return *this; }
  std::optional<View> waits(Deadline&) override { return {}; }
  Look look(Clock::time_point) override { return {}; }
  void describe(Snapshot&) const override {}
  void end(Clock::time_point) noexcept override {}

  std::vector<LeaseGroup> groups(const spi::Plan&) const override {
    std::vector<LeaseGroup> groups;
    for (const std::string& place : places) groups.push_back({place, {}});
    return groups;
  }
  LeaseReply take(const LeaseRequest& request, const LeaseGroup&, WaitLimit&) override {
    const std::lock_guard guard(mutex_);
    asked_.push_back(request.id);
    question_ = request.question;
    LeaseReply reply{.state = LeaseReply::State::granted, .number = 1};
    if (!answers_.empty()) {
      reply = answers_.front();
      answers_.erase(answers_.begin());
    }
    if (reply.state == LeaseReply::State::granted) granted_.insert(request.id);
    if (lost_answers > 0) {
      --lost_answers;
      throw Error(ErrorKind::unavailable, "the answer was lost");
    }
    return reply;
  }
  bool confirms_grants() const override { return confirms; }
  LeaseReply drop(const Drop& what, WaitLimit&) override {
    if (on_drop) on_drop();
    if (refuses_drops) throw Error(ErrorKind::unavailable, "the script was refused");
    std::this_thread::sleep_for(drop_takes.load());
    ++drops;
    if (what.unanswered) ++drops_of_unanswered;
    return {};
  }
  void renew(std::span<Renewal> renewals, WaitLimit&) override {
    for (Renewal& one : renewals) {
      if (one.raise != 0 && refuses_raises > 0) {
        --refuses_raises;
        one.refusal = "TRYAGAIN";
        continue;
      }
      if (one.raise != 0) ++raises;
      if (is_gone) {
        one.reply = LeaseReply{};
        continue;
      }
      if (answers_waits || !one.waits)
        one.reply = LeaseReply{.state = LeaseReply::State::granted, .question = question_};
    }
  }
  void acknowledge(const std::string&, const std::string& id, WaitLimit&) override {
    const std::lock_guard guard(mutex_);
    acknowledged_.push_back(id);
  }
  void start_listening(WaitLimit& limit) override {
    const Clock::time_point from = Clock::now() + connect_takes.load();
    while (silent || Clock::now() < from) {
      if (!limit.next()) throw Error(ErrorKind::unavailable, "it does not answer");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::vector<LeaseNews> listen(WaitLimit& limit) override {
    pollfd fd{limit.wake(), POLLIN, 0};
    poll(&fd, 1, 10);
    const std::lock_guard guard(mutex_);
    return std::exchange(news_, {});
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::vector<LeaseNews> news_;
  std::vector<LeaseReply> answers_;
  std::vector<std::string> asked_;
  std::vector<std::string> acknowledged_;
  std::set<std::string> granted_;
  std::atomic<std::uint64_t> question_{0};  // of the last take()

  Published publish(std::span<const Notice> notices, Deadline&) override {
    return {.written = std::vector<bool>(notices.size(), true)};
  }
  bool remove(std::span<const std::uint64_t>, Deadline&) override { return true; }
  std::optional<std::size_t> keep_alive(std::span<const std::uint64_t>, Deadline&) override { return {}; }
  std::optional<std::vector<Notice>> read(Deadline&) override { return {}; }
  void remove_old(Deadline&) override {}
};

}  // namespace hierlock::remote::testing
