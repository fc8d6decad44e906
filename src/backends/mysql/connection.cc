#include "mysql/connection.h"

#include <dlfcn.h>
#include <errmsg.h>
#include <fcntl.h>
#include <mysql.h>
#include <mysqld_error.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "mysql/login.h"

namespace hierlock::mysql {

namespace {

// Numbers that libmariadb's headers do not have.
constexpr unsigned lock_no_wait = 3572, connection_killed = 1927, client_idle = 4031, user_level_deadlock = 3058,
                   tls_failed = 2026, plugin_missing = 2059, plugin_failed = 2061, require_tls = 3159,
                   option_prevents = 1290, read_only_mode = 1836, account_locked = 3118, account_locked_mariadb = 4151,
                   old_login = 1251, password_to_change = 1820, password_expired = 1862, no_password = 1698,
                   too_many_statements = 1461, statement_log = 1665;

constexpr const char* check_place = ". Does the server run, and are the host and the port of the URL right?";

timespec to_timespec(Clock::duration time) {
  const auto ns = std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

// Watches for at most so long; which of the things waited for are there, as the client library counts them.
int look(int socket, int waits, int wake, Clock::duration time) {
  pollfd fds[2] = {{socket, 0, 0}, {wake, POLLIN, 0}};
  if ((waits & MYSQL_WAIT_READ) != 0) fds[0].events |= POLLIN;
  if ((waits & MYSQL_WAIT_WRITE) != 0) fds[0].events |= POLLOUT;
  if ((waits & MYSQL_WAIT_EXCEPT) != 0) fds[0].events |= POLLPRI;
  const timespec limit = to_timespec(time);
  if (ppoll(fds, wake >= 0 ? 2 : 1, &limit, nullptr) <= 0) return 0;
  int ready = 0;
  const short events = fds[0].revents;
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) ready |= MYSQL_WAIT_READ;
  if ((events & (POLLOUT | POLLHUP | POLLERR)) != 0) ready |= MYSQL_WAIT_WRITE;
  if ((events & POLLPRI) != 0) ready |= MYSQL_WAIT_EXCEPT;
  return ready & waits;
}

// The same for an answer that is expected at once, where nothing else has to be noticed. Sleeping in recv() takes a
// coarse timer instead of an exact one, which is 1 us less of the 20 that a round trip takes on one machine. The kernel
// rounds up to its clock tick, twice, of which there are at least 100 a second. A socket that does not block (with TLS)
// says at once that nothing is there.
constexpr timeval brief_look{0, 4'000};
constexpr std::chrono::milliseconds longest_brief_look{25};

int look_briefly(int socket) {
  char byte = 0;
  const ssize_t got = recv(socket, &byte, 1, MSG_PEEK);
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : MYSQL_WAIT_READ;
}

void start_client_library() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (mysql_library_init(0, nullptr, nullptr) != 0) throw Error(ErrorKind::exhausted, "no memory for libmariadb");
  });
}

