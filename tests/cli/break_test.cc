// hierlock break: who is asked, who is hit, and what is said about it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tool.h"

namespace tooltest {
namespace {

std::vector<std::string> holding(std::vector<std::string> options) {
  options.insert(options.begin(), "exec");
  for (const std::string word : {"--", "/bin/sh", "-c", "echo ready; exec sleep 1000"}) options.push_back(word);
  return options;
}

bool is_held(const Store& store, const std::vector<std::string>& target) {
  std::vector<std::string> arguments{"exec", "--no-wait"};
  arguments.insert(arguments.end(), target.begin(), target.end());
  for (const std::string word : {"--", "true"}) arguments.push_back(word);
  return run(arguments, store.url()).code == 75;
}

TEST(Break, without_a_terminal_it_wants_to_be_told_yes) {
  const Store store;
  const Result result = run_program({"/bin/sh", "-c", "hierlock break u1 </dev/null"}, store.url());
  EXPECT_EQ(result.code, 64);
  EXPECT_NE(result.err.find("add --yes"), std::string::npos) << result.err;
}

TEST(Break, what_nobody_holds_is_1) {
  const Store store;
  const Result result = run({"break", "--yes", "u1"}, store.url());
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "hierlock: nobody holds u1\n");
  EXPECT_TRUE(is_json(run({"break", "--yes", "--json", "u1"}, store.url()).out));
}

TEST(Break, only_the_lock_that_was_asked_for_is_hit) {
  const Store store;
  Running below(holding({"u1/a1/r1"}), {.url = store.url()});
  Running beside(holding({"u1/a2"}), {.url = store.url()});
  ASSERT_TRUE(below.prints("ready") && beside.prints("ready"));
  const Result above = run({"break", "--yes", "u1/a1"}, store.url());
  EXPECT_EQ(above.code, 1);
  EXPECT_NE(above.err.find("u1/a1/r1 below it is held"), std::string::npos) << above.err;

  const Result result = run({"break", "--yes", "u1/a1/r1"}, store.url());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("Broke 1 lock on u1/a1/r1"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(std::to_string(below.pid())), std::string::npos) << result.out;
  EXPECT_FALSE(is_held(store, {"u1/a1/r1"}));
  EXPECT_TRUE(is_held(store, {"u1/a2"}));
  EXPECT_EQ(below.ends().code, 70);
  EXPECT_FALSE(is_held(store, {"u1/a1"})) << "what was held because of it is free when its holder has ended";
}

TEST(Break, every_holder_of_a_shared_lock_a_name_and_slots_is_hit) {
  const Store store;
  for (const std::vector<std::string>& target :
       {std::vector<std::string>{"--shared", "u1"}, {"--slots", "2", "import"}}) {
    Running one(holding(target), {.url = store.url()});
    Running two(holding(target), {.url = store.url()});
    ASSERT_TRUE(one.prints("ready") && two.prints("ready"));
    std::vector<std::string> arguments{"break", "--yes", "--json"};
    arguments.insert(arguments.end(), target.begin(), target.end());
    const Result result = run(arguments, store.url());
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(is_json(result.out)) << result.out;
    EXPECT_NE(result.out.find("\"broken\": 2"), std::string::npos) << result.out;
    EXPECT_EQ(one.ends().code, 70);
    EXPECT_EQ(two.ends().code, 70);
  }
  Running name(holding({"--named", "refresh"}), {.url = store.url()});
  ASSERT_TRUE(name.prints("ready"));
  EXPECT_EQ(run({"break", "--yes", "--named", "refresh"}, store.url()).code, 0);
  EXPECT_EQ(name.ends().code, 70);
}

TEST(Break, at_a_terminal_it_shows_who_holds_and_asks) {
  const Store store;
  Running holder(holding({"--note", "nightly", "u1"}), {.url = store.url()});
  ASSERT_TRUE(holder.prints("ready")) << holder.err();
  for (const std::string answer : {"n\n", "\n", "no\n", "\x04"}) {
    Running asked({"break", "u1"}, {.url = store.url(), .terminal = true});
    ASSERT_TRUE(asked.prints("[y/N] ")) << asked.out();
    EXPECT_NE(asked.out().find(std::to_string(holder.pid())), std::string::npos) << asked.out();
    EXPECT_NE(asked.out().find("nightly"), std::string::npos) << asked.out();
    EXPECT_LE(widest_line(asked.out()), 80u) << asked.out();
    asked.type(answer);
    EXPECT_EQ(asked.ends().code, 1);
    EXPECT_TRUE(is_held(store, {"u1"}));
  }
  Running asked({"break", "u1"}, {.url = store.url(), .terminal = true});
  ASSERT_TRUE(asked.prints("[y/N] "));
  asked.type("y\n");
  const Result result = asked.ends();
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_NE(result.out.find("Broke 1 lock on u1"), std::string::npos) << result.out;
  EXPECT_EQ(holder.ends().code, 70);
}

TEST(Break, an_answer_about_somebody_who_has_gone_is_not_an_answer) {
  const Store store;
  Running first(holding({"u1"}), {.url = store.url()});
  ASSERT_TRUE(first.prints("ready")) << first.err();
  Running asked({"break", "u1"}, {.url = store.url(), .terminal = true});
  ASSERT_TRUE(asked.prints("[y/N] "));
  first.signal(SIGTERM);
  EXPECT_EQ(first.ends().code, 128 + SIGTERM);
  Running second(holding({"u1"}), {.url = store.url()});
  ASSERT_TRUE(second.prints("ready")) << second.err();
  asked.type("y\n");
  ASSERT_TRUE(asked.prints("That has changed meanwhile")) << asked.out();
  asked.type("n\n");
  EXPECT_EQ(asked.ends().code, 1);
  EXPECT_TRUE(second.goes_on());
}

TEST(Break, a_store_that_cannot_break_locks_says_so) {
  const Result result = run({"break", "--yes", "u1"}, "memory:");
  EXPECT_EQ(result.code, 64);
  EXPECT_NE(result.err.find("only shm:, valkey: and redis: can"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace tooltest
