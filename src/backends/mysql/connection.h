// Connection: one session of a MySQL or MariaDB server, driven so that its thread never blocks in the client library.
//
// Every call sends, then watches the socket itself, under a WaitLimit. A call that is given up leaves the connection
// broken: it can only be closed.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/error.h>

#include "mysql/address.h"
#include "mysql/statements.h"
#include "plan/buckets.h"
#include "timed/timed_mutex.h"
#include "timed/wait_limit.h"

struct st_mysql;
struct st_mysql_stmt;

namespace hierlock::mysql {

using timed::Clock;
using timed::Deadline;
using timed::SharedDeadline;
using timed::TimedMutex;
using timed::WaitLimit;

// What the server said: an error by its number, or rows.
struct Reply {
  unsigned code = 0;  // 0: well
  std::string message;
  std::vector<std::vector<std::optional<std::string>>> rows{};
  std::uint64_t changed = 0;  // rows, by a statement that returns none

  bool well() const { return code == 0; }
};

// The answer to a locking statement.
struct LockReply {
  unsigned code = 0;
  std::string message;
  bool all = false;           // every row exists, and is locked
  std::vector<bool> there;    // if not, which of them exist; empty: the statement does not tell
  std::uint64_t minted = 0;   // UUID_SHORT(), read when all rows were locked
  std::uint64_t session = 0;  // CONNECTION_ID(), as the server says it now

  bool well() const { return code == 0; }
};

class Connection {
 public:
  static constexpr std::size_t most_statements = 64;  // that lock, prepared at once; and ROLLBACK

  // Connects and logs in. Throws Error.
  Connection(const Address& address, WaitLimit& limit);
  ~Connection();  // closes; does not wait for the server
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool mariadb() const noexcept { return mariadb_; }
  const std::string& version() const noexcept { return version_; }
  std::uint64_t id() const noexcept { return id_; }  // the server's number for this session
  // Which server it is, for comparing.
  const std::string& identity() const noexcept { return identity_; }
  void set_identity(std::string identity) { identity_ = std::move(identity); }
  int socket() const noexcept { return socket_; }
  // Given up, or the server is gone: to be closed.
  bool broken() const noexcept { return broken_; }
  void give_up() noexcept { broken_ = true; }
  // The server has closed its end, or says something nobody asked for. No I/O that waits.
  bool hung_up() const noexcept;

  Reply query(std::string_view sql, WaitLimit& limit);
  // The same, but every error is thrown, as error_of() says.
  Reply ask(std::string_view sql, WaitLimit& limit);
  // Several in one round trip: what each is answered, up to the first error, which ends it.
  std::vector<Reply> query_all(std::span<const std::string> statements, WaitLimit& limit);
  // Locks rows by a statement of statements.h, which is prepared when its like is first used here. `table` is always
  // the same.
  LockReply lock(const BucketTable& table, std::span<const plan::Row> rows, bool no_wait, Form form, WaitLimit& limit);

  // ROLLBACK, which both servers do faster if it is prepared: one round trip, when it is first used. If that is
  // refused, it is sent as text.
  Reply roll_back(WaitLimit& limit);

  // A query that another thread's loop carries on: begin, then go_on whenever the socket is ready, until it is done.
  void begin(std::string_view sql);
  bool go_on();  // true when reply() is there
  Reply reply() { return std::move(slow_reply_); }
  Reply end(WaitLimit& limit);  // or waits for it

 private:
  struct Close {
    void operator()(st_mysql_stmt* statement) const;
  };
  // A prepared statement, with room for what goes in and out: it is told once where that is.
  struct Statement {
    std::unique_ptr<st_mysql_stmt, Close> handle;
    std::vector<std::uint32_t> buckets;
    std::array<std::uint64_t, 2> answer{};
  };

  template <class Start, class Continue>
  bool drive(Start start, Continue go_on, WaitLimit& limit);
  Reply failure() const;
  Reply rest_of_reply(WaitLimit& limit);
  void prepare_roll_back(WaitLimit& limit);
  void read_rows(Reply& reply);
  bool slow_step(int waits);
  Statement* prepared(const BucketTable& table, std::span<const plan::Row> rows, bool no_wait, Form form,
                      WaitLimit& limit, LockReply& reply);

  st_mysql* mysql_;
  int socket_ = -1;
  std::uint64_t id_ = 0;
  bool mariadb_ = false, broken_ = false, looks_briefly_ = false, prepares_roll_back_ = true;
  std::string version_, identity_;
  std::unique_ptr<st_mysql_stmt, Close> roll_back_;
  std::map<std::string, Statement> statements_;  // by lock_rows_name()
  // begin/go_on
  enum class Slow { none, query, result } slow_ = Slow::none;
  int slow_waits_ = 0, slow_failed_ = 0;
  void* slow_result_ = nullptr;
  Reply slow_reply_;
};

// What a number of the server or of its client means to somebody who locks. `doing` is for the message: "cannot …".
Error error_of(unsigned code, const std::string& message, const std::string& doing);
// Of this machine, for people.
std::string host_name();
// What it is called among the attributes of a connection.
inline constexpr const char* host_attribute = "hierlock_host";

// The connection is of no use any more.
bool is_disconnect(unsigned code) noexcept;
// A right is missing, as GRANT gives it.
bool lacks_right(unsigned code) noexcept;

}  // namespace hierlock::mysql
