// `hierlock exec` where the lock ends with the tool: its session is the lock.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "on_server.h"
#include "program.h"
#include "relay.h"
#include "silent.h"

#ifdef HIERLOCK_BIN

namespace hierlock::mysql_tests {
namespace {

class Exec : public OnServer {
 protected:
  // What follows a word that the command has printed.
  static pid_t pid_after(const std::string& word, const std::string& said) {
    return static_cast<pid_t>(std::stol(said.substr(said.find(word) + word.size())));
  }
  // Gone, or dead and waiting to be noticed by whoever has inherited it.
  static bool is_dead(pid_t pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    if (!std::getline(stat, text)) return true;
    return text.at(text.rfind(')') + 2) == 'Z';
  }
  bool is_free() { return open().try_acquire("u1/a1", 0s).has_value(); }
  Program exec(const std::string& script) { return exec(server(), script); }
  Program exec(const Server& as, const std::string& script) {
    return Program({HIERLOCK_BIN, "--on", url(as), "exec", "u1/a1", "--", "/bin/sh", "-c", script});
  }
};

TEST_P(Exec, the_command_does_not_outlive_the_lock_if_the_tool_is_killed) {  // B6
  Program tool = exec("echo command $$ is ready; exec sleep 1000");
  ASSERT_TRUE(tool.says("is ready")) << tool.said();
  const pid_t command = pid_after("command ", tool.said());
  EXPECT_FALSE(is_dead(command));
  EXPECT_FALSE(is_free());
  tool.signal(SIGKILL);
  EXPECT_EQ(tool.wait(), 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return is_dead(command); }));
  EXPECT_TRUE(eventually([&] { return is_free(); }));
}

TEST_P(Exec, locks_names_and_slots_while_the_command_runs) {
  const auto exec_on = [&](std::vector<std::string> what) {
    std::vector<std::string> arguments{HIERLOCK_BIN, "--on", url(), "exec"};
    arguments.insert(arguments.end(), what.begin(), what.end());
    arguments.insert(arguments.end(), {"--", "/bin/sh", "-c", "echo is ready; exec sleep 1000"});
    return arguments;
  };
  Locker locker = open();
  Program name(exec_on({"--named", "n"})), slot(exec_on({"--slots", "1", "s"}));
  ASSERT_TRUE(name.says("is ready")) << name.said();
  ASSERT_TRUE(slot.says("is ready")) << slot.said();
  EXPECT_FALSE(locker.try_acquire(named("n")));
  EXPECT_FALSE(locker.try_acquire(slots("s", 1)));
  EXPECT_TRUE(locker.try_acquire(named("s"), 20s)) << "a name is another lock than slots of that name";
  name.signal(SIGTERM);
  slot.signal(SIGTERM);
  EXPECT_TRUE(locker.try_acquire(named("n"), 20s));
  EXPECT_TRUE(locker.try_acquire(slots("s", 1), 20s));
}

TEST_P(Exec, what_the_command_has_started_goes_on_and_so_cli_md_says) {
  Program tool = exec("sleep 1000 & echo child $! is ready; wait");
  ASSERT_TRUE(tool.says("is ready")) << tool.said();
  const pid_t child = pid_after("child ", tool.said());
  tool.signal(SIGKILL);
  EXPECT_EQ(tool.wait(), 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return is_free(); }));
  EXPECT_FALSE(is_dead(child));
  kill(child, SIGKILL);
}

TEST_P(Exec, a_lock_that_is_lost_ends_the_command_and_no_log_is_promised) {  // B4
  const Server as = make_user("ALL", server().database + ".*");
  Program tool = exec(as, "echo is ready; exec sleep 1000");
  ASSERT_TRUE(tool.says("is ready")) << tool.said();
  for (const auto& row : plain().ask("SELECT ID FROM information_schema.processlist WHERE USER='" + as.user + "'")) {
    plain().ask("KILL " + row[0]);
  }
  EXPECT_TRUE(tool.says("its session ended")) << tool.said();
  EXPECT_EQ(tool.wait(), 70);
  EXPECT_EQ(tool.said().find(" log "), std::string::npos) << tool.said();
}

