#include "server.h"

#include <cstdlib>
#include <set>

namespace bench {

namespace {

const char* variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr || *value == '\0' ? nullptr : value;
}

}  // namespace

const ServerKind mysql_server{"HIERLOCK_TEST_MYSQL", "mysql"}, mariadb_server{"HIERLOCK_TEST_MARIADB", "mariadb"};

const char* server_for(Session& session, std::string_view group, const char* variable) {
  const std::string why = why_no_mysql();
  const char* const url = std::getenv(variable);
  if (!why.empty()) {
    session.skip(group, why);
  } else if (url == nullptr) {
    session.skip(group, std::string(variable) + " names no server: eval \"$(tools/servers env)\"");
  }
  return why.empty() ? url : nullptr;
}

std::optional<pid_t> process_of(const ServerKind& kind) {
  const char* const number = variable(kind.variable + "_PID");
  return number == nullptr ? std::nullopt : std::optional(static_cast<pid_t>(std::atoi(number)));
}

ConnectionRoom::ConnectionRoom(const ServerKind& kind, std::size_t wanted) {
  const char* const by_operator = variable(kind.variable + "_OPERATOR");
  auto session = std::make_unique<SqlSession>(by_operator != nullptr ? by_operator : variable(kind.variable));
  before_ = session->ask("SELECT @@GLOBAL.max_connections");
  if (std::stoul(before_) >= wanted) return;
  try {
    session->ask("SET GLOBAL max_connections = " + std::to_string(wanted));
    raised_by_ = std::move(session);
  } catch (const SqlError& error) {
    why_not_ = "max_connections is " + before_ + ", " + std::to_string(wanted) + " are needed, and " + kind.variable +
               "_OPERATOR names nobody who may raise it";
  }
}

ConnectionRoom::~ConnectionRoom() {
  if (raised_by_ == nullptr) return;
  try {
    raised_by_->ask("SET GLOBAL max_connections = " + before_);
  } catch (const std::exception&) {
  }
}

std::vector<std::string> paths_on_own_rows(std::size_t count, std::uint32_t buckets) {
  std::vector<std::string> paths;
  std::set<std::uint32_t> taken;
  for (std::uint32_t user = 0; paths.size() < count; ++user) {
    const Path path(user, 0, 0);
    if (taken.insert(bucket_of(path, 0, buckets)).second) paths.push_back(path.nodes[0]);
  }
  return paths;
}

}  // namespace bench
