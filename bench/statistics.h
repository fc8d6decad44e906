// Statistics: what is made of the numbers of a round. Pure: no clock, no thread, no I/O.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace bench {

// Order statistics, interpolated between neighbours. All are 0 for no values.
struct Summary {
  double min = 0, q1 = 0, median = 0, q3 = 0, max = 0;
};
Summary summarize(std::vector<double> values);

// The smallest value that at least `percent` of all values do not exceed (nearest rank). 0 for no values.
double percentile(std::vector<double> values, double percent);

// Round by round: what disturbed the machine during a round disturbed both sides of its ratio. The shorter one decides
// how many there are; a peer value of 0 leaves its round out.
std::vector<double> ratios(std::span<const double> ours, std::span<const double> peer);

// What a ratio (ours to peer) has to reach.
struct Bar {
  enum class Kind { at_least, at_most };
  Kind kind = Kind::at_least;
  double value = 0;
};

enum class Enforce { full, half, off };

enum class Verdict {
  met,     // reaches the bar
  below,   // misses it, by less than what is enforced: half of an at_least, twice an at_most, anything with `off`
  missed,  // misses what is enforced
  shown,   // there is no bar
};

Verdict judge(const std::optional<Bar>& bar, double ratio, Enforce enforce) noexcept;

std::string_view to_string(Enforce enforce) noexcept;
std::string_view to_string(Verdict verdict) noexcept;

}  // namespace bench