// libmariadb shakes hands for TLS in a call that blocks, for ever if the server says nothing. So a thread of its
// own keeps the WaitLimit during such calls, and ends them by shutting the socket down.
class Warden {
 public:
  explicit Warden(WaitLimit& limit) : limit_(limit) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      throw Error(ErrorKind::exhausted, std::string("no thread can be made for a TLS handshake: ") + error.what());
    }
  }
  ~Warden() {
    {
      const std::lock_guard guard(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Warden(const Warden&) = delete;
  Warden& operator=(const Warden&) = delete;

  template <class Call>
  int during(int socket, Call call) {
    // Its own: the call may close the socket, and the number is somebody else's then.
    const int own = fcntl(socket, F_DUPFD_CLOEXEC, 0);
    set(own >= 0 ? own : socket);
    const int result = call();
    set(-1);
    if (own >= 0) close(own);
    return result;
  }
  bool gave_up() {
    const std::lock_guard guard(mutex_);
    return gave_up_;
  }

 private:
  void set(int socket) {
    {
      const std::lock_guard guard(mutex_);
      socket_ = socket;
    }
    changed_.notify_one();
  }
  void run() {
    std::unique_lock guard(mutex_);
    for (;;) {
      changed_.wait(guard, [this] { return over_ || (socket_ >= 0 && !gave_up_); });
      if (over_) return;
      if (const std::optional<Clock::duration> time = limit_.next()) {  // nobody else asks it during the call
        changed_.wait_for(guard, *time, [this] { return over_ || socket_ < 0; });
      } else {
        gave_up_ = true;
        shutdown(socket_, SHUT_RDWR);
      }
    }
  }

  WaitLimit& limit_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int socket_ = -1;
  bool over_ = false, gave_up_ = false;
  std::thread thread_;
};

}  // namespace

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

bool is_disconnect(unsigned code) noexcept {
  switch (code) {
    case CR_SERVER_GONE_ERROR:
    case CR_SERVER_LOST:
    case CR_SERVER_LOST_EXTENDED:
    case CR_COMMANDS_OUT_OF_SYNC:
    case CR_MALFORMED_PACKET:
    case ER_SERVER_SHUTDOWN:
    case connection_killed:
    case client_idle:
      return true;
    default:
      return false;
  }
}

bool lacks_right(unsigned code) noexcept {
  return code == ER_DBACCESS_DENIED_ERROR || code == ER_TABLEACCESS_DENIED_ERROR ||
         code == ER_COLUMNACCESS_DENIED_ERROR || code == ER_SPECIFIC_ACCESS_DENIED_ERROR;
}

Error error_of(unsigned code, const std::string& message, const std::string& doing) {
  constexpr char only_innodb[] = ". Only InnoDB has row locks: let tables be made in it";
  const auto error = [&](ErrorKind kind, const std::string& advice) {
    return Error(kind, "cannot " + doing + ": " + message + " (" + std::to_string(code) + ")" + advice, code);
  };
  switch (code) {
    case ER_LOCK_DEADLOCK:
    case user_level_deadlock:
      return error(ErrorKind::deadlock, ". Release what you hold and start over");
    case ER_LOCK_WAIT_TIMEOUT:
      return error(ErrorKind::timeout, ". Try again, or wait longer");
    case lock_no_wait:
      return error(ErrorKind::busy, "");
    case ER_ACCESS_DENIED_ERROR:
    case no_password:
      return error(
          ErrorKind::denied,
          ". Check the user and the password (in a URL with %HH for special characters, or by password_file= or "
          "password_env=), and tls= if the account demands it");
    case ER_HOST_NOT_PRIVILEGED:
      return error(ErrorKind::denied, ". The server has no account for anybody on this machine");
    case account_locked:
    case account_locked_mariadb:
      return error(ErrorKind::denied, ". Have it unlocked: ALTER USER … ACCOUNT UNLOCK");
    case require_tls:
      return error(ErrorKind::denied, ". Write tls=verify or tls=on");
    case password_to_change:
    case password_expired:
      return error(ErrorKind::denied, ". Set a new password: ALTER USER … IDENTIFIED BY …");
    case ER_DBACCESS_DENIED_ERROR:
    case ER_TABLEACCESS_DENIED_ERROR:
    case ER_COLUMNACCESS_DENIED_ERROR:
    case ER_SPECIFIC_ACCESS_DENIED_ERROR:
      return error(ErrorKind::denied, ". docs/mysql.md lists the rights that are needed");
    case tls_failed:
      return error(ErrorKind::denied, ". See tls= and ca= in docs/mysql.md");
    case old_login:
    case plugin_missing:
    case plugin_failed:
      return error(ErrorKind::denied, ". The client library lacks the plugin for the way this account logs in");
    case ER_BAD_DB_ERROR:
      return error(ErrorKind::not_provisioned, ". Create the database, or correct the URL");
    case ER_NO_SUCH_TABLE:
      return error(ErrorKind::not_provisioned, ". `hierlock provision` makes it, or open with ?provision=lazy");
    case ER_BAD_FIELD_ERROR:
      return error(ErrorKind::incompatible,
                   ". The tables were made for other numbers of buckets or levels since this store was opened, or by "
                   "another version of hierlock: open it anew");
    case ER_CON_COUNT_ERROR:
    case ER_TOO_MANY_USER_CONNECTIONS:
    case ER_USER_LIMIT_REACHED:
      return error(ErrorKind::exhausted, ". Raise max_connections, or lower connections= in the URLs");
    case too_many_statements:
      return error(ErrorKind::exhausted, ". Raise max_prepared_stmt_count");
    case option_prevents:  // which, only the message says
      if (message.find("session-mem-used") != message.npos) {
        return error(ErrorKind::exhausted, ". Raise max_session_mem_used");
      }
      if (message.find("NO_ENGINE_SUBSTITUTION") != message.npos) return error(ErrorKind::unsafe_topology, only_innodb);
      if (message.find("read-only") == message.npos && message.find("read_only") == message.npos) {
        return error(ErrorKind::denied, ". Start the server without that option");
      }
      [[fallthrough]];
    case read_only_mode:
      return error(ErrorKind::unsafe_topology, ". Locks must be taken on the primary: connect to that");
    case CR_SOCKET_CREATE_ERROR:
    case CR_IPSOCK_ERROR:
      return error(ErrorKind::exhausted, ". This process has no more file descriptors: raise its limit (ulimit -n)");
    case CR_CONNECTION_ERROR:
    case CR_CONN_HOST_ERROR:
    case CR_UNKNOWN_HOST:
      return error(ErrorKind::unavailable, check_place);
    case ER_UNKNOWN_STORAGE_ENGINE:
      return error(ErrorKind::unsafe_topology, only_innodb);
    case statement_log:
      return error(ErrorKind::denied, ". " + std::string(log_rows_fix));
    case ER_QUERY_INTERRUPTED:
      return error(ErrorKind::unavailable, ". Somebody ended the statement with KILL: try again");
    default:
      return error(ErrorKind::unavailable, "");
  }
}

// --- connecting ------------------------------------------------------------------------------------------

Connection::Connection(const Address& address, WaitLimit& limit) {
  start_client_library();
  mysql_ = mysql_init(nullptr);
  if (mysql_ == nullptr) throw Error(ErrorKind::exhausted, "no memory for a connection");
  const auto refuse = [&](const Error& error) {
    // With TLS it would wait for the server's good-bye.
    if (const int socket = static_cast<int>(mysql_get_socket(mysql_)); broken_ && socket >= 0) {
      shutdown(socket, SHUT_RDWR);
    }
    mysql_close(mysql_);
    throw error;  // NOLINT: made for this
  };
  mysql_options(mysql_, MYSQL_OPT_NONBLOCK, nullptr);
  const unsigned protocol = address.socket.empty() ? MYSQL_PROTOCOL_TCP : MYSQL_PROTOCOL_SOCKET;
  mysql_options(mysql_, MYSQL_OPT_PROTOCOL, &protocol);
  mysql_options(mysql_, MYSQL_SET_CHARSET_NAME, "utf8mb4");
  // Part of the login. With the client library's own `_pid` they tell whose session it is before anybody has written
  // that down (views.h).
  mysql_options4(mysql_, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "hierlock");
  mysql_options4(mysql_, MYSQL_OPT_CONNECT_ATTR_ADD, host_attribute, host_name().c_str());
  const unsigned no_files = 0;  // of this machine are sent to a server that asks for one
  mysql_options(mysql_, MYSQL_OPT_LOCAL_INFILE, &no_files);
  const my_bool on = 1, verify = address.tls == Tls::verify ? 1 : 0;
  if (address.tls != Tls::off) {
    mysql_options(mysql_, MYSQL_OPT_SSL_ENFORCE, &on);
    mysql_options(mysql_, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verify);
    if (!address.ca.empty()) mysql_options(mysql_, MYSQL_OPT_SSL_CA, address.ca.c_str());
  }

  MYSQL* connected = nullptr;
  std::optional<Login> login;
  std::optional<Warden> warden;
  try {
    login.emplace(mysql_, address.password, address.tls != Tls::off);
    if (address.tls != Tls::off) warden.emplace(limit);
  } catch (const Error& error) {
    refuse(error);
  }
  const auto go_on = [&](int ready) { return mysql_real_connect_cont(&connected, mysql_, ready); };
  bool answered = drive(
      [&] {
        // libmariadb uses the socket for "localhost" only; with another host it would go there, over TCP.
        const bool local = !address.socket.empty();
        return mysql_real_connect_start(&connected, mysql_, local ? "localhost" : address.host.c_str(),
                                        address.user.c_str(), "", address.database.c_str(), address.port,
                                        local ? address.socket.c_str() : nullptr, CLIENT_MULTI_STATEMENTS);
      },
      [&](int ready) {
        if (!warden) return go_on(ready);
        return warden->during(static_cast<int>(mysql_get_socket(mysql_)), [&] { return go_on(ready); });
      },
      limit);
  if (warden && warden->gave_up()) {
    answered = false;
    broken_ = true;
  }
  warden.reset();
  const std::string doing = "connect to " + address.place();
  if (!answered) refuse(Error(ErrorKind::unavailable, "cannot " + doing + ": it does not answer" + check_place));
  const bool forbidden = connected == nullptr && mysql_errno(mysql_) == CR_PLUGIN_NOT_ALLOWED;
  const bool plaintext = login->plaintext() || (forbidden && (mysql_->server_capabilities & CLIENT_SSL) == 0) ||
                         (connected != nullptr && mysql_get_ssl_cipher(mysql_) == nullptr);
  if (address.tls != Tls::off && plaintext) {
    refuse(Error(ErrorKind::denied, "cannot " + doing +
                                        ": the server offers no TLS. Set it up there, or write tls=off if the way to "
                                        "it is safe"));
  }
  if (forbidden) {
    // The client library's own message shows other bytes in place of the name.
    refuse(Error(ErrorKind::denied,
                 "cannot " + doing + ": the server asks this account to log in by " + login->refused() +
                     ", which would show its password or ask for one. Let it log in by caching_sha2_password, "
                     "mysql_native_password or ed25519",
                 CR_PLUGIN_NOT_ALLOWED));
  }
  if (connected == nullptr) refuse(error_of(mysql_errno(mysql_), mysql_error(mysql_), doing));
  socket_ = static_cast<int>(mysql_get_socket(mysql_));
  fcntl(socket_, F_SETFD, FD_CLOEXEC);
  // Data that is not acknowledged for so long ends the connection; and somebody who waits for a lock, and therefore
  // sends nothing, asks whether the server's machine is still there. All of it fails on a unix socket.
  const int silence_ms = 10'000, ask = 1, ask_after_s = 5, ask_again_s = 2;
  setsockopt(socket_, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
  setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &ask, sizeof ask);
  setsockopt(socket_, IPPROTO_TCP, TCP_KEEPIDLE, &ask_after_s, sizeof ask_after_s);
  setsockopt(socket_, IPPROTO_TCP, TCP_KEEPINTVL, &ask_again_s, sizeof ask_again_s);
  looks_briefly_ = setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &brief_look, sizeof brief_look) == 0;
  id_ = mysql_thread_id(mysql_);
  version_ = mysql_get_server_info(mysql_);
  mariadb_ = mariadb_connection(mysql_) != 0;
}

