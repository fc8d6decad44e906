// hierlock status with real holders and waiters, and --watch on a real pseudo terminal.
#include <gtest/gtest.h>
#include <termios.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tool.h"

namespace tooltest {
namespace {

constexpr const char* idle = "echo ready; exec sleep 1000";

std::vector<std::string> holding(std::vector<std::string> options) {
  options.insert(options.begin(), "exec");
  for (const std::string word : {"--", "/bin/sh", "-c", idle}) options.push_back(word);
  return options;
}

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t sum = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; at += what.size()) ++sum;
  return sum;
}

bool same(const termios& a, const termios& b) {
  return a.c_iflag == b.c_iflag && a.c_oflag == b.c_oflag && a.c_cflag == b.c_cflag && a.c_lflag == b.c_lflag &&
         std::equal(std::begin(a.c_cc), std::end(a.c_cc), std::begin(b.c_cc));
}

// A table that nobody uses.
void make_table(const Store& store) { ASSERT_EQ(run({"exec", "u0", "--", "true"}, store.url()).code, 0); }

bool somebody_waits(const Store& store) {
  return eventually([&] {
    return run({"status", "--json"}, store.url()).out.find("\"blocked_by\": [\n") != std::string::npos;
  });
}

TEST(Status, does_not_make_a_table_that_is_not_there) {
  const Store store;
  const Result text = run({"status"}, store.url());
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("\n\nNothing is held: there is no lock table"), std::string::npos) << text.out;
  EXPECT_LE(widest_line(text.out), 80u) << text.out;
  EXPECT_EQ(run({"status", "--json"}, store.url()).out,
            "{\n  \"version\": 1,\n  \"store\": \"" + std::string(store.url()) +
                "\",\n  \"table\": \"\",\n  \"holders\": [],\n  \"waiters\": [],\n  \"buckets\": [],\n  \"notes\": "
                "[],\n  \"log\": []\n}\n");
  EXPECT_TRUE(run({"status", "--dot"}, store.url()).out.starts_with("digraph waits {"));
  EXPECT_EQ(run({"status", "--watch", "--count", "1"}, store.url()).code, 0);
  EXPECT_EQ(run({"break", "--yes", "u1"}, store.url()).code, 1);
  EXPECT_FALSE(std::filesystem::exists(store.folder() + "/table"));
  EXPECT_EQ(run({"status"}, "shm:///no/such/folder/table").code, 69) << "no folder is another thing than no table";
}

TEST(Status, names_the_table_and_says_when_nothing_is_held) {
  const Store store;
  make_table(store);
  const Result result = run({"status"}, store.url());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.substr(0, result.out.find('\n')).find(store.folder() + "/table"), std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("Nothing is held."), std::string::npos) << result.out;
}

