// Doctor: what is unsafe or slow in a Valkey or Redis server for locks (remote/checkup.h).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "remote/checkup.h"
#include "valkey/options.h"
#include "valkey_client/slot_map.h"

namespace hierlock::valkey {

// All that the server has said.
struct Seen {
  remote::Settings info;               // of INFO
  std::string rights;                  // why a lock could not be taken and given back; empty: it could
  bool denied = false;                 // because a right is missing
  std::vector<std::uint64_t> clients;  // CLIENT ID, asked several times
  std::string cipher;                  // of TLS
  SlotMap::Shape cluster{};            // if it is one, and says so
  std::chrono::milliseconds clock_ahead{};
};

std::vector<Finding> judge(const Seen& seen, const Options& options);

}  // namespace hierlock::valkey
