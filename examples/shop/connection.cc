#include "connection.h"

#include <cstdlib>
#include <fstream>
#include <optional>

#include <soci/soci-platform.h>
#undef SOCI_HAVE_BOOST  // Debian's libsoci-dev says that Boost is there, and does not bring it

#include <soci/mysql/soci-mysql.h>
#include <soci/postgresql/soci-postgresql.h>
#include <soci/soci.h>
#include <soci/sqlite3/soci-sqlite3.h>

#include <hierlock/rows_soci.h>
#include <hierlock/spi/url.h>

namespace shop {
namespace {

class SociConnection final : public Connection {
 public:
  SociConnection(const soci::backend_factory& backend, const std::string& parameters)
      : sql_(backend, parameters), adapter_(sql_) {}
  hierlock::rows::Adapter& adapter() override { return adapter_; }
  void execute(const std::string& sql) override { sql_ << sql; }
  long long number(const std::string& sql) override {
    long long value = 0;
    soci::indicator indicator = soci::i_ok;
    sql_ << sql, soci::into(value, indicator);
    return indicator == soci::i_ok ? value : 0;
  }

 private:
  soci::session sql_;
  hierlock::rows::SociAdapter adapter_;
};

// SOCI's `name=value`, in quotes.
std::string parameter(const char* name, const std::string& text) {
  if (text.find_first_of("'\\") != text.npos) {
    throw hierlock::Error(hierlock::ErrorKind::unsupported, std::string("no quotes or backslashes in the ") + name);
  }
  return std::string(name) + "='" + text + "' ";
}

// What stands after the question mark. The options of a store of locks (docs/mysql.md) are none of a database.
struct Login {
  std::optional<std::string> password, socket;
};

Login login_of(const hierlock::spi::Url& url) {
  using hierlock::Error, hierlock::ErrorKind;
  Login login;
  for (const auto& [name, value] : url.options) {
    if (name == "password_env") {
      const char* const found = std::getenv(value.c_str());
      if (found == nullptr) throw Error(ErrorKind::invalid_argument, "the environment has no " + value);
      login.password = found;
    } else if (name == "password_file") {
      std::ifstream file(value);
      if (!std::getline(file, login.password.emplace())) {
        throw Error(ErrorKind::invalid_argument, "cannot read a password from " + value);
      }
    } else if (name == "socket" && url.scheme == "mysql") {
      login.socket = value;
    } else {
      throw Error(ErrorKind::invalid_argument, "the shop's database knows no option " + name +
                                                   ": password_env, password_file and, on MySQL, socket. Options of a "
                                                   "store of locks belong to --locks");
    }
  }
  return login;
}

std::string server_parameters(const hierlock::spi::Url& url, const char* database) {
  const std::string rest = url.rest.starts_with("//") ? url.rest.substr(2) : "";
  const std::size_t at = rest.rfind('@'), slash = rest.rfind('/');
  if (at == rest.npos || slash == rest.npos || slash < at) {
    throw hierlock::Error(hierlock::ErrorKind::invalid_argument, "write SCHEME://USER:PASSWORD@HOST:PORT/DATABASE");
  }
  const auto decoded = [](std::string_view text) { return hierlock::spi::Url::decode(text); };
  const Login login = login_of(url);
  const std::string user = rest.substr(0, at), host = rest.substr(at + 1, slash - at - 1);
  const std::size_t user_end = user.find(':'), host_end = host.find(':');
  std::string all = parameter("user", decoded(user.substr(0, user_end)));
  if (login.password) {
    all += parameter("password", *login.password);
  } else if (user_end != user.npos) {
    all += parameter("password", decoded(user.substr(user_end + 1)));
  }
  if (login.socket) all += parameter("unix_socket", *login.socket);
  if (!host.empty()) all += parameter("host", decoded(host.substr(0, host_end)));
  if (host_end != host.npos) all += parameter("port", host.substr(host_end + 1));
  return all + parameter(database, decoded(rest.substr(slash + 1)));
}

}  // namespace

std::unique_ptr<Connection> connect(const std::string& text) {
  const hierlock::spi::Url url = hierlock::spi::Url::parse(text);
  try {
    if (url.scheme == "mysql") return std::make_unique<SociConnection>(soci::mysql, server_parameters(url, "db"));
    if (url.scheme == "postgres" || url.scheme == "postgresql") {
      return std::make_unique<SociConnection>(soci::postgresql, server_parameters(url, "dbname"));
    }
    if (url.scheme == "sqlite") {
      (void)login_of(url);
      auto file = std::make_unique<SociConnection>(soci::sqlite3, "db=\"" + url.rest + "\"");
      // Nobody keeps this file, so it need not reach the disk. Readers do not stand in the way of the writer.
      file->execute("PRAGMA synchronous = off");
      file->execute("PRAGMA busy_timeout = 60000");
      return file;
    }
  } catch (const soci::soci_error& error) {
    throw hierlock::Error(hierlock::ErrorKind::unavailable, "cannot connect: " + error.get_error_message());
  }
  throw hierlock::Error(hierlock::ErrorKind::unsupported, "the shop knows sqlite:, mysql: and postgres:");
}

}  // namespace shop
