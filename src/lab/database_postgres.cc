// PostgreSQL as the lab sees it: a connection for each session, and one beside them that looks.
#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "endpoint/socket.h"
#include "lab/engines.h"
#include "lab/postgres_view.h"
#include "lab/session_reuse.h"
#include "lab/session_wait.h"
#include "lab/sql_text.h"
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
constexpr seconds reset_time{5};                       // a connection that takes longer is closed
constexpr std::string_view turn = "7523086470148215";  // the key that keeps other runs away: a number like any other
const std::string looker = room + " looks";            // application_name; of the sessions it is the room's

postgres::Connection connect_to(const Address& address, const std::string& application) {
  Deadline limit(connect_time);
  return postgres::Connection(address, application, limit);
}

// As the session's default, so that RESET ALL and DISCARD ALL keep it.
Address with_default(Address address, const std::string& setting) {
  std::string& options = address.settings["options"];
  options += (options.empty() ? "" : " ") + ("-c " + setting);
  return address;
}
Address in_the_room(const Address& address) { return with_default(address, "search_path=" + room); }

std::string literal(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

// The connection that looks, and keeps other runs of the lab away. One question at a time, of any thread.
class Side {
 public:
  // Its commits need not wait until they are on disk: those of the scenario, which come later, wait for both.
  // Of its questions the plans are kept, because planning one takes longer than answering it.
  explicit Side(const Address& address)
      : connection_(connect_to(
            with_default(with_default(address, "synchronous_commit=off"), "plan_cache_mode=force_generic_plan"),
            looker)) {}

  // Of several statements, the rows of each. An error ends them.
  std::vector<std::vector<Row>> ask_each(const std::string& sql,
                                         std::optional<Clock::time_point> deadline = std::nullopt,
                                         const std::string& doing = "use the server") {
    const std::lock_guard guard(mutex_);
    Deadline limit(deadline.value_or(Clock::now() + side_patience));
    std::vector<std::vector<Row>> answers;
    for (postgres::Reply& reply : connection_.query_each(sql, limit)) {
      if (!reply.well()) {
        const Error error = postgres::error_of(reply, doing);
        if (connection_.broken()) throw Error(ErrorKind::lost, error.what());
        throw error;  // NOLINT: made for this
      }
      answers.push_back(std::move(reply.rows));
    }
    connection_.take_notices();
    return answers;
  }
  // The rows of the last one.
  std::vector<Row> ask(const std::string& sql, std::optional<Clock::time_point> deadline = std::nullopt,
                       const std::string& doing = "use the server") {
    return std::move(ask_each(sql, deadline, doing).back());
  }
  std::string one(const std::string& sql) {
    const std::vector<Row> rows = ask(sql);
    return rows.empty() ? "" : rows.front().front().value_or("");
  }
  // The statements that ask a question about these backends, which is $1 in it. The first call prepares it. The last of
  // them answers.
  std::string prepared(const std::string& name, const std::string& question, const std::string& backends = "'{}'") {
    const std::string execute = "EXECUTE " + name + "(" + backends + ")";
    const std::lock_guard guard(mutex_);
    return prepared_.insert(name).second ? "PREPARE " + name + "(int[]) AS " + question + "; " + execute : execute;
  }
  // After statements of a scenario: the session is as it was at first.
  void reset() {
    ask("ROLLBACK");
    ask("DISCARD PLANS; DEALLOCATE ALL; RESET ROLE; RESET ALL");
    const std::lock_guard guard(mutex_);
    prepared_.clear();
  }
  const std::string& version() const { return connection_.version(); }

 private:
  std::mutex mutex_;
  postgres::Connection connection_;
  std::set<std::string> prepared_;
};

// What the database and its sessions know of each other.
struct Hall {
  explicit Hall(const Address& where) : address(where), side(where), account(side.one("SELECT session_user")) {}

  const Address address;
  Side side;
  const std::string account;  // that logs in
  std::mutex mutex;
  Backends seats;
  std::vector<std::string> left;              // sessions that were closed, and may still be ending at the server
  std::atomic<bool> settings_changed{false};  // perhaps, by a session of this scenario
  std::deque<std::unique_ptr<postgres::Connection>> spare;  // reset, and found to be as new
};

// --- a connection that is used again ------------------------------------------------------------------------------

// setseed() outlives DISCARD ALL, and nothing shows it. A new session draws its seed by chance, too.
std::string random_seed() {
  static std::random_device device;
  return std::to_string(static_cast<double>(device()) / std::random_device::max());
}

// What DISCARD ALL does, by its documentation, as one message with the question behind it. DISCARD ALL itself cannot be
// a part of one, and a second message for each session takes longer than the reset.
constexpr std::string_view discard_all =
    "BEGIN; CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; DEALLOCATE ALL; UNLISTEN *; SELECT "
    "pg_advisory_unlock_all(); DISCARD PLANS; DISCARD TEMP; DISCARD SEQUENCES; COMMIT; ";

// Asks the server to reset the connection. All settings are looked at only if a session may have changed some, because
// that takes longer than everything else here.
void begin_reset(postgres::Connection& connection, const std::string& account, bool settings_changed) {
  connection.send(
      (connection.idle() ? "" : "ROLLBACK; ") + std::string(discard_all) + "SELECT session_user = " + literal(account) +
      " AND current_user = session_user AND pg_my_temp_schema() = 0 AND NOT EXISTS (SELECT FROM "
      "pg_prepared_statements) AND NOT EXISTS (SELECT FROM pg_cursors) AND NOT EXISTS (SELECT FROM "
      "pg_listening_channels()) AND current_setting('search_path') = '" +
      room + "'" + (settings_changed ? " AND NOT EXISTS (SELECT FROM pg_settings WHERE source = 'session')" : "") +
      ", setseed(" + random_seed() + ")");
}
// True if the server shows that it is as a new one.
bool end_reset(postgres::Connection& connection) noexcept try {
  Deadline limit(reset_time);
  const postgres::Reply state = std::move(connection.receive(limit).back());
  // Messages of the last session, too.
  connection.take_notices();
  connection.take_notifications();
  return state.well() && connection.idle() && state.rows.size() == 1 && state.rows.front().front() == "t";
} catch (const std::exception&) {
  return false;
}

std::unique_ptr<postgres::Connection> take_spare(Hall& hall) {
  const std::lock_guard guard(hall.mutex);
  while (!hall.spare.empty()) {
    auto taken = std::move(hall.spare.front());
    hall.spare.pop_front();
    // Another run may have ended it, and then the server has said so.
    if (!endpoint::has_input(taken->socket())) return taken;
    hall.left.push_back(std::to_string(taken->id()));
  }
  return nullptr;
}

// --- a session ----------------------------------------------------------------------------------------------------

class PostgresConnection final : public Connection {
 public:
  // `spare`: none for a new connection.
  PostgresConnection(std::shared_ptr<Hall> hall, const std::string& name, bool reusable,
                     std::unique_ptr<postgres::Connection> spare)
      : hall_(std::move(hall)), name_(name), reusable_(reusable), connection_(std::move(spare)) {
    if (connection_ == nullptr) {
      Deadline limit(connect_time);
      connection_ = std::make_unique<postgres::Connection>(in_the_room(hall_->address), room, limit);
    }
    id_ = std::to_string(connection_->id());
    const std::lock_guard guard(hall_->mutex);
    hall_->seats.emplace(id_, name_);
  }
  ~PostgresConnection() override {
    begin_end();
    const bool clean = resetting_ && end_reset(*connection_);
    const std::lock_guard guard(hall_->mutex);
    hall_->seats.erase(id_);
    if (clean) {
      hall_->spare.push_back(std::move(connection_));
    } else {
      hall_->left.push_back(id_);
    }
  }

  void begin_end() noexcept override try {
    if (resetting_ || !reusable_ || wait_.interrupted() || connection_->broken()) return;
    begin_reset(*connection_, hall_->account, hall_->settings_changed);
    resetting_ = true;
  } catch (const std::exception&) {  // no memory: it is closed
  }

  Answer execute(const std::string& sql) override {
    send(sql);
    return finish();
  }
  bool can_begin() const noexcept override { return true; }
  std::optional<Answer> begin(const std::string& sql, std::chrono::nanoseconds time) override {
    send(sql);
    return connection_->arrives(time) ? std::optional(finish()) : std::nullopt;
  }
  Answer finish() override {
    std::vector<postgres::Reply> replies = connection_->receive(wait_);
    if (connection_->broken()) {
      throw Error(ErrorKind::lost, "the session " + name_ + " is gone: " + replies.back().message);
    }
    Answer answer;
    for (postgres::Reply& reply : replies) {
      if (!reply.well()) {
        answer = {.kind = kind_of(reply), .code = std::move(reply.state), .message = std::move(reply.message)};
        break;
      }
      // `UPDATE 1`; a SELECT has a number there, too.
      const std::vector<std::string> tag = words_of(reply.tag);
      answer.add({reply.has_rows, std::move(reply.rows),
                  changes_rows(tag) ? std::optional(std::stoull(tag.back())) : std::nullopt});
    }
    answer.notices = connection_->take_notices();
    for (postgres::Notification& one : connection_->take_notifications()) {
      answer.notifications.push_back({std::move(one.channel), std::move(one.payload)});
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
  bool is_as_new() const noexcept override { return reusable_ && !changed_ && connection_->idle(); }

 private:
  void send(const std::string& sql) {
    if (wait_.interrupted()) throw Error(ErrorKind::lost, "the session " + name_ + " was interrupted");
    if (may_change_settings(sql)) hall_->settings_changed = changed_ = true;
    if (lowered(sql).find("temp") != std::string::npos) changed_ = true;
    connection_->send(sql);
  }

  static Answer::Kind kind_of(const postgres::Reply& reply) {
    using Kind = Answer::Kind;
    if (reply.state == codes::deadlock) return Kind::deadlock;
    if (reply.state == codes::serialization_failure) return Kind::serialization;
    // One code for NOWAIT and for lock_timeout. Only a limit that has passed interrupts the statement.
    if (reply.state == codes::lock_not_available) {
      return reply.raised_by == "ProcessInterrupts" ? Kind::timeout : Kind::busy;
    }
    // One code for statement_timeout and for a cancel, and only the message tells them apart. In another language than
    // English it is told as an error.
    if (reply.state == codes::query_canceled) {
      if (reply.message.find("statement timeout") != reply.message.npos) return Kind::timeout;
      if (reply.message.find("user request") != reply.message.npos) return Kind::cancelled;
    }
    return Kind::error;
  }

  const std::shared_ptr<Hall> hall_;
  const std::string name_;
  const bool reusable_;
  bool resetting_ = false;
  bool changed_ = false;  // a setting, or what a name means, by a temporary table
  SessionWait wait_;
  std::unique_ptr<postgres::Connection> connection_;
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
    try {
      if (kept_ && take_kept_room()) return;
    } catch (...) {
      clear_room();
      throw;
    }
    take_turn(patience);
    try {
      await_leaving();
      if (std::exchange(kept_, false) && empty_kept_room(look_at_room())) return;
      made_ = false;
      close_spare();
      const std::string schema =
          ask("SELECT COUNT(*) FROM pg_namespace WHERE nspname = '" + room + "'").front().front().value_or("");
      if (schema != "0") {
        refuse_a_strangers();
        end_leftovers();
        end_prepared();
        make_up_for_teardown();
      }
      // Definitions are part of a transaction here: who is killed on the way leaves all or nothing.
      ask("BEGIN");
      if (schema != "0") ask(drop_schema);
      // Sessions may change their roles.
      ask("CREATE SCHEMA " + room + "; GRANT ALL ON SCHEMA " + room + " TO PUBLIC; CREATE TABLE " + room + "." +
          marker + " (place int, teardown text); COMMIT");
      const Row made = ask("SELECT n.oid, n.xmin, c.oid FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid "
                           "WHERE n.nspname = '" +
                           room + "' AND c.relname = '" + marker + "'")
                           .at(0);
      schema_ = {made.at(0).value_or(""), made.at(1).value_or(""), made.at(2).value_or("")};
      made_ = true;
    } catch (...) {
      clear_room();
      throw;
    }
  }

  void remember(const std::vector<std::string>& teardown) override {
    std::string values;
    for (std::size_t i = 0; i < teardown.size(); ++i) {
      values += (i == 0 ? "(" : ", (") + std::to_string(i) + ", " + literal(teardown[i]) + ")";
    }
    if (values.empty()) return;
    ask("INSERT INTO " + room + "." + marker + " VALUES " + values);
    noted_ = true;
  }

  // The next run of anybody may find the schema. To it, this is one that a killed run has left.
  void leave_room() noexcept override {
    try {
      // The teardown has been run, and must not be run again.
      const std::string forget = std::exchange(noted_, false) ? "DELETE FROM " + room + "." + marker + "; " : "";
      if (!made_ || !turn_) return clear_room();
      // A scenario that has put another schema in its place: that one goes.
      const std::string given = hall_->side.prepared(
          "leave_" + schema_.oid,
          "SELECT CASE WHEN " + is_the_same() + " THEN pg_advisory_unlock(" + std::string(turn) + ") ELSE false END");
      kept_ = hall_->side.one(forget + given) == "t";
      turn_ = !kept_;
      if (turn_) clear_room();
    } catch (const Error&) {
      clear_room();
    }
  }

  void clear_room() noexcept override {
    close_spare(std::exchange(kept_, false));
    try {
      hall_->side.ask("ROLLBACK");
      await_leaving();
      const bool had_turn = turn_;
      if (made_ && !had_turn) take_turn(seconds(1));
      // If the turn was given away, it may have become the schema of another run.
      if (std::exchange(made_, false) && (had_turn || is_ours())) {
        end_prepared();
        hall_->side.ask(drop_schema);
      }
    } catch (const Error&) {
      // The next run finds what is left, by the marker.
    }
    try {
      if (std::exchange(turn_, false)) hall_->side.ask(give_turn);
    } catch (const Error&) {
      // The connection is gone, and the lock with it.
    }
  }

  std::unique_ptr<Connection> connect(const std::string& name, bool reusable) override {
    return std::make_unique<PostgresConnection>(hall_, name, reusable, reusable ? take_spare(*hall_) : nullptr);
  }
  std::unique_ptr<Connection> connect_again(const std::string& name) override {
    auto spare = take_spare(*hall_);
    return spare == nullptr ? nullptr : std::make_unique<PostgresConnection>(hall_, name, true, std::move(spare));
  }

  View look(TimePoint /*since*/) override {
    Backends seats;
    {
      const std::lock_guard guard(hall_->mutex);
      seats = hall_->seats;
    }
    const std::string list = list_of(seats);
    const std::vector<Row> blockers = hall_->side.ask(hall_->side.prepared("blockers", blockers_question(), list));
    const std::vector<Row> locks = hall_->side.ask(hall_->side.prepared("locks", locks_question(), list));
    return view_of(seats, blockers, locks);
  }

 private:
  static constexpr milliseconds longest_wait{10'000};  // for a lock of somebody else on what the lab drops
  inline static const std::string drop_schema = "DROP SCHEMA IF EXISTS " + room + " CASCADE";
  inline static const std::string give_turn = "SELECT pg_advisory_unlock(" + std::string(turn) + ")";

  // --- a schema that is kept ---
  //
  // It is as good as a new one if its row in the catalogue is the very one that make_room() wrote, and nothing but the
  // marker depends on it. Every object in a schema depends on it, and so do default privileges and publications.
  // PostgreSQL writes a new row of pg_namespace if the schema's name, owner or rights change. A connection that is used
  // again must have left no lock and no prepared transaction.

  std::string is_the_same() const {
    return "EXISTS (SELECT FROM pg_namespace WHERE oid = " + schema_.oid + " AND xmin = " + schema_.row +
           " AND nspname = '" + room + "')";
  }
  bool is_ours() { return hall_->side.one("SELECT " + is_the_same()) == "t"; }

  std::string others_in_it(const std::string& joined = "") const {
    return "pg_depend d " + joined + "WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = " + schema_.oid +
           " AND NOT (d.classid = 'pg_class'::regclass AND d.objid = " + schema_.marker + ")";
  }

  struct RoomState {
    bool locks = false, prepared = false, same = false, others = false;
  };
  RoomState look_at_room() { return state_of(hall_->side.ask(state_question())); }
  static RoomState state_of(const std::vector<Row>& rows) {
    const Row& row = rows.at(0);
    return {row.at(0) == "t", row.at(1) == "t", row.at(2) == "t", row.at(3) == "t"};
  }
  std::string state_question() {
    Backends spare;
    {
      const std::lock_guard guard(hall_->mutex);
      for (const auto& one : hall_->spare) spare.emplace(std::to_string(one->id()), "");
    }
    return hall_->side.prepared("room_" + schema_.oid,
                                "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = ANY($1)), EXISTS (SELECT FROM "
                                "pg_prepared_xacts WHERE database = current_database()), " +
                                    is_the_same() + ", EXISTS (SELECT FROM " + others_in_it() + ")",
                                list_of(spare));
  }

  // In one round trip, if nobody else has the turn. False: there is more to do.
  bool take_kept_room() {
    await_leaving();
    hall_->settings_changed = false;
    const std::string question = state_question();
    turn_ = true;  // if this fails, it may have the turn nevertheless
    const auto answers = hall_->side.ask_each("SELECT pg_try_advisory_lock(" + std::string(turn) + "); " + question);
    turn_ = answers.at(0).at(0).at(0) == "t";
    if (!turn_) return false;  // another run may change it, until it is our turn
    kept_ = false;
    return empty_kept_room(state_of(answers.back()));
  }

  // Empties it, if that is all that it needs. False: it has to be made anew.
  bool empty_kept_room(const RoomState& state) {
    if (state.locks || !state.same) return false;
    if (state.prepared) end_prepared();
    if (!state.others) return true;
    // Dropping what is in it takes less time than making a schema. Objects of other kinds go with the schema.
    const std::vector<Row> drops = hall_->side.ask(
        "SELECT format('DROP %s IF EXISTS %s CASCADE', o.type, o.identity) FROM " +
        others_in_it("CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) o ") +
        " AND o.type IN ('table', 'view', 'materialized view', 'sequence', 'function', 'procedure', 'type')");
    std::string all;
    for (const Row& row : drops) all += row.front().value_or("") + "; ";
    if (all.empty()) return false;
    try {
      hall_->side.ask(all);
    } catch (const Error&) {
      return false;
    }
    const RoomState now = look_at_room();
    return !now.locks && now.same && !now.others;
  }

  // `clean`: nobody has used them since they were reset, so they have no lock that somebody could see while they end.
  void close_spare(bool clean = false) noexcept {
    const std::lock_guard guard(hall_->mutex);
    for (const auto& one : hall_->spare) {
      if (!clean) hall_->left.push_back(std::to_string(one->id()));
    }
    hall_->spare.clear();
  }

  // A question of the lab's own, about its schema.
  std::vector<Row> ask(const std::string& sql) {
    try {
      return hall_->side.ask(sql, std::nullopt, "make the lab's schema: `" + sql + "` failed");
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::denied) throw;
      hall_->side.ask("ROLLBACK");
      throw Error(ErrorKind::denied,
                  std::string(error.what()) + ". The lab needs a schema of its own: " +
                      hall_->side.one("SELECT format('GRANT CREATE ON DATABASE %I TO %I', current_database(), "
                                      "current_user)"));
    }
  }

  // What the scenario of a run that was killed wanted to be run in the end.
  void make_up_for_teardown() {
    try {
      // Only what this account has noted: another one must not make it run anything.
      const std::vector<Row> noted = hall_->side.ask("SELECT teardown FROM " + room + "." + marker +
                                                     " WHERE EXISTS (SELECT FROM pg_class c JOIN pg_roles r ON r.oid "
                                                     "= c.relowner WHERE c.oid = '" +
                                                     room + "." + marker +
                                                     "'::regclass AND c.relkind = 'r' AND r.rolname = "
                                                     "current_user) ORDER BY place");
      if (noted.empty()) return;
      hall_->side.ask("SET search_path TO " + room);
      for (const Row& row : noted) {
        try {
          hall_->side.ask(row.front().value_or(""));
        } catch (const Error&) {
          // The run may have been killed before it made what this removes.
        }
      }
      hall_->side.reset();
      limit_waits();
    } catch (const Error&) {
      // An earlier version of the lab noted nothing.
    }
  }

  // Prepared transactions outlive their sessions. Those that use the lab's schema are the scenario's.
  void end_prepared() {
    const std::vector<Row> found = hall_->side.ask(
        // Its locks have no process; the one on itself tells which they are.
        "SELECT DISTINCT format('ROLLBACK PREPARED %L', p.gid) FROM pg_prepared_xacts p JOIN pg_locks x ON x.pid IS "
        "NULL "
        "AND x.transactionid = p.transaction JOIN pg_locks l ON l.pid IS NULL AND l.virtualtransaction = "
        "x.virtualtransaction LEFT JOIN pg_class c ON c.oid = l.relation LEFT JOIN pg_proc f ON l.classid = "
        "'pg_proc'::regclass AND f.oid = l.objid JOIN pg_namespace n ON n.oid IN (c.relnamespace, f.pronamespace) "
        "OR (l.classid = 'pg_namespace'::regclass AND l.objid = n.oid) WHERE p.database = current_database() AND "
        "n.nspname = '" +
        room + "'");
    for (const Row& row : found) ask(row.front().value_or(""));
  }

  // One run at a time in a database: an advisory lock, which ends with the connection.
  void take_turn(std::chrono::nanoseconds patience) {
    const auto ms = std::clamp<std::int64_t>(std::chrono::ceil<milliseconds>(patience).count(), 1, 86'400'000);
    wait_ = std::min(milliseconds(ms), longest_wait);
    if (turn_) return limit_waits();
    try {
      hall_->side.ask(
          "SET lock_timeout = '" + std::to_string(ms) + "ms'; SELECT pg_advisory_lock(" + std::string(turn) + ")",
          Clock::now() + milliseconds(ms) + side_patience);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::busy) throw;
      throw Error(ErrorKind::busy, "another run of the lab is going on in this database");
    }
    turn_ = true;
    limit_waits();
  }

  void limit_waits() { hall_->side.ask("SET lock_timeout = '" + std::to_string(wait_.count()) + "ms'"); }

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
  bool kept_ = false;   // made, and left by leave_room()
  bool noted_ = false;  // a teardown
  milliseconds wait_ = longest_wait;
  struct {
    std::string oid, row, marker;  // numbers of the catalogue: the schema, the transaction that wrote it, the marker
  } schema_;
};

}  // namespace

std::unique_ptr<Database> open_postgres(const std::string& url) {
  return std::make_unique<PostgresDatabase>(postgres::read_address(url));
}

}  // namespace hierlock::lab
