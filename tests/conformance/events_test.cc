// Events and statistics: what an application hears of its waits.
#include <mutex>
#include <thread>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Events : public Conformance {
 protected:
  using Kind = Event::Kind;

  struct Heard {
    Kind kind;
    std::string target, owner, blocked_by;
    std::chrono::nanoseconds waited;
    std::optional<ErrorKind> error;
    std::thread::id on;
  };

  Locker& listen(std::chrono::nanoseconds long_wait = 10s) {
    return open_with({.on_event =
                          [this](const Event& event) {
                            const std::scoped_lock guard(mutex_);
                            heard_.push_back({event.kind, std::string(event.target), std::string(event.owner),
                                              std::string(event.blocked_by), event.waited, event.error,
                                              std::this_thread::get_id()});
                          },
                      .long_wait = long_wait});
  }

  std::vector<Heard> heard() {
    const std::scoped_lock guard(mutex_);
    return heard_;
  }

  std::vector<Kind> kinds() {
    std::vector<Kind> result;
    for (const Heard& event : heard()) result.push_back(event.kind);
    return result;
  }

  std::atomic<int> looks_ = 0;

 private:
  std::mutex mutex_;
  std::vector<Heard> heard_;
};

TEST_P(Events, an_acquire_that_does_not_wait_is_not_told) {
  listen();
  (void)locker().acquire("u1");
  (void)locker().try_acquire("u1/a1", 1s);
  EXPECT_TRUE(heard().empty());
  EXPECT_EQ(locker().stats().of(Space::path).grants, 2u);
}

TEST_P(Events, a_wait_begins_and_is_granted) {
  listen();
  Party &alice = thread("alice"), &bob = thread("bob");
  const Outcome held = granted(alice.acquire("u1/a1"));
  const std::string alice_name = owner_name(alice);
  Pending asked = bob.acquire("u1/a1");
  blocked(asked, "u1/a1");
  const std::string bob_name = owner_name(bob);
  EXPECT_TRUE(eventually([&] { return !heard().empty(); }));
  alice.release(held);
  granted(asked);
  const std::vector<Heard> told = heard();
  ASSERT_EQ(kinds(), (std::vector<Kind>{Kind::wait_begins, Kind::wait_granted}));
  for (const Heard& event : told) {
    EXPECT_EQ(event.target, "u1/a1");
    EXPECT_EQ(event.owner, bob_name);
    EXPECT_FALSE(event.error.has_value());
  }
  EXPECT_NE(told[0].blocked_by.find(alice_name), std::string::npos) << told[0].blocked_by;
  EXPECT_GT(told[1].waited, 0ns);
}

TEST_P(Events, a_wait_that_fails_is_told_with_its_error_on_the_waiting_thread) {
  listen();
  granted(thread("alice").acquire("u1"));
  EXPECT_FALSE(locker().try_acquire("u1", 50ms).has_value());
  const std::vector<Heard> told = heard();
  ASSERT_EQ(kinds(), (std::vector<Kind>{Kind::wait_begins, Kind::wait_failed}));
  EXPECT_EQ(told[1].error, ErrorKind::timeout);
  EXPECT_GT(told[1].waited, 0ns) << "since the wait began, which is a little after the call";
  EXPECT_LT(told[1].waited, 50ms + late_bound);
  for (const Heard& event : told) EXPECT_EQ(event.on, std::this_thread::get_id());
}

TEST_P(Events, what_fails_without_waiting_is_refused) {
  listen();
  Party& alice = thread("alice");
  granted(alice.acquire("u1"));
  EXPECT_FALSE(locker().try_acquire("u1").has_value());
  refused(alice.acquire("u1"), ErrorKind::deadlock);
  const std::vector<Heard> told = heard();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].kind, Kind::refused);
  EXPECT_EQ(told[0].error, ErrorKind::busy);
  EXPECT_EQ(told[0].target, "u1");
  EXPECT_EQ(told[1].error, ErrorKind::deadlock);
  EXPECT_TRUE(told[1].kind == Kind::refused || told[1].kind == Kind::wait_failed);
}

TEST_P(Events, a_long_wait_is_told_again_and_again_with_whom_it_waits_for) {
  listen(1ms);
  Party &alice = thread("alice"), &bob = thread("bob");
  const Outcome held = granted(alice.acquire("u1"));
  const std::string alice_name = owner_name(alice);
  Pending asked = bob.acquire("u1");
  const auto long_waits = [&] {
    std::vector<Heard> told = heard();
    std::erase_if(told, [](const Heard& event) { return event.kind != Kind::wait_goes_on; });
    return told;
  };
  EXPECT_TRUE(eventually([&] { return long_waits().size() >= 3; }));
  std::chrono::nanoseconds last = 0ns;
  for (const Heard& event : long_waits()) {
    EXPECT_NE(event.blocked_by.find(alice_name), std::string::npos) << event.blocked_by;
    EXPECT_EQ(event.target, "u1");
    EXPECT_GE(event.waited, last);
    last = event.waited;
  }
  alice.release(held);
  granted(asked);
}

