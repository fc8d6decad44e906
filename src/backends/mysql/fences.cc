#include "mysql/fences.h"

#include <charconv>

#include "mysql_client/error_codes.h"

namespace hierlock::mysql {

namespace {

using codes::no_such_table, codes::no_such_column, codes::lock_wait_timeout;

std::uint64_t number(const std::optional<std::string>& text) {
  std::uint64_t value = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

}  // namespace

// On MariaDB a number of its machine is among it, where the version has one; asked for so, it is no error elsewhere.
std::string server_name(bool mariadb) {
  if (!mariadb) return "@@server_uuid";
  return "CONCAT_WS('\n', @@hostname, @@port, @@datadir, (SELECT VARIABLE_VALUE FROM "
         "information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME='SERVER_UID'))";
}

std::string server_number(bool mariadb) { return "CRC32(" + server_name(mariadb) + ")"; }

std::string floor_question(const Layout& layout, bool mariadb) {
  return "SELECT fence_floor, fence_server, " + server_number(mariadb) + ", UUID_SHORT() FROM `" +
         layout.settings_table() + "` WHERE id=1";
}

void Fences::check(Connection& connection, WaitLimit& limit) {
  const std::uint64_t given = highest_.load();  // before the server mints: others are given more meanwhile
  const std::string questions[] = {floor_question(layout_, connection.mariadb()), "COMMIT"};
  check(connection, given, connection.query_all(questions, limit).front(), limit);
}

void Fences::check(Connection& connection, std::uint64_t given, const Reply& reply, WaitLimit& limit) {
  if (reply.code == no_such_column) {
    throw Error(ErrorKind::incompatible,
                layout_.settings_table() +
                    " was made by a version of hierlock that knew less: drop it, and provision "
                    "with the same numbers again",
                reply.code);
  }
  if (!reply.well() && reply.code != no_such_table) {
    throw error_of(reply.code, reply.message, "read the fence floor in " + layout_.settings_table());
  }
  if (reply.rows.empty()) {
    throw Error(ErrorKind::not_provisioned, layout_.settings_table() + " is not there any more: provision again",
                reply.code);
  }
  const auto& row = reply.rows.front();
  const std::uint64_t floor = number(row.at(0)), recorded = number(row.at(1)), server = number(row.at(2));
  const std::uint64_t now = number(row.at(3)) & fence_mask;
  const bool same = recorded == server || floor == 0;
  if (!above_floor(now, floor, same) || now <= given) {
    throw Error(ErrorKind::unsafe_topology,
                "this server's UUID_SHORT() is below the numbers that were given out before: it was started earlier "
                "than the server they came from, or its clock was set back. Fences would fall; restart this server "
                "with its clock set right");
  }
  limit_ = floor + fence_slack;
  if (recorded != server || now > floor + fence_slack / 2) {
    const Reply raised = raise(connection, limit);
    if (raised.code == lock_wait_timeout) {
      throw Error(ErrorKind::unavailable,
                  "cannot raise the fence floor: the row of " + layout_.settings_table() +
                      " is locked by somebody who has not committed. Try again; end that transaction if this goes on",
                  raised.code);
    }
    if (!raised.well()) {
      throw error_of(raised.code, raised.message, "raise the fence floor in " + layout_.settings_table());
    }
  }
}

bool Fences::minted(std::uint64_t number) noexcept {
  std::uint64_t known = highest_.load();
  while (known < number && !highest_.compare_exchange_weak(known, number)) {
  }
  return number <= limit_.load();
}

Reply Fences::raise(Connection& connection, WaitLimit& limit) {
  Reply reply = connection.query("SELECT UUID_SHORT()", limit);
  if (!reply.well()) return reply;
  const std::uint64_t floor = number(reply.rows.at(0).at(0)) & fence_mask;
  const std::string raise = "UPDATE `" + layout_.settings_table() + "` SET fence_floor=GREATEST(fence_floor, " +
                            std::to_string(floor) + "), fence_server=" + server_number(connection.mariadb()) +
                            " WHERE id=1";
  for (const std::string_view sql : {std::string_view(raise), std::string_view("COMMIT")}) {
    reply = connection.query(sql, limit);
    if (reply.well()) continue;
    if (!connection.broken()) connection.query("ROLLBACK", limit);
    return reply;
  }
  limit_ = floor + fence_slack;
  return {};
}

}  // namespace hierlock::mysql
