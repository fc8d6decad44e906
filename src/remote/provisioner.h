// Provisioner: makes all rows of a table of levels and buckets ahead of time (H11), for stores that lock rows.
//
// It works in chunks. Each chunk is one transaction. So an operator may kill a run, repeat it, or run it twice at the
// same time. It counts the existing rows, span by span. Counting ten million rows took 2 to 4 s, a tenth of the time to
// make them. A record of its progress would not work, because it would not know of rows that others make: a second
// operator, or requests with ?provision=lazy.
//
// Making rows keeps one core of the server busy, whatever the statement (docs/bench.md). So two sessions make the two
// halves of a level at the same time. It uses no more sessions, because others use the server. A throttled run uses
// one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <hierlock/error.h>
#include <hierlock/operate.h>

namespace hierlock::remote {

// A run of buckets of one level.
struct RowRange {
  unsigned level = 0;
  std::uint32_t first = 0, rows = 0;
  std::uint32_t last() const noexcept { return first + (rows - 1); }
};

// One session that makes rows. Exceptions are hierlock::Error.
class RowMaker {
 public:
  virtual ~RowMaker() = default;
  virtual std::uint64_t count(const RowRange& range) = 0;  // how many rows of it are there
  // Begins to make what is missing of the range, and does not wait. Others may make or hold rows of it meanwhile.
  virtual void begin(const RowRange& range, bool nothing_there) = 0;
  virtual std::uint64_t end() = 0;    // waits until the range is there; how many rows this made
  virtual std::uint64_t bytes() = 0;  // what the server says the table takes now; 0: it does not say
};

struct RowTable {
  std::uint32_t buckets = 0;
  unsigned levels = 0;
  double least_row_bytes = 0, usual_row_bytes = 0;  // on disk, for the estimate
};

// The number of rows of a chunk: the requested number, but fewer in a throttled run. So a throttled run reports its
// progress, and can be ended, twice a second. Throws invalid_argument.
std::uint32_t chunk_rows(const ProvisionOptions& wanted);

// `another` makes a second session; if it throws `exhausted`, one will do.
void provision(const RowTable& table, const ProvisionOptions& wanted, RowMaker& maker,
               const std::function<std::unique_ptr<RowMaker>()>& another);

// Combines the number that the caller asks for with the number in the URL, if there is one. Throws invalid_argument if
// they differ or the number is out of range.
template <class T>
void agree(std::optional<T>& in_url, const std::optional<T>& asked, std::uint64_t most, const std::string& what) {
  if (!asked) return;
  if (*asked < 1 || *asked > most) {
    throw Error(ErrorKind::invalid_argument,
                what + ": " + std::to_string(*asked) + " is not a number from 1 to " + std::to_string(most));
  }
  if (in_url && *in_url != *asked) {
    throw Error(ErrorKind::invalid_argument, "the URL says " + what + "=" + std::to_string(*in_url) + ", but " +
                                                 std::to_string(*asked) + " was asked for: leave out one of them");
  }
  in_url = asked;
}

}  // namespace hierlock::remote
