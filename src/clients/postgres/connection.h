// Connection: one session of a PostgreSQL server. The caller's thread never blocks in libpq.
//
// Every call sends, then watches the socket itself, under a WaitLimit. If the limit gives up, the connection is broken:
// it can only be closed. One thread uses a connection at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hierlock/error.h>

#include "endpoint/sql.h"
#include "postgres_client/address.h"
#include "timed/wait_limit.h"

struct pg_conn;

namespace hierlock::postgres {

using timed::Clock;
using timed::Deadline;
using timed::WaitLimit;

struct Notification {
  std::string channel, payload;
  bool operator==(const Notification&) const = default;
};

// The server's answer: an error (error_codes.h), or rows.
struct Reply {
  std::string state{};  // the SQLSTATE of an error; empty: no error
  std::string message{};
  std::string raised_by{};  // the function of the server that raised the error: no language changes it
  bool has_rows = false;    // it is a result, which may be empty
  std::vector<endpoint::Row> rows{};
  std::string tag{};  // `UPDATE 1`

  bool well() const noexcept { return state.empty(); }
};

class Connection {
 public:
  // Connects and logs in. The server shows `application` as application_name. Throws Error.
  Connection(const Address& address, const std::string& application, WaitLimit& limit);
  ~Connection();  // closes; does not wait for the server
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::string& version() const noexcept { return version_; }  // `15.18`
  std::uint64_t id() const noexcept { return id_; }                 // the process id of the server's backend
  int socket() const noexcept;
  // The limit gave up, or the server is gone: the connection can only be closed.
  bool broken() const noexcept { return broken_; }

  // Nothing is under way, and no transaction is open.
  bool idle() const noexcept;

  // Sends one or more statements. Answers the last result, or the first error. A COPY breaks the connection, because
  // the caller has no data for it. The reply of a broken connection is codes::connection_failure.
  Reply query(const std::string& sql, WaitLimit& limit);
  // The answer to each of several statements, up to the first error, which ends them. There is at least one.
  std::vector<Reply> query_each(const std::string& sql, WaitLimit& limit);
  // query_each() in parts, so that a thread can do something else before the answer is there. send() sends. arrives()
  // waits for the whole answer, at most for `time`, and may be called again. receive() waits for it, under the limit.
  void send(const std::string& sql);
  bool arrives(Clock::duration time);
  std::vector<Reply> receive(WaitLimit& limit);
  // Messages and notifications that came since the last call, at most `most_kept` of each. Does not wait.
  static constexpr std::size_t most_kept = 10'000;
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }
  std::vector<Notification> take_notifications();
  // As query(), but every error is thrown, as error_of() says.
  Reply ask(const std::string& sql, WaitLimit& limit);

 private:
  bool wait(int events, WaitLimit& limit);
  bool read_replies(const std::function<bool(int events)>& await);
  Reply lost();

  std::unique_ptr<pg_conn, void (*)(pg_conn*)> handle_;
  std::string version_;
  std::uint64_t id_ = 0;
  bool broken_ = false;
  std::vector<std::string> notices_;
  std::vector<Reply> replies_;  // to what send() has sent, as far as they have come
  bool all_replies_ = true;
};

// The Error for a SQLSTATE. The message is "cannot `doing`: `message`".
Error error_of(const Reply& reply, const std::string& doing);

}  // namespace hierlock::postgres
