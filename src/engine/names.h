// Names: nodes, locks and owners in words, for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/parts.h"

namespace hierlock::engine {

class Names : Parts {
 public:
  explicit Names(const Parts& parts) : Parts(parts) {}

  std::string node_text(Index node) const;
  // The targets it was asked for, as a list and as words; about 1,000 bytes of them at most.
  std::vector<std::string> record_targets(Index record) const;
  std::string record_text(Index record) const;
  std::string owner_name(Index owner) const;
  std::string owner_text(Index owner) const;  // the name and, if it is another's, the process
  std::int64_t process_of(Index owner) const;
  // Distinguishes successive owners of one place.
  std::uint64_t owner_identity(Index owner) const;
};

}  // namespace hierlock::engine
