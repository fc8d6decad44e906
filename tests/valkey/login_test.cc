// How a connection is protected, and who may lock.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <hierlock/operate.h>

#include "on_valkey.h"

namespace hierlock::valkey_tests {
namespace {

class Login : public OnValkey {
 protected:
  std::string of(const std::string& what) const { return server_variable(GetParam() + "_" + what).value_or(""); }
  std::string tls_url(const std::string& more) const { return with(of("TLS"), "table=" + table() + "&" + more); }
};

TEST_P(Login, a_verified_connection_is_encrypted_and_locks) {
  Locker locker = hierlock::open(tls_url("tls=verify&ca=" + of("CA")));
  EXPECT_TRUE(locker.acquire("u1").held());
}

TEST_P(Login, a_wrong_ca_a_wrong_name_and_a_server_without_tls_are_refused) {
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { hierlock::open(tls_url("tls=verify&ca=" + of("WRONG_CA"))); }, "ca="));
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { hierlock::open(tls_url("tls=verify")); }, "ca=FILE"));
  std::string elsewhere = tls_url("tls=verify&ca=" + of("CA"));
  elsewhere.replace(elsewhere.find("127.0.0.1"), 9, "127.1");  // the same address, and no name of the certificate
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { hierlock::open(elsewhere); }, "not for 127.1"));
  EXPECT_TRUE(fails_with(
      ErrorKind::unavailable, [&] { hierlock::open(url("tls=on"), {.connect_timeout = 1s}); }, "tls=off"));
}

TEST_P(Login, plain_text_to_a_port_for_tls_is_told_to_use_tls) {
  EXPECT_TRUE(fails_with(
      ErrorKind::unavailable, [&] { hierlock::open(tls_url("tls=off"), {.connect_timeout = 1s}); }, "tls=verify"));
}

TEST_P(Login, a_socket_needs_no_host) {
  Locker locker = hierlock::open(url("socket=" + of("SOCKET")));
  EXPECT_TRUE(locker.acquire("u1").held());
}

TEST_P(Login, a_wrong_password_is_denied_and_not_shown) {
  std::string wrong = url();
  wrong.replace(wrong.find("app:"), 4, "app:hunter2");
  try {
    hierlock::open(wrong);
    FAIL() << "it is let in";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::denied);
    EXPECT_EQ(std::string(error.what()).find("hunter2"), std::string::npos) << error.what();
  }
}

// A wrong one is denied, so the right one was read there.
TEST_P(Login, the_password_comes_from_a_file_or_the_environment) {
  std::string without = url();
  const std::size_t colon = without.find(':', without.find("//")), at = without.find('@');
  const std::string password = without.substr(colon + 1, at - colon - 1);
  without.erase(colon, at - colon);
  const std::string file =
      (std::filesystem::temp_directory_path() / ("hierlock_password_" + std::to_string(getpid()))).string();
  const std::string variable = "HIERLOCK_TEST_VALKEY_LOGIN";
  const auto login = [&](const std::string& option) {
    return hierlock::open(with(without, option)).acquire("u1", {.timeout = 30s}).held();
  };
  const auto keep = [&](const std::string& text) {
    std::ofstream(file) << text << "\n";
    setenv(variable.c_str(), text.c_str(), 1);
  };
  keep(password);
  for (const std::string& option : {"password_file=" + file, "password_env=" + variable}) {
    EXPECT_TRUE(login(option)) << option;
  }
  keep("hunter2");
  for (const std::string& option : {"password_file=" + file, "password_env=" + variable}) {
    EXPECT_TRUE(fails_with(ErrorKind::denied, [&] { login(option); })) << option;
  }
  std::filesystem::remove(file);
  unsetenv(variable.c_str());
}

// A right that is missing is told by open(), not in the middle of a script.
TEST_P(Login, a_missing_right_is_told_when_the_store_is_opened) {
  ask("ACL SETUSER poor reset on '>secret' '~hl:*' '&hl:*' -@all +@connection +evalsha '+script|load' +time +info "
      "+hget +hset");
  std::string poor = url();
  const std::size_t at = poor.find("app:");
  poor.replace(at, poor.find('@') - at, "poor:secret");
  EXPECT_TRUE(fails_with(
      ErrorKind::denied, [&] { hierlock::open(poor); }, "docs/valkey.md"));
  const std::vector<Finding> findings = doctor(poor);
  const auto rights =
      std::find_if(findings.begin(), findings.end(), [](const Finding& f) { return f.check == "rights"; });
  ASSERT_NE(rights, findings.end());
  EXPECT_EQ(rights->verdict, Finding::Verdict::unsafe);
  ask("ACL DELUSER poor");
}

TEST_P(Login, an_unknown_option_is_refused_with_those_that_there_are) {
  EXPECT_TRUE(fails_with(
      ErrorKind::invalid_argument, [&] { hierlock::open(url("leese=5")); }, "lease"));
  EXPECT_TRUE(fails_with(
      ErrorKind::invalid_argument, [&] { hierlock::open(url("lease=5")); }, "1000"));
  EXPECT_TRUE(fails_with(
      ErrorKind::invalid_argument, [&] { hierlock::open(url("lease=10s")); }, "milliseconds"));
}

HIERLOCK_ON_VALKEY_AND_REDIS(Login);

}  // namespace
}  // namespace hierlock::valkey_tests
