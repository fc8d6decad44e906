// Address: where a PostgreSQL server is, and which account logs in. Read from a postgres:// URL.
//
// libpq reads the URL, so all of libpq's options are allowed. Four options are hierlock's own and mean the same as on
// every other server (endpoint::Access): tls, ca, password_file and password_env.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace hierlock::postgres {

struct Address {
  std::map<std::string, std::string> settings;  // libpq's keywords and their values
  std::string place;                            // for messages: `db.example:5432`
};

// By default, the certificate of a server on another machine is verified, and a connection within this machine is plain
// text. sslmode= in the URL or PGSSLMODE in the environment says otherwise. Throws Error(invalid_argument), which shows
// no password.
Address read_address(std::string_view url);

}  // namespace hierlock::postgres
