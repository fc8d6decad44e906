// PostgreSQL as the lab sees it: a connection for each session, and one beside them that looks.
#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "lab/engines.h"
#include "lab/session_wait.h"
#include "postgres_client/connection.h"
#include "postgres_client/error_codes.h"

namespace hierlock::lab {

namespace {

using postgres::Address;
using timed::Clock;
using timed::Deadline;
namespace codes = postgres::codes;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds connect_time{5};
constexpr seconds side_patience{20};                   // with an answer to a question of the lab's own
constexpr std::string_view turn = "7523086470148215";  // the key that keeps other runs away: a number like any other
const std::string looker = room + " looks";            // application_name; of the sessions it is the room's

postgres::Connection connect_to(const Address& address, const std::string& application) {
  Deadline limit(connect_time);
  return postgres::Connection(address, application, limit);
}

// The connection that looks, and keeps other runs of the lab away. One question at a time, of any thread.
class Side {
 public:
  explicit Side(const Address& address) : connection_(connect_to(address, looker)) {}

  std::vector<Row> ask(const std::string& sql, std::optional<Clock::time_point> deadline = std::nullopt) {
    const std::lock_guard guard(mutex_);
    Deadline limit(deadline.value_or(Clock::now() + side_patience));
    postgres::Reply reply = connection_.query(sql, limit);
    if (reply.well()) return std::move(reply.rows);
    const Error error = postgres::error_of(reply, "use the server");
    if (connection_.broken()) throw Error(ErrorKind::lost, error.what());
    throw error;  // NOLINT: made for this
  }
  std::string one(const std::string& sql) {
    const std::vector<Row> rows = ask(sql);
    return rows.empty() ? "" : rows.front().front().value_or("");
  }
  const std::string& version() const { return connection_.version(); }

 private:
  std::mutex mutex_;
  postgres::Connection connection_;
};

// What the database and its sessions know of each other.
struct Hall {
  explicit Hall(const Address& where) : address(where), side(where) {}

  const Address address;
  Side side;
  std::mutex mutex;
  std::map<std::string, std::string> seats;  // names by process ids
  std::vector<std::string> left;             // sessions that were closed, and may still be ending at the server
};

// --- a session ----------------------------------------------------------------------------------------------------

class PostgresConnection final : public Connection {
 public:
  PostgresConnection(std::shared_ptr<Hall> hall, const std::string& name)
      : hall_(std::move(hall)), name_(name), connection_(connect_to(hall_->address, room)) {
    id_ = std::to_string(connection_.id());
    const Answer placed = execute("SET search_path TO " + room);
    if (!placed.well()) throw Error(ErrorKind::unavailable, "cannot use the lab's schema: " + placed.message);
    const std::lock_guard guard(hall_->mutex);
    hall_->seats.emplace(id_, name_);
  }
  ~PostgresConnection() override {
    const std::lock_guard guard(hall_->mutex);
    hall_->seats.erase(id_);
    hall_->left.push_back(id_);
  }

  Answer execute(const std::string& sql) override {
    if (wait_.interrupted()) throw Error(ErrorKind::lost, "the session " + name_ + " was interrupted");
    postgres::Reply reply = connection_.query(sql, wait_);
    if (connection_.broken()) throw Error(ErrorKind::lost, "the session " + name_ + " is gone: " + reply.message);
    Answer answer;
    if (reply.well()) {
      answer.has_rows = reply.has_rows;
      answer.rows = std::move(reply.rows);
      // `UPDATE 1`; a SELECT has a number there, too.
      const std::vector<std::string> tag = words_of(reply.tag);
      if (changes_rows(tag)) answer.affected = std::stoull(tag.back());
    } else {
      answer.code = std::move(reply.state);
      answer.message = std::move(reply.message);
      answer.kind = kind_of(answer.code, words_of(sql));
    }
    return answer;
  }

  void interrupt() noexcept override {
    wait_.interrupt();  // execute() waits no more
    try {
      // The server does not notice that nobody waits for its answer. (Not PQcancel(), which takes its time to connect.)
      hall_->side.ask("SELECT pg_terminate_backend(" + id_ + ")", Clock::now() + seconds(3));
    } catch (const Error&) {
      // It is gone already, or the server is.
    }
  }
  const std::string& name() const noexcept override { return name_; }

 private:
  static Answer::Kind kind_of(const std::string& state, const std::vector<std::string>& words) {
    using Kind = Answer::Kind;
    if (state == codes::deadlock) return Kind::deadlock;
    if (state == codes::serialization_failure) return Kind::serialization;
    if (state == codes::lock_not_available) return asks_not_to_wait(words) ? Kind::busy : Kind::timeout;
    if (state == codes::query_canceled) return Kind::timeout;  // statement_timeout
    return Kind::error;
  }

