// hierlock exec with real commands, real signals, real kills.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tool.h"

namespace tooltest {
namespace {

using std::chrono::steady_clock;

// A shell script that says `ready` and then does nothing until it is told to.
constexpr const char* idle = "echo ready; while :; do sleep 0.02; done";

std::vector<std::string> exec_sh(const std::string& script, std::vector<std::string> targets = {"u1/a1"}) {
  targets.insert(targets.begin(), "exec");
  for (const std::string word : {"--", "/bin/sh", "-c"}) targets.push_back(word);
  targets.push_back(script);
  return targets;
}

// The state letter of a process, or 0 if there is none.
char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t end = text.rfind(')');
  return end == std::string::npos ? '\0' : text[end + 2];
}

// The number that a command has printed after `pid `.
pid_t pid_in(const std::string& text) {
  const std::size_t at = text.find("pid ");
  return at == std::string::npos ? -1 : static_cast<pid_t>(std::stol(text.substr(at + 4)));
}

TEST(Exec, runs_the_command_with_its_streams_and_gives_its_exit_code) {
  const Store store;
  Running running(exec_sh("cat; echo complaint >&2; exit 7"), {.url = store.url(), .input = "from stdin"});
  const Result result = running.ends();
  EXPECT_EQ(result.code, 7);
  EXPECT_EQ(result.out, "from stdin");
  EXPECT_EQ(result.err, "complaint\n");
}

TEST(Exec, reads_nothing_of_the_input_itself) {
  const Store store;
  const Result result = run_program(
      {"/bin/sh", "-c", "printf 'one\\ntwo\\n' | { hierlock exec u1 -- head -c 4; echo -; cat; }"}, store.url());
  EXPECT_EQ(result.out, "one\n-\ntwo\n") << result.err;
}

TEST(Exec, arguments_of_the_command_are_its_own) {
  const Store store;
  const Result result =
      run({"exec", "u1", "--", "printf", "[%s]", "--help", "--", "", "[a,b]", "\x01", "--on"}, store.url());
  EXPECT_EQ(result.out, "[--help][--][][[a,b]][\x01][--on]") << result.err;
}

TEST(Exec, the_fence_is_in_the_environment_and_rises) {
  const Store store;
  long long last = 0;
  for (int i = 0; i < 3; ++i) {
    const Result result = run(exec_sh("echo $HIERLOCK_FENCE"), store.url());
    ASSERT_EQ(result.code, 0) << result.err;
    const long long fence = std::stoll(result.out);
    EXPECT_GT(fence, last);
    last = fence;
  }
  // Of an exec inside another: its own.
  const Result nested =
      run(exec_sh("echo $HIERLOCK_FENCE; hierlock exec u2 -- sh -c 'echo $HIERLOCK_FENCE'"), store.url());
  std::istringstream lines(nested.out);
  std::string outer;
  std::string inner;
  lines >> outer >> inner;
  EXPECT_NE(outer, "");
  EXPECT_NE(inner, "");
  EXPECT_NE(outer, inner);
}

TEST(Exec, a_command_that_is_not_found_is_127_and_one_that_cannot_be_run_is_126) {
  const Store store;
  for (const auto& [command, code] :
       {std::pair{"no-such-command", 127}, {"/no/such/command", 127}, {"", 127}, {"/etc/passwd", 126}, {"/", 126}}) {
    const Result result = run({"exec", "u1", "--", command}, store.url());
    EXPECT_EQ(result.code, code) << command;
    EXPECT_TRUE(result.err.starts_with("hierlock: cannot run ")) << result.err;
  }
  EXPECT_EQ(run({"exec", "u1", "--no-wait", "--", "true"}, store.url()).code, 0) << "nothing is left behind";
}

TEST(Exec, a_script_without_a_first_line_is_run_by_the_shell) {
  const Store store;
  const std::string script = store.folder() + "/script";
  std::ofstream(script) << "echo from the script\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  EXPECT_EQ(run({"exec", "u1", "--", script}, store.url()).out, "from the script\n");
}

TEST(Exec, a_command_that_a_signal_ends_is_128_and_its_number) {
  const Store store;
  for (const int signal : {SIGKILL, SIGTERM, SIGSEGV, SIGUSR1}) {
    EXPECT_EQ(run(exec_sh("kill -" + std::to_string(signal) + " $$"), store.url()).code, 128 + signal);
  }
}

TEST(Exec, commands_that_end_at_once_are_noticed) {
  const Store store;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(run({"exec", "u1", "--", "false"}, store.url()).code, 1);
}

TEST(Exec, signals_are_passed_on_to_the_command) {
  const Store store;
  for (const auto& [name, signal] : {std::pair{"HUP", SIGHUP},
                                     {"INT", SIGINT},
                                     {"QUIT", SIGQUIT},
                                     {"TERM", SIGTERM},
                                     {"ALRM", SIGALRM},
                                     {"USR1", SIGUSR1},
                                     {"USR2", SIGUSR2}}) {
    const std::string trap = std::string("trap 'echo got ") + name + "; exit 9' " + name + "; ";
    Running caught(exec_sh(trap + idle), {.url = store.url()});
    ASSERT_TRUE(caught.prints("ready")) << caught.err();
    caught.signal(signal);
    const Result result = caught.ends();
    EXPECT_EQ(result.code, 9) << name;
    EXPECT_EQ(result.out, std::string("ready\ngot ") + name + "\n");

    Running fatal(exec_sh(idle), {.url = store.url()});
    ASSERT_TRUE(fatal.prints("ready")) << fatal.err();
    fatal.signal(signal);
    EXPECT_EQ(fatal.ends().code, 128 + signal) << name;
  }
}

TEST(Exec, signals_that_were_ignored_stay_ignored) {  // as nohup wants it
  const Store store;
  Running running(exec_sh(idle), {.url = store.url(), .ignored = {SIGHUP, SIGINT}});
  ASSERT_TRUE(running.prints("ready"));
  running.signal(SIGHUP);
  running.signal(SIGINT);
  running.signal(SIGTERM);
  EXPECT_EQ(running.ends().code, 128 + SIGTERM);
}

TEST(Exec, the_command_finds_signals_as_the_tool_found_them) {
  const Store store;
  const std::vector<std::string> look{"grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"};
  std::vector<std::string> through{"exec", "u1", "--"};
  through.insert(through.end(), look.begin(), look.end());
  const std::vector<int> ignored{SIGCHLD, SIGPIPE, SIGUSR2, SIGTSTP};
  const std::vector<int> blocked{SIGUSR1, SIGWINCH};
  Running running(through, {.url = store.url(), .ignored = ignored, .blocked = blocked});
  const Result result = running.ends();
  EXPECT_EQ(result.code, 0) << "the exit code arrives although SIGCHLD was ignored";
  std::uint64_t expected[2] = {0, 0};
  for (const int signal : blocked) expected[0] |= std::uint64_t{1} << (signal - 1);
  for (const int signal : ignored) expected[1] |= std::uint64_t{1} << (signal - 1);
  std::istringstream lines(result.out);
  std::string name;
  std::uint64_t mask = 0;
  for (const std::uint64_t one : expected) {
    lines >> name >> std::hex >> mask;
    EXPECT_EQ(mask, one) << name;
  }
}

TEST(Exec, the_command_finds_no_signal_changed_where_none_was) {
  const Store store;
  const std::string look = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
  const Result bare = run_program({"/bin/sh", "-c", look});
  const Result through = run_program({"/bin/sh", "-c", "hierlock exec u1 -- " + look}, store.url());
  EXPECT_EQ(through.out, bare.out) << through.err;
}

TEST(Exec, streams_that_are_closed_are_closed_for_the_command_too) {
  const Store store;
  // If a number were free, the lock table could come to be the command's stdout.
  for (const std::string number : {"0", "1", "2"}) {
    const std::string command = "hierlock exec u1 -- sh -c 'test ! -e /proc/$$/fd/" + number + "' " + number + ">&-";
    EXPECT_EQ(run_program({"/bin/sh", "-c", command}, store.url()).code, 0) << command;
  }
  const Result result = run_program(
      {"/bin/sh", "-c", "hierlock exec u1 -- sh -c 'echo x; echo y >&2; exit 3' <&- >&- 2>&-; echo code $?"},
      store.url());
  EXPECT_EQ(result.out, "code 3\n");
  EXPECT_EQ(run({"exec", "--no-wait", "u1", "--", "true"}, store.url()).code, 0) << "the table is in order";
}

TEST(Exec, the_command_inherits_no_file_but_the_lifeline) {
  const Store store;
  const Result result = run(exec_sh("ls /proc/self/fd | wc -l"), store.url());
  const Result bare = run_program({"/bin/sh", "-c", "ls /proc/self/fd | wc -l"});
  EXPECT_EQ(std::stoi(result.out), std::stoi(bare.out) + 1) << result.err;
}

TEST(Exec, a_key_that_interrupts_reaches_the_command_once) {
  const Store store;
  Running running(
      exec_sh("n=0; trap 'n=$((n+1)); echo int $n' INT; trap 'echo count $n; exit 5' USR1; " + std::string(idle)),
      {.url = store.url(), .terminal = true});
  ASSERT_TRUE(running.prints("ready"));
  running.type("\x03");
  ASSERT_TRUE(running.prints("int 1"));
  running.type("\x03");
  ASSERT_TRUE(running.prints("int 2"));
  running.signal(SIGUSR1);
  const Result result = running.ends();
  EXPECT_EQ(result.code, 5);
  EXPECT_NE(result.out.find("count 2"), std::string::npos) << result.out;
}

TEST(Exec, a_key_that_interrupts_reaches_a_command_that_left_the_terminals_group) {
  const Store store;
  Running running(
      {"exec", "u1", "--", "setsid", "/bin/sh", "-c", "trap 'echo got INT; exit 9' INT; " + std::string(idle)},
      {.url = store.url(), .terminal = true});
  ASSERT_TRUE(running.prints("ready"));
  running.type("\x03");
  EXPECT_EQ(running.ends().code, 9);
}

TEST(Exec, is_stopped_and_goes_on_together_with_the_command) {
  const Store store;
  Running running(exec_sh("echo pid $$; trap 'exit 6' TERM; " + std::string(idle)), {.url = store.url()});
  ASSERT_TRUE(running.prints("ready"));
  const pid_t command = pid_in(running.out());
  running.signal(SIGTSTP);
  EXPECT_TRUE(running.stops());
  EXPECT_TRUE(eventually([&] { return state_of(command) == 'T'; }));
  running.signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return running.goes_on() && state_of(command) != 'T'; }));
  running.signal(SIGTERM);
  EXPECT_EQ(running.ends().code, 6);
}

