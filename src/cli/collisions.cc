// Ids in buckets are balls in bins: n ids thrown independently into m buckets. All powers (1 - 1/m)^n go through log1p
// and expm1, because 1 - (1 - 1e-7)^1 has no correct digit left when it is computed as it is written.
//
// Real ids are not thrown at random. Measured with FNV-1a: random ids share within 2 % of the prediction, ids that are
// counted up (1, 2, 3, ...) 0.74 to 1.38 times as often as predicted while few share, less far off when many do.
// Apart from that, modulo m is not perfectly even: with m near 2^31 some buckets get 3 of the 2^32 hashes and some 2.
#include "cli/collisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/output.h"

namespace hierlock::cli {
namespace {

// 1 - (1 - p)^n
double at_least_one(double p, double n) { return n == 0 ? 0 : p >= 1 ? 1 : -std::expm1(n * std::log1p(-p)); }

// The expected maximum of m standard normal variables: the integral of P(max >= z) above 0, less that of P(max < z)
// below.
double expected_maximum_of_normals(double m) {
  constexpr double step = 1e-3;
  double sum = 0;
  for (double z = -9 + step / 2; z < 9; z += step) {
    const double above = at_least_one(0.5 * std::erfc(z / std::sqrt(2.0)), m);
    sum += (z > 0 ? above : above - 1) * step;
  }
  return sum;
}

// The expected number of ids in the fullest bucket. The load of one bucket is binomial; the loads of different buckets
// are taken to be independent, which is exact enough even for two ids. With many ids per bucket the loads are normal,
// and what ties them together (their sum is n) widens the deviation of one bucket to sqrt(n / m).
double expected_largest(double n, double m) {
  if (m <= 1) return n;
  const double mean = n / m;
  if (mean > 10'000) return mean + std::sqrt(mean) * expected_maximum_of_normals(m);
  const double top = std::min(n, std::ceil(mean + 40 * std::sqrt(mean) + 60));
  std::vector<double> log_probability{n * std::log1p(-1 / m)};  // index: load of one bucket
  for (double load = 0; load < top; ++load) {
    log_probability.push_back(log_probability.back() + std::log((n - load) / (load + 1) / (m - 1)));
  }
  // Some bucket has the mean, rounded up; each load beyond that counts with the probability that it is reached.
  const auto least = static_cast<std::size_t>(std::ceil(mean));
  double sum = static_cast<double>(least);
  double tail = 0;
  for (std::size_t load = log_probability.size() - 1; load > least; --load) {
    tail += std::exp(log_probability[load]);
    sum += at_least_one(std::min(tail, 1.0), m);
  }
  return sum;
}

// 3 significant digits, never in powers of ten unless it is tiny.
std::string percent(double probability) {
  const double value = 100 * probability;
  if (value == 0) return "0 %";
  if (value >= 99.95) return value == 100 ? "100 %" : fmt::format("{:.5g} %", std::min(value, 99.999));
  return value < 1e-6 ? fmt::format("{:.1e} %", value) : fmt::format("{:.3g} %", value);
}

std::string amount(double value) {
  if (value >= 1e9) return fmt::format("{:.4g}G", value / 1e9);
  return value >= 1'000 ? grouped(static_cast<std::uint64_t>(std::llround(value))) : fmt::format("{:.3g}", value);
}

std::string collisions_text(const CollisionsCommand& command) {
  using Align = Table::Align;
  const bool levels = command.ids.size() > 1;
  std::vector<Table::Column> titles{{"ids", Align::right},
                                    {"ids sharing", Align::right},
                                    {"an id shares", Align::right},
                                    {"fullest", Align::right},
                                    {"a lock meets", Align::right}};
  if (levels) titles.insert(titles.begin(), {"level", Align::right});
  Table table(titles);
  for (std::size_t level = 0; level < command.ids.size(); ++level) {
    const std::uint64_t ids = command.ids[level];
    const Prediction p = predict(ids, command.buckets, command.at_once);
    std::vector<std::string> cells{grouped(ids), amount(p.ids_sharing), percent(p.id_shares), amount(p.largest_bucket),
                                   percent(p.new_lock_meets)};
    if (levels) cells.insert(cells.begin(), std::to_string(level));
    table.add(cells);
  }
  std::string out = fmt::format("Predicted false contention with {} {} per level\n\n", grouped(command.buckets),
                                command.buckets == 1 ? "bucket" : "buckets");
  out += table.str();
  out += "\n";
  out += "ids sharing   expected number of ids that have a bucket in common with another\n";
  out += "an id shares  probability that a given id is one of them\n";
  out += "fullest       expected number of ids in the fullest bucket\n";
  out += fmt::format(
      "a lock meets  probability that a new exclusive lock waits without need for one\n"
      "              of {} held at that moment on other ids of its level\n",
      grouped(command.at_once));
  return out;
}

std::string collisions_json(const CollisionsCommand& command) {
  Json json;
  json.open_object()
      .number("version", std::uint64_t{1})
      .number("buckets", std::uint64_t{command.buckets})
      .number("at_once", command.at_once)
      .open_array("levels");
  for (std::size_t level = 0; level < command.ids.size(); ++level) {
    const Prediction p = predict(command.ids[level], command.buckets, command.at_once);
    json.open_object()
        .number("level", std::uint64_t{level})
        .number("ids", command.ids[level])
        .number("ids_sharing", p.ids_sharing)
        .number("id_shares", p.id_shares)
        .number("buckets_used", p.buckets_used)
        .number("largest_bucket", p.largest_bucket)
        .number("new_lock_meets", p.new_lock_meets)
        .close();
  }
  return json.close().close().str();
}

}  // namespace

Prediction predict(std::uint64_t ids, std::uint32_t buckets, std::uint64_t at_once) {
  const auto n = static_cast<double>(ids);
  const auto m = static_cast<double>(buckets);
  Prediction p;
  p.id_shares = at_least_one(1 / m, n - 1);
  p.ids_sharing = n * p.id_shares;
  p.buckets_used = m * at_least_one(1 / m, n);
  p.largest_bucket = expected_largest(n, m);
  p.new_lock_meets = at_least_one(1 / m, static_cast<double>(std::min(at_once, ids - 1)));
  return p;
}

std::string collisions(const CollisionsCommand& command) {
  return command.json ? collisions_json(command) : collisions_text(command);
}

}  // namespace hierlock::cli
