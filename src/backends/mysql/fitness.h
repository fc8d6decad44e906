// Fitness: whether row locks at a server exclude everybody who locks there. They do on one server only.
//
// It is judged when a connection is made, again and again while it holds locks, and by doctor.
#pragma once

#include <string>

#include "mysql_client/connection.h"
#include "remote/checkup.h"

namespace hierlock::mysql {

// The settings that the judgements read.
inline constexpr const char* fitness_settings =
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'read_only', 'super_read_only', 'innodb_read_only', "
    "'group_replication_group_name', 'group_replication_single_primary_mode', 'log_bin', 'binlog_format')";
remote::Settings settings_in(const Reply& reply);

// For a server in a group: the state of each member, as this server sees it.
inline constexpr const char* group_members = "SELECT MEMBER_STATE FROM performance_schema.replication_group_members";
bool in_group(const remote::Settings& settings);

remote::Judgement judge_galera(const remote::Settings& settings);
// A member that does not see the majority must not be used. The others may have chosen another primary, and row locks
// do not need their votes.
remote::Judgement judge_group(const remote::Settings& settings, const Reply& members);
remote::Judgement judge_read_only(const remote::Settings& settings);
// Throws unsafe_topology if the server is unfit, and denied if the account cannot see that.
void refuse_unfit(const remote::Settings& settings, const Reply& members);

// SQL for a word, and whether it says that the server is still fit. A primary that becomes a replica, or that loses the
// majority of its group, goes on locking rows, but they exclude nobody on the new primary.
std::string fitness_now(bool in_group);
bool is_fit(const endpoint::Field& word);

}  // namespace hierlock::mysql
