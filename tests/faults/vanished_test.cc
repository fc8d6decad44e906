// Vanished: the file goes, or changes, under processes that use it. Their locks are lost, and they are told (B4).
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "faults.h"
#include "support/rights.h"

namespace hierlock::conformance {
namespace {

namespace fs = std::filesystem;

class Vanished : public Faults {
 protected:
  static constexpr std::chrono::nanoseconds notice_bound = 1s * slowness;

  static bool is_loss(const std::optional<ErrorKind>& kind) {
    return kind == ErrorKind::lost || kind == ErrorKind::unavailable;
  }

  // What must be so after `blow`: for a lock and a wait in another process, for those of this one, and for who comes
  // afterwards.
  void everybody_loses_after(const std::function<void()>& blow) {
    ProcessParty &holder = process("holder"), &waiter = process("waiter");
    const Outcome held = granted(holder.acquire("u1/a1"));
    EXPECT_FALSE(holder.lost(held));
    Pending asked = waiter.acquire("u1/a1");
    blocked(asked, "u1/a1");
    Lock mine = locker().acquire("u2");
    const std::stop_token lost = mine.lost();
    EXPECT_FALSE(lost.stop_requested());
    const Unrest unrest;
    const auto start = Clock::now();
    blow();

    EXPECT_TRUE(eventually([&] { return !mine.held(); }));
    EXPECT_TRUE(eventually([&] { return lost.stop_requested(); }));
    EXPECT_TRUE(eventually([&] { return !holder.holds(held); }));
    EXPECT_TRUE(holder.lost(held));
    const Outcome of_waiter = result(asked);
    EXPECT_TRUE(is_loss(of_waiter.error)) << of_waiter;
    EXPECT_LT(Clock::now() - start, notice_bound + unrest.worst() + late_bound);

    EXPECT_EQ(kind_thrown_by([&] { return mine.fence(); }), ErrorKind::lost);
    EXPECT_TRUE(is_loss(kind_thrown_by([&] { return locker().acquire("u3", {.timeout = 1s}); })));
    EXPECT_TRUE(is_loss(kind_thrown_by([&] { return locker().try_acquire("u2"); })));
    for (ProcessParty* one : {&holder, &waiter}) {
      const Outcome next = result(one->acquire("u4", {.timeout = 1s}));
      EXPECT_TRUE(is_loss(next.error)) << one->name() << ": " << next;
    }
    mine.release();
    holder.release(held);
    last_fence_ = held.fence;
  }

  // Who opens it now gets a table that works, and that the losers do not touch.
  void a_new_table_works(bool made_now = true) {
    Locker fresh = table().open({});
    const Lock lock = fresh.acquire("u1/a1", {.timeout = 1s});
    EXPECT_TRUE(lock.held());
    if (made_now) {
      EXPECT_GT(lock.fence(), last_fence_) << "a new table goes on where the old one was";
    }
    ProcessParty late("late", table().url());
    Pending asked = late.try_acquire("u1");
    EXPECT_EQ(result(asked).error, ErrorKind::busy);
  }

