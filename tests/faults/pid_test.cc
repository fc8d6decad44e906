// Process numbers: they are used again, and they mean nothing in another namespace (B5).
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

#include "faults.h"
#include "support/rights.h"

namespace hierlock::conformance {
namespace {

class Pids : public Faults {
 protected:
  // With its own /proc or with that of where it came from, where the numbers are those of others.
  static std::vector<ProcessParty::How> elsewheres() {
    return {{.own_pid_namespace = true}, {.own_pid_namespace = true, .own_proc = true}};
  }
};

TEST_P(Pids, a_number_used_again_does_not_keep_the_dead_alive) {  // B5
  HIERLOCK_NEEDS_RIGHT(choose_process_number);
  ProcessParty& dead = process("dead");
  granted(dead.acquire("u1/a1"));
  dead.kill();
  const ProcessParty stranger("stranger", "memory:", {.pid = dead.pid()});
  ASSERT_EQ(stranger.pid(), dead.pid());
  Pending asked = party("waiter").acquire("u1");
  granted_after(asked, [] {});
  granted(asked);
}

TEST_P(Pids, who_gets_the_number_does_not_get_the_locks) {  // B5
  HIERLOCK_NEEDS_RIGHT(choose_process_number);
  ProcessParty& dead = process("dead");
  granted(dead.acquire("u1/a1"));
  granted(dead.acquire(named("n")));
  const pid_t number = dead.pid();
  dead.kill();
  ProcessParty& heir = process("heir", {.pid = number});
  ASSERT_EQ(heir.pid(), number);
  const Outcome own = granted(heir.acquire("u2"));
  Party& other = party("other");
  granted(other.acquire("u1", {.timeout = patience}));
  granted(other.acquire(named("n"), {.timeout = patience}));
  refused(heir.acquire("u1/a1", {.timeout = 1ms}), ErrorKind::timeout);
  EXPECT_TRUE(heir.holds(own));
  refused(other.acquire("u2", {.timeout = death_bound * 2}), ErrorKind::timeout);
}

TEST_P(Pids, a_holder_in_another_namespace_is_not_taken_for_dead_and_its_death_is_noticed) {  // B5
  HIERLOCK_NEEDS_RIGHT(make_process_namespace);
  for (const ProcessParty::How& how : elsewheres()) {
    ProcessParty& holder = process(how.own_proc ? "there with proc" : "there", how);
    const Outcome held = granted(holder.acquire("u1/a1"));
    Party& waiter = party("waiter");
    refused(waiter.try_acquire("u1/a1"), ErrorKind::busy);
    refused(waiter.acquire("u1", {.timeout = death_bound * 2}), ErrorKind::timeout);
    EXPECT_TRUE(holder.holds(held));
    Pending asked = waiter.acquire("u1");
    blocked(asked, "u1");
    granted_after(asked, [&] { holder.strike(); });
    waiter.release(granted(asked));
  }
}

TEST_P(Pids, a_waiter_in_another_namespace_sees_who_lives_and_who_is_dead) {  // B5
  HIERLOCK_NEEDS_RIGHT(make_process_namespace);
  for (const ProcessParty::How& how : elsewheres()) {
    ProcessParty& holder = process(how.own_proc ? "second holder" : "holder");
    ProcessParty& waiter = process(how.own_proc ? "there with proc" : "there", how);
    const Outcome held = granted(holder.acquire("u1/a1"));
    refused(waiter.acquire("u1", {.timeout = death_bound * 2}), ErrorKind::timeout);
    EXPECT_TRUE(holder.holds(held));
    Pending asked = waiter.acquire("u1");
    blocked(asked, "u1");
    granted_after(asked, [&] { holder.strike(); });
    waiter.release(granted(asked));
  }
}

// Of a namespace whose processes see the /proc of the one it came from: there the numbers are others'.
TEST_P(Pids, the_end_of_a_stranger_of_the_same_number_is_not_the_holders) {  // B5
  HIERLOCK_NEEDS_RIGHT(choose_process_number);
  HIERLOCK_NEEDS_RIGHT(make_process_namespace);
  auto stranger = std::make_unique<ProcessParty>("stranger", "memory:");
  const pid_t number = stranger->pid();
  ProcessParty& first = process("first", {.own_pid_namespace = true});
  ProcessParty& holder = process("holder", {.pid = number, .beside = first.pid()});
  ASSERT_NE(holder.pid(), number) << "it has it there, and not here";
  const Outcome held = granted(holder.acquire("u1"));
  stranger.reset();
  const auto tick = std::chrono::nanoseconds(1s) / ::sysconf(_SC_CLK_TCK);
  std::this_thread::sleep_for(2 * tick);
  const ProcessParty next("next", "memory:", {.pid = number});
  refused(first.acquire("u1", {.timeout = death_bound * 2}), ErrorKind::timeout);
  EXPECT_TRUE(holder.holds(held));
  Pending asked = first.acquire("u1");
  blocked(asked, "u1");
  granted_after(asked, [&] { holder.strike(); });
  granted(asked);
}

TEST_P(Pids, the_same_number_in_two_namespaces_is_two_processes) {  // B5
  HIERLOCK_NEEDS_RIGHT(make_process_namespace);
  ProcessParty &one = process("one", {.own_pid_namespace = true, .own_proc = true}),
               &two = process("two", {.own_pid_namespace = true, .own_proc = true});
  granted(one.acquire("u1"));
  const Outcome kept = granted(two.acquire("u2"));
  one.kill();
  Party& other = party("other");
  granted(other.acquire("u1", {.timeout = patience}));
  refused(other.acquire("u2", {.timeout = death_bound * 2}), ErrorKind::timeout);
  EXPECT_TRUE(two.holds(kept));
  Pending asked = other.acquire("u2");
  blocked(asked, "u2");
  granted_after(asked, [&] { two.strike(); });
  granted(asked);
}

HIERLOCK_ON_SHM(Pids);

}  // namespace
}  // namespace hierlock::conformance
