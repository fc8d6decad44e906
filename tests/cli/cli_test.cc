// The tool as its users meet it: the real program, its output, its exit codes, hostile arguments, and every example of
// docs/cli.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tool.h"

namespace tooltest {
namespace {

std::string joined(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += " " + argument;
  return text;
}

// Exactly one line that begins with `hierlock: `, printable, and nothing on stdout.
void expect_refused(const Result& result, int code, const std::string& what) {
  EXPECT_EQ(result.code, code) << what << "\n" << result.err;
  EXPECT_EQ(result.out, "") << what;
  EXPECT_TRUE(result.err.starts_with("hierlock: ")) << what << "\n" << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << what << "\n" << result.err;
  EXPECT_TRUE(result.err.ends_with('\n')) << what;
  EXPECT_LT(result.err.size(), 500u) << what;
  for (const char c : result.err) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << what;
}

void expect_usage(const std::vector<std::string>& arguments, std::string_view message, const char* url = nullptr) {
  const Result result = run(arguments, url);
  expect_refused(result, 64, joined(arguments));
  EXPECT_NE(result.err.find(message), std::string::npos) << joined(arguments) << "\n" << result.err;
}

TEST(Tool, tells_its_version) {
  const Result result = run({"--version"});
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(result.out.starts_with("hierlock " HIERLOCK_EXPECTED_VERSION "\nstores: memory: shm:")) << result.out;
  EXPECT_EQ(result.out.find("not installed"), std::string::npos) << result.out;
  EXPECT_EQ(result.err, "");
}

TEST(Tool, help_goes_to_stdout_and_has_examples_that_run) {
  const Store store;
  for (const std::string command : {"", "exec", "status", "break", "explain", "collisions"}) {
    std::vector<std::string> arguments{"--help"};
    if (!command.empty()) arguments.insert(arguments.begin(), command);
    const Result result = run(arguments);
    std::vector<std::string> asked{"help"};
    if (!command.empty()) asked.push_back(command);
    EXPECT_EQ(run(asked).out, result.out);
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.err, "");
    const std::size_t examples = result.out.find("Examples:");
    ASSERT_NE(examples, std::string::npos);
    std::istringstream lines(result.out.substr(examples));
    int ran = 0;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("  hierlock ")) continue;
      const Result example = run_program({"/bin/sh", "-c", line}, store.url());
      if (command == "break") {
        EXPECT_EQ(example.code, 1) << line;
        EXPECT_NE(example.err.find("nobody holds"), std::string::npos) << line << "\n" << example.err;
      } else {
        EXPECT_EQ(example.code, 0) << line << "\n" << example.err;
        EXPECT_NE(example.out, "") << line;
      }
      ++ran;
    }
    EXPECT_GE(ran, 3);
  }
}

TEST(Tool, wrong_usage_is_one_line_and_64) {
  expect_usage({}, "no command; use exec, status, break, explain, collisions, provision, doctor, lab or help");
  expect_usage({"explian", "u1"}, "unknown command \"explian\"");
  expect_usage({"--bogus"}, "unknown option \"--bogus\"; see hierlock --help");
  expect_usage({"explain", "--bogus", "u1"}, "unknown option \"--bogus\"; see hierlock explain --help");
  expect_usage({"explain"}, "no target");
  expect_usage({"help", "explian"}, "unknown command \"explian\"");
  expect_usage({"exec", "u1"}, "no command; write hierlock exec TARGET -- COMMAND");
  expect_usage({"exec", "u1", "--"}, "no command");
  expect_usage({"exec", "--", "true"}, "no target");
  expect_usage({"exec", "--no-wait", "--timeout", "1s", "u1", "--", "true"}, "exclude each other");
  expect_usage({"exec", "--timeout", "soon", "u1", "--", "true"}, "--timeout \"soon\" is not a duration");
  expect_usage({"exec", "--conflict-exit-code", "300", "u1", "--", "true"},
               "--conflict-exit-code \"300\" is no exit code; write a number from 0 to 255");
  expect_usage({"exec", "--slots", "0", "x", "--", "true"},
               "--slots \"0\" is not a number from 1 to 1000000; write it like 3");
  expect_usage({"exec", "--note", "--", "true"}, "--note has no value");
  expect_usage({"exec", "u1//a1", "--", "true"}, "segment 2 is empty");
  expect_usage({"status", "u1", "u2"}, "more than one target; remove \"u2\"");
  expect_usage({"status", "--json", "--dot"}, "exclude each other");
  expect_usage({"status", "--count", "3"}, "are for --watch");
  expect_usage({"status", "--watch", "--interval", "1ms"}, "use 50ms or more");
  expect_usage({"break"}, "no target");
  expect_usage({"break", "u1", "u2", "--yes"}, "more than one target");
  expect_usage({"explain", "--json=5", "u1"}, "--json takes no value");
  expect_usage({"explain", "--named", "--slots", "3", "x"}, "exclude each other");
  expect_usage({"explain", "u1", "--buckets", "0"}, "--buckets \"0\" is not a number from 1 to 2147483647");
  expect_usage({"explain", "u1", "--buckets"}, "--buckets has no value");
  expect_usage({"collisions"}, "--ids is missing");
  expect_usage({"provision", "--levels", "9"}, "--levels \"9\" is not a number from 1 to 8; write it like 3");
  expect_usage({"provision", "--chunk", "2M"}, "--chunk \"2M\" is not a number from 1 to 1000000; write it like 50k");
  expect_usage({"provision", "--throttle", "0"}, "--throttle \"0\" is not a number");
  expect_usage({"provision", "u1"}, "unexpected argument \"u1\"; see hierlock provision --help");
  expect_usage({"provision", "--on", "shm:"}, "shm: needs no provisioning: just use it");
  expect_usage({"collisions", "--ids", "many"}, "--ids \"many\" is not a number");
  expect_usage({"collisions", "--ids", "5", "extra"}, "unexpected argument \"extra\"");
  expect_usage({"collisions", "--ids", "5", "--ids", "6"}, "--ids is there more than once");
}

