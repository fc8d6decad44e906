// PostgreSQL as the lab sees it: a connection for each session, and one beside them that looks.
#include <libpq-fe.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "lab/engines.h"

namespace hierlock::lab {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds side_patience{20};                   // with an answer to a question of the lab's own
constexpr std::string_view turn = "7523086470148215";  // the key that keeps other runs away: a number like any other
const std::string looker = room + " looks";            // application_name; of the sessions it is the room's

using Handle = std::unique_ptr<PGconn, decltype(&PQfinish)>;
using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;

std::string trimmed(const char* message) {
  std::string text = message == nullptr ? "" : message;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// libpq reads the URL. What it says about one that it cannot read may show a password: also one that it takes for the
// port, because the host was forgotten.
void check_url(const std::string& url) {
  char* message = nullptr;
  PQconninfoOption* const options = PQconninfoParse(url.c_str(), &message);
  PQfreemem(message);
  bool good = options != nullptr;
  for (const PQconninfoOption* option = options; good && option->keyword != nullptr; ++option) {
    if (std::string_view(option->keyword) != "port" || option->val == nullptr) continue;
    good = std::string_view(option->val).find_first_not_of("0123456789,") == std::string_view::npos;
  }
  PQconninfoFree(options);
  if (!good) {
    throw Error(
        ErrorKind::invalid_argument,
        "libpq does not understand this URL: write postgres://user@host:5432/database, with libpq's own options "
        "behind a \"?\", and in a password %2F for \"/\", %3F for \"?\" and %40 for \"@\"");
  }
}

Handle connect_to(const std::string& url, const std::string& application) {
  // What comes later counts, so our name does; a URL's connect_timeout is set aside, too. A server whose machine is
  // gone is noticed also by who waits, and therefore sends nothing.
  const char* const keywords[] = {"dbname",           "application_name", "connect_timeout",     "client_encoding",
                                  "tcp_user_timeout", "keepalives_idle",  "keepalives_interval", nullptr};
  const char* const values[] = {url.c_str(), application.c_str(), "5", "UTF8", "10000", "5", "2", nullptr};
  Handle handle(PQconnectdbParams(keywords, values, 1), &PQfinish);
  if (handle == nullptr) throw Error(ErrorKind::exhausted, "no memory for a connection");
  if (PQstatus(handle.get()) != CONNECTION_OK) {
    const std::string message = trimmed(PQerrorMessage(handle.get()));
    const auto says = [&](const char* words) { return message.find(words) != message.npos; };
    const bool denied = PQconnectionNeedsPassword(handle.get()) != 0 || says("authentication failed") ||
                        says("permission denied") || says("pg_hba.conf");
    throw Error(denied ? ErrorKind::denied : ErrorKind::unavailable, "cannot connect: " + message);
  }
  PQsetNoticeProcessor(
      handle.get(), [](void*, const char*) {}, nullptr);  // they would be printed
  return handle;
}

// Sends one statement and reads its result, the last one if there are several. None: it was given up, because `wake`
// became readable or the deadline passed; the connection is of no use then.
Result ask_on(PGconn* connection, const std::string& sql, int wake, std::optional<Clock::time_point> deadline) {
  Result last(nullptr, &PQclear);
  if (PQsendQuery(connection, sql.c_str()) == 0) return last;
  for (;;) {
    while (PQisBusy(connection) != 0) {
      pollfd fds[2] = {{PQsocket(connection), POLLIN, 0}, {wake, POLLIN, 0}};
      int limit = -1;
      if (deadline) {
        const auto left = std::chrono::ceil<milliseconds>(*deadline - Clock::now());
        if (left <= left.zero()) return {nullptr, &PQclear};
        limit = static_cast<int>(left.count());
      }
      const int ready = poll(fds, wake >= 0 ? 2 : 1, limit);
      if (ready < 0 && errno != EINTR) return {nullptr, &PQclear};
      if (ready > 0 && wake >= 0 && fds[1].revents != 0) return {nullptr, &PQclear};
      if (ready > 0 && PQconsumeInput(connection) == 0) return {nullptr, &PQclear};
    }
    Result next(PQgetResult(connection), &PQclear);
    if (next == nullptr) return last;
    last = std::move(next);
    const ExecStatusType status = PQresultStatus(last.get());
    // Nobody here has the data for a COPY.
    if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH) return {nullptr, &PQclear};
  }
}

std::string field(const PGresult* result, int which) {
  const char* const text = PQresultErrorField(result, which);
  return text == nullptr ? "" : text;
}

std::vector<Row> rows_of(const PGresult* result) {
  std::vector<Row> rows;
  for (int i = 0; i < PQntuples(result); ++i) {
    Row& row = rows.emplace_back();
    for (int j = 0; j < PQnfields(result); ++j) {
      row.push_back(PQgetisnull(result, i, j) != 0
                        ? std::nullopt
                        : std::optional<std::string>(std::in_place, PQgetvalue(result, i, j),
                                                     static_cast<std::size_t>(PQgetlength(result, i, j))));
    }
  }
  return rows;
}

// The connection that looks, and keeps other runs of the lab away. One question at a time, of any thread.
class Side {
 public:
  explicit Side(const std::string& url) : handle_(connect_to(url, looker)) {}