  const std::shared_ptr<Hall> hall_;
  const std::string name_;
  SessionWait wait_;
  postgres::Connection connection_;
  std::string id_;
};

// --- the database -------------------------------------------------------------------------------------------------

class PostgresDatabase final : public Database {
 public:
  explicit PostgresDatabase(const Address& address)
      : hall_(std::make_shared<Hall>(address)), version_(hall_->side.version()) {}
  ~PostgresDatabase() override { clear_room(); }

  std::string_view engine() const noexcept override { return "postgres"; }
  const std::string& version() const noexcept override { return version_; }

  void make_room(std::chrono::nanoseconds patience) override {
    take_turn(patience);
    made_ = false;
    try {
      await_leaving();
      const std::string schema =
          ask("SELECT COUNT(*) FROM pg_namespace WHERE nspname = '" + room + "'").front().front().value_or("");
      if (schema != "0") {
        refuse_a_strangers();
        end_leftovers();
      }
      // Definitions are part of a transaction here: who is killed on the way leaves all or nothing.
      ask("BEGIN; DROP SCHEMA IF EXISTS " + room + " CASCADE; CREATE SCHEMA " + room + "; CREATE TABLE " + room + "." +
          marker + " (made int); COMMIT");
      made_ = true;
    } catch (...) {
      clear_room();
      throw;
    }
  }

  void clear_room() noexcept override {
    try {
      hall_->side.ask("ROLLBACK");
      await_leaving();
      if (std::exchange(made_, false)) hall_->side.ask("DROP SCHEMA IF EXISTS " + room + " CASCADE");
      if (std::exchange(turn_, false)) hall_->side.ask("SELECT pg_advisory_unlock(" + std::string(turn) + ")");
    } catch (const Error&) {
      // The next run finds what is left, by the marker.
    }
  }

  std::unique_ptr<Connection> connect(const std::string& name) override {
    return std::make_unique<PostgresConnection>(hall_, name);
  }

  View look() override {
    std::map<std::string, std::string> seats;
    std::string list;
    {
      const std::lock_guard guard(hall_->mutex);
      seats = hall_->seats;
    }
    for (const auto& [id, name] : seats) list += (list.empty() ? "" : ",") + id;
    // In this order: what is granted in between is no longer asked for in the second answer, and is not told.
    const std::vector<Row> blocked =
        hall_->side.ask("SELECT pid, b, false FROM unnest('{" + list +
                        "}'::int[]) pid, unnest(pg_blocking_pids(pid)) b UNION ALL SELECT pid, b, true FROM unnest('{" +
                        list + "}'::int[]) pid, unnest(pg_safe_snapshot_blocking_pids(pid)) b");
    const std::vector<Row> locks = hall_->side.ask(
        "SELECT l.pid, l.granted, l.locktype, l.mode, CASE WHEN n.nspname IN ('" + room +
        "', 'pg_catalog') THEN c.relname WHEN c.relname IS NULL THEN 'relation ' || l.relation ELSE n.nspname || '.' "
        "|| "
        "c.relname END, l.page, l.tuple, l.transactionid, l.classid, l.objid, l.objsubid, l.virtualxid "
        "FROM pg_locks l LEFT JOIN pg_class c ON c.oid = l.relation LEFT JOIN pg_namespace n ON n.oid = c.relnamespace "
        // Everybody has one on itself.
        "WHERE l.pid = ANY('{" +
        list + "}') AND NOT (l.locktype = 'virtualxid' AND l.granted) AND COALESCE(n.nspname, '') <> 'pg_toast'");
    View view;
    std::map<std::string, std::string> asked_for, row_of;  // by process id
    for (const Row& row : locks) {
      const std::string id = row[0].value_or("");
      const std::string object = object_of(row);
      const bool granted = row[1] == "t";
      view.locks.push_back({seats.at(id), object, row[3].value_or(""), granted});
      if (!granted) asked_for[id] = object;
      if (granted && row[2] == "tuple") row_of[id] = object;
    }
    for (const Row& row : blocked) {
      const std::string id = row[0].value_or("");
      const std::string holder = row[1].value_or("");
      const bool for_a_snapshot = row[2] == "t";  // READ ONLY DEFERRABLE waits without a lock
      const auto asked = asked_for.find(id);
      if (asked == asked_for.end() && !for_a_snapshot) continue;
      // Who waits for a row waits for the transaction that has it, and keeps its own place with a lock on the row.
      const auto own_place = row_of.find(id);
      std::string object = for_a_snapshot ? "a safe snapshot" : asked->second;
      if (own_place != row_of.end() && object.starts_with("transaction")) object = own_place->second;
      const auto other = seats.find(holder);
      const std::string who = other != seats.end() ? other->second
                              : holder == "0"      ? "outsider, a prepared transaction"
                                                   : "outsider " + holder;
      add_wait(view, seats.at(id), who, object);
    }
    return view;
  }

