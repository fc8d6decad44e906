// The frame of tests/conformance and tests/faults: what a store must do, asked through the public headers only. A file
// of conformance is one idea (hierarchy_test.cc, deadlock_test.cc, …); every test runs on every backend, alone, in any
// order, on a table of its own.
//
//     TEST_P(Hierarchy, account_waits_for_its_resource) {          // H13
//       Party &alice = party("alice"), &bob = party("bob");
//       const Outcome resource = granted(alice.acquire("u1/a1/r1"));
//       Pending account = bob.acquire("u1/a1");
//       blocked(account);                                          // asked from snapshot(), never guessed from a clock
//       alice.release(resource);
//       granted(account);
//     }
//
// Helpers throw when what they wait for does not happen; the message shows the store at that moment.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <hierlock/hierlock.h>

#include "support/backend.h"
#include "support/not_applicable.h"
#include "support/party.h"
#include "support/timing.h"
#include "support/watchdog.h"

namespace hierlock::conformance {

using namespace std::chrono_literals;

// A single wait may end this much later than asked, on a machine that stalls. How late waits are as a rule is judged by
// many of them: waiting_test.cc.
inline constexpr std::chrono::nanoseconds late_bound = tests::stall * slowness;

std::string describe(const Snapshot& snapshot);
std::string describe(const Capabilities& can);

// Polls until `happened` is true, at most for `patience`. The only place in the suite that waits by the clock.
bool eventually(const std::function<bool()>& happened);

// Runs `work` on a thread of its own and waits for it; what it throws is thrown here.
template <class Work>
auto elsewhere(Work work) {
  return std::async(std::launch::async, std::move(work)).get();
}

// While it lives, this thread and those it starts share one processor: who is woken does not run before its waker
// pauses, so the moment between a wake-up and what the woken does lasts long enough to act in it.
class OnOneProcessor {
 public:
  OnOneProcessor();
  ~OnOneProcessor();
  OnOneProcessor(const OnOneProcessor&) = delete;
  OnOneProcessor& operator=(const OnOneProcessor&) = delete;

 private:
  cpu_set_t processors_before_;
  int policy_before_;
};

// Runs `work` in a forked child. Returns what it complained about, and how it ended if not well; empty if all is well.
class Complaints {
 public:
  void unless(bool fine, const std::string& otherwise);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};
std::string in_forked_child(const std::function<void(Complaints&)>& work);

// The kind of Error that `work` throws; none if it throws nothing.
template <class Work>
std::optional<ErrorKind> kind_thrown_by(Work&& work) {
  try {
    (void)work();
  } catch (const Error& error) {
    return error.kind();
  }
  return std::nullopt;
}

// Its message; empty if it throws nothing.
template <class Work>
std::string message_of(Work&& work) {
  try {
    (void)work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

class Conformance : public testing::TestWithParam<Backend> {
 protected:
  Conformance();
  void SetUp() override;
  // Not in the destructor: parties may still wait, and callbacks still use what the tests have added to this class.
  void TearDown() override;

  Table& table() { return *table_; }
  // The Locker of this test, opened on first use, by any of its threads.
  Locker& locker();
  // The same, opened with options. To be called before anything else uses it.
  Locker& open_with(OpenOptions options);
  // What the store can do. Asked once a program: Capabilities.are_the_same_whenever_they_are_asked.
  const Capabilities& can();

  // A party by its name, made on first use. It may live in another process.
  Party& party(const std::string& name);
  // The same, but a thread of this process: it may be given an Owner or a stop_token, and what it does is what
  // locker().stats() counts and on_event is told of.
  Party& thread(const std::string& name);

  // What became of a request.
  Outcome result(Pending& pending);
  Outcome result(Pending&& pending) { return result(pending); }
  // It must be granted.
  Outcome granted(Pending& pending);
  Outcome granted(Pending&& pending) { return granted(pending); }
  // Either, but never a wait without end.
  void granted_or_deadlock(Pending&& pending) {
    const Outcome outcome = result(pending);
    EXPECT_TRUE(outcome.granted() || outcome.error == ErrorKind::deadlock) << outcome << '\n' << state();
  }
  // It must fail with this kind.
  Outcome refused(Pending& pending, ErrorKind kind);
  Outcome refused(Pending&& pending, ErrorKind kind) { return refused(pending, kind); }
  // It must come to wait for somebody, at the node `at` unless that is empty. Returns what the snapshot shows.
  Snapshot::Waiter blocked(const Pending& pending, std::string_view at = {});
  // Whether it waits (true) or is granted (false), whichever the store shows.
  bool waits(Pending& pending);

  // For HIERLOCK_NEEDS: notes that the test is left out for want of this, and says why.
  std::string left_out_for(bool Capabilities::*what);
  // A target that has nothing to do with the paths of a test: a name where the store has names.
  Target apart(const std::string& name) { return can().names ? named(name) : Target("apart-" + name); }

  // The request failed for what this store says it cannot do (B2).
  void expect_unsupported(const Target& target);

  // What a party holds and waits for, by the snapshot.
  std::vector<Snapshot::Holder> held_by(const Party& party);
  std::vector<Snapshot::Waiter> waits_of(const Party& party);
  // How the store calls the owner behind a party that holds or waits for something.
  std::string owner_name(const Party& party);
  std::uint64_t owner_number(const Party& party);
  // Neither holders nor waiters are left, of a party or of all.
  bool nothing_left(const Party& party);
  bool nothing_left();

  std::string state();

  // For a party that is made in a way of its own; party(name) finds it from now on.
  Party& add_party(const std::string& name, std::unique_ptr<Party> party);

 private:
  [[noreturn]] void fail(const std::string& what);
  Locker& open_now(OpenOptions options);

  std::unique_ptr<Table> table_;
  std::mutex opening_;
  std::optional<Locker> locker_;           // guarded by opening_ until it is there
  std::atomic<Locker*> opened_ = nullptr;  // for the watchdog's thread
  std::map<std::string, std::unique_ptr<Party>> parties_;
  std::optional<Watchdog> watchdog_;
};

// At the beginning of a test that is about a capability: HIERLOCK_NEEDS(fifo). A store without it skips the test, and
// the table that the suite prints at its end says so.
#define HIERLOCK_NEEDS(capability) \
  if (!can().capability) HIERLOCK_NOT_APPLICABLE() << left_out_for(&Capabilities::capability)

// A suite whose tests all need one.
template <bool Capabilities::*what>
class ConformanceWith : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (!IsSkipped() && !(can().*what)) HIERLOCK_NOT_APPLICABLE() << left_out_for(what);
  }
};

#define HIERLOCK_ON_EVERY_BACKEND(suite)                           \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite);            \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::ValuesIn(backends()), \
                           [](const testing::TestParamInfo<Backend>& backend) { return backend.param.name; })

}  // namespace hierlock::conformance
