#include "mysql_client/connection.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <mysql.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "endpoint/resolve.h"
#include "mysql_client/error_codes.h"
#include "mysql_client/login.h"

namespace hierlock::mysql {

namespace {

timespec to_timespec(Clock::duration time) {
  const auto ns = std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

// Watches the socket for at most so long. Returns which of the events in `waits` are there.
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

// The same for an answer that is expected at once, if nothing else has to be noticed. recv() sleeps with a coarse timer
// instead of an exact one. That saves 1 us of the 20 that a round trip takes on one machine. The kernel rounds the time
// up to its clock tick, twice, and there are at least 100 ticks a second. A non-blocking socket (with TLS) says at once
// that nothing is there.
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

// libmariadb does the TLS handshake in a call that blocks, for ever if the server says nothing. So during such calls a
// thread keeps the WaitLimit. It ends a call by shutting the socket down.
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

// --- connecting ------------------------------------------------------------------------------------------

Connection::Connection(const Address& address, WaitLimit& limit, const ConnectOptions& options) {
  if (address.socket.empty()) endpoint::await_name(address.host, address.place(), limit);
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
  // Connection attributes, part of the login. With the client library's own `_pid` they tell which process a session
  // belongs to.
  mysql_options4(mysql_, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", options.program);
  mysql_options4(mysql_, MYSQL_OPT_CONNECT_ATTR_ADD, host_attribute, host_name().c_str());
  const unsigned no_files = 0;  // never upload local files (LOAD DATA LOCAL)
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
  const unsigned long flags =
      (options.many_statements ? CLIENT_MULTI_STATEMENTS : 0UL) | (options.count_found_rows ? CLIENT_FOUND_ROWS : 0UL);
  const auto go_on = [&](int ready) { return mysql_real_connect_cont(&connected, mysql_, ready); };
  bool answered = drive(
      [&] {
        // libmariadb uses the socket for "localhost" only; with another host it would go there, over TCP.
        const bool local = !address.socket.empty();
        return mysql_real_connect_start(&connected, mysql_, local ? "localhost" : address.host.c_str(),
                                        address.user.c_str(), "", address.database.c_str(), address.port,
                                        local ? address.socket.c_str() : nullptr, flags);
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
  const bool forbidden = connected == nullptr && mysql_errno(mysql_) == codes::plugin_not_allowed;
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
                 codes::plugin_not_allowed));
  }
  if (connected == nullptr) refuse(error_of(mysql_errno(mysql_), mysql_error(mysql_), doing));
  socket_ = static_cast<int>(mysql_get_socket(mysql_));
  fcntl(socket_, F_SETFD, FD_CLOEXEC);
  // Data that is not acknowledged for so long ends the connection. A session that waits for a lock sends nothing, so
  // the kernel asks whether the server's machine is still there. All of it fails on a unix socket, harmlessly.
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
  // After mysql_close(), which detaches the statements from the connection. The server forgets them with the session;
  // closing them before would send a message each.
  statements_.clear();
  roll_back_.handle_.reset();
}

bool Connection::hung_up() const noexcept {
  pollfd fd{socket_, POLLIN | POLLRDHUP, 0};
  return poll(&fd, 1, 0) != 0;
}

void Statement::Close::operator()(st_mysql_stmt* handle) const { mysql_stmt_close(handle); }

// --- talking ---------------------------------------------------------------------------------------------

namespace {

// OpenSSL notes errors by thread, not by connection. libmariadb takes a noted error for one of the connection that it
// reads from. So an error of one connection would end the next one that has nothing to read yet.
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
    *new Reply{codes::server_lost, "the server does not answer", {}};  // also for threads that outlive main
}

void Connection::read_rows(Reply& reply) {
  MYSQL_RES* const result = static_cast<MYSQL_RES*>(slow_result_);
  if (result == nullptr) return;
  reply.has_rows = true;
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
  return query_each(all, limit);
}

std::vector<Reply> Connection::query_each(std::string_view sql, WaitLimit& limit) {
  std::vector<Reply> replies{query(sql, limit)};
  while (replies.back().well() && mysql_more_results(mysql_) != 0) {
    int failed = 0;
    const bool answered = drive([&] { return mysql_next_result_start(&failed, mysql_); },
                                [&](int ready) { return mysql_next_result_cont(&failed, mysql_, ready); }, limit);
    replies.push_back(answered ? rest_of_reply(limit) : silent);
  }
  return replies;
}

// --- prepared statements ---------------------------------------------------------------------------------

namespace {

constexpr std::chrono::seconds prepare_again_after{10};

std::uint64_t number_of(const std::optional<std::string>& text) {
  std::uint64_t value = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

}  // namespace

Statement& Connection::statement(std::string_view key, std::size_t parameters, std::size_t columns) {
  auto found = statements_.find(key);
  if (found == statements_.end()) {
    // Closing sends a message of 9 bytes that the server does not answer. Everything sent before was answered, so the
    // message fits into the socket's buffer and nothing waits. On a broken connection closing would read what the
    // server still sends.
    if (statements_.size() >= most_statements && !broken_) {
      statements_.erase(std::min_element(statements_.begin(), statements_.end(),
                                         [](const auto& a, const auto& b) { return a.second.used_ < b.second.used_; }));
    }
    found = statements_.try_emplace(std::string(key)).first;
    found->second.in_.resize(parameters);
    found->second.out_.resize(columns);
  }
  found->second.used_ = ++uses_;
  return found->second;
}

void Connection::forget(const Statement& statement) {
  std::erase_if(statements_, [&](const auto& one) { return &one.second == &statement; });
}

Reply Connection::prepare(Statement& statement, const std::string& sql, WaitLimit& limit) {
  const auto bound = [](std::vector<std::uint64_t>& numbers) {
    std::vector<MYSQL_BIND> binds(numbers.size());
    for (std::size_t i = 0; i < binds.size(); ++i) {
      binds[i].buffer_type = MYSQL_TYPE_LONGLONG;
      binds[i].buffer = &numbers[i];
      binds[i].is_unsigned = 1;
    }
    return binds;
  };
  std::vector<MYSQL_BIND> in = bound(statement.in_), out = bound(statement.out_);
  statement.handle_.reset(mysql_stmt_init(mysql_));
  MYSQL_STMT* const raw = statement.handle_.get();
  if (raw == nullptr) throw Error(ErrorKind::exhausted, "no memory for a statement");
  int failed = 0;
  if (!drive([&] { return mysql_stmt_prepare_start(&failed, raw, sql.data(), sql.size()); },
             [&](int ready) { return mysql_stmt_prepare_cont(&failed, raw, ready); }, limit)) {
    return silent;  // the handle stays: closing it would read what the server still sends
  }
  if (failed != 0) {
    Reply reply{mysql_stmt_errno(raw), mysql_stmt_error(raw), {}};
    if (is_disconnect(reply.code)) {
      broken_ = true;
    } else {
      statement.handle_.reset();
    }
    return reply;
  }
  // The client library copies the binds, not what they point to.
  if (!in.empty()) mysql_stmt_bind_param(raw, in.data());
  if (!out.empty()) mysql_stmt_bind_result(raw, out.data());
  return {};
}

Reply Connection::execute(Statement& statement, const Sql& sql, const Row& row, WaitLimit& limit) {
  if (broken_) return silent;
  if (statement.handle_ == nullptr) {
    const std::string text = sql();
    if (Clock::now() < as_text_until_) return execute_as_text(statement, text, row, limit);
    Reply reply = prepare(statement, text, limit);
    if (reply.code == codes::too_many_statements) {
      as_text_until_ = Clock::now() + prepare_again_after;
      return execute_as_text(statement, text, row, limit);
    }
    if (!reply.well()) {
      if (!broken_) forget(statement);
      return reply;
    }
  }
  MYSQL_STMT* const raw = statement.handle_.get();
  const auto failure_of = [&] {
    Reply reply{mysql_stmt_errno(raw), mysql_stmt_error(raw), {}};
    if (is_disconnect(reply.code)) broken_ = true;
    return reply;
  };
  int error = 0;
  if (!drive([&] { return mysql_stmt_execute_start(&error, raw); },
             [&](int ready) { return mysql_stmt_execute_cont(&error, raw, ready); }, limit)) {
    return silent;
  }
  if (error != 0) return failure_of();
  if (statement.out_.empty()) return {};
  if (!drive([&] { return mysql_stmt_store_result_start(&error, raw); },
             [&](int ready) { return mysql_stmt_store_result_cont(&error, raw, ready); }, limit)) {
    return silent;
  }
  if (error != 0) return failure_of();
  while (mysql_stmt_fetch(raw) == 0) row(statement.out_);
  mysql_stmt_free_result(raw);
  return {};
}

Reply Connection::execute_as_text(const Statement& statement, const std::string& sql, const Row& row,
                                  WaitLimit& limit) {
  std::string text;
  std::size_t parameter = 0;
  for (const char c : sql) {
    if (c == '?') {
      text += std::to_string(statement.in_.at(parameter++));
    } else {
      text += c;
    }
  }
  Reply reply = query(text, limit);
  std::vector<std::uint64_t> numbers(statement.out_.size());
  for (const auto& values : std::exchange(reply.rows, {})) {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = number_of(values.at(i));
    row(numbers);
  }
  return reply;
}

Reply Connection::roll_back(WaitLimit& limit) {
  constexpr const char* sql = "ROLLBACK";
  Reply reply = execute(
      roll_back_, [] { return std::string(sql); }, {}, limit);
  // Whatever the server has against preparing it, it must be sent.
  if (!reply.well() && roll_back_.handle_ == nullptr && !broken_) reply = query(sql, limit);
  return reply;
}

}  // namespace hierlock::mysql
