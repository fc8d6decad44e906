#include "mysql/names.h"

#include <algorithm>
#include <random>
#include <utility>

#include "mysql/fitness.h"
#include "mysql/statements.h"
#include "mysql_client/error_codes.h"
#include "plan/sha256.h"

namespace hierlock::mysql {

namespace {

using remote::LockName;
using remote::NameOp;
using remote::NameReply;
using remote::NameResult;

constexpr std::chrono::seconds fitness_interval{3};
constexpr int most_clears = 4;
constexpr std::uint64_t no_answer = 9;  // the server answered NULL
// The first answer of a statement is more by so much times the number of the session that has answered. A column of its
// own for that number would take the server and the client some microseconds.
constexpr std::uint64_t session_unit = 100'000'000;
// What a statement for slots answers, besides the slot.
constexpr std::uint64_t passed = 10'000'000, all_taken = 1'500'000, other_number = 2'000'000;
constexpr std::uint32_t most_counted = 20'000, counted_at_once = 500;

std::string hex5(std::uint32_t number) {
  std::string text(5, '0');
  for (std::size_t i = 5; i-- > 0; number >>= 4) text[i] = "0123456789abcdef"[number & 15];
  return text;
}

std::string get(const std::string& lock, std::int64_t seconds = 0) {
  return "GET_LOCK(" + lock + "," + std::to_string(seconds) + ")";
}
std::string release(const std::string& lock) { return "RELEASE_LOCK(" + lock + ")"; }
std::string or_none(const std::string& answer) { return "COALESCE(" + answer + "," + std::to_string(no_answer) + ")"; }

std::string session_number() { return std::to_string(session_unit) + "*CONNECTION_ID()"; }
// Of one answer.
std::string columns(const std::string& answer, bool first, bool minted) {
  return answer + (first ? "+" + session_number() : "") + (minted ? ",UUID_SHORT()" : "");
}

// 1 when the session does not have it any more.
std::string drop(const std::string& lock) {
  return "IF(IFNULL(IS_USED_LOCK(" + lock + ")=CONNECTION_ID(),0)," + release(lock) + ",1)";
}

// 3: granted, 2: another session has it, 0: another session is in the turnstile. To look at the turnstile is enough,
// and cheaper than to pass it: requests that look before a session enters it come before that session.
std::string take_name(const std::string& turnstile, const std::string& lock) {
  return or_none("CASE IS_FREE_LOCK(" + turnstile + ") WHEN 1 THEN 2+" + get(lock) + " WHEN 0 THEN 0 END");
}

// The slots to try: all, or some from a random one on.
template <class Each>
void for_tried_slots(std::uint32_t slots, std::uint32_t first, Each each) {
  const std::uint32_t count = std::min(slots, most_tried_slots);
  for (std::uint32_t i = 0; i < count; ++i) each((first + i) % slots + 1);
}

// Up to compared_slots the lowest come first: holders that say another number are looked for there. More slots than
// that are tried from a random one on, or all requests would ask for the same ones.
std::uint32_t first_tried(std::uint32_t slots) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return slots <= compared_slots ? 0 : static_cast<std::uint32_t>(random()) % slots;
}

// The turnstile is held, so nobody else takes a slot meanwhile. GET_LOCK would be granted for a slot that this session
// holds for another owner, hence IS_FREE_LOCK.
std::string take_slot(const LockTexts& texts, std::uint32_t slots, std::uint32_t first) {
  std::string sql = "CASE";
  for (std::uint32_t i = 1; i <= compared_slots; ++i) {
    const std::string with_number = i <= slots ? "IS_FREE_LOCK(" + texts.marker(i, slots) + ")=1 AND " : "";
    sql += " WHEN " + with_number + "IS_FREE_LOCK(" + texts.slot(i) + ")=0 THEN " + std::to_string(other_number + i);
  }
  for_tried_slots(slots, first, [&](std::uint32_t i) {
    const std::string marker = texts.marker(i, slots), slot = texts.slot(i);
    sql += " WHEN IS_FREE_LOCK(" + marker + ")=1 AND IS_FREE_LOCK(" + slot + ")=1 AND " + get(marker) + "=1 AND " +
           get(slot) + "=1 THEN " + std::to_string(i);
  });
  return sql + " ELSE " + std::to_string(all_taken) + " END";
}

NameResult read_slot(std::uint64_t answer, std::uint64_t minted) {
  if (answer == no_answer) return {};
  if (answer < passed) return {NameResult::Kind::queued};
  answer -= passed;
  if (answer == all_taken) return {NameResult::Kind::taken};
  const bool other = answer > other_number;
  return {other ? NameResult::Kind::disagrees : NameResult::Kind::granted,
          static_cast<std::uint32_t>(other ? answer - other_number : answer), minted};
}

}  // namespace

