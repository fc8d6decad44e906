#include "mysql/session.h"

#include <algorithm>
#include <functional>
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

remote::LockReply RowSession::lock(std::span<const remote::Cell> cells, bool no_wait, WaitLimit& limit) {
  std::vector<plan::Row> rows;
  rows.reserve(cells.size());
  for (const remote::Cell& cell : cells) rows.push_back({cell.level, static_cast<std::uint32_t>(cell.key), cell.mode});
  const Form usual = usual_form(rows);
  remote::LockReply reply = lock(rows, no_wait, usual, limit);
  // Which row is missing? It may be there by now.
  const bool which = reply.kind == remote::LockReply::Kind::missing && usual != Form::one_by_one;
  return which ? lock(rows, no_wait, Form::one_by_one, limit) : reply;
}

// One round trip. The first lock of each shape on a connection takes one more, to prepare the statement. So does a
// shape that 64 others have pushed out since.
remote::LockReply RowSession::lock(std::span<const plan::Row> rows, bool no_wait, Form form, WaitLimit& limit) {
  remote::LockReply reply;
  if (form == Form::one_by_one) reply.there.resize(rows.size());
  std::size_t answers = 0;
  const auto sql = [&] {
    return lock_rows(connection_->mariadb() ? Dialect::mariadb : Dialect::mysql, table_, rows, no_wait, form);
  };
  const auto read = [&](std::span<const std::uint64_t> answer) {
    ++answers;
    const std::uint64_t number = answer[0], session = answer[1];
    const std::size_t place = session != 0 ? rows.size() - 1 : number;
    if (session != 0) {
      reply.minted = number;
      reply.session = session;
    }
    if (place < reply.there.size()) reply.there[place] = true;
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