TEST(Tool, bad_targets_are_one_line_and_64) {  // H7
  expect_usage({"explain", ""}, "the path is empty");
  expect_usage({"exec", "named tok", "--", "true"}, "write 'named \"tok\"', or named%20tok if it is an id");
  expect_usage({"status", "shared  u1"}, "write 'shared u1'");
  expect_usage({"break", "--yes", "slots x"}, "write 'slots \"x\" N'");
  expect_usage({"exec", " u1", "--", "true"}, "write u1, or %20u1 if it is an id");
  expect_usage({"exec", "/tmp/x.lock", "--", "true"},
               "a target is no file, so \"/tmp/x.lock\" does not begin with \"/\"; write \"tmp/x.lock\"");
  expect_usage({"exec", "./x", "--", "true"}, "a target is no file, so \"./x\" has no place for \".\"");
  expect_usage({"exec", "u1/../x", "--", "true"}, "a target is no file, so \"u1/../x\" has no place for \"..\"");
  expect_usage({"explain", "u1//r1"}, "segment 2 is empty: \"u1//r1\"");
  expect_usage({"explain", "u1", "caf\xC3"}, "byte 0xC3 at offset 3 is not valid UTF-8");
  expect_usage({"explain", "a\x1B[2J//"}, "\"a\\x1B[2J//\"");
  expect_usage({"explain", "100%"}, "write a \"%\" that belongs to an id as %25");
  expect_usage({"explain", std::string(100'000, 'x')}, "segment 1 has more than 255 bytes");
  expect_usage({"explain", "1/2/3/4/5/6/7/8/9"}, "more than 8 segments");
  expect_usage({"explain", "--named", ""}, "the name is empty");
  expect_usage({"explain", "--shared", "--slots", "3", "x"}, "slots cannot be shared");
  expect_usage({"explain", "slots \"x\" 3", "slots \"x\" 4"}, "with 3 and with 4 slots");
}

// Nobody is sent from a store between machines to one of this machine only: the lock would be none.
TEST(Tool, who_asks_for_a_store_between_machines_is_not_sent_to_one_of_this_machine) {
  for (const char* url : {"postgres://app@db/shop", "etcd://db", "mariadb://app@db/shop",
                          "app:hunter2@tcp(db:3306)/shop", "app:hunter2@/shop"}) {
    const Result result = run({"status", "--on", url});
    expect_refused(result, 64, url);
    EXPECT_EQ(result.err.find("shm:"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("mysql://"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("hunter2"), std::string::npos) << result.err;
  }
}

TEST(Tool, bad_urls_are_one_line_and_64_and_show_no_password) {
  expect_usage({"--on", "", "explain", "u1"}, "--on: the URL is empty");
  expect_usage({"--on", "nonsense", "explain", "u1"}, "--on: the URL has no scheme");
  expect_usage({"--on", "/srv/locks", "status"}, "--on: a file is no URL; write shm:///srv/locks");
  expect_usage({"--on", "shm:.", "status"}, "a name has 1 to 64 letters");
  expect_usage({"--on", "shm:..", "status"}, "a name has 1 to 64 letters");
  expect_usage({"explain", "u1", "--on", "foo:"}, "there is no store \"foo:\"; write mysql://USER@HOST/DATABASE");
  expect_usage({"status", "--on", "mariadb://app@db/shop"}, "write mysql://, which is for MariaDB as well");
  expect_usage({"status", "--on", "app:hunter2@tcp(db:3306)/shop"}, "this is a data source name, no URL");
  expect_usage({"explain", "u1", "--on", "memory:?nonsense=1"}, "nonsense");
  expect_usage({"explain", "u1", "--on", "memory:\n"}, "control character 0x0A at offset 7");
  expect_usage({"collisions", "--ids", "5"}, "HIERLOCK_URL: the URL has no scheme", "nonsense");
  expect_usage({"explain", "u1"}, "HIERLOCK_URL is empty", "");
  EXPECT_EQ(run({"explain", "u1", "--on", "memory:"}, "").code, 0) << "--on is named";
  for (const std::string scheme : {"postgres", "etcd"}) {
    const Result result = run({"explain", "u1", "--on", scheme + "://app:hunter2@db/shop"});
    expect_refused(result, 64, scheme);
    EXPECT_NE(result.err.find("there is no store " + scheme + ": yet"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("hunter2"), std::string::npos) << result.err;
  }
  EXPECT_EQ(run({"explain", "u1", "--on", "MEMORY:"}).code, 0);
  EXPECT_EQ(run({"explain", "u1"}, "memory:").code, 0);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"exec", "u1", "--", "true"}, {"status"}, {"break", "--yes", "u1"}}) {
    expect_usage(command, "HIERLOCK_URL is empty: name a store, or unset it", "");
    expect_usage(command, "HIERLOCK_URL: the URL has no scheme", "nonsense");
    expect_usage(command, "HIERLOCK_URL: there is no store postgres: yet", "postgres://app:hunter2@db/shop");
    expect_usage(command, "HIERLOCK_URL: memory: has no option", "memory:?nonsense=1");
  }
}

TEST(Tool, output_that_cannot_be_written_is_one_line_and_74) {
  const Store store;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"explain", "u1"}, {"status"}, {"status", "--watch"}, {"--help"}, {"--version"}}) {
    for (const char* path : {"/dev/full", "-"}) {
      expect_refused(run(arguments, store.url(), path), 74, joined(arguments) + " > " + path);
    }
  }
}

