// MySQL and MariaDB as the lab sees them: a connection for each session, and one beside them that looks.
#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "lab/engines.h"
#include "lab/session_wait.h"
#include "lab/shared_look.h"
#include "mysql_client/connection.h"
#include "mysql_client/error_codes.h"

namespace hierlock::lab {

namespace {

using mysql::Address;
using timed::Clock;
using timed::Deadline;
namespace codes = mysql::codes;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds connect_time{5}, side_time{20};
constexpr milliseconds mariadb_lag{150};  // its view is read anew if nobody has read it for 100 ms

// --- talking ------------------------------------------------------------------------------------------------------

constexpr const char* program = "hierlock lab";

// Sessions count the rows that were found, not those that changed. An UPDATE that finds its row as it would write it
// has not lost it to another session, and the other engines count so.
constexpr mysql::ConnectOptions of_sessions{.program = program, .many_statements = false, .count_found_rows = true};
constexpr mysql::ConnectOptions of_side{.program = program};

mysql::Connection connect_to(Address address, const std::string& database, const mysql::ConnectOptions& options) {
  address.database = database;
  Deadline limit(connect_time);
  return mysql::Connection(address, limit, options);
}

// Whatever the server takes for an escape.
std::string hex_literal(const std::string& text) {
  constexpr char digits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : text) {
    hex += {digits[(static_cast<unsigned char>(c) >> 4) & 15], digits[static_cast<unsigned char>(c) & 15]};
  }
  return "CONVERT(X'" + hex + "' USING utf8mb4)";
}

// The connection that looks, and keeps other runs of the lab away. One question at a time, of any thread.
class Side {
 public:
  explicit Side(const Address& address) : connection_(connect_to(address, "", of_side)) {}

  // Throws an Error for what the server refuses. Of several statements, the rows of the last that has some.
  std::vector<Row> ask(const std::string& sql, const std::string& doing = "use the server") {
    const std::lock_guard guard(mutex_);
    Deadline limit(side_time);
    std::vector<Row> rows;
    for (mysql::Reply& reply : connection_.query_each(sql, limit)) {
      if (!reply.well()) throw error_of(reply, doing);
      if (reply.has_rows) rows = std::move(reply.rows);
    }
    return rows;
  }
  std::string one(const std::string& sql) {
    const std::vector<Row> rows = ask(sql);
    return rows.empty() ? "" : rows.front().front().value_or("");
  }
  const std::string& version() const { return connection_.version(); }
  bool mariadb() const { return connection_.mariadb(); }

 private:
  static Error error_of(const mysql::Reply& reply, const std::string& doing) {
    const Error error = mysql::error_of(reply.code, reply.message, doing);
    if (mysql::is_disconnect(reply.code)) return {ErrorKind::lost, error.what(), reply.code};
    if (reply.code == codes::lock_wait_timeout) return {ErrorKind::busy, error.what(), reply.code};
    return error;
  }
  std::mutex mutex_;
  mysql::Connection connection_;
};

// What all schemas of the lab at one server share.
struct Server {
  explicit Server(const Address& where) : address(where) {}

  const Address address;
  bool mariadb = false;
  bool metadata = false;  // the server shows its metadata locks
  std::string version, grantee;
  SharedLook<std::vector<Row>> waits{mariadb_lag};  // MariaDB's

  // Connections of all scenarios, also those that have ended: the server gives no number twice.
  bool is_of_lab(const std::string& connection) {
    const std::lock_guard guard(mutex);
    return connections.contains(connection);
  }
  std::mutex mutex;
  std::set<std::string> connections;
};

// What the database and its sessions know of each other.
struct Hall {
  Hall(std::shared_ptr<Server> at, std::string schema)
      : server(std::move(at)), room(std::move(schema)), side(server->address) {}

  const std::shared_ptr<Server> server;
  const std::string room;
  Side side;

