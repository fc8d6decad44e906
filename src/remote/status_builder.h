// StatusBuilder: builds a snapshot from three sources: this process, the notices of other processes (notice.h), and the
// store's own view (view.h). No I/O.
//
// The process knows everything about its own sessions. The store knows, for all sessions, who has which cell and who
// waits for whom, but no paths. Notices have the paths and the owners of sessions. But notices come late, and stay for
// a moment after the lock is gone. If the store shows all locks, the builder leaves out a notice that the store does
// not confirm. It also leaves out a wait whose session has ended. It shows a lock without a notice by its cell, without
// a path.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <hierlock/snapshot.h>

#include "remote/notice.h"
#include "remote/view.h"

namespace hierlock::remote {

// How cells are shown to people. Where targets share cells, a cell is a row that `status` shows.
struct RowNames {
  std::function<std::optional<Snapshot::Row>(const std::string& target)> of_target =
      [](const std::string&) -> std::optional<Snapshot::Row> { return std::nullopt; };
  std::function<std::optional<Snapshot::Row>(const Cell& cell)> of_cell =
      [](const Cell&) -> std::optional<Snapshot::Row> { return std::nullopt; };
};

// For stores whose cells are rows of so many buckets a level.
RowNames names_of_rows(std::uint32_t buckets);

struct Sources {
  std::vector<Notice> own;     // of this process
  std::vector<Notice> others;  // published by other processes
  View view;
  std::function<bool(std::uint64_t session)> is_own;
  std::map<std::string, std::uint64_t> numbers;  // of the owners of `own`, as `into` below has them
  RowNames rows;
  std::vector<std::string> notes;
};

// `into` has what the local queue knows: what is held here, and who waits here. Adds the rest.
void build_status(const Sources& sources, Snapshot& into);

// Why a request that wants `wanted` waits at a cell (H15). `in_the_way` has the nodes of each lock or wait in its way.
// `all`: there are no others.
Snapshot::Contention judge(const Cell& cell, std::span<const Node> wanted,
                           std::span<const std::span<const Node>> in_the_way, bool all);

// The rows that are waited for, the most first.
std::vector<Snapshot::Bucket> hot_buckets(const Snapshot& snapshot);

}  // namespace hierlock::remote
