// Breaking: an operator takes a lock away from a process on any machine (B13).
#include <future>

#include <hierlock/operate.h>

#include "on_valkey.h"
#include "support/process_party.h"
#ifdef HIERLOCK_BIN
#include "support/tool.h"
#endif

namespace hierlock::valkey_tests {
namespace {

using conformance::Outcome;
using conformance::ProcessParty;

class Break : public OnValkey {
 protected:
  void SetUp() override {
    OnValkey::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) operators_.emplace(hierlock::open(url()));
  }
  Locker& operators() { return *operators_; }
  std::size_t break_locks(const Target& target) { return operators().break_locks(target, "a test"); }
  bool is_free(const Target& target) { return operators().try_acquire(target).has_value(); }
  bool is_soon_free(const Target& target) { return operators().try_acquire(target, 20s).has_value(); }

 private:
  std::optional<Locker> operators_;
};

TEST_P(Break, the_holder_finds_its_lock_lost_and_its_fence_is_outdated) {  // B13
  Locker locker = hierlock::open(url());
  const Lock lock = locker.acquire("u1/a1/r1");
  const std::int64_t fence = lock.fence();
  const std::stop_token told = lock.lost();
  EXPECT_EQ(break_locks("u1/a1/r1"), 1u);
  const Lock next = operators().acquire("u1/a1/r1", {.timeout = 20s});
  EXPECT_GT(next.fence(), fence);
  EXPECT_TRUE(eventually([&] { return !lock.held() && told.stop_requested(); }));
  EXPECT_TRUE(fails_with(ErrorKind::lost, [&] { static_cast<void>(lock.fence()); }));
  EXPECT_TRUE(next.held());
}

TEST_P(Break, nobodys_lock_is_not_broken) {
  Locker locker = hierlock::open(url());
  EXPECT_EQ(break_locks("u1/a1"), 0u);
  const Lock below = locker.acquire("u1/a1/r1"), beside = locker.acquire("u1/a2"), name = locker.acquire(named("u1"));
  EXPECT_EQ(break_locks("u1/a1"), 0u) << "it is in use only because of what is below";
  EXPECT_EQ(break_locks("u1"), 0u);
  EXPECT_EQ(break_locks("u1/a1/r1"), 1u);
  EXPECT_TRUE(eventually([&] { return !below.held(); }));
  EXPECT_EQ(break_locks("u1/a1/r1"), 0u) << "it is broken once";
  EXPECT_TRUE(beside.held() && name.held());
  EXPECT_FALSE(is_free("u1/a2"));
  EXPECT_FALSE(is_free(named("u1")));
}

TEST_P(Break, what_else_the_lock_has_is_not_free_before_the_release) {
  Locker locker = hierlock::open(url());
  const std::vector<Target> all{"u1/a1/r1", "u1/a2", "u2", named("n")};
  Lock lock = locker.acquire(all);
  ASSERT_EQ(break_locks("u1/a1/r1"), 1u);
  EXPECT_TRUE(eventually([&] { return !lock.held(); }));
  EXPECT_TRUE(is_soon_free("u1/a1/r1"));
  for (const Target& rest : {Target("u1/a1"), Target("u1"), Target("u1/a2"), Target("u2"), named("n")}) {
    EXPECT_FALSE(is_free(rest)) << rest.str() << " is given away, and its holder has not let go";
  }
  lock.release();
  for (const Target& rest : {Target("u1"), Target("u2"), named("n")}) EXPECT_TRUE(is_soon_free(rest)) << rest.str();
}

// It may rely on its lock until its lease ends, and cannot be told.
TEST_P(Break, a_stopped_holder_keeps_the_lock_until_its_lease_ends) {  // B13
  ProcessParty holder("holder", url("lease=5000"));
  ASSERT_TRUE(holder.acquire_all({"u1/a1", "u1/a2"}).result.get().granted());
  holder.stop();
  if (break_locks("u1/a1") == 1) {  // 0: the machine was slow, and the lease has ended
    EXPECT_FALSE(is_free("u1/a1"));
  }
  EXPECT_TRUE(operators().try_acquire("u1/a1", 20s).has_value());
  EXPECT_TRUE(operators().try_acquire("u1", 20s).has_value());
}

TEST_P(Break, every_holder_of_a_shared_lock_and_of_slots_is_hit) {
  Locker one = hierlock::open(url()), two = hierlock::open(url());
  for (const Target& target : {shared("u1"), shared(named("n")), slots("s", 2)}) {
    const Lock first = one.acquire(target), second = two.acquire(target);
    EXPECT_EQ(break_locks(target), 2u) << target.str();
    EXPECT_TRUE(eventually([&] { return !first.held() && !second.held(); })) << target.str();
  }
}

TEST_P(Break, the_next_in_the_queue_gets_the_lock_and_keeps_it) {
  Locker locker = hierlock::open(url()), other = hierlock::open(url("publish_after=0"));
  const Lock lock = locker.acquire("u1");
  auto waits = std::async(std::launch::async, [&] { return other.acquire("u1"); });
  ASSERT_TRUE(eventually([&] { return operators().snapshot().anybody_waits("u1"); }));
  EXPECT_EQ(break_locks("u1"), 1u) << "a waiter has nothing that could be broken";
  const Lock next = waits.get();
  EXPECT_TRUE(eventually([&] { return !lock.held(); }));
  EXPECT_TRUE(next.held());
  EXPECT_FALSE(is_free("u1"));
}

TEST_P(Break, an_extend_that_waits_fails_and_leaves_nothing_in_the_queue) {
  Locker locker = hierlock::open(url("publish_after=0"));
  std::optional<Lock> in_the_way = operators().acquire("u1/a2");
  Lock lock = locker.acquire("u1/a1");
  auto extends =
      std::async(std::launch::async, [&] { return fails_with(ErrorKind::lost, [&] { lock.extend("u1/a2"); }); });
  ASSERT_TRUE(eventually([&] { return operators().snapshot().anybody_waits(); }));
  EXPECT_EQ(break_locks("u1/a1"), 1u);
  EXPECT_TRUE(extends.get());
  EXPECT_FALSE(lock.held());
  EXPECT_TRUE(is_soon_free("u1/a1"));
  lock.release();
  in_the_way.reset();
  EXPECT_TRUE(is_soon_free("u1"));
}

// The renewal tells the holder, which comes after a third of the lease.
TEST_P(Break, a_holder_that_gets_no_message_finds_out_by_itself) {
  ProcessParty holder("holder", url("lease=6000"));
  const Outcome held = holder.acquire("u1").result.get();
  ASSERT_TRUE(held.granted());
  ask("CLIENT KILL TYPE pubsub");
  EXPECT_EQ(break_locks("u1"), 1u);
  EXPECT_TRUE(eventually([&] { return !holder.holds(held); }));
  EXPECT_TRUE(eventually([&] { return holder.lost(held); }));
}

// It reads all of a root in one step, and nobody else is served meanwhile.
TEST_P(Break, of_a_root_with_very_many_requests_is_refused) {
  Locker locker = hierlock::open(url());
  const Lock lock = locker.acquire("u1");
  const std::string text = statements(url(), std::vector<Target>{Target("u1")});
  const std::size_t at = text.find("hl:" + table());
  const std::string key = "'" + text.substr(at, text.find('}', at) + 1 - at) + "'";
  ask("EVAL \"for i = 1, 50001 do redis.call('HSET', KEYS[1], 'z' .. i, 1) end\" 1 " + key);
  EXPECT_TRUE(fails_with(
      ErrorKind::exhausted, [&] { break_locks("u1"); }, "was not broken"));
  EXPECT_TRUE(lock.held());
  ask("EVAL \"for i = 1, 50001 do redis.call('HDEL', KEYS[1], 'z' .. i) end\" 1 " + key);
  EXPECT_EQ(break_locks("u1"), 1u);
}

// Locks that are handed over inside of a process, at the moment at which they are broken. Those beside them stay, and
// nobody gets a broken one handed over when the next holder has it.
TEST_P(Break, at_any_moment_exactly_the_named_lock_is_taken_away) {  // B3, B13
  Locker locker = hierlock::open(url());
  const Lock beside = locker.acquire("u1/a2");
  std::atomic<bool> over{false};
  std::atomic<int> granted{0}, lost{0}, two_hold{0};
  std::atomic<unsigned> next_holds{0};  // odd: yes
  std::vector<std::jthread> workers;
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back([&, i] {
      while (!over) {
        try {
          const unsigned before = next_holds;
          Lock lock = locker.acquire("u1/a1", {.timeout = 20s});
          if (before % 2 == 1 && lock.held() && next_holds == before) ++two_hold;
          ++granted;
          if (i == 0) lock.extend("u1/a" + std::to_string(3 + granted % 3), {.timeout = 20s});
          std::this_thread::sleep_for(std::chrono::microseconds(200 * i));
          if (!lock.held()) ++lost;
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::lost) << error.what();
          ++lost;
        }
      }
    });
  }
  std::size_t broken = 0;
  EXPECT_TRUE(eventually([&] {
    broken += break_locks("u1/a1");
    const std::optional<Lock> next = operators().try_acquire("u1/a1", 20s);
    if (next) {
      ++next_holds;
      std::this_thread::sleep_for(2ms);
      ++next_holds;
    }
    return broken >= 20 && lost > 0 && granted > 100;
  }));
  over = true;
  workers.clear();
  EXPECT_EQ(two_hold, 0);
  EXPECT_TRUE(beside.held());
  EXPECT_TRUE(is_soon_free("u1/a1"));
  EXPECT_FALSE(is_free("u1/a2"));
}