  struct Seat {
    std::string name;
    std::string thread;  // its number in performance_schema; MariaDB: none
  };
  std::mutex mutex;
  std::map<std::string, Seat> seats;  // by the number of its connection
  std::vector<std::string> left;      // connections that were closed, and may still be ending at the server
};

// --- a session ----------------------------------------------------------------------------------------------------

class MysqlConnection final : public Connection {
 public:
  MysqlConnection(std::shared_ptr<Hall> hall, const std::string& name)
      : hall_(std::move(hall)), name_(name), connection_(connect_to(hall_->server->address, hall_->room, of_sessions)) {
    id_ = std::to_string(connection_.id());
    {
      const std::lock_guard guard(hall_->server->mutex);
      hall_->server->connections.insert(id_);
    }
    Hall::Seat seat{name, {}};
    if (!hall_->server->mariadb) {
      const Answer thread = execute("SELECT PS_CURRENT_THREAD_ID()");
      if (thread.well() && !thread.rows.empty()) seat.thread = thread.rows.front().front().value_or("");
    }
    const std::lock_guard guard(hall_->mutex);
    hall_->seats.emplace(id_, std::move(seat));
  }
  ~MysqlConnection() override {
    const std::lock_guard guard(hall_->mutex);
    hall_->seats.erase(id_);
    hall_->left.push_back(id_);
  }

  Answer execute(const std::string& sql) override {
    if (wait_.interrupted()) throw Error(ErrorKind::lost, "the session " + name_ + " was interrupted");
    const std::vector<std::string> words = words_of(sql);
    const Clock::time_point began = Clock::now();
    Answer answer;
    for (mysql::Reply& reply : connection_.query_each(sql, wait_)) {  // a CALL has several
      if (!reply.well()) return failure(reply, Clock::now() - began);
      const bool counts = !reply.has_rows && changes_rows(words);
      answer.add(
          {reply.has_rows, std::move(reply.rows), counts ? std::optional<std::uint64_t>(reply.changed) : std::nullopt});
    }
    return answer;
  }

  void interrupt() noexcept override {
    wait_.interrupt();  // execute() waits no more
    try {
      hall_->side.ask("KILL CONNECTION " + id_);  // the server waits no more, and lets go of what it has
    } catch (const Error&) {
      // It was gone already, or the server is.
    }
  }
  const std::string& name() const noexcept override { return name_; }

 private:
  Answer failure(const mysql::Reply& reply, Clock::duration took) {
    if (mysql::is_disconnect(reply.code)) {
      throw Error(ErrorKind::lost, "the session " + name_ + " is gone: " + reply.message, reply.code);
    }
    Answer answer;
    answer.message = reply.message;
    answer.code = std::to_string(reply.code);
    answer.kind = kind_of(reply.code, took);
    return answer;
  }

  Answer::Kind kind_of(unsigned code, Clock::duration took) {
    using Kind = Answer::Kind;
    switch (code) {
      case codes::deadlock:
      case codes::user_level_deadlock:
        return Kind::deadlock;
      case codes::lock_no_wait:
        return Kind::busy;
      case codes::lock_wait_timeout:
        return hall_->server->mariadb && was_not_to_wait(took) ? Kind::busy : Kind::timeout;
      case codes::query_interrupted:
        return Kind::cancelled;
      case codes::out_of_time_mysql:
        return Kind::timeout;
      case codes::out_of_time_mariadb:
        return hall_->server->mariadb ? Kind::timeout : Kind::error;
      case codes::record_changed:
        return hall_->server->mariadb ? Kind::serialization : Kind::error;
      default:
        return Kind::error;
    }
  }

  // MariaDB has one number for NOWAIT and for a wait that was too long. All its limits are whole seconds: what took
  // less was no wait.
  bool was_not_to_wait(Clock::duration took) {
    if (took < seconds(1)) return true;
    const mysql::Reply limit = connection_.query("SELECT @@innodb_lock_wait_timeout", wait_);
    return !limit.rows.empty() && limit.rows.front().front() == "0";
  }

  const std::shared_ptr<Hall> hall_;
  const std::string name_;
  SessionWait wait_;
  mysql::Connection connection_;
  std::string id_;
};

// --- metadata locks -----------------------------------------------------------------------------------------------

struct MetadataLock {
  std::string kind, schema, object, mode;
  bool granted;
  std::string thread;

