// Hermitage's table (github.com/ept/hermitage): which phenomena each isolation level of each engine lets happen. The
// scenarios of scenarios/hermitage have an order for each level, and the table in their README is what was seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "packs.h"
#include "support/needs_server.h"

namespace hierlock::lab_tests {
namespace {

using lab::Event;
using lab::Result;

// As the table names them, in its order.
const std::vector<std::string> phenomena{
    "g0", "g1a", "g1b", "g1c", "otv", "pmp", "pmp-write", "p4", "g-single", "g-single-write", "g2-item", "g2"};

// How the step, or the check, ended; also if it had to wait.
std::string end_of(const Result& result, const std::string& name) {
  std::string end;
  for (std::size_t i = 0; i < result.events.size(); ++i) {
    const Event& event = result.events[i];
    if (name == "check" ? event.kind == Event::Kind::check : event.name == name) end = event.actual;
    for (const Event::Freed& freed : event.freed) {
      if (result.events.at(freed.event).name == name) end = freed.actual;
    }
  }
  return end.substr(0, end.find(", unblocks"));
}

// `fact sign STEP OUTCOME [or OUTCOME]`: the phenomenon has happened if the step ended so.
bool happened(const Result& result) {
  const std::string sign = result.facts.at("sign");
  const std::size_t blank = sign.find(' ');
  const std::string end = end_of(result, sign.substr(0, blank));
  EXPECT_NE(end, "") << result.str();
  const std::string between = " or ";
  for (std::size_t at = blank + 1; at < sign.size();) {
    const std::size_t stop = std::min(sign.find(between, at), sign.size());
    if (end == sign.substr(at, stop - at)) return true;
    at = stop + between.size();
  }
  return false;
}

class Hermitage : public testing::TestWithParam<std::string> {};

TEST_P(Hermitage, the_table_is_what_each_level_of_the_engine_shows) {  // X2
  if (!url_of(GetParam())) HIERLOCK_NEEDS_SERVER(variable_of(GetParam()));
  std::vector<std::string> levels;
  std::map<std::string, std::string> rows;  // of the table, by level
  for (const std::string& name : phenomena) {
    const std::string file = HIERLOCK_SCENARIOS "/hermitage/" + name + ".scenario";
    for (const Result& result : results_of(GetParam())) {
      if (result.file != file) continue;
      ASSERT_TRUE(result.passed()) << result.message << "\n" << result.str();
      const std::string level = result.scenario.substr(result.scenario.rfind(": ") + 2);
      if (!rows.contains(level)) levels.push_back(level);
      rows[level] += happened(result) ? " happens |" : " – |";
    }
  }
  EXPECT_EQ(levels.size(), 4u);
  const std::string read_me = text_of(HIERLOCK_SCENARIOS "/README.md");
  for (const std::string& level : levels) {
    const std::string row = "| " + GetParam() + " | " + level + " |" + rows[level] + "\n";
    EXPECT_NE(read_me.find(row), std::string::npos) << "not in scenarios/README.md:\n" << row;
  }
}

// Sanitizers look at the lab, and not at servers.
INSTANTIATE_TEST_SUITE_P(, Hermitage,
                         testing::ValuesIn(sanitized ? std::vector<std::string>{}
                                                     : std::vector<std::string>{"mysql", "mariadb", "postgres"}),
                         [](const auto& engine) { return engine.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Hermitage);

}  // namespace
}  // namespace hierlock::lab_tests
