// MySQL and MariaDB as the lab sees them: a blocking connection for each session, and one beside them that looks.
#include <errmsg.h>
#include <fcntl.h>
#include <mysql.h>
#include <mysqld_error.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "lab/engines.h"

namespace hierlock::lab {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Numbers that libmariadb's headers do not have.
constexpr unsigned lock_no_wait = 3572, user_level_deadlock = 3058, query_timeout = 3024, statement_timeout = 1969,
                   connection_killed = 1927, client_idle = 4031, tls_failed = 2026, record_changed = 1020;

constexpr unsigned connect_seconds = 5, side_seconds = 20;
constexpr milliseconds mariadb_lag{150};  // its view is read anew if nobody has read it for 100 ms

// --- the address --------------------------------------------------------------------------------------------------

enum class Tls : std::uint8_t { off, on, verify };

struct Address {
  std::string host, socket, user, password, ca;
  unsigned port = 3306;
  Tls tls = Tls::verify;

  std::string place() const { return socket.empty() ? host + ":" + std::to_string(port) : "the socket " + socket; }
};

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

std::string first_line_of(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) refuse("password_file=" + file + " cannot be read, or is empty");
  return line;
}

std::string from_environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr) refuse("password_env=" + name + ": there is no such variable in the environment");
  return value;
}

// Shows nothing of what was written: without a host, as in mysql://app:secret/shop, that is a password.
unsigned port_number(std::string_view text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size() || port < 1 || port > 65'535) {
    refuse("what follows the host's \":\" is no port from 1 to 65535: write mysql://user@host:3306/database");
  }
  return port;
}

