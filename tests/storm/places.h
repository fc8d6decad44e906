// Places: what the storm locks. A small tree, some names and some slots, so that everybody is in everybody's way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hierlock/target.h>

namespace storm {

inline constexpr std::size_t most_places = 48;

struct Place {
  hierlock::Target target;      // exclusive, or the slots
  std::string text;             // as people write it
  int parent = -1;              // the place above
  std::vector<int> above = {};  // ancestors, the nearest first
  std::vector<int> below = {};  // descendants
  std::uint32_t slots = 0;      // how many may be inside at once; 0: a path or a name
  bool breakable = false;       // its locks are broken now and then; nobody holds it together with another place
};

// Users, their accounts, their resources; names; slots. The same in every process.
const std::vector<Place>& places();
std::vector<int> accounts();
std::vector<int> breakable_places();
int hot_place();  // a resource

}  // namespace storm