TEST(Status, shows_holders_and_waiters_and_for_whom_they_wait) {
  const Store store;
  Running holder(holding({"--note", "nightly", "u1/a1/r1"}), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  Running waiter(holding({"u1"}), {.url = store.url()});
  ASSERT_TRUE(somebody_waits(store));

  const Result text = run({"status"}, store.url());
  for (const std::string& part :
       {std::string("1 held"), std::string("u1/a1/r1  X"), std::to_string(holder.pid()), std::string("nightly"),
        std::string("1 waiting"), std::to_string(waiter.pid()), "pid " + std::to_string(holder.pid())}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " is not in\n" << text.out;
  }
  EXPECT_EQ(text.out.find("IX"), std::string::npos) << text.out;
  EXPECT_LE(widest_line(text.out), 80u) << text.out;

  const Result all = run({"status", "--all"}, store.url());
  EXPECT_EQ(count(all.out, "  IX"), 2u) << "u1 and u1/a1 by intention\n" << all.out;

  const Result dot = run({"status", "--dot"}, store.url());
  EXPECT_EQ(count(dot.out, " -> "), 1u) << dot.out;
  EXPECT_NE(dot.out.find("[label=\"u1\"]"), std::string::npos) << dot.out;
  EXPECT_NE(dot.out.find("pid " + std::to_string(waiter.pid())), std::string::npos) << dot.out;
}

TEST(Status, a_target_narrows_it_to_what_could_meet_it) {
  const Store store;
  Running one(holding({"u1/a1/r1"}), {.url = store.url()});
  Running two(holding({"u2/a1"}), {.url = store.url()});
  Running name(holding({"--named", "u1/a1"}), {.url = store.url()});
  ASSERT_TRUE(one.prints("ready") && two.prints("ready") && name.prints("ready"));
  const auto shown = [&](const std::string& target) { return run({"status", target}, store.url()).out; };
  EXPECT_NE(shown("u1").find("1 held"), std::string::npos);
  EXPECT_NE(shown("u1/a1/r1").find("1 held"), std::string::npos);
  EXPECT_NE(shown("u2/a1/r5").find("1 held"), std::string::npos) << "what is above it";
  EXPECT_NE(shown("u1/a1/r").find("Nothing is held at u1/a1/r"), std::string::npos)
      << "a longer id of the same beginning";
  EXPECT_NE(shown("named \"u1/a1\"").find("1 held"), std::string::npos);
  EXPECT_NE(shown("u3").find("Nothing is held at u3, above it or below it."), std::string::npos);
}

TEST(Status, json_is_valid_whatever_the_holders_call_themselves) {
  const Store store;
  Running holder(holding({"--note", "a\"b\\c\n\x1B[2J\xFF", "--named", "\"\\\n\x7F"}), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"status"}, {"status", "--json"}, {"status", "--dot"}, {"status", "--all"}}) {
    const Result result = run(arguments, store.url());
    EXPECT_EQ(result.code, 0) << result.err;
    for (const char c : result.out) EXPECT_TRUE(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F));
    EXPECT_EQ(result.out.find('\xFF'), std::string::npos);
    if (arguments.size() == 2 && arguments[1] == "--json") {
      EXPECT_TRUE(is_json(result.out)) << result.out;
      EXPECT_TRUE(result.out.starts_with("{\n  \"version\": 1,")) << result.out;
      EXPECT_NE(result.out.find("\"fence\": \""), std::string::npos) << "fences are strings\n" << result.out;
    }
  }
}

