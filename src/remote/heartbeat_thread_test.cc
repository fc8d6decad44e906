// Leases and answers, with sessions whose answers a test has put there.
#include "remote/heartbeat_thread.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

namespace hierlock::remote {
namespace {

using namespace std::chrono_literals;

// A session whose answers are bytes in a socket.
class FakeSession final : public Session {
 public:
  explicit FakeSession(std::atomic<int>* asked = nullptr) : asked_(asked) {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends_), 0);
  }
  ~FakeSession() override {
    close(ends_[0]);
    close(ends_[1]);
  }
  void reply() { EXPECT_EQ(send(ends_[1], "x", 1, 0), 1); }

  std::uint64_t id() const noexcept override { return 7; }
  const std::string& server() const noexcept override { return server_; }
  int socket() const noexcept override { return ends_[0]; }
  bool broken() const noexcept override { return false; }
  void give_up() noexcept override {}
  bool hung_up() const noexcept override { return false; }
  LockReply lock(std::span<const Cell>, bool, timed::WaitLimit&) override { return {}; }
  void unlock_all(timed::WaitLimit&) noexcept override {}
  void begin_unlock_all() noexcept override {}
  void begin_heartbeat() override {
    if (asked_ != nullptr) ++*asked_;
  }
  Answer answer() override {
    char byte = 0;
    return recv(ends_[0], &byte, 1, 0) == 1 ? Answer::good : Answer::none_yet;
  }
  Answer wait_for_answer(timed::WaitLimit&) override { return Answer::none_yet; }

 private:
  int ends_[2] = {-1, -1};
  const std::string server_ = "s";
  std::atomic<int>* const asked_;
};

class Leases : public testing::Test {
 protected:
  Leases() {
    Deadline soon(1min);
    EXPECT_TRUE(pool_.on_the_side([](Session&) { return true; }, soon));  // so that it knows the server
  }
  ~Leases() override {
    for (const auto& hold : holds_) thread_.remove(*hold);
  }
  // A lock whose lease is over. A heartbeat was sent in good time, and `answered` says whether its answer is there.
  std::shared_ptr<SessionHold> late_lock(bool answered) {
    auto fake = std::make_unique<FakeSession>(&asked_);
    if (answered) fake->reply();
    std::unique_ptr<Session> session = std::move(fake);
    const std::int64_t now = now_with_suspend();
    auto hold = std::make_shared<SessionHold>(session, 1, now - std::chrono::nanoseconds(1h).count() - 1, 1h);
    hold->beating = true;
    hold->beat_sent = now;
    EXPECT_FALSE(hold->surely());
    holds_.push_back(hold);
    thread_.add(hold);
    return hold;
  }
  static bool soon(const std::function<bool()>& fact) {
    for (const auto end = Clock::now() + 20s; Clock::now() < end; std::this_thread::yield()) {
      if (fact()) return true;
    }
    return false;
  }

  std::atomic<int> asked_{0};
  SessionPool pool_{1, [](timed::WaitLimit&) { return std::make_unique<FakeSession>(); }};
  HeartbeatThread thread_{pool_, 0ns};
  std::vector<std::shared_ptr<SessionHold>> holds_;
};

// The thread comes late, because the process was stopped: the answer lies in the socket.
TEST_F(Leases, are_judged_after_answers_that_have_arrived_are_read) {  // B4
  const auto kept = late_lock(true);
  thread_.start();
  EXPECT_TRUE(soon([&] { return asked_.load() > 0; })) << "it is asked again";
  EXPECT_TRUE(kept->surely());
  EXPECT_FALSE(kept->gone());
}

TEST_F(Leases, end_without_an_answer) {  // B4
  const auto lost = late_lock(false);
  thread_.start();
  EXPECT_TRUE(soon([&] { return lost->gone(); }));
  EXPECT_EQ(asked_.load(), 0);
}

}  // namespace
}  // namespace hierlock::remote
