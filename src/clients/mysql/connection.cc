#include "mysql_client/connection.h"

#include <mysql.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "endpoint/resolve.h"
#include "endpoint/warden.h"
#include "mysql_client/error_codes.h"
#include "mysql_client/login.h"

namespace hierlock::mysql {

static_assert(endpoint::readable == MYSQL_WAIT_READ && endpoint::writable == MYSQL_WAIT_WRITE &&
              endpoint::urgent == MYSQL_WAIT_EXCEPT);

namespace {

void start_client_library() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (mysql_library_init(0, nullptr, nullptr) != 0) throw Error(ErrorKind::exhausted, "no memory for libmariadb");
  });
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

}  // namespace

// --- connecting ------------------------------------------------------------------------------------------

Connection::Connection(const Address& address, WaitLimit& limit, const ConnectOptions& options) {
  std::vector<std::string> at{"localhost"};  // libmariadb uses the socket for this host only
  if (address.socket.empty()) at = endpoint::resolve(address.host, address.place(), limit);
  start_client_library();
  for (auto host = at.begin();;) {
    mysql_ = mysql_init(nullptr);
    if (mysql_ == nullptr) throw Error(ErrorKind::exhausted, "no memory for a connection");
    try {
      set_options(address, options);
      log_in(address, *host, limit, options);
      break;
    } catch (const Error& error) {
      close();
      const bool nobody = error.native_code() == codes::no_server_at_host ||
                          error.native_code() == codes::no_server_at_socket;  // libmariadb says this of TCP, too
      if (!nobody || ++host == at.end()) throw;
    } catch (...) {
      close();
      throw;
    }
  }
  socket_ = static_cast<int>(mysql_get_socket(mysql_));
  endpoint::look_after(socket_);
  brief_.prepare(socket_);
  id_ = mysql_thread_id(mysql_);
  version_ = mysql_get_server_info(mysql_);
  mariadb_ = mariadb_connection(mysql_) != 0;
  encrypted_ = address.tls != Tls::off;
}

void Connection::set_options(const Address& address, const ConnectOptions& options) {
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
  if (address.tls == Tls::off) return;
  const my_bool on = 1, verify = address.tls == Tls::verify ? 1 : 0;
  mysql_options(mysql_, MYSQL_OPT_SSL_ENFORCE, &on);
  mysql_options(mysql_, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verify);
  if (!address.ca.empty()) mysql_options(mysql_, MYSQL_OPT_SSL_CA, address.ca.c_str());
}

