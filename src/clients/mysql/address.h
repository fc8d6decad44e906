// Address: where a MySQL or MariaDB server is, and which account logs in. Read from a mysql:// URL.
#pragma once

#include "endpoint/endpoint.h"

namespace hierlock::mysql {

using Address = endpoint::Endpoint;
using endpoint::Tls;

// Reads the part of the URL that is about the connection. Throws invalid_argument.
inline Address read_address(const spi::Url& url, endpoint::Database database) {
  return endpoint::read(url, {.name = "mysql", .port = 3306}, database);
}

}  // namespace hierlock::mysql