 private:
  static std::string object_of(const Row& row) {
    const std::string kind = row[2].value_or("");
    const auto number = [&](std::size_t i) { return row[i].value_or("?"); };
    if (kind == "relation") return number(4);
    if (kind == "tuple") return number(4) + "(" + number(5) + "," + number(6) + ")";  // as its ctid
    if (kind == "page") return number(4) + ", page " + number(5);
    if (kind == "extend") return number(4) + ", to extend it";
    if (kind == "transactionid") return "transaction " + number(7);
    if (kind == "virtualxid") return "transaction " + number(11);
    if (kind == "advisory") {
      if (row[10] == "2") return "advisory " + number(8) + "," + number(9);
      const std::uint64_t high = std::stoull(row[8].value_or("0")), low = std::stoull(row[9].value_or("0"));
      return "advisory " + std::to_string(static_cast<std::int64_t>(high << 32 | low));
    }
    return kind;
  }

  std::vector<Row> ask(const std::string& sql) {
    try {
      return hall_->side.ask(sql);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::denied) throw;
      hall_->side.ask("ROLLBACK");
      throw Error(ErrorKind::denied,
                  "cannot make the lab's schema: " + std::string(error.what()) + ". The lab needs one of its own: " +
                      hall_->side.one("SELECT format('GRANT CREATE ON DATABASE %I TO %I', current_database(), "
                                      "current_user)"));
    }
  }

  // One run at a time in a database: an advisory lock, which ends with the connection.
  void take_turn(std::chrono::nanoseconds patience) {
    if (turn_) return;
    const auto ms = std::clamp<std::int64_t>(std::chrono::ceil<milliseconds>(patience).count(), 1, 86'400'000);
    hall_->side.ask("SET lock_timeout = '" + std::to_string(ms) + "ms'");
    try {
      hall_->side.ask("SELECT pg_advisory_lock(" + std::string(turn) + ")",
                      Clock::now() + milliseconds(ms) + side_patience);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::busy) throw;
      throw Error(ErrorKind::busy, "another run of the lab is going on in this database");
    }
    turn_ = true;
    hall_->side.ask("SET lock_timeout = '10s'");
  }

  void refuse_a_strangers() {
    const std::string ours = hall_->side.one(
        "SELECT COUNT(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '" + room +
        "' AND c.relname = '" + marker + "'");
    if (ours != "0") return;
    throw Error(ErrorKind::incompatible, "there is a schema " + room +
                                             " in this database that the lab has not made: rename it, or drop it if "
                                             "nobody needs it");
  }

  // Sessions of a run that was killed while they waited: the server has not noticed yet.
  void end_leftovers() {
    const std::vector<Row> ended = hall_->side.ask(
        "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename = "
        "current_user AND application_name = '" +
        room + "'");
    {
      const std::lock_guard guard(hall_->mutex);
      for (const Row& row : ended) hall_->left.push_back(row.front().value_or("0"));
    }
    await_leaving();
  }

  // A session that was closed lives on at the server for a moment, with all its locks. Nobody is to see them.
  void await_leaving() {
    std::vector<std::string> left;
    {
      const std::lock_guard guard(hall_->mutex);
      left.swap(hall_->left);
    }
    if (left.empty()) return;
    std::string list;
    for (const std::string& id : left) list += (list.empty() ? "" : ",") + id;
    const std::string sql = "SELECT COUNT(*) FROM pg_stat_activity WHERE pid IN (" + list + ")";
    for (const auto end = Clock::now() + seconds(5); Clock::now() < end; std::this_thread::sleep_for(milliseconds(1))) {
      if (hall_->side.one(sql) == "0") return;
    }
  }

  const std::shared_ptr<Hall> hall_;
  const std::string version_;
  bool turn_ = false, made_ = false;
};

}  // namespace

std::unique_ptr<Database> open_postgres(const std::string& url) {
  return std::make_unique<PostgresDatabase>(postgres::read_address(url));
}

}  // namespace hierlock::lab
