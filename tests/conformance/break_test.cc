// Breaking: an operator takes a lock away. What lies above it stays its holder's until that lets go.
#include <future>
#include <memory>

#include "support/shm_table.h"
#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Break : public testing::Test {
 protected:
  // The lock on u1/a1/r1 is broken, and its holder has not let go.
  void expect_only_the_target_to_be_free() {
    EXPECT_TRUE(operators.try_acquire("u1/a1/r1"));
    for (const char* above : {"u1/a1", "u1"}) {
      EXPECT_FALSE(operators.try_acquire(above)) << above << " is given away, and its holder has not let go";
    }
  }
  void expect_all_to_be_free() { EXPECT_TRUE(operators.try_acquire("u1", 5s)); }

  const TemporaryFolder folder;
  const std::string url = "shm://" + folder.path() + "/table";
  Locker operators = open(url);
};

TEST_F(Break, what_lies_above_is_not_free_before_the_release) {
  Locker locker = open(url);
  Lock lock = locker.acquire("u1/a1/r1");
  ASSERT_EQ(operators.break_locks("u1/a1/r1", "a test"), 1u);
  EXPECT_FALSE(lock.held());
  expect_only_the_target_to_be_free();
  lock.release();
  expect_all_to_be_free();
}

// The break comes when the extend has failed already, and before its caller knows.
TEST_F(Break, what_lies_above_is_not_free_after_an_extend_that_failed_just_before) {
  const Lock in_the_way = operators.acquire("u2");
  std::stop_source cancelled;
  const std::vector<std::pair<AcquireOptions, ErrorKind>> failures{
      {{.timeout = 0s}, ErrorKind::busy},
      {{.timeout = 5ms}, ErrorKind::timeout},
      {{.timeout = 10s, .cancel = cancelled.get_token()}, ErrorKind::cancelled},
  };
  for (const auto& [options, kind] : failures) {
    std::size_t broken = 0;
    Locker locker = open(url, {.on_event = [&](const Event& event) {
                           if (event.kind == Event::Kind::wait_begins && kind == ErrorKind::cancelled)
                             cancelled.request_stop();
                           if (event.error) broken += operators.break_locks("u1/a1/r1", "a test");
                         }});
    for (const bool was_shared : {false, true}) {
      Lock lock = locker.acquire(was_shared ? shared("u1/a1/r1") : Target("u1/a1/r1"));
      broken = 0;
      const auto extend = [&] {
        lock.extend("u2", options);
        return 0;
      };
      EXPECT_EQ(kind_thrown_by(extend), kind);
      ASSERT_EQ(broken, 1u) << to_string(kind);
      EXPECT_FALSE(lock.held());
      expect_only_the_target_to_be_free();
      lock.release();
      expect_all_to_be_free();
    }
  }
}

TEST_F(Break, what_lies_above_is_not_free_after_an_extend_that_was_lost) {
  const Lock in_the_way = operators.acquire("u2");
  auto locker = std::make_unique<Locker>(open(url));
  Lock lock = locker->acquire("u1/a1/r1");
  auto extends = std::async(std::launch::async, [&] {
    return kind_thrown_by([&] {
      lock.extend("u2");
      return 0;
    });
  });
  ASSERT_TRUE(eventually([&] { return !operators.snapshot().waiters.empty(); }));
  EXPECT_EQ(operators.break_locks("u1/a1/r1", "a test"), 1u);
  EXPECT_EQ(extends.get(), ErrorKind::lost);
  EXPECT_FALSE(lock.held());
  expect_only_the_target_to_be_free();
  locker.reset();  // a Lock may outlive it
  expect_only_the_target_to_be_free();
  lock.release();
  expect_all_to_be_free();
}

}  // namespace
}  // namespace hierlock::conformance