Connection::~Connection() {
  if (socket_ >= 0 && (broken_ || slow_ != Slow::none)) shutdown(socket_, SHUT_RDWR);  // nothing of it can block then
  if (slow_result_ != nullptr) mysql_free_result(static_cast<MYSQL_RES*>(slow_result_));
  mysql_close(mysql_);
  // After it: it takes its statements off the connection, which until then lists them. The server forgets them with the
  // session; asking it to would be a message each.
  statements_.clear();
  roll_back_.reset();
}

bool Connection::hung_up() const noexcept {
  pollfd fd{socket_, POLLIN | POLLRDHUP, 0};
  return poll(&fd, 1, 0) != 0;
}

void Connection::Close::operator()(st_mysql_stmt* statement) const { mysql_stmt_close(statement); }

// --- talking ---------------------------------------------------------------------------------------------

namespace {

// OpenSSL notes errors by thread, not by connection, and libmariadb takes what is noted for one of the connection that
// it reads from at the moment: one that failed would end the next that only has nothing to read yet.
void forget_tls_errors() {
  static const auto forget = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "ERR_clear_error"));
  if (forget != nullptr) forget();
}

}  // namespace

template <class Start, class Continue>
bool Connection::drive(Start start, Continue go_on, WaitLimit& limit) {
  forget_tls_errors();
  int waits = start();
  bool first = true;
  while (waits != 0) {
    std::optional<Clock::duration> time;
    try {
      time = limit.next();
    } catch (...) {
      broken_ = true;  // the answer is still to come
      throw;
    }
    if (!time) {
      broken_ = true;
      return false;
    }
    const bool brief = std::exchange(first, false) && *time >= longest_brief_look && limit.wake() < 0 &&
                       waits == MYSQL_WAIT_READ && looks_briefly_;
    const int ready =
        brief ? look_briefly(socket_) : look(static_cast<int>(mysql_get_socket(mysql_)), waits, limit.wake(), *time);
    if (ready == 0) continue;
    forget_tls_errors();  // next() may have used another connection
    waits = go_on(ready);
  }
  return true;
}

