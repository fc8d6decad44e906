// The lab as the tool's users meet it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tool.h"

namespace tooltest {
namespace {

class Lab : public testing::Test {
 protected:
  // A scenario in a file of its own.
  std::string file(const std::string& name, const std::string& text) {
    const std::string path = store_.folder() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  std::string path(const std::string& name) const { return store_.folder() + "/" + name; }
  static std::string read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  // Whether that process has a lock table of the lab's.
  static bool has_table(pid_t process) {
    const std::string begin = "hierlock-lab." + std::to_string(process) + ".";
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      if (entry.path().filename().string().starts_with(begin)) return true;
    }
    return false;
  }

  const std::string right_ =
      "scenario  an account and its resource\n"
      "proves    H13\n"
      "engines   memory shm\n"
      "T1 a:  acquire u1/a1/r1  => ok                  # a comment that stays\n"
      "T2 b:  acquire u1/a1     => blocked by T1\n"
      "T1 c:  release           => ok, unblocks T2\n";
  const std::string wrong_ =
      "scenario  an account and its resource\n"
      "T1 a:  acquire u1/a1/r1  => ok                  # a comment that stays\n"
      "T2 b:  acquire u1/a1     => ok\n"
      "T1 c:  release           => ok\n";
  Store store_;
};

TEST_F(Lab, plays_a_scenario_and_shows_its_lanes) {
  const Result result = run({"lab", "run", file("right.scenario", right_), "--on", "memory:"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("waits for T1: u1/a1"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("1 passed, 0 failed, 0 could not be played, 0 not for the engine\n"), std::string::npos)
      << result.out;
  EXPECT_LE(widest_line(result.out), 80u);
  EXPECT_EQ(result.err, "");
}

TEST_F(Lab, plays_on_every_engine_that_needs_no_server_unless_told_otherwise) {
  const Result result = run({"lab", "run", file("right.scenario", right_)});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("memory: passed"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("shm: passed"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("2 passed"), std::string::npos) << result.out;
  const Result named = run({"lab", "run", path("right.scenario")}, "memory:");
  EXPECT_NE(named.out.find("1 passed"), std::string::npos) << named.out;
}

TEST_F(Lab, tells_what_was_expected_and_what_was_and_ends_with_1) {
  const Result result = run({"lab", "run", file("wrong.scenario", wrong_), "--on", "memory:"});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out.find("blocked by T1"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("0 passed, 1 failed"), std::string::npos) << result.out;
}

TEST_F(Lab, nothing_to_play_is_no_success) {
  const Result result =
      run({"lab", "run", file("other.scenario", "scenario x\nengines mysql\nT1 a: select 1\n"), "--on", "memory:"});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("nothing was played"), std::string::npos) << result.err;
}

TEST_F(Lab, what_cannot_be_read_is_told_with_line_and_column) {
  const Result result = run({"lab", "run", file("bad.scenario", "scenario x\nT1 a: acquire u1 => maybe\n")});
  EXPECT_EQ(result.code, 64);
  EXPECT_NE(result.err.find("bad.scenario:2:21: "), std::string::npos) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(run({"lab", "run", path("none.scenario")}).code, 69);
  EXPECT_EQ(run({"lab", "run", store_.folder() + "/."}).code, 64) << "a folder where one cannot be read";
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"lab"},
                                                {"lab", "walk"},
                                                {"lab", "permute"},
                                                {"lab", "list", "--rewrite"},
                                                {"lab", "run", "--seed", "1"},
                                                {"lab", "run", "--side-by-side", "0"},
                                                {"lab", "list", "--side-by-side", "2"},
                                                {"lab", "run", "--on"},
                                                {"lab", "run", "--patience", "soon"}}) {
    const Result usage = run(wrong);
    EXPECT_EQ(usage.code, 64) << usage.err;
    EXPECT_EQ(usage.out, "");
  }
}

TEST_F(Lab, an_engine_that_there_is_not_is_told) {
  const Result result = run({"lab", "run", file("right.scenario", right_), "--on", "oracle://db"});
  EXPECT_EQ(result.code, 64) << result.out;
  EXPECT_NE(result.err.find("oracle"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("use one of memory:, shm:, sqlite:"), std::string::npos) << result.err;
}

TEST_F(Lab, writes_documents) {
  const Result result = run({"lab", "run", file("right.scenario", right_), file("wrong.scenario", wrong_), "--on",
                             "memory:", "--report", path("r.html"), "--junit", path("r.xml"), "--json"});
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(is_json(result.out)) << result.out;
  EXPECT_NE(result.out.find("\"actual\": \"blocked by T1\""), std::string::npos);
  EXPECT_NE(read(path("r.html")).find("an account and its resource"), std::string::npos);
  EXPECT_NE(read(path("r.xml")).find("<testsuite"), std::string::npos);
  const Result full = run({"lab", "run", path("right.scenario"), "--on", "memory:", "--report", "/dev/full"});
  EXPECT_EQ(full.code, 74);
  EXPECT_NE(full.err.find("/dev/full"), std::string::npos) << full.err;
}

TEST_F(Lab, rewrites_what_is_expected_into_what_happens_and_keeps_the_rest) {
  const std::string path = file("wrong.scenario", wrong_);
  const Result result = run({"lab", "run", path, "--on", "memory:", "--rewrite"});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_NE(result.err.find("rewrote"), std::string::npos) << result.err;
  const std::string text = read(path);
  EXPECT_NE(text.find("=> ok                  # a comment that stays\n"), std::string::npos) << text;
  EXPECT_NE(text.find("blocked by T1"), std::string::npos) << text;
  EXPECT_NE(text.find("unblocks T2"), std::string::npos) << text;
  const Result again = run({"lab", "run", path, "--on", "memory:", "--rewrite"});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.err, "");
  EXPECT_EQ(read(path), text);
}

TEST_F(Lab, each_order_of_a_file_is_played_and_rewritten) {
  const std::string path = file("orders.scenario",
                                "scenario orders\nT1 a: acquire u1\nT1 b: release\nT2 c: acquire u1 nowait\n"
                                "order first\na\nc => ok  # it is not\nb\n"
                                "order second\nc\na => blocked by T2\n");
  const Result wrong = run({"lab", "run", path, "--on", "memory:"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.out.find("orders: first"), std::string::npos) << wrong.out;
  EXPECT_NE(wrong.out.find("1 passed, 1 failed"), std::string::npos) << wrong.out;
  const std::string before = read(path);
  const Result result = run({"lab", "run", path, "--on", "memory:", "--rewrite"});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_NE(result.out.find("2 passed"), std::string::npos) << result.out;
  std::string after = before;
  after.replace(after.find("c => ok"), 7, "c => busy");
  EXPECT_EQ(read(path), after);
}

TEST_F(Lab, imports_a_spec_of_isolationtester) {
  const std::string path = file("one.spec", "session a\nstep s { SELECT 1; }\nsession b\nstep t { SELECT 2; }\n");
  const Result result = run({"lab", "import", path});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("a s: SELECT 1;\nb t: SELECT 2;\n\norder  permutation 1\n"), std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("order  permutation 2\nt  => error not_played\n"), std::string::npos) << result.out;
  const Result wrong = run({"lab", "import", file("wrong.spec", "session a\nstep s SELECT 1\n")});
  EXPECT_EQ(wrong.code, 64);
  EXPECT_NE(wrong.err.find("wrong.spec:2: SQL in braces expected"), std::string::npos) << wrong.err;
  EXPECT_EQ(run({"lab", "import", path, "--json"}).code, 64);
  EXPECT_EQ(run({"lab", "import", path, path}).code, 64);
  EXPECT_EQ(run({"lab", "import", this->path("none.spec")}).code, 69);
}

TEST_F(Lab, imports_what_the_tester_prints_for_a_spec) {
  const std::string spec = file("one.spec", "session a\nstep s { SELECT 1; }\n");
  const std::string out =
      file("one.out", "starting permutation: s\nstep s: SELECT 1;\n?column?\n--------\n       1\n(1 row)\n\n");
  const Result result = run({"lab", "import", spec, "--expected", out});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("order  permutation 1\ns  => rows 1\n"), std::string::npos) << result.out;
  const Result other = run({"lab", "import", spec, "--expected", file("two.out", "starting permutation: t\n")});
  EXPECT_EQ(other.code, 64);
  EXPECT_NE(other.err.find("two.out:1: `starting permutation: s` expected"), std::string::npos) << other.err;
  EXPECT_EQ(run({"lab", "import", spec, "--expected", path("none.out")}).code, 69);
  EXPECT_EQ(run({"lab", "run", spec, "--expected", out}).code, 64);
}

