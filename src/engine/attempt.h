// Attempt: one acquire or extend on its way, and how far it got.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <hierlock/mode.h>
#include <hierlock/spi/plan.h>

#include "engine/found_cycle.h"
#include "engine/latch.h"
#include "engine/layout.h"

namespace hierlock::engine {

enum class Progress : std::uint8_t {
  granted,
  blocked,         // in the queue (or, without permission to queue, nowhere): come again when signalled
  self_deadlock,   // the owner itself holds or awaits what this would wait for
  deadlock,        // waiting would close a cycle: Attempt::cycle
  full,            // out of nodes, records, blocks, tallies or waiters: shortage() says of what
  slots_disagree,  // the holders of this slots name counted on another number: Attempt::slots_there
  lost,            // the lock was taken away
  late,            // somebody has had a latch for longer than is usual (a stopped process): come again, or give up
};

// Lives on the stack of whoever makes it.
struct Attempt {
  std::span<const spi::Step> steps;
  Index owner = none;
  Index record = none;
  std::uint32_t lane = 0;
  bool crowd = false;                       // several threads may act for the owner
  bool extending = false;                   // the record holds something already
  std::int64_t patience = Latch::for_ever;  // for latches, before advance() says `late`

  std::size_t next = 0;  // the step being taken
  Index waiter = none;   // its place in the queue
  std::int64_t floor = 0;
  std::uint32_t slots_there = 0;
  Index wanted = none;  // blocks: the request as text, for those who look; once `described`
  bool described = false;
  bool closed_by_taking = false;  // after `deadlock`: the last step was taken nevertheless
  FoundCycle cycle;               // after `deadlock`, `self_deadlock`

  Index& node_of(std::size_t step) { return step < few.size() ? few[step] : many[step - few.size()]; }
  std::array<Index, max_depth> few;  // nodes of the steps
  std::vector<Index> many;

  struct Undo {
    Index node;
    std::optional<Mode> before;
    bool asked_before;
  };
  std::vector<Undo> undo;  // extending: what to put back on failure
};

}  // namespace hierlock::engine