std::string ask_for_room(const std::string& table) {
  return "SELECT IF(@@lower_case_table_names=0, DATABASE(), LOWER(DATABASE())), " + stored_name(table);
}

LockTexts::LockTexts(const NameRoom& room, const LockName& name) {
  std::string bytes = room.database;
  bytes += '\0';
  bytes += room.table;
  bytes += '\0';
  bytes += name.space == Space::name ? 'n' : 's';
  bytes += name.key;
  digits_ = plan::hex(plan::sha256(bytes), 60);
}

std::string LockTexts::slot(std::uint32_t i) const { return "'hls" + digits_.substr(0, 40) + hex5(i) + "'"; }
std::string LockTexts::marker(std::uint32_t i, std::uint32_t n) const {
  return "'hln" + digits_.substr(0, 40) + hex5(i) + hex5(n) + "'";
}

bool mints(const NameOp& op) {
  return op.kind == NameOp::Kind::take || op.kind == NameOp::Kind::take_inside || op.kind == NameOp::Kind::mint;
}

namespace {
std::string expression(const NameRoom& room, const NameOp& op) {
  const LockTexts texts(room, op.name);
  const std::uint32_t slots = op.name.slots, first_slot = first_tried(slots);
  switch (op.kind) {
    case NameOp::Kind::mint:
      return "3";
    case NameOp::Kind::take: {
      if (slots == 0) return take_name(texts.turnstile(), texts.lock());
      const std::string inside =
          take_slot(texts, slots, first_slot) + "+" + std::to_string(passed) + "*" + release(texts.turnstile());
      return or_none("CASE " + get(texts.turnstile()) + " WHEN 1 THEN " + inside + " WHEN 0 THEN 0 END");
    }
    case NameOp::Kind::take_inside:
      return or_none(slots == 0 ? "2+" + get(texts.lock())
                                : take_slot(texts, slots, first_slot) + "+" + std::to_string(passed));
    case NameOp::Kind::give:
      return or_none(slots == 0 ? release(texts.lock())
                                : release(texts.slot(op.slot)) + "+" + release(texts.marker(op.slot, slots)) + "-1");
    case NameOp::Kind::undo:
      return or_none(slots == 0 ? drop(texts.lock()) + "+" + drop(texts.turnstile()) + "-1"
                                : drop(texts.slot(op.slot)) + "+" + drop(texts.marker(op.slot, slots)) + "-1");
  }
  return {};
}
}  // namespace

std::string statement(const NameRoom& room, std::span<const NameOp> ops) {
  std::string sql;
  for (const NameOp& op : ops) {
    const bool first = sql.empty();
    sql += (first ? "SELECT " : ",") + columns(expression(room, op), first, mints(op));
  }
  return sql.empty() ? "SELECT " + session_number() : sql;
}

NameResult read_result(const NameOp& op, std::uint64_t answer, std::uint64_t minted) {
  using Kind = NameResult::Kind;
  if (mints(op) && op.kind != NameOp::Kind::mint && op.name.slots != 0) return read_slot(answer, minted);
  if (answer == no_answer) return {op.kind == NameOp::Kind::give ? Kind::not_held : Kind::unknown};
  if (!mints(op)) return {answer == 1 ? Kind::given : op.kind == NameOp::Kind::give ? Kind::not_held : Kind::unknown};
  switch (answer) {
    case 3:
      return {Kind::granted, 0, minted};
    case 2:
      return {Kind::taken};
    case 0:
      return {Kind::queued};
    default:
      return {};
  }
}