// As the store of mysql: reads it, so that one URL does for both; what only the store knows is the store's, and so is
// the database: the lab has its own.
Address read_address(const spi::Url& url) {
  if (!url.rest.starts_with("//")) refuse("a mysql URL begins with mysql://, as in mysql://app@db/shop");
  Address address;
  const std::string_view text = std::string_view(url.rest).substr(2);
  const std::size_t slash = text.find('/');
  std::string_view authority = text.substr(0, slash);
  if (const std::size_t at = authority.rfind('@'); at != authority.npos) {
    const std::string_view who = authority.substr(0, at);
    const std::size_t colon = who.find(':');
    address.user = spi::Url::decode(who.substr(0, colon));
    if (colon != who.npos) address.password = spi::Url::decode(who.substr(colon + 1));
    authority.remove_prefix(at + 1);
  }
  const std::size_t bracket = authority.starts_with('[') ? authority.find(']') : authority.npos;  // [::1]:3306
  const std::size_t colon = authority.find(':', bracket == authority.npos ? 0 : bracket);
  address.host = bracket == authority.npos ? spi::Url::decode(authority.substr(0, colon))
                                           : std::string(authority.substr(1, bracket - 1));
  if (colon != authority.npos) address.port = port_number(authority.substr(colon + 1));
  // The client library would take the name of whoever runs the program.
  if (address.user.empty()) refuse("the URL names no user: write mysql://user@host/database");
  std::optional<Tls> tls;
  bool has_password = !address.password.empty();
  const auto take_password = [&](std::string password) {
    if (std::exchange(has_password, true)) {
      refuse("the password is given twice: keep one of the URL's own, password_file= and password_env=");
    }
    address.password = std::move(password);
  };
  for (const auto& [name, value] : url.options) {
    if (name == "tls") {
      if (value != "off" && value != "on" && value != "verify") refuse("tls=" + value + ": write off, on or verify");
      tls = value == "off" ? Tls::off : value == "on" ? Tls::on : Tls::verify;
    } else if (name == "ca") {
      address.ca = value;
    } else if (name == "socket") {
      address.socket = value;
    } else if (name == "password_file") {
      take_password(first_line_of(value));
    } else if (name == "password_env") {
      take_password(from_environment(value));
    }
  }
  if (address.host.empty() && address.socket.empty()) {
    refuse("the URL names no host: write mysql://user@host/database, or add ?socket=/path");
  }
  const std::string& host = address.host;
  // A number: 127.0.0.1.example.com is somebody else's.
  const bool loopback = !address.socket.empty() || host == "localhost" || host == "::1" ||
                        (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
  address.tls = tls.value_or(!address.ca.empty() || !loopback ? Tls::verify : Tls::off);
  if (!address.ca.empty() && address.tls != Tls::verify) refuse("ca= is for tls=verify");
  return address;
}

// --- talking ------------------------------------------------------------------------------------------------------

bool is_disconnect(unsigned code) {
  switch (code) {
    case CR_SERVER_GONE_ERROR:
    case CR_SERVER_LOST:
    case CR_SERVER_LOST_EXTENDED:
    case CR_COMMANDS_OUT_OF_SYNC:
    case ER_SERVER_SHUTDOWN:
    case connection_killed:
    case client_idle:
      return true;
    default:
      return false;
  }
}

Error error_of(unsigned code, const std::string& message, const std::string& doing) {
  const auto error = [&](ErrorKind kind, const std::string& advice = "") {
    return Error(kind, "cannot " + doing + ": " + message + " (" + std::to_string(code) + ")" + advice, code);
  };
  switch (code) {
    case ER_ACCESS_DENIED_ERROR:
    case ER_DBACCESS_DENIED_ERROR:
    case ER_TABLEACCESS_DENIED_ERROR:
    case ER_COLUMNACCESS_DENIED_ERROR:
    case ER_SPECIFIC_ACCESS_DENIED_ERROR:
    case ER_HOST_NOT_PRIVILEGED:
      return error(ErrorKind::denied);
    case tls_failed:
      return error(ErrorKind::denied, ". See tls= and ca= in docs/mysql.md");
    case ER_BAD_DB_ERROR:
      return error(ErrorKind::not_provisioned);
    case ER_LOCK_WAIT_TIMEOUT:
      return error(ErrorKind::busy);
    case ER_CON_COUNT_ERROR:
    case ER_TOO_MANY_USER_CONNECTIONS:
      return error(ErrorKind::exhausted);
    default:
      return error(is_disconnect(code) ? ErrorKind::lost : ErrorKind::unavailable);
  }
}

// A descriptor of our own for somebody's socket.
struct Descriptor {
  int fd = -1;
  explicit Descriptor(int of) : fd(fcntl(of, F_DUPFD_CLOEXEC, 0)) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

using Handle = std::unique_ptr<MYSQL, decltype(&mysql_close)>;

// `silence`: after so many seconds without an answer the connection is given up; zero: never.
Handle connect_to(const Address& address, const std::string& database, unsigned silence, unsigned long flags) {
  static std::once_flag once;
  std::call_once(once, [] { mysql_library_init(0, nullptr, nullptr); });
  Handle handle(mysql_init(nullptr), &mysql_close);
  MYSQL* const mysql = handle.get();
  if (mysql == nullptr) throw Error(ErrorKind::exhausted, "no memory for a connection");
  const bool local = !address.socket.empty();
  const unsigned protocol = local ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
  mysql_options(mysql, MYSQL_OPT_PROTOCOL, &protocol);
  mysql_options(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4");
  mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &connect_seconds);
  if (silence != 0) {
    mysql_options(mysql, MYSQL_OPT_READ_TIMEOUT, &silence);
    mysql_options(mysql, MYSQL_OPT_WRITE_TIMEOUT, &silence);
  }
  mysql_options4(mysql, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "hierlock lab");
  // No way to log in that shows the password, or asks for one here; and no files of this machine for a server that
  // asks.
  mysql_optionsv(mysql, MARIADB_OPT_RESTRICTED_AUTH,
                 "mysql_native_password,caching_sha2_password,sha256_password,client_ed25519,parsec");
  const unsigned no_files = 0;
  mysql_options(mysql, MYSQL_OPT_LOCAL_INFILE, &no_files);
  const my_bool on = 1, verify = address.tls == Tls::verify ? 1 : 0;
  if (address.tls != Tls::off) {
    mysql_options(mysql, MYSQL_OPT_SSL_ENFORCE, &on);
    mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verify);
    if (!address.ca.empty()) mysql_options(mysql, MYSQL_OPT_SSL_CA, address.ca.c_str());
  }
  const std::string doing = "connect to " + address.place();
  // libmariadb uses the socket for "localhost" only.
  if (mysql_real_connect(mysql, local ? "localhost" : address.host.c_str(), address.user.c_str(),
                         address.password.c_str(), database.empty() ? nullptr : database.c_str(), address.port,
                         local ? address.socket.c_str() : nullptr, flags) == nullptr) {
    Error error = error_of(mysql_errno(mysql), mysql_error(mysql), doing);
    if (error.kind() == ErrorKind::lost) error = Error(ErrorKind::unavailable, error.what(), error.native_code());
    throw error;  // NOLINT: made for this
  }
  // libmariadb goes on without encryption if the server has none, whatever was enforced.
  if (address.tls != Tls::off && mysql_get_ssl_cipher(mysql) == nullptr) {
    throw Error(ErrorKind::denied, "cannot " + doing + ": the server offers no TLS; tls=off goes without");
  }
  // A server whose machine is gone is noticed also by who waits, and therefore sends nothing. Fails on a unix socket.
  const int socket = static_cast<int>(mysql_get_socket(mysql)), silence_ms = 10'000, ask = 1, after_s = 5, again_s = 2;
  fcntl(socket, F_SETFD, FD_CLOEXEC);
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &ask, sizeof ask);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &after_s, sizeof after_s);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &again_s, sizeof again_s);
  return handle;
}

