#include "mysql/lock_rows.h"

#include <functional>
#include <utility>

namespace hierlock::mysql {

LockReply lock_all(Connection& connection, const BucketTable& table, std::span<const plan::Row> rows, bool no_wait,
                   Form form, WaitLimit& limit) {
  LockReply reply;
  if (form == Form::one_by_one) reply.there.resize(rows.size());
  std::size_t answers = 0;
  const auto sql = [&] {
    return lock_rows(connection.mariadb() ? Dialect::mariadb : Dialect::mysql, table, rows, no_wait, form);
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
  Statement& statement = connection.statement(lock_rows_name(rows, no_wait, form), rows.size(), 2);
  for (std::size_t i = 0; i < rows.size(); ++i) statement.parameters()[i] = rows[i].bucket;
  Reply said = connection.execute(statement, std::ref(sql), std::ref(read), limit);
  reply.code = said.code;
  reply.message = std::move(said.message);
  reply.all = reply.well() && answers == (form == Form::together ? 1 : rows.size());
  return reply;
}

}  // namespace hierlock::mysql