// --- keeping ---------------------------------------------------------------------------------------------

void GetLockSession::prepare(WaitLimit& limit) {
  const auto made = [&](const char* key, const std::string& sql, std::size_t texts, std::size_t columns) -> Statement* {
    Statement& statement = connection().statement_of_texts(key, texts, LockTexts::size, columns);
    return connection().prepare(statement, sql, limit).well() ? &statement : nullptr;
  };
  take_ = made("take", "SELECT " + columns(take_name("?", "?"), true, true), 2, 2);
  give_ = made("give", "SELECT " + columns(or_none(release("?")), true, false), 1, 1);
}

// With its parameters. Null: it must be sent as text.
Statement* GetLockSession::prepared(std::span<const NameOp> ops) {
  if (ops.size() != 1 || ops[0].name.slots != 0) return nullptr;
  const NameOp::Kind kind = ops[0].kind;
  Statement* const statement = kind == NameOp::Kind::take ? take_ : kind == NameOp::Kind::give ? give_ : nullptr;
  if (statement == nullptr) return nullptr;
  if (!last_ || last_->first != ops[0].name.key) last_.emplace(ops[0].name.key, LockTexts(room_, ops[0].name));
  const LockTexts& texts = last_->second;
  if (kind == NameOp::Kind::take) texts.copy_turnstile(statement->text(0));
  texts.copy_lock(statement->text(kind == NameOp::Kind::take ? 1 : 0));
  return statement;
}

void GetLockSession::begin(std::span<const NameOp> ops) {
  asked_fitness_ = ops.empty() || Clock::now() - fit_at_ >= fitness_interval;
  asked_.assign(ops.begin(), ops.end());
  executed_ = asked_fitness_ ? nullptr : prepared(ops);
  if (executed_ != nullptr) return connection().begin(*executed_);
  std::string sql = statement(room_, ops);
  if (asked_fitness_) sql += "," + row_session(*session_).fitness();
  connection().begin(sql);
}

std::optional<NameReply> GetLockSession::answer() {
  if (!connection().go_on()) return std::nullopt;
  const Reply reply = connection().reply();
  NameReply said{.code = reply.code, .message = reply.message};
  if (!reply.well()) return said;
  if (executed_ != nullptr) {
    if (reply.has_rows) read(executed_->results(), said);
    return said;
  }
  const endpoint::Row& row = reply.rows.at(0);
  std::vector<std::uint64_t> numbers;
  for (std::size_t i = 0; i < row.size() - (asked_fitness_ ? 1 : 0); ++i) numbers.push_back(endpoint::number(row[i]));
  read(numbers, said);
  if (!asked_fitness_) return said;
  said.good = said.good && is_fit(row.back());
  fit_at_ = Clock::now();
  return said;
}

void GetLockSession::read(std::span<const std::uint64_t> row, NameReply& said) const {
  said.good = row[0] / session_unit == session_->id();
  std::size_t at = 0;
  for (const NameOp& op : asked_) {
    const std::uint64_t answer = at == 0 ? row[0] % session_unit : row[at];
    ++at;
    said.results.push_back(read_result(op, answer, mints(op) ? row[at++] : 0));
  }
}

// --- waiting ---------------------------------------------------------------------------------------------

// Whether the wait was ended from outside: on MySQL that is an error, on MariaDB NULL without one.
GetLockSession::Waited GetLockSession::wait(const LockName& name, At at, std::chrono::seconds time, WaitLimit& limit) {
  const LockTexts texts(room_, name);
  // From the line it only looks inside: the wait of a machine that has vanished must not last for both (B5).
  const std::int64_t inner = at == At::line ? 0 : time.count();
  const std::string inside = name.slots != 0 ? "2" : "IF(" + get(texts.lock(), inner) + "=1,3,2)";
  const std::string sql =
      at == At::line ? "CASE " + get(texts.turnstile(), time.count()) + " WHEN 1 THEN " + inside + " WHEN 0 THEN 0 END"
                     : inside;
  const Reply reply = connection().query("SELECT " + or_none(sql), limit);
  if (!reply.well()) return {reply.code, reply.message};
  const std::uint64_t answer = endpoint::number(reply.rows.at(0).at(0));
  if (answer == no_answer) return {codes::query_interrupted, "the wait was ended from outside"};
  return {0, {}, answer == 3 ? At::lock : answer == 2 ? At::turnstile : At::line};
}