  bool same_object(const MetadataLock& other) const {
    return kind == other.kind && schema == other.schema && object == other.object;
  }
};

// Whether one that is asked for has to wait for one that is granted, as sql/mdl.cc of both servers tells it.
bool conflict(const std::string& asked, const std::string& granted) {
  struct Line {
    std::string_view asked;
    std::string_view keeps_out;  // for each of the modes below: `-` it waits, `+` it does not
  };
  static constexpr std::string_view modes[] = {"SHARED",           "SHARED_HIGH_PRIO",      "SHARED_READ",
                                               "SHARED_WRITE",     "SHARED_WRITE_LOW_PRIO", "SHARED_UPGRADABLE",
                                               "SHARED_READ_ONLY", "SHARED_NO_WRITE",       "SHARED_NO_READ_WRITE",
                                               "EXCLUSIVE",        "INTENTION_EXCLUSIVE"};
  static constexpr Line lines[] = {
      {"SHARED", "+++++++++--"},  // the last two only of schemas and the like, which know S, IX and X
      {"SHARED_HIGH_PRIO", "+++++++++-+"},
      {"SHARED_READ", "++++++++--+"},
      {"SHARED_WRITE", "++++++----+"},
      {"SHARED_WRITE_LOW_PRIO", "++++++----+"},
      {"SHARED_UPGRADABLE", "+++++-+---+"},
      {"SHARED_READ_ONLY", "+++--+++--+"},
      {"SHARED_NO_WRITE", "+++---+---+"},
      {"SHARED_NO_READ_WRITE", "++--------+"},
      {"EXCLUSIVE", "-----------"},
      {"INTENTION_EXCLUSIVE", "-++++++++-+"},
  };
  const auto column = std::find(std::begin(modes), std::end(modes), granted);
  for (const Line& line : lines) {
    if (line.asked == asked && column != std::end(modes)) {
      return line.keeps_out[static_cast<std::size_t>(column - std::begin(modes))] == '-';
    }
  }
  return true;  // MariaDB has more of them for backups
}

// --- the database -------------------------------------------------------------------------------------------------

std::string noted_teardown(const std::string& schema) { return "`" + schema + "`.`noted_teardown`"; }

std::string record_name(const std::string& table, const std::string& index, const std::optional<std::string>& data) {
  const bool primary = index.empty() || index == "PRIMARY" || index == "GEN_CLUST_INDEX";
  // Which record it is, the server tells only while its page is in memory.
  std::string key = data.value_or("?");
  if (key == "supremum pseudo-record") key = "supremum";
  return table + (primary ? "" : "." + index) + "(" + key + ")";
}

class MysqlDatabase final : public Database {
 public:
  explicit MysqlDatabase(const Address& address) : MysqlDatabase(std::make_shared<Server>(address), room, true) {
    Side& side = hall_->side;
    Server& server = *hall_->server;
    server.mariadb = mariadb_ = side.mariadb();
    server.version = side.version();
    if (mariadb_ && server.version.starts_with("5.5.5-")) server.version.erase(0, 6);  // for old replicas
    const std::string user = side.one("SELECT CURRENT_USER()");
    const std::size_t at = user.rfind('@');
    server.grantee = "'" + user.substr(0, at) + "'@'" + (at == user.npos ? "%" : user.substr(at + 1)) + "'";
    const bool schema_on = side.one("SELECT @@performance_schema") == "1";
    if (!mariadb_ && !schema_on) {
      throw Error(ErrorKind::unsupported,
                  "this server was started with performance_schema=OFF, and without it does not tell who waits for "
                  "whom: start it with performance_schema=ON");
    }
    server.metadata = !mariadb_ || (schema_on && metadata_is_seen());
  }
  MysqlDatabase(std::shared_ptr<Server> server, const std::string& schema, bool takes_turns)
      : hall_(std::make_shared<Hall>(std::move(server), schema)),
        takes_turns_(takes_turns),
        mariadb_(hall_->server->mariadb) {}
  ~MysqlDatabase() override { clear_room(); }

  std::string_view engine() const noexcept override { return mariadb_ ? "mariadb" : "mysql"; }
  const std::string& version() const noexcept override { return hall_->server->version; }

  void make_room(std::chrono::nanoseconds patience) override {
    const std::string& here = hall_->room;
    if (takes_turns_) wait_for_turn(patience);
    made_ = false;
    try {
      await_leaving();
      ask("SET SESSION lock_wait_timeout=10");
      remove_leftovers();
      // In one message: somebody who is killed here has sent both or neither.
      ask("CREATE DATABASE `" + here + "`; CREATE TABLE `" + here + "`.`" + marker + "` (made INT)");
      made_ = true;
    } catch (...) {
      clear_room();
      throw;
    }
  }

