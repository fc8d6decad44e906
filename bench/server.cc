#include "server.h"

#include <cstdlib>
#include <set>

namespace bench {

namespace {

const char* variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr || *value == '\0' ? nullptr : value;
}

// Empty if there is one.
std::string why_no_server(const char* name) {
  if (std::string why = why_no_mysql(); !why.empty()) return why;
  if (variable(name) != nullptr) return {};
  return std::string(name) + " names no server: eval \"$(tools/servers env)\"";
}

}  // namespace

const ServerKind mysql_server{"HIERLOCK_TEST_MYSQL", "mysql"}, mariadb_server{"HIERLOCK_TEST_MARIADB", "mariadb"};

const char* server_for(Session& session, std::string_view group, const char* variable) {
  const std::string why = why_no_server(variable);
  if (!why.empty()) session.skip(group, why);
  return why.empty() ? std::getenv(variable) : nullptr;
}

const char* server_for(Session& session, std::string_view group, std::string_view contender, const ServerKind& kind) {
  const std::string why = why_no_server(kind.variable.c_str());
  if (!why.empty()) session.skip(group, contender, why);
  return why.empty() ? std::getenv(kind.variable.c_str()) : nullptr;
}

std::optional<pid_t> process_of(const ServerKind& kind) {
  const char* const number = variable(kind.variable + "_PID");
  return number == nullptr ? std::nullopt : std::optional(static_cast<pid_t>(std::atoi(number)));
}

std::optional<std::string> operator_of(const ServerKind& kind) {
  const char* const url = variable(kind.variable + "_OPERATOR");
  return url == nullptr ? std::nullopt : std::optional<std::string>(url);
}

ConnectionRoom::ConnectionRoom(const ServerKind& kind, std::size_t wanted) {
  auto session = std::make_unique<SqlSession>(operator_of(kind).value_or(variable(kind.variable)));
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