std::vector<Row> rows_of(MYSQL_RES* result) {
  std::vector<Row> rows;
  const unsigned columns = mysql_num_fields(result);
  while (const MYSQL_ROW row = mysql_fetch_row(result)) {
    const unsigned long* const sizes = mysql_fetch_lengths(result);
    Row& copy = rows.emplace_back();
    for (unsigned i = 0; i < columns; ++i) {
      copy.push_back(row[i] == nullptr ? std::nullopt : std::optional<std::string>(std::in_place, row[i], sizes[i]));
    }
  }
  return rows;
}

// The connection that looks, and keeps other runs of the lab away. One question at a time, of any thread.
class Side {
 public:
  explicit Side(const Address& address) : handle_(connect_to(address, "", side_seconds, CLIENT_MULTI_STATEMENTS)) {}

  // Throws what error_of() says. Of several statements, the rows of the last that has some.
  std::vector<Row> ask(const std::string& sql, const std::string& doing = "use the server") {
    const std::lock_guard guard(mutex_);
    MYSQL* const mysql = handle_.get();
    if (mysql_real_query(mysql, sql.data(), sql.size()) != 0) fail(doing);
    std::vector<Row> rows;
    for (int more = 0; more == 0; more = mysql_next_result(mysql)) {
      MYSQL_RES* const result = mysql_store_result(mysql);
      if (result != nullptr) {
        rows = rows_of(result);
        mysql_free_result(result);
      }
      if (mysql_errno(mysql) != 0) fail(doing);
    }
    if (mysql_errno(mysql) != 0) fail(doing);
    return rows;
  }
  std::string one(const std::string& sql) {
    const std::vector<Row> rows = ask(sql);
    return rows.empty() ? "" : rows.front().front().value_or("");
  }
  std::string version() const { return mysql_get_server_info(handle_.get()); }
  bool mariadb() const { return mariadb_connection(handle_.get()) != 0; }

 private:
  [[noreturn]] void fail(const std::string& doing) const {
    throw error_of(mysql_errno(handle_.get()), mysql_error(handle_.get()), doing);
  }
  std::mutex mutex_;
  Handle handle_;
};

// What the database and its sessions know of each other.
struct Hall {
  explicit Hall(const Address& where) : address(where), side(where) {}