TEST_P(Events, what_a_callback_throws_is_dropped) {
  open_with({.on_event = [](const Event&) { throw std::runtime_error("from the callback"); }, .long_wait = 1ms});
  Party &alice = thread("alice"), &bob = thread("bob");
  const Outcome held = granted(alice.acquire("u1"));
  refused(bob.try_acquire("u1"), ErrorKind::busy);
  refused(bob.try_acquire("u1", 5ms), ErrorKind::timeout);
  Pending asked = bob.acquire("u1");
  blocked(asked, "u1");
  alice.release(held);
  granted(asked);
}

TEST_P(Events, a_callback_may_use_the_locker) {
  open_with({.on_event = [this](const Event&) {
    const Owner listener = locker().owner("listener");
    (void)locker().snapshot();
    (void)locker().stats();
    const std::optional<Lock> other = locker().try_acquire("listener's own", 0ns, {.owner = &listener});
    ++looks_;
  }});
  Party &alice = thread("alice"), &bob = thread("bob");
  const Outcome held = granted(alice.acquire("u1"));
  Pending asked = bob.acquire("u1");
  blocked(asked, "u1");
  alice.release(held);
  granted(asked);
  EXPECT_GE(looks_.load(), 1);
}

TEST_P(Events, statistics_count_grants_waits_and_failures_by_kind) {
  Party &alice = thread("alice"), &bob = thread("bob");
  const Outcome first = granted(alice.acquire("u1"));
  const Target other = apart("n");
  granted(alice.acquire(other));
  Pending asked = bob.acquire("u1");
  blocked(asked, "u1");
  alice.release(first);
  const Outcome second = granted(asked);
  refused(alice.try_acquire("u1"), ErrorKind::busy);
  refused(alice.try_acquire("u1", 50ms), ErrorKind::timeout);
  refused(alice.acquire(other), ErrorKind::deadlock);
  std::stop_source stop;
  stop.request_stop();
  refused(alice.acquire("u1", {.cancel = stop.get_token()}), ErrorKind::cancelled);

  const Stats stats = locker().stats();
  const std::uint64_t apart = other.space() == Space::path ? 0 : 1;  // of another kind, where the store has one
  EXPECT_EQ(stats.of(Space::path).grants, 3u - apart);
  EXPECT_EQ(stats.of(Space::path).waits, 2u);
  EXPECT_GT(stats.of(Space::path).waited, 0ns);
  EXPECT_LT(stats.of(Space::path).waited, 2 * patience);
  EXPECT_EQ(stats.of(Space::path).deadlocks, 1u - apart);
  EXPECT_EQ(stats.of(Space::name).grants, apart);
  EXPECT_EQ(stats.of(Space::name).deadlocks, apart);
  EXPECT_EQ(stats.of(Space::slots).grants, 0u);
  EXPECT_EQ(stats.total().grants, 3u);
  EXPECT_EQ(stats.total().deadlocks, 1u);
  EXPECT_EQ(stats.failed(ErrorKind::busy), 1u);
  EXPECT_EQ(stats.failed(ErrorKind::timeout), 1u);
  EXPECT_EQ(stats.failed(ErrorKind::deadlock), 1u);
  EXPECT_EQ(stats.failed(ErrorKind::cancelled), 1u);
  EXPECT_EQ(stats.failed(ErrorKind::lost), 0u);
  bob.release(second);
  EXPECT_EQ(locker().stats().total().grants, 3u) << "a release is no grant";
}

TEST_P(Events, statistics_count_extends_as_grants) {
  HIERLOCK_NEEDS(extends);
  Lock lock = locker().acquire("u1");
  lock.extend("u2");
  EXPECT_EQ(locker().stats().total().grants, 2u);
}

TEST_P(Events, statistics_of_many_threads_lose_nothing) {
  constexpr std::uint64_t threads = 6, rounds = 500;
  Locker& all = locker();
  std::vector<std::future<void>> workers;
  for (std::uint64_t worker = 0; worker < threads; ++worker) {
    workers.push_back(std::async(std::launch::async, [&, worker] {
      for (std::uint64_t round = 0; round < rounds; ++round) (void)all.acquire("u" + std::to_string(worker % 3));
    }));
  }
  for (std::future<void>& worker : workers) worker.get();
  EXPECT_EQ(all.stats().total().grants, threads * rounds);
}

HIERLOCK_ON_EVERY_BACKEND(Events);

}  // namespace
}  // namespace hierlock::conformance
