#include "mysql/fences.h"

#include <algorithm>
#include <utility>

#include "mysql_client/error_codes.h"

namespace hierlock::mysql {

namespace {

using codes::no_such_table, codes::no_such_column, codes::lock_wait_timeout;
using endpoint::number;

}  // namespace

// The reply to the statement that failed, if one did. No row: there is no room for one, or `only` is not recorded.
struct Fences::Locked {
  Reply reply{};
  std::optional<FenceRow> row{};
};

// On MariaDB a number of its machine is among it, where the version has one; asked for so, it is no error elsewhere.
std::string server_name(bool mariadb) {
  if (!mariadb) return "@@server_uuid";
  return "CONCAT_WS('\n', @@hostname, @@port, @@datadir, (SELECT VARIABLE_VALUE FROM "
         "information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME='SERVER_UID'))";
}

std::string server_number(bool mariadb) { return "CRC32(" + server_name(mariadb) + ")"; }

std::string floor_question(const Layout& layout, bool mariadb) {
  return "SELECT fence_floor, mint_server, mint_offset, " + server_number(mariadb) + ", UUID_SHORT() FROM `" +
         layout.settings_table() + "` WHERE id=1";
}

std::optional<FenceAnswer> read_floor(const Reply& reply) {
  if (!reply.well() || reply.rows.empty() || reply.rows.front().size() != 5) return std::nullopt;
  const auto& row = reply.rows.front();
  return FenceAnswer{.row = {.floor = number(row[0]), .server = number(row[1]), .offset = number(row[2])},
                     .server = number(row[3]),
                     .minted = number(row[4]) & fence_mask};
}

std::shared_ptr<Mint> Fences::check(Connection& connection, const std::string& server, WaitLimit& limit) {
  const std::uint64_t given = highest_.load();  // before the server mints: others are given more meanwhile
  const std::string questions[] = {floor_question(layout_, connection.mariadb()), "COMMIT"};
  return check(connection, server, given, connection.query_all(questions, limit).front(), limit);
}

std::shared_ptr<Mint> Fences::check(Connection& connection, const std::string& server, std::uint64_t given,
                                    const Reply& reply, WaitLimit& limit) {
  if (reply.code == no_such_column) {
    throw Error(ErrorKind::incompatible,
                layout_.settings_table() +
                    " was made by another version of hierlock: use the same version everywhere, "
                    "and run its `hierlock provision`, which adds what is missing",
                reply.code);
  }
  if (!reply.well() && reply.code != no_such_table) {
    throw error_of(reply, "read the fence floor in " + layout_.settings_table());
  }
  std::optional<FenceAnswer> answer = read_floor(reply);
  if (!answer) {
    throw Error(ErrorKind::not_provisioned, layout_.settings_table() + " is not there any more: provision again",
                reply.code);
  }
  FenceRow row = answer->row;
  if (!may_mint(row, answer->server, answer->minted) || answer->minted + row.offset > row.floor + fence_slack / 2) {
    const Locked locked = settle(connection, given, nullptr, limit);
    if (locked.reply.code == lock_wait_timeout) {
      throw Error(ErrorKind::unavailable,
                  "cannot raise the fence floor: the row of " + layout_.settings_table() +
                      " is locked by somebody who has not committed. Try again; end that transaction if this goes on",
                  locked.reply.code);
    }
    if (!locked.reply.well()) {
      throw error_of(locked.reply, "raise the fence floor in " + layout_.settings_table());
    }
    if (!locked.row) {
      throw Error(ErrorKind::incompatible, layout_.settings_table() +
                                               " is damaged: above its fence_floor there is no room for fences, which "
                                               "are numbers below 2^63. Restore it");
    }
    row = *locked.row;
    answer->minted = row.floor - row.offset;
  }
  if (answer->minted + row.offset <= given) {
    throw Error(ErrorKind::unsafe_topology,
                "this Locker was given higher fences than this server mints: the server became the primary before it "
                "had received the last fence floor, and others have locked here since. Fences would fall; restart this "
                "server with its clock set right");
  }
  return mint(server, row);
}

// `only`: raises the floor for that one, and changes nothing else.
Fences::Locked Fences::settle(Connection& connection, std::uint64_t given, const Mint* only, WaitLimit& limit) const {
  const auto end = [&](Locked result) {
    if (!connection.broken()) connection.query("ROLLBACK", limit);
    return result;
  };
  Reply reply = connection.query(floor_question(layout_, connection.mariadb()) + " FOR UPDATE", limit);
  if (!reply.well()) return end({.reply = std::move(reply)});
  const std::optional<FenceAnswer> answer = read_floor(reply);
  if (!answer) return end({});
  const bool may = may_mint(answer->row, answer->server, answer->minted);
  if (only != nullptr && (!may || answer->row.offset != only->offset)) return end({});
  const std::optional<FenceRow> row = settled(answer->row, answer->server, answer->minted, given);
  if (!row) return end({});
  const std::string record[] = {"UPDATE `" + layout_.settings_table() + "` SET fence_floor=" +
                                    std::to_string(row->floor) + ", mint_server=" + std::to_string(row->server) +
                                    ", mint_offset=" + std::to_string(row->offset) + " WHERE id=1",
                                "COMMIT"};
  reply = connection.query_all(record, limit).back();
  if (!reply.well()) return end({.reply = std::move(reply)});
  return {.row = row};
}

std::shared_ptr<Mint> Fences::mint(const std::string& server, const FenceRow& row) {
  const std::string name = server + "\n+" + std::to_string(row.offset);
  const std::lock_guard guard(mutex_);
  if (newest_ == nullptr || newest_->name != name) newest_ = std::make_shared<Mint>(name, row.offset);
  newest_->limit = std::min(row.floor + fence_slack, fence_mask);
  return newest_;
}

std::uint64_t Fences::minted(const Mint& mint, std::uint64_t uuid_short) noexcept {
  const std::uint64_t number = (uuid_short & fence_mask) + mint.offset;
  std::uint64_t known = highest_.load();
  while (known < number && !highest_.compare_exchange_weak(known, number)) {
  }
  return number;
}

bool Fences::due() const {
  const std::lock_guard guard(mutex_);
  return newest_ != nullptr && highest_.load() + fence_slack / 2 > newest_->limit.load();
}

bool Fences::raise(Connection& connection, Mint& mint, WaitLimit& limit, std::optional<Error>* why) {
  const Locked locked = settle(connection, 0, &mint, limit);
  if (why != nullptr && !locked.reply.well()) {
    *why = error_of(locked.reply, "raise the fence floor in " + layout_.settings_table());
  }
  if (!locked.row) return false;
  mint.limit = locked.row->floor + fence_slack;
  return true;
}

}  // namespace hierlock::mysql
