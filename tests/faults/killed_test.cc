// Killed: a holder or a waiter that dies is out of the way, whatever it was doing (B5).
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <random>

#include "faults.h"

namespace hierlock::conformance {
namespace {

class Killed : public Faults {
 protected:
  // Prints the worst of what was measured, and keeps it beside the test's result.
  static void report(const std::vector<std::chrono::nanoseconds>& times) {
    const auto worst = std::chrono::duration<double, std::milli>(*std::max_element(times.begin(), times.end()));
    std::printf("%s: worst of %zu is %.1f ms\n", testing::UnitTest::GetInstance()->current_test_info()->name(),
                times.size(), worst.count());
    RecordProperty("worst_us", static_cast<int>(worst.count() * 1000));
  }
};

TEST_P(Killed, the_next_waiter_of_a_killed_holder_runs_within_250_ms) {  // B5
  struct Case {
    Target held, asked;
  };
  const std::vector<Case> cases = {{"u1/a1/r1", "u1/a1/r1"},   {"u1/a1/r1", "u1"},
                                   {"u1", "u1/a1/r1"},         {shared("u1/a1"), "u1/a1"},
                                   {shared("u1"), "u1/a1/r1"}, {"u1/a1", shared("u1/a1/r1")},
                                   {named("n"), named("n")},   {slots("s", 1), slots("s", 1)}};
  std::vector<std::chrono::nanoseconds> times;
  int number = 0;
  for (const Case& one : cases) {
    for (const bool plain : {false, true}) {
      SCOPED_TRACE(one.held.str() + " to " + one.asked.str() + (plain ? ", plain" : ""));
      ProcessParty& holder = process("holder" + std::to_string(number++));
      Party& waiter = party("waiter");
      const Outcome held = granted(holder.acquire(one.held, {.plain = plain}));
      Pending asked = waiter.acquire(one.asked);
      blocked(asked);
      times.push_back(granted_after(asked, [&] { holder.strike(); }));
      const Outcome got = granted(asked);
      EXPECT_GT(got.fence, held.fence);
      waiter.release(got);
    }
  }
  EXPECT_TRUE(nothing_left()) << state();
  report(times);
  const auto late = std::count_if(times.begin(), times.end(), [](auto time) { return time >= death_bound; });
  EXPECT_LE(static_cast<std::size_t>(late), times.size() / 5) << "of " << times.size();
}

TEST_P(Killed, a_waiter_in_the_same_process_as_the_test_is_woken_too) {  // B5
  ProcessParty& holder = process("holder");
  granted(holder.acquire("u1"));
  Pending asked = thread("waiter").acquire("u1/a1/r1");
  blocked(asked, "u1");
  granted_after(asked, [&] { holder.strike(); });
  granted(asked);
}

TEST_P(Killed, every_lock_of_one_holder_comes_back_and_nobody_elses) {  // B5
  ProcessParty &victim = process("victim"), &other = process("other");
  const std::vector<Target> targets = {"u1/a1/r1", "u1/a2", shared("u2"), named("n"), slots("s", 2)};
  for (const Target& target : targets) granted(victim.acquire(target));
  granted(victim.acquire_all({"u3/a1", "u4/a1", named("m")}));
  const Outcome kept = granted(other.acquire("u1/a3"));
  const Outcome read = granted(other.acquire(shared("u2/a1")));
  const Outcome slot = granted(other.acquire(slots("s", 2)));
  victim.kill();
  EXPECT_TRUE(eventually([&] { return nothing_left(victim); })) << state();
  EXPECT_EQ(held_by(other).size(), 5u) << state();
  for (const Outcome& lock : {kept, read, slot}) EXPECT_TRUE(other.holds(lock));
  Party& next = party("next");
  for (const Target& target : targets) granted(next.acquire(target, {.timeout = 0ns}));
  refused(next.try_acquire(slots("s", 2)), ErrorKind::busy);
  granted(next.acquire_all({"u3", "u4", named("m")}, {.timeout = 0ns}));
  refused(next.try_acquire("u1/a3/r1"), ErrorKind::busy);
}

TEST_P(Killed, a_killed_waiter_does_not_block_those_behind_it) {  // B5
  Party &holder = party("holder"), &late = party("late");
  ProcessParty& waiter = process("waiter");
  const Outcome held = granted(holder.acquire("u1/a1"));
  Pending first = waiter.acquire("u1/a1");
  blocked(first, "u1/a1");
  Pending second = late.acquire("u1/a1");
  blocked(second, "u1/a1");
  waiter.kill();
  granted_after(second, [&] { holder.release(held); });
  granted(second);
  EXPECT_TRUE(nothing_left(waiter)) << state();
}

TEST_P(Killed, readers_behind_a_killed_writer_go_on_within_250_ms) {  // B5
  Party &first = party("first"), &late = party("late");
  ProcessParty& writer = process("writer");
  granted(first.acquire(shared("u1/a1/r1")));
  Pending write = writer.acquire("u1");
  blocked(write, "u1");
  Pending read = late.acquire(shared("u1/a1/r1"));
  blocked(read);
  granted_after(read, [&] { writer.strike(); });
  granted(read);
  EXPECT_TRUE(eventually([&] { return nothing_left(writer); })) << state();
}

TEST_P(Killed, what_a_killed_waiter_held_already_comes_back) {  // B5
  Party &holder = party("holder"), &next = party("next");
  ProcessParty& waiter = process("waiter");
  const Outcome held = granted(holder.acquire("u2"));
  granted(waiter.acquire("u0"));
  Pending many = waiter.acquire_all({"u1/a1", "u2", "u3"});
  blocked(many, "u2");
  Pending behind = next.acquire_all({"u0/a1", "u1"});
  blocked(behind);
  granted_after(behind, [&] { waiter.strike(); });
  granted(behind);
  holder.release(held);
  granted(next.acquire("u2"));
}

TEST_P(Killed, an_extend_that_is_killed_while_it_waits_gives_all_back) {  // B5
  Party &holder = party("holder"), &next = party("next");
  ProcessParty& extender = process("extender");
  granted(holder.acquire(shared("u1/a1")));
  const Outcome lock = granted(extender.acquire(shared("u1/a1")));
  Pending upgrade = extender.extend(lock, "u1/a1");
  blocked(upgrade, "u1/a1");
  Pending read = next.acquire(shared("u1/a1"));
  blocked(read, "u1/a1");
  granted_after(read, [&] { extender.strike(); });
  granted(read);
  EXPECT_TRUE(eventually([&] { return nothing_left(extender); })) << state();
}

TEST_P(Killed, a_dead_member_of_a_cycle_to_be_is_no_deadlock) {  // B5, B11
  ProcessParty& victim = process("victim");
  Party& alice = party("alice");
  granted(alice.acquire("u1"));
  granted(victim.acquire("u2"));
  Pending stuck = victim.acquire("u1");
  blocked(stuck, "u1");
  victim.kill();
  const Outcome outcome = result(alice.acquire("u2", {.timeout = patience}));
  EXPECT_TRUE(outcome.granted()) << "what the dead waited for closes no cycle: " << outcome;
}

TEST_P(Killed, a_try_notices_though_nobody_was_waiting) {  // B5
  ProcessParty& holder = process("holder");
  granted(holder.acquire("u1/a1/r1"));
  granted(holder.acquire(named("n")));
  granted(holder.acquire(slots("s", 1)));
  const Unrest unrest;
  holder.kill();
  const auto start = Clock::now();
  for (const Target& target : {Target("u1"), named("n"), slots("s", 1)}) {
    EXPECT_TRUE(eventually([&] { return locker().try_acquire(target).has_value(); })) << target.str();
  }
  EXPECT_LT(Clock::now() - start, death_bound + unrest.worst() + late_bound);
}

TEST_P(Killed, one_try_is_enough_for_a_process_that_comes_later) {  // B5
  ProcessParty& holder = process("holder");
  granted(holder.acquire("u1/a1/r1"));
  granted(holder.acquire(shared("u2")));
  holder.kill();
  // Nobody waits or looks meanwhile: it is the try itself that must notice.
  std::this_thread::sleep_for(death_bound);
  Party& later = party("later");
  granted(later.try_acquire("u1/a1/r1"));
  granted(later.try_acquire("u2/a1"));
}

TEST_P(Killed, one_try_is_enough_for_a_process_that_was_there) {  // B5
  ProcessParty& holder = process("holder");
  Party& other = party("other");
  granted(other.acquire("u3"));
  granted(holder.acquire("u1/a1/r1"));
  granted(holder.acquire(named("n"), {.plain = true}));
  holder.kill();
  std::this_thread::sleep_for(death_bound);
  granted(other.try_acquire("u1/a1/r1"));
  granted(other.acquire(named("n"), {.timeout = 0ns, .plain = true}));
}

TEST_P(Killed, an_exit_without_a_release_is_a_death_too) {  // B5
  ProcessParty& holder = process("holder");
  granted(holder.acquire("u1"));
  Pending asked = party("waiter").acquire("u1");
  blocked(asked, "u1");
  granted_after(asked, [&] { holder.tell(wire::Control::exit); });
  granted(asked);
}

TEST_P(Killed, many_at_once_come_back_in_time) {  // B5
  constexpr int crowd = 12;
  for (int i = 0; i < crowd; ++i) granted(process("h" + std::to_string(i)).acquire("u1/a" + std::to_string(i)));
  Pending asked = party("waiter").acquire("u1");
  blocked(asked, "u1");
  granted_after(asked, [&] {
    for (int i = 0; i < crowd; ++i) process("h" + std::to_string(i)).strike();
  });
  granted(asked);
}

TEST_P(Killed, more_deaths_than_there_are_places_leave_room_for_the_living) {  // B5
  const Lock mine = locker().acquire("u0");
  constexpr int deaths = slowness == 1 ? 1500 : 200;  // there are about 1,000 places; sanitizers only look on
  for (int death = 0; death < deaths; ++death) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        Locker own = table().open({});
        const std::string id = std::to_string(death);
        const Lock lock = own.acquire("u1/a1/r" + id, {.timeout = patience});
        const Lock many = own.acquire({"u2/a" + id, "u3/a" + id}, {.timeout = patience});
        ::_exit(lock.held() && many.held() ? 0 : 1);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      ::_exit(2);
    }
    ASSERT_EQ(reap(child), 0) << "death " << death;
  }
  EXPECT_TRUE(mine.held());
  EXPECT_TRUE(locker().try_acquire({"u1", "u2", "u3"}, patience).has_value()) << state();
}

