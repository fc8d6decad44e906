// Picture: a snapshot, put together from what this process knows, what others have written down (who.h) and what the
// server shows (views.h). No I/O.
//
// Of its own sessions the process knows everything. The server knows who has which row and who waits for whom, of
// everybody, and no path. What was written down tells the paths, and who the sessions are, but late and, for a moment,
// after it is over: so where the server shows all locks, what it does not confirm is left out. What nobody has told is
// shown by its row, without a path.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <hierlock/snapshot.h>

#include "mysql/views.h"
#include "mysql/who.h"

namespace hierlock::mysql {

struct Looked {
  std::vector<Entry> own;   // of this process
  std::vector<Entry> told;  // by others
  View view;
  std::function<bool(std::uint64_t session)> is_own;
  std::map<std::string, std::uint64_t> numbers;  // of the owners of `own`, as `into` below has them
  std::uint32_t buckets = 1;
  std::vector<std::string> notes;
};

// `into` has what the local queue knows: what is held here, and who waits here. Adds the rest.
void draw(const Looked& looked, Snapshot& into);

// Why somebody who wants `wanted` waits at a row, of which these have what is in its way (H15). `all`: there is nobody
// else in its way.
Snapshot::Contention judge(const plan::Row& row, std::span<const Node> wanted,
                           std::span<const std::span<const Node>> in_the_way, bool all);

// The rows that are waited for, the most first.
std::vector<Snapshot::Bucket> hot_buckets(const Snapshot& snapshot);

}  // namespace hierlock::mysql