  // In a view, because the server says of a view who made it.
  void remember(const std::vector<std::string>& teardown) override {
    std::string lines;
    for (std::size_t i = 0; i < teardown.size(); ++i) {
      lines += (i == 0 ? "" : " UNION ALL ") + ("SELECT " + std::to_string(i)) + " AS place, " +
               hex_literal(teardown[i]) + " AS teardown";
    }
    if (!lines.empty()) ask("CREATE VIEW " + noted_teardown(hall_->room) + " AS " + lines);
  }

  void clear_room() noexcept override {
    try {
      await_leaving();
      if (std::exchange(made_, false)) ask("DROP DATABASE IF EXISTS `" + hall_->room + "`");
    } catch (const Error&) {
      // The next run finds what is left, by the marker.
    }
    release_turn();
  }

  std::unique_ptr<Database> beside(unsigned number) override {
    if (!mariadb_) return nullptr;
    return std::make_unique<MysqlDatabase>(hall_->server, room + "_" + std::to_string(number), false);
  }
  void hold_turn(std::chrono::nanoseconds patience) override {
    wait_for_turn(patience);
    try {
      ask("SET SESSION lock_wait_timeout=10");
      remove_leftovers();
    } catch (...) {
      release_turn();
      throw;
    }
  }
  void release_turn() noexcept override {
    try {
      if (std::exchange(turn_, false)) ask("DO RELEASE_LOCK('" + room + "')");
    } catch (const Error&) {
      // The connection is gone, and the lock with it.
    }
  }
  bool turn_is_wanted() override {
    return ask("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE='User lock' AND INFO LIKE "
               "'SELECT GET_LOCK(''" +
               room + "'',%'")
               .at(0)
               .at(0) != "0";
  }

  std::unique_ptr<Connection> connect(const std::string& name, bool /*reusable*/) override {
    return std::make_unique<MysqlConnection>(hall_, name);
  }

  View look(TimePoint since) override {
    std::map<std::string, Hall::Seat> seats;
    {
      const std::lock_guard guard(hall_->mutex);
      seats = hall_->seats;
    }
    View view;
    if (mariadb_) {
      look_at_mariadb(since, seats, view);
    } else {
      look_at_mysql(seats, view);
    }
    if (hall_->server->metadata) look_at_metadata(seats, view);
    return view;
  }
  TimePoint next_look(TimePoint since) const noexcept override {
    return mariadb_ ? hall_->server->waits.due(since) : TimePoint{};
  }
  milliseconds lag() const noexcept override { return mariadb_ ? mariadb_lag : milliseconds{}; }

 private:
  using Seats = std::map<std::string, Hall::Seat>;

  std::vector<Row> ask(const std::string& sql) {
    try {
      return hall_->side.ask(sql, "make the lab's schema");
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::denied) throw;
      throw Error(ErrorKind::denied,
                  std::string(error.what()) + ". The lab needs a schema of its own: GRANT ALL ON `hierlock\\_lab" +
                      (mariadb_ ? "%" : "") + "`.* TO " + hall_->server->grantee,
                  error.native_code());
    }
  }
  std::vector<Row> ask_view(const std::string& sql) {
    try {
      return hall_->side.ask(sql, "look who waits for whom");
    } catch (const Error& error) {
      if (error.native_code() == codes::no_such_table) {
        throw Error(ErrorKind::unsupported, std::string(error.what()) + ". The lab needs MySQL 8 or newer",
                    error.native_code());
      }
      if (error.kind() != ErrorKind::denied) throw;
      throw Error(ErrorKind::denied,
                  std::string(error.what()) + ". " +
                      (mariadb_ ? "GRANT PROCESS ON *.* TO " : "GRANT SELECT ON performance_schema.* TO ") +
                      hall_->server->grantee,
                  error.native_code());
    }
  }

  // One run at a time: a named lock, which ends with the connection.
  void wait_for_turn(std::chrono::nanoseconds patience) {
    const auto deadline = Clock::now() + patience;
    while (!turn_) {
      const auto left = deadline - Clock::now();
      const bool long_enough = left >= seconds(1);  // it counts in seconds
      turn_ = hall_->side.one("SELECT GET_LOCK('" + room + "', " + (long_enough ? "1" : "0") + ")") == "1";
      if (turn_) return;
      if (left <= left.zero()) {
        throw Error(ErrorKind::busy, "another run of the lab is going on at " + hall_->server->address.place());
      }
      if (!long_enough) std::this_thread::sleep_for(std::min<Clock::duration>(left, milliseconds(20)));
    }
  }

