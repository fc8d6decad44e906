// Options: what a mysql:// URL says to the store. The address part is read by mysql_client/address.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <hierlock/spi/url.h>

#include "mysql_client/address.h"

namespace hierlock::mysql {

inline constexpr std::uint32_t most_buckets = 2'147'483'647;  // H3: the column is a signed INT

// How the hierarchy lies in the database. What the URL leaves open is read from the database.
struct Layout {
  std::string table = "hier_lock_buckets";
  std::optional<std::uint32_t> buckets;
  std::optional<unsigned> levels;
  bool lazy = false;  // make missing rows and tables when they are first needed

  std::string settings_table() const { return table + "_settings"; }
  std::string notices_table() const { return table + "_notices"; }
};

struct Options {
  Address address;
  Layout layout;
  std::size_t connections = 16;  // for locks, at most so many at once
  bool views = true;             // snapshots ask the server's own views, too (views.h)
  std::chrono::milliseconds publish_after{
      1000};               // holds and waits that last longer are published (remote/notice_board.h)
  bool gate = true;        // locks are handed over inside the process (remote/hand_over.h)
  std::string url;         // without the password
  bool only_look = false;  // make no table, not even with lazy
};

// What to do where tables or rows are missing.
std::string how_to_provision(const Options& options);

// Throws invalid_argument.
Options read_url(const spi::Url& url);

}  // namespace hierlock::mysql
