// Fork: a child does not own what its parent holds, and does not hide its parent's death (B5, B6).
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "faults.h"
#include "support/rights.h"

namespace hierlock::conformance {
namespace {

// How the child is made. A bare clone runs no atfork handlers: as some runtimes and all container tools do it.
enum class Birth { fork, bare_clone, fork_and_exec };

pid_t bear(Birth birth) {
  return birth == Birth::bare_clone ? static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) : ::fork();
}

// A process that holds u1/a1, and its child. Both live until they are killed, or this is gone.
class Family {
 public:
  struct Child {
    bool uses_handles = false;  // its parent's; it should find them inert
    std::string takes{};        // through a Locker of its own
  };

  Family(const std::string& url, Birth birth) : Family(url, birth, Child()) {}
  Family(const std::string& url, Birth birth, const Child& child) {
    int report[2], leash[2];
    if (::pipe2(report, O_CLOEXEC) != 0 || ::pipe2(leash, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    parent_ = ::fork();
    if (parent_ == 0) {
      ::close(leash[1]);
      Locker locker = open(url);
      Lock lock = locker.acquire("u1/a1", {.note = "parent"});
      if (bear(birth) == 0) {
        if (birth == Birth::fork_and_exec) exec_holder(report[1], leash[0]);
        const std::string text = told_by_child(url, lock, locker, child);
        (void)!::write(report[1], text.data(), text.size());
      }
      ::close(report[1]);
      wait_for(leash[0]);
      ::_exit(0);
    }
    ::close(report[1]);
    ::close(leash[0]);
    leash_ = leash[1];
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(report[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(n));
    ::close(report[0]);
    const std::size_t end = text.find('\n');
    if (end == std::string::npos) throw std::runtime_error("the child said nothing");
    child_ = static_cast<pid_t>(std::stol(text));
    complaints_ = text.substr(end + 1);
  }

  ~Family() {
    ::close(leash_);
    if (!killed_) reap(parent_);
    (void)eventually([&] { return !alive(child_); });
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  const std::string& complaints() const { return complaints_; }
  pid_t parent() const { return parent_; }
  bool child_lives() const { return alive(child_); }

  void kill_parent() {
    ::kill(parent_, SIGKILL);
    reap(parent_);
    killed_ = true;
  }

 private:
  // The other end of the leash is closed when whoever holds it is gone.
  static void wait_for(int leash) {
    pollfd end{leash, 0, 0};
    while (::poll(&end, 1, -1) <= 0 || (end.revents & POLLHUP) == 0) {
    }
  }

  static std::string told_by_child(const std::string& url, Lock& lock, Locker& locker, const Child& child) {
    Complaints complaints;
    const auto lost = [](const std::function<void()>& work) {
      return kind_thrown_by([&] {
               work();
               return 0;
             }) == ErrorKind::lost;
    };
    if (child.uses_handles) {
      complaints.unless(!lock.held(), "held() is true in the child");
      complaints.unless(lost([&] { (void)lock.fence(); }), "fence() does not throw lost in the child");
      complaints.unless(lost([&] { (void)locker.try_acquire("u2"); }), "try_acquire() does not throw lost there");
      lock.release();
    }
    if (!child.takes.empty()) {
      // Both stay for as long as the child lives.
      static Locker* const locker_of_its_own = new Locker(open(url));
      static Lock* const lock_of_its_own = new Lock(locker_of_its_own->acquire(child.takes, {.note = "child"}));
      complaints.unless(lock_of_its_own->held(), "a lock of its own is not held");
    }
    return std::to_string(::syscall(SYS_getpid)) + "\n" + complaints.text();
  }

  // A program that knows nothing of the table, and has whatever was left open for it.
  [[noreturn]] static void exec_holder(int report, int leash) {
    const std::string text = std::to_string(::getpid()) + "\n";
    (void)!::write(report, text.data(), text.size());
    if (::dup2(leash, STDIN_FILENO) >= 0 && ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO) >= 0) {
      ::execl(HIERLOCK_HOLDER, HIERLOCK_HOLDER, "memory:", nullptr);
    }
    ::_exit(127);
  }

  pid_t parent_ = 0, child_ = 0;
  int leash_ = -1;
  bool killed_ = false;
  std::string complaints_;
};

std::string command_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class ForkFaults : public Faults {
 protected:
  void the_death_of_a_parent_is_noticed_while_its_child_lives(Birth birth) {
    Family family((locker(), table().url()), birth);
    EXPECT_EQ(family.complaints(), "");
    Party& waiter = party("waiter");
    refused(waiter.acquire("u1/a1", {.timeout = death_bound * 2}), ErrorKind::timeout);
    Pending asked = waiter.acquire("u1/a1");
    blocked(asked, "u1/a1");
    granted_after(asked, [&] { family.kill_parent(); });
    granted(asked);
    EXPECT_TRUE(family.child_lives());
  }
};

TEST_P(ForkFaults, the_death_of_a_parent_is_noticed_while_its_forked_child_lives) {  // B5, B6
  the_death_of_a_parent_is_noticed_while_its_child_lives(Birth::fork);
}

TEST_P(ForkFaults, the_death_of_a_parent_is_noticed_while_its_cloned_child_lives) {  // B5, B6
  the_death_of_a_parent_is_noticed_while_its_child_lives(Birth::bare_clone);
}

TEST_P(ForkFaults, the_death_of_a_parent_is_noticed_while_a_program_it_started_lives) {  // B5
  the_death_of_a_parent_is_noticed_while_its_child_lives(Birth::fork_and_exec);
}

// Where process numbers say nothing the kernel alone can tell, and what a child inherits must not keep it from that.
TEST_P(ForkFaults, the_death_of_a_parent_is_noticed_in_another_namespace_too) {  // B5
  HIERLOCK_NEEDS_RIGHT(make_process_namespace);
  Family family((locker(), table().url()), Birth::fork);
  ProcessParty& waiter = process("waiter", {.own_pid_namespace = true, .own_proc = true});
  refused(waiter.acquire("u1/a1", {.timeout = death_bound}), ErrorKind::timeout);
  Pending asked = waiter.acquire("u1/a1", {.timeout = patience / 4});
  blocked(asked, "u1/a1");
  granted_after(asked, [&] { family.kill_parent(); });
  granted(asked);
  EXPECT_TRUE(family.child_lives());
}

TEST_P(ForkFaults, what_the_child_took_itself_outlives_its_parent) {  // B5, B6
  for (const Birth birth : {Birth::fork, Birth::bare_clone}) {
    SCOPED_TRACE(birth == Birth::fork ? "fork" : "clone");
    Family family((locker(), table().url()), birth, {.takes = "u2"});
    EXPECT_EQ(family.complaints(), "");
    Party& waiter = party("waiter");
    refused(waiter.try_acquire("u2"), ErrorKind::busy);
    family.kill_parent();
    waiter.release(granted(waiter.acquire("u1/a1", {.timeout = patience})));
    refused(waiter.acquire("u2", {.timeout = death_bound * 2}), ErrorKind::timeout);
    EXPECT_TRUE(family.child_lives());
  }
}

TEST_P(ForkFaults, the_handles_of_a_forked_child_are_inert_and_its_parent_keeps_its_lock) {  // B6
  const Family family((locker(), table().url()), Birth::fork, {.uses_handles = true});
  EXPECT_EQ(family.complaints(), "");
  refused(party("other").acquire("u1/a1", {.timeout = death_bound * 2}), ErrorKind::timeout);
}

TEST_P(ForkFaults, the_handles_of_a_cloned_child_are_inert_and_its_parent_keeps_its_lock) {  // B6
  const Family family((locker(), table().url()), Birth::bare_clone, {.uses_handles = true});
  EXPECT_EQ(family.complaints(), "");
  refused(party("other").acquire("u1/a1", {.timeout = death_bound * 2}), ErrorKind::timeout);
}

TEST_P(ForkFaults, a_parent_keeps_its_locks_when_its_child_ends) {  // B6
  Lock lock = locker().acquire("u1");
  for (const Birth birth : {Birth::fork, Birth::bare_clone}) {
    const pid_t child = bear(birth);
    if (child == 0) ::_exit(0);
    EXPECT_EQ(reap(child), 0);
  }
  Party& other = party("other");
  refused(other.acquire("u1", {.timeout = death_bound * 2}), ErrorKind::timeout);
  EXPECT_TRUE(lock.held());
  lock.release();
  granted(other.try_acquire("u1"));
}

TEST_P(ForkFaults, the_number_of_a_dead_parent_that_is_used_again_hides_nothing) {  // B5
  HIERLOCK_NEEDS_RIGHT(choose_process_number);
  Family family((locker(), table().url()), Birth::bare_clone);
  Pending asked = party("waiter").acquire("u1/a1");
  blocked(asked, "u1/a1");
  // A process is told from a later one of its number by when it began, in ticks of the clock: let one pass.
  const auto tick = std::chrono::nanoseconds(1s) / ::sysconf(_SC_CLK_TCK);
  std::this_thread::sleep_for(2 * tick);
  // Nobody must have the time to notice before the number is used again.
  process("waiter").stop();
  family.kill_parent();
  const ProcessParty stranger("stranger", "memory:", {.pid = family.parent()});
  EXPECT_EQ(stranger.pid(), family.parent());
  granted_after(asked, [&] { process("waiter").go_on(); });
  granted(asked);
  EXPECT_TRUE(family.child_lives());
}

// What `hierlock exec` does for its command.
TEST_P(ForkFaults, who_has_the_lifeline_of_a_killed_process_keeps_its_locks_and_gives_them_back_at_its_end) {  // B5
  const std::string url = (locker(), table().url());
  int report[2], leash[2];
  ASSERT_EQ(::pipe2(report, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(leash, O_CLOEXEC), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    ::close(leash[1]);
    Locker own = open(url);
    const Lock held = own.acquire("u1/a1"), read = own.acquire(shared("u2"));
    if (::dup(own.lifeline()) < 0) ::_exit(1);
    if (::fork() == 0) {
      char nothing = 0;
      (void)!::write(report[1], "h", 1);
      (void)!::read(leash[0], &nothing, 1);
      ::_exit(0);
    }
    for (;;) ::pause();
  }
  ::close(report[1]);
  ::close(leash[0]);
  char holds = 0;
  EXPECT_EQ(::read(report[0], &holds, 1), 1);
  ::close(report[0]);
  Party &waiter = party("waiter"), &other = party("other");
  Pending asked = waiter.acquire_all({"u1", "u2"});
  blocked(asked);
  ::kill(parent, SIGKILL);
  reap(parent);
  refused(other.acquire("u1/a1", {.timeout = death_bound * 2}), ErrorKind::timeout);
  refused(other.try_acquire("u2/a1"), ErrorKind::busy);
  granted(other.acquire("u3/a1", {.timeout = patience}));
  blocked(asked);
  granted_after(asked, [&] { ::close(leash[1]); });
  granted(asked);
}

// A program that starts itself anew keeps its number and the time it began; what it held, it does not hold any more.
TEST_P(ForkFaults, a_process_that_execs_gives_back_what_it_held_though_it_opens_the_table_again) {  // B5
  const std::string url = (locker(), table().url());
  int report[2], leash[2];
  ASSERT_EQ(::pipe2(report, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(leash, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    Locker own = open(url);
    const Lock lock = own.acquire("u1/a1", {.note = "before exec"});
    (void)!::write(report[1], "h", 1);
    if (::dup2(leash[0], STDIN_FILENO) >= 0 && ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO) >= 0) {
      ::execl(HIERLOCK_HOLDER, HIERLOCK_HOLDER, url.c_str(), nullptr);
    }
    ::_exit(127);
  }
  ::close(leash[0]);
  ::close(report[1]);
  char held = 0;
  EXPECT_EQ(::read(report[0], &held, 1), 1) << "it did not get the lock";
  ::close(report[0]);
  EXPECT_TRUE(eventually([&] { return command_of(child).find("hierlock_holder") != std::string::npos; }));
  const Outcome outcome = result(party("other").acquire("u1", {.timeout = patience / 2}));
  EXPECT_TRUE(outcome.granted()) << outcome << "\n" << state();
  ::close(leash[1]);
  EXPECT_EQ(reap(child), 0);
}

HIERLOCK_ON_SHM(ForkFaults);

}  // namespace
}  // namespace hierlock::conformance
