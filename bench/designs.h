// Designs: three ways to lock ids by rows of a database, side by side on a real server (H16). docs/bench.md says what
// was found.
//
// A: a row an id, made beforehand. B: the same, made by the lock itself if it is missing. C: hierlock's buckets, a
// fixed number of rows that ids share. A and B exist here only.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace bench::designs {

// One design with a number of threads: pairs a second, and how long an acquire took.
struct Load {
  double pairs_per_second = 0, p50 = 0, p99 = 0;  // times in nanoseconds
};

// Threads that hold for a while. A wait is false if nobody else asked for that id, or held it, at the time.
struct Contention {
  std::size_t acquires = 0, waits = 0, false_waits = 0, deadlocks = 0;
};

struct Row {
  std::string server, design;
  std::size_t table_rows = 0;  // after all ids were used
  double table_bytes = 0;
  double first_use = 0, later_use = 0;  // of a pair, p50, in nanoseconds
  double siblings = 0;    // an acquire of eight threads at once, first use of different ids of one user, p50
  Load one, eight;        // threads
  Contention contention;  // of eight threads
};

struct Outcome {
  std::vector<Row> rows;
  std::vector<std::string> skipped;  // servers, with the reason
};

using Progress = std::function<void(std::string_view server, std::string_view doing)>;

// On each server that the environment names. Takes a minute or two; `quick` a quarter of it.
Outcome run(bool quick, const Progress& progress);

std::string table(const Outcome& outcome);
std::string json(const Outcome& outcome, bool quick);

}  // namespace bench::designs