  // What a run has left that was killed. In a schema beside others only its own: the others are in use.
  void remove_leftovers() {
    const std::string beside = room + "_";
    const std::string schemas = takes_turns_ ? "SCHEMA_NAME='" + room + "' OR LEFT(SCHEMA_NAME, " +
                                                   std::to_string(beside.size()) + ")='" + beside + "'"
                                             : "SCHEMA_NAME='" + hall_->room + "'";
    for (const Row& row : ask("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE " + schemas)) {
      const std::string schema = row.front().value_or("");
      const bool numbered =
          schema.starts_with(beside) && schema.find_first_not_of("0123456789", beside.size()) == schema.npos;
      if (schema != hall_->room && !numbered) continue;
      if (ask("SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA='" + schema + "' AND TABLE_NAME='" + marker +
              "'")
              .empty()) {
        if (schema != hall_->room) continue;
        throw Error(ErrorKind::incompatible,
                    "there is a schema " + schema + " at " + hall_->server->address.place() +
                        " that the lab has not made: rename it, or drop it if nobody needs it");
      }
      end_leftovers(schema);
      make_up_for_teardown(schema);
      ask("DROP DATABASE `" + schema + "`");
    }
  }

  // What the scenario of a run that was killed wanted to be run in the end.
  void make_up_for_teardown(const std::string& schema) {
    try {
      // Only what this account has noted: another one must not make it run anything.
      const std::vector<Row> noted =
          hall_->side.ask("SELECT n.teardown FROM " + noted_teardown(schema) +
                          " n WHERE EXISTS (SELECT 1 FROM information_schema.VIEWS WHERE "
                          "TABLE_SCHEMA='" +
                          schema + "' AND TABLE_NAME='noted_teardown' AND DEFINER=CURRENT_USER()) ORDER BY n.place");
      if (!noted.empty()) hall_->side.ask("USE `" + schema + "`");
      for (const Row& row : noted) {
        try {
          hall_->side.ask(row.front().value_or(""));
        } catch (const Error&) {
          // The run may have been killed before it made what this removes.
        }
      }
    } catch (const Error&) {
      // The scenario has no teardown.
    }
  }

  // Sessions of a run that was killed while they waited: the server has not noticed yet.
  void end_leftovers(const std::string& schema) {
    const std::string who = "SUBSTRING_INDEX(CURRENT_USER(), '@', 1)";
    const auto found = mariadb_
                           ? ask("SELECT ID FROM information_schema.PROCESSLIST WHERE DB='" + schema +
                                 "' AND USER=" + who + " AND ID<>CONNECTION_ID()")
                           : ask_view(
                                 "SELECT PROCESSLIST_ID FROM performance_schema.threads WHERE "
                                 "PROCESSLIST_DB='" +
                                 schema + "' AND PROCESSLIST_USER=" + who + " AND PROCESSLIST_ID<>CONNECTION_ID()");
    for (const Row& row : found) {
      const std::string id = row.front().value_or("0");
      try {
        hall_->side.ask("KILL CONNECTION " + id);
      } catch (const Error&) {
        // It has ended meanwhile.
      }
      const std::lock_guard guard(hall_->mutex);
      hall_->left.push_back(id);
    }
    await_leaving();
  }

  // A connection that was closed lives on at the server for a moment, with all its locks. Nobody is to see them.
  void await_leaving() {
    std::vector<std::string> left;
    {
      const std::lock_guard guard(hall_->mutex);
      left.swap(hall_->left);
    }
    if (left.empty()) return;
    std::string list;
    for (const std::string& id : left) list += (list.empty() ? "" : ",") + id;
    const std::string sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID IN (" + list + ")";
    for (const auto end = Clock::now() + seconds(5); Clock::now() < end; std::this_thread::sleep_for(milliseconds(1))) {
      if (hall_->side.one(sql) == "0") return;
    }
  }

  // --- looking ---

  std::string object_name(const std::string& schema, const std::string& table) const {
    return schema.empty() || schema == hall_->room ? table : schema + "." + table;
  }
  // The name of a session that is not of this scenario. A session of another scenario has none: it blocks nobody here.
  std::string outsider(const std::string& connection) {
    return hall_->server->is_of_lab(connection) ? "" : "outsider " + connection;
  }