TEST(Status, tells_in_its_log_who_broke_a_lock) {
  const Store store;
  Running holder(holding({"u1"}), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  ASSERT_EQ(run({"break", "--yes", "--reason", "it hung", "u1"}, store.url()).code, 0);
  const Result result = run({"status"}, store.url());
  EXPECT_NE(result.out.find("it hung"), std::string::npos) << result.out;
  EXPECT_EQ(holder.ends().code, 70);
}

TEST(Status, of_a_target_has_only_that_of_the_log_that_is_about_it) {
  const Store store;
  Running broken(holding({"u1/a1"}), {.url = store.url()});
  Running killed(holding({"u2/a1"}), {.url = store.url()});
  ASSERT_TRUE(broken.prints("ready") && killed.prints("ready"));
  ASSERT_EQ(run({"break", "--yes", "u1/a1"}, store.url()).code, 0);
  EXPECT_EQ(broken.ends().code, 70);
  kill(-killed.pid(), SIGKILL);  // with its command, which would keep the lock
  ASSERT_TRUE(eventually([&] {
    return run({"status"}, store.url()).out.find(" died, releasing u2/a1") != std::string::npos;
  })) << run({"status"}, store.url()).out;
  const auto shown = [&](const std::string& target) { return run({"status", target}, store.url()).out; };
  EXPECT_NE(shown("u1").find("1 lock on u1/a1 broken by process "), std::string::npos) << shown("u1");
  EXPECT_EQ(shown("u1").find("u2/a1"), std::string::npos) << shown("u1");
  EXPECT_NE(shown("u2/a1").find("died, releasing u2/a1"), std::string::npos) << shown("u2/a1");
  EXPECT_EQ(shown("u3").find("Log of the table"), std::string::npos) << shown("u3");
}

// B12: what a command line holds is for whoever wrote it. Others read status, the log and the messages.
TEST(Status, shows_nobody_the_arguments_of_a_command) {
  const Store store;
  const auto command = [](const std::string& target) {
    return std::vector<std::string>{"exec",    target, "--note", "nightly", "--",
                                    "/bin/sh", "-c",   idle,     "s3cret",  "--password=s3cret"};
  };
  Running holder(command("u1"), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  Running waiter(command("u1"), {.url = store.url()});
  ASSERT_TRUE(somebody_waits(store));
  const auto all = [&] {
    std::string text = run({"exec", "-n", "u1", "--", "true"}, store.url()).err;
    for (const char* form : {"--all", "--json", "--dot"}) text += run({"status", form}, store.url()).out;
    return text;
  };
  EXPECT_EQ(all().find("s3cret"), std::string::npos) << all();
  EXPECT_NE(all().find("owner    sh\n"), std::string::npos) << all();
  EXPECT_NE(all().find("note     nightly\n"), std::string::npos) << all();
  kill(-holder.pid(), SIGKILL);
  ASSERT_TRUE(eventually([&] { return all().find(" died, releasing u1") != std::string::npos; })) << all();
  EXPECT_EQ(all().find("s3cret"), std::string::npos) << all();
}

TEST(Status, whoever_only_looked_and_was_ended_by_a_pipe_is_not_in_the_log) {
  const Store store;
  make_table(store);
  for (const std::string command : {"hierlock status", "hierlock status --watch --interval 50ms"}) {
    const Result result = run_program({"/bin/sh", "-c", command + " | head -n 1"}, store.url());
    EXPECT_EQ(result.code, 0) << result.err;
  }
  EXPECT_EQ(run({"status"}, store.url()).out.find("Log of the table"), std::string::npos);
}

TEST(Status, a_holder_that_was_killed_is_marked_while_its_command_keeps_the_lock) {
  const Store store;
  Running holder(holding({"u1"}), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  kill(holder.pid(), SIGKILL);
  ASSERT_TRUE(eventually([&] {
    return run({"status"}, store.url()).out.find("state    gone; the command it ran keeps the lock") !=
           std::string::npos;
  })) << run({"status"}, store.url()).out;
  EXPECT_NE(run({"status"}, store.url()).out.find("1 held"), std::string::npos);
}

TEST(Status, a_stopped_process_in_front_of_the_queue_is_marked) {
  const Store store;
  Running holder(holding({"u1"}), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  Running first(holding({"u1"}), {.url = store.url()});
  ASSERT_TRUE(somebody_waits(store));
  first.signal(SIGSTOP);
  ASSERT_TRUE(first.stops());
  Running second(holding({"u1"}), {.url = store.url()});
  const std::string stopped = "pid " + std::to_string(first.pid()) + " (stopped)";
  ASSERT_TRUE(eventually([&] { return run({"status"}, store.url()).out.find(stopped) != std::string::npos; }))
      << run({"status"}, store.url()).out;
  const std::string text = run({"status"}, store.url()).out;
  EXPECT_NE(text.find("kill -CONT " + std::to_string(first.pid())), std::string::npos) << text;
  holder.signal(SIGTERM);
  EXPECT_EQ(holder.ends().code, 128 + SIGTERM);
  EXPECT_TRUE(eventually([&] {
    return run({"status"}, store.url()).out.find("nobody, but it is stopped") != std::string::npos;
  })) << run({"status"}, store.url()).out;
  first.signal(SIGCONT);
  EXPECT_TRUE(first.prints("ready")) << first.err();
}

TEST(Status, what_a_waiting_acquire_has_so_far_has_an_age) {
  const Store store;
  Running holder(holding({"u2"}), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  Running waiter(holding({"u1", "u2"}), {.url = store.url()});
  ASSERT_TRUE(somebody_waits(store));
  const std::string part = "\"fence\": \"0\",\n      \"age_ms\": ";
  const auto age = [&] {
    const std::string json = run({"status", "--json"}, store.url()).out;
    const std::size_t at = json.find(part);
    return at == json.npos ? -1 : std::stol(json.substr(at + part.size()));
  };
  EXPECT_TRUE(eventually([&] { return age() >= 100; })) << age();
}

TEST(Watch, prints_one_after_another_where_there_is_no_terminal) {
  const Store store;
  make_table(store);
  const Result result = run({"status", "--watch", "--count", "3", "--interval", "50ms"}, store.url());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(count(result.out, "Nothing is held."), 3u) << result.out;
  EXPECT_EQ(result.out.find('\x1B'), std::string::npos);
}

TEST(Watch, fills_a_terminal_of_80_by_24_and_leaves_it_as_it_was) {
  const Store store;
  std::string long_name(300, 'x');
  Running holder(holding({"--note", long_name, "u1/" + long_name.substr(0, 250)}), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  struct Ending {
    const char* keys;
    int signal;
    int code;
  };
  for (const Ending& ending : {Ending{"q", 0, 0}, Ending{"\x03", 0, 0}, Ending{"", SIGTERM, 128 + SIGTERM},
                               Ending{"", SIGINT, 0}, Ending{"", SIGHUP, 128 + SIGHUP}}) {
    Running running({"status", "--watch", "--interval", "50ms"}, {.url = store.url(), .terminal = true});
    termios before{};
    ASSERT_EQ(tcgetattr(running.terminal(), &before), 0);
    ASSERT_TRUE(running.prints("q ends it")) << running.out();
    // Only after the second picture, so that drawing over the first one is seen as well.
    ASSERT_TRUE(eventually([&] { return count(running.out(), "q ends it") >= 2; }));
    termios during{};
    ASSERT_EQ(tcgetattr(running.terminal(), &during), 0);
    EXPECT_EQ(during.c_lflag & ICANON, 0u);
    if (ending.signal != 0) running.signal(ending.signal);
    running.type(ending.keys);
    const Result result = running.ends();
    EXPECT_EQ(result.code, ending.code) << result.out;
    EXPECT_LE(widest_line(result.out), 80u) << result.out;
    EXPECT_TRUE(result.out.starts_with("\x1B[?1049h")) << result.out;
    EXPECT_TRUE(result.out.ends_with("\x1B[?25h\x1B[?1049l")) << "the cursor and the first screen are back";
    for (std::size_t at = 0; (at = result.out.find("\x1B[H", at)) != std::string::npos; ++at) {
      const std::string picture = result.out.substr(at, result.out.find("q ends it", at) - at);
      EXPECT_EQ(count(picture, "\r\n"), 23u) << "one screen, and nothing scrolls";
    }
    termios after{};
    ASSERT_EQ(tcgetattr(running.terminal(), &after), 0);
    EXPECT_TRUE(same(before, after));
  }
}

TEST(Watch, follows_the_size_of_the_terminal) {
  const Store store;
  Running running({"status", "--watch", "--interval", "1h"}, {.url = store.url(), .terminal = true});
  ASSERT_TRUE(running.prints("q ends it"));
  const std::size_t shown = running.out().size();
  running.resize(30, 6);
  ASSERT_TRUE(eventually([&] { return count(running.out(), "q ends it") >= 2; })) << "drawn again at once";
  const std::string again = running.out().substr(shown);
  EXPECT_LE(widest_line(again), 30u) << again;
  EXPECT_EQ(count(again, "\r\n"), 5u) << again;
  running.type("q");
  EXPECT_EQ(running.ends().code, 0);
}

TEST(Watch, a_store_that_cannot_be_opened_leaves_the_terminal_alone) {
  Running running({"status", "--watch"}, {.url = "memory:?nonsense=1", .terminal = true});
  const Result result = running.ends();
  EXPECT_EQ(result.code, 64);
  EXPECT_EQ(result.out.find('\x1B'), std::string::npos) << result.out;
}

}  // namespace
}  // namespace tooltest
