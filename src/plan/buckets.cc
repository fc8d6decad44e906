#include "plan/buckets.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include <hierlock/error.h>

namespace hierlock::plan {

std::vector<Row> rows_of(const spi::Plan& plan, std::uint32_t buckets) {
  if (buckets == 0) throw Error(ErrorKind::invalid_argument, "the number of buckets is 0; use at least 1");
  std::vector<Row> rows;
  rows.reserve(plan.steps().size());
  for (const spi::Step& step : plan.steps()) {
    if (step.space != Space::path) continue;
    rows.push_back({step.level, bucket_of(step.key, buckets), row_mode(step.mode)});
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::tie(a.level, a.bucket, a.mode) < std::tie(b.level, b.bucket, b.mode);
  });
  std::size_t kept = 0;
  for (const Row& row : rows) {
    Row& last = rows[kept == 0 ? 0 : kept - 1];
    if (kept > 0 && last.level == row.level && last.bucket == row.bucket) {
      last.mode = strongest(last.mode, row.mode);
    } else {
      rows[kept++] = row;
    }
  }
  rows.resize(kept);
  return rows;
}

std::vector<SharedRow> shared_rows(const spi::Plan& plan, std::uint32_t buckets) {
  std::map<std::pair<unsigned, std::uint32_t>, std::vector<std::string>> nodes;
  for (const spi::Step& step : plan.steps()) {
    if (step.space != Space::path) continue;
    nodes[{step.level, bucket_of(step.key, buckets)}].push_back(spi::describe_key(step.space, step.key));
  }
  std::vector<SharedRow> shared;
  for (auto& [row, names] : nodes) {
    if (names.size() > 1) shared.push_back({row.first, row.second, std::move(names)});
  }
  return shared;
}

void check_rows(const spi::Plan& plan, unsigned levels, std::string_view store) {
  const std::string of(store);
  for (const spi::Step& step : plan.steps()) {
    const auto node = [&] { return spi::describe_key(step.space, step.key); };
    if (step.space != Space::path) continue;
    if (step.level >= levels) {
      throw Error(ErrorKind::invalid_argument,
                  node() + " has more levels than the " + std::to_string(levels) +
                      " that this table was made for: shorten it, or provision another table= with more --levels, for "
                      "everybody");
    }
    if (step.mode == Mode::S && step.asked && step.level + 1u != levels) {
      throw Error(ErrorKind::unsupported, "shared " + node() + ": rows have no intention modes, so " + of +
                                              ": can share at the deepest level only (level " +
                                              std::to_string(levels - 1) + ")");
    }
  }
}

}  // namespace hierlock::plan
