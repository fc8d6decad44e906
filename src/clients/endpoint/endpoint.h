// Endpoint: the part of a server's URL that says how to reach the server: the place, the account, and how the
// connection is protected.
//
//   SCHEME://USER[:PASSWORD]@HOST[:PORT]/DATABASE?OPTION=VALUE&…
//
// Every function throws Error(invalid_argument) for what it cannot read. No message shows a password.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <hierlock/spi/url.h>

namespace hierlock::endpoint {

// off: plain text. on: encrypted, to whoever answers. verify: encrypted, and the server's certificate is checked.
enum class Tls : std::uint8_t { off, on, verify };

struct Endpoint {
  std::string host, socket, user, password, database, ca;
  unsigned port = 0;
  Tls tls = Tls::verify;

  std::string place() const;  // for messages: `db.example:3306`, `the socket /run/mysqld.sock`
};

// The host's name or address means this machine.
bool is_loopback(std::string_view host);
// The server is on this machine, reached by a socket or by loopback.
bool is_local(const Endpoint& endpoint);

// The options about passwords and TLS: password_file, password_env, tls and ca. The URLs of all servers have them.
struct Access {
  std::optional<std::string> password;  // set it first if the URL itself has one
  std::string ca;
  std::optional<Tls> tls;

  static bool knows(std::string_view option);
  // False: the option is none of these. Reads the file or the environment variable that it names.
  bool read(const std::string& option, const std::string& value);
  // `tls` as written. By default, the certificate is verified if the server is on another machine or `ca` is set.
  Tls mode(bool local) const;
};

// How a kind of server is named in its URLs.
struct Scheme {
  std::string_view name;  // `mysql`
  unsigned port;          // when the URL has none
  bool needs_user = true;
};
enum class Database : std::uint8_t { needed, optional };

// Reads a whole URL: what stands before the "?", the options of Access, and `socket`. Ignores every other option: see
// is_option().
Endpoint read(const spi::Url& url, const Scheme& scheme, Database database);
bool is_option(std::string_view name);

}  // namespace hierlock::endpoint
