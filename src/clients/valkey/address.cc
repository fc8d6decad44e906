#include "valkey_client/address.h"

#include <hierlock/error.h>

#include "endpoint/sql.h"

namespace hierlock::valkey {

std::vector<Address> read_addresses(const spi::Url& url) {
  std::vector<Address> addresses;
  const auto read = [&](const spi::Url& one) {
    addresses.push_back(
        endpoint::read(one, {.name = url.scheme, .port = 6379, .needs_user = false}, endpoint::Database::optional));
  };
  // //ACCOUNT@HOSTS/DATABASE
  const std::string& rest = url.rest;
  const std::size_t slash = rest.find('/', 2), end = slash == rest.npos ? rest.size() : slash;
  const std::size_t at = rest.rfind('@', end), begin = at == rest.npos ? 2 : at + 1;
  if (rest.find(',', begin) >= end) {
    read(url);
    return addresses;
  }
  for (std::size_t from = begin; from <= end;) {
    const std::size_t comma = std::min(rest.find(',', from), end);
    spi::Url one = url;
    one.rest = rest.substr(0, begin) + rest.substr(from, comma - from) + rest.substr(end);
    read(one);
    from = comma + 1;
  }
  return addresses;
}

Address node_at(const Address& seed, const std::string& place) {
  Address node = seed;
  const std::size_t colon = place.rfind(':');
  node.socket.clear();
  node.host = place.substr(0, colon);
  node.port = endpoint::number<unsigned>(std::string_view(place).substr(colon + 1));
  if (node.tls == Tls::off && is_local(seed) && !is_local(node)) {
    throw Error(ErrorKind::denied, "the cluster at " + seed.place() + " names a node on another machine, " + place +
                                       ": name the nodes in the URL by the addresses that they have there");
  }
  return node;
}

}  // namespace hierlock::valkey
