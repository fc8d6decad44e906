// Store: what the storm goes over, and what can be asked of it there.
#pragma once

#include <string>

#include <hierlock/snapshot.h>

#include "places.h"
#include "witness.h"

namespace storm {

struct Store {
  std::string name;  // as people call it, without a password
  std::string url;   // of a table that nobody else uses
  std::string file;  // of that table, for shm:; empty if it is at a server
  hierlock::Capabilities can = {};
  bool breaks = false;  // break_locks

  bool at_a_server() const { return file.empty(); }
  // Whether the place can be locked there, and whether it can be shared.
  bool has(const Place& place) const;
  bool shares(const Place& place) const;
};

// Asks the store at `store.url`, by a process of its own, and fills in what it can do. False if it cannot be opened;
// the reason is then on stderr.
bool ask(const Witness& witness, Store& store);

}  // namespace storm
