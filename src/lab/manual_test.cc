// docs/lab.md and the README cannot drift: each of their scenarios is read, and played wherever it is for and there is
// something to play it on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <hierlock/lab.h>

namespace hierlock::lab {
namespace {

// The ```scenario blocks, each with as many empty lines before it as there are lines above it in the page, so that a
// complaint names a line of the page.
std::vector<std::string> examples(const std::filesystem::path& page) {
  std::ifstream file(page);
  std::vector<std::string> blocks;
  bool inside = false;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line == "```scenario") {
      blocks.emplace_back(number, '\n');
      inside = true;
    } else if (line.starts_with("```")) {
      inside = false;
    } else if (inside) {
      blocks.back() += line + "\n";
    }
  }
  return blocks;
}

// Of the tests' own servers only.
std::vector<std::string> urls() {
  std::vector<std::string> all{"memory:", "shm:"};
  if (knows("sqlite:")) all.emplace_back("sqlite:");
  for (const char* const variable : {"HIERLOCK_TEST_MYSQL", "HIERLOCK_TEST_MARIADB", "HIERLOCK_TEST_POSTGRES"}) {
    const char* const url = std::getenv(variable);
    if (url != nullptr && knows(url)) all.emplace_back(url);
  }
  return all;
}

TEST(Manual, every_scenario_of_the_manual_is_read_and_does_what_it_says) {
  const std::filesystem::path source = HIERLOCK_SOURCE;
  std::vector<std::string> blocks = examples(source / "docs/lab.md");
  ASSERT_GE(blocks.size(), 6u) << "is the test still looking in the right place?";
  const std::vector<std::string> first_page = examples(source / "README.md");
  ASSERT_EQ(first_page.size(), 1u);
  blocks.insert(blocks.end(), first_page.begin(), first_page.end());
  std::set<std::string> played;
  for (const std::string& url : urls()) {
    const bool embedded = url == "memory:" || url == "shm:";
    std::vector<Scenario> all;
    for (const std::string& block : blocks) {
      const Scenario scenario = parse(block, "docs/lab.md");  // throws with the place, if it must
      // Otherwise those are lock steps, and other stores are not linked here.
      if (!embedded && scenario.engines().empty()) continue;
      for (Scenario& order : scenario.orders()) all.push_back(std::move(order));
    }
    for (const Result& result : Runner(url).run_all(all)) {
      if (result.verdict == Result::Verdict::skipped) continue;
      EXPECT_TRUE(result.passed()) << result.scenario << " on " << url.substr(0, url.find(':')) << ": "
                                   << result.message << "\n"
                                   << result.str();
      played.insert(result.scenario);
    }
  }
  EXPECT_GE(played.size(), 4u) << "those that need no server";
}

TEST(Manual, what_it_says_of_permutations_is_so) {  // H13
  const auto page = std::filesystem::path(HIERLOCK_SOURCE) / "docs/lab.md";
  for (const std::string& block : examples(page)) {
    const Scenario scenario = parse(block, "docs/lab.md");
    if (scenario.name() != "two resources in opposite orders") continue;
    const Permuted all = permute(scenario, "memory:");
    EXPECT_TRUE(all.deadlocks()) << all.str();
    EXPECT_TRUE(all.complete);
    return;
  }
  ADD_FAILURE() << "there is no such scenario";
}

}  // namespace
}  // namespace hierlock::lab