Reply Connection::failure() const { return {mysql_errno(mysql_), mysql_error(mysql_), {}}; }

namespace {
const Reply& silent =
    *new Reply{CR_SERVER_LOST, "the server does not answer", {}};  // also for threads that outlive main
}

void Connection::read_rows(Reply& reply) {
  MYSQL_RES* const result = static_cast<MYSQL_RES*>(slow_result_);
  if (result == nullptr) return;
  const unsigned columns = mysql_num_fields(result);
  while (const MYSQL_ROW row = mysql_fetch_row(result)) {
    const unsigned long* const sizes = mysql_fetch_lengths(result);
    auto& copy = reply.rows.emplace_back();
    for (unsigned i = 0; i < columns; ++i) {
      copy.push_back(row[i] == nullptr ? std::nullopt : std::optional<std::string>(std::in_place, row[i], sizes[i]));
    }
  }
  mysql_free_result(result);
  slow_result_ = nullptr;
}

// After a step of the client library: goes on to the next as long as nothing has to be waited for.
bool Connection::slow_step(int waits) {
  slow_waits_ = waits;
  if (waits != 0) return false;
  if (slow_ == Slow::query && slow_failed_ == 0) {
    slow_ = Slow::result;
    MYSQL_RES* result = nullptr;
    slow_waits_ = mysql_store_result_start(&result, mysql_);
    slow_result_ = result;
    if (slow_waits_ != 0) return false;
  }
  slow_ = Slow::none;
  slow_reply_ = mysql_errno(mysql_) != 0 ? failure() : Reply{};
  if (slow_reply_.well()) read_rows(slow_reply_);
  if (is_disconnect(slow_reply_.code)) broken_ = true;
  return true;
}

