#include "cli/arguments.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/output.h"

namespace hierlock::cli {
namespace {

Command read(const std::vector<const char*>& arguments, const char* url = nullptr) {
  return read_arguments(arguments, url);
}

TEST(Help, names_every_option_and_fits_the_terminal) {
  std::vector<std::string> commands{""};
  for (const char* name : command_names()) commands.emplace_back(name);
  for (const std::string& command : commands) {
    const std::string text = help(command);
    for (const std::string& option : option_names(command)) {
      EXPECT_NE(text.find(option), std::string::npos) << command << " --help does not tell " << option;
    }
    EXPECT_NE(text.find("Examples:"), std::string::npos);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), line_width) << line;
  }
  EXPECT_GE(option_names("explain").size(), 6u);
}

TEST(Arguments, targets_are_taken_byte_by_byte) {
  const auto targets =
      std::get<ExplainCommand>(read({"explain", "[a,b]", "\x01x", "collisions", "--", "--shared"})).targets;
  ASSERT_EQ(targets.size(), 4u);
  EXPECT_EQ(targets[0], Target("[a,b]"));
  EXPECT_EQ(targets[1], Target("\x01x"));
  EXPECT_EQ(targets[2], Target("collisions"));
  EXPECT_EQ(targets[3], Target("--shared"));
}

TEST(Arguments, flags_say_what_the_targets_are) {
  EXPECT_EQ(std::get<ExplainCommand>(read({"explain", "--named", "a//b"})).targets.front(), named("a//b"));
  EXPECT_EQ(std::get<ExplainCommand>(read({"explain", "--slots", "3", "x"})).targets.front(), slots("x", 3));
  EXPECT_EQ(std::get<ExplainCommand>(read({"explain", "--shared", "u1"})).targets.front(), shared("u1"));
  EXPECT_EQ(std::get<ExplainCommand>(read({"explain", "shared u1"})).targets.front(), shared("u1"));
}

