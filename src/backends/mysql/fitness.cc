#include "mysql/fitness.h"

#include <algorithm>

namespace hierlock::mysql {

namespace {

using remote::good, remote::unknown, remote::unsafe;
using remote::Judgement, remote::Settings;

// MariaDB 12 has more words for it than ON: NO_LOCK, NO_LOCK_NO_ADMIN.
bool is_off(const std::string& word) { return word == "OFF" || word == "0" || word == "NO"; }

}  // namespace

Settings settings_in(const Reply& reply) {
  Settings settings;
  for (const auto& row : reply.rows) settings[endpoint::text(row.at(0))] = endpoint::text(row.at(1));
  return settings;
}

bool in_group(const Settings& settings) { return !settings.value("group_replication_group_name").empty(); }

Judgement judge_galera(const Settings& settings) {
  if (!settings.is_on("wsrep_on")) return good("no");
  return unsafe(
      "this is a node of a Galera cluster: row locks are not carried to the other nodes, so two could hold one lock",
      "use a server of its own for locks, or another store");
}

Judgement judge_group(const Settings& settings, const Reply& members) {
  if (!in_group(settings)) return good("no");
  if (!settings.is_on("group_replication_single_primary_mode")) {
    return unsafe("several primaries: row locks are not carried between them, so two could hold one lock",
                  "SELECT group_replication_switch_to_single_primary_mode(), or use a server of its own for locks");
  }
  if (!members.well()) {
    return unknown("whether this member is in the majority of its group cannot be seen: " + members.message,
                   "GRANT SELECT ON performance_schema.replication_group_members TO this account");
  }
  const auto in_touch = std::count_if(members.rows.begin(), members.rows.end(), [](const auto& row) {
    return row.at(0) == "ONLINE" || row.at(0) == "RECOVERING";
  });
  const std::string seen =
      std::to_string(in_touch) + " of " + std::to_string(members.rows.size()) + " members are in touch";
  if (static_cast<std::size_t>(in_touch) * 2 > members.rows.size()) return good("with a single primary, " + seen);
  return unsafe(seen + ": this one is not in the majority, which may have another primary by now",
                "connect to the primary of the majority");
}

Judgement judge_read_only(const Settings& settings) {
  for (const char* name : {"super_read_only", "read_only", "innodb_read_only"}) {
    const std::string value = settings.value(name);
    if (value.empty() || is_off(value)) continue;
    return unsafe(
        std::string(name) + " is " + value + ": most likely a replica, whose row locks exclude nobody on the primary",
        "connect to the primary");
  }
  return good("no");
}

void refuse_unfit(const Settings& settings, const Reply& members) {
  for (const Judgement& judgement :
       {judge_galera(settings), judge_group(settings, members), judge_read_only(settings)}) {
    if (judgement.verdict == Finding::Verdict::good) continue;
    const bool seen = judgement.verdict == Finding::Verdict::unsafe;
    throw remote::refusal(seen ? ErrorKind::unsafe_topology : ErrorKind::denied, judgement);
  }
}

std::string fitness_now(bool in_group) {
  if (!in_group) return "@@global.read_only";
  return "IF((SELECT COUNT(*) < 2 * SUM(MEMBER_STATE IN ('ONLINE', 'RECOVERING')) FROM "
         "performance_schema.replication_group_members), @@global.read_only, 'NO_MAJORITY')";
}

bool is_fit(const endpoint::Field& word) { return word && is_off(*word); }

}  // namespace hierlock::mysql