  // MySQL tells row locks at once, those of everybody.
  void look_at_mysql(const Seats& seats, View& view) {
    // In this order: what is granted, or gone, in between shows by its lock, and is not told.
    const std::vector<Row> edges = ask_view(
        "SELECT REQUESTING_ENGINE_LOCK_ID, BLOCKING_ENGINE_LOCK_ID, REQUESTING_ENGINE_TRANSACTION_ID, "
        "BLOCKING_ENGINE_TRANSACTION_ID FROM performance_schema.data_lock_waits");
    const std::vector<Row> locks = ask_view(
        "SELECT ENGINE_LOCK_ID, ENGINE_TRANSACTION_ID, THREAD_ID, OBJECT_SCHEMA, OBJECT_NAME, INDEX_NAME, LOCK_TYPE, "
        "LOCK_MODE, LOCK_STATUS, LOCK_DATA FROM performance_schema.data_locks");
    // A record that was inserted is locked without a lock; the first who meets it makes one in the name of the
    // inserter's transaction, but with its own thread. A transaction's table locks are always of its own thread.
    std::map<std::string, std::string> thread_of;
    for (const Row& row : locks) {
      if (row[6] == "TABLE" && row[2]) thread_of[row[1].value_or("")] = *row[2];
    }
    struct Seen {
      std::string object;
      bool waiting;
    };
    std::map<std::string, Seen> seen;
    for (const Row& row : locks) {
      const std::string table = object_name(row[3].value_or(""), row[4].value_or(""));
      const std::string object = row[6] == "TABLE" ? table : record_name(table, row[5].value_or(""), row[9]);
      const bool waiting = row[8] == "WAITING";
      seen[row[0].value_or("")] = {object, waiting};
      const auto thread = thread_of.find(row[1].value_or(""));
      const std::string session = thread == thread_of.end() ? "" : session_of(seats, thread->second);
      if (!session.empty()) view.locks.push_back({session, object, row[7].value_or(""), !waiting});
    }
    for (const Row& row : edges) {
      const auto asked = seen.find(row[0].value_or(""));
      const auto waiter = thread_of.find(row[2].value_or(""));
      if (asked == seen.end() || !asked->second.waiting || waiter == thread_of.end()) continue;
      const std::string session = session_of(seats, waiter->second);
      if (session.empty() || !seen.contains(row[1].value_or(""))) continue;
      const auto holder = thread_of.find(row[3].value_or(""));
      add_wait(view, session, holder == thread_of.end() ? "outsider" : somebody(seats, holder->second),
               asked->second.object);
    }
  }

  // One statement, so that all of it is of one moment.
  std::vector<Row> read_mariadb_waits() {
    return ask_view(
        "SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id, rl.lock_table, rl.lock_index, rl.lock_type, "
        "rl.lock_mode, rl.lock_data, bl.lock_table, bl.lock_index, bl.lock_type, bl.lock_mode, bl.lock_data, "
        "b.trx_requested_lock_id <=> w.blocking_lock_id, w.blocking_lock_id, w.blocking_trx_id "
        "FROM information_schema.INNODB_LOCK_WAITS w "
        "JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id "
        "JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id "
        "AND (w.blocking_trx_id <> 0 OR b.trx_lock_structs > 0) "
        "JOIN information_schema.INNODB_LOCKS rl ON rl.lock_id = w.requested_lock_id "
        "JOIN information_schema.INNODB_LOCKS bl ON bl.lock_id = w.blocking_lock_id");
  }

