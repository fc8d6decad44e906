// Provisioning (H11): all rows are there in the end, whatever was there before, whoever is at it besides, and however
// often it was killed.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <thread>
#include <vector>

#include <hierlock/operate.h>

#include "on_server.h"
#include "program.h"

namespace hierlock::mysql_tests {
namespace {

constexpr std::uint32_t buckets = 10'000;

ProvisionOptions small(std::uint32_t chunk = 1'000) { return {.buckets = buckets, .chunk = chunk}; }

class Provision : public OnServer {
 protected:
  // Without ?provision=lazy: nothing is made but by provision().
  std::string ahead(const std::string& more = "") const { return ahead(server(), more); }
  std::string ahead(const Server& as, const std::string& more = "") const {
    return as.url("table=" + table() + (more.empty() ? "" : "&" + more));
  }
  std::uint64_t rows(const std::string& where = "1=1") {
    return std::stoull(plain().one("SELECT COUNT(*) FROM " + table() + " WHERE " + where));
  }
  // Level by level exactly the buckets from 0 on, and nothing else.
  testing::AssertionResult complete(unsigned levels = 3, std::uint32_t each = buckets) {
    const Plain::Rows found = plain().ask("SELECT level, COUNT(*), MIN(bucket), MAX(bucket) FROM " + table() +
                                          " GROUP BY level ORDER BY level");
    if (found.size() != levels) return testing::AssertionFailure() << found.size() << " levels";
    for (unsigned level = 0; level < levels; ++level) {
      const std::vector<std::string> expected{std::to_string(level), std::to_string(each), "0",
                                              std::to_string(each - 1)};
      if (found[level] != expected) {
        return testing::AssertionFailure() << "level " << found[level][0] << " has " << found[level][1] << " rows from "
                                           << found[level][2] << " to " << found[level][3];
      }
    }
    return testing::AssertionSuccess();
  }
};

// What a run told.
struct Told {
  std::vector<ProvisionOptions::Progress> all;
  ProvisionOptions with(ProvisionOptions options) {
    options.on_progress = [this](const ProvisionOptions::Progress& progress) {
      all.push_back(progress);
      return true;
    };
    return options;
  }
  const ProvisionOptions::Progress& last() const { return all.back(); }
};

TEST_P(Provision, makes_every_row_and_tells_how_far_it_is) {  // H11
  Told told;
  provision(ahead(), told.with(small()));
  EXPECT_TRUE(complete());
  EXPECT_EQ(plain().ask("SELECT buckets, levels FROM " + table() + "_settings"), (Plain::Rows{{"10000", "3"}}));
  ASSERT_EQ(told.all.size(), 31u) << "once at the beginning and after each chunk";
  std::uint64_t before = 0;
  for (const auto& progress : told.all) {
    EXPECT_EQ(progress.of, 30'000u);
    EXPECT_GE(progress.rows, before);
    EXPECT_GT(progress.bytes, 30'000u * 23) << "no row takes less";
    EXPECT_LT(progress.bytes, 30'000u * 100);
    before = progress.rows;
  }
  EXPECT_EQ(told.last().rows, 30'000u);
  EXPECT_EQ(told.last().made, 30'000u);
  EXPECT_EQ(told.last().left, 0ns);
}

TEST_P(Provision, run_again_changes_nothing) {  // H11
  provision(ahead(), small());
  Told told;
  provision(ahead(), told.with({}));  // what is recorded needs not be said again
  EXPECT_TRUE(complete());
  EXPECT_EQ(told.last().rows, 30'000u);
  EXPECT_EQ(told.last().made, 0u);
}

TEST_P(Provision, a_table_of_other_sizes_ends_exactly) {  // H11
  // Neither a multiple of the chunk nor of the spans that are counted; and the smallest there is.
  provision(ahead(), {.buckets = 50'123, .levels = 2, .chunk = 7'000});
  EXPECT_TRUE(complete(2, 50'123));
  plain().ask("DROP TABLE " + table() + ", " + table() + "_settings");
  provision(ahead(), {.buckets = 1, .levels = 8, .chunk = 1});
  EXPECT_TRUE(complete(8, 1));
}

TEST_P(Provision, the_callers_no_ends_it_and_the_next_run_goes_on) {  // H11
  ProvisionOptions options = small();
  options.on_progress = [](const ProvisionOptions::Progress& progress) { return progress.rows < 12'000; };
  provision(ahead(), options);
  EXPECT_EQ(rows(), 12'000u);
  Told told;
  provision(ahead(), told.with(small()));
  EXPECT_TRUE(complete());
  EXPECT_EQ(told.last().made, 18'000u);
}

TEST_P(Provision, rows_that_are_there_are_left_alone_and_filled_around) {  // H11
  // As lazy locks leave them: few, anywhere.
  Locker lazy = hierlock::open(url("buckets=10000"));
  for (int i = 0; i < 50; ++i) lazy.acquire("u" + std::to_string(i) + "/a/r").release();
  plain().ask("INSERT IGNORE INTO " + table() + " (level, bucket) VALUES (0, 0), (0, 9999), (1, 5000), (2, 9999)");
  const std::uint64_t before = rows();
  ASSERT_GT(before, 100u);
  Told told;
  provision(ahead(), told.with(small()));
  EXPECT_TRUE(complete());
  EXPECT_EQ(told.last().made, 30'000u - before);
}

TEST_P(Provision, a_held_lock_is_not_waited_for) {  // H11
  Locker lazy = hierlock::open(url("buckets=10000"));
  const Lock held = lazy.acquire("u1/a1/r1");
  ASSERT_EQ(rows(), 3u);
  const auto begin = Clock::now();
  provision(ahead(), small());
  EXPECT_LT(Clock::now() - begin, 20s);
  EXPECT_TRUE(complete());
  EXPECT_TRUE(held.held());
  EXPECT_EQ(locked().size(), 3u) << "nothing else is locked";
}

// A row that comes to be, and is held exclusively, after its range was found to be empty: making it waits a second, and
// is then tried in another way.
TEST_P(Provision, a_lock_that_comes_in_between_is_filled_around) {  // H11
  Locker lazy = hierlock::open(url("buckets=10000"));
  ProvisionOptions options = small();
  std::optional<Lock> held;
  options.on_progress = [&](const ProvisionOptions::Progress& progress) {
    if (progress.rows == 1'000) {
      held = lazy.acquire("u1");
      EXPECT_GE(locked().begin()->first.second, 1'000) << "another id would be needed: this one's row was made before";
    }
    return true;
  };
  provision(ahead(), options);
  EXPECT_TRUE(complete());
  EXPECT_TRUE(held && held->held());
}

TEST_P(Provision, two_at_once_make_each_row_once) {  // H11
  std::vector<std::thread> operators;
  std::atomic<std::uint64_t> made{0};
  for (int i = 0; i < 2; ++i) {
    operators.emplace_back([&] {
      Told told;
      EXPECT_FALSE(error_of([&] { provision(ahead(), told.with(small(500))); }));
      made += told.last().made;
      EXPECT_EQ(told.last().rows, 30'000u);
    });
  }
  for (std::thread& one : operators) one.join();
  EXPECT_TRUE(complete());
  EXPECT_EQ(made, 30'000u);
}

TEST_P(Provision, a_large_table_is_made_in_two_halves_at_once_which_can_be_ended_and_gone_on_with) {  // H11
  constexpr std::uint32_t each = 210'000;
  const ProvisionOptions large{.buckets = each, .levels = 1, .chunk = 20'000};
  ProvisionOptions options = large;
  options.on_progress = [](const ProvisionOptions::Progress& progress) { return progress.rows < 60'000; };
  provision(ahead(), options);
  EXPECT_GT(rows("bucket < 105000"), 0u);
  EXPECT_GT(rows("bucket >= 105000"), 0u);
  plain().ask("INSERT INTO " + table() + " (level, bucket) VALUES (0, 100000), (0, 209999)");
  const std::uint64_t before = rows();
  std::vector<std::thread> operators;
  std::atomic<std::uint64_t> made{0};
  for (int i = 0; i < 2; ++i) {
    operators.emplace_back([&] {
      Told told;
      EXPECT_FALSE(error_of([&] { provision(ahead(), told.with(large)); }));
      made += told.last().made;
    });
  }
  for (std::thread& one : operators) one.join();
  EXPECT_TRUE(complete(1, each));
  EXPECT_EQ(made, each - before);
}

TEST_P(Provision, the_throttle_is_kept) {  // H11
  const auto begin = Clock::now();
  provision(ahead(), {.buckets = 2'000, .levels = 1, .throttle = 1'000});
  const auto spent = Clock::now() - begin;
  EXPECT_GE(spent, 1900ms);
  EXPECT_LT(spent, 20s) << "it is a limit, not a crawl";
  EXPECT_TRUE(complete(1, 2'000));
  Told told;
  const auto again = Clock::now();
  provision(ahead(), told.with({.throttle = 1}));
  EXPECT_LT(Clock::now() - again, 20s) << "rows that are there cost nothing";
}

TEST_P(Provision, other_numbers_than_the_recorded_ones_are_refused) {  // H3
  provision(ahead(), small());
  EXPECT_TRUE(fails_with(
      ErrorKind::incompatible, [&] { provision(ahead(), {.buckets = 20'000}); }, "10000"));
  EXPECT_TRUE(fails_with(
      ErrorKind::incompatible, [&] { provision(ahead(), {.levels = 4}); }, "levels=4"));
  EXPECT_TRUE(fails_with(
      ErrorKind::incompatible, [&] { provision(ahead("buckets=5"), {}); }, "buckets=5"));
  EXPECT_TRUE(complete()) << "and nothing was made";
}

TEST_P(Provision, nonsense_is_refused_before_anything_is_made) {
  const auto refused = [&](const ProvisionOptions& options, const std::string& more = "") {
    return fails_with(ErrorKind::invalid_argument, [&] { provision(ahead(more), options); });
  };
  EXPECT_TRUE(refused({.buckets = 0}));
  EXPECT_TRUE(refused({.buckets = 3'000'000'000}));
  EXPECT_TRUE(refused({.levels = 0}));
  EXPECT_TRUE(refused({.levels = 9}));
  EXPECT_TRUE(refused({.chunk = 0}));
  EXPECT_TRUE(refused({.chunk = 2'000'000}));
  EXPECT_TRUE(refused({.buckets = 7}, "buckets=8"));
  EXPECT_EQ(plain().ask("SHOW TABLES LIKE '" + table() + "'").size(), 0u);
}

TEST_P(Provision, missing_rights_are_named) {  // H11
  const Server reader = make_user("SELECT", server().database + ".*");
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { provision(ahead(reader), small()); },
      "needs CREATE, SELECT, INSERT and UPDATE on " + table()));
  Server stranger = server();
  stranger.password = "wrong";
  const std::optional<Error> error = error_of([&] { provision(ahead(stranger), small()); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(std::string(error->what()).find("needs CREATE"), std::string::npos) << error->what();
  // Who may not create needs not, once the tables are there.
  provision(ahead(), {.buckets = 100, .levels = 1});
  plain().ask("DELETE FROM " + table() + " WHERE bucket > 50");
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { provision(ahead(reader), {}); }, "INSERT"));
  const Server filler = make_user("SELECT, INSERT, UPDATE", server().database + ".*");
  provision(ahead(filler), {});
  EXPECT_TRUE(complete(1, 100));
}

TEST_P(Provision, a_bucket_table_that_was_dropped_is_made_again) {
  provision(ahead(), small());
  plain().ask("DROP TABLE " + table());
  provision(ahead(), {});
  EXPECT_TRUE(complete());
}

TEST_P(Provision, locks_work_afterwards_and_a_row_that_is_gone_is_named) {  // H6, H11
  EXPECT_TRUE(fails_with(
      ErrorKind::not_provisioned, [&] { (void)hierlock::open(ahead()); }, "hierlock provision"));
  provision(ahead(), small());
  Locker locker = hierlock::open(ahead());
  std::pair<int, long> deepest;
  {
    const Lock lock = locker.acquire("u1/a1/r1");
    const auto rows_of_it = locked();
    ASSERT_EQ(rows_of_it.size(), 3u);
    deepest = rows_of_it.rbegin()->first;
  }
  const std::string level = std::to_string(deepest.first), bucket = std::to_string(deepest.second);
  ASSERT_TRUE(eventually([&] { return locked().empty(); }));
  plain().ask("DELETE FROM " + table() + " WHERE level=" + level + " AND bucket=" + bucket);
  EXPECT_TRUE(fails_with(
      ErrorKind::not_provisioned, [&] { (void)locker.acquire("u1/a1/r1"); }, "level " + level + ", bucket " + bucket));
  EXPECT_TRUE(all_free()) << "and nothing stays locked";
  provision(ahead(), {});
  EXPECT_TRUE(complete());
  EXPECT_TRUE(locker.acquire("u1/a1/r1").held());
}

// --- the program -----------------------------------------------------------------------------------------

#ifdef HIERLOCK_BIN

TEST_P(Provision, killed_half_way_it_goes_on_where_it_was) {  // H11
  {
    Program tool({HIERLOCK_BIN, "provision", "--on", ahead(), "--buckets", "10k", "--throttle", "4k"});
    ASSERT_TRUE(tool.says("of 30,000 rows (")) << tool.said();
    tool.signal(SIGKILL);
    EXPECT_EQ(tool.wait(), 128 + SIGKILL);
  }
  ASSERT_TRUE(eventually([&] {
    return plain().one("SELECT COUNT(*) FROM information_schema.processlist WHERE INFO LIKE 'INSERT INTO `" + table() +
                       "%'") == "0";
  })) << "what it had sent is over";
  const std::uint64_t before = rows();
  EXPECT_GT(before, 0u);
  EXPECT_LT(before, 30'000u);
  EXPECT_EQ(before % 2'000, 0u) << "whole chunks";
  Program again({HIERLOCK_BIN, "provision", "--on", ahead()});
  EXPECT_TRUE(again.says("now all 30,000 are there")) << again.said();
  EXPECT_EQ(again.wait(), 0);
  EXPECT_TRUE(complete());
}

// The way that the refusals of too deep a path and of other numbers name.
TEST_P(Provision, more_levels_are_in_another_table) {
  provision(ahead(), {.buckets = 10, .levels = 3});
  EXPECT_TRUE(fails_with(
      ErrorKind::incompatible, [&] { provision(ahead(), {.levels = 4}); }, "another table= may have others"));
  const std::string other = server().url("table=" + table() + "_4");
  Program tool({HIERLOCK_BIN, "provision", "--on", other, "--buckets", "10", "--levels", "4"});
  tool.says_all();
  EXPECT_EQ(tool.wait(), 0) << tool.said();
  EXPECT_TRUE(hierlock::open(other).acquire("a/b/c/d").held());
  for (const char* part : {"", "_settings", "_notices"}) plain().ask("DROP TABLE `" + table() + "_4" + part + "`");
}

TEST_P(Provision, an_interrupt_ends_it_after_the_chunk_and_says_so) {  // H11
  Program tool({HIERLOCK_BIN, "provision", "--on", ahead(), "--buckets", "10k", "--throttle", "4k"});
  ASSERT_TRUE(tool.says("of 30,000 rows (")) << tool.said();
  tool.signal(SIGINT);
  EXPECT_TRUE(tool.says("what is made stays, and the same command goes on")) << tool.said();
  EXPECT_EQ(tool.wait(), 128 + SIGINT);
  EXPECT_EQ(rows() % 2'000, 0u) << "whole chunks";
}

TEST_P(Provision, the_tool_says_what_is_wrong_and_shows_no_password) {
  const std::string denied_url = ahead(make_user("SELECT", server().database + ".*"));
  Program denied({HIERLOCK_BIN, "provision", "--on", denied_url});
  EXPECT_TRUE(denied.says("provisioning needs CREATE")) << denied.said();
  EXPECT_EQ(denied.wait(), 77);
  provision(ahead(), small());
  Program other({HIERLOCK_BIN, "provision", "--on", ahead(), "--buckets", "20k"});
  EXPECT_TRUE(other.says("the database has recorded 10000")) << other.said();
  EXPECT_EQ(other.wait(), 78);
  EXPECT_EQ(other.said().find(server().password), std::string::npos);
  Program again({HIERLOCK_BIN, "provision", "--on", ahead()});
  EXPECT_TRUE(again.says("All 30,000 rows were there already")) << again.said();
  EXPECT_EQ(again.wait(), 0);
}

// Blocks that begin with "```console mysql": each command is run, with this server in place of db, and prints what the
// page says, but for times.
TEST_P(Provision, every_example_of_the_page_that_needs_a_database_prints_what_the_page_says) {
  const auto page = std::filesystem::path(HIERLOCK_DOCS "/cli.md");
  std::ifstream file(page);
  ASSERT_TRUE(file) << "cannot read " << page;
  // A slow machine is told how far it is, too.
  const auto without_times = [](const std::string& text) {
    return std::regex_replace(std::regex_replace(text, std::regex(" in [0-9.]+m?s;"), " in T;"),
                              std::regex("hierlock: [0-9,]+ of [0-9,]+ rows [^\n]*\n"), "");
  };
  const auto here = [this](const std::string& text) {
    return std::regex_replace(text, std::regex("mysql://app@db/shop"), "'" + ahead() + "'");
  };
  const std::string folder = std::filesystem::path(HIERLOCK_BIN).parent_path();
  std::string command, expected;
  int ran = 0;
  const auto check = [&] {
    if (command.empty()) return;
    Program shell({"/bin/sh", "-c", "PATH=" + folder + ":$PATH; " + here(command)});
    shell.says_all();
    EXPECT_EQ(without_times(shell.said()), without_times(expected)) << command;
    command.clear();
    expected.clear();
    ++ran;
  };
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      check();
      inside = line == "```console mysql";
    } else if (inside && line.starts_with("$ ")) {
      check();
      command = line.substr(2);
    } else if (inside) {
      expected += line + "\n";
    }
  }
  EXPECT_GE(ran, 3);
}

#endif

HIERLOCK_ON_BOTH_SERVERS(Provision);

}  // namespace
}  // namespace hierlock::mysql_tests
