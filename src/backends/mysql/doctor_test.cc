// What doctor concludes from what a server says: set-ups that no test has at hand (H17).
#include "mysql/doctor.h"

#include <gtest/gtest.h>

#include "mysql/statements.h"

namespace hierlock::mysql {
namespace {

using Verdict = Finding::Verdict;

Finding judged(const Seen& seen, const std::string& check, const std::string& url = "mysql://app@db/shop") {
  for (const Finding& finding : judge(seen, read_url(spi::Url::parse(url)))) {
    if (finding.check == check) return finding;
  }
  ADD_FAILURE() << "nothing was said about " << check;
  return {};
}

// In a group, with this mode.
Seen group_of(const std::string& single_primary) {
  Seen seen;
  seen.global = {{"group_replication_group_name", "d7b0c1f0-0000-4000-8000-000000000000"},
                 {"group_replication_single_primary_mode", single_primary}};
  seen.members.rows = {{"ONLINE"}, {"ONLINE"}, {"ONLINE"}};
  return seen;
}

TEST(Doctor, several_primaries_of_a_group_are_unsafe) {
  const Finding finding = judged(group_of("OFF"), "group_replication");
  EXPECT_EQ(finding.verdict, Verdict::unsafe);
  EXPECT_NE(finding.fix, "");
}

TEST(Doctor, a_single_primary_is_good_but_its_locks_do_not_survive_it) {
  EXPECT_EQ(judged(group_of("ON"), "group_replication").verdict, Verdict::good);
  EXPECT_EQ(judged(group_of("ON"), "failover").verdict, Verdict::unknown);
}

TEST(Doctor, a_primary_that_does_not_see_the_majority_is_unsafe) {
  Seen seen = group_of("ON");
  seen.members.rows = {{"ONLINE"}, {"UNREACHABLE"}, {"UNREACHABLE"}};
  EXPECT_EQ(judged(seen, "group_replication").verdict, Verdict::unsafe);
  seen.members = {1142, "SELECT command denied", {}};
  EXPECT_EQ(judged(seen, "group_replication").verdict, Verdict::unknown);
  EXPECT_NE(judged(seen, "group_replication").fix.find("GRANT"), std::string::npos);
}

TEST(Doctor, a_group_that_is_not_configured_is_none) {
  Seen seen;
  seen.global = {{"group_replication_group_name", ""}, {"group_replication_single_primary_mode", "ON"}};
  EXPECT_EQ(judged(seen, "group_replication").verdict, Verdict::good);
  EXPECT_EQ(judged(seen, "failover").verdict, Verdict::good);
}

TEST(Doctor, semi_synchronous_replicas_are_counted) {
  for (const char* name : {"Rpl_semi_sync_source_clients", "Rpl_semi_sync_master_clients"}) {
    Seen seen;
    seen.status = {{name, "2"}};
    const Finding finding = judged(seen, "failover");
    EXPECT_EQ(finding.verdict, Verdict::unknown) << name;
    EXPECT_NE(finding.text.find("2 semi-synchronous replicas"), std::string::npos) << finding.text;
  }
}

TEST(Doctor, a_pooler_shows_when_another_session_was_opened_in_between) {
  Seen seen;
  seen.logged_in_as = 7;
  seen.sessions = {7, 7};
  EXPECT_EQ(judged(seen, "proxy").verdict, Verdict::good);
  seen.sessions = {7, 8};
  EXPECT_EQ(judged(seen, "proxy").verdict, Verdict::unsafe);
}

TEST(Doctor, proxies_are_known_by_their_greeting) {
  for (const char* version : {"8.0.30-Vitess", "5.5.30 (ProxySQL)", "10.11.0 23.08-maxscale", "8.4.0-router"}) {
    Seen seen;
    seen.version = version;
    EXPECT_EQ(judged(seen, "proxy").verdict, Verdict::unsafe) << version;
  }
}

TEST(Doctor, a_session_that_may_not_be_killed_is_unsafe) {
  Seen seen;
  EXPECT_EQ(judged(seen, "kill").verdict, Verdict::good);
  seen.kill = {1095, "You are not owner of thread 8", {}};
  EXPECT_EQ(judged(seen, "kill").verdict, Verdict::unsafe);
  seen.kill = {1094, "Unknown thread id: 8", {}};  // it had ended by itself
  EXPECT_EQ(judged(seen, "kill").verdict, Verdict::good);
}

TEST(Doctor, a_switch_that_a_version_does_not_have_is_not_missed) {
  Seen seen;
  for (const SessionSetting& setting : session_settings(Dialect::mysql)) seen.session[setting.name] = setting.shown;
  EXPECT_EQ(judged(seen, "session").verdict, Verdict::good);
  seen.session["optimizer_switch"] = "index_merge=on,derived_merge=on";
  EXPECT_EQ(judged(seen, "session").verdict, Verdict::good);
  seen.session["optimizer_switch"] = "index_merge=on,hypergraph_optimizer=on";
  EXPECT_EQ(judged(seen, "session").verdict, Verdict::unsafe);
}

TEST(Doctor, prepared_statements_are_counted_against_what_the_server_takes) {
  Seen seen;
  seen.global = {{"max_prepared_stmt_count", "1100"}};
  seen.status = {{"Prepared_stmt_count", "50"}};
  EXPECT_EQ(judged(seen, "prepared_statements").verdict, Verdict::good) << "16 connections have 65 each, 5 have 2";
  seen.status = {{"Prepared_stmt_count", "51"}};
  EXPECT_EQ(judged(seen, "prepared_statements").verdict, Verdict::slow);
}

TEST(Doctor, connections_of_names_are_counted) {  // N6
  Seen seen;
  seen.global = {{"max_connections", "100"}};
  seen.status = {{"Threads_connected", "73"}};
  const Finding enough = judged(seen, "connections");
  EXPECT_EQ(enough.verdict, Verdict::good) << "16 for paths, 3 beside them, 8 for names";
  EXPECT_NE(enough.text.find("up to 27, 8 of them for names and slots;"), std::string::npos) << enough.text;
  seen.status = {{"Threads_connected", "74"}};
  EXPECT_EQ(judged(seen, "connections").verdict, Verdict::slow);
}

TEST(Doctor, rows_that_take_too_long_to_count_are_unknown) {
  for (const unsigned code : {3024u, 1969u}) {
    Seen seen;
    seen.settings.rows = {{"1", "10000000", "3", "0"}};
    seen.rows = {code, "maximum statement execution time exceeded", {}};
    const Finding finding = judged(seen, "rows");
    EXPECT_EQ(finding.verdict, Verdict::unknown);
    EXPECT_NE(finding.text.find("longer than 30 s"), std::string::npos) << finding.text;
  }
}

TEST(Doctor, a_clock_that_agrees_within_five_seconds_is_good) {
  Seen seen;
  seen.minted[0] = (std::uint64_t{1'700'000'000} << 24) + 1;
  seen.server_time = 1'700'000'100;
  for (const auto& [ms, verdict] : {std::pair(-5'000, Verdict::good),
                                    {5'000, Verdict::good},
                                    {5'001, Verdict::unknown},
                                    {-5'001, Verdict::unknown}}) {
    seen.ahead = std::chrono::milliseconds(ms);
    EXPECT_EQ(judged(seen, "clock").verdict, verdict) << ms;
  }
  seen.server_time = 1'699'999'998;  // before it was started
  EXPECT_EQ(judged(seen, "clock").verdict, Verdict::unknown);
  EXPECT_NE(judged(seen, "clock").text.find("set back"), std::string::npos);
}

TEST(Doctor, on_a_server_that_is_read_only_no_right_is_called_missing) {
  for (const unsigned code : {1290u, 1836u, 1792u}) {
    Seen seen;
    seen.settings.rows = {{"1", "10", "3", "0"}};
    seen.lock = seen.raise_floor = seen.make_row = seen.who = {code, "running with the --read-only option", {}};
    for (const char* check : {"lock_rows", "read_settings", "make_rows", "publish"}) {
      const Finding finding = judged(seen, check, "mysql://app@db/shop?provision=lazy");
      EXPECT_EQ(finding.verdict, Verdict::unknown) << check;
      EXPECT_EQ(finding.fix, "see read_only") << check;
    }
  }
}

TEST(Doctor, every_fix_is_there_and_none_shows_a_password) {
  for (const Finding& finding : judge({}, read_url(spi::Url::parse("mysql://app:hunter2@db/shop")))) {
    EXPECT_EQ(finding.fix.find("hunter2"), std::string::npos) << finding.fix;
    EXPECT_EQ(finding.text.find("hunter2"), std::string::npos) << finding.text;
  }
}

}  // namespace
}  // namespace hierlock::mysql
