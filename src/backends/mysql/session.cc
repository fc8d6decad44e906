#include "mysql/session.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "mysql/fitness.h"
#include "mysql_client/error_codes.h"

namespace hierlock::mysql {

namespace {

using codes::lock_wait_timeout, codes::deadlock, codes::query_interrupted, codes::lock_no_wait;
constexpr std::chrono::milliseconds longest_look{50};

remote::LockReply::Kind kind_of(unsigned code, bool no_wait) {
  using Kind = remote::LockReply::Kind;
  if (code == deadlock) return Kind::deadlock;
  // MariaDB says lock_wait_timeout for NOWAIT, too.
  if (code == lock_no_wait || (code == lock_wait_timeout && no_wait)) return Kind::busy;
  return code == lock_wait_timeout ? Kind::wait_is_long : Kind::failed;
}

std::vector<plan::Row> rows_of(std::span<const remote::Cell> cells) {
  std::vector<plan::Row> rows;
  rows.reserve(cells.size());
  for (const remote::Cell& cell : cells) rows.push_back({cell.level, static_cast<std::uint32_t>(cell.key), cell.mode});
  return rows;
}

}  // namespace

RowSession::RowSession(std::unique_ptr<Connection> connection, bool in_group, std::shared_ptr<Mint> mint,
                       const BucketTable& table, std::shared_ptr<remote::OpenSessions> open)
    : connection_(std::move(connection)),
      fitness_(fitness_now(in_group)),
      mint_(std::move(mint)),
      table_(table),
      open_(std::move(open)) {
  open_->enter(connection_->id());
}

RowSession::~RowSession() { open_->leave(connection_->id()); }

// One round trip. The first lock of each shape on a connection takes one more, to prepare the statement. So does a
// shape that 64 others have pushed out since.
remote::LockReply RowSession::lock(std::span<const remote::Cell> cells, bool no_wait, WaitLimit& limit) {
  const std::vector<plan::Row> rows = rows_of(cells);
  const Form form = usual_form(rows);
  remote::LockReply reply;
  std::size_t answers = 0;
  const auto sql = [&] {
    return lock_rows(connection_->mariadb() ? Dialect::mariadb : Dialect::mysql, table_, rows, no_wait, form);
  };
  const auto read = [&](std::span<const std::uint64_t> answer) {
    ++answers;
    if (answer[1] == 0) return;  // not the last row of a union
    reply.minted = answer[0];
    reply.session = answer[1];
  };
  Statement& statement = connection_->statement(lock_rows_name(rows, no_wait, form), rows.size(), 2);
  for (std::size_t i = 0; i < rows.size(); ++i) statement.parameters()[i] = rows[i].bucket;
  Reply said = connection_->execute(statement, std::ref(sql), std::ref(read), limit);
  const bool all = answers == (form == Form::together ? 1 : rows.size());
  reply.kind = !said.well() ? kind_of(said.code, no_wait)
               : all        ? remote::LockReply::Kind::granted
                            : remote::LockReply::Kind::missing;
  reply.code = said.code;
  reply.message = std::move(said.message);
  return reply;
}

void RowSession::find_missing(std::span<const remote::Cell> cells, remote::LockReply& reply, WaitLimit& limit) {
  using Kind = remote::LockReply::Kind;
  const std::vector<plan::Row> rows = rows_of(cells);
  const Reply said = connection_->query(find_rows(table_, rows), limit);
  reply.code = said.code;
  reply.message = said.message;
  reply.kind = Kind::failed;
  if (!said.well()) return;
  std::set<std::pair<std::uint64_t, std::uint64_t>> found;
  for (const auto& row : said.rows) found.emplace(endpoint::number(row.at(0)), endpoint::number(row.at(1)));
  reply.there.clear();
  for (const plan::Row& row : rows) reply.there.push_back(found.contains({row.level, row.bucket}));
  reply.kind = found.size() == rows.size() ? Kind::granted : Kind::missing;
}

void RowSession::unlock_all(WaitLimit& limit) noexcept {
  try {
    if (asked_ == Asked::heartbeat && wait_for_answer(limit) != Answer::good) return connection_->give_up();
    if (asked_ == Asked::nothing) begin_unlock_all();
    if (wait_for_answer(limit) == Answer::good) return;
  } catch (...) {  // no memory
  }
  connection_->give_up();
}

void RowSession::begin_unlock_all() noexcept {
  try {
    connection_->begin("ROLLBACK");
    asked_ = Asked::unlock;
  } catch (...) {  // no memory
    connection_->give_up();
  }
}

void RowSession::begin_heartbeat() {
  connection_->begin("SELECT CONNECTION_ID(), " + fitness_);
  asked_ = Asked::heartbeat;
}

RowSession::Answer RowSession::answer() {
  return connection_->go_on() ? judge(connection_->reply()) : Answer::none_yet;
}

RowSession::Answer RowSession::wait_for_answer(WaitLimit& limit) {
  for (;;) {
    const Answer said = answer();
    if (said != Answer::none_yet) return said;
    const std::optional<Clock::duration> time = limit.next();
    if (!time) return Answer::none_yet;
    endpoint::watch(socket(), endpoint::readable, -1, std::min<Clock::duration>(*time, longest_look));
  }
}

RowSession::Answer RowSession::judge(const Reply& reply) {
  const Asked asked = std::exchange(asked_, Asked::nothing);
  if (asked == Asked::nothing && !broken()) return Answer::good;
  if (asked == Asked::unlock && reply.code == query_interrupted) {  // a KILL that came late
    begin_unlock_all();
    return Answer::none_yet;
  }
  const bool good =
      reply.well() && (asked == Asked::unlock || (!reply.rows.empty() && reply.rows[0].at(0) == std::to_string(id()) &&
                                                  is_fit(reply.rows[0].at(1))));
  if (!good) connection_->give_up();
  return good ? Answer::good : Answer::bad;
}

}  // namespace hierlock::mysql