TEST(Exec, who_does_not_wait_gets_75_or_the_code_that_was_asked_for) {
  const Store store;
  Running holder(exec_sh(idle), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  for (const std::string target : {"u1/a1", "u1", "u1/a1/r1"}) {
    const Result busy = run({"exec", "--no-wait", target, "--", "echo", "ran"}, store.url());
    EXPECT_EQ(busy.code, 75) << target;
    EXPECT_EQ(busy.out, "");
    EXPECT_EQ(busy.err,
              "hierlock: " + target + " is held or awaited by somebody else; hierlock status shows by whom\n");
    EXPECT_EQ(run({"exec", "--no-wait", "--conflict-exit-code", "0", target, "--", "echo", "ran"}, store.url()).code,
              0);
    EXPECT_EQ(run({"exec", "--timeout", "0", "--conflict-exit-code", "9", target, "--", "true"}, store.url()).code, 9);
  }
  for (const std::string target : {"u1/a2", "u2", "named \"u1/a1\""}) {
    EXPECT_EQ(run({"exec", "--no-wait", target, "--", "true"}, store.url()).code, 0) << target;
  }
}

TEST(Exec, a_wait_ends_after_its_timeout) {
  const Store store;
  Running holder(exec_sh(idle), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  const auto began = steady_clock::now();
  const Result result = run({"exec", "--timeout", "250ms", "u1", "--", "echo", "ran"}, store.url());
  EXPECT_GE(steady_clock::now() - began, std::chrono::milliseconds(250));
  EXPECT_EQ(result.code, 75);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "hierlock: u1 was not free within 250ms; hierlock status shows by whom\n");
}

TEST(Exec, whoever_waits_gets_it_when_the_holder_ends) {
  const Store store;
  Running holder(exec_sh("trap 'echo over; exit' TERM; " + std::string(idle)), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  Running waiter(exec_sh("echo mine"), {.url = store.url()});
  ASSERT_TRUE(eventually([&] {
    return run({"status", "--json"}, store.url()).out.find("\"blocked_by\": [\n") != std::string::npos;
  }));
  EXPECT_EQ(waiter.out(), "");
  holder.signal(SIGTERM);
  const Result result = waiter.ends();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "mine\n");
  EXPECT_EQ(holder.ends().code, 0);
}

TEST(Exec, many_at_once_lose_no_update) {
  const Store store;
  const std::string count = store.folder() + "/count";
  std::ofstream(count) << "0\n";
  const std::string add = "read -r n <" + count + "; echo $((n+1)) >" + count;
  const std::string loop =
      "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do hierlock exec counter -- sh -c '" + add + "'; done";
  const Result result = run_program(
      {"/bin/sh", "-c", "(" + loop + ") & (" + loop + ") & (" + loop + ") & (" + loop + ") & wait"}, store.url());
  EXPECT_EQ(result.err, "");
  int sum = 0;
  std::ifstream(count) >> sum;
  EXPECT_EQ(sum, 4 * 15);
}

TEST(Exec, shared_holders_get_along_and_keep_a_writer_out) {
  const Store store;
  Running one(exec_sh(idle, {"--shared", "u1"}), {.url = store.url()});
  Running two(exec_sh(idle, {"--shared", "u1"}), {.url = store.url()});
  ASSERT_TRUE(one.prints("ready") && two.prints("ready"));
  EXPECT_EQ(run({"exec", "--no-wait", "u1/a1/r1", "--", "true"}, store.url()).code, 75);
  EXPECT_EQ(run({"exec", "--no-wait", "--shared", "u1/a1/r1", "--", "true"}, store.url()).code, 0);
}

TEST(Exec, slots_let_in_as_many_as_there_are) {
  const Store store;
  Running one(exec_sh(idle, {"--slots", "2", "import"}), {.url = store.url()});
  Running two(exec_sh(idle, {"--slots", "2", "import"}), {.url = store.url()});
  ASSERT_TRUE(one.prints("ready") && two.prints("ready"));
  const std::vector<std::string> third{"exec", "--slots", "2", "--no-wait", "import", "--", "true"};
  EXPECT_EQ(run(third, store.url()).code, 75);
  two.signal(SIGTERM);
  EXPECT_EQ(two.ends().code, 128 + SIGTERM);
  EXPECT_EQ(run(third, store.url()).code, 0);
  EXPECT_EQ(run({"exec", "--slots", "3", "--no-wait", "import", "--", "true"}, store.url()).code, 78)
      << "two numbers of slots for one name are incompatible";
}

TEST(Exec, names_are_taken_as_they_are) {
  const Store store;
  Running holder(exec_sh(idle, {"--named", "a//b%"}), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  EXPECT_EQ(run({"exec", "--named", "--no-wait", "a//b%", "--", "true"}, store.url()).code, 75);
  EXPECT_EQ(run({"exec", "--named", "--no-wait", "a//b", "--", "true"}, store.url()).code, 0);
}

TEST(Exec, several_targets_are_all_held_or_none) {
  const Store store;
  Running holder(exec_sh(idle, {"u1", "u2/a1"}), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  for (const std::string target : {"u1", "u2"}) {
    EXPECT_EQ(run({"exec", "--no-wait", target, "--", "true"}, store.url()).code, 75) << target;
  }
  EXPECT_EQ(run({"exec", "--no-wait", "u3", "u2", "--", "true"}, store.url()).code, 75);
  EXPECT_EQ(run({"exec", "--no-wait", "u3", "--", "true"}, store.url()).code, 0) << "u3 was not kept";
}

TEST(Exec, a_signal_while_waiting_ends_it_and_nothing_is_run) {
  const Store store;
  Running holder(exec_sh(idle), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    Running waiter(exec_sh("echo ran"), {.url = store.url()});
    ASSERT_TRUE(eventually([&] {
      return run({"status", "--json"}, store.url()).out.find("\"waiters\": [\n") != std::string::npos;
    }));
    waiter.signal(signal);
    const Result result = waiter.ends();
    EXPECT_EQ(result.code, 128 + signal);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(run({"status", "--json"}, store.url()).out.find("\"waiters\": []"), std::string::npos)
        << "it has left the queue";
  }
}

TEST(Exec, signals_at_any_moment_end_it_once_and_leave_nothing_behind) {
  const Store store;
  for (int i = 0; i < 60; ++i) {
    Running running(exec_sh("echo ready; exec sleep 100"), {.url = store.url()});
    // From before its first instruction to after the command's: whatever moment it meets, the answer is the same.
    std::this_thread::sleep_for(std::chrono::microseconds(50 * i));
    running.signal(SIGTERM);
    EXPECT_EQ(running.ends().code, 128 + SIGTERM) << i;
    EXPECT_EQ(run({"exec", "--no-wait", "u1/a1", "--", "true"}, store.url()).code, 0) << i;
  }
}

TEST(Exec, the_lock_lasts_as_long_as_the_command_even_if_the_tool_is_killed) {
  const Store store;
  Running running(exec_sh("echo pid $$; " + std::string(idle)), {.url = store.url()});
  ASSERT_TRUE(running.prints("ready")) << running.err();
  const pid_t command = pid_in(running.out());
  running.signal(SIGKILL);
  EXPECT_EQ(running.ends().code, 128 + SIGKILL);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(run({"exec", "--no-wait", "u1/a1", "--", "true"}, store.url()).code, 75);
  }
  kill(command, SIGKILL);
  EXPECT_EQ(run({"exec", "--timeout", "30s", "u1/a1", "--", "true"}, store.url()).code, 0)
      << "whoever comes after the command is let in";
}

TEST(Exec, the_lock_ends_with_the_command_not_with_what_it_leaves_behind) {
  const Store store;
  Running running(exec_sh("sleep 1000 & exit 0"), {.url = store.url()});
  EXPECT_EQ(running.ends().code, 0);
  EXPECT_EQ(run({"exec", "--no-wait", "u1/a1", "--", "true"}, store.url()).code, 0);
}

TEST(Exec, a_lost_lock_ends_the_command_with_sigterm_and_is_70) {
  const Store store;
  Running running(exec_sh("trap 'echo got TERM; exit 0' TERM; " + std::string(idle)), {.url = store.url()});
  ASSERT_TRUE(running.prints("ready")) << running.err();
  EXPECT_EQ(run({"break", "--yes", "u1/a1"}, store.url()).code, 0);
  const Result result = running.ends();
  EXPECT_EQ(result.code, 70);
  EXPECT_NE(result.out.find("got TERM"), std::string::npos);
  EXPECT_NE(result.err.find("hierlock: the lock on u1/a1 is lost"), std::string::npos) << result.err;
}

TEST(Exec, a_table_that_is_taken_away_is_a_lost_lock) {
  const Store store;
  Running running(exec_sh(idle), {.url = store.url()});
  ASSERT_TRUE(running.prints("ready")) << running.err();
  ASSERT_TRUE(std::filesystem::remove(store.folder() + "/table"));
  const Result result = running.ends();
  EXPECT_EQ(result.code, 70);
  EXPECT_NE(result.err.find("the file of the lock table was removed"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("hierlock status"), std::string::npos) << "its log is gone with it\n" << result.err;
}

TEST(Exec, a_lost_lock_ends_the_command_even_if_nobody_reads_the_complaint) {
  const Store store;
  Running running(exec_sh("trap 'exit 0' TERM; " + std::string(idle)), {.url = store.url(), .broken_stderr = true});
  ASSERT_TRUE(running.prints("ready"));
  EXPECT_EQ(run({"break", "--yes", "u1/a1"}, store.url()).code, 0);
  EXPECT_EQ(running.ends().code, 70);
}

TEST(Exec, a_command_that_does_not_end_when_its_lock_is_lost_is_killed) {
  const Store store;
  Running running(exec_sh("echo pid $$; trap '' TERM; " + std::string(idle)), {.url = store.url()});
  ASSERT_TRUE(running.prints("ready")) << running.err();
  const pid_t command = pid_in(running.out());
  kill(command, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return state_of(command) == 'T'; }));
  EXPECT_EQ(run({"break", "--yes", "u1/a1"}, store.url()).code, 0);
  EXPECT_EQ(running.ends().code, 70);
  EXPECT_EQ(state_of(command), '\0');
}

TEST(Exec, a_long_wait_says_what_it_waits_for) {
  const Store store;
  Running holder(exec_sh(idle), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  Running waiter(exec_sh("echo ran", {"u1"}), {.url = store.url()});
  EXPECT_TRUE(waiter.complains("hierlock: still waiting for u1 after 10s; in the way: sh of process ")) << waiter.err();
}

TEST(Exec, the_hint_names_the_store_that_was_named) {
  const Store store;
  Running holder(exec_sh(idle), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  const std::string url = store.url();
  for (const auto& [on, hint] :
       {std::pair{url, "; hierlock --on " + url + " status shows by whom\n"},
        {url + "?mode=0600", "; hierlock --on '" + url + "?mode=0600' status shows by whom\n"}}) {
    for (const std::string wait : {"0", "10ms"}) {
      const Result result = run({"--on", on, "exec", "--timeout", wait, "u1", "--", "true"});
      EXPECT_EQ(result.code, 75);
      EXPECT_TRUE(result.err.ends_with(hint)) << result.err;
    }
  }
}

TEST(Exec, whoever_would_wait_for_its_own_parent_is_told) {
  const Store store;
  const std::string told = " is held by your own parent command, \"";
  for (const std::string target : {"u1/a1", "u1", "u1/a1/r1", "--shared u1/a1"}) {
    const Result busy = run(exec_sh("hierlock exec --no-wait " + target + " -- echo ran"), store.url());
    EXPECT_EQ(busy.code, 75) << target;
    EXPECT_NE(busy.err.find(told), std::string::npos) << busy.err;
    EXPECT_NE(busy.err.find("name all targets in one exec"), std::string::npos) << busy.err;
  }
  Running waits(exec_sh("hierlock exec u1/a1 -- echo ran; true"), {.url = store.url()});
  EXPECT_TRUE(waits.complains(told)) << waits.err();
  // One inside of a parent that is in nobody's way.
  Running holder(exec_sh(idle, {"u2"}), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  const Result other = run(exec_sh("hierlock exec -n u2 -- echo ran", {"u3"}), store.url());
  EXPECT_EQ(other.code, 75);
  EXPECT_EQ(other.err, "hierlock: u2 is held or awaited by somebody else; hierlock status shows by whom\n");
  const std::vector<std::string> slots{"--slots", "2", "import"};
  EXPECT_EQ(run(exec_sh("hierlock exec --slots 2 -n import -- echo ran", slots), store.url()).out, "ran\n");
  const std::vector<std::string> slot{"--slots", "1", "single"};
  EXPECT_NE(run(exec_sh("hierlock exec --slots 1 -n single -- echo ran", slot), store.url()).err.find(told),
            std::string::npos);
}

TEST(Exec, a_table_for_which_there_is_no_room_is_69) {
  const Store store;
  for (const auto& [limit, hint] :
       {std::pair{"-f 100", "Raise the limit (ulimit -f)"}, {"-v 1000000", "(ulimit -v)"}}) {
    const std::string command = std::string("ulimit ") + limit + " && exec hierlock exec u1 -- echo ran";
    const Result result = run_program({"/bin/sh", "-c", command}, store.url());
    EXPECT_EQ(result.code, 69) << limit << "\n" << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(hint), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(store.folder() + "/table")) << limit;
  }
  EXPECT_EQ(run({"exec", "u1", "--", "true"}, store.url()).code, 0);
  EXPECT_EQ(run_program({"/bin/sh", "-c", "ulimit -f 100 && exec hierlock exec u1 -- true"}, store.url()).code, 0)
      << "a table that is there needs not be made";
}

TEST(Exec, a_file_that_is_no_table_is_left_as_it_is) {
  const Store store;
  const std::string path = store.folder() + "/table";
  std::ofstream(path) << "precious\n";
  const Result result = run({"exec", "u1", "--", "echo", "ran"}, store.url());
  EXPECT_EQ(result.code, 78);
  EXPECT_NE(result.err.find("is not a lock table, and was left as it is"), std::string::npos) << result.err;
  std::string text;
  std::getline(std::ifstream(path), text);
  EXPECT_EQ(text, "precious");
}

TEST(Exec, the_table_of_another_user_is_not_made_for_them) {
  // Nobody has this user id: it is what -1 would be.
  const std::string path = "/dev/shm/hierlock-4294967294";
  for (const std::string name : {"", ".jobs"}) {
    for (const std::string mode : {"", "?mode=0660"}) {
      const Result result = run({"--on", "shm://" + path + name + mode, "exec", "u1", "--", "echo", "ran"});
      EXPECT_EQ(result.code, 78) << result.err;
      EXPECT_NE(result.err.find("it would be the table of user 4294967294"), std::string::npos) << result.err;
      EXPECT_FALSE(std::filesystem::exists(path + name));
    }
  }
}

TEST(Exec, a_store_that_excludes_nobody_is_said_aloud) {
  const Result result = run({"exec", "u1", "--", "echo", "ran"}, "memory:");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "ran\n");
  EXPECT_NE(result.err.find("memory: excludes nobody"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace tooltest
