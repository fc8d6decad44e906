#include "mysql/notice_sql.h"

#include <string_view>
#include <vector>

#include "mysql/session.h"
#include "plan/text.h"

namespace hierlock::mysql {

namespace {

using endpoint::listed;
using remote::Notice;

// Without quotes, so the session's sql_mode does not matter.
std::string literal(std::string_view text) {
  return text.empty() ? "''" : "CONVERT(X'" + endpoint::hexadecimal(text) + "' USING utf8mb4)";
}
std::string name(std::string_view text) { return literal(plan::cut_short(text, 255)); }

std::string values(const Notice& notice) {
  return "(" + std::to_string(notice.id()) + ", " + std::to_string(notice.session) + ", " + name(notice.owner) + ", " +
         name(notice.owner_name) + ", " + name(notice.host) + ", " + name(notice.program) + ", " + name(notice.note) +
         ", " + std::to_string(notice.process) + ", " + std::to_string(notice.fence) +
         ", UTC_TIMESTAMP(6) - INTERVAL " + std::to_string(notice.age.count()) + " MICROSECOND, UTC_TIMESTAMP(6), " +
         (notice.waits ? "1" : "0") + ", " + literal(write_nodes(notice)) + ", " + std::to_string(locker_of(notice)) +
         ", " + std::to_string(remote::new_stamp()) + ")";
}

constexpr const char* alive = " WHERE seen > UTC_TIMESTAMP(6) - INTERVAL 10 SECOND";
constexpr const char* sums = "COUNT(*), COALESCE(BIT_XOR(stamp), 0) FROM ";
constexpr const char* columns =
    "SELECT session, owner, owner_name, host, program, note, process, fence, TIMESTAMPDIFF(MICROSECOND, since, "
    "UTC_TIMESTAMP(6)) AS age, waits, nodes, locker, stamp, TIMESTAMPDIFF(MICROSECOND, '2000-01-01', since) FROM ";

}  // namespace

std::string NoticeStatements::make_table() const {
  return "CREATE TABLE IF NOT EXISTS " + table_ +
         " (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, session BIGINT UNSIGNED NOT NULL, owner VARCHAR(255) NOT NULL,"
         " owner_name VARCHAR(255) NOT NULL, host VARCHAR(255) NOT NULL, program VARCHAR(255) NOT NULL, note"
         " VARCHAR(255) NOT NULL, process BIGINT NOT NULL, fence BIGINT NOT NULL, since DATETIME(6) NOT NULL, seen"
         " DATETIME(6) NOT NULL, waits TINYINT NOT NULL, nodes MEDIUMTEXT NOT NULL, locker BIGINT UNSIGNED NOT NULL,"
         " stamp BIGINT UNSIGNED NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4";
}

std::string NoticeStatements::publish(std::span<const Notice> notices) const {
  std::string rows;
  for (const Notice& notice : notices) rows += (rows.empty() ? "" : ", ") + values(notice);
  return "REPLACE INTO " + table_ +
         " (id, session, owner, owner_name, host, program, note, process, fence, since, seen, waits, nodes, locker, "
         "stamp) VALUES " +
         rows;
}

std::string NoticeStatements::remove(std::span<const std::uint64_t> ids) const {
  return "DELETE FROM " + table_ + " WHERE id IN (" + listed(ids) + ")";
}
std::string NoticeStatements::keep_alive(std::span<const std::uint64_t> ids) const {
  return "UPDATE " + table_ + " SET seen=UTC_TIMESTAMP(6) WHERE id IN (" + listed(ids) + ")";
}
std::string NoticeStatements::find_old() const {
  return "SELECT id FROM " + table_ + " WHERE seen < UTC_TIMESTAMP(6) - INTERVAL 60 SECOND";
}
std::string NoticeStatements::read_signature() const { return std::string("SELECT ") + sums + table_ + alive; }
std::string NoticeStatements::read_signatures() const {
  return std::string("SELECT locker, ") + sums + table_ + alive + " GROUP BY locker";
}
std::string NoticeStatements::read_all() const { return columns + table_ + alive + " ORDER BY id"; }
std::string NoticeStatements::read_stamps(std::span<const std::uint64_t> lockers) const {
  return "SELECT id, stamp FROM " + table_ + alive + " AND locker IN (" + listed(lockers) + ")";
}
std::string NoticeStatements::read_some(std::span<const std::uint64_t> lockers,
                                        std::span<const std::uint64_t> ids) const {
  const std::string of = lockers.empty() ? "" : "locker IN (" + listed(lockers) + ")",
                    by_id = ids.empty() ? "" : "id IN (" + listed(ids) + ")";
  return columns + table_ + alive + " AND (" + of + (of.empty() || by_id.empty() ? "" : " OR ") + by_id + ")";
}

// In one round trip with its COMMIT.
remote::SqlAnswer NoticeChannel::change(remote::Session& session, const std::string& sql, Deadline& limit) {
  Connection& connection = connection_of(session);
  const std::string statements[] = {sql, "COMMIT"};
  const std::vector<Reply> replies = connection.query_all(statements, limit);
  const bool well = replies.size() == 2 && replies.back().well();
  if (!well && !connection.broken()) connection.query("ROLLBACK", limit);
  return {.well = well, .changed = replies.front().changed};
}

remote::SqlAnswer NoticeChannel::query(remote::Session& session, const std::string& sql, Deadline& limit) {
  Reply reply = connection_of(session).query(sql, limit);
  return {.well = reply.well(), .rows = std::move(reply.rows)};
}

void NoticeChannel::end_reading(remote::Session& session, Deadline& limit) {
  connection_of(session).query("COMMIT", limit);
}

}  // namespace hierlock::mysql
