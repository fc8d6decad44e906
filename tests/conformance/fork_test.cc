// Fork: a child's handles are inert and touch nothing of the parent's (B6).
#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Fork : public Conformance {
 protected:
  static bool throws_lost(const std::function<void()>& work) {
    return kind_thrown_by([&] {
             work();
             return 0;
           }) == ErrorKind::lost;
  }
};

TEST_P(Fork, the_childs_handles_are_inert_and_the_parent_keeps_its_lock) {
  Party& bob = party("bob");
  Lock lock = locker().acquire("u1/a1");
  const std::int64_t fence = lock.fence();
  const std::string complaints = in_forked_child([&](Complaints& child) {
    child.unless(!lock.held(), "held() is true in the child");
    child.unless(throws_lost([&] { (void)lock.fence(); }), "fence() does not throw lost");
    child.unless(throws_lost([&] { lock.extend("u2"); }), "extend() does not throw lost");
    child.unless(throws_lost([&] { lock.give_to_this_thread(); }), "give_to() does not throw lost");
    lock.release();
    lock.release();
    child.unless(!lock.held(), "held() is true after release");
  });
  EXPECT_EQ(complaints, "");
  EXPECT_TRUE(lock.held());
  EXPECT_EQ(lock.fence(), fence);
  refused(bob.try_acquire("u1"), ErrorKind::busy);
  lock.release();
  granted(bob.try_acquire("u1"));
}

TEST_P(Fork, destroying_everything_in_the_child_touches_nothing) {
  Party& bob = party("bob");
  std::optional<Locker> mine = table().open();
  std::optional<Owner> owner = mine->owner("task");
  std::optional<Lock> lock = mine->acquire("u1", {.owner = &*owner});
  const std::string complaints = in_forked_child([&](Complaints&) {
    lock.reset();
    owner.reset();
    mine.reset();
  });
  EXPECT_EQ(complaints, "");
  EXPECT_TRUE(lock->held());
  EXPECT_FALSE(elsewhere([&] { return mine->try_acquire("u1").has_value(); }));
  granted(bob.acquire("u9"));
}

TEST_P(Fork, acquiring_through_the_parents_locker_throws_lost) {
  (void)locker().acquire("u1");  // so that the parent's thread is known to the store
  const std::string complaints = in_forked_child([&](Complaints& child) {
    child.unless(throws_lost([&] { (void)locker().acquire("u2"); }), "acquire does not throw lost");
    child.unless(throws_lost([&] { (void)locker().acquire({"u2", "u3"}); }), "acquire of many does not throw lost");
    child.unless(throws_lost([&] { (void)locker().try_acquire("u2"); }), "try_acquire does not throw lost");
    child.unless(throws_lost([&] { (void)locker().acquire(apart("n"), {.timeout = 1ms}); }),
                 "a timed acquire does not throw lost");
  });
  EXPECT_EQ(complaints, "");
  EXPECT_TRUE(nothing_left()) << state();
  EXPECT_TRUE(locker().acquire("u2").held());
}

TEST_P(Fork, a_new_locker_works_in_the_child) {
#if defined(__SANITIZE_THREAD__)
  if (can().across_machines) {
    HIERLOCK_NOT_APPLICABLE() << "gcc 12's thread sanitizer ends a forked child that makes the parent's thread anew";
  }
#endif
  const Lock lock = locker().acquire("u1");
  const std::string complaints = in_forked_child([&](Complaints& child) {
    Locker fresh = table().open();
    const Lock own = fresh.acquire("u2/a1");
    child.unless(own.held(), "a new lock is not held");
    child.unless(own.fence() > 0, "a new lock has no fence");
    const bool free = fresh.try_acquire("u1").has_value();
    const bool same_table = table().one_for_all_lockers() && can().across_processes;
    child.unless(free != same_table, free ? "the parent's lock excludes nobody" : "u1 is not free");
  });
  EXPECT_EQ(complaints, "");
  EXPECT_TRUE(lock.held());
}

TEST_P(Fork, a_fork_in_the_middle_of_a_wait_disturbs_nobody) {
  Party &alice = party("alice"), &bob = party("bob");
  const Outcome held = granted(alice.acquire("u1"));
  Pending asked = bob.acquire("u1");
  blocked(asked, "u1");
  const std::string complaints = in_forked_child([&](Complaints& child) {
    child.unless(throws_lost([&] { (void)locker().try_acquire("u2"); }), "try_acquire does not throw lost");
  });
  EXPECT_EQ(complaints, "");
  blocked(asked, "u1");
  alice.release(held);
  granted(asked);
}

TEST_P(Fork, a_mutex_of_the_parent_is_inert_in_the_child) {
  Mutex mutex(locker(), "u1");
  mutex.lock();
  const std::string complaints = in_forked_child([&](Complaints& child) {
    child.unless(throws_lost([&] { (void)mutex.fence(); }), "fence() does not throw lost");
    mutex.unlock();
    child.unless(throws_lost([&] { (void)mutex.try_lock(); }), "try_lock() does not throw lost");
  });
  EXPECT_EQ(complaints, "");
  EXPECT_GT(mutex.fence(), 0);
  EXPECT_FALSE(elsewhere([&] { return mutex.try_lock(); }));
  mutex.unlock();
  EXPECT_TRUE(nothing_left()) << state();
}

HIERLOCK_ON_EVERY_BACKEND(Fork);

}  // namespace
}  // namespace hierlock::conformance