  // MariaDB tells row locks that somebody waits for, as they were when nobody had looked for 100 ms.
  void look_at_mariadb(TimePoint since, const Seats& seats, View& view) {
    const std::shared_ptr<const std::vector<Row>> seen =
        hall_->server->waits.after(since, [this] { return read_mariadb_waits(); });
    const std::vector<Row>& edges = *seen;
    // Every transaction that has changed nothing has the number 0 here, so a wait for one that only shares was joined
    // with all of them that have any lock. Of these only sessions of the lab can have one in its schema; and a wait is
    // listed once for each lock in its way, so if there are as many as sessions, it is all of them. Otherwise nobody
    // knows.
    struct Sharers {
      std::size_t rows = 0;
      std::set<std::string> all, of_lab;
    };
    std::map<std::string, Sharers> sharers;
    const auto key = [](const Row& row) { return row[0].value_or("") + " " + row[13].value_or(""); };
    for (const Row& row : edges) {
      if (row[14] != "0") continue;
      Sharers& found = sharers[key(row)];
      ++found.rows;
      found.all.insert(row[1].value_or(""));
      if (seats.contains(row[1].value_or("")) && row[1] != row[0]) found.of_lab.insert(row[1].value_or(""));
    }
    std::set<std::pair<std::string, std::string>> told;
    const auto tell = [&](const std::string& id, const Row& row, std::size_t at, bool granted) {
      // `schema`.`table`
      std::string table = row[at].value_or("");
      std::erase(table, '`');
      const std::size_t dot = table.find('.');
      table = dot == table.npos ? table : object_name(table.substr(0, dot), table.substr(dot + 1));
      const std::string object =
          row[at + 2] == "TABLE" ? table : record_name(table, row[at + 1].value_or(""), row[at + 4]);
      const auto seat = seats.find(id);
      if (seat != seats.end() && told.emplace(id, object + row[at + 3].value_or("") + (granted ? "+" : "-")).second) {
        view.locks.push_back({seat->second.name, object, row[at + 3].value_or(""), granted});
      }
      return object;
    };
    for (const Row& row : edges) {
      const std::string waiter = row[0].value_or(""), holder = row[1].value_or("");
      const std::string object = tell(waiter, row, 2, false);
      if (const auto found = sharers.find(key(row));
          row[14] == "0" && found != sharers.end() && seats.contains(waiter)) {
        const Sharers& may = found->second;
        if (may.of_lab.empty() ? hall_->server->is_of_lab(holder) : !may.of_lab.contains(holder)) continue;
        if (may.of_lab.size() > 1 && may.rows / may.all.size() != may.of_lab.size()) {
          add_wait(view, seats.at(waiter).name, "", object);
          continue;
        }
      }
      tell(holder, row, 7, row[12] != "1");
      const auto seat = seats.find(waiter);
      if (seat == seats.end()) continue;
      const auto other = seats.find(holder);
      add_wait(view, seat->second.name, other == seats.end() ? outsider(holder) : other->second.name, object);
    }
    if (!hall_->server->metadata) look_at_states(seats, view);
  }

  // Without a view of metadata locks: the state of the session says that it waits for one, and its statement for which
  // name. Who has it, the server tells for a name only.
  void look_at_states(const Seats& seats, View& view) {
    std::string list;
    for (const auto& [id, seat] : seats) list += (list.empty() ? "" : ",") + id;
    if (list.empty()) return;
    for (const Row& row :
         ask_view("SELECT ID, STATE, INFO FROM information_schema.PROCESSLIST WHERE ID IN (" + list + ")")) {
      const std::string state = row[1].value_or("");
      const auto seat = seats.find(row[0].value_or(""));
      if (seat == seats.end()) continue;
      if (state == "User lock") {
        const std::string name = literal_of_get_lock(row[2].value_or(""));
        if (name.empty()) {
          add_wait(view, seat->second.name, "", "a name");
          continue;
        }
        const std::string holder = hall_->side.one("SELECT IS_USED_LOCK(" + name + ")");
        if (holder.empty() || holder == seat->first) continue;  // free by now, or its own
        const auto other = seats.find(holder);
        const std::string object = "named \"" + name.substr(1, name.size() - 2) + "\"";
        add_wait(view, seat->second.name, other == seats.end() ? outsider(holder) : other->second.name, object);
        view.locks.push_back({seat->second.name, object, "X", false});
        if (other != seats.end()) view.locks.push_back({other->second.name, object, "X", true});
      } else if (state.starts_with("Waiting for ") && state.ends_with(" lock")) {
        add_wait(view, seat->second.name, "", state.substr(12));
      }
    }
  }

  // The quoted name in get_lock('x', …), with its quotes; empty: there is none, or it is more than plain text.
  static std::string literal_of_get_lock(const std::string& sql) {
    std::string lower = sql;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    const std::size_t call = lower.find("get_lock");
    if (call == lower.npos || lower.find("get_lock", call + 1) != lower.npos) return {};
    const std::size_t open = lower.find_first_not_of(" (", call + 8);
    if (open == lower.npos || (lower[open] != '\'' && lower[open] != '"')) return {};
    const std::size_t close = lower.find(lower[open], open + 1);
    if (close == lower.npos || lower.find_first_not_of(' ', close + 1) == lower.npos) return {};
    if (lower[lower.find_first_not_of(' ', close + 1)] != ',') return {};
    const std::string name = sql.substr(open, close - open + 1);
    return name.find('\\') == name.npos ? name : "";
  }