 private:
  std::int64_t last_fence_ = 0;
};

TEST_P(Vanished, an_unlinked_file_means_lost) {  // B4
  everybody_loses_after([&] { fs::remove(table().file()); });
  a_new_table_works();
}

TEST_P(Vanished, a_file_replaced_by_another_table_means_lost) {  // B4
  const std::string other = table().folder() + "/other";
  { (void)hierlock::open("shm://" + other).acquire("u1"); }
  everybody_loses_after([&] { fs::rename(other, table().file()); });
  a_new_table_works(false);
}

TEST_P(Vanished, a_file_that_was_moved_away_means_lost) {  // B4
  everybody_loses_after([&] { fs::rename(table().file(), table().folder() + "/elsewhere"); });
  a_new_table_works();
}

TEST_P(Vanished, a_file_replaced_by_something_else_means_lost) {  // B4
  everybody_loses_after([&] {
    fs::remove(table().file());
    fs::create_directory(table().file());
  });
  fs::remove(table().file());
  a_new_table_works();
}

TEST_P(Vanished, a_folder_that_is_removed_means_lost) {  // B4
  everybody_loses_after([&] { fs::remove_all(table().folder()); });
}

TEST_P(Vanished, a_file_cut_short_means_lost_and_kills_nobody) {  // B4
  for (const char* how : {"to nothing", "to a page", "to half"}) {
    SCOPED_TRACE(how);
    const std::uintmax_t whole = fs::file_size((locker(), table().file()));
    const std::uintmax_t left = how == std::string("to half") ? whole / 2 : how == std::string("to a page") ? 4096 : 0;
    everybody_loses_after([&] { fs::resize_file(table().file(), left); });
    if (testing::Test::HasFailure()) return;
    start_again();
  }
}

TEST_P(Vanished, a_file_that_is_cut_short_while_everybody_is_busy_kills_nobody) {  // B4
  const std::vector<Target> targets = {"u1/a1/r1", "u1/a1", shared("u1"), named("n"), slots("s", 2), "u2/a1/r1"};
  std::mt19937 random(17);
  for (int round = 0; round < 10; ++round) {
    (void)locker();
    std::vector<Pending> asked;
    for (const char* name : {"one", "two", "three"}) {
      for (int i = 0; i < 1000; ++i) {
        const Ask ask{.timeout = 1ms, .then_release = true, .plain = i % 2 == 0};
        asked.push_back(process(name).acquire(targets[random() % targets.size()], ask));
      }
    }
    const auto end = Clock::now() + std::chrono::microseconds(random() % 3000);
    while (Clock::now() < end) std::this_thread::yield();
    fs::resize_file(table().file(), random() % 2 == 0 ? 0 : fs::file_size(table().file()) / 2);
    for (Pending& one : asked) {
      const Outcome outcome = result(one);
      ASSERT_TRUE(outcome.granted() || is_loss(outcome.error) || outcome.error == ErrorKind::timeout) << outcome;
    }
    start_again();
  }
}

// --- the file is there, but not for this process -------------------------------------------------------------

TEST_P(Vanished, who_closes_all_descriptors_loses_its_locks_and_knows) {  // B4
  ProcessParty& careless = process("careless");
  Party& other = party("other");
  const Outcome held = granted(careless.acquire("u1"));
  EXPECT_FALSE(careless.lost(held));
  const Unrest unrest;
  const auto start = Clock::now();
  careless.tell(wire::Control::close);
  EXPECT_TRUE(eventually([&] { return !careless.holds(held); }));
  EXPECT_LT(Clock::now() - start, notice_bound + unrest.worst() + late_bound);
  EXPECT_TRUE(careless.lost(held));
  refused(other.acquire("u1", {.timeout = death_bound}), ErrorKind::timeout);
  if (tests::has_right(tests::Right::make_process_namespace)) {  // where its number says nothing, too
    refused(process("there", {.own_pid_namespace = true}).acquire("u1", {.timeout = death_bound}), ErrorKind::timeout);
  }
  const Outcome next = result(careless.acquire("u2", {.timeout = 1s}));
  EXPECT_TRUE(is_loss(next.error)) << next;
  careless.kill();
  granted(other.acquire("u1", {.timeout = patience}));
}

// As daemons do, and then what the error says: open it again. The number of the old descriptor is the new one's.
TEST_P(Vanished, who_closed_the_descriptor_and_opens_the_table_again_has_a_table_that_lasts) {  // B4
  (void)locker();
  for (const bool lets_go_before : {true, false}) {
    const std::string complaints = in_forked_child([&](Complaints& child) {
      Locker own = table().open({});
      Lock old = own.acquire("u1");
      for (const int number : descriptors_of(table().file())) ::close(number);
      child.unless(eventually([&] { return !old.held(); }), "it does not find out");
      if (lets_go_before) old.release();
      own = table().open({});
      const Lock lock = own.acquire("u3", {.timeout = 1s});
      old.release();
      // Long enough for a loss to be noticed.
      std::this_thread::sleep_for(notice_bound);
      child.unless(lock.held(), "the new lock is lost");
      child.unless(own.try_acquire("u4", 1s).has_value(), "the new table does not work");
    });
    EXPECT_EQ(complaints, "") << (lets_go_before ? "with the old lock released before" : "with the old lock kept");
  }
}

TEST_P(Vanished, a_file_that_gets_the_number_of_the_tables_is_left_alone) {  // B4
  (void)locker();
  const std::string stranger = table().folder() + "/stranger";
  const std::string complaints = in_forked_child([&](Complaints& child) {
    std::optional<Locker> own = table().open({});
    std::optional<Lock> lock = own->acquire("u1");
    const std::vector<int> numbers = descriptors_of(table().file());
    child.unless(numbers.size() == 1, "which is it?");
    const int opened = ::open(stranger.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const int number = ::dup3(opened, numbers.at(0), O_CLOEXEC);
    // Enough that the table needs more memory of its file, as long as it does not know yet.
    for (int i = 0; i < 5000; ++i) (void)kind_thrown_by([&] { return own->try_acquire(named(std::to_string(i))); });
    child.unless(eventually([&] { return !lock->held(); }), "it does not find out");
    lock.reset();
    own.reset();
    struct stat info {};
    child.unless(::fstat(number, &info) == 0, "it was closed");
    child.unless(info.st_size == 0 && info.st_blocks == 0, "it was given memory");
    struct flock any {};
    any.l_type = F_WRLCK;
    const int other = ::open(stranger.c_str(), O_RDWR | O_CLOEXEC);
    child.unless(::fcntl(other, F_OFD_GETLK, &any) == 0 && any.l_type == F_UNLCK, "it was locked");
  });
  EXPECT_EQ(complaints, "");
}

TEST_P(Vanished, a_process_without_proc_takes_nothing_away_from_others) {
  HIERLOCK_NEEDS_RIGHT(mount);
  ProcessParty& holder = process("holder");
  const Outcome held = granted(holder.acquire("u1"));
  const Lock mine = locker().acquire("u2");
  const std::string complaints = in_forked_child([&](Complaints& child) {
    child.unless(::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                     ::mount("hidden", "/proc", "tmpfs", 0, nullptr) == 0,
                 "cannot hide /proc");
    try {
      Locker own = table().open({});
      child.unless(!own.try_acquire("u1").has_value() && !own.try_acquire("u2").has_value(), "it excludes nobody");
      child.unless(own.try_acquire("u3").has_value(), "it does not work");
    } catch (const Error&) {  // or it says that it cannot
    }
  });
  EXPECT_EQ(complaints, "");
  refused(party("other").acquire_all({"u1", "u2"}, {.timeout = death_bound * 2}), ErrorKind::timeout);
  EXPECT_TRUE(mine.held());
  EXPECT_TRUE(holder.holds(held));
}

TEST_P(Vanished, a_table_scribbled_over_kills_nobody_and_delays_nobodys_timeout) {  // B5
  const std::vector<Target> targets = {"u1/a1/r1", "u1/a1", shared("u1"), named("n"), slots("s", 2), "u2/a1/r1"};
  std::string seed;
  std::mt19937 random = random_numbers(seed);
  SCOPED_TRACE("HIERLOCK_SEED=" + seed);
  for (int round = 0; round < 20 / slowness; ++round) {
    (void)locker();
    std::vector<Pending> asked;
    for (const char* name : {"one", "two", "three"}) {
      for (int i = 0; i < 300; ++i) {
        const Ask ask{.timeout = 1ms, .then_release = i % 3 != 0, .plain = i % 2 == 0};
        asked.push_back(process(name).acquire(targets[random() % targets.size()], ask));
      }
    }
    const int fd = ::open(table().file().c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    for (int i = 0; i < 200; ++i) {
      // Where there is something: most of the file has never been written.
      const off_t data = ::lseek(fd, static_cast<off_t>(random() % fs::file_size(table().file())), SEEK_DATA);
      const std::uint32_t noise[2] = {static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random())};
      const off_t at = std::max<off_t>(data < 0 ? 0 : data, 0) + static_cast<off_t>(random() % 4096 / 8 * 8);
      (void)!::pwrite(fd, noise, random() % 2 == 0 ? 8 : 1, std::max<off_t>(at, 4096));
    }
    ::close(fd);
    for (Pending& one : asked) {
      if (!eventually([&] { return one.ready(); })) FAIL() << one.by->name() << " hangs at " << one.asked;
      (void)one.result.get();
    }
    start_again();
  }
}

HIERLOCK_ON_SHM(Vanished);

}  // namespace
}  // namespace hierlock::conformance