  const Address address;
  Side side;
  bool mariadb = false;

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
  // Counts the rows that were found, not those that changed: an UPDATE that finds its row as it would write it has not
  // lost it to anybody, and the other engines count so.
  MysqlConnection(std::shared_ptr<Hall> hall, const std::string& name)
      : hall_(std::move(hall)),
        name_(name),
        handle_(connect_to(hall_->address, room, 0, CLIENT_FOUND_ROWS)),
        socket_(static_cast<int>(mysql_get_socket(handle_.get()))) {
    id_ = std::to_string(mysql_thread_id(handle_.get()));
    Hall::Seat seat{name, {}};
    if (!hall_->mariadb) {
      const Answer thread = execute("SELECT PS_CURRENT_THREAD_ID()");
      if (thread.well() && !thread.rows.empty()) seat.thread = thread.rows.front().front().value_or("");
    }
    const std::lock_guard guard(hall_->mutex);
    hall_->seats.emplace(id_, std::move(seat));
  }
  ~MysqlConnection() override {
    {
      const std::lock_guard guard(hall_->mutex);
      hall_->seats.erase(id_);
      hall_->left.push_back(id_);
    }
    handle_.reset();
  }

  Answer execute(const std::string& sql) override {
    MYSQL* const mysql = handle_.get();
    const std::vector<std::string> words = words_of(sql);
    if (mysql_real_query(mysql, sql.data(), sql.size()) != 0) return failure(words);
    Answer answer;
    for (int more = 0; more == 0; more = mysql_next_result(mysql)) {  // a CALL has several
      MYSQL_RES* const result = mysql_store_result(mysql);
      if (result != nullptr) {
        answer.has_rows = true;
        answer.rows = rows_of(result);
        mysql_free_result(result);
      } else if (mysql_errno(mysql) == 0 && changes_rows(words)) {
        answer.affected = mysql_affected_rows(mysql);
      }
      if (mysql_errno(mysql) != 0) return failure(words);
    }
    return mysql_errno(mysql) != 0 ? failure(words) : answer;
  }

  void interrupt() noexcept override {
    shutdown(socket_.fd, SHUT_RDWR);  // execute() reads no more
    try {
      hall_->side.ask("KILL CONNECTION " + id_);  // the server waits no more, and lets go of what it has
    } catch (const Error&) {
      // It was gone already, or the server is.
    }
  }
  const std::string& name() const noexcept override { return name_; }

 private:
  Answer failure(const std::vector<std::string>& words) {
    const unsigned code = mysql_errno(handle_.get());
    Answer answer;
    answer.message = mysql_error(handle_.get());
    if (is_disconnect(code)) throw Error(ErrorKind::lost, "the session " + name_ + " is gone: " + answer.message, code);
    answer.code = std::to_string(code);
    answer.kind = kind_of(code, words);
    return answer;
  }

  Answer::Kind kind_of(unsigned code, const std::vector<std::string>& words) {
    using Kind = Answer::Kind;
    switch (code) {
      case ER_LOCK_DEADLOCK:
      case user_level_deadlock:
        return Kind::deadlock;
      case lock_no_wait:
        return Kind::busy;
      case ER_LOCK_WAIT_TIMEOUT:
        return hall_->mariadb && was_not_to_wait(words) ? Kind::busy : Kind::timeout;
      case query_timeout:
        return Kind::timeout;
      case statement_timeout:
        return hall_->mariadb ? Kind::timeout : Kind::error;
      case record_changed:
        return hall_->mariadb ? Kind::serialization : Kind::error;
      default:
        return Kind::error;
    }
  }

  // MariaDB has one number for both: what counts is what was asked.
  bool was_not_to_wait(const std::vector<std::string>& words) {
    if (asks_not_to_wait(words)) return true;
    static constexpr std::string_view limit = "SELECT @@innodb_lock_wait_timeout";
    if (mysql_real_query(handle_.get(), limit.data(), limit.size()) != 0) return false;
    MYSQL_RES* const result = mysql_store_result(handle_.get());
    if (result == nullptr) return false;
    const std::vector<Row> rows = rows_of(result);
    mysql_free_result(result);
    return !rows.empty() && rows.front().front() == "0";
  }

