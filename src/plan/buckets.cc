#include "plan/buckets.h"

#include <algorithm>
#include <tuple>

#include <hierlock/error.h>

namespace hierlock::plan {

std::vector<Row> rows_of(const spi::Plan& plan, std::uint32_t buckets) {
  if (buckets == 0) throw Error(ErrorKind::invalid_argument, "the number of buckets is 0; use at least 1");
  std::vector<Row> rows;
  rows.reserve(plan.steps().size());
  for (const spi::Step& step : plan.steps()) {
    if (step.space != Space::path) {
      throw Error(ErrorKind::unsupported,
                  "only paths have bucket rows, not " + spi::describe_key(step.space, step.key));
    }
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

}  // namespace hierlock::plan
