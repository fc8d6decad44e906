// Places: where the nodes of a plan are kept. Pure: no I/O.
//
// A node lies under its root: the first segment of its path, or its name. All nodes of a root are under one hash tag,
// so one script decides about them, and a cluster keeps them together. The tag is a hash of 24 bits. Roots that share a
// tag share a script, but no lock, because the script tells nodes apart by their whole names.
//
// A cell's key is the tag, the node's level (3 bits) and a hash of the node (37 bits). So the order of cells is the
// order in which nodes are locked: tag by tag, ancestors first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <hierlock/spi/plan.h>

#include "remote/cell.h"
#include "remote/lease_store.h"

namespace hierlock::valkey {

remote::Cell cell_of(Space space, std::uint8_t level, std::string_view key, Mode mode);
std::string place_of(const remote::Cell& cell, const std::string& table);
std::vector<remote::LeaseGroup> groups_of(const spi::Plan& plan, const std::string& table);
// NODES of locks.lua: NODE MODE SLOTS for each, a line each.
std::string words_of(const std::vector<remote::LeaseNode>& nodes);

}  // namespace hierlock::valkey
