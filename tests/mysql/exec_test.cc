// `hierlock exec` where the lock ends with the tool: its session is the lock.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "on_server.h"
#include "program.h"

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

HIERLOCK_ON_BOTH_SERVERS(Exec);

}  // namespace
}  // namespace hierlock::mysql_tests

#endif
