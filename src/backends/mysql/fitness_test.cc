// Which servers row locks may be taken at, by what servers say that no test has at hand (H17).
#include "mysql/fitness.h"

#include <gtest/gtest.h>

#include <hierlock/error.h>

namespace hierlock::mysql {
namespace {

using remote::Settings;

Settings in_a_group(const char* single_primary = "ON") {
  return {{"group_replication_group_name", "d7b0c1f0-0000-4000-8000-000000000000"},
          {"group_replication_single_primary_mode", single_primary},
          {"super_read_only", "OFF"},
          {"read_only", "OFF"}};
}
Reply members(std::initializer_list<const char*> states) {
  Reply reply;
  for (const char* state : states) reply.rows.push_back({state});
  return reply;
}
std::optional<ErrorKind> refused(const Settings& settings, const Reply& members = {}) {
  try {
    refuse_unfit(settings, members);
    return std::nullopt;
  } catch (const Error& error) {
    return error.kind();
  }
}

TEST(Fitness, a_server_that_is_alone_is_fit) {
  EXPECT_EQ(refused({{"read_only", "OFF"}, {"super_read_only", "OFF"}, {"innodb_read_only", "OFF"}}), std::nullopt);
  EXPECT_EQ(refused({{"read_only", "0"}, {"wsrep_on", "OFF"}, {"group_replication_group_name", ""}}), std::nullopt);
}

TEST(Fitness, every_word_for_read_only_is_understood) {
  for (const char* word : {"ON", "1", "NO_LOCK", "NO_LOCK_NO_ADMIN", "YES", "a word of tomorrow"}) {
    EXPECT_EQ(refused({{"read_only", word}}), ErrorKind::unsafe_topology) << word;
    EXPECT_FALSE(is_fit(word)) << word;
  }
  for (const char* word : {"OFF", "0", "NO"}) {
    EXPECT_EQ(refused({{"read_only", word}}), std::nullopt) << word;
    EXPECT_TRUE(is_fit(word)) << word;
  }
  EXPECT_EQ(refused({{"super_read_only", "ON"}}), ErrorKind::unsafe_topology);
  EXPECT_EQ(refused({{"innodb_read_only", "ON"}}), ErrorKind::unsafe_topology);
  EXPECT_FALSE(is_fit(std::nullopt)) << "no answer is no proof";
  EXPECT_FALSE(is_fit(""));
}

TEST(Fitness, a_node_of_a_cluster_is_refused) { EXPECT_EQ(refused({{"wsrep_on", "ON"}}), ErrorKind::unsafe_topology); }

TEST(Fitness, a_group_needs_a_single_primary) {
  EXPECT_EQ(refused(in_a_group("OFF"), members({"ONLINE", "ONLINE", "ONLINE"})), ErrorKind::unsafe_topology);
  EXPECT_EQ(refused(in_a_group("ON"), members({"ONLINE", "ONLINE", "ONLINE"})), std::nullopt);
}

// In a partition the old primary of the minority stays ONLINE and writable, and sees the others as UNREACHABLE.
TEST(Fitness, a_primary_in_the_minority_of_its_group_is_refused) {
  EXPECT_EQ(refused(in_a_group(), members({"ONLINE", "UNREACHABLE", "UNREACHABLE"})), ErrorKind::unsafe_topology);
  EXPECT_EQ(refused(in_a_group(), members({"ONLINE", "ONLINE", "UNREACHABLE", "UNREACHABLE"})),
            ErrorKind::unsafe_topology)
      << "half is no majority";
  EXPECT_EQ(refused(in_a_group(), members({"ONLINE", "RECOVERING", "UNREACHABLE"})), std::nullopt);
  EXPECT_EQ(refused(in_a_group(), members({"ONLINE"})), std::nullopt);
}

TEST(Fitness, a_server_that_has_left_its_group_is_refused) {
  EXPECT_EQ(refused(in_a_group(), members({"OFFLINE"})), ErrorKind::unsafe_topology);
  EXPECT_EQ(refused(in_a_group(), members({"ERROR"})), ErrorKind::unsafe_topology);
  EXPECT_EQ(refused(in_a_group(), members({})), ErrorKind::unsafe_topology);
}

TEST(Fitness, a_majority_that_cannot_be_seen_is_denied) {
  EXPECT_EQ(refused(in_a_group(), {1142, "SELECT command denied", {}}), ErrorKind::denied);
}

TEST(Fitness, heartbeats_of_a_member_ask_for_the_majority_too) {
  EXPECT_EQ(fitness_now(false), "@@global.read_only");
  EXPECT_NE(fitness_now(true).find("replication_group_members"), std::string::npos);
  EXPECT_NE(fitness_now(true).find("@@global.read_only"), std::string::npos);
  EXPECT_FALSE(is_fit("NO_MAJORITY"));
}

}  // namespace
}  // namespace hierlock::mysql