void Connection::log_in(const Address& address, const std::string& host, WaitLimit& limit,
                        const ConnectOptions& options) {
  const bool encrypted = address.tls != Tls::off;
  Login login(mysql_, address);
  std::optional<endpoint::Warden> warden;
  if (encrypted) warden.emplace(limit);  // libmariadb does the TLS handshake in a call that blocks
  const unsigned long flags =
      (options.many_statements ? CLIENT_MULTI_STATEMENTS : 0UL) | (options.count_found_rows ? CLIENT_FOUND_ROWS : 0UL);
  MYSQL* connected = nullptr;
  const auto go_on = [&](int ready) { return mysql_real_connect_cont(&connected, mysql_, ready); };
  bool answered = drive(
      [&] {
        return mysql_real_connect_start(&connected, mysql_, host.c_str(), address.user.c_str(), "",
                                        address.database.c_str(), address.port,
                                        address.socket.empty() ? nullptr : address.socket.c_str(), flags);
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
  const std::string doing = "connect to " + address.place();
  if (!answered) throw Error(ErrorKind::unavailable, "cannot " + doing + ": it does not answer" + check_place);
  const bool forbidden = connected == nullptr && mysql_errno(mysql_) == codes::plugin_not_allowed;
  const bool plaintext = login.plaintext() || (forbidden && (mysql_->server_capabilities & CLIENT_SSL) == 0) ||
                         (connected != nullptr && mysql_get_ssl_cipher(mysql_) == nullptr);
  if (encrypted && plaintext) {
    throw Error(ErrorKind::denied, "cannot " + doing +
                                       ": the server offers no TLS. Set it up there, or write tls=off if the way to "
                                       "it is safe");
  }
  if (forbidden) {
    // The client library's own message shows other bytes in place of the name.
    throw Error(ErrorKind::denied, "cannot " + doing + ": " + login.refusal(), codes::plugin_not_allowed);
  }
  if (connected == nullptr) throw error_of(mysql_errno(mysql_), mysql_error(mysql_), doing);
}

Connection::~Connection() {
  if (step_ != Step::none) broken_ = true;
  if (result_ != nullptr) mysql_free_result(result_);
  close();
  // After mysql_close(), which detaches the statements from the connection. The server forgets them with the session;
  // closing them before would send a message each.
  statements_.clear();
}

// Of a broken connection mysql_close() would wait: with TLS for the server's good-bye.
void Connection::close() noexcept {
  if (const int socket = static_cast<int>(mysql_get_socket(mysql_)); broken_ && socket >= 0) {
    shutdown(socket, SHUT_RDWR);
  }
  mysql_close(mysql_);
}

void Statement::Close::operator()(st_mysql_stmt* handle) const { mysql_stmt_close(handle); }

// --- talking ---------------------------------------------------------------------------------------------

// Waits until the server is ready, and returns for what. 0: the limit gave up, and the connection is broken.
int Connection::wait(int events, bool briefly, WaitLimit& limit) {
  for (;; briefly = false) {
    std::optional<Clock::duration> time;
    try {
      time = limit.next();
    } catch (...) {
      broken_ = true;  // the answer is still to come
      throw;
    }
    if (!time) {
      broken_ = true;
      return 0;
    }
    const bool brief = briefly && *time >= endpoint::BriefLook::longest && limit.wake() < 0 &&
                       events == endpoint::readable && brief_.possible();
    const int ready = !brief ? endpoint::watch(static_cast<int>(mysql_get_socket(mysql_)), events, limit.wake(), *time)
                      : endpoint::BriefLook::readable(socket_) ? endpoint::readable
                                                               : 0;
    forget_errors();  // next() may have used another connection
    if (ready != 0) return ready;
  }
}

// Starts an operation of the client library and carries it on to its end. False: the limit gave up.
template <class Start, class Continue>
bool Connection::drive(Start start, Continue go_on, WaitLimit& limit) {
  forget_errors();
  bool first = true;
  for (int waits = start(); waits != 0;) {
    const int ready = wait(waits, std::exchange(first, false), limit);
    if (ready == 0) return false;
    waits = go_on(ready);
  }
  return true;
}

namespace {
const Reply& silent =
    *new Reply{codes::server_lost, "the server does not answer", {}};  // also for threads that outlive main
}

// After a step of the client library: goes on to the next one as long as nothing has to be waited for. True: the
// answer is complete.
bool Connection::advance(int waits) {
  waits_ = waits;
  if (statement_ != nullptr) return advance_statement();
  if (waits_ == 0 && (step_ == Step::query || step_ == Step::next) && failed_ == 0) {
    step_ = Step::result;
    waits_ = mysql_store_result_start(&result_, mysql_);
  }
  if (waits_ != 0) return false;
  step_ = Step::none;
  reply_ = {};
  if (mysql_errno(mysql_) != 0) {
    reply_ = {mysql_errno(mysql_), mysql_error(mysql_), {}};
    if (is_disconnect(reply_.code)) broken_ = true;
  } else if (result_ == nullptr) {
    reply_.changed = mysql_affected_rows(mysql_);
  } else {
    read_rows();
  }
  return true;
}

// Rows are read as they come: to store the result first would allocate more than a row of numbers is worth.
bool Connection::advance_statement() {
  MYSQL_STMT* const raw = statement_->handle_.get();
  while (waits_ == 0 && (failed_ == 0 || failed_ == MYSQL_DATA_TRUNCATED)) {
    if (step_ == Step::fetch) reply_.has_rows = failed_ == 0;
    step_ = Step::fetch;
    waits_ = mysql_stmt_fetch_start(&failed_, raw);
  }
  if (waits_ != 0) return false;
  step_ = Step::none;
  statement_ = nullptr;
  if (failed_ == MYSQL_NO_DATA) {
    mysql_stmt_free_result(raw);
    return true;
  }
  reply_ = {mysql_stmt_errno(raw), mysql_stmt_error(raw), {}};
  if (is_disconnect(reply_.code)) broken_ = true;
  return true;
}

void Connection::read_rows() {
  reply_.has_rows = true;
  const unsigned columns = mysql_num_fields(result_);
  while (const MYSQL_ROW row = mysql_fetch_row(result_)) {
    const unsigned long* const sizes = mysql_fetch_lengths(result_);
    auto& copy = reply_.rows.emplace_back();
    for (unsigned i = 0; i < columns; ++i) {
      copy.push_back(row[i] == nullptr ? std::nullopt : std::optional<std::string>(std::in_place, row[i], sizes[i]));
    }
  }
  mysql_free_result(std::exchange(result_, nullptr));
}

bool Connection::go_on(int ready) {
  switch (step_) {
    case Step::none:
      return true;
    case Step::query:
      return advance(mysql_real_query_cont(&failed_, mysql_, ready));
    case Step::next:
      return advance(mysql_next_result_cont(&failed_, mysql_, ready));
    case Step::result:
      return advance(mysql_store_result_cont(&result_, mysql_, ready));
    case Step::execute:
      return advance(mysql_stmt_execute_cont(&failed_, statement_->handle_.get(), ready));
    case Step::fetch:
      return advance(mysql_stmt_fetch_cont(&failed_, statement_->handle_.get(), ready));
  }
  return true;
}

void Connection::begin(std::string_view sql) {
  step_ = broken_ ? Step::none : Step::query;
  reply_ = silent;
  if (broken_) return;
  forget_errors();
  failed_ = 0;
  result_ = nullptr;
  advance(mysql_real_query_start(&failed_, mysql_, sql.data(), sql.size()));
}

void Connection::begin(Statement& statement) {
  step_ = broken_ ? Step::none : Step::execute;
  if (broken_) {
    reply_ = silent;
    return;
  }
  reply_ = {};
  forget_errors();
  failed_ = 0;
  statement_ = &statement;
  advance(mysql_stmt_execute_start(&failed_, statement.handle_.get()));
}

// The client library reads without waiting, and tells if there was nothing: to ask the socket before would be one more
// system call.
bool Connection::go_on() {
  if (step_ == Step::none) return true;
  forget_errors();
  return go_on(waits_);
}

void Connection::look(bool briefly, Clock::duration time) const noexcept {
  if (step_ == Step::none) return;  // it was there when the question was sent
  if (briefly && time >= endpoint::BriefLook::longest && brief_.possible()) {
    endpoint::BriefLook::readable(socket_);
  } else {
    endpoint::watch(socket_, endpoint::readable, -1, time);
  }
}

Reply Connection::end(WaitLimit& limit) {
  bool first = true;
  while (step_ != Step::none) {
    const int ready = wait(waits_, std::exchange(first, false), limit);
    if (ready == 0) return silent;
    go_on(ready);
  }
  return reply();
}

Reply Connection::query(std::string_view sql, WaitLimit& limit) {
  begin(sql);
  return end(limit);
}

Reply Connection::ask(std::string_view sql, WaitLimit& limit) {
  Reply reply = query(sql, limit);
  if (!reply.well()) throw error_of(reply, "use the database");
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
    forget_errors();
    step_ = Step::next;
    advance(mysql_next_result_start(&failed_, mysql_));
    replies.push_back(end(limit));
  }
  return replies;
}

// --- prepared statements ---------------------------------------------------------------------------------

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

Statement& Connection::statement_of_texts(std::string_view key, std::size_t texts, std::size_t size,
                                          std::size_t columns) {
  Statement& made = statement(key, 0, columns);
  if (made.texts_.empty()) made.texts_.assign(texts, std::vector<char>(size));
  made.text_size_ = size;
  return made;
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
  for (std::vector<char>& text : statement.texts_) {
    MYSQL_BIND& bind = in.emplace_back();
    bind.buffer_type = MYSQL_TYPE_STRING;
    bind.buffer = text.data();
    bind.buffer_length = statement.text_size_;
    bind.length = &statement.text_size_;
  }
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
      constexpr std::chrono::seconds prepare_again_after{10};
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
  Reply reply = query(endpoint::filled_in(sql, statement.in_), limit);
  std::vector<std::uint64_t> numbers(statement.out_.size());
  for (const auto& values : std::exchange(reply.rows, {})) {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = endpoint::number(values.at(i));
    row(numbers);
  }
  return reply;
}

}  // namespace hierlock::mysql
