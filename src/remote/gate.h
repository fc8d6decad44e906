// Gate: the spi::Backend of every remote store. It is the only class that knows both the local queue and the store.
//
//   acquire ──> local queue (a memory: table) ──> driver ──> grant
//
// The threads of this process first queue here, by exact keys, first come, first served. So if several threads want the
// same target, one asks the store, on one session, and the others wait here. The Gate hands a released lock over to the
// next of them (hand_over.h), unless GateOptions says that every lock comes from the store.
#pragma once

#include <chrono>
#include <memory>

#include <hierlock/options.h>
#include <hierlock/spi/backend.h>

#include "remote/driver.h"

namespace hierlock::remote {

struct GateOptions {
  Owners owners = Owners::per_thread;
  std::chrono::milliseconds publish_after{1000};  // older locks and waits are published (notice_board.h)
  bool hand_over = true;  // false: a released lock always goes back to the store; the local queue is the same
};

std::unique_ptr<spi::Backend> make_gate(std::unique_ptr<Driver> driver, const GateOptions& options);

}  // namespace hierlock::remote