TEST_P(Killed, a_table_whose_users_all_die_at_once_is_opened_again) {  // B5
  const std::string url = (locker(), table().url());
  start_again();
  for (const int crowd : slowness == 1 ? std::vector<int>{512, 1023} : std::vector<int>{64}) {
    SCOPED_TRACE(std::to_string(crowd) + " processes");
    int ready[2];
    ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    std::vector<pid_t> children;
    const pid_t test = ::getpid();
    for (int i = 0; i < crowd; ++i) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // whatever becomes of the test, nobody stays behind
      if (::getppid() != test) ::_exit(1);
      Locker own = open(url);
      const Lock lock = own.acquire("u1/a" + std::to_string(i)), read = own.acquire(shared("u2"));
      (void)!::write(ready[1], "h", 1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char holds = 0;
    for (int i = 0; i < crowd; ++i) EXPECT_EQ(::read(ready[0], &holds, 1), 1);
    ::close(ready[0]);
    if (crowd == 1023) {
      EXPECT_EQ(kind_thrown_by([&] { return open(url).url(); }), ErrorKind::exhausted);
    }
    for (const pid_t child : children) ::kill(child, SIGKILL);
    for (const pid_t child : children) reap(child);
    const Unrest unrest;
    const auto start = Clock::now();
    Locker next = open(url);
    EXPECT_TRUE(next.try_acquire({"u1", "u2"}, patience).has_value());
    EXPECT_LT(Clock::now() - start, 4 * death_bound + unrest.worst() + late_bound);
    EXPECT_TRUE(next.snapshot().holders.empty()) << describe(next.snapshot());
    report({Clock::now() - start});
  }
}

TEST_P(Killed, a_hundred_thousand_locks_come_back_within_a_second) {     // B5
  constexpr int accounts = 100, resources = slowness == 1 ? 1000 : 100;  // sanitizers only look on
  ProcessParty& holder = process("holder");
  std::vector<Pending> last;
  for (int account = 0; account < accounts; ++account) {
    for (int resource = 0; resource < resources; ++resource) {
      Pending asked =
          holder.acquire("u1/a" + std::to_string(account) + "/r" + std::to_string(resource), {.plain = true});
      if (resource + 1 == resources) last.push_back(std::move(asked));
    }
    granted(last.back());
  }
  Pending asked = party("waiter").acquire("u1");
  blocked(asked, "u1");
  report({granted_after(
      asked, [&] { holder.strike(); }, 1s * slowness)});
  granted(asked);
  EXPECT_EQ(locker().snapshot().holders.size(), 1u);
}

TEST_P(Killed, in_the_middle_of_anything_leaves_a_table_that_works) {  // B5
  const std::vector<Target> targets = {"u1/a1/r1", "u1/a1/r2",      "u1/a2/r1",   "u1/a1",      "u1",
                                       named("n"), shared("u1/a1"), shared("u1"), slots("s", 2)};
  std::string seed;
  std::mt19937 random = random_numbers(seed);
  SCOPED_TRACE("HIERLOCK_SEED=" + seed);
  const auto any_target = [&] { return targets[random() % targets.size()]; };
  const int rounds = 60 / slowness;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::unique_ptr<ProcessParty>> crowd;
    for (const char* name : {"one", "two"}) {
      crowd.push_back(std::make_unique<ProcessParty>(name, (locker(), table().url())));
      for (int i = 0; i < 400; ++i) {
        const Ask ask{.timeout = std::chrono::microseconds(random() % 300), .then_release = true, .plain = i % 2 == 0};
        if (i % 5 == 0) {
          (void)crowd.back()->acquire_all({any_target(), any_target(), "u2/a1"}, ask);
        } else {
          (void)crowd.back()->acquire(any_target(), ask);
        }
      }
    }
    const auto end = Clock::now() + std::chrono::microseconds(random() % 4000);
    while (Clock::now() < end) (void)locker().try_acquire(any_target(), 100us);
    for (auto& process : crowd) process->strike();
    crowd.clear();
    const Unrest unrest;
    const auto start = Clock::now();
    for (const Target& target : {Target("u1"), Target("u2"), named("n")}) {
      ASSERT_TRUE(locker().try_acquire(target, patience).has_value()) << target.str() << "\n" << state();
    }
    const Lock one = locker().acquire(slots("s", 2), {.timeout = patience});
    const Lock two = locker().acquire(slots("s", 2), {.timeout = patience});
    ASSERT_LT(Clock::now() - start, 2 * death_bound + unrest.worst() + late_bound) << "in round " << round;
  }
  EXPECT_TRUE(eventually([&] { return nothing_left(); })) << state();
}