#ifdef HIERLOCK_BIN

std::string quoted(const std::string& text) { return "'" + text + "'"; }

TEST_P(Break, the_tool_says_whom_it_has_hit_and_exec_ends_its_command) {
  Tool holder("exec --on " + quoted(url("publish_after=0")) +
              " --note nightly u1/a1 -- sh -c 'echo ready; exec sleep 1000'");
  ASSERT_TRUE(holder.says("ready")) << holder.said();
  ASSERT_TRUE(eventually([&] { return !operators().snapshot().holders.empty(); }));
  Tool above("break --on " + quoted(url()) + " --yes u1");
  EXPECT_EQ(above.ends(), 1);
  EXPECT_NE(above.said().find("u1/a1 below it is held"), std::string::npos) << above.said();
  Tool tool("break --on " + quoted(url()) + " --yes --reason 'its host is gone' u1/a1");
  EXPECT_EQ(tool.ends(), 0) << tool.said();
  EXPECT_NE(tool.said().find("Broke 1 lock on u1/a1"), std::string::npos) << tool.said();
  EXPECT_NE(tool.said().find("nightly"), std::string::npos) << tool.said();
  EXPECT_EQ(holder.ends(), 70) << holder.said();
  EXPECT_NE(holder.said().find("hierlock break"), std::string::npos) << holder.said();
  Tool again("break --on " + quoted(url()) + " --yes u1/a1");
  EXPECT_EQ(again.ends(), 1);
  EXPECT_NE(again.said().find("nobody holds u1/a1"), std::string::npos) << again.said();
}

// Its holder has not published it yet, so its name is not known. It is broken nevertheless.
TEST_P(Break, the_tool_breaks_a_lock_whose_holder_is_not_known_yet) {
  Locker locker = hierlock::open(url("publish_after=60000"));
  const Lock lock = locker.acquire("u1");
  Tool tool("break --on " + quoted(url()) + " --yes u1");
  EXPECT_EQ(tool.ends(), 0) << tool.said();
  EXPECT_NE(tool.said().find("its holder is not known yet"), std::string::npos) << tool.said();
  EXPECT_TRUE(eventually([&] { return !lock.held(); }));
}

#endif

HIERLOCK_ON_VALKEY_AND_REDIS(Break);

}  // namespace
}  // namespace hierlock::valkey_tests