  std::vector<Row> ask(const std::string& sql, std::optional<Clock::time_point> deadline = std::nullopt) {
    const std::lock_guard guard(mutex_);
    const Result result = ask_on(handle_.get(), sql, -1, deadline.value_or(Clock::now() + side_patience));
    if (result == nullptr) {
      const std::string message = trimmed(PQerrorMessage(handle_.get()));
      throw Error(ErrorKind::lost, "the server does not answer" + (message.empty() ? "" : ": " + message));
    }
    const ExecStatusType status = PQresultStatus(result.get());
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) return rows_of(result.get());
    const std::string state = field(result.get(), PG_DIAG_SQLSTATE);
    const std::string message = field(result.get(), PG_DIAG_MESSAGE_PRIMARY) + " (" + state + ")";
    if (state == "42501") throw Error(ErrorKind::denied, message);
    if (state == "55P03") throw Error(ErrorKind::busy, message);
    throw Error(PQstatus(handle_.get()) == CONNECTION_OK ? ErrorKind::unavailable : ErrorKind::lost, message);
  }
  std::string one(const std::string& sql) {
    const std::vector<Row> rows = ask(sql);
    return rows.empty() ? "" : rows.front().front().value_or("");
  }
  std::string version() const {
    const char* const text = PQparameterStatus(handle_.get(), "server_version");
    const std::string whole = text == nullptr ? "" : text;
    return whole.substr(0, whole.find(' '));
  }

 private:
  std::mutex mutex_;
  Handle handle_;
};

// What the database and its sessions know of each other.
struct Hall {
  explicit Hall(const std::string& where) : url(where), side(where) {}

  const std::string url;
  Side side;
  std::mutex mutex;
  std::map<std::string, std::string> seats;  // names by process ids
  std::vector<std::string> left;             // sessions that were closed, and may still be ending at the server
};

// --- a session ----------------------------------------------------------------------------------------------------

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return fd_; }

 private:
  const int fd_;
};

class PostgresConnection final : public Connection {
 public:
  PostgresConnection(std::shared_ptr<Hall> hall, const std::string& name)
      : hall_(std::move(hall)), name_(name), handle_(connect_to(hall_->url, room)) {
    id_ = std::to_string(PQbackendPID(handle_.get()));
    PQsetNoticeProcessor(
        handle_.get(), [](void*, const char*) {}, nullptr);
    const Answer placed = execute("SET search_path TO " + room);
    if (!placed.well()) throw Error(ErrorKind::unavailable, "cannot use the lab's schema: " + placed.message);
    const std::lock_guard guard(hall_->mutex);
    hall_->seats.emplace(id_, name_);
  }
  ~PostgresConnection() override {
    {
      const std::lock_guard guard(hall_->mutex);
      hall_->seats.erase(id_);
      hall_->left.push_back(id_);
    }
    handle_.reset();
  }

  Answer execute(const std::string& sql) override {
    const Result result = gone_ ? Result(nullptr, &PQclear) : ask_on(handle_.get(), sql, wake_.get(), std::nullopt);
    if (result == nullptr || PQstatus(handle_.get()) != CONNECTION_OK) {
      gone_ = true;
      const std::string message = trimmed(PQerrorMessage(handle_.get()));
      throw Error(ErrorKind::lost, "the session " + name_ + " is gone" + (message.empty() ? "" : ": " + message));
    }
    Answer answer;
    switch (PQresultStatus(result.get())) {
      case PGRES_TUPLES_OK:
        answer.has_rows = true;
        answer.rows = rows_of(result.get());
        [[fallthrough]];
      case PGRES_COMMAND_OK: {
        // `UPDATE 1`; a SELECT has a number there, too.
        const std::vector<std::string> tag = words_of(PQcmdStatus(result.get()));
        if (changes_rows(tag)) answer.affected = std::stoull(tag.back());
        return answer;
      }
      case PGRES_EMPTY_QUERY:
        return answer;
      default:
        answer.code = field(result.get(), PG_DIAG_SQLSTATE);
        answer.message = field(result.get(), PG_DIAG_MESSAGE_PRIMARY);
        answer.kind = kind_of(answer.code, words_of(sql));
        return answer;
    }
  }

  void interrupt() noexcept override {
    const std::uint64_t once = 1;
    (void)!write(wake_.get(), &once, sizeof once);  // execute() waits no more
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
    if (state == "40P01") return Kind::deadlock;
    if (state == "40001") return Kind::serialization;
    if (state == "55P03") return asks_not_to_wait(words) ? Kind::busy : Kind::timeout;  // lock_timeout
    if (state == "57014") return Kind::timeout;                                         // statement_timeout
    return Kind::error;
  }

  const std::shared_ptr<Hall> hall_;
  const std::string name_;
  const Descriptor wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  Handle handle_;
  std::string id_;
  bool gone_ = false;
};

// --- the database -------------------------------------------------------------------------------------------------

class PostgresDatabase final : public Database {
 public:
  explicit PostgresDatabase(const std::string& url)
      : hall_(std::make_shared<Hall>(url)), version_(hall_->side.version()) {}
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
  check_url(url);
  return std::make_unique<PostgresDatabase>(url);
}

}  // namespace hierlock::lab
