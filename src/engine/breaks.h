// Breaks: takes locks away from their holders, at an operator's word.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <hierlock/spi/plan.h>

#include "engine/holders.h"
#include "engine/nodes.h"
#include "engine/parts.h"
#include "engine/queues.h"

namespace hierlock::engine {

class Breaks : Parts {
 public:
  Breaks(const Parts& parts, Holders& holders, Queues& queues, Nodes& nodes);

  struct Breaking {
    std::size_t broken = 0;   // or doomed, by this call
    std::size_t no_room = 0;  // not broken: too many broken locks are still to be released by their owners
    // Locks that were being extended: lost to their owners, and broken when these have put an end to the extends.
    struct Doomed {
      Index record;
      std::uint64_t word;
    };
    std::vector<Doomed> doomed;
    bool unsure = false;  // a stopped process is just handing a lock over, maybe one of these
  };
  // Takes away every lock that was asked for with this target.
  Breaking break_locks(std::span<const spi::Step> steps);
  // Still held, as far as others are concerned.
  bool still_doomed(const Breaking::Doomed& lock) const noexcept {
    return record_at(lock.record).word.ordered() == lock.word && live_record(lock.record);
  }

 private:
  struct Asked {
    std::uint64_t word;
    bool changing;
    bool counted;  // it has an S or a slot, or may come to have one
  };
  std::optional<Asked> asked_with(Index record, Index target, std::uint32_t generation,
                                  std::vector<Index>* freed) const;
  // False if the record is no longer a lock that was asked for with the target.
  bool break_record(Index record, Index target, std::uint32_t generation, std::vector<Index>& freed, Breaking& all);

  Holders& holders_;
  Queues& queues_;
  Nodes& nodes_;
};

}  // namespace hierlock::engine
