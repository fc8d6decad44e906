// Options: what a valkey:// or redis:// URL says to the store.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <hierlock/spi/url.h>

#include "valkey_client/address.h"

namespace hierlock::valkey {

struct Options {
  Address address;               // the first of these
  std::vector<Address> seeds{};  // several: nodes of a cluster
  std::string table = "locks";   // a part of all keys: stores with different tables share a server
  std::chrono::milliseconds lease{10'000};
  std::size_t connections = 16;                   // for questions, at most so many at once
  std::size_t wait_replicas = 0;                  // so many replicas confirm each grant and each renewal
  std::chrono::milliseconds publish_after{1000};  // holds and waits that last longer are published
  bool gate = true;                               // locks are handed over inside the process
  std::string url;                                // without the password
};

// Throws invalid_argument.
Options read_url(const spi::Url& url);

}  // namespace hierlock::valkey