void Connection::begin(std::string_view sql) {
  if (broken_) {
    slow_reply_ = silent;
    return;
  }
  forget_tls_errors();
  slow_ = Slow::query;
  slow_failed_ = 0;
  slow_result_ = nullptr;
  slow_step(mysql_real_query_start(&slow_failed_, mysql_, sql.data(), sql.size()));
}

bool Connection::go_on() {
  if (slow_ == Slow::none) return true;
  const int ready = look(socket_, slow_waits_, -1, {});
  if (ready == 0) return false;
  forget_tls_errors();
  if (slow_ == Slow::query) return slow_step(mysql_real_query_cont(&slow_failed_, mysql_, ready));
  MYSQL_RES* result = nullptr;
  const int waits = mysql_store_result_cont(&result, mysql_, ready);
  slow_result_ = result;
  return slow_step(waits);
}

Reply Connection::end(WaitLimit& limit) {
  while (!go_on()) {
    const std::optional<Clock::duration> time = limit.next();
    if (!time) {
      broken_ = true;
      return silent;
    }
    look(socket_, slow_waits_, limit.wake(), *time);
  }
  return reply();
}

Reply Connection::query(std::string_view sql, WaitLimit& limit) {
  if (broken_) return silent;
  int failed = 0;
  if (!drive([&] { return mysql_real_query_start(&failed, mysql_, sql.data(), sql.size()); },
             [&](int ready) { return mysql_real_query_cont(&failed, mysql_, ready); }, limit)) {
    return silent;
  }
  return rest_of_reply(limit);
}

