#include "lab/postgres_view.h"

#include <cstdint>
#include <set>

#include "lab/engines.h"

namespace hierlock::lab {

namespace {

// Columns of locks_question().
enum : std::size_t { pid, granted, kind, mode, relation, page, tuple, xid, classid, objid, objsubid, virtualxid };

std::string object_of(const Row& row) {
  const std::string type = row[kind].value_or("");
  const auto text = [&](std::size_t i) { return row[i].value_or("?"); };
  if (type == "relation") return text(relation);
  if (type == "tuple") return text(relation) + "(" + text(page) + "," + text(tuple) + ")";  // as its ctid
  if (type == "page") return text(relation) + ", page " + text(page);
  if (type == "extend") return text(relation) + ", to extend it";
  if (type == "transactionid") return "transaction " + text(xid);
  if (type == "virtualxid") return "transaction " + text(virtualxid);
  if (type == "advisory") {
    if (row[objsubid] == "2") return "advisory " + text(classid) + "," + text(objid);
    const std::uint64_t high = std::stoull(row[classid].value_or("0")), low = std::stoull(row[objid].value_or("0"));
    return "advisory " + std::to_string(static_cast<std::int64_t>(high << 32 | low));
  }
  return type;
}

}  // namespace

std::string list_of(const Backends& sessions) {
  std::string list;
  for (const auto& [id, name] : sessions) list += (list.empty() ? "" : ",") + id;
  return "'{" + list + "}'::int[]";
}

std::string blockers_question() {
  return "SELECT q.pid, q.b, q.snapshot, " + std::string(of_the_server) +
         " FROM (SELECT pid, b, false AS "
         "snapshot FROM unnest($1) pid, unnest(pg_blocking_pids(pid)) b UNION ALL SELECT pid, b, true FROM unnest($1) "
         "pid, unnest(pg_safe_snapshot_blocking_pids(pid)) b) q LEFT JOIN pg_stat_activity a ON a.pid = q.b";
}

std::string locks_question() {
  // A parallel worker takes locks and waits on behalf of its leader. Everybody has a lock on itself.
  return "SELECT COALESCE(a.leader_pid, l.pid), l.granted, l.locktype, l.mode, CASE WHEN n.nspname IN ('" + room +
         "', 'pg_catalog') THEN c.relname WHEN n.nspname = 'pg_toast' THEN 'toast of ' || COALESCE(o.relname, "
         "c.relname) "
         "WHEN c.relname IS NULL THEN 'relation ' || l.relation ELSE n.nspname || '.' || c.relname END, l.page, "
         "l.tuple, l.transactionid, l.classid, l.objid, l.objsubid, l.virtualxid FROM pg_locks l LEFT JOIN "
         "pg_stat_activity a ON a.pid = l.pid LEFT JOIN pg_class c ON c.oid = l.relation LEFT JOIN pg_namespace n ON "
         "n.oid = c.relnamespace LEFT JOIN pg_class o ON o.reltoastrelid = c.oid WHERE COALESCE(a.leader_pid, l.pid) = "
         "ANY($1) AND NOT (l.locktype = 'virtualxid' AND l.granted) AND NOT (l.granted AND COALESCE(n.nspname, '') = "
         "'pg_toast')";
}

View view_of(const Backends& sessions, const std::vector<Row>& blockers, const std::vector<Row>& locks) {
  View view;
  std::map<std::string, std::string> asked_for, row_of;  // by process id
  for (const Row& row : locks) {
    const std::string id = row[pid].value_or("");
    const std::string object = object_of(row);
    const bool has = row[granted] == "t";
    view.locks.push_back({sessions.at(id), object, row[mode].value_or(""), has});
    if (!has) asked_for[id] = object;
    if (has && row[kind] == "tuple") row_of[id] = object;
  }
  std::set<std::string> passing;  // sessions whose wait ends by itself
  for (const Row& row : blockers) {
    if (row[3] == "t") passing.insert(row[0].value_or(""));
  }
  for (const Row& row : blockers) {
    const std::string id = row[0].value_or("");
    const std::string holder = row[1].value_or("");
    const bool for_a_snapshot = row[2] == "t";  // READ ONLY DEFERRABLE waits without a lock
    const auto asked = asked_for.find(id);
    if (passing.contains(id) || (asked == asked_for.end() && !for_a_snapshot)) continue;
    // A session that waits for a row waits for the transaction that has it. A lock on the row keeps the session's
    // place.
    const auto own_place = row_of.find(id);
    std::string object = for_a_snapshot ? "a safe snapshot" : asked->second;
    if (own_place != row_of.end() && object.starts_with("transaction")) object = own_place->second;
    const auto other = sessions.find(holder);
    const std::string who = other != sessions.end() ? other->second
                            : holder == "0"         ? prepared_transaction
                                                    : "outsider " + holder;
    add_wait(view, sessions.at(id), who, object);
  }
  return view;
}

}  // namespace hierlock::lab