  bool metadata_is_seen() {
    try {
      return hall_->side.one(
                 "SELECT ENABLED FROM performance_schema.setup_instruments WHERE "
                 "NAME='wait/lock/metadata/sql/mdl'") == "YES";
    } catch (const Error&) {
      return false;
    }
  }

  // Names of GET_LOCK, and locks on the definition of a table, which every statement takes and an ALTER waits for.
  void look_at_metadata(const Seats& seats, View& view) {
    std::vector<MetadataLock> locks;
    for (const Row& row :
         ask_view("SELECT OBJECT_TYPE, OBJECT_SCHEMA, OBJECT_NAME, LOCK_TYPE, LOCK_STATUS, OWNER_THREAD_ID FROM "
                  "performance_schema.metadata_locks WHERE LOCK_STATUS IN ('GRANTED', 'PENDING')")) {
      locks.push_back({row[0].value_or(""), row[1].value_or(""), row[2].value_or(""), row[3].value_or(""),
                       row[4] == "GRANTED", row[5].value_or("")});
    }
    Seats by_thread = seats;
    if (mariadb_) add_threads(by_thread);
    const auto name_of = [this](const MetadataLock& lock) {
      if (lock.kind == "USER LEVEL LOCK") return "named \"" + lock.object + "\"";
      if (lock.object.empty()) return lock.schema.empty() ? lock.kind : "schema " + lock.schema;
      return object_name(lock.schema, lock.object);
    };
    for (const MetadataLock& lock : locks) {
      const std::string session = session_of(by_thread, lock.thread);
      const bool named = lock.kind == "USER LEVEL LOCK";
      const bool wanted = named || std::any_of(locks.begin(), locks.end(), [&](const MetadataLock& other) {
                            return !other.granted && other.same_object(lock);
                          });
      if (session.empty() || !wanted) continue;  // of those that nobody waits for there are too many
      view.locks.push_back({session, name_of(lock), named ? "X" : "metadata " + lock.mode, lock.granted});
      if (lock.granted) continue;
      bool found = false;
      // Those who have it, or else those who asked before: the ones that writing gives way to.
      for (const bool granted : {true, false}) {
        for (const MetadataLock& other : locks) {
          if (found && !granted) break;
          if (other.granted != granted || other.thread == lock.thread || !other.same_object(lock)) continue;
          if (!conflict(lock.mode, other.mode)) continue;
          add_wait(view, session, somebody(by_thread, other.thread), name_of(lock));
          found = found || granted;
        }
      }
    }
  }

  void add_threads(Seats& seats) {
    for (const Row& row : ask_view("SELECT PROCESSLIST_ID, THREAD_ID FROM performance_schema.threads WHERE "
                                   "PROCESSLIST_ID IS NOT NULL")) {
      if (const auto seat = seats.find(row[0].value_or("")); seat != seats.end()) {
        seat->second.thread = row[1].value_or("");
      }
    }
  }

  static std::string session_of(const Seats& seats, const std::string& thread) {
    for (const auto& [id, seat] : seats) {
      if (!thread.empty() && seat.thread == thread) return seat.name;
    }
    return {};
  }
  // Of the lab, or by the number that SHOW PROCESSLIST has.
  std::string somebody(const Seats& seats, const std::string& thread) {
    const std::string session = session_of(seats, thread);
    if (!session.empty()) return session;
    const std::vector<Row> rows =
        ask_view("SELECT PROCESSLIST_ID FROM performance_schema.threads WHERE THREAD_ID=" + thread);
    return rows.empty() || !rows.front().front() ? "outsider" : outsider(*rows.front().front());
  }

  const std::shared_ptr<Hall> hall_;
  const bool takes_turns_;
  bool mariadb_ = false;
  bool turn_ = false, made_ = false;
};

}  // namespace

// The URL is the same as for the store. The database in it is the store's: the lab makes its own. So are the options
// that only the store knows.
std::unique_ptr<Database> open_mysql(const spi::Url& url) {
  return std::make_unique<MysqlDatabase>(mysql::read_address(url, endpoint::Database::optional));
}

}  // namespace hierlock::lab
