// Layout: the words of the lock table. Indices instead of pointers, so that the table can be mapped anywhere, by any
// number of processes. Index 0 of every pool is never used: 0 means "none".
//
//   nodes      one per path prefix, name or slots name that is or was locked; found through the hash index
//   records    one per lock (handle), belonging to an owner; says which nodes it holds and how
//   owners     who holds and waits
//   processes  who shares the table (processes.h)
//   tallies    per lane (roughly: per thread) and shared node: how many records of that lane hold it in IS, IX, S
//   stripes    a latch, and the waiters of the nodes that fall into the stripe
//   blocks     notes, names, and the steps of locks on many targets
//   texts      what a node has no room for of a long segment
//
// Whose an entry is. Records, owners and blocks belong to processes, 64 at a time: one word per chunk names the
// process, and inside its chunks a process keeps its own accounts, in private memory. Lanes belong to processes, too.
// So what a dead process leaves behind is found by these words alone. Nodes, texts and the numbers of tallies belong to
// the table and are given out under index_latch; what of them is in use follows from the nodes.
//
// What decides who holds a node:
//   X       the node's word names the record. One compare-and-swap takes it, one gives it back.
//   IS IX S a tally in the holder's own lane. Sharing a node writes nothing that another thread reads in its own fast
//           path; a writer looks at all lanes, but only at nodes that carry the mark `marked`.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hierlock/mode.h>
#include <hierlock/target.h>

#include "engine/cell.h"
#include "engine/latch.h"
#include "engine/processes.h"

namespace hierlock::engine {

using Index = std::uint32_t;

inline constexpr Index none = 0;
inline constexpr std::size_t line = 64;  // bytes of a cache line; every pool's entry is one
inline constexpr unsigned stripe_count = 64;
inline constexpr unsigned most_lanes = 2048;

// A node's word:   generation (32) | flags (6) | record that holds it in X (26)
//
// The generation changes when the node falls out of use and when it is used again, so that what was prepared against
// the old key fails.
namespace word {
inline constexpr unsigned holder_bits = 26;
inline constexpr std::uint64_t holder = (std::uint64_t{1} << holder_bits) - 1;
inline constexpr std::uint64_t queued = std::uint64_t{1} << 26;   // waiters, or a latched change: no fast path
inline constexpr std::uint64_t marked = std::uint64_t{1} << 27;   // tallies may be non-zero: X must look at the lanes
inline constexpr std::uint64_t sharing = std::uint64_t{1} << 28;  // S is open and IX is not; otherwise the reverse
inline constexpr std::uint64_t closed = std::uint64_t{1} << 29;   // slots, or unused: never a fast path
inline constexpr std::uint64_t unused = std::uint64_t{1}
                                        << 30;  // free, or on its way there: whatever it says is not so
inline constexpr unsigned generation_shift = 32;
constexpr std::uint32_t generation(std::uint64_t w) { return static_cast<std::uint32_t>(w >> generation_shift); }
}  // namespace word

// How many records hold a node in IS, IX and S, as far as one lane has counted. A lane adds what its thread takes and
// subtracts what its thread gives back, also of locks that other threads took: so a single lane's numbers may be below
// zero, and only the sum over all lanes means something. The sum has room for all records there can be.
//
// Each lane but the common one has one thread that writes to it, which therefore needs no locked instruction to count.
struct Tally {
  Cell<std::uint64_t> intents;  // IX (32) | IS (32)
  Cell<std::uint64_t> shared;

