// Address: what a mysql:// URL says. Passwords may come from a file or the environment, and are never shown.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <hierlock/spi/url.h>

namespace hierlock::mysql {

enum class Tls : std::uint8_t { off, on, verify };

struct Address {
  std::string host, socket, user, password, database, ca;
  unsigned port = 3306;
  Tls tls = Tls::verify;

  std::string place() const;  // for messages: `db.example:3306`, `the socket /run/mysqld.sock`
};

// On this machine, as its name says: a socket, or loopback.
bool is_local(const Address& address);

// How the hierarchy lies in the database. What the URL leaves open is read from the database.
struct Layout {
  std::string table = "hier_lock_buckets";
  std::optional<std::uint32_t> buckets;
  std::optional<unsigned> levels;
  bool lazy = false;  // missing rows and tables are made when they are first needed

  std::string settings_table() const { return table + "_settings"; }
  std::string who_table() const { return table + "_who"; }
};

struct Options {
  Address address;
  Layout layout;
  std::size_t connections = 16;                   // at most so many at once, for locks
  bool views = true;                              // snapshots ask the server's own views, too (views.h)
  std::chrono::milliseconds publish_after{1000};  // what lasts longer is told to other processes (who.h)
  std::string url;                                // without the password
  bool only_look = false;                         // makes no table, not even with lazy
};

// Throws invalid_argument.
Options read_url(const spi::Url& url);

}  // namespace hierlock::mysql
