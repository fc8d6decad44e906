// Address: where a Valkey or Redis server is, and which account logs in. Read from a valkey:// or redis:// URL.
#pragma once

#include <string>
#include <vector>

#include "endpoint/endpoint.h"

namespace hierlock::valkey {

using Address = endpoint::Endpoint;
using endpoint::Tls;

// A URL without a user means the user `default`. The URL may name several nodes of a cluster, HOST:PORT,HOST:PORT. Each
// of them becomes an Address. Throws invalid_argument.
std::vector<Address> read_addresses(const spi::Url& url);

// Another node of the same cluster, at HOST:PORT. Throws denied if the password would leave this machine in plain text,
// though the URL names this machine.
Address node_at(const Address& seed, const std::string& place);

}  // namespace hierlock::valkey
