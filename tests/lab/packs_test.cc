// The scenarios that hierlock ships prove what they say, on every engine they list.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "packs.h"
#include "support/needs_server.h"

namespace hierlock::lab_tests {
namespace {

using lab::Result;
using lab::Scenario;

class Packs : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!url_of(GetParam())) HIERLOCK_NEEDS_SERVER(variable_of(GetParam()));
  }
};

TEST_P(Packs, every_scenario_passes_on_every_engine_it_lists) {
  const std::vector<Result>& results = results_of(GetParam());
  for (const Result& result : results) EXPECT_TRUE(result.passed()) << result.message << "\n" << result.str();
  EXPECT_FALSE(results.empty());
  std::cout << results.size() << " scenarios" << std::endl;
}

INSTANTIATE_TEST_SUITE_P(, Packs, testing::ValuesIn(engines()), [](const auto& engine) { return engine.param; });

class Anomalies : public Packs {};

// What a table of anomalies says of an engine is what its scenario has shown there.
TEST_P(Anomalies, the_table_of_isolation_levels_is_what_was_seen) {  // X2
  std::map<std::string, std::map<std::string, std::string>> table;
  for (const Result& result : results_of(GetParam())) {
    if (!result.facts.contains("anomaly")) continue;
    const std::string level = result.facts.at("level"), anomaly = result.facts.at("anomaly");
    const std::string shows = result.facts.at("shows");
    table[level][anomaly] = shows;
    std::vector<std::string> reads;  // what T1 has read, in order
    bool locking_read_differs = false;
    for (const lab::Event& event : result.events) {
      if (event.session != "T1" || event.text.find("select") == std::string::npos) continue;
      if (event.text.find("{update}") == std::string::npos) {
        reads.push_back(event.actual);
      } else {
        locking_read_differs = event.actual.starts_with("rows") && event.actual != reads.front();
      }
    }
    ASSERT_FALSE(reads.empty()) << result.str();
    const bool happened = anomaly == "dirty read" ? reads[0] == "rows 50" : reads.at(1) != reads[0];
    EXPECT_EQ(shows.starts_with("happens"), happened) << result.str();
    EXPECT_EQ(shows.starts_with("prevented"), !happened) << result.str();
    EXPECT_EQ(shows.ends_with("except in locking reads"), locking_read_differs) << result.str();
  }
  EXPECT_EQ(table.size(), GetParam() == "sqlite" ? 2u : 4u);
  const std::string read_me = text_of(HIERLOCK_SCENARIOS "/README.md");
  for (auto& [level, shows] : table) {
    const std::string row = "| " + GetParam() + " | " + level + " | " + shows["dirty read"] + " | " +
                            shows["non-repeatable read"] + " | " + shows["phantom"] + " |\n";
    EXPECT_NE(read_me.find(row), std::string::npos) << "not in scenarios/README.md:\n" << row;
  }
}

INSTANTIATE_TEST_SUITE_P(, Anomalies, testing::ValuesIn(sql_engines()),
                         [](const auto& engine) { return engine.param; });

TEST(Pack, every_scenario_says_what_it_proves_and_is_played_somewhere) {
  std::set<std::string> names;
  for (const Scenario& scenario : shipped()) {
    EXPECT_FALSE(scenario.proves().empty()) << scenario.file();
    EXPECT_NE(text_of(scenario.file()).find("\nabout "), std::string::npos) << scenario.file();
    EXPECT_TRUE(names.insert(scenario.name()).second) << scenario.file() << ": there is another one of that name";
    EXPECT_FALSE(scenario.engines().empty()) << scenario.file();
    const std::vector<std::string> here = engines();
    for (const std::string& engine : scenario.engines()) {
      const bool is_here = std::find(here.begin(), here.end(), engine) != here.end();
      const bool may_be_left_out = sanitized || engine == "valkey" || engine == "redis";  // built without hiredis
      EXPECT_TRUE(is_here || may_be_left_out) << scenario.file() << ": " << engine;
    }
  }
}

TEST(Pack, every_requirement_that_a_scenario_can_show_has_one) {
  std::set<std::string> proven;
  for (const Scenario& scenario : shipped()) proven.insert(scenario.proves().begin(), scenario.proves().end());
  for (const std::string id : {"H5", "H12", "H13", "H14", "H15", "N2", "N3",  "N5",  "N7", "X1", "X2",
                               "X3", "X4",  "X5",  "X6",  "X7",  "X8", "X10", "X11", "M1", "M6", "M7"}) {
    EXPECT_TRUE(proven.contains(id)) << id;
  }
}

// The lines of a scenario that begin so, with one blank between words.
std::vector<std::string> lines_of(const std::string& text, const std::string& first_word) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(first_word + " ")) continue;
    std::string words;
    std::istringstream all(line);
    for (std::string word; all >> word;) words += word + " ";
    found.push_back(words);
  }
  return found;
}

std::set<std::string> files_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(HIERLOCK_SCENARIOS "/" + folder)) {
    names.insert(entry.path().filename());
  }
  return names;
}

// What the module does ends as the SQL does that it stands for.
TEST(Pack, each_scenario_of_rows_has_a_twin_by_the_module_with_the_same_end) {  // X1, X3 to X8, X10, X11
  EXPECT_EQ(files_in("rows"), files_in("rows-module"));
  for (const std::string& name : files_in("rows-module")) {
    const std::string text = text_of(HIERLOCK_SCENARIOS "/rows-module/" + name);
    const std::string twin = text_of(HIERLOCK_SCENARIOS "/rows/" + name);
    EXPECT_NE(text.find("rows "), text.npos) << name;
    EXPECT_EQ(lines_of(text, "check"), lines_of(twin, "check")) << name;
    EXPECT_EQ(lines_of(text, "engines"), lines_of(twin, "engines")) << name;
  }
}

