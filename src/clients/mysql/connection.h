// Connection: one session of a MySQL or MariaDB server. The caller's thread does not block in the client library,
// except in the TLS handshake, where a Warden keeps the limit (endpoint/warden.h).
//
// Every call sends, then watches the socket itself, under a WaitLimit. If the limit gives up, the connection is broken:
// it can only be closed. One thread uses a connection at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "endpoint/socket.h"
#include "endpoint/sql.h"
#include "mysql_client/address.h"
#include "mysql_client/errors.h"
#include "timed/wait_limit.h"

struct st_mysql;
struct st_mysql_res;
struct st_mysql_stmt;

namespace hierlock::mysql {

using timed::Clock;
using timed::Deadline;
using timed::WaitLimit;

// The server's answer: an error (error_codes.h), or rows.
struct Reply {
  unsigned code = 0;  // 0: no error
  std::string message;
  std::vector<endpoint::Row> rows{};
  std::uint64_t changed = 0;  // rows, by a statement that returns none
  bool has_rows = false;      // it is a result, which may be empty

  bool well() const { return code == 0; }
  std::string words() const { return message + " (" + std::to_string(code) + ")"; }  // of an error
};
// What an error means to the caller, as errors.h says it.
inline Error error_of(const Reply& reply, const std::string& doing) {
  return error_of(reply.code, reply.message, doing);
}

// A prepared statement of one connection. Its parameters are whole numbers, or texts of one size. Its results are whole
// numbers. No parameter or result is NULL.
class Statement {
 public:
  std::span<std::uint64_t> parameters() noexcept { return in_; }
  std::span<char> text(std::size_t i) noexcept { return texts_.at(i); }
  std::span<const std::uint64_t> results() const noexcept { return out_; }  // of the last row

 private:
  friend class Connection;
  struct Close {
    void operator()(st_mysql_stmt* handle) const;
  };
  std::unique_ptr<st_mysql_stmt, Close> handle_;  // none: it is not prepared
  std::vector<std::uint64_t> in_, out_;           // bound to the handle, so they never move
  std::vector<std::vector<char>> texts_;          // the same
  unsigned long text_size_ = 0;                   // of each
  std::uint64_t used_ = 0;                        // when, by Connection::uses_
};

struct ConnectOptions {
  const char* program = "hierlock";  // the connection attribute program_name
  bool many_statements = true;       // the server accepts several statements in one message, as query_all() sends them
  bool count_found_rows = false;     // Reply::changed counts the rows that an UPDATE finds, not those that it changes
};

class Connection {
 public:
  // At most so many statements are prepared at a time. Beyond that, the connection closes the least recently used one.
  static constexpr std::size_t most_statements = 64;

  // Connects and logs in. With TLS, nothing of the login is sent before the connection is encrypted (login.h). Throws
  // Error.
  Connection(const Address& address, WaitLimit& limit, const ConnectOptions& options = {});
  ~Connection();  // closes; does not wait for the server
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool mariadb() const noexcept { return mariadb_; }
  const std::string& version() const noexcept { return version_; }
  std::uint64_t id() const noexcept { return id_; }  // the server's number for this session
  int socket() const noexcept { return socket_; }
  // The limit gave up, or the server is gone: the connection can only be closed.
  bool broken() const noexcept { return broken_; }
  void give_up() noexcept { broken_ = true; }
  // The server has closed its end, or has sent something without being asked. Does not wait.
  bool hung_up() const noexcept { return endpoint::has_input(socket_); }

  Reply query(std::string_view sql, WaitLimit& limit);
  // The same, but every error is thrown, as error_of() says.
  Reply ask(std::string_view sql, WaitLimit& limit);
  // All results of a text that has several, such as a CALL: up to the first error, which ends it.
  std::vector<Reply> query_each(std::string_view sql, WaitLimit& limit);
  // Several statements in one round trip: the answer to each, up to the first error, which ends it.
  std::vector<Reply> query_all(std::span<const std::string> statements, WaitLimit& limit);
  // The prepared statement with this key. Statements with one key have the same SQL. Sends nothing. The reference is
  // valid until the next call of statement() or execute().
  Statement& statement(std::string_view key, std::size_t parameters, std::size_t columns);
  // The same, with parameters that are texts, each of so many bytes.
  Statement& statement_of_texts(std::string_view key, std::size_t texts, std::size_t size, std::size_t columns);
  // Has the server prepare it now. Afterwards begin(Statement&) may be used, if that went well.
  Reply prepare(Statement& statement, const std::string& sql, WaitLimit& limit);
  // Executes the statement with its parameters(), in one round trip, and one more if it has to be prepared. `sql` is
  // called only if it has to be prepared. Its text has a `?` for each parameter and no other. `row` is called for each
  // row of the result; the reply has no rows. If the server prepares no more statements (max_prepared_stmt_count),
  // statements are sent as text for a while.
  using Sql = std::function<std::string()>;
  using Row = std::function<void(std::span<const std::uint64_t>)>;
  Reply execute(Statement& statement, const Sql& sql, const Row& row, WaitLimit& limit);

  // A query that the caller's own loop carries on. Call begin(), then go_on() whenever the socket is ready.
  void begin(std::string_view sql);
  void begin(Statement& statement);  // which is prepared. Its results() are those of the only row
  bool go_on();                      // true: reply() has the answer
  // Waits until there is something to read for go_on(), or for so long. `briefly`: it is expected at once.
  void look(bool briefly, Clock::duration time) const noexcept;
  Reply reply() { return std::move(reply_); }
  Reply end(WaitLimit& limit);  // waits for the answer

 private:
  void set_options(const Address& address, const ConnectOptions& options);
  void log_in(const Address& address, const std::string& host, WaitLimit& limit, const ConnectOptions& options);
  void close() noexcept;
  int wait(int events, bool briefly, WaitLimit& limit);
  template <class Start, class Continue>
  bool drive(Start start, Continue go_on, WaitLimit& limit);
  bool advance(int waits);
  bool go_on(int ready);
  void read_rows();
  void forget_errors() const noexcept {
    if (encrypted_) endpoint::forget_tls_errors();
  }
  bool advance_statement();
  Reply execute_as_text(const Statement& statement, const std::string& sql, const Row& row, WaitLimit& limit);
  void forget(const Statement& statement);

  st_mysql* mysql_;
  int socket_ = -1;
  std::uint64_t id_ = 0;
  bool mariadb_ = false, broken_ = false, encrypted_ = true;  // or it is not known yet
  endpoint::BriefLook brief_;
  std::string version_;
  std::map<std::string, Statement, std::less<>> statements_;  // by key
  std::uint64_t uses_ = 0;                                    // of all statements
  Clock::time_point as_text_until_{};                         // the server prepares no more
  // A query that is under way.
  enum class Step : std::uint8_t { none, query, next, result, execute, fetch } step_ = Step::none;
  int waits_ = 0, failed_ = 0;
  st_mysql_res* result_ = nullptr;
  Statement* statement_ = nullptr;  // that is executed
  Reply reply_;
};

// The connection attribute that carries the name of this machine.
inline constexpr const char* host_attribute = "hierlock_host";

}  // namespace hierlock::mysql