TEST(Arguments, a_text_that_is_a_path_by_mistake_only_is_refused_with_what_was_meant) {
  const auto complaint = [](const std::vector<const char*>& targets) -> std::string {
    std::vector<const char*> arguments{"explain"};
    arguments.insert(arguments.end(), targets.begin(), targets.end());
    try {
      read(arguments);
      return "accepted";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  const auto expect = [&](const std::vector<const char*>& targets, std::string_view part) {
    EXPECT_NE(complaint(targets).find(part), std::string::npos) << complaint(targets);
  };
  expect({"named tok"}, "write 'named \"tok\"', or named%20tok if it is an id");
  expect({"named  tok "}, "write 'named \"tok\"', or ");
  expect({"named\ttok"}, "write 'named \"tok\"', or named%09tok if");
  expect({"shared named tok"}, "write 'shared named \"tok\"', or shared named%20tok if");
  expect({"slots x"}, "write 'slots \"x\" N', or slots%20x if");
  expect({"slots my pool 3"}, "write 'slots \"my pool\" 3', or slots%20my pool 3 if");
  expect({"shared  u1"}, "write 'shared u1', or shared %20u1 if");
  expect({"exclusive u1"}, "write u1, or exclusive%20u1 if");
  expect({" u1"}, "write u1, or %20u1 if");
  expect({"u1 "}, "write u1, or u1%20 if");
  expect({"u1/a1\n"}, "write u1/a1, or u1/a1%0A if");
  expect({"named", "tok"}, "write 'named \"tok\"' for one");
  expect({"slots", "x", "3"}, "write 'slots \"x\" N' for one");
  expect({"shared", "u1"}, "write 'shared u1' for one");
  expect({"/tmp/x.lock"}, "--named \"/tmp/x.lock\" for a name");
  for (const char* fine : {"u1/my account", "my account", "u1/named tok", "%20u1", "named%20tok", "named", "shared",
                           "shared my account", "unnamed x", "slotsx 3"}) {
    EXPECT_EQ(complaint({fine}), "accepted") << fine;
  }
  EXPECT_EQ(complaint({"u1", "shared"}), "accepted");
  EXPECT_EQ(complaint({"--named", " x "}), "accepted") << "with --named nothing has a meaning";
}

TEST(Arguments, exec_knows_the_letters_of_flock) {
  using namespace std::chrono_literals;
  const auto command = std::get<ExecCommand>(read({"exec", "-s", "-w", "1.5", "-E", "9", "u1", "--", "x"}));
  EXPECT_EQ(command.targets.front(), shared("u1"));
  EXPECT_EQ(command.timeout, 1500ms);
  EXPECT_EQ(command.conflict_exit_code, 9);
  EXPECT_EQ(std::get<ExecCommand>(read({"exec", "-sn", "u1", "--", "x"})).timeout, 0s);
  EXPECT_THROW(read({"exec", "-n", "-w", "1", "u1", "--", "x"}), UsageError);
}

TEST(Arguments, numbers_may_have_a_suffix) {
  const auto command = std::get<CollisionsCommand>(read({"collisions", "--ids", "7,5k,1M,2G,1T", "--buckets", "100k"}));
  EXPECT_EQ(command.ids, (std::vector<std::uint64_t>{7, 5'000, 1'000'000, 2'000'000'000, 1'000'000'000'000}));
  EXPECT_EQ(command.buckets, 100'000u);
  EXPECT_EQ(command.at_once, 100u);
  for (const char* bad : {"", "k", "0", "0k", "-1", "1.5", "1e6", "1kk", "2T", "99999999999999", "1,", ",1", "1,,2",
                          "1,1,1,1,1,1,1,1,1", "1 ", " 1", "+1", "0x10"}) {
    EXPECT_THROW(read({"collisions", "--ids", bad}), UsageError) << bad;
  }
}

TEST(Arguments, what_follows_the_dashes_of_exec_is_the_command) {
  const auto command = std::get<ExecCommand>(
      read({"--on", "memory:", "exec", "u1", "--shared", "u2", "--", "cmd", "--", "--shared", "", "[x]"}));
  EXPECT_EQ(command.targets, (std::vector<Target>{shared("u1"), shared("u2")}));
  EXPECT_EQ(command.command, (std::vector<std::string>{"cmd", "--", "--shared", "", "[x]"}));
  EXPECT_EQ(command.store.text, "memory:");
  EXPECT_EQ(std::get<ExecCommand>(read({"exec", "u1", "--", "x"})).store.text, "shm:");
  EXPECT_EQ(std::get<ExecCommand>(read({"exec", "u1", "--", "x"}, "memory:")).store.text, "memory:");
  EXPECT_EQ(std::get<ExecCommand>(read({"exec", "%2Dx", "--", "x"})).targets.front(), Target("-x"));
}

TEST(Arguments, durations_have_a_unit_or_count_seconds) {
  using namespace std::chrono_literals;
  const auto timeout = [](const char* text) {
    return std::get<ExecCommand>(read({"exec", "--timeout", text, "u1", "--", "x"})).timeout;
  };
  EXPECT_EQ(timeout("5"), 5s);
  EXPECT_EQ(timeout("5s"), 5s);
  EXPECT_EQ(timeout("250ms"), 250ms);
  EXPECT_EQ(timeout("0.5"), 500ms);
  EXPECT_EQ(timeout("1.5m"), 90s);
  EXPECT_EQ(timeout("1h"), 1h);
  EXPECT_EQ(timeout("3650d"), 24h * 3650);
  EXPECT_EQ(timeout("0"), 0s);
  EXPECT_EQ(std::get<ExecCommand>(read({"exec", "--no-wait", "u1", "--", "x"})).timeout, 0s);
  EXPECT_EQ(std::get<ExecCommand>(read({"exec", "u1", "--", "x"})).timeout, std::nullopt);
  for (const char* bad : {"", "s", "ms", ".", "5.", ".5", "-1", "+1", "1e3", "1 s", "5S", "1w", "1.2.3", "3651d",
                          "999999999999h", "9999999999999", "0x5", "1.0000000001"}) {
    EXPECT_THROW(timeout(bad), UsageError) << bad;
  }
}

TEST(Arguments, exit_codes_are_those_a_process_can_have) {
  const auto code = [](const char* text) {
    return std::get<ExecCommand>(read({"exec", "--conflict-exit-code", text, "u1", "--", "x"})).conflict_exit_code;
  };
  EXPECT_EQ(code("0"), 0);
  EXPECT_EQ(code("255"), 255);
  EXPECT_EQ(std::get<ExecCommand>(read({"exec", "u1", "--", "x"})).conflict_exit_code, 75);
  for (const char* bad : {"", "-1", "256", "1k", "x"}) EXPECT_THROW(code(bad), UsageError) << bad;
}

TEST(Arguments, the_option_wins_over_the_environment) {
  EXPECT_NO_THROW(read({"--on", "memory:", "explain", "u1"}, "nonsense"));
  EXPECT_THROW(read({"explain", "u1"}, "nonsense"), UsageError);
  EXPECT_NO_THROW(read({"explain", "u1"}, "memory:?max_locks=1000"));
}

TEST(Arguments, an_empty_url_in_the_environment_is_refused_instead_of_locking_on_this_machine_only) {
  const std::vector<std::vector<const char*>> commands{
      {"explain", "u1"}, {"exec", "u1", "--", "true"}, {"status"}, {"doctor"}, {"lab", "run"}};
  for (const auto& command : commands) {
    EXPECT_THROW(read(command, ""), UsageError) << command.front();
    std::vector<const char*> with_option = command;
    with_option.insert(with_option.begin() + 1, {"--on", "memory:"});
    if (std::string_view(command.front()) != "lab") {
      EXPECT_NO_THROW(read(with_option, "")) << command.front();
    }
  }
}

TEST(Arguments, urls_of_stores_that_are_not_there_are_refused_without_their_password) {
  for (const char* url : {"postgres://app:hunter2@db", "etcd://app:hunter2@db", "hunter3://x", "memory:?nonsense=1",
                          "memory:some where"}) {
    try {
      read({"explain", "u1", "--on", url});
      FAIL() << url;
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()).find("hunter2"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("--on: "), std::string::npos) << error.what();
    }
  }
}

TEST(Arguments, url_of_a_store_with_a_program_of_its_own_is_handed_to_that) {
  try {
    read({"explain", "u1", "--on", "mysql://app:hunter2@db/shop"});
    FAIL() << "it is read here";
  } catch (const AnotherProgram& other) {
    EXPECT_EQ(other.scheme, "mysql");
    for (const bool built : {true, false}) {
      const std::string text = missing_program({other.scheme, other.from, built, other.to_have_it}, "/opt/bin");
      EXPECT_EQ(text.find("hunter2"), text.npos) << text;
      EXPECT_NE(text.find("--on: this hierlock has no mysql: store: "), text.npos) << text;
    }
  }
}

TEST(Arguments, a_part_that_was_not_built_and_one_that_was_left_behind_have_different_remedies) {
  const std::string unbuilt = missing_program({"mysql", "--on", false, "install libmariadb-dev"}, "/opt/bin");
  EXPECT_NE(unbuilt.find("it was built without; install libmariadb-dev"), unbuilt.npos) << unbuilt;
  const std::string left = missing_program({"mysql", "--on", true, "install libmariadb-dev"}, "/opt/bin");
  EXPECT_NE(left.find("hierlock-mysql is neither in /opt/bin nor in ../libexec/hierlock"), left.npos) << left;
  EXPECT_EQ(left.find("libmariadb"), left.npos) << left;
}

TEST(Arguments, doctor_has_a_store_and_a_form) {
  const auto plain = std::get<DoctorCommand>(read({"doctor", "--on", "shm:x"}));
  EXPECT_EQ(plain.store.text, "shm:x");
  EXPECT_FALSE(plain.json);
  EXPECT_TRUE(std::get<DoctorCommand>(read({"doctor", "--json"})).json);
  EXPECT_THROW(read({"doctor", "u1"}), UsageError);
}

}  // namespace
}  // namespace hierlock::cli