  const std::shared_ptr<Hall> hall_;
  const std::string name_;
  Handle handle_;
  const Descriptor
      socket_;  // libmariadb closes its own when the connection breaks, and its number may be anybody's then
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

std::string object_name(const std::string& schema, const std::string& table) {
  return schema.empty() || schema == room ? table : schema + "." + table;
}

std::string record_name(const std::string& table, const std::string& index, const std::optional<std::string>& data) {
  const bool primary = index.empty() || index == "PRIMARY" || index == "GEN_CLUST_INDEX";
  // Which record it is, the server tells only while its page is in memory.
  std::string key = data.value_or("?");
  if (key == "supremum pseudo-record") key = "supremum";
  return table + (primary ? "" : "." + index) + "(" + key + ")";
}

class MysqlDatabase final : public Database {
 public:
  explicit MysqlDatabase(const Address& address) : hall_(std::make_shared<Hall>(address)) {
    Side& side = hall_->side;
    mariadb_ = hall_->mariadb = side.mariadb();
    version_ = side.version();
    if (mariadb_ && version_.starts_with("5.5.5-")) version_.erase(0, 6);  // for old replicas
    const std::string user = side.one("SELECT CURRENT_USER()");
    const std::size_t at = user.rfind('@');
    grantee_ = "'" + user.substr(0, at) + "'@'" + (at == user.npos ? "%" : user.substr(at + 1)) + "'";
    const bool schema_on = side.one("SELECT @@performance_schema") == "1";
    if (!mariadb_ && !schema_on) {
      throw Error(ErrorKind::unsupported,
                  "this server was started with performance_schema=OFF, and without it does not tell who waits for "
                  "whom: start it with performance_schema=ON");
    }
    metadata_ = !mariadb_ || (schema_on && metadata_is_seen());
  }
  ~MysqlDatabase() override { clear_room(); }

  std::string_view engine() const noexcept override { return mariadb_ ? "mariadb" : "mysql"; }
  const std::string& version() const noexcept override { return version_; }

  void make_room(std::chrono::nanoseconds patience) override {
    take_turn(patience);
    made_ = false;
    try {
      await_leaving();
      ask("SET SESSION lock_wait_timeout=10");
      if (find_room()) {
        end_leftovers();
        ask("DROP DATABASE `" + room + "`");
      }
      // In one message: somebody who is killed here has sent both or neither.
      ask("CREATE DATABASE `" + room + "`; CREATE TABLE `" + room + "`.`" + marker + "` (made INT)");
      made_ = true;
    } catch (...) {
      clear_room();
      throw;
    }
  }

  void clear_room() noexcept override {
    try {
      await_leaving();
      if (std::exchange(made_, false)) ask("DROP DATABASE IF EXISTS `" + room + "`");
      if (std::exchange(turn_, false)) ask("DO RELEASE_LOCK('" + room + "')");
    } catch (const Error&) {
      // The next run finds what is left, by the marker.
    }
  }

  std::unique_ptr<Connection> connect(const std::string& name) override {
    return std::make_unique<MysqlConnection>(hall_, name);
  }