TEST_F(Lab, an_import_that_cannot_be_played_prints_an_error_and_no_draft) {
  const std::string spec = file("one.spec", "session a\nstep s { SELECT 1; }\nsession b\nstep t { SELECT 2; }\n");
  const Result result = run({"lab", "import", spec, "--on", "memory:"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_NE(result.err.find("one: permutation 1: "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("(and 1 more order)"), std::string::npos) << result.err;
}

TEST_F(Lab, rewriting_keeps_what_is_expected_of_engines_that_were_not_played) {
  const std::string path = file("some.scenario",
                                "scenario some\nT1 a: acquire u1\n"
                                "T2 b: acquire u1 nowait => memory: ok; shm: timeout; else: error 7\n");
  EXPECT_EQ(run({"lab", "run", path, "--on", "memory:", "--rewrite"}).code, 0);
  EXPECT_NE(read(path).find("=> memory: busy; shm: timeout; else: error 7\n"), std::string::npos) << read(path);
  EXPECT_EQ(run({"lab", "run", path, "--on", "memory:", "--on", "shm:", "--rewrite"}).code, 0);
  EXPECT_NE(read(path).find("=> memory shm: busy; else: error 7\n"), std::string::npos) << read(path);
}

TEST_F(Lab, a_file_that_cannot_be_rewritten_stays_as_it_was) {
  const std::string path = file("wrong.scenario", wrong_);
  const Result result = run_program(
      {"/bin/sh", "-c", "trap '' XFSZ; ulimit -f 0; \"$0\" lab run \"$1\" --on memory: --rewrite | cat", tool(), path});
  EXPECT_EQ(read(path), wrong_) << result.out << result.err;
}

TEST_F(Lab, what_a_killed_run_left_goes_with_the_next) {
  const std::string path =
      file("long.scenario", "scenario long\nT1 a: acquire u1\nT2 b: acquire u1 timeout 60s => timeout\n");
  pid_t killed = 0;
  {
    Running lab({"lab", "run", path, "--on", "shm:", "--patience", "100s"}, {});
    killed = lab.pid();
    ASSERT_TRUE(eventually([&] { return has_table(killed); }));
    lab.signal(SIGKILL);
  }
  EXPECT_TRUE(has_table(killed));
  run({"lab", "run", file("right.scenario", right_), "--on", "shm:"});
  EXPECT_FALSE(has_table(killed));
}

TEST_F(Lab, no_password_is_told_even_of_a_url_that_is_wrong) {
  const std::string path = file("sql.scenario", "scenario sql\nT1 a: select 1\n");
  for (const char* url : {"postgres://app:sekret/x", "mysql://app:sekret/x", "postgres://app:sek/sekret@h/x"}) {
    for (const bool json : {false, true}) {
      std::vector<std::string> arguments{"lab", "run", path, "--on", url};
      if (json) arguments.emplace_back("--json");
      const Result result = run(arguments);
      EXPECT_NE(result.code, 0);
      EXPECT_EQ((result.out + result.err).find("sekret"), std::string::npos) << result.out << result.err;
    }
  }
}

TEST_F(Lab, lists_scenarios) {
  file("right.scenario", right_);
  const Result result = run({"lab", "list", store_.folder()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("H13"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("memory shm"), std::string::npos) << result.out;
  EXPECT_TRUE(is_json(run({"lab", "list", store_.folder(), "--json"}).out));
}

TEST_F(Lab, plays_every_order_and_each_can_be_played_again) {
  const std::string path = file("orders.scenario",
                                "scenario opposite orders\n"
                                "T1 a: acquire u1\nT1 b: extend u2\nT1 c: release\n"
                                "T2 d: acquire u2\nT2 e: extend u1\nT2 f: release\n");
  const Result result = run({"lab", "permute", path});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("8 schedules, all that can happen; some deadlock"), std::string::npos) << result.out;
  EXPECT_TRUE(is_json(run({"lab", "permute", path, "--json", "--pin"}).out));
  const Result again = run({"lab", "run", path, "--on", "memory:", "--schedule", "a,d,b,e,c"});
  EXPECT_EQ(again.code, 0) << again.out << again.err;
  EXPECT_NE(again.out.find("deadlock, T2"), std::string::npos) << again.out;
  for (const auto& [schedule, complaint] : {std::pair{"a,z", "there is no step z"},
                                            {"b,a", "b is not the next step of T1, which is a"},
                                            {"a,a", "a is not the next step of T1"}}) {
    const Result refused = run({"lab", "run", path, "--on", "memory:", "--schedule", schedule});
    EXPECT_EQ(refused.code, 64);
    EXPECT_NE(refused.err.find(complaint), std::string::npos) << refused.err;
  }
  const Result waits = run({"lab", "run", path, "--on", "memory:", "--schedule", "a,d,b,c"});
  EXPECT_EQ(waits.code, 1);
  EXPECT_NE(waits.out.find("T1 cannot take step c in its place: it waits"), std::string::npos) << waits.out;
}

TEST_F(Lab, a_signal_ends_it_and_what_it_made_is_gone) {
  const std::string path =
      file("long.scenario", "scenario long\nT1 a: acquire u1\nT2 b: acquire u1 timeout 60s => timeout\n");
  Running lab({"lab", "run", path, "--on", "shm:", "--patience", "100s"}, {});
  ASSERT_TRUE(eventually([&] { return has_table(lab.pid()); }));
  lab.signal(SIGTERM);
  EXPECT_EQ(lab.ends().code, 128 + SIGTERM);
  EXPECT_FALSE(has_table(lab.pid()));
}

}  // namespace
}  // namespace tooltest
