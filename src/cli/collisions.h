// collisions: predicted false contention on stores with bucket rows (H15).
#pragma once

#include <cstdint>
#include <string>

#include "cli/arguments.h"

namespace hierlock::cli {

// What to expect of `ids` different ids on one level with `buckets` buckets, each id in a bucket at random.
struct Prediction {
  double id_shares = 0;       // probability that a given id shares its bucket with another
  double ids_sharing = 0;     // expected number of ids that do
  double buckets_used = 0;    // expected number of buckets with at least one id
  double largest_bucket = 0;  // expected number of ids in the fullest bucket
  double new_lock_meets = 0;  // probability that a lock on one more id meets a bucket that a different id, locked at
                              // this moment, is in
};

// `ids` and `at_once` from 1 to 10^12, `buckets` from 1. Of `at_once` locks at most ids - 1 are on other ids.
Prediction predict(std::uint64_t ids, std::uint32_t buckets, std::uint64_t at_once);

std::string collisions(const CollisionsCommand& command);

}  // namespace hierlock::cli
