// The servers of these tests, as `tools/servers env` names them (H10): HIERLOCK_TEST_MYSQL, HIERLOCK_TEST_MARIADB_CA, …
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace hierlock::tests {

// The URL of a data source name as Go writes it: user:password@tcp(host:port)/database?option=value. What is left out
// is as docker-compose.yml has it: 127.0.0.1, 3306, mgl_test. Options are those of Go's driver, and left out.
inline std::string url_of_dsn(const std::string& dsn) {
  const std::size_t slash = dsn.rfind('/');
  const std::string before = dsn.substr(0, slash), after = slash == dsn.npos ? "" : dsn.substr(slash + 1);
  const std::size_t at = before.rfind('@');
  std::string who = at == before.npos ? "root" : before.substr(0, at);
  if (who.find(':') == who.npos) who += ":";
  std::string where = before.substr(at == before.npos ? 0 : at + 1);
  const std::size_t open = where.find('('), close = where.rfind(')');
  where = open == where.npos || close == where.npos ? "" : where.substr(open + 1, close - open - 1);
  if (where.empty()) where = "127.0.0.1";
  if (where.find(':') == where.npos) where += ":3306";
  const std::string database = after.substr(0, after.find('?'));
  return "mysql://" + who + "@" + where + "/" + (database.empty() ? "mgl_test" : database);
}

// What follows HIERLOCK_TEST_: "MYSQL", "MARIADB_OPERATOR", "MYSQL_SOCKET". For MySQL also MYSQL_DSN, in Go's form.
// Where no operator is named, as in docker-compose.yml and in MYSQL_DSN, the one user there is may do anything.
inline std::optional<std::string> server_variable(const std::string& name) {
  const auto variable = [](const std::string& of) -> std::optional<std::string> {
    const char* const value = std::getenv(of.c_str());
    return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
  };
  std::optional<std::string> value = variable("HIERLOCK_TEST_" + name);
  constexpr std::string_view by_operator = "_OPERATOR";
  const bool is_operator = name.ends_with(by_operator);
  const std::string server = is_operator ? name.substr(0, name.size() - by_operator.size()) : name;
  if (!value && is_operator) value = variable("HIERLOCK_TEST_" + server);
  if (value || server != "MYSQL") return value;
  const std::optional<std::string> dsn = variable("MYSQL_DSN");
  return dsn ? std::optional<std::string>(url_of_dsn(*dsn)) : std::nullopt;
}

// The URL of "MYSQL" or "MARIADB" as the application's user; empty where there is none.
inline std::string server_url(const std::string& name) { return server_variable(name).value_or(""); }

}  // namespace hierlock::tests