TEST_P(Exec, shows_no_password_of_its_url_or_its_command_to_anybody) {  // B7
  const Server as = make_user("ALL", server().database + ".*");
  Program tool({HIERLOCK_BIN, "--on", url(as, "publish_after=0"), "exec", "u1", "--", "/bin/sh", "-c",
                "echo is ready; exec sleep 1000; curl -u bob:s3cret http://host"});
  ASSERT_TRUE(tool.says("is ready")) << tool.said();
  // What somebody is shown has this word, so that it is known to be about the command, and neither password.
  const auto shows = [&](const std::string& text, const std::string& word) {
    EXPECT_NE(text.find(word), text.npos) << text;
    for (const std::string& secret : {as.password, std::string("s3cret")}) {
      EXPECT_EQ(text.find(secret), text.npos) << secret << " is in: " << text;
    }
  };
  std::string notices;
  EXPECT_TRUE(eventually([&] {
    for (const auto& row : plain().ask("SELECT * FROM `" + table() + "_notices`")) {
      for (const std::string& column : row) notices += column + "\n";
    }
    return !notices.empty();
  }));
  shows(notices, "\nsh");

  std::string in_the_way;
  std::stop_source stop;
  const auto on_event = [&](const Event& event) {
    if (event.blocked_by.find("of process") == std::string::npos) return;  // nobody has told it yet
    in_the_way = event.blocked_by;
    stop.request_stop();
  };
  Locker another = open("", {.on_event = on_event, .long_wait = 50ms});
  EXPECT_TRUE(fails_with(ErrorKind::cancelled,
                         [&] { (void)another.acquire("u1", {.timeout = 20s, .cancel = stop.get_token()}); }));
  shows(in_the_way, "of process " + std::to_string(tool.pid()));
  Program waits({HIERLOCK_BIN, "--on", url(as), "exec", "--timeout", "200ms", "u1", "--", "true"});
  waits.says_all();
  EXPECT_EQ(waits.wait(), 75);
  shows(waits.said(), "u1 was not free within 200ms");

  for (const Server& viewer : {as, operator_server()}) {
    for (const char* const form : {"status", "--json", "--dot"}) {
      std::vector<std::string> arguments{HIERLOCK_BIN, "--on", url(viewer), "status"};
      if (form != arguments.back()) arguments.emplace_back(form);
      Program status(arguments);
      status.says_all();
      EXPECT_EQ(status.wait(), 0) << status.said();
      shows(status.said(), form == std::string("--dot") ? "sh" : "u1");
    }
  }
}

TEST_P(Exec, the_time_for_connecting_is_part_of_the_timeout) {  // H2
  const Lock held = open().acquire("u1/a1");
  Relay relay(server().host, server().port);
  Server behind = server();
  behind.port = relay.port();
  EXPECT_TRUE(once_within(
      5500ms,
      [&] {
        relay.pause();
        const std::size_t before = relay.connections();
        const auto begin = Clock::now();
        Program tool({HIERLOCK_BIN, "--on", url(behind, "tls=off"), "exec", "--timeout", "4s", "u1/a1", "--", "true"});
        EXPECT_TRUE(eventually([&] { return relay.connections() > before; }));
        std::this_thread::sleep_until(begin + 2s);
        relay.resume();
        EXPECT_EQ(tool.wait(), 75);
        const auto took = Clock::now() - begin;
        EXPECT_GT(took, 3900ms);
        return took;
      },
      3));
}

HIERLOCK_ON_BOTH_SERVERS(Exec);

// The tool, and a server that does not answer. By itself the tool would wait for 5 s.
struct Ended {
  int code = 0;
  std::chrono::milliseconds took{};
  std::string said;
};
Ended end_of(Program& tool, Clock::time_point begin) {
  tool.says_all();
  const int code = tool.wait();
  return {code, std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin), tool.said()};
}
Ended run_to_its_end(const std::vector<std::string>& arguments) {
  const auto begin = Clock::now();
  Program tool(arguments);
  return end_of(tool, begin);
}
Ended run_within(std::chrono::seconds bound, const std::vector<std::string>& arguments) {
  Ended ended;
  EXPECT_TRUE(once_within(bound, [&] {
    ended = run_to_its_end(arguments);
    return ended.took;
  })) << ended.said;
  return ended;
}

class NoAnswer : public testing::TestWithParam<Silent::How> {
 protected:
  Silent server_{GetParam()};
};