std::optional<bool> GetLockSession::any_free(const LockName& name, WaitLimit& limit) {
  const LockTexts texts(room_, name);
  std::string sql = "SELECT 0";
  for_tried_slots(name.slots, first_tried(name.slots), [&](std::uint32_t i) {
    sql += " OR (IS_FREE_LOCK(" + texts.slot(i) + ")=1 AND IS_FREE_LOCK(" + texts.marker(i, name.slots) + ")=1)";
  });
  const Reply reply = connection().query(sql, limit);
  if (!reply.well()) return std::nullopt;
  return endpoint::number(reply.rows.at(0).at(0)) == 1;
}

bool GetLockSession::step_back(const LockName& name, WaitLimit& limit) {
  const Reply reply = connection().query("SELECT " + release(LockTexts(room_, name).lock()), limit);
  return reply.well() && reply.rows.at(0).at(0) == "1";
}

void GetLockSession::begin_clear() noexcept {
  try {
    connection().begin("SELECT RELEASE_ALL_LOCKS()");
    clearing_ = true;
  } catch (...) {  // no memory
    connection().give_up();
  }
}

bool GetLockSession::cleared(WaitLimit& limit) noexcept {
  try {
    if (!clearing_ && !connection().broken()) return true;
    for (int tries = 0; clearing_ && tries < most_clears; ++tries) {
      clearing_ = false;
      const Reply reply = connection().end(limit);
      if (reply.well()) return true;
      if (reply.code == codes::query_interrupted) begin_clear();  // a KILL that came late
    }
  } catch (...) {  // no memory
  }
  connection().give_up();
  return false;
}

std::optional<remote::NameStore::Holders> holders(Connection& connection, const NameRoom& room,
                                                  std::span<const LockName> names, WaitLimit& limit) {
  std::string sql;
  const auto ask = [&](const std::string& lock) {
    sql += (sql.empty() ? "SELECT IFNULL(IS_USED_LOCK(" : ",IFNULL(IS_USED_LOCK(") + lock + "),0)";
  };
  for (const LockName& name : names) {
    const LockTexts texts(room, name);
    if (name.slots == 0) ask(texts.lock());
    for (std::uint32_t i = 1; i <= name.slots; ++i) ask(texts.slot(i));
  }
  const Reply reply = connection.query(sql, limit);
  if (!reply.well()) return std::nullopt;
  remote::NameStore::Holders all;
  auto value = reply.rows.at(0).begin();
  for (const LockName& name : names) {
    std::vector<std::uint64_t>& sessions = all.emplace_back();
    for (std::uint32_t i = 0; i < std::max(name.slots, 1u); ++i) sessions.push_back(endpoint::number(*value++));
    if (std::find(sessions.begin(), sessions.end(), 0) != sessions.end()) sessions.clear();
  }
  return all;
}

std::optional<std::uint32_t> slots_of_holder(Connection& connection, const NameRoom& room, const LockName& name,
                                             std::uint32_t slot, WaitLimit& limit) {
  const LockTexts texts(room, name);
  for (std::uint32_t first = 1; first <= most_counted; first += counted_at_once) {
    std::string sql = "SELECT CASE";
    for (std::uint32_t n = first; n < first + counted_at_once; ++n) {
      sql += " WHEN IS_FREE_LOCK(" + texts.marker(slot, n) + ")=0 THEN " + std::to_string(n);
    }
    const Reply reply = connection.query(sql + " ELSE 0 END", limit);
    if (!reply.well()) return std::nullopt;
    const std::uint64_t found = endpoint::number(reply.rows.at(0).at(0));
    if (found != 0) return static_cast<std::uint32_t>(found);
  }
  return std::nullopt;
}

}  // namespace hierlock::mysql