// --- stopped is not dead -----------------------------------------------------------------------------------

class Stopped : public Faults {};

TEST_P(Stopped, a_stopped_holder_keeps_its_lock_however_long_it_takes) {  // B5
  ProcessParty& holder = process("holder");
  Party &timed = party("timed"), &patient = party("patient");
  const Outcome held = granted(holder.acquire("u1/a1/r1"));
  holder.stop();
  Pending asked = patient.acquire("u1/a1");
  blocked(asked, "u1/a1");
  for (const std::chrono::nanoseconds wanted : {std::chrono::nanoseconds(20ms), std::chrono::nanoseconds(900ms)}) {
    for (const Target& target : {Target("u1/a1/r1"), Target("u1")}) {
      const Outcome outcome = refused(timed.acquire(target, {.timeout = wanted}), ErrorKind::timeout);
      EXPECT_GE(outcome.took, wanted);
      EXPECT_LT(outcome.took, wanted + late_bound);
    }
  }
  refused(timed.try_acquire("u1/a1/r1"), ErrorKind::busy);
  EXPECT_EQ(held_by(holder).size(), 3u) << state();
  blocked(asked, "u1/a1");
  holder.go_on();
  EXPECT_TRUE(holder.holds(held));
  EXPECT_EQ(holder.fence(held), held.fence);
  EXPECT_FALSE(holder.lost(held));
  holder.release(held);
  EXPECT_GT(granted(asked).fence, held.fence);
}

