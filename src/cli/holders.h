// Holders: what status and break print about who holds and who waits. Everything in it came from outside; nothing of it
// reaches a terminal unescaped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <hierlock/snapshot.h>
#include <hierlock/target.h>

#include "cli/output.h"

namespace hierlock::cli {

// How a snapshot calls the node of a target: without its mode and its number of slots.
std::string node_text(const Target& target);

// What is held or waited for: the target, or where only that is known the row.
std::string place_text(const std::string& target, const std::optional<Snapshot::Row>& row);

// A table of holders, each followed by lines about who it is; no line wider than `width`.
std::string holders_text(const std::vector<Snapshot::Holder>& holders, std::size_t width);

// `waits for` needs the whole snapshot, also the holders that are not shown.
std::string waiters_text(const std::vector<Snapshot::Waiter>& waiters, const Snapshot& all, std::size_t width);

// A table of the rows that are waited for.
std::string buckets_text(const std::vector<Snapshot::Bucket>& buckets, std::size_t width);

// Opens an array called `name`, fills and closes it.
void write_holders(Json& json, std::string_view name, const std::vector<Snapshot::Holder>& holders);
void write_waiters(Json& json, std::string_view name, const std::vector<Snapshot::Waiter>& waiters);
void write_buckets(Json& json, std::string_view name, const std::vector<Snapshot::Bucket>& buckets);

}  // namespace hierlock::cli