TEST_P(NoAnswer, a_timeout_ends_an_exec_that_connects) {  // H2
  const Ended ended =
      run_within(3s, {HIERLOCK_BIN, "--on", server_.url(), "exec", "--timeout", "1s", "u1", "--", "true"});
  EXPECT_EQ(ended.code, 75);
  EXPECT_GE(ended.took, 1s);
  EXPECT_NE(ended.said.find("u1 was not acquired within 1s: cannot connect to "), std::string::npos) << ended.said;
}

TEST_P(NoAnswer, a_timeout_while_connecting_has_the_conflict_exit_code) {
  const Ended ended = run_within(
      2s, {HIERLOCK_BIN, "--on", server_.url("tls=off"), "exec", "-w", "0.2", "-E", "9", "u1", "--", "true"});
  EXPECT_EQ(ended.code, 9) << ended.said;
}

TEST_P(NoAnswer, an_exec_that_does_not_wait_gives_up_after_two_seconds) {  // H2
  const Ended ended = run_within(4s, {HIERLOCK_BIN, "--on", server_.url(), "exec", "-n", "u1", "--", "true"});
  EXPECT_EQ(ended.code, 69) << ended.said;
}

TEST_P(NoAnswer, open_ends_at_its_own_deadline_and_when_it_is_cancelled) {  // H2
  mysql::enable();
  EXPECT_TRUE(once_within(2s, [&] {
    return time_of([&] {
      EXPECT_TRUE(fails_with(ErrorKind::unavailable, [&] { (void)open(server_.url(), {.connect_timeout = 300ms}); }));
    });
  }));
  EXPECT_TRUE(fails_with(ErrorKind::unavailable, [&] { (void)open(server_.url(), {.connect_timeout = -1s}); }));
  const auto cancelled = [&](const std::stop_token& cancel) {
    return time_of(
        [&] { EXPECT_TRUE(fails_with(ErrorKind::cancelled, [&] { (void)open(server_.url(), {.cancel = cancel}); })); });
  };
  EXPECT_TRUE(once_within(2s, [&] {
    std::stop_source stop;
    std::jthread cancels([&] {
      std::this_thread::sleep_for(200ms);
      stop.request_stop();
    });
    return cancelled(stop.get_token());
  }));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(once_within(1s, [&] { return cancelled(stop.get_token()); }));
}

INSTANTIATE_TEST_SUITE_P(, NoAnswer, testing::Values(Silent::How::accepts, Silent::How::unreachable),
                         [](const auto& how) { return how.param == Silent::How::accepts ? "accepts" : "unreachable"; });

TEST(Connecting, a_server_that_refuses_is_unavailable_and_no_timeout) {
  unsigned port = 0;
  {
    const Silent gone;
    port = gone.port();
  }
  const std::string url = "mysql://app@127.0.0.1:" + std::to_string(port) + "/shop";
  const Ended ended = run_to_its_end({HIERLOCK_BIN, "--on", url, "exec", "--timeout", "30s", "u1", "--", "true"});
  EXPECT_EQ(ended.code, 69) << ended.said;
}

TEST(Connecting, a_signal_ends_every_command_at_once) {
  const std::vector<std::vector<std::string>> commands{{"exec", "u1", "--", "true"},
                                                       {"exec", "--timeout", "30s", "u1", "--", "true"},
                                                       {"status"},
                                                       {"status", "--watch"},
                                                       {"doctor"},
                                                       {"provision"},
                                                       {"explain", "u1"}};
  for (const int signal : {SIGINT, SIGTERM}) {
    for (const std::vector<std::string>& command : commands) {
      SCOPED_TRACE(command.front() + (command.size() > 1 ? " " + command[1] : "") + ", signal " +
                   std::to_string(signal));
      Silent server;
      std::vector<std::string> arguments{HIERLOCK_BIN, "--on", server.url()};
      arguments.insert(arguments.end(), command.begin(), command.end());
      Program tool(arguments);
      ASSERT_TRUE(server.has_client());
      const auto begin = Clock::now();
      tool.signal(signal);
      const Ended ended = end_of(tool, begin);
      EXPECT_EQ(ended.code, 128 + signal) << ended.said;
      EXPECT_LT(ended.took, 4s) << "by itself it would wait for 5 s";
    }
  }
}

}  // namespace
}  // namespace hierlock::mysql_tests

#endif
