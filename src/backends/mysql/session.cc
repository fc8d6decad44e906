#include "mysql/session.h"

#include <poll.h>

#include <algorithm>
#include <vector>

#include "mysql/lock_rows.h"
#include "mysql_client/error_codes.h"

namespace hierlock::mysql {

namespace {

using codes::lock_wait_timeout, codes::deadlock, codes::query_interrupted, codes::lock_no_wait;
constexpr std::chrono::milliseconds longest_poll{50};
constexpr std::string_view heartbeat_question = "SELECT CONNECTION_ID(), @@global.read_only";

remote::LockReply::Kind kind_of(const LockReply& reply, bool no_wait) {
  using Kind = remote::LockReply::Kind;
  if (reply.well()) return reply.all ? Kind::granted : Kind::missing;
  switch (reply.code) {
    case lock_no_wait:
      return Kind::busy;
    case lock_wait_timeout:
      return no_wait ? Kind::busy : Kind::wait_is_long;  // MariaDB says this for NOWAIT, too
    case deadlock:
      return Kind::deadlock;
    default:
      return Kind::failed;
  }
}

}  // namespace

bool is_writable(const std::optional<std::string>& read_only) { return read_only == "0" || read_only == "OFF"; }

RowSession::RowSession(std::unique_ptr<Connection> connection, std::shared_ptr<Mint> mint, const BucketTable& table,
                       std::shared_ptr<remote::OpenSessions> open)
    : connection_(std::move(connection)), mint_(std::move(mint)), table_(table), open_(std::move(open)) {
  open_->enter(connection_->id());
}

RowSession::~RowSession() { open_->leave(connection_->id()); }

remote::LockReply RowSession::lock(std::span<const remote::Cell> cells, bool no_wait, WaitLimit& limit) {
  std::vector<plan::Row> rows;
  rows.reserve(cells.size());
  for (const remote::Cell& cell : cells) rows.push_back({cell.level, static_cast<std::uint32_t>(cell.key), cell.mode});
  const Form usual = usual_form(rows);
  LockReply said = lock_all(*connection_, table_, rows, no_wait, usual, limit);
  // Which row is missing? It may be there by now.
  if (said.well() && !said.all && usual != Form::one_by_one) {
    said = lock_all(*connection_, table_, rows, no_wait, Form::one_by_one, limit);
  }
  return {.kind = kind_of(said, no_wait),
          .code = said.code,
          .message = std::move(said.message),
          .there = std::move(said.there),
          .minted = said.minted,
          .session = said.session};
}

void RowSession::unlock_all(WaitLimit& limit) noexcept {
  try {
    if (beating_ && wait_for_heartbeat(limit) != Beat::alive) return connection_->give_up();
    for (int tries = 0; tries < 2; ++tries) {
      const Reply reply = connection_->roll_back(limit);
      if (reply.well()) return;
      if (reply.code != query_interrupted) break;  // a KILL that came late
    }
  } catch (...) {  // no memory
  }
  connection_->give_up();
}

void RowSession::begin_heartbeat() {
  connection_->begin(heartbeat_question);
  beating_ = true;
}

RowSession::Beat RowSession::heartbeat() {
  if (!connection_->go_on()) return Beat::none_yet;
  return judge(connection_->reply());
}

RowSession::Beat RowSession::wait_for_heartbeat(WaitLimit& limit) {
  while (!connection_->go_on()) {
    const std::optional<Clock::duration> time = limit.next();
    if (!time) return Beat::none_yet;
    pollfd answer{socket(), POLLIN, 0};
    const auto pause = std::chrono::ceil<std::chrono::milliseconds>(std::min<Clock::duration>(*time, longest_poll));
    poll(&answer, 1, static_cast<int>(pause.count()));
  }
  return judge(connection_->reply());
}

RowSession::Beat RowSession::judge(const Reply& reply) {
  beating_ = false;
  const bool alive = reply.well() && !reply.rows.empty() && reply.rows[0].at(0) == std::to_string(id()) &&
                     is_writable(reply.rows[0].at(1));
  if (!alive) connection_->give_up();
  return alive ? Beat::alive : Beat::dead;
}

}  // namespace hierlock::mysql
