// Cases: what is compared, and what it has to reach ("Numbers to reach" of the design; docs/bench.md explains each).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "statistics.h"

namespace bench {

enum class Unit {
  pairs_per_second,
  nanoseconds,
  bytes,
  bytes_per_second,
  cores,
  instructions,
  sleeps,
  connections,
  requests_per_second,
  statements_per_second
};

// A row of the table. Cases with the same group are measured together, in the same rounds.
struct Case {
  std::string_view group;
  std::string_view peer_label;  // the name of the case is group/peer_label
  std::string_view ours;        // contenders of the group, by name
  std::string_view peer;
  Unit unit;
  std::optional<Bar> bar;
  std::string_view what;     // what is measured
  std::string_view against;  // with what it is compared

  std::string name() const { return std::string(group) + "/" + std::string(peer_label); }
};

std::span<const Case> all_cases();

struct Effort {
  std::size_t rounds = 15;
  bool quick = false;
  bool full = false;  // databases at the size they are meant for: minutes
};

struct Result {
  const Case* what = nullptr;
  Summary ours, peer, ratio;  // over the rounds; the ratio is taken within each round
};

// A case that could not be measured here, and why.
struct Skipped {
  const Case* what = nullptr;
  std::string why;
};

struct Outcome {
  std::vector<Result> results;
  std::vector<Skipped> skipped;
};

// Told before each round of a group, and before something slow is prepared.
using Progress = std::function<void(std::string_view group, std::string_view doing)>;

// Measures the given cases (pointers into all_cases()), group by group. Throws if a contender does not work.
Outcome run(const std::vector<const Case*>& selected, const Effort& effort, const Progress& progress);

}  // namespace bench
