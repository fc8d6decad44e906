// Look: copies of the table for snapshots, and the walk that checks that everything is sound.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/holders.h"
#include "engine/lanes.h"
#include "engine/names.h"
#include "engine/parts.h"
#include "engine/records.h"

namespace hierlock::engine {

class Look : Parts {
 public:
  Look(const Parts& parts, const Lanes& lanes, const Holders& holders, const Records& records, const Names& names);

  struct PartyCopy {
    std::uint64_t identity;  // distinguishes successive owners of one slot
    std::string name, note;
    std::int32_t process;
    std::string program;
    std::uint32_t slot;  // of its process
  };
  struct HolderCopy {
    Index owner, record, node;
    Mode mode;
    bool asked;
    std::int64_t fence, since;  // 0 of an acquire that is not finished
    std::size_t party;
    std::string target;
  };
  struct WaiterCopy {
    Index owner, record, node, waiter;
    Mode mode;
    QueueKey key;
    std::int64_t since;
    std::size_t party;
    std::string target, wanted;
  };
  struct Copy {
    std::vector<PartyCopy> parties;
    std::vector<HolderCopy> holders;
    std::vector<WaiterCopy> waiters;  // by node, then by place in the queue
  };
  Copy copy() const;
  // The owners that a waiter of the copy waits for.
  std::vector<Index> blockers(const Copy& copy, const WaiterCopy& waiter) const;
  // The owners that a waiter waits for, looked up for it alone.
  std::vector<Index> blockers_of(Index waiter) const;
  // This process holds nothing.
  bool nothing_held() const;

  // Walks the whole table, with everything quiet, and says what is wrong; empty if sound.
  std::string check() const;
  struct Use {
    std::uint32_t nodes, records, owners, blocks;
    std::uint32_t numbers, pages;  // of tallies: nodes that have a number, and pages of lanes
  };
  Use use() const;

 private:
  void check_queues(std::string& wrong, const std::map<Index, unsigned>& waiting) const;
  void check_memory(std::string& wrong, bool nobody_dead) const;
  PartyCopy copy_party(Index owner, Index record) const;

  const Lanes& lanes_;
  const Holders& holders_;
  const Records& records_;
  const Names& names_;
};

}  // namespace hierlock::engine
