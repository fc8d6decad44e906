// Fitness: whether row locks on a server exclude all other processes. They do so only if all processes lock on one
// server.
//
// hierlock judges it for each new connection, repeatedly while a connection holds locks, and in doctor.
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

// fitness_now() is SQL for a word. is_fit() tells whether that word says that the server is still fit. A primary may
// become a replica, or lose the majority of its group. Then it goes on locking rows, but these locks exclude no process
// on the new primary.
std::string fitness_now(bool in_group);
bool is_fit(const endpoint::Field& word);

}  // namespace hierlock::mysql