TEST(Tool, ids_that_look_like_something_else_are_ids) {
  for (const std::string id : {"[a,b]", "explain", "collisions", "@file", "\x01", "{}", "a=b", "*", "$HOME"}) {
    const Result result = run({"explain", "--json", id});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '{'), id == "{}" ? 7 : 4)
        << "one target, one node, one row";
  }
  EXPECT_EQ(run({"explain", "u1", "--", "--shared", "-h", "--"}).code, 0);
}

TEST(Tool, hostile_arguments_get_one_line_or_a_clean_answer) {
  const std::string seed_text =
      std::getenv("HIERLOCK_SEED") != nullptr ? std::getenv("HIERLOCK_SEED") : std::to_string(std::random_device{}());
  SCOPED_TRACE("run again with HIERLOCK_SEED=" + seed_text);
  std::mt19937_64 random(std::strtoull(seed_text.c_str(), nullptr, 0));
  const std::vector<std::string> words{
      "explain",  "collisions", "--ids",   "--json",    "--on",      "memory:", "u1/a1",
      "--",       "-",          "--slots", "3",         "--named",   "-h",      "\xFF",
      "\x1B[2J",  "",           "=",       "%",         "[",         "--on=",   "1M",
      "--ids=1k", "--shared",   "---",     "--buckets", "--timeout", "--dot",   "--no-wait",
      "--note",   "--all",      "help",    "--reason",  "1s",        "--yes",   "--conflict-exit-code"};
  const std::vector<std::string> commands{"explain", "collisions", "exec", "status", "break", "help"};
  const Store store;
  for (int i = 0; i < 400; ++i) {
    std::vector<std::string> arguments;
    for (std::size_t left = random() % 6; left > 0; --left) {
      std::string word = words[random() % words.size()];
      if (random() % 4 == 0) word += static_cast<char>(1 + random() % 255);
      arguments.push_back(word);
    }
    if (random() % 4 != 0) arguments.insert(arguments.begin(), commands[random() % commands.size()]);
    const Result result = run(arguments, store.url());
    if (result.code == 127 || result.code == 126) {
      EXPECT_EQ(arguments.front(), "exec") << joined(arguments);  // no word is a program
      continue;
    }
    if (result.code == 1) {
      EXPECT_NE(result.err.find("nobody holds"), std::string::npos) << joined(arguments);
      continue;
    }
    if (result.code == 0) {
      EXPECT_EQ(result.err, "");
      for (const char c : result.out)
        ASSERT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << joined(arguments);
    } else {
      expect_refused(result, 64, joined(arguments));
    }
  }
}

