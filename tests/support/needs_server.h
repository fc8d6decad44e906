// For tests that need a server.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "support/server.h"

namespace hierlock::tests {

inline bool in_ci() {
  const char* const ci = std::getenv("CI");
  return ci != nullptr && std::string(ci) == "true";
}

}  // namespace hierlock::tests

// At the beginning of a test or SetUp(). A server that is not there is a visible skip, and in CI a failure (H10).
#define HIERLOCK_NEEDS_SERVER(name)                                                                  \
  if (!::hierlock::tests::server_variable(name)) {                                                   \
    if (::hierlock::tests::in_ci()) FAIL() << "HIERLOCK_TEST_" << (name) << " names no server";      \
    GTEST_SKIP() << "HIERLOCK_TEST_" << (name) << " names no server: eval \"$(tools/servers env)\""; \
  }                                                                                                  \
  static_assert(true, "a semicolon follows")
