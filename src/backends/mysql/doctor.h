// Doctor: finds what is unsafe or slow about a MySQL or MariaDB server, and names the fix (H17). It changes nothing.
// This file has the questions and the judgements; remote/checkup.h has the frame.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <hierlock/operate.h>
#include <hierlock/spi/url.h>

#include "mysql/options.h"
#include "mysql_client/connection.h"
#include "remote/checkup.h"

namespace hierlock::mysql {

// What the server answered. A Reply keeps its error, because a refusal is an answer, too.
struct Seen {
  std::string version;
  bool mariadb = false;
  bool database = true;                 // the URL's database can be used
  std::string no_database;              // why not
  remote::Settings global;              // SHOW GLOBAL VARIABLES
  remote::Settings status;              // SHOW GLOBAL STATUS
  Reply members;                        // of the group that it is in
  Reply prepared;                       // the session was set for locking
  Reply log_rows;                       // and to log rows, where the server logs statements
  remote::Settings session;             // its variables after that
  std::uint64_t logged_in_as = 0;       // the session's number in the server's greeting
  std::vector<std::uint64_t> sessions;  // CONNECTION_ID(), asked again while another session was opened
  std::string account;                  // our account at the server, in the form that GRANT needs
  std::string cipher;                   // of TLS; empty: none
  Reply second;                         // a second session was opened, as KILL needs it
  Reply kill;                           // KILL QUERY of that session
  Reply wait_view;
  Reply settings;     // format, buckets, levels, fence_floor, mint_server, mint_offset; this server, UUID_SHORT()
  Reply marked;       // a check of the numbers that the table was made for
  Reply raise_floor;  // an UPDATE of no row
  Reply lock;         // a locking read of no row
  Reply make_row;     // an INSERT of no row
  Reply who;          // the same for notices, and reading, changing and removing them
  Reply engine;
  Reply rows;                                      // level, count
  std::uint64_t minted[2] = {0, 0};                // UUID_SHORT(), twice
  std::optional<std::chrono::milliseconds> ahead;  // the server's clock less ours
  std::optional<std::uint64_t> server_time;        // in seconds since 1970
};

// One Finding for each thing looked at, always in the same order.
std::vector<Finding> judge(const Seen& seen, const Options& options);

}  // namespace hierlock::mysql