TEST(Explain, fits_80_columns_whatever_the_ids) {
  const std::string id(255, 'x');
  const std::string deep = id + "/" + id + "/" + id + "/" + id + "/" + id + "/" + id + "/" + id + "/" + id;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"explain", "u1/a1/r1"},
        {"explain", deep, "u1", "shared " + deep},
        {"explain", "--buckets", "2147483647", deep, "u1/a1"},
        {"explain", "--named", id + id + id},
        {"explain", "--slots", "1000000", id, "y"},
        {"collisions", "--ids", "1T,1T,1,1,1,1,1,1T", "--buckets", "2147483647", "--at-once", "1T"},
        {"collisions", "--ids", "1T", "--buckets", "1"}}) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
      // One column per character: these ids are ASCII, only the mark of a cut is not.
      const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
      EXPECT_LE(columns, 80) << line;
      EXPECT_FALSE(line.ends_with(' ')) << line << "|";
    }
  }
}

TEST(Explain, of_names_does_not_speak_of_buckets) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"explain", "--named", "token-refresh"}, {"explain", "--slots", "3", "import"}}) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out.find("bucket"), std::string::npos) << result.out;
    EXPECT_EQ(result.out.find("row"), std::string::npos) << result.out;
  }
  EXPECT_NE(run({"explain", "u1", "named \"x\""}).out.find("bucket"), std::string::npos);
}

TEST(Explain, shows_ids_that_share_a_row) {  // H15
  const Result apart = run({"explain", "u1", "u2"});
  EXPECT_NE(apart.out.find("No two of these nodes share a row"), std::string::npos) << apart.out;
  const Result together = run({"explain", "--buckets", "1", "u1", "u2"});
  EXPECT_NE(together.out.find("False contention: 1 row"), std::string::npos) << together.out;
}

TEST(Explain, is_the_same_for_any_order_of_the_targets_but_their_list) {  // H5
  const auto tables = [](const Result& result) { return result.out.substr(result.out.find("\n\n")); };
  EXPECT_EQ(tables(run({"explain", "u1/a1/r1", "u1/a2/r7", "u3"})),
            tables(run({"explain", "u3", "u1/a2/r7", "u1/a1/r1"})));
}

TEST(Json, is_valid_and_has_a_version) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"explain", "--json", "u1/a1/r1", "named \"x\"", "shared u2", "slots \"y\" 3"},
        {"explain", "--json", "--named", "\"\\\n\x7F"},
        {"explain", "--json", "資源"},
        {"collisions", "--json", "--ids", "1,1k,1T"},
        {"collisions", "--json", "--ids", "1", "--buckets", "1"}}) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(is_json(result.out)) << result.out;
    EXPECT_TRUE(result.out.starts_with("{\n  \"version\": 1,")) << result.out;
  }
}

// Runs each console example of a page in the project's folder. Returns how many there were.
int examples_of(const std::string& page) {
  std::ifstream file(HIERLOCK_DOCS "/" + page);
  EXPECT_TRUE(file) << "cannot read " << page;
  const Store store;
  std::string command;
  std::string expected;
  int ran = 0;
  const auto check = [&] {
    if (command.empty()) return;
    const Result result =
        run_program({"/bin/sh", "-c", "cd '" HIERLOCK_DOCS "/..'; exec 2>&1; " + command}, store.url());
    EXPECT_EQ(result.out, expected) << command;
    command.clear();
    expected.clear();
    ++ran;
  };
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      check();
      inside = line == "```console";
    } else if (inside && line.starts_with("$ ")) {
      check();
      command = line.substr(2);
    } else if (inside) {
      expected += line + "\n";
    }
  }
  return ran;
}

TEST(Docs, every_example_of_the_page_prints_what_the_page_says) { EXPECT_GE(examples_of("cli.md"), 6); }

TEST(Docs, the_picture_of_the_first_page_is_what_the_lab_draws) { EXPECT_EQ(examples_of("../README.md"), 1); }

}  // namespace
}  // namespace tooltest
