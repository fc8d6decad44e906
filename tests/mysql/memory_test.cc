// An acquire that runs out of memory, wherever it does, leaves nothing behind.
#include "memory.h"

#include <utility>

#include "on_server.h"

namespace hierlock::mysql_tests {
namespace {

class Memory : public OnServer {};

TEST_P(Memory, that_is_refused_at_any_moment_of_an_acquire_leaves_no_lock_and_takes_no_connection) {  // H8
  const std::string path = std::string(40, 'u') + "/a1/r1";
  Locker locker = open("connections=1"), other = open();
  locker.acquire(path).release();  // all that is made once
  long moment = 1;
  for (bool granted = false; !granted; ++moment) {
    SCOPED_TRACE(moment);
    ASSERT_LT(moment, 1000);
    try {
      refused_allocation = moment;
      const Lock lock = locker.acquire(path);
      granted = std::exchange(refused_allocation, 0) != 0;
    } catch (const std::exception&) {
      refused_allocation = 0;
    }
    if (granted) break;
    EXPECT_TRUE(eventually([&] { return other.try_acquire(path).has_value(); })) << "somebody still has it";
    const std::optional<Error> error = error_of([&] { locker.acquire(path, {.timeout = 5s}).release(); });
    ASSERT_FALSE(error) << error->what();
  }
  EXPECT_GT(moment, 5) << "hardly anything was tried";
}

// Refuses the first allocation of `act`, then the second, until it needs no more. `recovered` is called after each.
template <class Act, class Recovered>
void refuse_each_allocation(Act act, Recovered recovered) {
  long moment = 1;
  for (bool done = false; !done; ++moment) {
    SCOPED_TRACE(moment);
    ASSERT_LT(moment, 1000);
    try {
      act(moment);
      done = std::exchange(refused_allocation, 0) != 0;
    } catch (const std::exception&) {
      refused_allocation = 0;
    }
    recovered();
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(moment, 5) << "hardly anything was tried";
}

TEST_P(Memory, that_is_refused_to_names_leaves_none_of_them_locked) {  // H8
  const std::string one(40, 'n'), two(40, 'm');
  Locker locker = open(), other = open();
  locker.acquire({named(one), named(two)}).release();  // all that is made once
  const auto all_free = [&] {
    ASSERT_TRUE(eventually([&] { return other.try_acquire({named(one), named(two)}).has_value(); }, 10s));
    const std::optional<Error> error = error_of([&] { locker.acquire(named(one), {.timeout = 10s}).release(); });
    ASSERT_FALSE(error) << error->what();
  };
  refuse_each_allocation(
      [&](long moment) {
        refused_allocation = moment;
        locker.acquire({named(one), named(two)}).release();
      },
      all_free);
  refuse_each_allocation(
      [&](long moment) {
        Lock lock = locker.acquire(named(one));
        refused_allocation = moment;
        lock.extend(named(two));
      },
      all_free);
  refuse_each_allocation(
      [&](long moment) {
        Lock lock = locker.acquire("u1");
        refused_allocation = moment;
        lock.extend(named(two));
      },
      all_free);
}

HIERLOCK_ON_BOTH_SERVERS(Memory);

}  // namespace
}  // namespace hierlock::mysql_tests