// Of one that has begun, or failed.
Reply Connection::rest_of_reply(WaitLimit& limit) {
  MYSQL_RES* result = nullptr;
  if (mysql_errno(mysql_) == 0 &&
      !drive([&] { return mysql_store_result_start(&result, mysql_); },
             [&](int ready) { return mysql_store_result_cont(&result, mysql_, ready); }, limit)) {
    return silent;
  }
  if (mysql_errno(mysql_) != 0) {
    if (is_disconnect(mysql_errno(mysql_))) broken_ = true;
    return failure();
  }
  slow_result_ = result;
  Reply reply;
  if (result == nullptr) reply.changed = mysql_affected_rows(mysql_);
  read_rows(reply);
  return reply;
}

Reply Connection::ask(std::string_view sql, WaitLimit& limit) {
  Reply reply = query(sql, limit);
  if (!reply.well()) throw error_of(reply.code, reply.message, "use the database");
  return reply;
}

std::vector<Reply> Connection::query_all(std::span<const std::string> statements, WaitLimit& limit) {
  std::string all;
  for (const std::string& statement : statements) all += (all.empty() ? "" : ";\n") + statement;
  std::vector<Reply> replies{query(all, limit)};
  while (replies.back().well() && mysql_more_results(mysql_) != 0) {
    int failed = 0;
    const bool answered = drive([&] { return mysql_next_result_start(&failed, mysql_); },
                                [&](int ready) { return mysql_next_result_cont(&failed, mysql_, ready); }, limit);
    replies.push_back(answered ? rest_of_reply(limit) : silent);
  }
  return replies;
}

void Connection::prepare_roll_back(WaitLimit& limit) {
  constexpr std::string_view sql = "ROLLBACK";
  roll_back_.reset(mysql_stmt_init(mysql_));
  int failed = 1;
  MYSQL_STMT* const raw = roll_back_.get();
  if (raw == nullptr || !drive([&] { return mysql_stmt_prepare_start(&failed, raw, sql.data(), sql.size()); },
                               [&](int ready) { return mysql_stmt_prepare_cont(&failed, raw, ready); }, limit)) {
    return;
  }
  if (failed == 0) return;
  if (is_disconnect(mysql_stmt_errno(raw))) {
    broken_ = true;
  } else {
    roll_back_.reset();
    prepares_roll_back_ = false;
  }
}

Reply Connection::roll_back(WaitLimit& limit) {
  if (roll_back_ == nullptr && prepares_roll_back_ && !broken_) prepare_roll_back(limit);
  MYSQL_STMT* const raw = roll_back_.get();
  if (raw == nullptr) return query("ROLLBACK", limit);
  int failed = 0;
  if (broken_ || !drive([&] { return mysql_stmt_execute_start(&failed, raw); },
                        [&](int ready) { return mysql_stmt_execute_cont(&failed, raw, ready); }, limit)) {
    return silent;
  }
  if (failed == 0) return {};
  if (is_disconnect(mysql_stmt_errno(raw))) broken_ = true;
  return {mysql_stmt_errno(raw), mysql_stmt_error(raw), {}};
}

