// The holder itself: what the other tests rely on when they ask another process.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>

#include "faults.h"
#include "support/rights.h"

namespace hierlock::conformance {
namespace {

Outcome answer(Pending pending) {
  if (pending.result.wait_for(patience) != std::future_status::ready) throw std::runtime_error("no answer");
  return pending.result.get();
}

TEST(Holder, does_what_it_is_asked_one_thing_after_the_other) {
  ProcessParty alice("alice", "memory:");
  const Outcome first = answer(alice.acquire("u1/a1"));
  ASSERT_TRUE(first.granted()) << first;
  EXPECT_GT(first.fence, 0);
  const Outcome many = answer(alice.acquire_all({shared("u2"), named("a \"b\"\n%"), slots("s", 3)}));
  ASSERT_TRUE(many.granted()) << many;
  EXPECT_GT(many.fence, 0);
  EXPECT_NE(many.handle, first.handle);
  EXPECT_TRUE(alice.holds(first));
  EXPECT_FALSE(alice.lost(first));
  EXPECT_EQ(alice.fence(many), many.fence);
  const Outcome more = answer(alice.extend(first, "u3"));
  ASSERT_TRUE(more.granted()) << more;
  EXPECT_EQ(alice.fence(first), more.fence);
  EXPECT_GT(more.fence, first.fence);
  alice.release(first);
  EXPECT_FALSE(alice.holds(first));
  EXPECT_TRUE(answer(alice.try_acquire("u1/a1")).granted());
  EXPECT_TRUE(answer(alice.acquire("u3", {.then_release = true, .plain = true})).granted());
  EXPECT_TRUE(answer(alice.acquire("u3")).granted());
}

TEST(Holder, tells_errors_as_they_are) {
  ProcessParty alice("alice", "memory:");
  ASSERT_TRUE(answer(alice.acquire("u1")).granted());
  const Outcome again = answer(alice.acquire("u1", {.timeout = 1h}));
  EXPECT_EQ(again.error, ErrorKind::deadlock) << again;
  EXPECT_TRUE(again.retryable);
  EXPECT_NE(again.message.find("u1"), std::string::npos) << again.message;
  EXPECT_EQ(answer(alice.acquire_all({slots("s", 2), slots("s", 3)})).error, ErrorKind::incompatible);
  EXPECT_EQ(answer(alice.acquire_all({})).error, ErrorKind::invalid_argument);
  std::stop_source stop;
  EXPECT_THROW((void)alice.acquire("u2", {.cancel = stop.get_token()}), std::logic_error);
}

TEST(Holder, a_store_that_does_not_open_is_told) {
  EXPECT_EQ(kind_thrown_by([] { return ProcessParty("alice", "memory:?max_locks=none").pid(); }),
            ErrorKind::invalid_argument);
  EXPECT_EQ(kind_thrown_by([] { return ProcessParty("alice", "nosuchstore:").pid(); }), ErrorKind::unsupported);
}

TEST(Holder, stops_and_goes_on) {
  ProcessParty alice("alice", "memory:");
  alice.stop();
  Pending asked = alice.acquire("u1");
  EXPECT_EQ(asked.result.wait_for(50ms), std::future_status::timeout);
  alice.go_on();
  EXPECT_TRUE(answer(std::move(asked)).granted());
}

TEST(Holder, is_gone_when_it_is_killed_and_what_it_was_asked_ends) {
  ProcessParty alice("alice", "memory:");
  const pid_t pid = alice.pid();
  alice.stop();
  Pending asked = alice.acquire("u1");
  alice.kill();
  EXPECT_FALSE(alive(pid));
  EXPECT_EQ(answer(std::move(asked)).error, ErrorKind::unavailable);
  EXPECT_EQ(answer(alice.acquire("u1")).error, ErrorKind::unavailable);
}

TEST(Holder, dies_when_it_is_told_to) {
  ProcessParty alice("alice", "memory:");
  alice.tell(wire::Control::die);
  EXPECT_TRUE(eventually([&] { return answer(alice.acquire("u1")).error == ErrorKind::unavailable; }));
}

TEST(Holder, may_have_the_number_of_one_that_is_gone) {
  HIERLOCK_NEEDS_RIGHT(choose_process_number);
  ProcessParty first("first", "memory:");
  first.kill();
  ProcessParty second("second", "memory:", {.pid = first.pid()});
  EXPECT_EQ(second.pid(), first.pid());
  EXPECT_TRUE(answer(second.acquire("u1")).granted());
  EXPECT_THROW(ProcessParty("third", "memory:", {.pid = second.pid()}), std::system_error);
}

TEST(Holder, may_live_where_process_numbers_are_others) {
  HIERLOCK_NEEDS_RIGHT(make_process_namespace);
  for (const bool own_proc : {false, true}) {
    ProcessParty alice("alice", "memory:", {.own_pid_namespace = true, .own_proc = own_proc});
    EXPECT_TRUE(answer(alice.acquire("u1")).granted());
    EXPECT_NE(alice.pid(), 1);
    alice.kill();
    EXPECT_FALSE(alive(alice.pid()));
  }
}

TEST(Holder, ends_when_nobody_needs_it) {
  pid_t pid = 0;
  {
    ProcessParty alice("alice", "memory:");
    ASSERT_TRUE(answer(alice.acquire("u1")).granted());
    pid = alice.pid();
  }
  EXPECT_FALSE(alive(pid));
}

// Whoever started it may be killed in the middle of anything.
TEST(Holder, ends_when_whoever_started_it_is_gone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t starter = ::fork();
  if (starter == 0) {
    ProcessParty alice("alice", "memory:");
    const pid_t pid = alice.pid();
    (void)::write(ends[1], &pid, sizeof pid);
    (void)::raise(SIGKILL);
  }
  pid_t pid = 0;
  ASSERT_EQ(::read(ends[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_TRUE(eventually([&] { return !alive(pid); }));
}

}  // namespace
}  // namespace hierlock::conformance