  Cell<std::uint64_t>& of(Mode mode) noexcept { return mode == Mode::S ? shared : intents; }
  static constexpr std::uint64_t unit(Mode mode) noexcept { return mode == Mode::IX ? std::uint64_t{1} << 32 : 1; }
};

struct alignas(line) Lane {
  Cell<std::int64_t> last_fence;  // the highest that was minted in this lane, whoever had it; never goes down
  Cell<ProcessRef> process;       // whose lane it is; 0: nobody's, and all its tallies are zero
};

// What a node is, beside its text: length (16) | level (8) | space (8).
constexpr std::uint32_t make_meta(std::size_t length, unsigned level, Space space) {
  return static_cast<std::uint32_t>(length) | level << 16 | static_cast<std::uint32_t>(space) << 24;
}
constexpr std::size_t meta_length(std::uint32_t meta) { return meta & 0xFFFF; }
constexpr unsigned meta_level(std::uint32_t meta) { return meta >> 16 & 0xFF; }
// As far as a damaged table allows: whatever was read, it is a space, and below, a mode.
constexpr Space meta_space(std::uint32_t meta) { return static_cast<Space>((meta >> 24) % 3); }
constexpr Mode mode_of(std::uint32_t stored) { return static_cast<Mode>(stored & 3); }

inline constexpr std::size_t inline_text = 16;

struct alignas(line) Node {
  Cell<std::uint64_t> word;
  Cell<std::int64_t> last_fence;  // see I6 in table.h
  Cell<std::uint64_t> hash;
  Cell<std::uint64_t> text[inline_text / 8];  // the segment's first bytes, padded with zeros
  Cell<Index> parent;                         // while free: the next free node
  Cell<std::uint32_t> meta;
  Cell<Index> tally;             // where the lanes count this node; given before it is first shared, kept for good
  Cell<Index> more;              // texts with the rest of a long segment
  Cell<std::uint32_t> children;  // nodes below it: it is not reused before they are
  Cell<std::uint32_t> slots;     // capacity of a slots node, as its present holders and waiters understand it
};
static_assert(sizeof(Node) == line);

enum class RecordState : std::uint32_t {
  free,
  taking,
  held,
  broken,  // taken away by an operator: only the intentions on ancestors are left, until its owner lets go
};

// A record's word: generation (32) | state (32). A handle carries the generation, so a stale handle is noticed.
constexpr std::uint64_t record_word(std::uint32_t generation, RecordState state) {
  return std::uint64_t{generation} << 32 | static_cast<std::uint32_t>(state);
}
constexpr RecordState record_state(std::uint64_t w) { return static_cast<RecordState>(w & 0xFFFFFFFF); }
constexpr std::uint32_t record_generation(std::uint64_t w) { return static_cast<std::uint32_t>(w >> 32); }

// A lock on one path names only the deepest node it holds: the ancestors follow from the node. A lock on several
// targets lists its steps in blocks, newest first.
struct alignas(line) Record {
  Cell<std::uint64_t> word;
  Cell<std::int64_t> fence;
  Cell<std::int64_t> since;  // coarse_time() when it was granted
  Cell<Index> owner;
  Cell<Index> next_of_owner;  // all records of an owner, pushed once and never unlinked: safe to walk at any time
  Cell<Index> next_free;
  Cell<Index> want;                     // the node being taken: written before its word is changed
  Cell<Index> node;                     // one path: the deepest node held
  Cell<Index> steps;                    // many: blocks of steps; then `node` means nothing
  Cell<Index> note;                     // blocks
  Cell<std::uint32_t> mode;             // one path: the mode `node` is held in
  Cell<ProcessRef> process;             // its owner's
  Cell<std::uint32_t> stayed_stronger;  // counts upgrades that failed and could not be taken back; never reset
};
static_assert(sizeof(Record) == line);

// A step in a block: node (32) | mode (8) | asked (8). 0 is an empty place.
constexpr std::uint64_t make_step(Index node, Mode mode, bool asked) {
  return std::uint64_t{node} | std::uint64_t{static_cast<std::uint8_t>(mode)} << 32 | std::uint64_t{asked} << 40;
}
constexpr Index step_node(std::uint64_t step) { return static_cast<Index>(step); }
constexpr Mode step_mode(std::uint64_t step) { return static_cast<Mode>(step >> 32 & 3); }
constexpr bool step_asked(std::uint64_t step) { return (step >> 40 & 1) != 0; }

struct alignas(line) Block {
  static constexpr std::size_t words = 7;
  Cell<std::uint64_t> word[words];
  Cell<Index> next;
  Cell<std::uint32_t> used;  // text: bytes in this block and those after it
};
static_assert(sizeof(Block) == line);

inline constexpr Index chunk_size = 64;  // entries that a process takes at a time

enum class OwnerKind : std::uint32_t {
  thread,  // acts alone
  handle,  // owns one lock, and goes with it
  crowd,   // several threads may act for it at once
};

enum class OwnerState : std::uint32_t { free, live, retired };

struct alignas(line) OwnerSlot {
  Cell<std::uint64_t> word;  // generation (32) | state (32)
  Cell<Index> records;       // all its records, see Record::next_of_owner
  Cell<Index> returned;      // free records: a stack that anybody pushes to and one party at a time pops from
  Cell<Index> name;          // blocks
  Cell<Index> next_free;
  Cell<ProcessRef> process;
  Cell<std::int32_t> thread;
  Cell<std::uint32_t> kind;
};
static_assert(sizeof(OwnerSlot) == line);

// The place in a queue: requests of owners that already hold the node come first (top bit clear), then by ticket.
using QueueKey = std::uint64_t;
inline constexpr QueueKey newcomer = QueueKey{1} << 63;

struct alignas(line) Waiter {
  Cell<std::uint32_t> waiting;  // 1 while in the queue; set last, cleared first
  Cell<std::uint32_t> signal;   // futex: 1 means "look again"
  Cell<QueueKey> key;
  Cell<std::int64_t> since;  // coarse_time()
  Cell<Index> node;
  Cell<Index> record;
  Cell<Index> owner;
  Cell<Index> wanted;  // blocks: the whole request as text
  Cell<std::uint32_t> mode;
  Cell<std::uint32_t> entangled;  // its owner holds something outside the canonical order, see wait_graph.cc
  Cell<ProcessRef> process;
};
static_assert(sizeof(Waiter) == line);

struct alignas(line) Stripe {
  Latch latch;               // guards: queues of the stripe's nodes, and their words' flags
  Cell<std::uint32_t> used;  // no waiter at or above this place of the stripe's part of the pool
  Cell<std::uint64_t> tickets;
};

// Entries of the table itself, given out under index_latch. `next` is the first entry never used, `free` a list through
// a field of the entry.
struct Pool {
  Cell<Index> next;
  Cell<Index> free;
};

// Entries of processes, in chunks. A chunk is taken by a compare-and-swap of the word that names its process.
struct ChunkPool {
  Cell<Index> next;  // no chunk at or above this was ever used
  Cell<Index> hint;  // probably no chunk below this is free
};

// What happened to the table, for people. A ring; each entry is written by one process, and torn only if that dies.
struct alignas(line) LogEntry {
  static constexpr std::size_t words = 30;
  Cell<std::uint64_t> ticket;  // the number of the entry, written last
  Cell<std::int64_t> when;     // nanoseconds of the wall clock
  Cell<std::uint64_t> text[words];
};
inline constexpr std::size_t log_size = 64;

struct Header {
  Cell<std::int64_t> fence_floor;      // no fence of a node that was reused is higher; guarded by index_latch
  Cell<std::uint32_t> index_log2;      // size of the hash index in use
  Cell<std::uint32_t> index_entries;   // guarded by index_latch
  Cell<Index> sweep_hand;              // guarded by index_latch
  Cell<std::uint32_t> lanes_used;      // lanes at and above this were never used; only rises
  Cell<std::uint32_t> processes_used;  // slots at and above this were never used; only rises
  Cell<std::int64_t> next_watch;       // coarse_time() at which somebody who waits looks for the dead again
  Cell<std::uint64_t> log_next;
  // Order of latches: recovery_latch, index_latch, then stripes in ascending order.
  alignas(line) Latch recovery_latch;  // who collects what the dead had, or takes away from the living
  alignas(line) Latch index_latch;     // creating and reusing nodes, growing the index, and the pools of the next line
  alignas(line) Pool nodes;
  Pool texts, tallies;
  alignas(line) ChunkPool records;
  ChunkPool owners, blocks;
  Lane lanes[most_lanes];
  Stripe stripes[stripe_count];
  ProcessSlot processes[process_count];
  LogEntry log[log_size];
};

}  // namespace hierlock::engine