// The waits and the refusals of a result, in order. Rows and counts are left out: a twin may read in other steps. The
// victim of a deadlock is left out, too: PostgreSQL ends the session whose second is over first, and a slow machine
// changes that.
//
// A write that changes nothing is a conflict. The lab shows it as `affected 0`, also of the module. The module says
// `lost` if a fence refused the write; SQL cannot tell why.
std::vector<std::string> verdicts(const Result& result) {
  std::vector<std::string> all;
  const auto note = [&](const std::string& session, const std::string& actual) {
    if (actual == "affected 0" || actual.starts_with("error lost")) all.push_back(session + ": conflict");
    for (const char* word : {"blocked", "deadlock", "timeout", "busy", "serialization"}) {
      if (actual.starts_with(word)) all.push_back(session + ": " + actual);
    }
  };
  // A SELECT that names a version, and finds no row, is what fetch_checked() refuses with a conflict (X5).
  const auto checked_in_vain = [](const lab::Event& event) {
    return event.text.starts_with("select ") && event.text.find(" and version = ") != std::string::npos &&
           event.actual == "rows none";
  };
  for (const lab::Event& event : result.events) {
    if (event.actual.starts_with("deadlock")) {
      all.push_back(event.session + ": deadlock");
      continue;
    }
    note(event.session, checked_in_vain(event) ? "affected 0" : event.actual);
    for (const lab::Event::Freed& freed : event.freed) {
      all.push_back(event.session + " unblocks " + result.events.at(freed.event).session);
      note(result.events.at(freed.event).session, freed.actual);
    }
  }
  return all;
}

class Twins : public Packs {};

TEST_P(Twins, the_module_and_its_sql_get_the_same_verdicts) {  // X1, X3 to X8, X10, X11
  std::map<std::string, std::vector<std::string>> by_sql, by_module;
  for (const Result& result : results_of(GetParam())) {
    const std::filesystem::path file = result.file;
    const std::string folder = file.parent_path().filename();
    if (folder == "rows") by_sql[file.filename()] = verdicts(result);
    if (folder == "rows-module") by_module[file.filename()] = verdicts(result);
  }
  EXPECT_EQ(by_sql, by_module);
  EXPECT_GE(by_sql.size(), 18u);
}

INSTANTIATE_TEST_SUITE_P(, Twins, testing::ValuesIn(sql_engines()), [](const auto& engine) { return engine.param; });

TEST(Pack, the_matrix_is_what_its_script_writes) {  // H14
  std::string folder = testing::TempDir() + "hierlock-matrix.XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(std::system((HIERLOCK_SCENARIOS "/hierarchy/make-matrix " + folder).c_str()), 0);
  std::set<std::string> made, there;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    made.insert(entry.path().filename());
    EXPECT_EQ(text_of(entry.path()), text_of(HIERLOCK_SCENARIOS "/hierarchy/" + entry.path().filename().string()));
  }
  for (const auto& entry : std::filesystem::directory_iterator(HIERLOCK_SCENARIOS "/hierarchy")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("matrix-")) there.insert(name);
  }
  std::filesystem::remove_all(folder);
  EXPECT_EQ(made, there);
  EXPECT_EQ(made.size(), 14u);
}

class Orders : public Packs {};

TEST_P(Orders, a_deadlock_is_found_without_being_told_the_order) {  // H13
  timed("opposite orders, every order, " + GetParam(), [&] {
    const lab::Permuted all = lab::permute(shipped("hierarchy/opposite-orders"), *url_of(GetParam()));
    EXPECT_TRUE(all.deadlocks()) << all.str();
    std::cout << all.schedules << " orders" << std::endl;
  });
}

TEST_P(Orders, no_order_of_the_ordered_call_deadlocks) {  // H13
  timed("ordered call, every order, " + GetParam(), [&] {
    const lab::Permuted all = lab::permute(shipped("hierarchy/ordered-call"), *url_of(GetParam()));
    EXPECT_FALSE(all.deadlocks()) << all.str();
    EXPECT_TRUE(all.complete);
    ASSERT_EQ(all.classes.size(), 1u) << all.str();
    EXPECT_EQ(all.classes[0].outcome, "all ok");
    std::cout << all.schedules << " orders" << std::endl;
  });
}

INSTANTIATE_TEST_SUITE_P(, Orders, testing::Values("memory", sanitized ? "shm" : "mysql"),
                         [](const auto& engine) { return engine.param; });

// begin goes with its neighbour: it is no choice of its own.
class OrdersOfRows : public Packs {};

TEST_P(OrdersOfRows, a_deadlock_is_found_where_rows_have_no_order_and_none_where_they_have) {  // X8
  lab::PermuteOptions options;
  options.pin = true;
  for (const std::string what : {"rows/deadlock-inside-a-table", "rows/deadlock-across-tables"}) {
    const lab::Permuted all = lab::permute(shipped(what), *url_of(GetParam()), options);
    EXPECT_TRUE(all.deadlocks()) << all.str();
  }
  for (const std::string what : {"rows/ordered-rows", "rows/ordered-tables"}) {
    const lab::Permuted all = lab::permute(shipped(what), *url_of(GetParam()), options);
    EXPECT_FALSE(all.deadlocks()) << all.str();
    EXPECT_TRUE(all.complete);
  }
}

INSTANTIATE_TEST_SUITE_P(, OrdersOfRows, testing::Values("mysql", "postgres"),
                         [](const auto& engine) { return engine.param; });

}  // namespace
}  // namespace hierlock::lab_tests