TEST_P(Stopped, a_stopped_waiter_keeps_its_place_and_delays_nobodys_timeout) {  // B5
  Party &holder = party("holder"), &timed = party("timed");
  ProcessParty& waiter = process("waiter");
  const Outcome held = granted(holder.acquire("u1"));
  Pending asked = waiter.acquire("u1");
  blocked(asked, "u1");
  waiter.stop();
  holder.release(held);
  constexpr auto wanted = 300ms;
  const Outcome outcome = refused(timed.acquire("u1", {.timeout = wanted}), ErrorKind::timeout);
  EXPECT_GE(outcome.took, wanted);
  EXPECT_LT(outcome.took, wanted + late_bound);
  waiter.go_on();
  EXPECT_GT(granted(asked).fence, held.fence);
}

TEST_P(Stopped, a_stopped_holder_that_is_killed_is_dead) {  // B5
  ProcessParty& holder = process("holder");
  granted(holder.acquire("u1"));
  holder.stop();
  Pending asked = party("waiter").acquire("u1");
  blocked(asked, "u1");
  granted_after(asked, [&] { holder.strike(); });
  granted(asked);
}

TEST_P(Stopped, in_the_middle_of_anything_delays_nobodys_timeout) {  // B5
  const std::vector<Target> targets = {"u1/a1/r1", "u1/a1", shared("u1"), named("n")};
  std::string seed;
  std::mt19937 random = random_numbers(seed);
  SCOPED_TRACE("HIERLOCK_SEED=" + seed);
  ProcessParty& busy = process("busy");
  const int rounds = 100 / slowness;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Pending> asked;
    for (int i = 0; i < 200; ++i) {
      asked.push_back(busy.acquire(targets[random() % targets.size()], {.then_release = true, .plain = i % 2 == 0}));
    }
    const auto end = Clock::now() + std::chrono::microseconds(random() % 1500);
    while (Clock::now() < end) std::this_thread::yield();
    busy.stop();
    for (const Target& target : {Target("u1"), named("n"), Target("u2")}) {
      const auto start = Clock::now();
      (void)locker().try_acquire(target, 1ms);
      ASSERT_LT(Clock::now() - start, 1ms + late_bound) << target.str() << " in round " << round;
    }
    busy.go_on();
    for (Pending& one : asked) granted(one);
  }
  EXPECT_TRUE(nothing_left()) << state();
}

HIERLOCK_ON_SHM(Killed);
HIERLOCK_ON_SHM(Stopped);

}  // namespace
}  // namespace hierlock::conformance