  View look() override {
    std::map<std::string, Hall::Seat> seats;
    {
      const std::lock_guard guard(hall_->mutex);
      seats = hall_->seats;
    }
    View view;
    if (mariadb_) {
      look_at_mariadb(seats, view);
    } else {
      look_at_mysql(seats, view);
    }
    if (metadata_) look_at_metadata(seats, view);
    return view;
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
                  std::string(error.what()) +
                      ". The lab needs a schema of its own: GRANT ALL ON `hierlock\\_lab`.* TO " + grantee_,
                  error.native_code());
    }
  }
  std::vector<Row> ask_view(const std::string& sql) {
    try {
      return hall_->side.ask(sql, "look who waits for whom");
    } catch (const Error& error) {
      if (error.native_code() == ER_NO_SUCH_TABLE) {
        throw Error(ErrorKind::unsupported, std::string(error.what()) + ". The lab needs MySQL 8 or newer",
                    error.native_code());
      }
      if (error.kind() != ErrorKind::denied) throw;
      throw Error(ErrorKind::denied,
                  std::string(error.what()) + ". " +
                      (mariadb_ ? "GRANT PROCESS ON *.* TO " : "GRANT SELECT ON performance_schema.* TO ") + grantee_,
                  error.native_code());
    }
  }

  // One run at a time: a named lock, which ends with the connection.
  void take_turn(std::chrono::nanoseconds patience) {
    const auto deadline = Clock::now() + patience;
    while (!turn_) {
      const auto left = deadline - Clock::now();
      const bool long_enough = left >= seconds(1);  // it counts in seconds
      turn_ = hall_->side.one("SELECT GET_LOCK('" + room + "', " + (long_enough ? "1" : "0") + ")") == "1";
      if (turn_) return;
      if (left <= left.zero()) {
        throw Error(ErrorKind::busy, "another run of the lab is going on at " + hall_->address.place());
      }
      if (!long_enough) std::this_thread::sleep_for(std::min<Clock::duration>(left, milliseconds(20)));
    }
  }

  // False: there is no such schema. Throws if it is somebody else's.
  bool find_room() {
    if (ask("SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME='" + room + "'").empty()) return false;
    if (!ask("SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA='" + room + "' AND TABLE_NAME='" + marker +
             "'")
             .empty()) {
      return true;
    }
    throw Error(ErrorKind::incompatible, "there is a schema " + room + " at " + hall_->address.place() +
                                             " that the lab has not made: rename it, or drop it if nobody needs it");
  }

  // Sessions of a run that was killed while they waited: the server has not noticed yet.
  void end_leftovers() {
    const std::string who = "SUBSTRING_INDEX(CURRENT_USER(), '@', 1)";
    const auto found = mariadb_ ? ask("SELECT ID FROM information_schema.PROCESSLIST WHERE DB='" + room +
                                      "' AND USER=" + who + " AND ID<>CONNECTION_ID()")
                                : ask_view(
                                      "SELECT PROCESSLIST_ID FROM performance_schema.threads WHERE "
                                      "PROCESSLIST_DB='" +
                                      room + "' AND PROCESSLIST_USER=" + who + " AND PROCESSLIST_ID<>CONNECTION_ID()");
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

  // MariaDB tells row locks that somebody waits for, as they were when nobody had looked for 100 ms.
  void look_at_mariadb(const Seats& seats, View& view) {
    std::this_thread::sleep_until(looked_ + mariadb_lag);
    // One statement, so that all of it is of one moment.
    const std::vector<Row> edges = ask_view(
        "SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id, rl.lock_table, rl.lock_index, rl.lock_type, "
        "rl.lock_mode, rl.lock_data, bl.lock_table, bl.lock_index, bl.lock_type, bl.lock_mode, bl.lock_data, "
        "b.trx_requested_lock_id <=> w.blocking_lock_id, w.blocking_lock_id, w.blocking_trx_id "
        "FROM information_schema.INNODB_LOCK_WAITS w "
        "JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id "
        "JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id "
        "AND (w.blocking_trx_id <> 0 OR b.trx_lock_structs > 0) "
        "JOIN information_schema.INNODB_LOCKS rl ON rl.lock_id = w.requested_lock_id "
        "JOIN information_schema.INNODB_LOCKS bl ON bl.lock_id = w.blocking_lock_id");
    looked_ = Clock::now();
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
        if (!may.of_lab.empty() && !may.of_lab.contains(holder)) continue;
        if (may.of_lab.size() > 1 && may.rows / may.all.size() != may.of_lab.size()) {
          add_wait(view, seats.at(waiter).name, "", object);
          continue;
        }
      }
      tell(holder, row, 7, row[12] != "1");
      const auto seat = seats.find(waiter);
      if (seat == seats.end()) continue;
      const auto other = seats.find(holder);
      add_wait(view, seat->second.name, other == seats.end() ? "outsider " + holder : other->second.name, object);
    }
    if (!metadata_) look_at_states(seats, view);
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
        add_wait(view, seat->second.name, other == seats.end() ? "outsider " + holder : other->second.name, object);
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
    const auto name_of = [](const MetadataLock& lock) {
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
    return rows.empty() || !rows.front().front() ? "outsider" : "outsider " + *rows.front().front();
  }

  const std::shared_ptr<Hall> hall_;
  std::string version_, grantee_;
  bool mariadb_ = false;
  bool metadata_ = false;  // the server shows its metadata locks
  bool turn_ = false, made_ = false;
  Clock::time_point looked_ = Clock::now();  // somebody before us may have, just now
};

}  // namespace

std::unique_ptr<Database> open_mysql(const spi::Url& url) { return std::make_unique<MysqlDatabase>(read_address(url)); }

}  // namespace hierlock::lab
