// OnValkey: a test against Valkey and against Redis, with a table of its own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <hierlock/hierlock.h>
#include <hierlock/valkey.h>

#include "support/needs_server.h"
#include "support/timing.h"

namespace hierlock::valkey_tests {

using namespace std::chrono_literals;
using namespace tests;
using Clock = std::chrono::steady_clock;

// Whether it comes to be true, looked at until the deadline.
inline bool eventually(const std::function<bool()>& fact, std::chrono::seconds limit = 20s) {
  for (const auto end = Clock::now() + limit; Clock::now() < end; std::this_thread::sleep_for(2ms)) {
    if (fact()) return true;
  }
  return fact();
}

inline testing::AssertionResult fails_with(ErrorKind kind, const std::function<void()>& action,
                                           const std::string& saying = "") {
  try {
    action();
    return testing::AssertionFailure() << "it succeeds";
  } catch (const Error& error) {
    if (error.kind() != kind) return testing::AssertionFailure() << to_string(error.kind()) << ": " << error.what();
    if (std::string(error.what()).find(saying) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "does not say \"" << saying << "\": " << error.what();
  }
}

// tools/servers with these arguments: what it prints.
std::string servers(const std::string& arguments);
// The URL with these options as well.
std::string with(const std::string& url, const std::string& options);
// The key under which the server keeps this target, as explain prints it.
std::string place_of(const std::string& url, const Target& target);

inline std::string new_table() {
  static std::atomic<int> last{0};
  return "valkey_suite_" + std::to_string(getpid()) + "_" + std::to_string(++last);
}

// A take as locks.lua reads it, of `take ID PART WAIT LEASE CHANNEL SESSION FLOOR KNOWN QUESTION` and NODE MODE SLOTS
// for each node.
inline std::vector<std::string> take_words(const std::vector<std::string>& w) {
  std::string nodes;
  for (std::size_t i = 10; i < w.size(); ++i) nodes += w[i] + "\n";
  return {"take", w[1], w[4], w[7], w[8], w[9], w[2] + " " + w[3] + " " + w[6] + " " + w[5], nodes};
}

// GetParam() is VALKEY or REDIS.
class OnValkey : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    HIERLOCK_NEEDS_SERVER(GetParam());
    valkey::enable();
  }
  std::string url(const std::string& more = "") const {
    const std::string table = with(server_url(GetParam()), "table=" + table_);
    return more.empty() ? table : table + "&" + more;
  }
  const std::string& table() const { return table_; }
  // The server's own client, as the operator.
  static std::string ask(const std::string& command) {
    const std::string engine = GetParam() == "VALKEY" ? "valkey" : "redis";
    return servers("client " + engine + " --operator " + command);
  }

 private:
  const std::string table_ = new_table();
};

#define HIERLOCK_ON_VALKEY_AND_REDIS(suite) \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::Values("VALKEY", "REDIS"), [](const auto& server) { return server.param; })

}  // namespace hierlock::valkey_tests
