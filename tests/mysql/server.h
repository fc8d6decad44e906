// The servers of these tests, as `tools/servers env` names them (H10): HIERLOCK_TEST_MYSQL, HIERLOCK_TEST_MARIADB_CA, …
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace hierlock::mysql_tests {

// What follows HIERLOCK_TEST_: "MYSQL", "MARIADB_OPERATOR", "MYSQL_SOCKET".
inline std::optional<std::string> server_variable(const std::string& name) {
  const char* const value = std::getenv(("HIERLOCK_TEST_" + name).c_str());
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

// The URL of "MYSQL" or "MARIADB" as the application's user; empty where there is none: see HIERLOCK_NEEDS_SERVER.
inline std::string server_url(const std::string& name) { return server_variable(name).value_or(""); }

inline bool in_ci() {
  const char* const ci = std::getenv("CI");
  return ci != nullptr && std::string(ci) == "true";
}

}  // namespace hierlock::mysql_tests

// At the beginning of a test or SetUp(). A server that is not there is a visible skip, and in CI a failure (H10).
#define HIERLOCK_NEEDS_SERVER(name)                                                                            \
  if (!::hierlock::mysql_tests::server_variable(name)) {                                                       \
    if (::hierlock::mysql_tests::in_ci()) FAIL() << "HIERLOCK_TEST_" << (name) << " names no server";          \
    GTEST_SKIP() << "HIERLOCK_TEST_" << (name) << " names no server: eval \"$(tools/servers env)\"";           \
  }                                                                                                            \
  static_assert(true, "a semicolon follows")
