#include "endpoint/endpoint.h"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <utility>

#include <hierlock/error.h>

namespace hierlock::endpoint {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

std::string first_line_of(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) refuse("password_file=" + file + " cannot be read, or is empty");
  if (line.ends_with('\r')) line.pop_back();  // editors on Windows end lines with \r\n
  return line;
}

std::string from_environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr) refuse("password_env=" + name + ": there is no such variable in the environment");
  return value;
}

// Reads USER:PASSWORD@HOST:PORT/DATABASE.
class AuthorityReader {
 public:
  AuthorityReader(const Scheme& scheme, Endpoint& endpoint)
      : scheme_(scheme.name), port_(std::to_string(scheme.port)), needs_user_(scheme.needs_user), endpoint_(endpoint) {
    endpoint.port = scheme.port;
  }

  void read(std::string_view rest, Database needed) {
    if (!rest.starts_with("//"))
      refuse("a " + scheme_ + " URL begins with " + scheme_ + "://, as in " + scheme_ + "://app@db" +
             (needed == Database::needed ? "/shop" : ""));
    const std::string_view text = rest.substr(2);
    const std::size_t slash = text.find('/');
    std::string_view authority = text.substr(0, slash);
    read_database(slash == text.npos ? std::string_view() : text.substr(slash + 1), needed);
    if (const std::size_t at = authority.rfind('@'); at != authority.npos) {
      read_account(authority.substr(0, at));
      authority.remove_prefix(at + 1);
    }
    read_host(authority);
    // The client library would take the name of whoever runs the program.
    if (endpoint_.user.empty() && needs_user_) refuse("the URL names no user: write " + example() + in_passwords);
  }

 private:
  static constexpr const char* in_passwords = ", and in a password %2F for \"/\" and %3F for \"?\"";

  std::string example(const std::string& port = "") const { return scheme_ + "://user@host" + port + "/database"; }

  void read_database(std::string_view database, Database needed) {
    if (database.empty() && needed == Database::needed) {
      refuse("the URL names no database: write " + example() + in_passwords);
    }
    if (database.find('/') != database.npos) {
      refuse("more than the database follows the host's \"/\": write " + example() + in_passwords);
    }
    endpoint_.database = spi::Url::decode(database);
  }

  void read_account(std::string_view account) {
    const std::size_t colon = account.find(':');
    endpoint_.user = spi::Url::decode(account.substr(0, colon));
    // The server would show it in its messages.
    if (endpoint_.user.find(':') != endpoint_.user.npos) {
      refuse("the user has a \":\" in it, written as %3A: write " + scheme_ + "://user:password@host/database");
    }
    if (colon != account.npos) endpoint_.password = spi::Url::decode(account.substr(colon + 1));
  }

  void read_host(std::string_view text) {
    std::string_view port;
    if (text.starts_with('[')) {  // [::1]:3306
      const std::size_t end = text.find(']');
      if (end == text.npos) refuse("the host's \"[\" has no \"]\": write [::1]:" + port_);
      endpoint_.host = text.substr(1, end - 1);
      if (text.size() > end + 1) {
        if (text[end + 1] != ':') refuse("after the host's \"]\" there can only be a port: write [::1]:" + port_);
        port = text.substr(end + 2);
      }
    } else {
      const std::size_t colon = text.rfind(':');
      endpoint_.host = spi::Url::decode(text.substr(0, colon));
      if (colon != text.npos) port = text.substr(colon + 1);
    }
    if (!port.empty()) endpoint_.port = port_number(port);
  }

  // Does not show what was written: without a host, as in mysql://app:secret/shop, that is a password.
  unsigned port_number(std::string_view text) const {
    unsigned port = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (error != std::errc{} || end != text.data() + text.size() || port < 1 || port > 65'535) {
      refuse("what follows the host's \":\" is no port from 1 to 65535: write " + example(":" + port_) + in_passwords);
    }
    return port;
  }

  const std::string scheme_, port_;
  const bool needs_user_;
  Endpoint& endpoint_;
};

}  // namespace

std::string Endpoint::place() const {
  return socket.empty() ? host + ":" + std::to_string(port) : "the socket " + socket;
}

bool is_loopback(std::string_view host) {
  // Digits and dots only: 127.0.0.1.example.com is another machine.
  const bool loopback_number = host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos;
  return host == "localhost" || host == "::1" || loopback_number;
}

bool is_local(const Endpoint& endpoint) { return !endpoint.socket.empty() || is_loopback(endpoint.host); }

bool Access::knows(std::string_view option) {
  return option == "password_file" || option == "password_env" || option == "tls" || option == "ca";
}

bool Access::read(const std::string& option, const std::string& value) {
  if (option == "tls") {
    if (value != "off" && value != "on" && value != "verify") refuse("tls=" + value + ": write off, on or verify");
    tls = value == "off" ? Tls::off : value == "on" ? Tls::on : Tls::verify;
    return true;
  }
  if (option == "ca") {
    ca = value;
    return true;
  }
  if (!knows(option)) return false;
  if (password) {
    refuse("the password is given twice: keep one of the URL's own, password_file= and password_env=");
  }
  password = option == "password_file" ? first_line_of(value) : from_environment(value);
  return true;
}

Tls Access::mode(bool local) const {
  const Tls mode = tls.value_or(!ca.empty() || !local ? Tls::verify : Tls::off);
  if (!ca.empty() && mode != Tls::verify) {
    refuse("ca= is for tls=verify: without it the server's certificate is not looked at");
  }
  return mode;
}

bool is_option(std::string_view name) { return name == "socket" || Access::knows(name); }

Endpoint read(const spi::Url& url, const Scheme& scheme, Database database) {
  Endpoint endpoint;
  AuthorityReader(scheme, endpoint).read(url.rest, database);
  Access access;
  if (!endpoint.password.empty()) access.password = std::move(endpoint.password);
  for (const auto& [name, value] : url.options) {
    if (name == "socket") {
      endpoint.socket = value;
    } else {
      access.read(name, value);
    }
  }
  if (endpoint.host.empty() && endpoint.socket.empty()) {
    refuse("the URL names no host: write " + std::string(scheme.name) + "://user@host" +
           (database == Database::needed ? "/database" : "") + ", or add ?socket=/path");
  }
  endpoint.tls = access.mode(is_local(endpoint));
  endpoint.password = std::move(access.password).value_or("");
  endpoint.ca = std::move(access.ca);
  return endpoint;
}

}  // namespace hierlock::endpoint
