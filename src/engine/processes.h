// Processes: who shares the table, and which of them are dead.
//
// A process has a slot: a word, and a byte of the file that it keeps locked (an open-file-description lock, which the
// kernel drops when the process ends, however it ends). Death is one word: whoever finds the byte of a live slot
// unlocked changes the word from live to dead by one compare-and-swap. From that instant nothing that names the slot
// counts any more: not its lanes' tallies, not the nodes its records hold, not its waiters, not its latches. All that
// follows is collecting garbage (recovery.cc), which anybody may do, any number of times, and be killed doing.
//
// The byte decides, with two exceptions, both asked only within one pid namespace:
// - A child made by fork() without exec inherits the lock. So a process whose byte is locked, but whose id is gone or
//   was given to another, is dead too; but not if it gave its lifeline away (Locker::lifeline), because then a child is
//   meant to keep the locks.
// - A process may close the descriptor by accident (a daemon that closes all it does not know). It is not dead while it
//   has the table mapped: a lock that stays too long is better than one that two hold. It finds its locks lost, and
//   lets go of them when it ends.
#pragma once

#include <cstdint>
#include <string>

#include <hierlock/snapshot.h>

#include "engine/cell.h"
#include "engine/descriptor.h"
#include "engine/futex.h"

namespace hierlock::engine {

inline constexpr std::uint32_t process_bits = 10;
inline constexpr std::uint32_t process_count = 1u << process_bits;  // slot 0 is never used

// What names a process everywhere in the table: slot (10) | how often the slot was used (21). A latch has one bit
// beside.
using ProcessRef = std::uint32_t;
inline constexpr ProcessRef process_ref_mask = 0x7FFFFFFF;
constexpr std::uint32_t slot_of(ProcessRef ref) { return ref & (process_count - 1); }

enum class ProcessState : std::uint32_t { free, live, dead };

struct alignas(64) ProcessSlot {
  static constexpr std::size_t program_words = 24;

  Cell<std::uint64_t> word;     // state (32) | ref (32)
  Cell<std::uint64_t> started;  // in clock ticks since boot: tells a process from a later one with its id
  Cell<std::uint64_t> pid_namespace;
  Cell<std::uint64_t> base;  // where it has mapped the table
  Cell<std::int32_t> pid;
  Cell<std::uint32_t> lifeline;   // given away: the byte alone decides
  Cell<std::uint32_t> entangled;  // its waiters that may be part of a cycle, or more
  Cell<std::uint32_t> common_lane;
  // The process, if it gave its lifeline away and is gone: its locks count, it does nothing any more. By its name,
  // because whoever found that may write it late, when the slot is another's.
  Cell<ProcessRef> orphan;
  Cell<std::uint64_t> program[program_words];
};

class Processes {
 public:
  // A table of this process alone: nobody to look after.
  void begin_alone(ProcessSlot* slots, Cell<std::uint32_t>* used) noexcept;
  // A table in a file. Takes a slot; false if all are taken. `file` stays the caller's. If none is free, but some are
  // of processes that died, it takes such a one's place: `instead_of` is then to be collected.
  bool begin(ProcessSlot* slots, Cell<std::uint32_t>* used, int file, const void* base,
             ProcessRef& instead_of) noexcept;

  ProcessRef self() const noexcept { return self_; }
  std::uint32_t self_slot() const noexcept { return slot_of(self_); }
  bool alone() const noexcept { return file_ < 0; }
  Reach reach() const noexcept { return alone() ? Reach::this_process : Reach::all_processes; }

  bool live(ProcessRef ref) const noexcept { return slots_[slot_of(ref)].word.ordered() == live_word(ref); }
  // It lives, and not only its locks do.
  bool runs(ProcessRef ref) const noexcept { return live(ref) && slots_[slot_of(ref)].orphan.ordered() != ref; }
  bool slot_live(std::uint32_t slot) const noexcept {
    return slots_[slot % process_count].word.ordered() >> 32 == static_cast<std::uint32_t>(ProcessState::live);
  }
  // `ref` is the dead process, or an earlier one of its slot: whoever took a dead one's place may have died in turn
  // before it had collected everything. Never a later one, dead or not: it is collected from the beginning.
  static bool left_by(ProcessRef dead, ProcessRef ref) noexcept {
    return slot_of(ref) == slot_of(dead) && ((dead - ref) & process_ref_mask) <= process_ref_mask / 2;
  }
  std::uint32_t used() const noexcept;
  ProcessSlot& slot(std::uint32_t index) const noexcept { return slots_[index % process_count]; }
  ProcessState state(std::uint32_t index) const noexcept {
    return static_cast<ProcessState>(slot(index).word.ordered() >> 32);
  }
  // The process of a slot if it is dead, or 0.
  ProcessRef dead(std::uint32_t index) const noexcept {
    const std::uint64_t word = slot(index).word.ordered();
    return word >> 32 == static_cast<std::uint32_t>(ProcessState::dead) ? static_cast<ProcessRef>(word) : 0;
  }
  ProcessRef ref(std::uint32_t index) const noexcept { return static_cast<ProcessRef>(slot(index).word.ordered()); }

  // Looks whether the process of a slot is gone, and if so marks it dead. True if it is dead now. `thorough` also asks
  // for a forked child that hides the death of its parent; that costs more.
  bool find_dead(std::uint32_t index, bool thorough) noexcept;
  // This process goes. Whoever comes next collects what it leaves behind: it must not do so itself, because a dead
  // process cannot keep others from doing the same.
  void leave() noexcept;
  // After everything of the dead process was collected.
  void free_slot(ProcessRef ref) noexcept;

  // Keeps others from beginning to use the table in this file, until the descriptor is closed. False if somebody uses
  // it, or has shut it.
  static bool shut(int file) noexcept;
  // What others do with it at this moment.
  enum class Use : std::uint8_t { none, shut, used };
  static Use use_by_others(int file) noexcept;

  // Its byte is still locked by this process: the descriptor was not closed behind our back.
  bool byte_is_mine() const noexcept;

  std::string program(std::uint32_t index) const;

  // What the process of a live slot does. Costs reading files of /proc.
  Snapshot::Doing doing(std::uint32_t index) const noexcept;

 private:
  static constexpr std::uint64_t word_of(ProcessState state, ProcessRef ref) {
    return std::uint64_t{static_cast<std::uint32_t>(state)} << 32 | ref;
  }
  static constexpr std::uint64_t live_word(ProcessRef ref) { return word_of(ProcessState::live, ref); }
  void know_oneself() noexcept;
  void introduce(ProcessSlot& slot) const noexcept;
  bool take(std::uint32_t index, std::uint64_t word) noexcept;
  bool process_gone(const ProcessSlot& slot, bool thorough) const noexcept;
  bool has_table_mapped(const ProcessSlot& slot) const noexcept;

  ProcessSlot* slots_ = nullptr;
  Cell<std::uint32_t>* used_ = nullptr;
  int file_ = -1;
  ProcessRef self_ = 0;
  std::uint64_t namespace_ = 0;  // where process ids and start times mean the same as here; 0: not known
  DescriptorMark mark_;          // of the table's file
  std::uint64_t base_ = 0;       // where this process has mapped it
  std::uint64_t started_ = 0;
};

}  // namespace hierlock::engine
