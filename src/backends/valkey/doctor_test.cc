#include "valkey/doctor.h"

#include <gtest/gtest.h>

#include <functional>

namespace hierlock::valkey {
namespace {

using Verdict = Finding::Verdict;

Seen healthy() {
  Seen seen;
  seen.info = {{"valkey_version", "8.0.1"},        {"redis_version", "7.2.4"}, {"role", "master"},
               {"cluster_enabled", "0"},           {"maxmemory", "0"},         {"connected_slaves", "0"},
               {"maxmemory_policy", "noeviction"}, {"aof_enabled", "1"}};
  seen.clients = {7, 7, 7};
  return seen;
}

Options local() { return read_url(spi::Url::parse("valkey://app@localhost")); }

Verdict verdict_of(const std::string& check, const Seen& seen, const Options& options = local()) {
  for (const Finding& finding : judge(seen, options)) {
    if (finding.check == check) return finding.verdict;
  }
  ADD_FAILURE() << "there is no check " << check;
  return Verdict::good;
}

TEST(Doctor, finds_nothing_wrong_with_a_server_as_it_should_be) {
  for (const Finding& finding : judge(healthy(), local())) {
    EXPECT_EQ(finding.verdict, Verdict::good) << finding.check << ": " << finding.text;
  }
}

TEST(Doctor, turns_each_line_red) {
  struct Case {
    const char* check;
    Verdict verdict;
    std::function<void(Seen&)> spoil;
  };
  const Case cases[] = {
      {"server", Verdict::unknown, [](Seen& seen) { seen.info["valkey_version"] = "99.0.0"; }},
      {"server", Verdict::unsafe,
       [](Seen& seen) {
         seen.info.erase("valkey_version");
         seen.info["redis_version"] = "6.2.0";
       }},
      {"proxy", Verdict::unsafe,
       [](Seen& seen) {
         seen.clients = {7, 8, 7};
       }},
      {"rights", Verdict::unsafe, [](Seen& seen) { seen.rights = "NOPERM"; }},
      {"rights", Verdict::unknown,
       [](Seen& seen) {
         seen.rights = "READONLY";
         seen.info["role"] = "slave";
       }},
      {"role", Verdict::unsafe, [](Seen& seen) { seen.info["role"] = "slave"; }},
      {"cluster", Verdict::unknown, [](Seen& seen) { seen.info["cluster_enabled"] = "1"; }},
      {"cluster", Verdict::unsafe,
       [](Seen& seen) {
         seen.info["cluster_enabled"] = "1";
         seen.cluster = {.covered = 16'383, .primaries = {"a:1", "b:1"}};
       }},
      {"cluster", Verdict::good,
       [](Seen& seen) {
         seen.info["cluster_enabled"] = "1";
         seen.cluster = {.covered = 16'384, .primaries = {"a:1", "b:1"}};
       }},
      {"role", Verdict::good,
       [](Seen& seen) {
         seen.info["cluster_enabled"] = "1";
         seen.info["role"] = "slave";
       }},
      {"replicas", Verdict::unknown,
       [](Seen& seen) { seen.cluster = {.covered = 16'384, .primaries = {"a:1"}, .fewest_replicas = 1}; }},
      {"eviction", Verdict::unknown, [](Seen& seen) { seen.info["maxmemory_policy"] = "allkeys-lru"; }},
      {"eviction", Verdict::unsafe,
       [](Seen& seen) {
         seen.info["maxmemory_policy"] = "volatile-ttl";
         seen.info["maxmemory"] = "1000000";
       }},
      {"replicas", Verdict::unknown, [](Seen& seen) { seen.info["connected_slaves"] = "2"; }},
      {"persistence", Verdict::slow, [](Seen& seen) { seen.info["aof_enabled"] = "0"; }},
      {"clock", Verdict::unknown, [](Seen& seen) { seen.clock_ahead = std::chrono::hours(1); }},
  };
  for (const Case& one : cases) {
    Seen seen = healthy();
    one.spoil(seen);
    EXPECT_EQ(verdict_of(one.check, seen), one.verdict) << one.check;
  }
  const Options confirmed = read_url(spi::Url::parse("valkey://app@localhost?wait_replicas=1"));
  Seen seen = healthy();
  EXPECT_EQ(verdict_of("replicas", seen, confirmed), Verdict::unsafe) << "no lock would be granted";
  seen.info["connected_slaves"] = "1";
  EXPECT_EQ(verdict_of("replicas", seen, confirmed), Verdict::good);
  seen.info["connected_slaves"] = "2";
  EXPECT_EQ(verdict_of("replicas", seen, confirmed), Verdict::unknown) << "the other one may become the primary";
  EXPECT_EQ(verdict_of("tls", healthy(), read_url(spi::Url::parse("valkey://app@elsewhere?tls=off"))), Verdict::unsafe);
}

TEST(Doctor, names_the_primary_and_the_user_in_what_to_do) {
  const auto fix_of = [](const std::string& check, const Seen& seen) {
    for (const Finding& finding : judge(seen, local())) {
      if (finding.check == check) return finding.fix;
    }
    return std::string();
  };
  Seen replica = healthy();
  replica.info["role"] = "slave";
  replica.info["master_host"] = "cache1";
  replica.info["master_port"] = "6380";
  replica.rights = "cannot lock: READONLY";
  EXPECT_EQ(fix_of("role", replica), "connect to the primary, cache1:6380");
  EXPECT_EQ(fix_of("rights", replica), "connect to the primary, cache1:6380") << "rights would not help";
  Seen poor = healthy();
  poor.rights = "cannot lock: NOPERM";
  poor.denied = true;
  EXPECT_NE(fix_of("rights", poor).find("ACL SETUSER app "), std::string::npos) << fix_of("rights", poor);
}

}  // namespace
}  // namespace hierlock::valkey
