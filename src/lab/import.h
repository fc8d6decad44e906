// Import: a spec of PostgreSQL's isolationtester, as it is written. The grammar is in src/test/isolation/README of
// PostgreSQL's source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hierlock::lab {

struct Spec {
  struct Step {
    std::string name, sql;
  };
  struct Session {
    std::string name;
    std::string setup, teardown;  // empty: none
    std::vector<Step> steps;
  };
  std::vector<std::string> setup;
  std::string teardown;
  std::vector<Session> sessions;
  struct Entry {
    std::string step;
    bool marked = false;  // with a marker, the tester may tell later than it happens that the step waits or ends
  };
  using Permutation = std::vector<Entry>;
  std::vector<Permutation> permutations;  // none: every interleaving
};

// Throws Error(invalid_argument): `file:line: ` and what was expected there.
Spec read_spec(std::string_view text, const std::string& file);

}  // namespace hierlock::lab