// None: it could not be, and the reply says why.
Connection::Statement* Connection::prepared(const BucketTable& table, std::span<const plan::Row> rows, bool no_wait,
                                            Form form, WaitLimit& limit, LockReply& reply) {
  const std::string name = lock_rows_name(rows, no_wait, form);
  if (const auto found = statements_.find(name); found != statements_.end()) return &found->second;
  if (statements_.size() >= most_statements) statements_.clear();
  Statement& statement = statements_[name];
  statement.handle.reset(mysql_stmt_init(mysql_));
  MYSQL_STMT* const raw = statement.handle.get();
  if (raw == nullptr) {
    statements_.erase(name);
    throw Error(ErrorKind::exhausted, "no memory for a statement");
  }
  const std::string sql = lock_rows(mariadb_ ? Dialect::mariadb : Dialect::mysql, table, rows, no_wait, form);
  int failed = 0;
  if (!drive([&] { return mysql_stmt_prepare_start(&failed, raw, sql.data(), sql.size()); },
             [&](int ready) { return mysql_stmt_prepare_cont(&failed, raw, ready); }, limit)) {
    reply.code = silent.code;
    reply.message = silent.message;
    return nullptr;  // closing it would read what the server still sends
  }
  if (failed != 0) {
    reply.code = mysql_stmt_errno(raw);
    reply.message = mysql_stmt_error(raw);
    if (is_disconnect(reply.code)) {
      broken_ = true;
    } else {
      statements_.erase(name);
    }
    return nullptr;
  }
  statement.buckets.resize(rows.size());
  std::vector<MYSQL_BIND> in(rows.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i].buffer_type = MYSQL_TYPE_LONG;
    in[i].buffer = &statement.buckets[i];
    in[i].is_unsigned = 1;
  }
  MYSQL_BIND out[2]{};
  for (std::size_t i = 0; i < 2; ++i) {
    out[i].buffer_type = MYSQL_TYPE_LONGLONG;
    out[i].buffer = &statement.answer[i];
    out[i].is_unsigned = 1;
  }
  mysql_stmt_bind_param(raw, in.data());
  mysql_stmt_bind_result(raw, out);
  return &statement;
}

LockReply Connection::lock(const BucketTable& table, std::span<const plan::Row> rows, bool no_wait, Form form,
                           WaitLimit& limit) {
  LockReply reply;
  const auto unanswered = [&] {
    reply.code = silent.code;
    reply.message = silent.message;
    return std::move(reply);
  };
  if (broken_) return unanswered();
  Statement* const statement = prepared(table, rows, no_wait, form, limit, reply);
  if (statement == nullptr) return reply;
  MYSQL_STMT* const raw = statement->handle.get();
  const auto well = [&](int error) {
    if (error == 0) return true;
    reply.code = mysql_stmt_errno(raw);
    reply.message = mysql_stmt_error(raw);
    if (is_disconnect(reply.code)) broken_ = true;
    return false;
  };
  for (std::size_t i = 0; i < rows.size(); ++i) statement->buckets[i] = rows[i].bucket;
  int error = 0;
  if (!drive([&] { return mysql_stmt_execute_start(&error, raw); },
             [&](int ready) { return mysql_stmt_execute_cont(&error, raw, ready); }, limit)) {
    return unanswered();
  }
  if (!well(error)) return reply;
  if (!drive([&] { return mysql_stmt_store_result_start(&error, raw); },
             [&](int ready) { return mysql_stmt_store_result_cont(&error, raw, ready); }, limit)) {
    return unanswered();
  }
  if (!well(error)) return reply;
  if (form == Form::one_by_one) reply.there.resize(rows.size());
  std::size_t answers = 0;
  for (; mysql_stmt_fetch(raw) == 0; ++answers) {
    const auto [number, session] = statement->answer;
    const std::size_t place = session != 0 ? rows.size() - 1 : number;
    if (session != 0) {
      reply.minted = number;
      reply.session = session;
    }
    if (place < reply.there.size()) reply.there[place] = true;
  }
  reply.all = answers == (form == Form::together ? 1 : rows.size());
  mysql_stmt_free_result(raw);
  return reply;
}

}  // namespace hierlock::mysql
