// The servers that the environment names, and what the bench may ask of them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session.h"
#include "sql_session.h"

namespace bench {

// A kind of server that the environment may name, as `tools/servers env` does.
struct ServerKind {
  std::string variable;  // HIERLOCK_TEST_MYSQL
  std::string name;      // mysql: groups begin with it
};
extern const ServerKind mysql_server, mariadb_server;

// The URL of the server that the variable names. Without one the group is skipped, and the result is null.
const char* server_for(Session& session, std::string_view group, const char* variable);
// The same for a group that has cases on both servers: only the cases with this contender are skipped.
const char* server_for(Session& session, std::string_view group, std::string_view contender, const ServerKind& kind);

// The process of the server, if the environment tells.
std::optional<pid_t> process_of(const ServerKind& kind);

// The URL of the operator, if the environment names one.
std::optional<std::string> operator_of(const ServerKind& kind);

// Lets the server accept so many sessions, for as long as this lives. That needs an operator, unless it does already.
class ConnectionRoom {
 public:
  ConnectionRoom(const ServerKind& kind, std::size_t wanted);
  ~ConnectionRoom();
  ConnectionRoom(const ConnectionRoom&) = delete;
  ConnectionRoom& operator=(const ConnectionRoom&) = delete;

  // Empty if there is room; otherwise why not.
  const std::string& why_not() const noexcept { return why_not_; }

 private:
  std::unique_ptr<SqlSession> raised_by_;
  std::string before_, why_not_;
};

// Paths of one level, no two of which share a row of a table with so many buckets: nobody waits without need.
std::vector<std::string> paths_on_own_rows(std::size_t count, std::uint32_t buckets);

}  // namespace bench
